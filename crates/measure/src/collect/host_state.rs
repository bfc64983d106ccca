//! Small files of the whole machine below /proc, opened once and read again with each sample: switches, swap and pressure, memory
//! counters (/proc/vmstat), watermarks of nodes (/proc/zoneinfo), and the time CPUs spend in interrupts and lose to a
//! hypervisor: the `irq`, `softirq` and `steal` columns of /proc/stat (proc_stat(5)).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::host::cgroups;
use crate::model::sample::{Hints, MachineRaw, Missing};
use crate::model::units::CpuId;

pub use crate::model::sample::VmStat;

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
            times.extend(parse_stat(&self.line));
        }
    }
}

/// `cpu3 user nice system idle iowait irq softirq steal …`; nothing for the line of all CPUs.
fn parse_stat(line: &str) -> Option<(CpuId, CpuTimes)> {
    let mut words = line.split_whitespace();
    let cpu = words.next()?.strip_prefix("cpu")?.parse().ok()?;
    let mut ticks = words.skip(5).map(str::parse::<u64>);
    let (hard, soft) = (ticks.next()?.ok()?, ticks.next()?.ok()?);
    let irq_ns = hard.saturating_add(soft).saturating_mul(TICK_NS);
    let steal_ns = ticks.next().and_then(Result::ok).map(|steal| steal.saturating_mul(TICK_NS));
    Some((CpuId(cpu), CpuTimes { irq_ns, steal_ns }))
}

/// Reads the files again with each sample.
pub struct VmStatReader {
    vmstat: KeptFile,
    zone_reclaim: KeptFile,
}

impl VmStatReader {
    /// # Errors
    /// The file cannot be opened.
    pub fn open(root: &Path) -> Result<VmStatReader> {
        let path = root.join("proc/vmstat");
        let opening = format!("opening {}", path.display());
        Ok(VmStatReader {
            vmstat: KeptFile::open(path).context(opening)?,
            zone_reclaim: KeptFile::new(root.join("proc/sys/vm/zone_reclaim_mode")),
        })
    }

    /// Why pages in swap are not counted; `None` where they are, and without CONFIG_SWAP, where 0 is true.
    ///
    /// # Errors
    /// The file cannot be read again.
    pub fn no_swap_counts(&mut self, has_swap: bool) -> io::Result<Option<Missing>> {
        let text = self.vmstat.read()?;
        let is_counted =
            ["pswpin ", "pswpout "].iter().all(|name| text.lines().any(|line| line.starts_with(name)));
        let why = || Missing::Unsupported("/proc/vmstat has no pswpin and pswpout".into());
        Ok((has_swap && !is_counted).then(why))
    }

    /// # Errors
    /// The file cannot be read again.
    pub fn read(&mut self) -> io::Result<VmStat> {
        let mode = self.zone_reclaim.read().ok().and_then(|text| text.trim().parse().ok());
        Ok(VmStat { zone_reclaim_mode: mode, ..parse_vmstat(self.vmstat.read()?) })
    }
}

fn parse_vmstat(text: &str) -> VmStat {
    let mut stat = VmStat::default();
    let (mut faults, mut local) = (None, 0);
    for line in text.lines() {
        let Some((name, Ok(value))) = line.split_once(' ').map(|(name, value)| (name, value.parse())) else {
            continue;
        };
        match name {
            // Not there without CONFIG_SWAP: then nothing is ever swapped, and 0 is the truth.
            "pswpin" => stat.swapped_in = value,
            "pswpout" => stat.swapped_out = value,
            "pgsteal_kswapd" => stat.kswapd_pages = value,
            // 6.1 and later count these separately; older kernels include them in the direct ones.
            "pgsteal_direct" | "pgsteal_khugepaged" | "pgsteal_proactive" => {
                stat.direct_pages = stat.direct_pages.saturating_add(value);
            }
            "numa_hint_faults" => faults = Some(value),
            "numa_hint_faults_local" => local = value,
            _ => {}
        }
    }
    stat.hints = faults.map(|faults| Hints { faults, remote: faults.saturating_sub(local) });
    stat
}

