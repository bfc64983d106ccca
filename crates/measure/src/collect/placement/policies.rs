//! Memory policies of mappings and pages of hugetlbfs from /proc/PID/numa_maps: which process is looked at next, and the look.
//!
//! The kernel walks all pages for that file: 3.9 to 34 ms for a GiB (docs/performance.md), during which the
//! process can use its memory but map none. So policies are read from it only where the iterator of
//! [`super::rows`] is missing, and only for processes that placement rules may misjudge. It reads one process
//! at a time, each once in five minutes, none that is too large, and uses at most a hundredth of the time.
//! For a process with pages of hugetlbfs, the pools of their sizes are read too.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::target::{Lines, Target, reason};
use crate::collect::mappings::{NumaLine, parse_numa_line, walk_ns};
use crate::collect::mm_reader::wire::Job;
use crate::model::process::ProcessId;
use crate::model::sample::{HugePages, Missing, PlacementRaw, PolicyBytes, Reading, TaskRaw};

/// An answer is valid for this time, ns.
pub const OLD_NS: u64 = 300_000_000_000;

/// The longest walk that is done, ns: half a second, for 16 GiB of small pages on a slow machine.
const WALK_MAX_NS: u64 = 500_000_000;

/// A look is followed by a rest of this many times its length.
const REST: u32 = 99;

/// The least share of memory outside the node where a process runs most that rules consider, in percent, and
/// the least memory, in bytes.
const OUTSIDE_PCT: u64 = 20;
const LEAST_BYTES: u64 = 64 << 20;

/// Share of a node from which on a process is nearly as large, in percent: the rule asks at 80, of what the kernel manages.
const LARGE_PCT: u64 = 70;

/// The rest between looks.
#[derive(Debug, Default)]
pub struct Rest(Option<Instant>);

impl Rest {
    /// Whether it is over.
    pub fn is_over(&self, now: Instant) -> bool {
        self.0.is_none_or(|until| now >= until)
    }

    /// Begins after a look that took this time.
    pub fn begin(&mut self, now: Instant, used: Duration) {
        self.0 = Some(now + used * REST);
    }
}

/// The state of one process, of all its threads.
#[derive(Default)]
struct Seen<'a> {
    uid: u32,
    rss_bytes: u64,
    run_ns: Vec<u64>,
    raw: Option<&'a PlacementRaw>,
}

impl Seen<'_> {
    /// The node where it ran most.
    fn home(&self) -> Option<usize> {
        let ran = self.run_ns.iter().enumerate().filter(|(_, ns)| **ns > 0);
        ran.max_by_key(|(_, ns)| **ns).map(|(home, _)| home)
    }
}

/// The process to look at next. Its policy is the kernel's default. A fifth of its memory or more is outside the
/// node where it runs most, or it is nearly as large as that node. Processes that were never looked at come first,
/// then the ones with most CPU time. `sizes`: memory of each node, bytes.
pub fn next(
    tasks: &[Arc<TaskRaw>],
    known: &BTreeMap<u64, Arc<PlacementRaw>>,
    sizes: &BTreeMap<u32, u64>,
    now_ns: u64,
) -> Option<Job> {
    let mut seen: BTreeMap<ProcessId, Seen<'_>> = BTreeMap::new();
    for task in tasks.iter().filter(|task| task.tid != 0) {
        let raw = known.get(&task.pid.into()).filter(|raw| raw.start_ns == task.leader_start_ns);
        let Some(raw) = raw else { continue };
        // Resident memory has no pages of hugetlbfs.
        if task.rss_bytes < LEAST_BYTES && found_bytes(raw) < LEAST_BYTES {
            continue;
        }
        let is_due =
            raw.policies.as_ref().is_none_or(|(read_ns, _)| now_ns.saturating_sub(*read_ns) >= OLD_NS);
        // Where the iterator reports policies, only pages of hugetlbfs remain to be read.
        let is_told = raw.by_policy.as_ref().is_some_and(|pages| pages.huge == 0);
        if !is_due || is_told || !task.mempolicy.is_default() {
            continue;
        }
        let process = seen.entry(task.process()).or_default();
        (process.uid, process.raw) = (task.uid, Some(raw.as_ref()));
        process.rss_bytes = process.rss_bytes.max(task.rss_bytes);
        if process.run_ns.len() < task.counts.run_ns.len() {
            process.run_ns.resize(task.counts.run_ns.len(), 0);
        }
        let sums = process.run_ns.iter_mut().zip(&task.counts.run_ns);
        sums.for_each(|(sum, ns)| *sum = sum.saturating_add(*ns));
    }
    let wanted = seen.into_iter().filter(|(_, process)| is_outside(process) || is_large(process, sizes));
    let first = wanted.max_by_key(|((pid, _), process)| {
        let is_new = process.raw.is_some_and(|raw| raw.policies.is_none());
        let ran = process.run_ns.iter().fold(0u64, |sum, ns| sum.saturating_add(*ns));
        (is_new, ran, std::cmp::Reverse(*pid))
    });
    let (process, of) = first?;
    Some(Job { process, uid: of.uid, rss_bytes: of.rss_bytes, careful: false })
}

