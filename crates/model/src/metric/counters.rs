//! From the counter slots of a row to efficiency: counts by role, and quotients of them.
//!
//! The same for every kind of row: a thread, a process, a node, the host. A counter that was not on the PMU, or not
//! on every CPU, gives a reason and never a number that is too low.

use super::no;
use super::over::{ByNode, Quotient};
use crate::model::event::{Mode, Role, ShareOf};
use crate::model::sample::{Counts, Missing, Reading, Slot};
use crate::model::units::NodeId;
use crate::model::wire::NodeCounts;
use crate::snapshot::Snapshot;

/// A counter with multiplexing scaled out (perf_event_open(2): count × enabled / running). A task on a CPU
/// that is not interrupted may have more time on the PMU than time in which the counter was wanted. Its count
/// then covers a longer time than the interval.
pub fn scaled(slot: &Slot) -> f64 {
    if slot.enabled_ns != slot.running_ns && slot.enabled_ns > 0 && slot.running_ns > 0 {
        slot.count as f64 * slot.enabled_ns as f64 / slot.running_ns as f64
    } else {
        slot.count as f64
    }
}

/// The reason for a missing count. Only the few readings that are kept turn it into words.
enum Lack {
    /// The event of a slot does not count.
    Slot(usize),
    /// No slot has such an event.
    NotAsked,
}

impl Lack {
    fn why(self, slots: &[Slot], snapshot: &Snapshot) -> Missing {
        let Lack::Slot(at) = self else { return no("its counter was not requested (--events)") };
        let event = &snapshot.host.events[at];
        if let Some(why) = snapshot.host_missing(&event.name) {
            return why.clone();
        }
        let Some(slot) = slots.get(at) else { return no("the counter does not exist here") };
        if was_lost(slot, snapshot) {
            if !snapshot.host.event_turns.is_empty() {
                return Missing::NotCollected(format!(
                    "{NOT_ITS_TURN} {} in this interval (--events-rotate)",
                    event.name
                ));
            }
            return Missing::Lost(format!(
                "{} was not counted: its counter is in use, or the CPU is isolated",
                event.name
            ));
        }
        Missing::Unsupported(format!("{} was opened, but has not counted anything yet", event.name))
    }
}

const NOT_ITS_TURN: &str = "it was not the turn of";

/// Whether a reading is missing because an event waits for its turn: the one of its last turn is the newest.
pub fn waits(why: &Missing) -> bool {
    matches!(why, Missing::NotCollected(why) if why.starts_with(NOT_ITS_TURN))
}

/// Counts of events with turns are left out below this part of the time in which they are wanted, as a
/// divisor. Turns change while a sample is taken, and its rows are not of one moment.
const LEAST_TURN: u64 = 10;

/// Whether an event was wanted, and not on the PMU at any time; of those with turns, hardly.
fn was_lost(slot: &Slot, snapshot: &Snapshot) -> bool {
    let least_ns = if snapshot.host.event_turns.is_empty() { 0 } else { slot.enabled_ns / LEAST_TURN };
    slot.enabled_ns > 0 && slot.running_ns <= least_ns
}

/// Whether the event of a slot was open in the interval, on CPUs on which something ran.
pub fn has_turn(snapshot: &Snapshot, at: usize) -> bool {
    snapshot.on_cpus.slots.get(at).is_some_and(|slot| slot.running_ns > 0 && !was_lost(slot, snapshot))
}

fn of_slot(slots: &[Slot], snapshot: &Snapshot, at: usize) -> Result<f64, Lack> {
    let open = snapshot.open_slots.get(at).is_some_and(|open| *open);
    slots.get(at).filter(|slot| open && !was_lost(slot, snapshot)).map(scaled).ok_or(Lack::Slot(at))
}

fn of_role(slots: &[Slot], snapshot: &Snapshot, role: Role) -> Result<f64, Lack> {
    let mut of_role = snapshot.host.slots(role).peekable();
    if of_role.peek().is_none() {
        return Err(Lack::NotAsked);
    }
    of_role.map(|at| of_slot(slots, snapshot, at)).sum()
}

fn of_lma(slots: &[Slot], snapshot: &Snapshot) -> Result<f64, Lack> {
    let derived = snapshot.host.tables.iter().any(|table| table.lma_is_llc_less_rma);
    if derived && snapshot.host.slots(Role::Lma).next().is_none() {
        let rma = of_role(slots, snapshot, Role::Rma)?;
        return Ok((of_role(slots, snapshot, Role::Llc)? - rma).max(0.0));
    }
    of_role(slots, snapshot, Role::Lma)
}

