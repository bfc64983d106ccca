//! Share of memory use that is of another node, if every page is used as often as any other. Pure.
//!
//! A task that runs on node n with a share m of its memory there finds 1 − m of it elsewhere. That is linear in the time
//! it ran, so threads add up to their process, processes to their container, and everything to the node it ran on: rows
//! are sums of [`Remote`], and their percentage is a quotient of two sums.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use crate::model::sample::{PagesFound, Reading, Sample};
use crate::model::units::Nid;

/// Where the memory of a process is, by node id.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// Resident memory on each node, hugetlbfs included, in bytes: estimated from the sample.
    pub bytes_by_node: Vec<f64>,
    /// All shares are this near the truth in 95 of 100 cases, in percentage points.
    pub error_points: f64,
}

impl Memory {
    /// Pages by node, as a share of the space they were found in.
    pub fn of(found: &PagesFound) -> Memory {
        let per_page = found.space_bytes as f64 / f64::from(found.asked.max(1));
        Memory {
            bytes_by_node: found.by_node.iter().map(|pages| f64::from(*pages) * per_page).collect(),
            error_points: f64::from(found.error_hundredths) / 100.0,
        }
    }

    /// All of it, in bytes.
    pub fn bytes(&self) -> f64 {
        self.bytes_by_node.iter().sum()
    }

    /// The share on a node, 0 to 1; without any memory 0.
    fn share(&self, node: usize) -> f64 {
        let bytes = self.bytes_by_node.get(node).copied().unwrap_or(0.0);
        if bytes > 0.0 { bytes / self.bytes() } else { 0.0 }
    }
}

/// Time on a CPU, and what of it counts as spent with memory of other nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Remote {
    /// Time of tasks whose memory is known, ns.
    pub run_ns: f64,
    pub remote_ns: f64,
    /// The least that `remote_ns` could be, see [`Remote::of`].
    pub best_ns: f64,
    /// Variance of `remote_ns` times Z².
    error_squares: f64,
}

impl Remote {
    /// Of a task that ran so long on each node, with its memory where it is.
    ///
    /// The least that is possible: all of its time on the node with most of its memory, or all of its memory on the
    /// node where it ran most, whichever leaves less.
    ///
    /// A share of the memory that is wrong by e matters only as far as the task ran longer on that node than on
    /// others: with equal times on all nodes the result is exact, wherever the memory is.
    pub fn of(run_ns: &[u64], memory: &Memory) -> Remote {
        let run: f64 = run_ns.iter().map(|ns| *ns as f64).sum();
        if run <= 0.0 || memory.bytes() <= 0.0 {
            return Remote::default();
        }
        let local: f64 = run_ns.iter().enumerate().map(|(node, ns)| *ns as f64 * memory.share(node)).sum();
        let most_memory = (0..memory.bytes_by_node.len()).map(|node| memory.share(node)).fold(0.0, f64::max);
        let most_run = run_ns.iter().copied().max().unwrap_or(0) as f64;
        // Nodes where it never ran may be missing at the end of the list.
        let nodes = run_ns.len().max(memory.bytes_by_node.len());
        let least = if run_ns.len() < nodes { 0 } else { run_ns.iter().copied().min().unwrap_or(0) };
        let uneven: f64 = run_ns.iter().map(|ns| (ns - least) as f64).sum();
        let remote = (run - local).max(0.0);
        Remote {
            run_ns: run,
            remote_ns: remote,
            best_ns: (run - most_run.max(run * most_memory)).clamp(0.0, remote),
            error_squares: (uneven * memory.error_points / 100.0).powi(2),
        }
    }

    /// The same of what it did on one node alone.
    pub fn on(node: usize, run_ns: &[u64], memory: &Memory) -> Remote {
        let mut alone = vec![0; run_ns.len().max(node + 1)];
        alone[node] = run_ns.get(node).copied().unwrap_or(0);
        Remote::of(&alone, memory)
    }

    /// Share that is remote, in percent; `None` when nothing with known memory ran.
    pub fn pct(&self) -> Option<f64> {
        (self.run_ns > 0.0).then(|| self.remote_ns * 100.0 / self.run_ns)
    }

    /// The least that is possible, in percent.
    pub fn best_pct(&self) -> Option<f64> {
        (self.run_ns > 0.0).then(|| self.best_ns * 100.0 / self.run_ns)
    }

    /// Half of the 95 % interval of [`Remote::pct`], in percentage points.
    pub fn error_points(&self) -> Option<f64> {
        (self.run_ns > 0.0).then(|| self.error_squares.sqrt() * 100.0 / self.run_ns)
    }
}

impl AddAssign<&Remote> for Remote {
    /// Errors of different processes are independent.
    fn add_assign(&mut self, other: &Remote) {
        self.run_ns += other.run_ns;
        self.remote_ns += other.remote_ns;
        self.best_ns += other.best_ns;
        self.error_squares += other.error_squares;
    }
}

/// Time on a CPU, by the node that ran and the node whose memory it used meanwhile.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Accesses {
    ns: BTreeMap<(u32, u32), f64>,
    run_ns: f64,
}

