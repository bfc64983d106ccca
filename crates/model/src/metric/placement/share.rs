//! The share of remote accesses of a row: from which source, how far it may be off, and the sums behind it.

use super::super::access::MEM_TIME_REMOTE_PCT;
use super::super::over::Quotient;
use super::super::{Value, Witness, balancing, counters, no};
use super::{memory, only_node};
use crate::access::follow::by_count::{Evidence, by_count};
use crate::model::access::MemoryUse;
use crate::model::sample::{Hints, Reading, Slot};
use crate::model::share::{bounded, wilson_farther};
use crate::snapshot::{Container, Node, Remote, Snapshot, Task};

/// The source of a share of remote accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// The machine has one node.
    OneNode,
    /// RMA / (RMA + LMA).
    Counted,
    /// Sampled accesses, where their shares are by count.
    Sampled,
    /// Time at memory accesses, from the same samples.
    SampledTime,
    /// Where it ran and where its memory is.
    Placement,
    /// The share of its hinting faults.
    Hinting,
}

impl Basis {
    pub(super) fn id(self) -> &'static str {
        match self {
            Basis::OneNode => "one_node",
            Basis::Counted => "counted",
            Basis::Sampled => "sampled",
            Basis::SampledTime => "sampled_time",
            Basis::Placement => "placement",
            Basis::Hinting => "hinting",
        }
    }

    fn witness(self) -> Witness {
        match self {
            Basis::OneNode | Basis::Counted => Witness::Counted,
            Basis::Sampled => Witness::Estimate,
            Basis::SampledTime => Witness::Time,
            Basis::Placement => Witness::Memory,
            Basis::Hinting => Witness::Hints,
        }
    }
}

/// A row's remote accesses from each source, the best one first.
pub(super) struct Known {
    pub(super) basis: Basis,
    pct: f64,
    /// The least and the most that it could be.
    pub(super) range: (f64, f64),
}

impl Known {
    fn exactly(basis: Basis, pct: f64) -> Known {
        Known { basis, pct, range: (pct, pct) }
    }

    /// The value of remote_pct for a row with this run time and memory.
    pub(super) fn share(&self, run_ns: u64, rss_bytes: u64) -> Value {
        Value::Share {
            pct: self.pct,
            at_least: self.range.0,
            witness: self.basis.witness(),
            of: run_ns as f64,
            resident: Some(rss_bytes),
        }
    }

    /// The distance to the farther end of the range, in percentage points.
    pub(super) fn error_points(&self) -> f64 {
        (self.pct - self.range.0).max(self.range.1 - self.pct)
    }
}

/// Hinting faults in an interval from which on their share is meaningful.
const ENOUGH_HINTS: u64 = 100;

/// The share by hinting faults, if they were enough. The error is that of a share among this many faults
/// (Agresti and Coull 1998, "Approximate is better than exact"). It does not cover that faults are not
/// accesses.
fn of_hints(hints: Option<Hints>) -> Option<Known> {
    const Z: f64 = 1.96;
    let hints = hints.filter(|hints| hints.faults >= ENOUGH_HINTS)?;
    let (faults, remote) = (hints.faults as f64, hints.remote as f64);
    let draws = faults + Z * Z;
    let share = (remote + Z * Z / 2.0) / draws;
    let error_points = 100.0 * Z * (share * (1.0 - share) / draws).sqrt();
    let pct = remote * 100.0 / faults;
    let range = ((pct - error_points).max(0.0), (pct + error_points).min(100.0));
    Some(Known { basis: Basis::Hinting, pct, range })
}

/// The share of sampled accesses, where it is one of accesses and not of time.
fn of_samples(found: &MemoryUse) -> Option<Known> {
    found.complete().ok()?;
    by_count(&Evidence::of_remote(found)).ok()?;
    let (remote, known) = found.remote_by_count();
    let (pct, error) = wilson_farther(remote, known)?;
    let range = ((pct - error).max(0.0), (pct + error).min(100.0));
    Some(Known { basis: Basis::Sampled, pct, range })
}

/// The share of time at memory accesses: of samples without an address none may be remote, or all.
fn of_time(found: &MemoryUse) -> Option<Known> {
    found.sound().ok()?;
    let (remote, known) = found.remote();
    let all = (found.at_memory() + found.nowhere) as f64;
    bounded(remote, known, all).map(|share| Known {
        basis: Basis::SampledTime,
        pct: share.pct,
        range: share.range,
    })
}

/// Samples of a row, and whether time at memory is known from them on this machine.
#[derive(Clone, Copy)]
struct Samples<'a> {
    found: &'a MemoryUse,
    by_time: bool,
}