/// Memory that was found, bytes: estimated from the sample.
fn found_bytes(raw: &PlacementRaw) -> u64 {
    let Ok(found) = &raw.found else { return 0 };
    let pages: u128 = found.by_node.iter().map(|pages| u128::from(*pages)).sum();
    let bytes = u128::from(found.space_bytes) * pages / u128::from(found.asked.max(1));
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Whether a fifth of its memory or more is not on the node where it ran most.
fn is_outside(process: &Seen<'_>) -> bool {
    let Some(Ok(found)) = process.raw.map(|raw| &raw.found) else { return false };
    let Some(home) = process.home() else { return false };
    let all: u64 = found.by_node.iter().map(|pages| u64::from(*pages)).sum();
    let here = found.by_node.get(home).copied().unwrap_or(0);
    all > 0 && (all - u64::from(here)) * 100 >= all * OUTSIDE_PCT
}

/// Whether it has nearly as much memory as the node where it ran most.
fn is_large(process: &Seen<'_>, sizes: &BTreeMap<u32, u64>) -> bool {
    let size = process.home().and_then(|home| sizes.get(&(home as u32))).copied().unwrap_or(0);
    size > 0 && process.rss_bytes / LARGE_PCT >= size / 100
}

/// Why a process with so much memory is not looked at, if so.
///
/// # Errors
/// It is too large.
pub fn affordable(rss_bytes: u64) -> Reading<()> {
    if walk_ns(rss_bytes) <= WALK_MAX_NS {
        return Ok(());
    }
    Err(Missing::NotCollected(
        "policies are not read: reading them would take more than half a second".into(),
    ))
}

/// Reads the policies of all mappings of a process.
///
/// # Errors
/// Why they are not known.
pub fn read(root: &Path, process: ProcessId) -> Reading<PolicyBytes> {
    let target = Target::open(root, process.0, process.1)
        .map_err(|error| reason("opening files of the process", &error))?;
    let failed = |error: std::io::Error| reason("reading its numa_maps", &error);
    let mut lines = Lines::new(target.file(c"numa_maps").map_err(failed)?);
    let mut sum = PolicyBytes::default();
    while let Some(line) = lines.next_line().map_err(failed)? {
        parse_numa_line(line).iter().for_each(|line| add(&mut sum, line));
    }
    target.check().map_err(failed)?;
    sum.huge.retain(|pages| pages.bytes() > 0);
    sum.huge.iter_mut().for_each(|pages| add_pools(root, pages));
    Ok(sum)
}

/// Adds the pools of this size of all nodes: nodeN/hugepages/hugepages-2048kB below /sys/devices/system/node.
/// A missing file is an empty pool.
fn add_pools(root: &Path, pages: &mut HugePages) {
    let folder = root.join("sys/devices/system/node");
    let name = format!("hugepages/hugepages-{}kB", pages.page_bytes / 1024);
    for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
        let id = entry.file_name().to_str().and_then(|name| name.strip_prefix("node")?.parse::<u32>().ok());
        let Some(id) = id else { continue };
        let number = |file: &str| {
            let text = fs::read_to_string(entry.path().join(&name).join(file));
            text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
        };
        let (total, free) = (number("nr_hugepages"), number("free_hugepages"));
        if total > 0 {
            let node = pages.by_node.entry(id).or_default();
            (node.total, node.free) = (total, free);
        }
    }
}

