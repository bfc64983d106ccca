//! The time CPUs spend in interrupts and lose to a hypervisor: the `irq`, `softirq` and `steal` columns of /proc/stat
//! (proc_stat(5)).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek};
use std::path::Path;

use anyhow::{Context, Result};

use crate::model::units::CpuId;

/// `USER_HZ`: the kernel shows times to user space in hundredths of a second on every architecture we run on.
const TICK_NS: u64 = 10_000_000;

/// Times of one CPU since boot, ns, in steps of 10 ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// In hard and soft interrupts.
    pub irq_ns: u64,
    /// In which a hypervisor ran something else; `None` where the file does not say.
    pub steal_ns: Option<u64>,
}

/// Reads the file again with each sample.
pub struct CpuTimesReader {
    file: BufReader<File>,
    line: String,
}

impl CpuTimesReader {
    /// # Errors
    /// The file cannot be opened.
    pub fn open(root: &Path) -> Result<CpuTimesReader> {
        let path = root.join("proc/stat");
        let file = File::open(&path).with_context(|| format!("opening {}", path.display()))?;
        Ok(CpuTimesReader { file: BufReader::new(file), line: String::new() })
    }

    /// The times of each CPU.
    ///
    /// # Errors
    /// The file cannot be read again.
    pub fn read(&mut self) -> io::Result<BTreeMap<CpuId, CpuTimes>> {
        let mut times = BTreeMap::new();
        self.file.rewind()?;
        loop {
            self.line.clear();
            // The CPUs come first; the rest is long.
            if self.file.read_line(&mut self.line)? == 0 || !self.line.starts_with("cpu") {
                return Ok(times);
            }
            times.extend(parse(&self.line));
        }
    }
}

/// `cpu3 user nice system idle iowait irq softirq steal …`; nothing for the line of all CPUs.
fn parse(line: &str) -> Option<(CpuId, CpuTimes)> {
    let mut words = line.split_whitespace();
    let cpu = words.next()?.strip_prefix("cpu")?.parse().ok()?;
    let mut ticks = words.skip(5).map(str::parse::<u64>);
    let (hard, soft) = (ticks.next()?.ok()?, ticks.next()?.ok()?);
    let irq_ns = hard.saturating_add(soft).saturating_mul(TICK_NS);
    let steal_ns = ticks.next().and_then(Result::ok).map(|steal| steal.saturating_mul(TICK_NS));
    Some((CpuId(cpu), CpuTimes { irq_ns, steal_ns }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_and_stolen_time_of_one_cpu() {
        let times = CpuTimes { irq_ns: 7_600_000_000, steal_ns: Some(80_000_000) };
        assert_eq!(parse("cpu3 1 2 3 4 5 60 700 8 0 0\n"), Some((CpuId(3), times)));
        let without = CpuTimes { steal_ns: None, ..times };
        assert_eq!(parse("cpu3 1 2 3 4 5 60 700\n"), Some((CpuId(3), without)));
        assert_eq!(parse("cpu  1 2 3 4 5 60 700 8 0 0\n"), None);
        assert_eq!(parse("cpu3 1 2 3\n"), None);
    }

    #[test]
    fn times_beyond_all_that_can_be_counted_stay_at_the_end() {
        let line = format!("cpu3 1 2 3 4 5 {0} {0} {0} 0 0\n", u64::MAX);
        let times = CpuTimes { irq_ns: u64::MAX, steal_ns: Some(u64::MAX) };
        assert_eq!(parse(&line), Some((CpuId(3), times)));
    }
}
