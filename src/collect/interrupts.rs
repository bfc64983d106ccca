//! The time CPUs spend in interrupts: the `irq` and `softirq` columns of /proc/stat (proc_stat(5)).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek};
use std::path::Path;

use anyhow::{Context, Result};

use crate::model::units::CpuId;

/// `USER_HZ`: the kernel shows times to user space in hundredths of a second on every architecture we run on.
const TICK_NS: u64 = 10_000_000;

/// Reads the file again with each sample.
pub struct InterruptReader {
    file: BufReader<File>,
    line: String,
}

impl InterruptReader {
    /// # Errors
    /// The file cannot be opened.
    pub fn open(root: &Path) -> Result<InterruptReader> {
        let path = root.join("proc/stat");
        let file = File::open(&path).with_context(|| format!("opening {}", path.display()))?;
        Ok(InterruptReader { file: BufReader::new(file), line: String::new() })
    }

    /// CPU → time in hard and soft interrupts since boot, ns, in steps of 10 ms.
    ///
    /// # Errors
    /// The file cannot be read again.
    pub fn read(&mut self) -> io::Result<BTreeMap<CpuId, u64>> {
        let mut times = BTreeMap::new();
        self.file.rewind()?;
        loop {
            self.line.clear();
            // The CPUs come first; what follows is long.
            if self.file.read_line(&mut self.line)? == 0 || !self.line.starts_with("cpu") {
                return Ok(times);
            }
            times.extend(parse(&self.line));
        }
    }
}

/// `cpu3 user nice system idle iowait irq softirq …`; nothing for the line of all CPUs.
fn parse(line: &str) -> Option<(CpuId, u64)> {
    let mut words = line.split_whitespace();
    let cpu = words.next()?.strip_prefix("cpu")?.parse().ok()?;
    let mut ticks = words.skip(5).map(str::parse::<u64>);
    let (hard, soft) = (ticks.next()?.ok()?, ticks.next()?.ok()?);
    Some((CpuId(cpu), hard.saturating_add(soft).saturating_mul(TICK_NS)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hard_and_soft_interrupts_of_one_cpu() {
        assert_eq!(parse("cpu3 1 2 3 4 5 60 700 8 0 0\n"), Some((CpuId(3), 7_600_000_000)));
        assert_eq!(parse("cpu  1 2 3 4 5 60 700 8 0 0\n"), None);
        assert_eq!(parse("cpu3 1 2 3\n"), None);
    }

    #[test]
    fn times_beyond_all_that_can_be_counted_stay_at_the_end() {
        let line = format!("cpu3 1 2 3 4 5 {} {} 8 0 0\n", u64::MAX, u64::MAX);
        assert_eq!(parse(&line), Some((CpuId(3), u64::MAX)));
    }
}
