//! The probes of NUMA balancing: those that work here, and why the others do not.

use std::collections::BTreeMap;
use std::os::fd::{BorrowedFd, OwnedFd};

use super::numa::NumaProbe;
use crate::metric::balancing::CHOICES;
use crate::sample::Missing;

/// All of them, as far as they work here. Dropping it detaches them.
pub struct BalancingProbes {
    sent: Option<NumaProbe>,
    missing: BTreeMap<&'static str, Missing>,
}

impl BalancingProbes {
    /// Starts the probes of those metrics that `wanted` says yes to, to count into `records`. One that does not
    /// start is a reason in [`BalancingProbes::missing`].
    pub fn start(records: &OwnedFd, wanted: impl Fn(&str) -> bool) -> BalancingProbes {
        let mut missing = BTreeMap::new();
        let sent = CHOICES.iter().any(|id| wanted(id)).then(|| NumaProbe::start(records)).transpose();
        let sent = sent.unwrap_or_else(|error| {
            let why = Missing::Unsupported(format!("{error:#}"));
            missing.extend(CHOICES.map(|id| (id, why.clone())));
            None
        });
        BalancingProbes { sent, missing }
    }

    /// The programs that are attached, by name.
    pub fn programs(&self) -> impl Iterator<Item = (&'static str, BorrowedFd<'_>)> {
        self.sent.iter().flat_map(NumaProbe::programs)
    }

    /// Metric id → why it cannot be measured.
    pub fn missing(&self) -> &BTreeMap<&'static str, Missing> {
        &self.missing
    }
}
