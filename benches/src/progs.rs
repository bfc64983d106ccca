//! The BPF programs that a process holds, and the time that the kernel has counted for each.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{FromRawFd, OwnedFd};

use anyhow::{Context, Result, bail};
use libbpf_rs::libbpf_sys;
use libbpf_rs::query::ProgInfoIter;

/// Counts for one program; both only while [`RunTime`] is alive somewhere on the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    pub runs: u64,
    pub ns: u64,
}

/// While it lives the kernel measures the run time of every BPF program. Each run then costs two readings of
/// the clock, partly included in the result: compare with an empty program.
pub struct RunTime(#[allow(dead_code, reason = "held for its Drop")] OwnedFd);

impl RunTime {
    /// # Errors
    /// The kernel is older than 5.8 or the capability is missing.
    pub fn measure() -> Result<RunTime> {
        // SAFETY: takes an integer, returns a new descriptor or a negative error.
        let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
        if fd < 0 {
            let error = std::io::Error::from_raw_os_error(-fd);
            return Err(error).context("turning on BPF run-time statistics");
        }
        // SAFETY: the descriptor is new and unowned.
        Ok(RunTime(unsafe { OwnedFd::from_raw_fd(fd) }))
    }
}

/// The programs that `pid` holds a descriptor of, by name.
///
/// # Errors
/// The process is gone, or the kernel does not show its programs.
pub fn of_process(pid: u32) -> Result<BTreeMap<String, Counted>> {
    let dir = format!("/proc/{pid}/fdinfo");
    let mut ids = BTreeMap::new();
    for entry in fs::read_dir(&dir).with_context(|| format!("reading {dir}"))? {
        // Descriptors come and go while we read.
        let Ok(text) = fs::read_to_string(entry?.path()) else { continue };
        if let Some((id, counted)) = parse_fdinfo(&text) {
            ids.insert(id, counted);
        }
    }
    let named = ProgInfoIter::default().filter_map(|info| {
        let counted = *ids.get(&info.id)?;
        Some((format!("{}#{}", info.name.to_string_lossy(), info.id), counted))
    });
    Ok(named.collect())
}

/// `prog_id`, `run_cnt` and `run_time_ns` of a program's fdinfo; `None` for any other descriptor.
fn parse_fdinfo(text: &str) -> Option<(u32, Counted)> {
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().parse::<u64>().ok()
    };
    // Links have a prog_id too, but no counts.
    let counted = Counted { runs: field("run_cnt")?, ns: field("run_time_ns")? };
    Some((u32::try_from(field("prog_id")?).ok()?, counted))
}

/// The cost of a context switch between two readings.
#[derive(Clone, Copy, Debug)]
pub struct PerSwitch {
    /// ns per run of the program at sched_switch.
    pub switch_program: f64,
    /// ns of all programs of the process, per context switch.
    pub all_programs: f64,
}

/// # Errors
/// No program at sched_switch ran in between.
pub fn per_switch(
    before: &BTreeMap<String, Counted>,
    after: &BTreeMap<String, Counted>,
) -> Result<PerSwitch> {
    let mut switch = Counted::default();
    let mut all_ns = 0;
    for (name, now) in after {
        let old = before.get(name).copied().unwrap_or_default();
        let delta = Counted { runs: now.runs - old.runs, ns: now.ns - old.ns };
        all_ns += delta.ns;
        // The kernel keeps 15 letters of a name; runqlat spells it sched_swith.
        if name.contains("sched_swi") && delta.runs > switch.runs {
            switch = delta;
        }
    }
    if switch.runs == 0 {
        bail!("no program at sched_switch ran; programs: {:?}", after.keys().collect::<Vec<_>>());
    }
    let runs = switch.runs as f64;
    Ok(PerSwitch { switch_program: switch.ns as f64 / runs, all_programs: all_ns as f64 / runs })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_programs_have_counts() {
        let program = "pos:\t0\nprog_type:\t26\nprog_id:\t147\nrun_time_ns:\t4200\nrun_cnt:\t60\n";
        assert_eq!(parse_fdinfo(program), Some((147, Counted { runs: 60, ns: 4200 })));
        assert_eq!(parse_fdinfo("link_type:\ttracing\nlink_id:\t3\nprog_id:\t147\n"), None);
        assert_eq!(parse_fdinfo("pos:\t0\nflags:\t02\n"), None);
    }

    #[test]
    fn a_tool_of_two_programs_costs_both_at_each_switch() {
        let reading = |runs: u64, ns: u64| {
            BTreeMap::from([
                ("sched_swith#2".to_string(), Counted { runs, ns }),
                ("sched_wakeup#1".to_string(), Counted { runs: runs / 2, ns }),
            ])
        };
        let cost = per_switch(&reading(0, 0), &reading(10, 1000)).unwrap();
        assert_eq!((cost.switch_program, cost.all_programs), (100.0, 200.0));
    }
}