impl<'a> Samples<'a> {
    /// Of a process: samples are added up by process, so threads have none.
    fn of(task: &'a Task, snapshot: &Snapshot) -> Option<Samples<'a>> {
        let sampled = task.memory_use().filter(|_| task.tid.is_none())?;
        let by_time = snapshot.host_missing(MEM_TIME_REMOTE_PCT.id).is_none();
        Some(Samples { found: &sampled.found, by_time })
    }

    fn by_count(self) -> Option<Known> {
        of_samples(self.found)
    }

    fn by_time(self) -> Option<Known> {
        of_time(self.found).filter(|_| self.by_time)
    }
}

/// `lma` and `rma` of a row, the result of its samples, and that of its placement or the reason why it has
/// none.
fn known(
    snapshot: &Snapshot,
    accesses: Option<(f64, f64)>,
    sampled: Option<Samples<'_>>,
    ran: bool,
    remote: impl FnOnce() -> Reading<Remote>,
    hints: Option<Hints>,
) -> Reading<Known> {
    if only_node(snapshot).is_some() {
        return Ok(Known::exactly(Basis::OneNode, 0.0));
    }
    if let Some(counted) = accesses.and_then(of_counters) {
        return Ok(counted);
    }
    not_counted(sampled, ran, remote, hints)
}

/// The same of a row whose accesses were not counted.
fn not_counted(
    sampled: Option<Samples<'_>>,
    ran: bool,
    remote: impl FnOnce() -> Reading<Remote>,
    hints: Option<Hints>,
) -> Reading<Known> {
    if let Some(sampled) = sampled.and_then(|sampled| sampled.by_count().or_else(|| sampled.by_time())) {
        return Ok(sampled);
    }
    of_placement(remote(), ran).or_else(|why| of_hints(hints).ok_or(why))
}

/// The share of `lma` and `rma`, where something was counted.
fn of_counters((lma, rma): (f64, f64)) -> Option<Known> {
    (lma + rma > 0.0).then(|| Known::exactly(Basis::Counted, rma * 100.0 / (lma + rma)))
}

fn of_placement(remote: Reading<Remote>, ran: bool) -> Reading<Known> {
    remote.and_then(|remote| match (remote.pct(), remote.range_pct()) {
        (Some(pct), Some(range)) => Ok(Known { basis: Basis::Placement, pct, range }),
        _ if ran => Err(no("the memory of running tasks is not located yet")),
        _ => Err(no("the task did not run in this interval")),
    })
}

/// The share of remote accesses from one source.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RemoteShare {
    /// Not [`Basis::OneNode`].
    pub basis: Basis,
    /// In per cent.
    pub pct: f64,
    /// The least and the most that it could be, in per cent; both as `pct` where the error is not known.
    pub range: (f64, f64),
}

/// The share of remote accesses of a process, from each source that has one, the best first: that is remote_pct. Empty on
/// machines with one node.
pub fn remote_by_source(task: &Task, snapshot: &Snapshot) -> Vec<RemoteShare> {
    if only_node(snapshot).is_some() {
        return Vec::new();
    }
    let slots = &task.delta.slots;
    let counted = counters::accesses(slots, snapshot).and_then(of_counters);
    let sampled = Samples::of(task, snapshot);
    let [by_count, by_time] = [sampled.and_then(Samples::by_count), sampled.and_then(Samples::by_time)];
    let placed = of_placement(remote_of(task, snapshot), task.run_ns() > 0).ok();
    let hints = of_hints(Some(balancing::of_task(task)));
    let all = [counted, by_count, by_time, placed, hints].into_iter().flatten();
    all.map(|known| RemoteShare { basis: known.basis, pct: known.pct, range: known.range }).collect()
}

pub(super) fn of_task(task: &Task, snapshot: &Snapshot) -> Reading<Known> {
    known(
        snapshot,
        counters::accesses(&task.delta.slots, snapshot),
        Samples::of(task, snapshot),
        task.run_ns() > 0,
        || remote_of(task, snapshot),
        Some(balancing::of_task(task)),
    )
}

pub(super) fn remote_of(task: &Task, snapshot: &Snapshot) -> Reading<Remote> {
    if task.run_ns() == 0 {
        return Err(no("the task did not run in this interval"));
    }
    memory(task).map(|memory| Remote::of(&task.delta.run_ns, memory, &snapshot.room))
}

