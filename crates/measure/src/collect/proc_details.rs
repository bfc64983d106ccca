//! /proc fields of one process, for the detail view: too costly for every task at every refresh.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::host::{clock, processes};
use crate::model::process::{Details, Texts};
use crate::model::sample::{Missing, Reading};
use crate::text;

/// Maximum bytes read of a command line. It can have megabytes, but a screen shows little of it. Files of one
/// line are shorter.
const READ_MAX: u64 = 4096;
/// Maximum bytes read of files with several lines. 65,536 supplementary groups, the most possible, take up to
/// 704 KiB of `status` ahead of the list of allowed CPUs.
const LINES_MAX: u64 = 1 << 20;
/// `/proc/PID/stat` counts start times in clock ticks: USER_HZ, 100 on every architecture we run on.
const TICK_NS: u64 = 10_000_000;

/// Reads about process `pid` that started at `start_ns` since boot, below `root` (`/`).
///
/// # Errors
/// The process has ended, or its id now belongs to another now.
pub fn read(root: &Path, pid: u32, start_ns: u64) -> Result<Details> {
    read_with(root, pid, start_ns, cmdline_of)
}

/// As [`read`], but without what the lock of its address space guards: that is `missing`.
///
/// # Errors
/// The process has ended, or its id now belongs to another now.
pub fn read_without_memory(root: &Path, pid: u32, start_ns: u64, missing: Missing) -> Result<Details> {
    read_with(root, pid, start_ns, |_| Err(missing))
}

fn read_with(
    root: &Path,
    pid: u32,
    start_ns: u64,
    cmdline: impl FnOnce(&Path) -> Reading<String>,
) -> Result<Details> {
    let dir = root.join(format!("proc/{pid}"));
    check_start(&dir, pid, start_ns)?;
    let status = known(&dir.join("status"), LINES_MAX);
    let bytes = |name: &str| {
        let text = field(status.as_ref().ok()?, name)?.strip_suffix(b" kB")?.trim_ascii();
        std::str::from_utf8(text).ok()?.parse::<u64>().ok().map(|kib| kib.saturating_mul(1024))
    };
    Ok(Details {
        pid,
        start_ns,
        texts: texts_with(&dir, &status, cmdline(&dir)),
        cgroups: bounded(&dir.join("cgroup"), LINES_MAX).map(|text| cgroups(&text)).unwrap_or_default(),
        rss: bytes("RssAnon").zip(bytes("RssFile")).zip(bytes("RssShmem")).map(|((a, f), s)| [a, f, s]),
        schedstat: bounded(&dir.join("schedstat"), READ_MAX).ok().and_then(|text| schedstat(&text)),
    })
}

/// The command line of process `pid` below `root` (`/`), and the CPUs and nodes that it may use.
pub fn texts(root: &Path, pid: u32) -> Texts {
    let dir = root.join(format!("proc/{pid}"));
    texts_with(&dir, &known(&dir.join("status"), LINES_MAX), cmdline_of(&dir))
}

/// As [`texts`], but without the command line, which the lock of its address space guards: that is `missing`.
pub fn texts_without_memory(root: &Path, pid: u32, missing: Missing) -> Texts {
    let dir = root.join(format!("proc/{pid}"));
    texts_with(&dir, &known(&dir.join("status"), LINES_MAX), Err(missing))
}

fn cmdline_of(dir: &Path) -> Reading<String> {
    known(&dir.join("cmdline"), READ_MAX).map(|bytes| cmdline(&bytes))
}

fn texts_with(dir: &Path, status: &Reading<Vec<u8>>, cmdline: Reading<String>) -> Texts {
    let list = |name: &str| {
        let text = status.as_ref().map_err(Clone::clone)?;
        let none = || {
            Missing::Unsupported(format!(
                "the line {name} of {}/status is incomplete or missing",
                dir.display()
            ))
        };
        field(text, name).map(text::clean).ok_or_else(none)
    };
    Texts { cmdline, cpus_allowed: list("Cpus_allowed_list"), mems_allowed: list("Mems_allowed_list") }
}