/// The count of one slot, scaled.
///
/// # Errors
/// Its event is not open on every CPU, has not counted anything on any, or was not on the PMU while the row ran.
pub fn slot(slots: &[Slot], snapshot: &Snapshot, at: usize) -> Reading<f64> {
    of_slot(slots, snapshot, at).map_err(|lack| lack.why(slots, snapshot))
}

/// The count of a role: the sum over the kinds of cores, each with a separate slot.
///
/// # Errors
/// As [`slot`]; or such an event was not requested.
pub fn count(slots: &[Slot], snapshot: &Snapshot, role: Role) -> Reading<f64> {
    of_role(slots, snapshot, role).map_err(|lack| lack.why(slots, snapshot))
}

/// Local memory accesses: counted, or on CPUs that have no event for them what missed the last-level cache and was
/// not remote. The two are different kinds of accesses there, so that the difference may go below zero: it stays at 0.
///
/// # Errors
/// As [`count`].
pub fn lma(slots: &[Slot], snapshot: &Snapshot) -> Reading<f64> {
    of_lma(slots, snapshot).map_err(|lack| lack.why(slots, snapshot))
}

/// Remote memory accesses.
///
/// # Errors
/// As [`count`].
pub fn rma(slots: &[Slot], snapshot: &Snapshot) -> Reading<f64> {
    count(slots, snapshot, Role::Rma)
}

/// Local and remote memory accesses.
///
/// # Errors
/// One of them was not counted: the reason where they were wanted and lost in this interval, `None` where they are not on this host.
pub fn accesses_or_lost(slots: &[Slot], snapshot: &Snapshot) -> Result<(f64, f64), Option<Missing>> {
    let lacks = match (of_lma(slots, snapshot), of_role(slots, snapshot, Role::Rma)) {
        (Ok(lma), Ok(rma)) => return Ok((lma, rma)),
        (lma, rma) => [lma.err(), rma.err()],
    };
    let whys = lacks.into_iter().flatten().filter(|lack| match lack {
        Lack::Slot(at) => slots.get(*at).is_some_and(|slot| was_lost(slot, snapshot)),
        Lack::NotAsked => false,
    });
    Err(whys
        .map(|lack| lack.why(slots, snapshot))
        .find(|why| matches!(why, Missing::Lost(_) | Missing::NotCollected(_))))
}

/// Local and remote memory accesses; `None` where one of them was not counted.
pub fn accesses(slots: &[Slot], snapshot: &Snapshot) -> Option<(f64, f64)> {
    Some((of_lma(slots, snapshot).ok()?, of_role(slots, snapshot, Role::Rma).ok()?))
}

/// A quotient of counters in the interval, and of the time on CPUs in it in nanoseconds.
///
/// # Errors
/// As [`count`]; or what it is divided by was not counted at all.
pub type Formula = fn(&[Slot], u64, &Snapshot) -> Reading<Quotient>;

/// A quotient, unless nothing was counted that it could be divided by.
fn quotient(num: f64, den: f64, otherwise: &str) -> Reading<Quotient> {
    if den > 0.0 { Ok(Quotient::of(num, den)) } else { Err(no(otherwise)) }
}

const NO_CYCLE: &str = "no cycle was counted in this interval";
const NO_INSTRUCTION: &str = "no instruction was counted in this interval";

/// RMA / LMA; infinite when all accesses were remote.
///
/// # Errors
/// As [`count`]; or there was no access at all.
pub fn rma_lma(slots: &[Slot], _: u64, snapshot: &Snapshot) -> Reading<Quotient> {
    let (lma, rma) = (lma(slots, snapshot)?, rma(slots, snapshot)?);
    if lma > 0.0 || rma > 0.0 {
        Ok(Quotient::of(rma, lma))
    } else {
        Err(no("no memory access was counted in this interval"))
    }
}

/// `part` per thousand instructions.
fn per_kilo_instructions(part: f64, slots: &[Slot], snapshot: &Snapshot) -> Reading<Quotient> {
    let instructions = count(slots, snapshot, Role::Instructions)?;
    Ok(quotient(part, instructions, NO_INSTRUCTION)?.scaled(1e3))
}

