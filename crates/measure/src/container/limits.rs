//! Limits of a cgroup, and its memory by node: the files of its controllers, in cgroup v2 or in the hierarchies of v1.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::host::cgroups::{self, Hierarchy, mounts};
use crate::host::disks::Disks;
use crate::host::roots::Roots;
use crate::model::group;
use crate::model::sample::{GroupRaw, Missing, Pressure, Reading};
use crate::model::turns::TierPages;

/// Bytes of a file read at most; memory.numa_stat of a machine with a thousand nodes fits.
const READ_MAX: u64 = 1 << 20;
/// v1 expresses "no limit" as the largest number of pages, which depends on the page size.
const V1_UNLIMITED: u64 = 1 << 62;

/// Values that are set for a group, and seldom change.
struct Settings {
    cpus: Reading<String>,
    mems: Reading<String>,
    cpu_quota_milli: Reading<Option<u64>>,
    mem_limit_bytes: Reading<Option<u64>>,
}

impl Settings {
    fn of(raw: &GroupRaw) -> Settings {
        Settings {
            cpus: raw.cpus.clone(),
            mems: raw.mems.clone(),
            cpu_quota_milli: raw.cpu_quota_milli.clone(),
            mem_limit_bytes: raw.mem_limit_bytes.clone(),
        }
    }
}

/// Reads the groups of one hierarchy.
pub struct LimitReader {
    /// Where cgroup v2 is, when that is the hierarchy.
    v2: Option<PathBuf>,
    /// v1 controller → where it is mounted.
    v1: BTreeMap<String, PathBuf>,
    page_size: u64,
    disks: Disks,
    /// Memory is of several tiers: without, memory.stat of groups is not read, which takes the kernel a while.
    tiered: bool,
}

