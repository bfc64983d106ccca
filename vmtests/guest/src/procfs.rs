//! The kernel's own counts, from /proc: the truth for the tool's rows of tasks.

use std::collections::BTreeMap;
use std::fs;

use crate::sysfs;

/// The counters of /proc/stat that cases compare with.
#[derive(Debug, Clone)]
pub struct Stat {
    /// Ticks of USER_HZ in which a CPU was not idle and did not wait.
    pub busy: u64,
    pub switches: u64,
    pub forks: u64,
}

pub fn stat() -> Result<Stat, String> {
    parse_stat(&sysfs::read("/proc/stat")?)
}

fn parse_stat(text: &str) -> Result<Stat, String> {
    let numbers = |key: &str| -> Option<Vec<u64>> {
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(key))?;
        line.split_whitespace().skip(1).map(|word| word.parse().ok()).collect()
    };
    let one = |key: &str| {
        numbers(key).and_then(|all| all.first().copied()).ok_or_else(|| format!("/proc/stat has no {key}"))
    };
    let cpu = numbers("cpu").filter(|all| all.len() >= 8).ok_or("/proc/stat has no cpu line of 8 numbers")?;
    // user nice system idle iowait irq softirq steal; guest time is in user already.
    let busy = cpu[0] + cpu[1] + cpu[2] + cpu[5] + cpu[6] + cpu[7];
    Ok(Stat { busy, switches: one("ctxt")?, forks: one("processes")? })
}

/// Bytes that a process has asked of disks to read.
pub fn read_bytes(pid: i32) -> Result<u64, String> {
    let text = sysfs::read(format!("/proc/{pid}/io"))?;
    let bytes = text.lines().find_map(|line| line.strip_prefix("read_bytes: ")?.parse().ok());
    bytes.ok_or_else(|| format!("/proc/{pid}/io has no read_bytes"))
}

/// A counter of /proc/vmstat.
pub fn vmstat(name: &str) -> Result<u64, String> {
    let text =
        fs::read_to_string("/proc/vmstat").map_err(|error| format!("reading /proc/vmstat: {error}"))?;
    let counter = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
    counter.ok_or_else(|| format!("/proc/vmstat has no {name}"))
}

/// On-CPU nanoseconds of the live threads of a process, from their schedstat. One that runs without pause is up to date to its
/// last tick.
pub fn process_run_ns(pid: i32) -> Result<u64, String> {
    let entries =
        fs::read_dir(format!("/proc/{pid}/task")).map_err(|error| format!("threads of {pid}: {error}"))?;
    let mut sum = 0;
    for entry in entries.flatten() {
        let path = entry.path().join("schedstat");
        let text = sysfs::read(&path)?;
        sum += text
            .split_whitespace()
            .next()
            .and_then(|word| word.parse::<u64>().ok())
            .ok_or_else(|| format!("{} does not start with a number", path.display()))?;
    }
    Ok(sum)
}

/// The letter of the state of a process, from its stat.
pub fn state(pid: i32) -> Result<char, String> {
    let text = sysfs::read(format!("/proc/{pid}/stat"))?;
    let letter = text.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    letter.ok_or_else(|| format!("/proc/{pid}/stat has no state"))
}

/// The CPUs on which threads of a process run right now, from their stat.
pub fn running_on(pid: i32) -> Result<Vec<u32>, String> {
    let tasks =
        fs::read_dir(format!("/proc/{pid}/task")).map_err(|error| format!("threads of {pid}: {error}"))?;
    // A thread that ends meanwhile runs nowhere.
    let stats = tasks.flatten().filter_map(|task| fs::read_to_string(task.path().join("stat")).ok());
    Ok(stats.filter_map(|stat| parse_running_on(&stat)).collect())
}

/// `None` for one that does not run. Its state is field 3, its CPU field 39: proc_pid_stat(5).
fn parse_running_on(stat: &str) -> Option<u32> {
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    (fields.next()? == "R").then(|| fields.nth(35)?.parse().ok())?
}