/// A mapping without a policy uses that of the task, which is the kernel's default for the processes looked
/// at.
fn add(sum: &mut PolicyBytes, line: &NumaLine) {
    let bytes = line.by_node.iter().map(|(_, bytes)| *bytes as u64).fold(0u64, u64::saturating_add);
    sum.all_bytes = sum.all_bytes.saturating_add(bytes);
    let name = line.policy.split([':', '=']).next().unwrap_or_default();
    if !matches!(name, "default" | "local") {
        sum.own_bytes = sum.own_bytes.saturating_add(bytes);
    }
    if let Some(page_bytes) = line.huge_page_bytes.filter(|bytes| *bytes > 0) {
        let at = sum.huge.binary_search_by_key(&page_bytes, |pages| pages.page_bytes).unwrap_or_else(|at| {
            sum.huge.insert(at, HugePages { page_bytes, ..HugePages::default() });
            at
        });
        for (node, bytes) in &line.by_node {
            let node = sum.huge[at].by_node.entry(*node as u32).or_default();
            node.used = node.used.saturating_add(*bytes as u64 / page_bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::sample::{Counts, HugeNode, MemPolicy, PagesFound};

    const S: u64 = 1_000_000_000;

    fn task(pid: u32, run_ns: &[u64]) -> Arc<TaskRaw> {
        let counts = Counts { run_ns: run_ns.to_vec(), ..Counts::default() };
        Arc::new(TaskRaw { pid, tid: pid, rss_bytes: 1 << 30, counts, ..TaskRaw::default() })
    }

    fn placed(pid: u32, by_node: &[u32], looked: Option<u64>) -> (u64, Arc<PlacementRaw>) {
        let found = Ok(PagesFound { by_node: by_node.to_vec(), ..PagesFound::default() });
        let policies = looked.map(|read_ns| (read_ns, Ok(PolicyBytes::default())));
        (pid.into(), Arc::new(PlacementRaw { start_ns: 0, read_ns: 0, found, policies, by_policy: None }))
    }

    fn chosen(tasks: &[Arc<TaskRaw>], known: &[(u64, Arc<PlacementRaw>)], now_ns: u64) -> Option<u32> {
        let known = known.iter().cloned().collect();
        let sizes = [(0, 64 << 30), (1, 64 << 30)].into();
        next(tasks, &known, &sizes, now_ns).map(|job| job.process.0)
    }

    #[test]
    fn one_that_is_nearly_as_large_as_its_node_is_asked_about_wherever_its_memory_is() {
        let sized = |gib: u64| {
            let mut large = TaskRaw::clone(&task(2, &[S, 0]));
            large.rss_bytes = gib << 30;
            [Arc::new(large)]
        };
        let known = [placed(2, &[99, 1], None)];
        assert_eq!(chosen(&sized(46), &known, S), Some(2));
        assert_eq!(chosen(&sized(44), &known, S), None);
        let one = [(1, 64 << 30)].into();
        let known = known.into_iter().collect();
        assert_eq!(next(&sized(46), &known, &one, S), None, "the size of its node is not known");
    }

    #[test]
    fn only_memory_outside_of_its_node_is_asked_about_and_the_busiest_first() {
        let tasks = [task(1, &[9 * S, 0]), task(2, &[2 * S, 0]), task(3, &[3 * S, S])];
        // The first has all but a tenth of its memory where it runs.
        let known = [placed(1, &[9, 1], None), placed(2, &[8, 2], None), placed(3, &[0, 5], None)];
        assert_eq!(chosen(&tasks, &known, S), Some(3));
        assert_eq!(chosen(&tasks[..2], &known, S), Some(2));
        assert_eq!(chosen(&tasks[..1], &known, S), None);
        assert_eq!(chosen(&tasks, &[], S), None);
    }

    #[test]
    fn each_is_looked_at_once_in_five_minutes_after_those_that_never_were() {
        let tasks = [task(2, &[2 * S, 0]), task(3, &[9 * S, 0])];
        let looked = [placed(2, &[1, 9], None), placed(3, &[1, 9], Some(100 * S))];
        assert_eq!(chosen(&tasks, &looked, 500 * S), Some(2));
        assert_eq!(chosen(&tasks[1..], &looked, 399 * S), None);
        assert_eq!(chosen(&tasks[1..], &looked, 400 * S), Some(3));
    }

    #[test]
    fn a_policy_of_the_process_itself_is_no_question() {
        let mut bound = TaskRaw::clone(&task(2, &[S, 0]));
        bound.mempolicy = MemPolicy { mode: 2, flags: 0, nodes: 1 };
        assert_eq!(chosen(&[Arc::new(bound)], &[placed(2, &[1, 9], None)], S), None);
    }

    #[test]
    fn looks_take_a_hundredth_of_the_time() {
        let (now, mut rest) = (Instant::now(), Rest::default());
        assert!(rest.is_over(now));
        rest.begin(now, Duration::from_millis(100));
        assert!(!rest.is_over(now + Duration::from_millis(9_800)));
        assert!(rest.is_over(now + Duration::from_millis(9_900)));
        assert!(affordable(15 << 30).is_ok() && affordable(17 << 30).is_err());
    }

    #[test]
    fn pages_count_for_the_policy_of_their_mapping() {
        let mut sum = PolicyBytes::default();
        for line in [
            "7f00 default anon=3 N0=3 kernelpagesize_kB=4",
            "7f10 local N1=1 kernelpagesize_kB=4",
            "7f20 interleave:0-1 anon=4 N0=2 N1=2 kernelpagesize_kB=2048",
            "7f30 bind=static:1 file=/dev/shm/a N1=1 kernelpagesize_kB=4",
            "7f40 prefer:0",
        ] {
            add(&mut sum, &parse_numa_line(line.as_bytes()).unwrap());
        }
        let known =
            PolicyBytes { all_bytes: 5 * 4096 + (8 << 20), own_bytes: 4096 + (8 << 20), huge: vec![] };
        assert_eq!(sum, known);
    }

    #[test]
    fn pages_of_hugetlbfs_are_beside_the_pools_of_their_size() {
        let mut sum = PolicyBytes::default();
        for line in [
            "7f00 default file=/dev/hugepages/a huge N0=2 N1=3 kernelpagesize_kB=2048",
            "7f10 default file=/dev/hugepages/b huge N1=1 kernelpagesize_kB=1048576",
            "7f20 default file=/dev/hugepages/a huge N1=4 kernelpagesize_kB=2048",
            "7f30 default anon=512 N0=512 kernelpagesize_kB=4",
        ] {
            add(&mut sum, &parse_numa_line(line.as_bytes()).unwrap());
        }
        let root = std::env::temp_dir().join(format!("numatop-pools-{}", std::process::id()));
        for (node, size, file, pages) in [
            (0, 2048, "nr_hugepages", "2"),
            (0, 2048, "free_hugepages", "0"),
            (1, 2048, "nr_hugepages", "512"),
            (1, 2048, "free_hugepages", "505"),
            (2, 2048, "nr_hugepages", "0"),
            (3, 2048, "nr_hugepages", "9"),
        ] {
            let folder =
                root.join(format!("sys/devices/system/node/node{node}/hugepages/hugepages-{size}kB"));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(file), format!("{pages}\n")).unwrap();
        }
        fs::create_dir_all(root.join("sys/devices/system/node/power")).unwrap();
        sum.huge.iter_mut().for_each(|pages| add_pools(&root, pages));
        fs::remove_dir_all(&root).unwrap();
        let node = |used, total, free| HugeNode { used, total, free };
        let small = [(0, node(2, 2, 0)), (1, node(7, 512, 505)), (3, node(0, 9, 0))];
        let large = [(1, node(1, 0, 0))];
        let expected = [(2 << 20, BTreeMap::from(small)), (1 << 30, BTreeMap::from(large))];
        assert_eq!(sum.huge, expected.map(|(page_bytes, by_node)| HugePages { page_bytes, by_node }));
    }

    #[test]
    fn one_whose_memory_is_all_of_hugetlbfs_is_asked_about() {
        let mut small = TaskRaw::clone(&task(2, &[S, 0]));
        small.rss_bytes = 4 << 20;
        let (_, raw) = placed(2, &[0, 1000], None);
        let mut raw = PlacementRaw::clone(&raw);
        let at = |raw: &PlacementRaw| chosen(&[Arc::new(small.clone())], &[(2, Arc::new(raw.clone()))], S);
        assert_eq!(at(&raw), None);
        raw.found.as_mut().unwrap().space_bytes = 1 << 30;
        raw.found.as_mut().unwrap().asked = 1000;
        assert_eq!(at(&raw), Some(2));
    }

    #[test]
    fn the_mappings_of_this_process_are_read() {
        let pid = std::process::id();
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
        let ticks: u64 = stat.rsplit(") ").next().unwrap().split(' ').nth(19).unwrap().parse().unwrap();
        let found = read(Path::new("/"), (pid, ticks * 10_000_000));
        // A kernel without CONFIG_NUMA has no such file.
        assert_eq!(found.is_ok(), Path::new("/proc/self/numa_maps").exists(), "{found:?}");
        let found = found.unwrap_or(PolicyBytes { all_bytes: u64::MAX, ..PolicyBytes::default() });
        assert!(found.all_bytes > 1 << 20 && found.own_bytes == 0, "{found:?}");
    }
}
