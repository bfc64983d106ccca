//! CPUs in the interval: busy time, interrupts, counters.
//!
//! A hypervisor may let an event be opened that its virtual PMU never counts. Cycles, instructions and issue
//! slots are tested before they are used (`pmu/open.rs`). For the others no short loop is sure to make them
//! count on every CPU. But no machine runs for long without a stall, a missed cache line, branch or page
//! walk. While such a counter has been 0 on all CPUs since it was opened, its 0 is not a measurement.

use std::collections::BTreeSet;

use crate::model::event::Role;
use crate::model::sample::{CpuRaw, Hints, HostFacts, Sample, Slot};
use crate::model::sums::{KnownSum, Sum, sums};
use crate::model::wire::SLOTS;

/// One CPU in the interval.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuDelta {
    pub id: u32,
    pub node: u32,
    /// At the end of the interval.
    pub online: bool,
    /// On-CPU time of everything but idle.
    pub busy_ns: u64,
    /// Time in hard and soft interrupts; `None` where it is not known at both ends.
    pub irq_ns: Option<u64>,
    /// On-CPU time of tasks in the scope, if one is set.
    pub scope_ns: u64,
    /// Time that a hypervisor ran something else; `None` where it is not known at both ends.
    pub steal_ns: Option<u64>,
    pub switches: u64,
    pub hints: Option<Hints>,
    pub slots: [Slot; SLOTS],
}

/// Work of CPUs in an interval, which adds up over CPUs and intervals.
#[derive(Clone, Copy, Debug, Default)]
pub struct OnCpus {
    /// On-CPU time of everything but idle, ns.
    pub busy_ns: u64,
    /// Context switches.
    pub switches: u64,
    /// Time of online CPUs in hard and soft interrupts, ns.
    pub irq_ns: KnownSum,
    /// Time of online CPUs that a hypervisor gave to others, ns.
    pub steal_ns: KnownSum,
    /// Hinting faults; `None` where they are not counted by CPU.
    pub hints: Option<Hints>,
    /// Counters.
    pub slots: [Slot; SLOTS],
}

sums!(OnCpus { busy_ns, switches, irq_ns, steal_ns, hints, slots });

impl OnCpus {
    /// The sum over some CPUs.
    pub(super) fn of<'a>(cpus: impl IntoIterator<Item = &'a CpuDelta>) -> OnCpus {
        let mut sum = OnCpus::default();
        for cpu in cpus {
            let known = |ns: Option<u64>| if cpu.online { ns.into() } else { KnownSum::default() };
            let CpuDelta { busy_ns, switches, hints, slots, .. } = *cpu;
            let (irq_ns, steal_ns) = (known(cpu.irq_ns), known(cpu.steal_ns));
            sum.add(&OnCpus { busy_ns, switches, irq_ns, steal_ns, hints, slots });
        }
        sum
    }
}

/// The CPUs that both samples have, in the order of the later one.
pub(super) fn deltas(previous: Option<&Sample>, current: &Sample) -> Vec<CpuDelta> {
    let Some(previous) = previous else { return Vec::new() };
    let scope_ns = |sample: &Sample, cpu: u32| sample.inputs.scope_ns.get(&cpu).map_or(0, |ns| **ns);
    let delta = |(at, cpu): (usize, &CpuRaw)| {
        let before = same(&previous.cpus, at, cpu.id)?;
        let mut slots = cpu.slots;
        for (slot, old) in slots.iter_mut().zip(&before.slots) {
            slot.count = slot.count.saturating_sub(old.count);
            // The event of a CPU that was offline in between starts again from zero.
            let reopened = slot.enabled_ns < old.enabled_ns;
            slot.enabled_ns -= if reopened { 0 } else { old.enabled_ns };
            slot.running_ns = slot.running_ns.saturating_sub(if reopened { 0 } else { old.running_ns });
        }
        Some(CpuDelta {
            id: cpu.id,
            node: cpu.node,
            online: cpu.online,
            busy_ns: cpu.busy_ns.saturating_sub(before.busy_ns),
            irq_ns: cpu.irq_ns.zip(before.irq_ns).map(|(now, before)| now.saturating_sub(before)),
            scope_ns: scope_ns(current, cpu.id).saturating_sub(scope_ns(previous, cpu.id)),
            steal_ns: cpu.steal_ns.zip(before.steal_ns).map(|(now, before)| now.saturating_sub(before)),
            switches: cpu.switches.saturating_sub(before.switches),
            hints: cpu.hints.zip(before.hints).map(|(hints, before)| hints.since(before)),
            slots,
        })
    };
    current.cpus.iter().enumerate().filter_map(delta).collect()
}

/// The CPU with this id, which is likely to be at `hint`: CPUs come and go seldom.
fn same(cpus: &[CpuRaw], hint: usize, id: u32) -> Option<&CpuRaw> {
    let likely = cpus.get(hint).filter(|cpu| cpu.id == id);
    likely.or_else(|| cpus.iter().find(|cpu| cpu.id == id))
}

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