/// Watermarks change with `vm.min_free_kbytes`, hotplug and pressure: seldom. The file has a line for each
/// CPU of each zone, which is much on a large machine.
const EVERY: Duration = Duration::from_secs(10);

/// One node, all its zones together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watermarks {
    /// Pages below which an allocation wakes kswapd (`low`).
    pub low: u64,
    /// Pages that the page allocator hands out (`managed`).
    pub managed: u64,
}

/// Reads the watermarks now and then.
pub struct ZoneReader {
    path: PathBuf,
    read_at: Option<Instant>,
    marks: BTreeMap<u32, Watermarks>,
}

impl ZoneReader {
    pub fn new(root: &Path) -> ZoneReader {
        ZoneReader { path: root.join("proc/zoneinfo"), read_at: None, marks: BTreeMap::new() }
    }

    /// The watermarks by node id, not older than ten seconds.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn marks(&mut self) -> io::Result<&BTreeMap<u32, Watermarks>> {
        if self.read_at.is_none_or(|at| at.elapsed() >= EVERY) {
            self.marks = parse_zoneinfo(&fs::read_to_string(&self.path)?);
            self.read_at = Some(Instant::now());
        }
        Ok(&self.marks)
    }
}

/// Blocks begin with `Node 0, zone   Normal`; the fields are indented below it.
fn parse_zoneinfo(text: &str) -> BTreeMap<u32, Watermarks> {
    let mut marks: BTreeMap<u32, Watermarks> = BTreeMap::new();
    let mut node = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("Node ") {
            node = rest.split(',').next().and_then(|id| id.trim().parse().ok());
            continue;
        }
        let (Some(node), Some((name, value))) = (node, line.trim().split_once(' ')) else { continue };
        let Ok(pages) = value.trim().parse::<u64>() else { continue };
        let entry = marks.entry(node).or_default();
        match name {
            "low" => entry.low = entry.low.saturating_add(pages),
            "managed" => entry.managed = entry.managed.saturating_add(pages),
            _ => {}
        }
    }
    marks
}

/// Opened with the first reading.
pub(super) struct KeptFile {
    path: PathBuf,
    file: Option<File>,
    text: String,
}

impl KeptFile {
    /// Nothing is opened yet.
    pub(super) fn new(path: PathBuf) -> KeptFile {
        KeptFile { path, file: None, text: String::new() }
    }

    /// Opens it.
    ///
    /// # Errors
    /// The errno of open(2).
    pub(super) fn open(path: PathBuf) -> io::Result<KeptFile> {
        let file = Some(File::open(&path)?);
        Ok(KeptFile { path, file, text: String::new() })
    }

    /// Its content now. After an error it is opened again.
    ///
    /// # Errors
    /// The errno of open(2) or read(2); `InvalidData` where it is no text.
    pub(super) fn read(&mut self) -> io::Result<&str> {
        let result = self.fill();
        if result.is_err() {
            self.file = None;
        }
        result.map(|()| self.text.as_str())
    }

    fn fill(&mut self) -> io::Result<()> {
        self.text.clear();
        let file = match &mut self.file {
            Some(file) => {
                file.rewind()?;
                file
            }
            none => none.insert(File::open(&self.path)?),
        };
        file.read_to_string(&mut self.text).map(|_| ())
    }
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

    #[test]
    fn interrupts_and_stolen_time_of_one_cpu() {
        let times = CpuTimes { irq_ns: 7_600_000_000, steal_ns: Some(80_000_000) };
        assert_eq!(parse_stat("cpu3 1 2 3 4 5 60 700 8 0 0\n"), Some((CpuId(3), times)));
        let without = CpuTimes { steal_ns: None, ..times };
        assert_eq!(parse_stat("cpu3 1 2 3 4 5 60 700\n"), Some((CpuId(3), without)));
        assert_eq!(parse_stat("cpu  1 2 3 4 5 60 700 8 0 0\n"), None);
        assert_eq!(parse_stat("cpu3 1 2 3\n"), None);
    }