pub(super) fn of_container(row: &Container, snapshot: &Snapshot) -> Reading<Known> {
    let accesses = counters::accesses(&row.sum.delta.slots, snapshot);
    let hints = Some(balancing::of_task(&row.sum));
    known(snapshot, accesses, None, row.sum.run_ns() > 0, || Ok(row.remote), hints)
}

pub(super) fn of_node(node: &Node, snapshot: &Snapshot) -> Reading<Known> {
    let accesses = counters::accesses(&node.on_cpus.slots, snapshot);
    known(snapshot, accesses, None, node.on_cpus.busy_ns > 0, || Ok(node.remote), node.on_cpus.hints)
}

/// The sums behind remote_pct, and the share that they are of. Where a CPU counts accesses they are accesses, in every interval;
/// elsewhere time on CPUs, so that intervals and rows with different sources add up.
///
/// `not_counted`: [`not_counted`] of the row, and what it gives of `remote`.
fn sums(
    snapshot: &Snapshot,
    slots: &[Slot],
    run_ns: u64,
    not_counted: impl FnOnce() -> (Reading<Known>, Option<Remote>),
) -> Reading<(Quotient, Known)> {
    if only_node(snapshot).is_some() {
        return Ok((Quotient::pct(0.0, run_ns as f64), Known::exactly(Basis::OneNode, 0.0)));
    }
    match counters::accesses_or_lost(slots, snapshot) {
        Ok((lma, rma)) => {
            let known = of_counters((lma, rma));
            let known = known.ok_or_else(|| no("no memory access was counted in this interval"))?;
            return Ok((Quotient::pct(rma, lma + rma), known));
        }
        Err(Some(lost)) => return Err(lost),
        Err(None) => {}
    }
    let (known, remote) = not_counted();
    let known = known?;
    let sums = match (known.basis, remote) {
        (Basis::Placement, Some(remote)) => Quotient::pct(remote.remote_ns, remote.run_ns),
        _ => Quotient::pct(known.pct / 100.0 * run_ns as f64, run_ns as f64),
    };
    Ok((sums, known))
}

fn sums_of_task(task: &Task, snapshot: &Snapshot) -> Reading<(Quotient, Known)> {
    sums(snapshot, &task.delta.slots, task.run_ns(), || {
        let remote = remote_of(task, snapshot);
        let place = remote.as_ref().ok().copied();
        let hints = Some(balancing::of_task(task));
        (not_counted(Samples::of(task, snapshot), task.run_ns() > 0, || remote, hints), place)
    })
}

fn sums_of_container(row: &Container, snapshot: &Snapshot) -> Reading<(Quotient, Known)> {
    sums(snapshot, &row.sum.delta.slots, row.sum.run_ns(), || {
        let hints = Some(balancing::of_task(&row.sum));
        (not_counted(None, row.sum.run_ns() > 0, || Ok(row.remote), hints), Some(row.remote))
    })
}

/// A row's share of remote accesses with its sums. Computing all at once takes as long as computing one.
pub struct Share {
    /// The sums behind remote_pct.
    pub sums: Quotient,
    /// The value of remote_pct.
    pub value: Value,
    /// The value of remote_error_points, in percentage points.
    pub error_points: f64,
}

/// The share of a process or a thread, where the host has remote_pct and remote_error_points; `None` where it has no sums.
pub fn share_of_task(task: &Task, snapshot: &Snapshot) -> Option<Share> {
    let (sums, known) = sums_of_task(task, snapshot).ok()?;
    let value = known.share(task.run_ns(), task.rss_bytes);
    Some(Share { sums, value, error_points: known.error_points() })
}

/// The same of a container.
pub fn share_of_container(row: &Container, snapshot: &Snapshot) -> Option<Share> {
    let (sums, known) = sums_of_container(row, snapshot).ok()?;
    let value = known.share(row.sum.run_ns(), row.sum.rss_bytes);
    Some(Share { sums, value, error_points: known.error_points() })
}

pub(super) fn quotient_of_task(task: &Task, snapshot: &Snapshot) -> Reading<Quotient> {
    Ok(sums_of_task(task, snapshot)?.0)
}

pub(super) fn quotient_of_container(row: &Container, snapshot: &Snapshot) -> Reading<Quotient> {
    Ok(sums_of_container(row, snapshot)?.0)
}

