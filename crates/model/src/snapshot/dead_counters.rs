//! Counters that are open and have not counted anything yet.
//!
//! A hypervisor may let an event be opened that its virtual PMU never counts. Cycles, instructions and issue
//! slots are tested before they are used (`pmu/open.rs`). For the others no short loop is sure to make them
//! count on every CPU. But no machine runs for long without a stall, a missed cache line, branch or page
//! walk. While such a counter has been 0 on all CPUs since it was opened, its 0 is not a measurement.

use std::collections::BTreeSet;

use crate::model::event::Role;
use crate::model::sample::{HostFacts, Sample};

/// Roles that something counts on every machine that does anything.
const NEVER_AT_REST: [Role; 6] =
    [Role::StallFrontend, Role::StallBackend, Role::Llc, Role::Dtlb, Role::Itlb, Role::Branch];

/// The roles in use that have counted nothing on any CPU since their events were opened.
pub(super) fn roles(host: &HostFacts, sample: &Sample) -> BTreeSet<Role> {
    let counts = |at: usize| {
        sample.cpus.iter().any(|cpu| cpu.slots[at].count > 0)
            || sample.tasks.iter().any(|task| task.counts.slots[at].count > 0)
    };
    // A kind of cores may be at rest while another runs.
    let silent = |role: Role| {
        let mut slots = host.slots(role).peekable();
        slots.peek().is_some() && !slots.any(counts)
    };
    let mut roles: BTreeSet<Role> = NEVER_AT_REST.into_iter().filter(|role| silent(*role)).collect();
    // All memory accesses may be local, or all remote, but both cannot be zero.
    let near = if host.slots(Role::Lma).next().is_some() { Role::Lma } else { Role::Llc };
    if silent(near) && silent(Role::Rma) {
        roles.extend([near, Role::Rma]);
    }
    roles
}