impl LimitReader {
    /// Finds the mounts of the host.
    pub fn new<'a>(roots: impl Into<Roots<'a>>, hierarchy: &Hierarchy, page_size: u64) -> LimitReader {
        let roots = roots.into();
        let v2 = hierarchy.mount.clone().filter(|_| hierarchy.controller.is_none());
        let mut v1 = BTreeMap::new();
        for mount in mounts(roots) {
            for controller in mount.controllers.into_iter().flatten() {
                v1.entry(controller).or_insert_with(|| mount.at.clone());
            }
        }
        let tiered = has_tiers(roots.machine);
        LimitReader { v2, v1, page_size, disks: Disks::new(roots.machine), tiered }
    }

    /// The readings of the cgroup at `path`. `before` is the reading before this one; settings of the group are taken from there
    /// where they `hold`.
    pub fn read(&self, path: &str, now_ns: u64, before: Option<&GroupRaw>, hold: bool) -> GroupRaw {
        let is_v2 = self.v2.is_some();
        let settings = match before.filter(|_| hold) {
            Some(before) => Settings::of(before),
            None if is_v2 => self.settings_v2(path),
            None => self.settings_v1(path),
        };
        let mut raw = if is_v2 { self.read_v2(path, settings) } else { self.read_v1(path, settings) };
        raw.read_ns = now_ns;
        raw.throttled_before = before.and_then(|raw| Some((raw.read_ns, raw.throttled_ns.clone().ok()?)));
        raw.counters_before = before.map(GroupRaw::counters);
        raw.disks_before = before.and_then(|raw| raw.disks.clone().ok());
        raw
    }

    fn settings_v2(&self, path: &str) -> Settings {
        let text = |file: &str| self.text("", path, file);
        Settings {
            cpus: text("cpuset.cpus.effective"),
            mems: text("cpuset.mems.effective"),
            cpu_quota_milli: text("cpu.max").and_then(|text| known("cpu.max", quota_v2(&text))),
            mem_limit_bytes: text("memory.max").and_then(|text| known("memory.max", limit(&text))),
        }
    }

    fn read_v2(&self, path: &str, settings: Settings) -> GroupRaw {
        let text = |file: &str| self.text("", path, file);
        let cpu = text("cpu.stat");
        let events = text("memory.events");
        let numa = text("memory.numa_stat");
        GroupRaw {
            read_ns: 0,
            cpus: settings.cpus,
            mems: settings.mems,
            cpu_quota_milli: settings.cpu_quota_milli,
            throttled_ns: named(&cpu, "cpu.stat", "throttled_usec").map(|usec| usec.saturating_mul(1000)),
            throttled_before: None,
            mem_limit_bytes: settings.mem_limit_bytes,
            mem_bytes: text("memory.current").and_then(|text| known("memory.current", text.parse().ok())),
            mem_bytes_by_node: numa.as_deref().map(|text| numa_v2(text, &V2_KINDS)).map_err(Clone::clone),
            cache_by_node: numa.map(|text| numa_v2(&text, &V2_CACHE)),
            periods: named(&cpu, "cpu.stat", "nr_periods"),
            throttled_periods: named(&cpu, "cpu.stat", "nr_throttled"),
            pressure: self.pressure(path),
            memory_max_events: named(&events, "memory.events", "max")
                .and_then(|at_limit| Ok(at_limit.saturating_add(named(&events, "memory.events", "high")?))),
            oom_events: named(&events, "memory.events", "oom"),
            tier_pages: match self.tiered {
                true => text("memory.stat").map(|text| TierPages::parse(&text)),
                false => Err(Missing::NotCollected("the machine has only one memory tier".into())),
            },
            counters_before: None,
            disks: text("io.stat").map(|text| self.disks.used(&text)),
            disks_before: None,
        }
    }

    fn settings_v1(&self, path: &str) -> Settings {
        let number = |file: &str| self.number("cpu", path, file);
        let quota = number("cpu.cfs_quota_us").and_then(|quota| Ok((quota, number("cpu.cfs_period_us")?)));
        let limit = self.text("memory", path, "memory.limit_in_bytes");
        Settings {
            cpus: self.text("cpuset", path, "cpuset.effective_cpus"),
            mems: self.text("cpuset", path, "cpuset.effective_mems"),
            cpu_quota_milli: quota.map(|(quota, period)| {
                (quota >= 0 && period > 0).then(|| (quota as u64).saturating_mul(1000) / period as u64)
            }),
            mem_limit_bytes: limit
                .and_then(|text| known("memory.limit_in_bytes", text.parse::<u64>().ok()))
                .map(|bytes| (bytes < V1_UNLIMITED).then_some(bytes)),
        }
    }

    fn read_v1(&self, path: &str, settings: Settings) -> GroupRaw {
        let number = |controller: &str, file: &str| self.number(controller, path, file);
        let cpu = self.text("cpu", path, "cpu.stat");
        let pages = self.page_size;
        let numa = self.text("memory", path, "memory.numa_stat");
        GroupRaw {
            read_ns: 0,
            cpus: settings.cpus,
            mems: settings.mems,
            cpu_quota_milli: settings.cpu_quota_milli,
            throttled_ns: named(&cpu, "cpu.stat", "throttled_time"),
            throttled_before: None,
            mem_limit_bytes: settings.mem_limit_bytes,
            mem_bytes: number("memory", "memory.usage_in_bytes").map(|bytes| {
                let kernel = if self.is_root_v1(path) {
                    number("memory", "memory.kmem.usage_in_bytes")
                } else {
                    Ok(0)
                };
                // Without that file no group is charged for memory of the kernel.
                (bytes as u64).saturating_add(kernel.map_or(0, |bytes| bytes as u64))
            }),
            mem_bytes_by_node: numa
                .clone()
                .and_then(|text| known("memory.numa_stat", numa_v1(&text, "total", pages))),
            cache_by_node: numa.and_then(|text| {
                let files = known("memory.numa_stat", numa_v1(&text, "file", pages))?;
                let memory = self.text("memory", path, "memory.stat");
                let of = |name| named(&memory, "memory.stat", name);
                Ok(without_shared(files, of("total_shmem")?, of("total_cache")?))
            }),
            periods: named(&cpu, "cpu.stat", "nr_periods"),
            throttled_periods: named(&cpu, "cpu.stat", "nr_throttled"),
            pressure: Err(Missing::Unsupported("cgroup v1 has no pressure files".into())),
            memory_max_events: number("memory", "memory.failcnt").map(|count| count as u64),
            oom_events: Err(Missing::Unsupported("cgroup v1 does not count these events by group".into())),
            tier_pages: Err(Missing::Unsupported("cgroup v1 does not count these events by group".into())),
            counters_before: None,
            disks: Err(Missing::Unsupported("cgroup v1 has no io.stat file".into())),
            disks_before: None,
        }
    }

    /// The root of the memory controller of v1. It is not a charged group. Its usage is all pages of files
    /// and programs, without the kernel memory that the usage of groups below it includes (mem_cgroup_usage()
    /// of mm/memcontrol-v1.c).
    fn is_root_v1(&self, path: &str) -> bool {
        // No other group has this file, nor has the root of a cgroup namespace.
        path == "/" && self.v1.get("memory").is_some_and(|mount| mount.join("release_agent").exists())
    }

    /// The pressure of a group of cgroup v2. Linux has the files since 4.20; since 6.1 a group may be without
    /// (cgroup.pressure).
    fn pressure(&self, path: &str) -> Reading<Pressure> {
        let of = |name: &str| -> io::Result<String> {
            self.content("", path, &format!("{name}.pressure")).ok_or(io::ErrorKind::NotFound)?
        };
        cgroups::read_pressure(of).map_err(|error| missing("pressure file", &error))
    }

    fn number(&self, controller: &str, path: &str, file: &str) -> Reading<i64> {
        self.text(controller, path, file).and_then(|text| known(file, text.parse().ok()))
    }

    fn text(&self, controller: &str, path: &str, file: &str) -> Reading<String> {
        let text = self.content(controller, path, file).ok_or_else(|| {
            Missing::Unsupported(format!("the cgroup v1 controller {controller} is not mounted"))
        })?;
        text.map_err(|error| missing(file, &error))
    }

    /// The content of a file of a group; `None` where the hierarchy of its controller is not mounted.
    fn content(&self, controller: &str, path: &str, file: &str) -> Option<io::Result<String>> {
        let mount = match &self.v2 {
            Some(mount) => mount,
            None => self.v1.get(controller)?,
        };
        let path = group::to_bytes(path.trim_start_matches('/'));
        let at = mount.join(OsStr::from_bytes(&path)).join(file);
        let read = || {
            let mut text = String::new();
            File::open(&at)?.take(READ_MAX).read_to_string(&mut text)?;
            Ok(text.trim().to_string())
        };
        Some(read())
    }
}

