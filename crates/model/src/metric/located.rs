//! CPU time with known memory placement, and the remote part: amounts that add up over rows, nodes and
//! intervals.

use std::ops::AddAssign;

use super::placement::REMOTE_PCT;
use crate::snapshot::{Remote, Snapshot, Task};

/// Time on CPUs of tasks whose use of memory is known, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Located {
    /// The whole time.
    pub run_ns: f64,
    /// The part by the share of use that is on other nodes: of accesses on some machines and of time on others.
    pub remote_ns: f64,
}

impl AddAssign for Located {
    fn add_assign(&mut self, other: Located) {
        self.run_ns += other.run_ns;
        self.remote_ns += other.remote_ns;
    }
}

impl Located {
    /// The time of a task in the interval. `None` where it did not run, or its use of memory is not known.
    pub fn of(task: &Task, snapshot: &Snapshot) -> Option<Located> {
        let sums = REMOTE_PCT.sums(task, snapshot)?.ok()?;
        let run_ns = task.run_ns() as f64;
        let share = (sums.den > 0.0).then(|| (sums.num / sums.den).clamp(0.0, 1.0))?;
        Some(Located { run_ns, remote_ns: run_ns * share })
    }

    /// The same by the node that it ran on. Its remote time is split over nodes by its placement or, if that
    /// is unknown, by its run time. The sum over all nodes is that of the task.
    pub fn by_node(self, task: &Task) -> Vec<(usize, Located)> {
        let ran = &task.delta.run_ns;
        let remote_ns = |at: usize| match task.memory() {
            Some((_, Ok(memory))) => Remote::on(at, ran, memory).remote_ns,
            _ => 0.0,
        };
        let placed: Vec<f64> = (0..ran.len()).map(remote_ns).collect();
        let is_placed = placed.iter().any(|ns| *ns > 0.0);
        let weights = if is_placed { placed } else { ran.iter().map(|ns| *ns as f64).collect() };
        let all: f64 = weights.iter().sum();
        let of = |(at, ns): (usize, &u64)| {
            let part = if all > 0.0 { weights[at] / all } else { 0.0 };
            (at, Located { run_ns: *ns as f64, remote_ns: self.remote_ns * part })
        };
        ran.iter().enumerate().filter(|(_, ns)| **ns > 0).map(of).collect()
    }
}
