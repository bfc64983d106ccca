//! The processes whose accesses are worth sampling: those whose remote share could matter and is not known. Pure.

use std::collections::{BTreeMap, HashSet};

use crate::metric::placement::{Basis, remote_by_source};
use crate::model::process::ProcessId;
use crate::snapshot::{Snapshot, Task};

/// CPU time, as a share of one CPU, below which ten seconds hold too few samples for a share: a hundred at 97 a second.
const LEAST_CPU: f64 = 0.1;

/// CPU time that a row may have spent at accesses to other nodes, at most, in ns. 0 if the CPU counts them,
/// if all memory is near, and if nothing is known yet.
///
/// Samples are left out: with them a row would be worth less, lose its place, and then be worth more again.
fn worth_ns(task: &Task, snapshot: &Snapshot) -> f64 {
    let sources = remote_by_source(task, snapshot);
    if sources.iter().any(|share| share.basis == Basis::Counted) {
        return 0.0;
    }
    let placed = sources.iter().find(|share| share.basis == Basis::Placement);
    placed.map_or(0.0, |share| share.range.1 / 100.0 * task.run_ns() as f64)
}

/// Processes to sample, the most important one first: the one in the details, the ones that findings ask about, and
/// the ones in `in_view` with most time at possibly remote accesses.
pub fn wanted(
    snapshot: &Snapshot,
    details: Option<ProcessId>,
    findings: &[ProcessId],
    in_view: &[ProcessId],
) -> Vec<ProcessId> {
    let least_ns = LEAST_CPU * snapshot.interval_ns.unwrap_or(u64::MAX) as f64;
    let in_view: HashSet<&ProcessId> = in_view.iter().collect();
    let mut worth: BTreeMap<ProcessId, (f64, u64)> = BTreeMap::new();
    // Most rows are idle: they are worth nothing, and the row alone shows it.
    for task in snapshot.tasks.iter().filter(|task| task.run_ns() > 0) {
        if task.exited || task.raw.kthread {
            continue;
        }
        let process = task.raw.process();
        if in_view.contains(&process) {
            let (worth_of_all, ran_ns) = worth.entry(process).or_default();
            // Rows may be threads.
            *worth_of_all += worth_ns(task, snapshot);
            *ran_ns += task.run_ns();
        }
    }
    let mut rows: Vec<(ProcessId, f64)> = worth
        .into_iter()
        .filter(|(_, (worth, ran_ns))| *worth > 0.0 && *ran_ns as f64 >= least_ns)
        .map(|(process, (worth, _))| (process, worth))
        .collect();
    rows.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut wanted: Vec<ProcessId> = Vec::new();
    for process in details.into_iter().chain(findings.iter().copied()).chain(rows.iter().map(|row| row.0)) {
        if !wanted.contains(&process) {
            wanted.push(process);
        }
    }
    wanted
}