/// Whether the memory of the machine below `root` is of several tiers.
fn has_tiers(root: &Path) -> bool {
    let entries = std::fs::read_dir(root.join("sys/devices/virtual/memory_tiering"));
    let tiers = entries.into_iter().flatten().flatten();
    tiers.filter(|entry| entry.file_name().as_bytes().starts_with(b"memory_tier")).count() > 1
}

fn missing(file: &str, error: &io::Error) -> Missing {
    match error.kind() {
        io::ErrorKind::NotFound => Missing::Unsupported(format!("the cgroup has no {file}")),
        io::ErrorKind::PermissionDenied => Missing::NotPermitted(format!("{file}: {error}")),
        _ if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            Missing::Unsupported("the kernel does not measure pressure (psi=0)".into())
        }
        _ => Missing::Lost(format!("{file}: {error}")),
    }
}

/// The number behind `name` in a file of lines of `name number`.
fn named(text: &Reading<String>, file: &str, name: &str) -> Reading<u64> {
    known(file, field(text.as_ref().map_err(Clone::clone)?, name))
}

fn known<T>(file: &str, value: Option<T>) -> Reading<T> {
    value.ok_or_else(|| Missing::Unsupported(format!("{file} cannot be parsed")))
}

/// The number behind `name` in lines of `name number`.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