/// Formulas for an amount per thousand instructions.
macro_rules! per_kilo_instructions {
    ($($(#[$doc:meta])* $name:ident = $part:expr;)*) => {
        $($(#[$doc])*
        ///
        /// # Errors
        /// As [`count`]; or no instruction was counted.
        pub fn $name(slots: &[Slot], _: u64, snapshot: &Snapshot) -> Reading<Quotient> {
            let part: fn(&[Slot], &Snapshot) -> Reading<f64> = $part;
            per_kilo_instructions(part(slots, snapshot)?, slots, snapshot)
        })*
    };
}

per_kilo_instructions! {
    /// Misses of the last-level cache per thousand instructions.
    llc_mpki = |slots, snapshot| count(slots, snapshot, Role::Llc);
    /// Page walks for data per thousand instructions.
    dtlb_mpki = |slots, snapshot| count(slots, snapshot, Role::Dtlb);
    /// Page walks for instructions per thousand instructions.
    itlb_mpki = |slots, snapshot| count(slots, snapshot, Role::Itlb);
    /// Mispredicted branches per thousand instructions.
    branch_mpki = |slots, snapshot| count(slots, snapshot, Role::Branch);
    /// Local memory accesses per thousand instructions.
    lpi = lma;
    /// Remote memory accesses per thousand instructions.
    rpi = rma;
}

/// Instructions per cycle.
///
/// # Errors
/// As [`count`]; or no cycle was counted.
pub fn ipc(slots: &[Slot], _: u64, snapshot: &Snapshot) -> Reading<Quotient> {
    let cycles = count(slots, snapshot, Role::Cycles)?;
    quotient(count(slots, snapshot, Role::Instructions)?, cycles, NO_CYCLE)
}

/// Cycles per instruction.
///
/// # Errors
/// As [`count`]; or no instruction was counted.
pub fn cpi(slots: &[Slot], _: u64, snapshot: &Snapshot) -> Reading<Quotient> {
    let cycles = count(slots, snapshot, Role::Cycles)?;
    quotient(cycles, count(slots, snapshot, Role::Instructions)?, NO_INSTRUCTION)
}

/// Cycles per nanosecond of time on CPUs.
///
/// # Errors
/// As [`count`]; or nothing ran.
pub fn ghz(slots: &[Slot], ran_ns: u64, snapshot: &Snapshot) -> Reading<Quotient> {
    quotient(count(slots, snapshot, Role::Cycles)?, ran_ns as f64, "the task did not run in this interval")
}

/// The factor for instructions per cycle as counted, where the two counters took turns.
fn took_turns(slots: &[Slot], snapshot: &Snapshot) -> Reading<f64> {
    let counted = |role| snapshot.host.slots(role).map(|at| slots[at].count as f64).sum::<f64>();
    let as_counted = counted(Role::Instructions) / counted(Role::Cycles);
    Ok(if as_counted > 0.0 { ipc(slots, 0, snapshot)?.value() / as_counted } else { 1.0 })
}

/// IPC of the stretches in which the SMT siblings did one thing: 0 idle, 1 busy (see `enum nt_siblings`).
///
/// # Errors
/// As [`ipc`]; or there was no such stretch.
pub fn ipc_by_sibling(counts: &Counts, snapshot: &Snapshot, siblings: usize) -> Reading<Quotient> {
    ipc(&counts.slots, 0, snapshot)?;
    match counts.by_sibling[siblings] {
        NodeCounts { cycles: 0, .. } if siblings == 0 => {
            Err(no("its SMT sibling was never idle for a whole time slice"))
        }
        NodeCounts { cycles: 0, .. } => Err(no("its SMT sibling was never busy for a whole time slice")),
        NodeCounts { cycles, instructions } => {
            let factor = took_turns(&counts.slots, snapshot)?;
            Ok(Quotient::of(instructions as f64 * factor, cycles as f64))
        }
    }
}

/// Instructions per cycle on each node that the row ran on.
///
/// Where counters take turns both are scaled by their share over all nodes.
///
/// # Errors
/// As [`ipc`]; or counts are not kept by node: the machine has one, or the recording has none.
pub fn ipc_by_node(counts: &Counts, snapshot: &Snapshot) -> Reading<ByNode> {
    let overall = ipc(&counts.slots, 0, snapshot)?.value();
    let sum = |of: fn(&NodeCounts) -> u64| counts.by_node.iter().map(|node| of(node) as f64).sum::<f64>();
    let (cycles, instructions) = (sum(|node| node.cycles), sum(|node| node.instructions));
    if cycles <= 0.0 || instructions <= 0.0 {
        return Err(no("cycles and instructions are not recorded by node here"));
    }
    let scale = overall / (instructions / cycles);
    let ran = |(node, counts): (usize, &NodeCounts)| {
        let ipc = Quotient::of(counts.instructions as f64 * scale, counts.cycles as f64);
        (counts.cycles > 0).then_some((NodeId(node as u32), ipc))
    };
    Ok(counts.by_node.iter().enumerate().filter_map(ran).collect())
}

/// Stalls of a role in percent of cycles, or of issue slots where the CPU counts those.
///
/// # Errors
/// As [`count`]; or no cycle or slot was counted.
fn stalled(slots: &[Slot], snapshot: &Snapshot, role: Role) -> Reading<Quotient> {
    let mut stalled = count(slots, snapshot, role)?;
    let first = snapshot.host.slots(role).next().map(|at| snapshot.host.events[at].share_of);
    let whole = match first.unwrap_or_default() {
        ShareOf::Cycles => count(slots, snapshot, Role::Cycles)?,
        ShareOf::SlotsPerCycle(width) => count(slots, snapshot, Role::Cycles)? * f64::from(width),
        ShareOf::Slots => count(slots, snapshot, Role::Slots)?,
    };
    // The counters are read one after the other, so that short runs may be off by some cycles.
    stalled = stalled.min(whole);
    Ok(quotient(stalled, whole, NO_CYCLE)?.scaled(100.0))
}

/// Stalls of the front end in percent.
///
/// # Errors
/// As [`count`]; or no cycle or slot was counted.
pub fn stall_frontend(slots: &[Slot], _: u64, snapshot: &Snapshot) -> Reading<Quotient> {
    stalled(slots, snapshot, Role::StallFrontend)
}

/// Stalls of the back end in percent.
///
/// # Errors
/// As [`count`]; or no cycle or slot was counted.
pub fn stall_backend(slots: &[Slot], _: u64, snapshot: &Snapshot) -> Reading<Quotient> {
    stalled(slots, snapshot, Role::StallBackend)
}

/// Misses in percent of accesses. Uses the first of `pairs` (accesses and misses, each by type and number)
/// whose two events are counted for the same part of the work.
///
/// # Errors
/// As [`slot`]; no pair is counted, or there was no access.
pub fn miss_pct(slots: &[Slot], snapshot: &Snapshot, pairs: &[[(u32, u64); 2]]) -> Reading<Quotient> {
    let events = &snapshot.host.events;
    let find = |(kind, config), mode: Option<Mode>| {
        events.iter().position(|event| {
            event.encoding() == (kind, [config, 0, 0]) && mode.is_none_or(|mode| mode == event.mode)
        })
    };
    let both = |[accesses, misses]: &[(u32, u64); 2]| {
        let accesses = find(*accesses, None)?;
        Some((accesses, find(*misses, Some(events[accesses].mode))?))
    };
    let (accesses, misses) =
        pairs.iter().find_map(both).ok_or_else(|| no("its two counters were not requested (--events)"))?;
    let (accesses, misses) = (slot(slots, snapshot, accesses)?, slot(slots, snapshot, misses)?);
    Ok(quotient(misses, accesses, "no access was counted in this interval")?.scaled(100.0))
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
    // Events that wait for their turn do not count.
    let waits = |slot: &Slot| !snapshot.host.event_turns.is_empty() && was_lost(slot, snapshot);
    Ok(used.iter().filter(|slot| !waits(slot)).map(share).fold(100.0, f64::min))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multiplexed_counts_are_scaled() {
        assert_eq!(scaled(&Slot { count: 30, enabled_ns: 100, running_ns: 60 }), 50.0);
        assert_eq!(scaled(&Slot { count: 30, enabled_ns: 0, running_ns: 0 }), 30.0);
        assert_eq!(scaled(&Slot { count: 30, enabled_ns: 10, running_ns: 60 }), 5.0);
        assert_eq!(scaled(&Slot { count: u64::MAX, enabled_ns: 7, running_ns: 7 }), u64::MAX as f64);
    }
}
