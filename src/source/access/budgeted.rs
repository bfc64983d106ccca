//! Sampling of chosen processes within a budget of CPU time: by default, where no flag asks for all of them.

use std::time::Duration;

use crate::access::governor::{Chosen, Governor, Pace};
use crate::model::process::ProcessId;

/// CPU time for following samples, of each second: less than a third of the whole budget.
const FOLLOW_PART: u32 = 333;
/// The same for one interval, at most.
const FOLLOW_MAX: Duration = Duration::from_millis(10);

/// Time over which the self-check counts: the budget is an average over this time, ns.
const ONCE_OVER_NS: u64 = 10_000_000_000;

/// The processes, and what they may cost.
pub(super) struct Budgeted {
    governor: Governor,
    chosen: Chosen,
    /// The most important one first.
    pub(super) wanted: Vec<ProcessId>,
    /// CPU time of all parts when the interval began, ns, and CLOCK_MONOTONIC then.
    spent_ns: u64,
    since_ns: u64,
    length_ns: u64,
    /// CPU time of the self-check, and its part that was not counted yet, ns.
    once_ns: u64,
    once_left_ns: u64,
}

/// Changes with an interval.
pub(super) struct Change {
    /// Another pace from now on; `Some(None)` is a rest.
    pub(super) pace: Option<Option<Pace>>,
    /// The processes to sample.
    pub(super) processes: Vec<ProcessId>,
}

impl Budgeted {
    /// Begins at `now_ns` (CLOCK_MONOTONIC) with `hz` times a second on each CPU, after `spent_ns` of CPU time and a
    /// self-check that took `once_ns`.
    pub(super) fn new(
        wanted: Vec<ProcessId>,
        hz: u32,
        now_ns: u64,
        (spent_ns, once_ns): (u64, u64),
    ) -> Budgeted {
        let (governor, chosen) = (Governor::new(hz), Chosen::default());
        let once_left_ns = once_ns;
        Budgeted { governor, chosen, wanted, spent_ns, since_ns: now_ns, length_ns: 0, once_ns, once_left_ns }
    }

    /// The part of the self-check that counts in an interval of `length_ns`.
    fn once(&mut self, length_ns: u64) -> u64 {
        let part = u128::from(self.once_ns) * u128::from(length_ns) / u128::from(ONCE_OVER_NS);
        let part = u64::try_from(part).unwrap_or(u64::MAX).min(self.once_left_ns);
        self.once_left_ns -= part;
        part
    }

    /// Ends an interval, up to which `spent_ns` of CPU time were used since the start.
    pub(super) fn turn(&mut self, now_ns: u64, spent_ns: u64) -> Change {
        self.length_ns = now_ns.saturating_sub(self.since_ns);
        let cost_ns = spent_ns.saturating_sub(self.spent_ns) + self.once(self.length_ns);
        (self.since_ns, self.spent_ns) = (now_ns, spent_ns);
        let changed = self.governor.take(self.length_ns, cost_ns);
        let pace = self.governor.pace();
        let processes = self.chosen.take(&self.wanted, pace.map_or(0, |pace| pace.processes), now_ns);
        Change { pace: changed.then_some(pace), processes }
    }

    /// CPU time for following the samples of the last interval.
    pub(super) fn for_following(&self) -> Duration {
        (Duration::from_nanos(self.length_ns) / FOLLOW_PART).min(FOLLOW_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;
    const MS: u64 = 1_000_000;

    #[test]
    fn the_self_check_counts_over_ten_seconds() {
        let mut budgeted = Budgeted::new(Vec::new(), 97, 0, (0, 60 * MS));
        let parts: Vec<u64> =
            [S, 4 * S, S / 2, 60 * S, S].iter().map(|length| budgeted.once(*length)).collect();
        assert_eq!(parts, [6 * MS, 24 * MS, 3 * MS, 27 * MS, 0]);
    }

    #[test]
    fn a_cheap_self_check_changes_no_pace_and_a_dear_one_does() {
        let pace = |once_ns| {
            let mut budgeted = Budgeted::new(vec![(1, 1)], 97, 0, (5 * MS, once_ns));
            // Sampling itself takes a fifth of the budget.
            (1..=10).find_map(|at| budgeted.turn(at * S, 5 * MS + at * 2 * MS).pace)
        };
        assert_eq!(pace(60 * MS), None);
        let slower = pace(600 * MS).flatten();
        assert!(slower.is_some_and(|pace| pace.hz < 97), "{slower:?}");
    }
}