/// `max` or a number.
fn limit(text: &str) -> Option<Option<u64>> {
    if text == "max" { Some(None) } else { text.parse().ok().map(Some) }
}

/// cpu.max: `max 100000` or `50000 100000`, in thousandths of a CPU.
fn quota_v2(text: &str) -> Option<Option<u64>> {
    let (quota, period) = text.split_once(' ')?;
    let period: u64 = period.parse().ok().filter(|period| *period > 0)?;
    Some(limit(quota)?.map(|quota| quota.saturating_mul(1000) / period))
}

/// `N0=1 N1=2` by node.
fn nodes<'a>(words: impl Iterator<Item = &'a str>) -> impl Iterator<Item = (u32, u64)> {
    words.filter_map(|word| {
        let (node, amount) = word.strip_prefix('N')?.split_once('=')?;
        Some((node.parse().ok()?, amount.parse().ok()?))
    })
}

/// Kinds of memory that make up the whole; all others are parts of these (Documentation/admin-guide/
/// cgroup-v2.rst, memory.numa_stat, since 5.10).
const V2_KINDS: [&str; 7] = [
    "anon",
    "file",
    "kernel_stack",
    "pagetables",
    "sec_pagetables",
    "slab_reclaimable",
    "slab_unreclaimable",
];

/// Lists of page cache. Shared memory and tmpfs are on others.
const V2_CACHE: [&str; 2] = ["inactive_file", "active_file"];

/// Bytes of these kinds by node.
fn numa_v2(text: &str, kinds: &[&str]) -> BTreeMap<u32, u64> {
    let mut sums: BTreeMap<u32, u64> = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.split(' ');
        if words.next().is_some_and(|kind| kinds.contains(&kind)) {
            for (node, bytes) in nodes(words) {
                let sum = sums.entry(node).or_default();
                *sum = sum.saturating_add(bytes);
            }
        }
    }
    sums
}

/// Bytes of this kind by node, of the group and all below.
fn numa_v1(text: &str, kind: &str, page_size: u64) -> Option<BTreeMap<u32, u64>> {
    let is_it = |line: &&str| {
        line.strip_prefix("hierarchical_")
            .and_then(|line| line.strip_prefix(kind))
            .is_some_and(|line| line.starts_with('='))
    };
    let line = text.lines().find(is_it)?;
    Some(nodes(line.split(' ')).map(|(node, pages)| (node, pages.saturating_mul(page_size))).collect())
}