/// The number of times the scheduler moved the main thread of a process to another CPU, from its `sched`.
pub fn cpu_moves(pid: i32) -> Result<u64, String> {
    parse_cpu_moves(&sysfs::read(format!("/proc/{pid}/sched"))?)
}

fn parse_cpu_moves(text: &str) -> Result<u64, String> {
    let line = text.lines().find_map(|line| line.strip_prefix("se.nr_migrations"));
    line.and_then(|rest| rest.trim_start_matches([' ', ':']).parse().ok())
        .ok_or_else(|| "its sched has no se.nr_migrations".to_owned())
}

/// Memory of a process by node, in bytes: every page of every mapping, from /proc/PID/numa_maps.
pub fn bytes_by_node(pid: i32) -> Result<BTreeMap<u32, f64>, String> {
    Ok(parse_numa_maps(&sysfs::read(format!("/proc/{pid}/numa_maps"))?))
}

/// CPUs that the main thread of a process may use.
pub fn cpus_allowed(pid: i32) -> Result<Vec<u32>, String> {
    let status = sysfs::read(format!("/proc/{pid}/status"))?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    sysfs::parse_list(list.ok_or_else(|| format!("/proc/{pid}/status has no list of CPUs"))?.trim())
}

/// Resident memory of a process in bytes, from `VmRSS` of /proc/PID/status.
pub fn resident_bytes(pid: i32) -> Result<u64, String> {
    let status = sysfs::read(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.map(|kib| kib * 1024).ok_or_else(|| format!("/proc/{pid}/status has no VmRSS"))
}

fn parse_numa_maps(text: &str) -> BTreeMap<u32, f64> {
    let mut bytes: BTreeMap<u32, f64> = BTreeMap::new();
    for line in text.lines() {
        let value = |key: &str| line.split(' ').find_map(|word| word.strip_prefix(key)?.parse::<f64>().ok());
        let page = value("kernelpagesize_kB=").unwrap_or(4.0) * 1024.0;
        for word in line.split(' ').filter_map(|word| word.strip_prefix('N')) {
            if let Some((Ok(node), Ok(pages))) =
                word.split_once('=').map(|(n, p)| (n.parse(), p.parse::<f64>()))
            {
                *bytes.entry(node).or_default() += pages * page;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_runs_has_a_cpu() {
        let stat = |state: &str| {
            let zeros = "0 ".repeat(35);
            format!("7 (a) b) {state} {zeros}3 0 0 0")
        };
        assert_eq!(parse_running_on(&stat("R")), Some(3));
        assert_eq!(parse_running_on(&stat("S")), None);
        assert_eq!(parse_running_on(""), None);
    }

    #[test]
    fn busy_is_all_that_is_not_idle_or_waiting() {
        let stat = parse_stat("cpu  1 2 3 40 50 6 7 8 0 0\ncpu0 0\nctxt 12\nprocesses 3\n").unwrap();
        assert_eq!(stat.busy, 27);
        assert_eq!((stat.switches, stat.forks), (12, 3));
        assert!(parse_stat("cpu 1").is_err());
    }

    #[test]
    fn moves_are_a_line_of_sched() {
        let text = "wander (7, #threads: 1)\n---\nse.sum_exec_runtime  :  1.5\nse.nr_migrations  :     12\n";
        assert_eq!(parse_cpu_moves(text), Ok(12));
        assert!(parse_cpu_moves("").is_err());
    }

    #[test]
    fn pages_count_with_their_size() {
        let text = "7f00 default file=/a N1=2 mapped=2 kernelpagesize_kB=4\n\
                    7f10 bind:0 anon=3 dirty=3 N0=1 N1=2 kernelpagesize_kB=2048";
        let bytes = parse_numa_maps(text);
        assert_eq!((bytes[&0], bytes[&1]), (2097152.0, 2.0 * 2097152.0 + 8192.0));
    }
}