pub(super) fn quotient_of_node(node: &Node, snapshot: &Snapshot) -> Reading<Quotient> {
    let sums = sums(snapshot, &node.on_cpus.slots, node.on_cpus.busy_ns, || {
        (
            not_counted(None, node.on_cpus.busy_ns > 0, || Ok(node.remote), node.on_cpus.hints),
            Some(node.remote),
        )
    });
    Ok(sums?.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::access::answers::Answers;
    use crate::model::access::next_runs::NextRuns;
    use crate::model::access::{ByNodes, MappingUse};
    use crate::model::units::NodeId;

    #[test]
    fn hinting_faults_are_a_source_when_there_are_enough() {
        assert!(of_hints(None).is_none());
        assert!(of_hints(Some(Hints { faults: 99, remote: 30 })).is_none());
        let known = of_hints(Some(Hints { faults: 100, remote: 30 })).unwrap();
        assert_eq!((known.basis.id(), known.pct), ("hinting", 30.0));
        // Wilson's interval, which has the same middle and is a little narrower, is 21.9 to 39.6.
        assert!((8.8..9.0).contains(&known.error_points()), "{}", known.error_points());
    }

    /// A process whose `remote` and `local` followed samples are unrelated to the runs after them.
    fn followed(remote: u64, local: u64) -> MemoryUse {
        let by_node = [(1, remote), (0, local)]
            .map(|(node, samples)| ((Some(NodeId(node)), Some(NodeId(0))), samples as f64));
        let mapping = MappingUse {
            start: 0x1000,
            bytes: 0x1000,
            name: String::new(),
            by_node: ByNodes::new(),
            next_by_node: by_node.into(),
            answers: Answers::default(),
        };
        let pairs = [(false, false), (false, true), (true, false), (true, true)].map(|pair| (pair, 25));
        let all = remote + local;
        let next_runs =
            NextRuns { followed: all, resolved: all, by_remote: pairs.into(), ..NextRuns::default() };
        MemoryUse { next_runs, mappings: vec![mapping], of_all: all, ..MemoryUse::default() }
    }

    #[test]
    fn samples_by_count_are_a_source_with_their_own_error() {
        let known = of_samples(&followed(300, 100)).unwrap();
        assert_eq!(
            (known.basis.id(), known.basis.witness(), known.pct),
            ("sampled", Witness::Estimate, 75.0)
        );
        // Wilson: 1.96 * sqrt(0.75 * 0.25 / 400 + ...) = 4.2, and its middle is 0.2 off.
        assert!((4.4..4.6).contains(&known.error_points()), "{}", known.error_points());
        assert!(of_samples(&followed(70, 29)).is_none(), "99 are too few");
        assert!(of_samples(&MemoryUse::default()).is_none());
    }

    #[test]
    fn samples_by_time_or_with_losses_are_no_source() {
        let mut found = followed(300, 100);
        found.next_runs.resolved = 319;
        assert!(of_samples(&found).is_none(), "not resolved");
        let mut found = followed(300, 100);
        found.next_runs.by_remote = [((false, false), 50), ((true, true), 50)].into();
        assert!(of_samples(&found).is_none(), "in runs");
        let mut found = followed(300, 100);
        found.lost.insert("ring_full".into(), 100);
        assert!(of_samples(&found).is_none(), "lost");
    }

    #[test]
    fn samples_by_time_are_a_source_whose_range_holds_those_without_an_address() {
        // In runs: no shares of accesses. Of 500 samples at memory 400 have an address.
        let mut found = followed(300, 100);
        found.next_runs.by_remote = [((false, false), 50), ((true, true), 50)].into();
        found.mappings[0].by_node = found.mappings[0].next_by_node.clone();
        (found.samples, found.with_address, found.gone, found.nowhere) = (900, 400, 60, 40);
        let samples = Samples { found: &found, by_time: true };
        assert!(samples.by_count().is_none());
        let known = samples.by_time().unwrap();
        assert_eq!(
            (known.basis.id(), known.basis.witness(), known.pct),
            ("sampled_time", Witness::Time, 75.0)
        );
        let (_, error) = wilson_farther(300.0, 400.0).unwrap();
        let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found} {expected}");
        near(known.range.0, 0.8 * (75.0 - error));
        near(known.range.1, 0.8 * (75.0 + error) + 20.0);
        assert!(Samples { by_time: false, ..samples }.by_time().is_none(), "the clock says nothing here");
        let mut few = found.clone();
        few.with_address = 99;
        assert!(of_time(&few).is_none());
        found.lost.insert("ring_full".into(), 100);
        assert!(of_time(&found).is_none(), "lost");
    }

    #[test]
    fn none_of_many_is_not_known_exactly() {
        let known = of_hints(Some(Hints { faults: 10_000, remote: 0 })).unwrap();
        assert!(known.pct == 0.0 && known.error_points() > 0.01, "{}", known.error_points());
    }
}