impl Accesses {
    /// Adds what a task did, with its memory where it is.
    pub fn add(&mut self, run_ns: &[u64], memory: &Memory) {
        if memory.bytes() <= 0.0 {
            return;
        }
        for (from, ns) in run_ns.iter().enumerate().filter(|(_, ns)| **ns > 0) {
            self.run_ns += *ns as f64;
            for to in 0..memory.bytes_by_node.len() {
                *self.ns.entry((from as u32, to as u32)).or_default() += *ns as f64 * memory.share(to);
            }
        }
    }

    /// Share of all accesses that go from the CPUs of one node to the memory of another, in percent; `None`
    /// when nothing with known memory ran.
    pub fn pct(&self, from: Nid, to: Nid) -> Option<f64> {
        let ns = self.ns.get(&(from.0, to.0)).copied().unwrap_or(0.0);
        (self.run_ns > 0.0).then(|| ns * 100.0 / self.run_ns)
    }
}

/// The memory of a process.
pub(super) fn memory_of(sample: &Sample, (pid, start_ns): (u32, u64)) -> Option<(u64, Reading<Memory>)> {
    let raw = sample.placement.get(&pid.into()).filter(|raw| raw.start_ns == start_ns)?;
    Some((raw.read_ns, raw.found.as_ref().map(Memory::of).map_err(Clone::clone)))
}

/// Shares of a whole by node in percent; nodes with none are left out.
pub fn shares(bytes_by_node: &[f64]) -> Vec<(Nid, f64)> {
    let sum: f64 = bytes_by_node.iter().sum();
    let share = |(node, bytes): (usize, &f64)| (Nid(node as u32), bytes * 100.0 / sum);
    bytes_by_node.iter().enumerate().filter(|(_, bytes)| **bytes > 0.0).map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn memory(bytes: &[f64]) -> Memory {
        Memory { bytes_by_node: bytes.to_vec(), error_points: 3.0 }
    }

    #[test]
    fn half_and_half_is_half_remote() {
        let remote = Remote::of(&[500, 500], &memory(&[1.0, 1.0]));
        assert_eq!((remote.pct(), remote.best_pct()), (Some(50.0), Some(50.0)));
        // Wherever the memory is, half of it is elsewhere.
        assert_eq!(remote.error_points(), Some(0.0));
    }

    #[test]
    fn bound_to_one_node_it_is_what_lies_on_the_others() {
        let remote = Remote::of(&[0, 0, 800], &memory(&[3.0, 0.0, 7.0]));
        assert_eq!(remote.pct().map(f64::round), Some(30.0));
        assert_eq!(remote.best_pct(), Some(0.0));
        assert!((remote.error_points().unwrap() - 3.0).abs() < 1e-9);
    }

    #[test]
    fn two_local_processes_are_local_together() {
        let mut sum = Remote::of(&[900, 0], &memory(&[5.0, 0.0]));
        sum += &Remote::of(&[0, 900], &memory(&[0.0, 5.0]));
        assert_eq!(sum.pct(), Some(0.0));
    }

    #[test]
    fn accesses_from_node_to_node_are_all_there_are() {
        let mut accesses = Accesses::default();
        accesses.add(&[300, 0], &memory(&[1.0, 2.0]));
        accesses.add(&[0, 100], &memory(&[0.0, 9.0]));
        let pct = |from, to| accesses.pct(Nid(from), Nid(to));
        assert_eq!((pct(0, 0), pct(0, 1)), (Some(25.0), Some(50.0)));
        assert_eq!((pct(1, 0), pct(1, 1)), (Some(0.0), Some(25.0)));
    }

    #[test]
    fn what_did_not_run_has_no_share() {
        assert_eq!(Remote::of(&[0, 0], &memory(&[1.0])).pct(), None);
        assert_eq!(Remote::of(&[5, 0], &memory(&[])).pct(), None);
    }

    proptest! {
        #[test]
        fn no_other_placement_of_time_or_memory_is_better_than_the_best(
            run in prop::collection::vec(0u64..1_000_000_000, 1..9),
            bytes in prop::collection::vec(0.0f64..1e12, 1..9),
            node in 0usize..9,
        ) {
            let here = Remote::of(&run, &memory(&bytes));
            let Some((pct, best)) = here.pct().zip(here.best_pct()) else { return Ok(()) };
            prop_assert!((0.0..=100.0 + 1e-9).contains(&pct) && best <= pct + 1e-9, "{best} of {pct}");
            // All of its time on one node, or all of its memory there.
            let mut time = vec![0; 9];
            time[node] = run.iter().sum();
            let mut place = vec![0.0; 9];
            place[node] = 1.0;
            for moved in [Remote::of(&time, &memory(&bytes)), Remote::of(&run, &memory(&place))] {
                prop_assert!(moved.pct().unwrap() >= best - 1e-6, "{} is below {best}", moved.pct().unwrap());
            }
        }

        #[test]
        fn nodes_add_up_to_the_whole(
            run in prop::collection::vec(0u64..1_000_000_000, 1..9),
            bytes in prop::collection::vec(0.0f64..1e12, 1..9),
        ) {
            let whole = Remote::of(&run, &memory(&bytes));
            let mut sum = Remote::default();
            (0..run.len()).for_each(|node| sum += &Remote::on(node, &run, &memory(&bytes)));
            prop_assert!((whole.remote_ns - sum.remote_ns).abs() <= 1e-6 * whole.run_ns.max(1.0));
            prop_assert!((whole.run_ns - sum.run_ns).abs() <= 1e-6 * whole.run_ns.max(1.0));
        }
    }
}