/// Share of its resident memory in huge pages, in percent: pages mapped by a page middle directory, and
/// pages of hugetlbfs, as defined in the kernel's Documentation/filesystems/proc.rst. The kernel walks every page
/// table of the process.
///
/// # Errors
/// The process has ended or may not be looked at, or it has no memory.
pub fn huge_pct(root: &Path, pid: u32) -> Result<f64> {
    let path = root.join(format!("proc/{pid}/smaps_rollup"));
    let text = bounded(&path, LINES_MAX).with_context(|| format!("reading {}", path.display()))?;
    huge_share(&String::from_utf8_lossy(&text)).with_context(|| format!("process {pid} has no memory"))
}

fn huge_share(rollup: &str) -> Option<f64> {
    let sum = |names: &[&str]| -> u64 {
        let fields = rollup.lines().filter_map(|line| line.split_once(':'));
        let named = fields.filter(|(name, _)| names.contains(name));
        let sizes = named.filter_map(|(_, rest)| rest.trim().strip_suffix(" kB")?.parse().ok());
        sizes.fold(0, u64::saturating_add)
    };
    // Pages of hugetlbfs are not in Rss.
    let hugetlb = sum(&["Shared_Hugetlb", "Private_Hugetlb"]);
    let huge = sum(&["AnonHugePages", "ShmemPmdMapped", "FilePmdMapped"]).saturating_add(hugetlb);
    let all = sum(&["Rss"]).saturating_add(hugetlb);
    (all > 0).then(|| huge as f64 * 100.0 / all as f64)
}

/// Whether `dir`, a `/proc/PID`, is that of process `pid` that started at `start_ns` since boot.
///
/// # Errors
/// The process has ended, or its id now belongs to another now.
pub fn check_start(dir: &Path, pid: u32, start_ns: u64) -> Result<()> {
    let stat = bounded(&dir.join("stat"), READ_MAX).with_context(|| processes::gone(pid))?;
    let ticks = start_ticks(&stat).with_context(|| format!("no start time in /proc/{pid}/stat"))?;
    let is_same = ticks.abs_diff(start_ns / TICK_NS) <= 1;
    ensure!(is_same, "{}; its id now belongs to another process", processes::gone(pid));
    Ok(())
}

fn bounded(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The contents of a file, or why they cannot be known.
fn known(path: &Path, max: u64) -> Reading<Vec<u8>> {
    bounded(path, max).map_err(|error| {
        let why = format!("reading {}: {error}", path.display());
        match error.kind() {
            io::ErrorKind::PermissionDenied => Missing::NotPermitted(why),
            _ => Missing::Lost(why),
        }
    })
}

/// The value in the line `name:` of /proc/PID/status. A line without an end is cut off: half of a list is another list.
fn field<'a>(status: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let whole = status.split_inclusive(|byte| *byte == b'\n').filter_map(|line| line.strip_suffix(b"\n"));
    let value = |line: &'a [u8]| line.strip_prefix(name.as_bytes())?.strip_prefix(b":");
    whole.filter_map(value).next().map(<[u8]>::trim_ascii)
}

/// Field 22 of proc_pid_stat(5), without the offset of a time namespace. The name before it may contain anything, also
/// parentheses.
fn start_ticks(stat: &[u8]) -> Option<u64> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(&stat[end + 1..]).ok()?;
    let shown: u64 = rest.split_ascii_whitespace().nth(22 - 3)?.parse().ok()?;
    Some(clock::boot_ns_of(shown.saturating_mul(TICK_NS)) / TICK_NS)
}

/// Whether `stat`, a process's file in /proc, belongs to the process that started at `start_ns` since boot.
///
/// # Errors
/// The errno of read(2).
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

/// Paths of `hierarchy:controllers:path` lines, each once. The root is left out if another path exists.
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

