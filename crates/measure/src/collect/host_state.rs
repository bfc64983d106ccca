//! Switches, swap and pressure of the whole machine: small files below /proc, read with each sample.

use std::io;
use std::path::Path;
use std::str::FromStr;

use super::kept_file::KeptFile;
use crate::host::cgroups;
use crate::model::sample::MachineRaw;

/// Reads the files again with each sample.
pub struct HostStateReader {
    meminfo: KeptFile,
    numa_balancing: KeptFile,
    swappiness: KeptFile,
    cpu_pressure: KeptFile,
    memory_pressure: KeptFile,
    loadavg: KeptFile,
}

impl HostStateReader {
    /// For the files below `root` ("/" for this machine).
    pub fn new(root: &Path) -> HostStateReader {
        let file = |path: &str| KeptFile::new(root.join(path));
        HostStateReader {
            meminfo: file("proc/meminfo"),
            numa_balancing: file("proc/sys/kernel/numa_balancing"),
            swappiness: file("proc/sys/vm/swappiness"),
            cpu_pressure: file("proc/pressure/cpu"),
            memory_pressure: file("proc/pressure/memory"),
            loadavg: file("proc/loadavg"),
        }
    }

    /// The state now. A file that is not there or cannot be understood has no value.
    pub fn read(&mut self) -> MachineRaw {
        let memory = self.meminfo.read().unwrap_or_default();
        MachineRaw {
            numa_balancing: number(self.numa_balancing.read()),
            swappiness: number(self.swappiness.read()),
            swap_total_bytes: bytes(memory, "SwapTotal"),
            swap_free_bytes: bytes(memory, "SwapFree"),
            pressure: cgroups::read_pressure(|name| {
                let file = if name == "cpu" { &mut self.cpu_pressure } else { &mut self.memory_pressure };
                file.read().map(str::to_owned)
            })
            .ok(),
            load_hundredths: self.loadavg.read().ok().and_then(load),
        }
    }
}

/// The averages of /proc/loadavg: `0.20 1.18 0.12 1/80 11206`, in hundredths.
fn load(text: &str) -> Option<[u32; 3]> {
    let mut words = text.split(' ');
    let mut next = || {
        let (whole, part) = words.next()?.split_once('.')?;
        let part = part.parse::<u32>().ok().filter(|_| part.len() == 2)?;
        whole.parse::<u32>().ok()?.checked_mul(100)?.checked_add(part)
    };
    Some([next()?, next()?, next()?])
}

fn number<T: FromStr>(text: io::Result<&str>) -> Option<T> {
    text.ok()?.trim().parse().ok()
}

/// A field of /proc/meminfo: `SwapFree:  2097148 kB`.
fn bytes(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::sample::Pressure;
    use crate::tree::Tree;

    #[test]
    fn the_state_of_a_host_is_in_its_files() {
        let tree = Tree::new("host-state");
        tree.write("proc/sys/kernel/numa_balancing", "3\n");
        tree.write("proc/sys/vm/swappiness", "60\n");
        tree.write(
            "proc/meminfo",
            "MemTotal: 9 kB\nSwapCached: 1 kB\nSwapTotal:  2048 kB\nSwapFree:  1024 kB\n",
        );
        tree.write("proc/loadavg", "0.20 1.18 12.05 1/80 11206\n");
        tree.write("proc/pressure/cpu", "some avg10=0.00 avg60=0.00 avg300=0.00 total=5\n");
        let mut reader = HostStateReader::new(tree.root());
        let without_pressure = reader.read();
        tree.write("proc/pressure/memory", "some avg10=0.00 total=4\nfull avg10=0.00 total=3\n");
        let state = reader.read();
        tree.clear();

        let expected = MachineRaw {
            numa_balancing: Some(3),
            swappiness: Some(60),
            swap_total_bytes: Some(2 << 20),
            swap_free_bytes: Some(1 << 20),
            pressure: Some(Pressure { cpu_some_us: 5, memory_some_us: 4, memory_full_us: 3 }),
            load_hundredths: Some([20, 118, 1205]),
        };
        assert_eq!(state, expected);
        assert_eq!(without_pressure, MachineRaw { pressure: None, ..expected });
        let nothing = HostStateReader::new(tree.root()).read();
        assert_eq!(nothing, MachineRaw::default(), "a machine that shows nothing");
    }

    #[test]
    fn odd_texts_have_no_value() {
        for text in [
            "SwapFree: x kB",
            "SwapFree: 5",
            "SwapFree",
            "SwapFreedom: 5 kB",
            "SwapFree: 18446744073709551615 kB",
        ] {
            assert_eq!(bytes(text, "SwapFree"), None, "{text}");
        }
        for text in ["", "1.00 2.00", "1 2 3", "-1.00 1.00 1.00", "1.0 1.00 1.00", "99999999.00 1.00 1.00"] {
            assert_eq!(load(text), None, "{text}");
        }
    }
}
