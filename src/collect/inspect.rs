//! What /proc says about one process that a person asked for: too costly for every task at every refresh.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::text;

/// Bytes read of a file at most. Command lines can have megabytes; nobody reads that on a screen.
const READ_MAX: u64 = 4096;
/// `/proc/PID/stat` counts start times in clock ticks: USER_HZ, 100 on every architecture we run on.
const TICK_NS: u64 = 10_000_000;

/// Texts are clean: they can be shown as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    pub pid: u32,
    /// Start of the process since boot, ns, as it was asked for.
    pub start_ns: u64,
    /// Arguments separated by spaces; empty for kernel threads.
    pub cmdline: String,
    /// CPUs and nodes that its main thread may use, as lists.
    pub cpus_allowed: String,
    pub mems_allowed: String,
    /// Path in each hierarchy, as in cgroups(7).
    pub cgroups: Vec<String>,
    /// Resident anonymous, file and shared memory in bytes, where the kernel tells them apart (4.5).
    pub rss: Option<[u64; 3]>,
    /// Of its main thread since its start, ns: time on a CPU and time waiting for one.
    pub schedstat: Option<[u64; 2]>,
}

/// Reads about process `pid` that started at `start_ns` since boot, below `root` (`/`).
///
/// # Errors
/// The process has ended, or another one has its id now.
pub fn read(root: &Path, pid: u32, start_ns: u64) -> Result<Details> {
    let dir = root.join(format!("proc/{pid}"));
    check_start(&dir, pid, start_ns)?;
    let status = bounded(&dir.join("status")).unwrap_or_default();
    let status = String::from_utf8_lossy(&status).into_owned();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map(str::trim)
    };
    let bytes =
        |name: &str| field(name)?.strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10);
    let list = |name: &str| text::clean_str(field(name).unwrap_or_default());
    Ok(Details {
        pid,
        start_ns,
        cmdline: cmdline(&bounded(&dir.join("cmdline")).unwrap_or_default()),
        cpus_allowed: list("Cpus_allowed_list"),
        mems_allowed: list("Mems_allowed_list"),
        cgroups: bounded(&dir.join("cgroup")).map(|text| cgroups(&text)).unwrap_or_default(),
        rss: bytes("RssAnon").zip(bytes("RssFile")).zip(bytes("RssShmem")).map(|((a, f), s)| [a, f, s]),
        schedstat: bounded(&dir.join("schedstat")).ok().and_then(|text| schedstat(&text)),
    })
}

/// Share of its resident memory that huge pages make up, in percent: of those that a page middle directory maps and
/// those of hugetlbfs, as the kernel's Documentation/filesystems/proc.rst defines them. The kernel looks at every page
/// table of the process.
///
/// # Errors
/// The process has ended or may not be looked at, or it has no memory.
pub fn huge_pct(root: &Path, pid: u32) -> Result<f64> {
    let path = root.join(format!("proc/{pid}/smaps_rollup"));
    let text = bounded(&path).with_context(|| format!("reading {}", path.display()))?;
    huge_share(&String::from_utf8_lossy(&text)).with_context(|| format!("process {pid} has no memory"))
}

fn huge_share(rollup: &str) -> Option<f64> {
    let sum = |names: &[&str]| -> u64 {
        let fields = rollup.lines().filter_map(|line| line.split_once(':'));
        let named = fields.filter(|(name, _)| names.contains(name));
        named.filter_map(|(_, rest)| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok()).sum()
    };
    // Pages of hugetlbfs are not in Rss.
    let hugetlb = sum(&["Shared_Hugetlb", "Private_Hugetlb"]);
    let huge = sum(&["AnonHugePages", "ShmemPmdMapped", "FilePmdMapped"]) + hugetlb;
    let all = sum(&["Rss"]) + hugetlb;
    (all > 0).then(|| huge as f64 * 100.0 / all as f64)
}

/// Is `dir`, a `/proc/PID`, that of process `pid` that started at `start_ns` since boot?
///
/// # Errors
/// The process has ended, or another one has its id now.
pub fn check_start(dir: &Path, pid: u32, start_ns: u64) -> Result<()> {
    let stat = bounded(&dir.join("stat")).with_context(|| format!("process {pid} has ended"))?;
    let ticks = start_ticks(&stat).with_context(|| format!("no start time in /proc/{pid}/stat"))?;
    ensure!(ticks.abs_diff(start_ns / TICK_NS) <= 1, "process {pid} has ended; another one has its id now");
    Ok(())
}