/// Start of the process with this id, ns since boot, in steps of 10 ms as in /proc.
pub fn start_ns(pid: u32) -> Option<u64> {
    start_ticks(&bounded(Path::new(&format!("/proc/{pid}/stat")), READ_MAX).ok()?)
        .map(|ticks| ticks.saturating_mul(TICK_NS))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) const PID: u32 = 7;

    /// The root of a machine where process [`PID`] has run since boot and has these files.
    pub(crate) fn process(name: &str, files: &[(&str, &str)]) -> std::path::PathBuf {
        let root = std::env::temp_dir().join(format!("numatop-inspect-{}-{name}", std::process::id()));
        let dir = root.join(format!("proc/{PID}"));
        std::fs::create_dir_all(&dir).unwrap();
        let stat = ("stat", "7 (x) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 0 0 0\n");
        for (name, text) in files.iter().chain([&stat]) {
            std::fs::write(dir.join(name), text).unwrap();
        }
        root
    }

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
    fn sizes_beyond_all_that_can_be_counted_are_no_share_of_nothing() {
        let most = u64::MAX;
        let rollup = format!("Rss: {most} kB\nAnonHugePages: {most} kB\nPrivate_Hugetlb: {most} kB\n");
        assert_eq!(huge_share(&rollup), Some(100.0));
    }

    #[test]
    fn resident_memory_beyond_all_that_can_be_counted_stays_at_the_end() {
        let status = format!("RssAnon:\t{} kB\nRssFile:\t1 kB\nRssShmem:\t0 kB\n", u64::MAX);
        let root = process("rss", &[("status", &status)]);
        assert_eq!(read(&root, PID, 0).unwrap().rss, Some([u64::MAX, 1024, 0]));
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn paths_of_all_hierarchies_are_listed_once() {
        let text = b"12:cpuset:/docker/0a1b\n5:memory:/docker/0a1b\n1:name=systemd:/\n0::/x:y\n";
        assert_eq!(cgroups(text), ["/docker/0a1b", "/x:y"]);
        assert_eq!(cgroups(b"0::/\n"), ["/"]);
    }

    #[test]
    fn what_may_be_used_is_found_behind_as_many_groups_as_there_can_be() {
        let groups: String = (0..65_536).map(|at| format!("{} ", u32::MAX - at)).collect();
        let status =
            format!("Name:\tx\nGroups:\t{groups}\nCpus_allowed_list:\t0-127\nMems_allowed_list:\t0-1\n");
        let root = process("groups", &[("status", &status), ("cmdline", "x\0")]);
        let details = read(&root, PID, 0).unwrap();
        assert_eq!(
            (details.texts.cpus_allowed, details.texts.mems_allowed),
            (Ok("0-127".into()), Ok("0-1".into()))
        );
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn half_a_list_is_not_taken_for_a_list() {
        let status = b"Cpus_allowed_list:\t0-127\nMems_allowed_list:\t0-1";
        assert_eq!(field(status, "Cpus_allowed_list"), Some(&b"0-127"[..]));
        assert_eq!(field(status, "Mems_allowed_list"), None);
    }

    #[test]
    fn what_cannot_be_read_has_a_reason_and_what_is_empty_is_a_value() {
        let root = process("empty", &[("cmdline", "")]);
        let details = read(&root, PID, 0).unwrap();
        assert_eq!(details.texts.cmdline, Ok(String::new()));
        assert!(
            matches!(&details.texts.cpus_allowed, Err(Missing::Lost(why)) if why.contains("No such file"))
        );
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn this_process_can_be_inspected_and_its_id_alone_is_not_enough() {
        let root = Path::new("/");
        let pid = std::process::id();
        let start_ns = start_ns(pid).unwrap();
        let details = read(root, pid, start_ns).unwrap();
        assert!(details.texts.cmdline.is_ok_and(|text| !text.is_empty()));
        assert!(details.texts.cpus_allowed.is_ok_and(|list| !list.is_empty()));
        let error = read(root, pid, start_ns + 5_000_000_000).unwrap_err().to_string();
        assert!(error.contains("its id now belongs to another"), "{error}");
    }
}
