//! The probes of NUMA balancing: those that work here, and why the others do not.

use std::collections::BTreeMap;
use std::os::fd::{BorrowedFd, OwnedFd};

use anyhow::Result;

use super::balancing_time::TimeProbe;
use super::hinting::HintProbe;
use super::numa::NumaProbe;
use super::reasons::Reasons;
use super::rung::Ladder;
use crate::model::facility::Facility;
use crate::model::sample::{Hints, Missing};

/// All of them, as far as they work here. Dropping it detaches them.
pub struct BalancingProbes {
    sent: Option<NumaProbe>,
    hints: Option<Ladder<HintProbe>>,
    time: Option<TimeProbe>,
    reasons: Reasons,
}

impl BalancingProbes {
    /// Starts the probes of those facilities that `wanted` says yes to, to count into `records`. One that does not
    /// start is a reason in [`BalancingProbes::missing`].
    pub fn start(records: &OwnedFd, wanted: impl Fn(Facility) -> bool) -> BalancingProbes {
        let mut reasons = Reasons::default();
        let sent = wanted(Facility::SentTasks).then(|| NumaProbe::start(records));
        let sent = sent.and_then(|probe| reasons.started(probe, Facility::SentTasks));
        let hints =
            wanted(Facility::HintFaults).then(|| Ladder::climb(|rung| HintProbe::start(records, rung)));
        let time = wanted(Facility::BalancingTime)
            .then(|| Ladder::climb(|rung| TimeProbe::start(records, rung)).into_probe());
        let time = time.and_then(|probe| reasons.started(probe, Facility::BalancingTime));
        BalancingProbes { sent, hints, time: time.map(|(_, probe)| probe), reasons }
    }

    /// Hinting faults are wanted, and no function can be hooked: the task structure has to do.
    pub fn hints_from_task(&self) -> bool {
        self.hints.as_ref().is_some_and(|ladder| ladder.probe.is_none())
    }

    fn hint_probe(&self) -> Option<&HintProbe> {
        self.hints.as_ref()?.probe.as_ref().map(|(_, probe)| probe)
    }

    /// Hinting faults on each possible CPU, by id; none where no function can be hooked.
    ///
    /// # Errors
    /// The kernel refuses to read the map; the errno is in the chain.
    pub fn hints_by_cpu(&self) -> Result<Vec<Hints>> {
        self.hint_probe().map_or(Ok(Vec::new()), HintProbe::by_cpu)
    }

    /// The programs that are attached, by name.
    pub fn programs(&self) -> impl Iterator<Item = (&'static str, BorrowedFd<'_>)> {
        let hints = self.hint_probe().map(HintProbe::program);
        let sent = self.sent.iter().flat_map(NumaProbe::programs);
        sent.chain(hints).chain(self.time.iter().flat_map(TimeProbe::programs))
    }

    /// Facilities that did not start, and why.
    pub fn missing(&self) -> &BTreeMap<Facility, Missing> {
        self.reasons.by_facility()
    }
}
