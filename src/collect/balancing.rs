//! The probes of NUMA balancing: those that work here, and why the others do not.

use std::collections::BTreeMap;
use std::os::fd::{BorrowedFd, OwnedFd};

use super::hinting::{HintProbe, Ladder, Rung};
use super::numa::NumaProbe;
use crate::metric::balancing::{CHOICES, HINTS};
use crate::sample::Missing;

/// All of them, as far as they work here. Dropping it detaches them.
pub struct BalancingProbes {
    sent: Option<NumaProbe>,
    hints: Option<Ladder>,
    missing: BTreeMap<&'static str, Missing>,
}

impl BalancingProbes {
    /// Starts the probes of those metrics that `wanted` says yes to, to count into `records`. One that does not
    /// start is a reason in [`BalancingProbes::missing`].
    pub fn start(records: &OwnedFd, wanted: impl Fn(&str) -> bool) -> BalancingProbes {
        let mut missing = BTreeMap::new();
        let any = |ids: &[&str]| ids.iter().any(|id| wanted(id));
        let sent = any(&CHOICES).then(|| NumaProbe::start(records)).transpose();
        let sent = sent.unwrap_or_else(|error| {
            let why = Missing::Unsupported(format!("{error:#}"));
            missing.extend(CHOICES.map(|id| (id, why.clone())));
            None
        });
        let hints = any(&HINTS).then(|| Ladder::climb(records));
        BalancingProbes { sent, hints, missing }
    }

    /// Hinting faults are wanted, and no function can be hooked: the task structure has to do.
    pub fn hints_from_task(&self) -> bool {
        self.hints.as_ref().is_some_and(|ladder| ladder.rung() == Rung::TaskStructure)
    }

    /// The programs that are attached, by name.
    pub fn programs(&self) -> impl Iterator<Item = (&'static str, BorrowedFd<'_>)> {
        let hints = self.hints.iter().filter_map(|ladder| ladder.probe.as_ref()).map(HintProbe::program);
        self.sent.iter().flat_map(NumaProbe::programs).chain(hints)
    }

    /// Metric id → why it cannot be measured.
    pub fn missing(&self) -> &BTreeMap<&'static str, Missing> {
        &self.missing
    }
}
