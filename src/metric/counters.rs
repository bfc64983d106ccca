//! From the counter slots of a row to efficiency: counts by role, and quotients of them.
//!
//! The same for every kind of row: a thread, a process, a node, the host. A counter that was not on the PMU, or not
//! on every CPU, gives a reason and never a number that is too low.

use super::no;
use crate::model::event::{Role, ShareOf};
use crate::model::sample::{Counts, Missing, Reading, Slot};
use crate::model::units::NodeId;
use crate::model::wire::NodeCounts;
use crate::snapshot::Snapshot;

/// A counter with multiplexing scaled out (perf_event_open(2): count × enabled / running).
pub fn scaled(slot: &Slot) -> f64 {
    if slot.enabled_ns > slot.running_ns && slot.running_ns > 0 {
        slot.count as f64 * slot.enabled_ns as f64 / slot.running_ns as f64
    } else {
        slot.count as f64
    }
}

/// The count of one slot, scaled.
///
/// # Errors
/// Its event is not open on every CPU, has not counted anything on any, or was not on the PMU while the row ran.
pub fn slot(slots: &[Slot], snapshot: &Snapshot, at: usize) -> Reading<f64> {
    let event = &snapshot.host.events[at];
    if let Some(why) = snapshot.host_missing(&event.name) {
        return Err(why.clone());
    }
    let slot = slots.get(at).ok_or_else(|| no("no such counter"))?;
    if slot.enabled_ns > 0 && slot.running_ns == 0 {
        return Err(Missing::Lost(format!(
            "{} was never on the PMU: other events had its counters",
            event.name
        )));
    }
    if snapshot.silent.contains(&event.role) {
        return Err(Missing::Unsupported(format!("{} opens, but has not counted anything yet", event.name)));
    }
    Ok(scaled(slot))
}

/// The count of a role: the sum over the kinds of cores, each of which has a slot of its own.
///
/// # Errors
/// As [`slot`]; or nobody asked for such an event.
pub fn count(slots: &[Slot], snapshot: &Snapshot, role: Role) -> Reading<f64> {
    let mut of_role = snapshot.host.slots(role).peekable();
    if of_role.peek().is_none() {
        return Err(no("its counter was not asked for (--events)"));
    }
    of_role.map(|at| slot(slots, snapshot, at)).sum()
}

/// Local memory accesses: counted, or on CPUs that have no event for them what missed the last-level cache and was
/// not remote. The two are different kinds of accesses there, so that the difference may go below zero: it stays at 0.
///
/// # Errors
/// As [`count`].
pub fn lma(slots: &[Slot], snapshot: &Snapshot) -> Reading<f64> {
    let derived = snapshot.host.tables.iter().any(|table| table.lma_is_llc_less_rma);
    if derived && snapshot.host.slots(Role::Lma).next().is_none() {
        let rma = count(slots, snapshot, Role::Rma)?;
        return Ok((count(slots, snapshot, Role::Llc)? - rma).max(0.0));
    }
    count(slots, snapshot, Role::Lma)
}

/// Remote memory accesses.
///
/// # Errors
/// As [`count`].
pub fn rma(slots: &[Slot], snapshot: &Snapshot) -> Reading<f64> {
    count(slots, snapshot, Role::Rma)
}

/// RMA / LMA; infinite when all accesses were remote.
///
/// # Errors
/// As [`count`]; or there was no access at all.
pub fn rma_lma(slots: &[Slot], snapshot: &Snapshot) -> Reading<f64> {
    let (lma, rma) = (lma(slots, snapshot)?, rma(slots, snapshot)?);
    if lma > 0.0 {
        Ok(rma / lma)
    } else if rma > 0.0 {
        Ok(f64::INFINITY)
    } else {
        Err(no("no memory access was counted in this interval"))
    }
}

/// `part` per thousand instructions.
///
/// # Errors
/// As [`count`]; or no instruction was counted.
pub fn per_kilo_instructions(part: f64, slots: &[Slot], snapshot: &Snapshot) -> Reading<f64> {
    let instructions = count(slots, snapshot, Role::Instructions)?;
    if instructions > 0.0 {
        Ok(part * 1e3 / instructions)
    } else {
        Err(no("no instruction was counted in this interval"))
    }
}

/// Misses of a role per thousand instructions.
///
/// # Errors
/// As [`count`]; or no instruction was counted.
pub fn mpki(slots: &[Slot], snapshot: &Snapshot, role: Role) -> Reading<f64> {
    per_kilo_instructions(count(slots, snapshot, role)?, slots, snapshot)
}