    #[test]
    fn times_beyond_all_that_can_be_counted_stay_at_the_end() {
        let line = format!("cpu3 1 2 3 4 5 {0} {0} {0} 0 0\n", u64::MAX);
        let times = CpuTimes { irq_ns: u64::MAX, steal_ns: Some(u64::MAX) };
        assert_eq!(parse_stat(&line), Some((CpuId(3), times)));
    }

    #[test]
    fn counters_of_linux_6_18() {
        let stat = parse_vmstat(
            "nr_free_pages 1\npswpin 3\npswpout 4\npgsteal_kswapd 7910857\npgsteal_direct 611784\n\
             pgsteal_khugepaged 6\npgsteal_proactive 10\npgsteal_anon 99\nnuma_hint_faults 50\n\
             numa_hint_faults_local 20\n",
        );
        assert_eq!((stat.swapped_in, stat.swapped_out), (3, 4));
        assert_eq!((stat.kswapd_pages, stat.direct_pages), (7_910_857, 611_800));
        assert_eq!(stat.hints, Some(Hints { faults: 50, remote: 30 }));
    }

    #[test]
    fn a_machine_with_swap_whose_file_lacks_it_has_a_reason() {
        let root = std::env::temp_dir().join(format!("numatop-vmstat-{}", std::process::id()));
        std::fs::create_dir_all(root.join("proc")).unwrap();
        let why = |text: &str, has_swap: bool| {
            std::fs::write(root.join("proc/vmstat"), text).unwrap();
            VmStatReader::open(&root).unwrap().no_swap_counts(has_swap).unwrap()
        };
        assert!(why("nr_free_pages 1\n", true).is_some_and(|why| why.to_string().contains("pswpin")));
        assert_eq!(why("nr_free_pages 1\n", false), None);
        assert_eq!(why("pswpin 0\npswpout 0\n", true), None);
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn more_pages_than_can_be_counted_are_as_many_as_can() {
        let text = format!("pgsteal_direct {}\npgsteal_khugepaged 6\n", u64::MAX);
        assert_eq!(parse_vmstat(&text).direct_pages, u64::MAX);
    }

    #[test]
    fn without_balancing_there_are_no_hinting_faults_to_count() {
        assert_eq!(parse_vmstat("nr_free_pages 1\n").hints, None);
    }

    #[test]
    fn zones_of_a_node_are_summed() {
        let marks = parse_zoneinfo(
            "Node 0, zone      DMA\n  per-node stats\n      nr_inactive_anon 2174\n  pages free     3840\n        \
             low      13\n        managed  3840\n  pagesets\n    cpu: 0\n              count:    0\n              \
             high:     0\nNode 0, zone   Normal\n  pages free     9\n        low      100\n        managed  50000\n\
             Node 1, zone   Normal\n        low      7\n        managed  70\n",
        );
        assert_eq!(marks[&0], Watermarks { low: 113, managed: 53_840 });
        assert_eq!(marks[&1], Watermarks { low: 7, managed: 70 });
    }

    #[test]
    fn more_pages_below_a_watermark_than_can_be_counted_are_as_many_as_can() {
        let zone = format!("Node 0, zone Normal\n low {0}\n managed {0}\n", u64::MAX);
        assert_eq!(parse_zoneinfo(&zone.repeat(2))[&0], Watermarks { low: u64::MAX, managed: u64::MAX });
    }

    #[test]
    fn it_is_as_it_is_now() {
        let tree = Tree::new("kept-file");
        let mut file = KeptFile::new(tree.root().join("value"));
        assert_eq!(file.read().unwrap_err().kind(), io::ErrorKind::NotFound);
        tree.write("value", "one\n");
        assert_eq!(file.read().unwrap(), "one\n");
        tree.write("value", "2\n");
        assert_eq!(file.read().unwrap(), "2\n");
        tree.clear();
    }
}