/// File pages by node without shared memory, which v1 reports only as a total of all nodes.
fn without_shared(files: BTreeMap<u32, u64>, shared: u64, cache: u64) -> BTreeMap<u32, u64> {
    let kept = 1.0 - shared as f64 / cache.max(shared).max(1) as f64;
    files.into_iter().map(|(node, bytes)| (node, (bytes as f64 * kept) as u64)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quotas_are_thousandths_of_a_cpu() {
        assert_eq!(quota_v2("max 100000"), Some(None));
        assert_eq!(quota_v2("150000 100000"), Some(Some(1500)));
        assert_eq!(quota_v2("1 0"), None);
    }

    #[test]
    fn numa_stat_of_v2_counts_each_page_once() {
        let text = "anon N0=4096 N1=8192\nfile N0=100 N1=0\nshmem N0=50 N1=0\nactive_anon N0=4096 N1=8192";
        assert_eq!(numa_v2(text, &V2_KINDS), [(0, 4196), (1, 8192)].into());
    }

    #[test]
    fn numa_stat_of_v1_is_in_pages_and_includes_what_is_below() {
        let text = "total=3 N0=1 N1=2\nfile=1 N0=1 N1=0\nhierarchical_total=30 N0=10 N1=20\n";
        assert_eq!(numa_v1(text, "total", 4096), Some([(0, 40960), (1, 81920)].into()));
        assert_eq!(numa_v1(text, "file", 4096), None);
    }

    #[test]
    fn page_cache_is_without_shared_memory() {
        let text = "file N0=100 N1=0\nshmem N0=50 N1=0\ninactive_file N0=30 N1=1\nactive_file N0=20 N1=2\n";
        assert_eq!(numa_v2(text, &V2_CACHE), [(0, 50), (1, 3)].into());
        let files: BTreeMap<u32, u64> = [(0, 1000), (1, 200)].into();
        assert_eq!(without_shared(files.clone(), 250, 1000), [(0, 750), (1, 150)].into());
        // Readings of two files may differ.
        assert_eq!(without_shared(files, 2000, 1000), [(0, 0), (1, 0)].into());
    }

    #[test]
    fn the_root_of_v1_has_the_kernel_memory_of_all_below_it() {
        let dir = std::env::temp_dir().join(format!("numatop-limits-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("web")).unwrap();
        let write = |file: &str, text: &str| std::fs::write(dir.join(file), text).unwrap();
        for (group, usage, kernel) in [("", "1000\n", "600\n"), ("web/", "1500\n", "580\n")] {
            write(&format!("{group}memory.usage_in_bytes"), usage);
            write(&format!("{group}memory.kmem.usage_in_bytes"), kernel);
        }
        let v1 = [("memory".to_string(), dir.clone())].into();
        let reader = LimitReader {
            v2: None,
            v1,
            page_size: 4096,
            disks: Disks::new(Path::new("/nonexistent")),
            tiered: false,
        };
        let bytes = |path: &str| reader.read(path, 0, None, false).mem_bytes;
        assert_eq!(
            (bytes("/"), bytes("/web")),
            (Ok(1000), Ok(1500)),
            "a namespace's root is a group as any other"
        );
        write("release_agent", "");
        assert_eq!((bytes("/"), bytes("/web")), (Ok(1600), Ok(1500)));
        std::fs::remove_file(dir.join("memory.kmem.usage_in_bytes")).unwrap();
        assert_eq!(bytes("/"), Ok(1000), "a kernel that charges nobody for its memory");
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn counters_of_a_group_come_with_those_of_the_reading_before() {
        let dir = std::env::temp_dir().join(format!("numatop-group-counters-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("web")).unwrap();
        let write = |file: &str, text: &str| std::fs::write(dir.join("web").join(file), text).unwrap();
        let reader = LimitReader {
            v2: Some(dir.clone()),
            v1: BTreeMap::new(),
            page_size: 4096,
            disks: Disks::new(Path::new("/nonexistent")),
            tiered: true,
        };
        write("memory.stat", "anon 5\npgpromote_success 7\npgdemote_kswapd 2\npgdemote_direct 500\n");
        write("cpu.stat", "usage_usec 5\nnr_periods 40\nnr_throttled 10\nthrottled_usec 7\n");
        write("memory.events", "low 0\nhigh 2\nmax 3\noom 1\noom_kill 1\n");
        let first = reader.read("/web", 1_000, None, false);
        assert_eq!(
            (&first.periods, &first.throttled_periods, &first.throttled_ns),
            (&Ok(40), &Ok(10), &Ok(7000))
        );
        assert_eq!((&first.memory_max_events, &first.oom_events), (&Ok(5), &Ok(1)));
        assert_eq!(first.pressure, Err(Missing::Unsupported("the cgroup has no pressure file".into())));
        assert_eq!(first.counters_before, None);
        let moved = first.tier_pages.clone().unwrap();
        assert_eq!((moved.promoted, moved.demoted), (Some(7), Some(502)));

        write("cpu.max", "50000 100000\n");
        let quota = |before: &GroupRaw, hold| reader.read("/web", 2_000, Some(before), hold).cpu_quota_milli;
        assert!(quota(&first, true).is_err(), "settings of before");
        assert_eq!(quota(&first, false), Ok(Some(500)));

        write("cpu.pressure", "some avg10=0.00 total=50\nfull avg10=0.00 total=4\n");
        write("memory.pressure", "some avg10=0.00 total=6\nfull avg10=0.00 total=2\n");
        write("cpu.stat", "usage_usec 5\n");
        let second = reader.read("/web", 2_000, Some(&first), false);
        std::fs::remove_dir_all(&dir).unwrap();
        let pressure = Pressure { cpu_some_us: 50, memory_some_us: 6, memory_full_us: 2 };
        assert_eq!((&second.pressure, second.periods.is_err()), (&Ok(pressure), true));
        assert_eq!(second.counters_before, Some(first.counters()));
        assert_eq!(first.counters().periods, Some(40));
    }

    #[test]
    fn cgroup_v1_counts_periods_and_failures() {
        let dir = std::env::temp_dir().join(format!("numatop-group-v1-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("web")).unwrap();
        let write = |file: &str, text: &str| std::fs::write(dir.join("web").join(file), text).unwrap();
        write("cpu.stat", "nr_periods 40\nnr_throttled 10\nthrottled_time 7\n");
        write("memory.failcnt", "12\n");
        let v1 = ["cpu", "memory"].map(|controller| (controller.to_string(), dir.clone())).into();
        let raw = LimitReader {
            v2: None,
            v1,
            page_size: 4096,
            disks: Disks::new(Path::new("/nonexistent")),
            tiered: false,
        }
        .read("/web", 1_000, None, false);
        std::fs::remove_dir_all(&dir).unwrap();
        assert_eq!((raw.periods, raw.throttled_periods, raw.throttled_ns), (Ok(40), Ok(10), Ok(7)));
        assert_eq!(
            (raw.memory_max_events, raw.pressure.is_err(), raw.oom_events.is_err()),
            (Ok(12), true, true)
        );
    }

    #[test]
    fn throttled_time_is_a_field_among_others() {
        assert_eq!(field("nr_periods 5\nnr_throttled 2\nthrottled_time 77\n", "throttled_time"), Some(77));
    }

    #[test]
    fn a_quota_and_a_time_beyond_all_that_can_be_counted_stay_at_the_end() {
        let root = std::env::temp_dir().join(format!("numatop-limits-{}", std::process::id()));
        let files = |of: &str, files: &[(&str, String)]| {
            std::fs::create_dir_all(root.join(of)).unwrap();
            files.iter().for_each(|(name, text)| std::fs::write(root.join(of).join(name), text).unwrap());
        };
        files("x", &[("cpu.stat", format!("throttled_usec {}\n", u64::MAX))]);
        files("cpu/x", &[("cpu.cfs_quota_us", i64::MAX.to_string()), ("cpu.cfs_period_us", "1".into())]);
        let mount = |line: String| files("proc/self", &[("mountinfo", line)]);
        mount(format!("1 1 0:1 / {} rw - cgroup cgroup rw,cpu\n", root.join("cpu").display()));
        let hierarchy = |controller: Option<&str>| Hierarchy {
            mode: crate::host::cgroups::Mode::Hybrid,
            controller: controller.map(str::to_string),
            mount: Some(root.clone()),
        };
        let v2 = LimitReader::new(&root, &hierarchy(None), 4096).read("/x", 1, None, false);
        let v1 = LimitReader::new(&root, &hierarchy(Some("cpu")), 4096).read("/x", 1, None, false);
        std::fs::remove_dir_all(&root).unwrap();
        assert_eq!(v2.throttled_ns, Ok(u64::MAX));
        assert_eq!(v1.cpu_quota_milli, Ok(Some(u64::MAX)));
    }

    proptest! {
        #[test]
        fn no_text_makes_trouble(text in "[a-z0-9N=_ \\n-]{0,200}") {
            let _ = (quota_v2(&text), limit(&text), numa_v2(&text, &V2_KINDS), numa_v1(&text, "total", 4096), field(&text, "a"));
        }
    }
}