fn bounded(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(READ_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Field 22 of proc_pid_stat(5). The name before it may contain anything, also parentheses.
fn start_ticks(stat: &[u8]) -> Option<u64> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(&stat[end + 1..]).ok()?;
    rest.split_ascii_whitespace().nth(22 - 3)?.parse().ok()
}

/// Whether `stat`, a process's file in /proc, is of the one that started at `start_ns` since boot.
///
/// # Errors
/// What reading it returned.
pub fn is_process(stat: &mut File, start_ns: u64) -> std::io::Result<bool> {
    let mut bytes = Vec::with_capacity(512);
    stat.take(READ_MAX).read_to_end(&mut bytes)?;
    Ok(start_ticks(&bytes).is_some_and(|ticks| ticks.abs_diff(start_ns / TICK_NS) <= 1))
}

fn cmdline(bytes: &[u8]) -> String {
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let words: Vec<String> = bytes[..end].split(|byte| *byte == 0).map(text::clean).collect();
    words.join(" ")
}

/// Paths of `hierarchy:controllers:path` lines, each once, the root left out when there is another.
fn cgroups(bytes: &[u8]) -> Vec<String> {
    let mut paths: Vec<String> = Vec::new();
    for line in bytes.split(|byte| *byte == b'\n') {
        let Some(path) = line.splitn(3, |byte| *byte == b':').nth(2) else { continue };
        let path = text::clean(path);
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    if paths.len() > 1 {
        paths.retain(|path| path != "/");
    }
    paths
}

fn schedstat(bytes: &[u8]) -> Option<[u64; 2]> {
    let mut numbers = std::str::from_utf8(bytes).ok()?.split_ascii_whitespace().map(str::parse);
    Some([numbers.next()?.ok()?, numbers.next()?.ok()?])
}

/// Start of the process with this id, ns since boot, as exactly as /proc has it: in steps of 10 ms.
pub fn start_ns(pid: u32) -> Option<u64> {
    start_ticks(&bounded(Path::new(&format!("/proc/{pid}/stat"))).ok()?).map(|ticks| ticks * TICK_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_move_the_fields() {
        let stat = b"7 (a) b) (c) R 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 0 0\n";
        assert_eq!(start_ticks(stat), Some(4242));
        assert_eq!(start_ticks(b"7 (cut of"), None);
    }

    #[test]
    fn arguments_are_cleaned_and_separated() {
        assert_eq!(cmdline(b"java\0-Xmx4g\0\x1b[2J\0\0"), "java -Xmx4g \\x1b[2J");
        assert_eq!(cmdline(b""), "");
    }

    #[test]
    fn huge_pages_are_a_share_of_all_that_is_resident() {
        let rollup = "55d0-7ffc ---p 00000000 00:00 0 [rollup]\nRss:   6144 kB\nPss:   6000 kB\nAnonHugePages:   2048 kB\n\
                      ShmemPmdMapped:    0 kB\nFilePmdMapped:    0 kB\nShared_Hugetlb:   0 kB\nPrivate_Hugetlb:   2048 kB\n";
        assert_eq!(huge_share(rollup), Some(50.0));
        assert_eq!(huge_share("Rss:   0 kB\n"), None);
    }

    #[test]
    fn paths_of_all_hierarchies_are_listed_once() {
        let text = b"12:cpuset:/docker/0a1b\n5:memory:/docker/0a1b\n1:name=systemd:/\n0::/x:y\n";
        assert_eq!(cgroups(text), ["/docker/0a1b", "/x:y"]);
        assert_eq!(cgroups(b"0::/\n"), ["/"]);
    }

    #[test]
    fn this_process_can_be_inspected_and_its_id_alone_is_not_enough() {
        let root = Path::new("/");
        let pid = std::process::id();
        let start_ns = start_ns(pid).unwrap();
        let details = read(root, pid, start_ns).unwrap();
        assert!(!details.cmdline.is_empty() && !details.cpus_allowed.is_empty());
        let error = read(root, pid, start_ns + 5_000_000_000).unwrap_err().to_string();
        assert!(error.contains("another one has its id"), "{error}");
    }
}
