//! What the kernel itself has counted, from /proc: the truth for what the tool says of tasks.

use std::fs;

use crate::sysfs;

/// Times of one CPU or of all, from /proc/stat, in USER_HZ ticks.
#[derive(Debug, Clone, Copy, Default)]
pub struct CpuTimes {
    pub busy: u64,
    pub idle: u64,
}

/// The counters of /proc/stat that cases compare with.
#[derive(Debug, Clone)]
pub struct Stat {
    pub total: CpuTimes,
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
    Ok(Stat {
        total: CpuTimes { busy, idle: cpu[3] + cpu[4] },
        switches: one("ctxt")?,
        forks: one("processes")?,
    })
}

/// On-CPU nanoseconds of a thread, from its schedstat.
pub fn run_ns(pid: i32, tid: i32) -> Result<u64, String> {
    let path = format!("/proc/{pid}/task/{tid}/schedstat");
    let text = sysfs::read(&path)?;
    text.split_whitespace()
        .next()
        .and_then(|word| word.parse().ok())
        .ok_or_else(|| format!("{path} does not start with a number"))
}

/// One number from /proc/PID/status, such as `voluntary_ctxt_switches`.
pub fn status(pid: i32, tid: i32, key: &str) -> Result<u64, String> {
    let text = sysfs::read(format!("/proc/{pid}/task/{tid}/status"))?;
    text.lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .ok_or_else(|| format!("no {key} in the status of {tid}"))
}

/// The threads of a process.
pub fn threads(pid: i32) -> Result<Vec<i32>, String> {
    let entries =
        fs::read_dir(format!("/proc/{pid}/task")).map_err(|error| format!("threads of {pid}: {error}"))?;
    Ok(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_is_all_that_is_not_idle_or_waiting() {
        let stat = parse_stat("cpu  1 2 3 40 50 6 7 8 0 0\ncpu0 0\nctxt 12\nprocesses 3\n").unwrap();
        assert_eq!((stat.total.busy, stat.total.idle), (27, 90));
        assert_eq!((stat.switches, stat.forks), (12, 3));
        assert!(parse_stat("cpu 1").is_err());
    }
}
