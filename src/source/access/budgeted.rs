//! Sampling of chosen processes within a budget of CPU time: by default, where no flag asks for all of them.

use std::time::Duration;

use crate::access::chosen::Chosen;
use crate::access::governor::{Governor, Pace};
use crate::model::process::ProcessId;

/// CPU time for following samples, of each second: less than a third of the whole budget.
const FOLLOW_PART: u32 = 333;
/// The same for one interval, at most.
const FOLLOW_MAX: Duration = Duration::from_millis(10);

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
}

/// Changes with an interval.
pub(super) struct Change {
    /// Another pace from now on; `Some(None)` is a rest.
    pub(super) pace: Option<Option<Pace>>,
    /// The processes to sample.
    pub(super) processes: Vec<ProcessId>,
}

impl Budgeted {
    /// Begins at `now_ns` (CLOCK_MONOTONIC) with `hz` times a second on each CPU, after `spent_ns` of CPU time.
    pub(super) fn new(wanted: Vec<ProcessId>, hz: u32, now_ns: u64, spent_ns: u64) -> Budgeted {
        let (governor, chosen) = (Governor::new(hz), Chosen::default());
        Budgeted { governor, chosen, wanted, spent_ns, since_ns: now_ns, length_ns: 0 }
    }

    /// Ends an interval, up to which `spent_ns` of CPU time were used since the start.
    pub(super) fn turn(&mut self, now_ns: u64, spent_ns: u64) -> Change {
        self.length_ns = now_ns.saturating_sub(self.since_ns);
        let cost_ns = spent_ns.saturating_sub(self.spent_ns);
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
