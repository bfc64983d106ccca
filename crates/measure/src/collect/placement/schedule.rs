//! The order in which processes are looked at. Pure.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use crate::model::counters::Counter;
use crate::model::process::ProcessId;
use crate::model::sample::TaskRaw;

/// A value older than this is looked at again although nothing seems to have changed: the kernel moves pages
/// without a fault of the process.
const OLD_NS: u64 = 30_000_000_000;
/// Less of the memory than this changed, at an age below [`OLD_NS`]: not worth a look.
const LITTLE: f64 = 0.02;
/// Bytes that a fault brings in at least.
const FAULT_BYTES: u64 = 4096;

/// The state of a process when its memory was looked at, or now.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Look {
    /// CLOCK_MONOTONIC.
    pub at_ns: u64,
    pub rss_bytes: u64,
    /// Page faults and migrated pages, and CPU time, of its live threads.
    pub faults: u64,
    pub run_ns: u64,
}

/// A process that may be looked at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    pub process: ProcessId,
    /// A living thread of the process, its leader if that lives; 0: none.
    pub tid: u32,
    /// The user it runs as.
    pub uid: u32,
    /// Its current state.
    pub look: Look,
    /// The last look, if there was one.
    before: Option<Look>,
    /// 0 for the selected process, 1 for those on the screen, 2 for others.
    rank: u8,
}

impl Candidate {
    /// The change that its placement may have seen, from 0 to 2; by age alone 1 after [`OLD_NS`].
    fn staleness(&self) -> f64 {
        let Some(before) = self.before else { return 2.0 };
        let age = self.look.at_ns.saturating_sub(before.at_ns) as f64 / OLD_NS as f64;
        let faults = self.look.faults.abs_diff(before.faults).saturating_mul(FAULT_BYTES);
        let bytes = faults.max(self.look.rss_bytes.abs_diff(before.rss_bytes));
        let changed = bytes as f64 / self.look.rss_bytes.max(1) as f64;
        if changed < LITTLE && age < 1.0 {
            return if self.rank == 0 { age } else { 0.0 };
        }
        age.min(1.0) + changed.min(1.0)
    }

    /// Its weight: much memory, and time on a CPU since, in which the memory was used.
    fn weight(&self) -> f64 {
        let ran = self.look.run_ns.saturating_sub(self.before.map_or(0, |before| before.run_ns)) as f64;
        (self.look.rss_bytes as f64).sqrt() * (1.0 + (ran / 1e6).min(1e4))
    }
}

/// The processes that have memory of their own, from their threads.
pub fn candidates(
    tasks: &[Arc<TaskRaw>],
    now_ns: u64,
    looks: &HashMap<ProcessId, Look>,
    focus: &[ProcessId],
) -> HashMap<ProcessId, Candidate> {
    let mut found: HashMap<ProcessId, Candidate> = HashMap::new();
    for task in tasks.iter().filter(|task| !task.kthread && task.tid != 0) {
        let process = task.process();
        let candidate = found.entry(process).or_insert_with(|| {
            let rank = focus.iter().position(|other| *other == process).map_or(2, |at| at.min(1) as u8);
            let look = Look { at_ns: now_ns, ..Look::default() };
            Candidate { process, tid: 0, uid: task.uid, look, before: looks.get(&process).copied(), rank }
        });
        if task.exit_state == 0 && (candidate.tid == 0 || task.tid == task.pid) {
            candidate.tid = task.tid;
        }
        // All threads share the memory.
        candidate.look.rss_bytes = candidate.look.rss_bytes.max(task.rss_bytes);
        for pages in [
            task.counts[Counter::MinFlt],
            task.counts[Counter::MajFlt],
            task.counts[Counter::NumaPagesMigrated],
        ] {
            candidate.look.faults = candidate.look.faults.wrapping_add(pages);
        }
        candidate.look.run_ns = candidate.look.run_ns.wrapping_add(task.exec_ns);
    }
    // Zombies have none.
    found.retain(|_, candidate| candidate.look.rss_bytes > 0);
    found
}

/// Processes worth a look, the most urgent first.
pub fn order(candidates: HashMap<ProcessId, Candidate>) -> Vec<Candidate> {
    let urgency = |candidate: &Candidate| (candidate.staleness() * candidate.weight() * 1e3) as u64;
    let mut list: Vec<(u8, Reverse<u64>, Candidate)> = candidates
        .into_values()
        .map(|candidate| (candidate.rank, Reverse(urgency(&candidate)), candidate))
        .filter(|(_, urgency, _)| urgency.0 > 0)
        .collect();
    list.sort_by_key(|(rank, urgency, candidate)| (*rank, *urgency, candidate.process));
    list.into_iter().map(|(.., candidate)| candidate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn look(at_s: u64, rss_mib: u64, faults: u64, run_ms: u64) -> Look {
        Look { at_ns: at_s * 1_000_000_000, rss_bytes: rss_mib * MIB, faults, run_ns: run_ms * 1_000_000 }
    }

    fn candidate(pid: u32, rank: u8, before: Option<Look>, now: Look) -> Candidate {
        Candidate { process: (pid, 1), tid: pid, uid: 0, look: now, before, rank }
    }

    fn pids(candidates: &[Candidate]) -> Vec<u32> {
        let list = candidates.iter().map(|candidate| (candidate.process, *candidate)).collect();
        order(list).iter().map(|candidate| candidate.process.0).collect()
    }

    #[test]
    fn what_was_never_seen_comes_first_and_large_before_small() {
        let now = [
            candidate(1, 2, Some(look(0, 800, 0, 0)), look(31, 800, 0, 0)),
            candidate(2, 2, None, look(31, 10, 0, 0)),
            candidate(3, 2, None, look(31, 700, 0, 0)),
        ];
        assert_eq!(pids(&now), [3, 1, 2]);
    }

    #[test]
    fn what_has_not_changed_waits_until_it_is_old() {
        let before = Some(look(100, 512, 10, 50));
        assert_eq!(pids(&[candidate(1, 2, before, look(110, 512, 20, 9000))]), [0; 0]);
        assert_eq!(pids(&[candidate(1, 2, before, look(131, 512, 20, 9000))]), [1]);
        let grown = candidate(1, 2, before, look(101, 600, 10, 50));
        let faulted = candidate(2, 2, before, look(101, 512, 10_000, 50));
        assert_eq!(pids(&[grown, faulted]).len(), 2);
    }

    #[test]
    fn the_selected_process_goes_before_everything() {
        let now = [
            candidate(1, 2, None, look(50, 90_000, 0, 90_000)),
            candidate(2, 1, None, look(50, 10, 0, 0)),
            candidate(3, 0, Some(look(49, 10, 0, 0)), look(50, 10, 0, 0)),
        ];
        assert_eq!(pids(&now), [3, 2, 1]);
    }
}