/// Instructions per cycle.
///
/// # Errors
/// As [`count`]; or no cycle was counted.
pub fn ipc(slots: &[Slot], snapshot: &Snapshot) -> Reading<f64> {
    let cycles = count(slots, snapshot, Role::Cycles)?;
    let instructions = count(slots, snapshot, Role::Instructions)?;
    if cycles > 0.0 { Ok(instructions / cycles) } else { Err(no("no cycle was counted in this interval")) }
}

/// The factor for instructions per cycle as counted, where the two counters took turns.
fn took_turns(slots: &[Slot], snapshot: &Snapshot) -> Reading<f64> {
    let counted = |role| snapshot.host.slots(role).map(|at| slots[at].count).sum::<u64>() as f64;
    let as_counted = counted(Role::Instructions) / counted(Role::Cycles);
    Ok(if as_counted > 0.0 { ipc(slots, snapshot)? / as_counted } else { 1.0 })
}

/// IPC of the stretches in which the SMT siblings did one thing: 0 idle, 1 busy (see `enum nt_siblings`).
///
/// # Errors
/// As [`ipc`]; or there was no such stretch.
pub fn ipc_by_sibling(counts: &Counts, snapshot: &Snapshot, siblings: usize) -> Reading<f64> {
    ipc(&counts.slots, snapshot)?;
    match counts.by_sibling[siblings] {
        NodeCounts { cycles: 0, .. } if siblings == 0 => {
            Err(no("its SMT sibling was not idle for a whole stretch"))
        }
        NodeCounts { cycles: 0, .. } => Err(no("its SMT sibling was not busy for a whole stretch")),
        NodeCounts { cycles, instructions } => {
            Ok(instructions as f64 / cycles as f64 * took_turns(&counts.slots, snapshot)?)
        }
    }
}

/// Instructions per cycle on each node that the row ran on.
///
/// Where counters take turns both are scaled by their share over all nodes.
///
/// # Errors
/// As [`ipc`]; or counts are not kept by node: the machine has one, or the recording has none.
pub fn ipc_by_node(counts: &Counts, snapshot: &Snapshot) -> Reading<Vec<(NodeId, f64)>> {
    let overall = ipc(&counts.slots, snapshot)?;
    let sum = |of: fn(&NodeCounts) -> u64| counts.by_node.iter().map(|node| of(node) as f64).sum::<f64>();
    let (cycles, instructions) = (sum(|node| node.cycles), sum(|node| node.instructions));
    if cycles <= 0.0 || instructions <= 0.0 {
        return Err(no("cycles and instructions are not kept by node here"));
    }
    let scale = overall / (instructions / cycles);
    let ran = |(node, counts): (usize, &NodeCounts)| {
        let ipc = counts.instructions as f64 / counts.cycles as f64;
        (counts.cycles > 0).then_some((NodeId(node as u32), ipc * scale))
    };
    Ok(counts.by_node.iter().enumerate().filter_map(ran).collect())
}

/// Stalls of a role in percent of cycles, or of issue slots where the CPU counts those.
///
/// # Errors
/// As [`count`]; or no cycle or slot was counted.
pub fn stall_pct(slots: &[Slot], snapshot: &Snapshot, role: Role) -> Reading<f64> {
    let mut stalled = count(slots, snapshot, role)?;
    let first = snapshot.host.slots(role).next().map(|at| snapshot.host.events[at].share_of);
    let whole = match first.unwrap_or_default() {
        ShareOf::Cycles => count(slots, snapshot, Role::Cycles)?,
        ShareOf::SlotsPerCycle(width) => count(slots, snapshot, Role::Cycles)? * f64::from(width),
        ShareOf::Slots => count(slots, snapshot, Role::Slots)?,
    };
    if whole <= 0.0 {
        return Err(no("no cycle was counted in this interval"));
    }
    // The counters are read one after the other, so that short runs may be off by some cycles.
    stalled = stalled.min(whole);
    Ok(stalled * 100.0 / whole)
}

/// The least share of time that any counter of the row was on the PMU, in percent.
///
/// # Errors
/// No counter is open.
pub fn running_pct(slots: &[Slot], snapshot: &Snapshot) -> Reading<f64> {
    let used = &slots[..snapshot.host.events.len().min(slots.len())];
    if used.is_empty() {
        return Err(no("no counter is open"));
    }
    let share = |slot: &Slot| {
        if slot.enabled_ns > 0 { slot.running_ns as f64 * 100.0 / slot.enabled_ns as f64 } else { 100.0 }
    };
    Ok(used.iter().map(share).fold(100.0, f64::min))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multiplexed_counts_are_scaled() {
        assert_eq!(scaled(&Slot { count: 30, enabled_ns: 100, running_ns: 60 }), 50.0);
        assert_eq!(scaled(&Slot { count: 30, enabled_ns: 0, running_ns: 0 }), 30.0);
    }
}
