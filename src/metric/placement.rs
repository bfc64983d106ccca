//! The metrics of where memory is, and of how much of its use is remote.

use super::over::{Better, Over, Quotient};
use super::{Group, Metric, Order, Several, Stands, Traits, Unit, Value, Witness, balancing, counters, no};
use crate::access::follow::by_count::{Evidence, by_count};
use crate::model::access::MemoryUse;
use crate::model::facility::Facility;
use crate::model::sample::{Hints, Reading, Slot};
use crate::model::share::wilson_farther;
use crate::model::units::NodeId;
use crate::snapshot::{Container, Memory, Node, Remote, Snapshot, Task, memory_shares};

const fn metric<R>(
    id: &'static str,
    (title, width): (&'static str, u16),
    group: Group,
    (unit, order): (Unit, Order),
    help: &'static str,
    value: fn(&R, &Snapshot) -> Reading<Value>,
) -> Metric<R> {
    Metric {
        id,
        title,
        width,
        group,
        unit,
        order,
        help,
        value,
        over: Over::usual(unit),
        traits: Traits::NONE,
    }
}

/// The only node of the machine: where it is the only one, all is known beforehand.
fn only_node(snapshot: &Snapshot) -> Option<NodeId> {
    match snapshot.host.topology.nodes.as_slice() {
        [node] => Some(node.id),
        _ => None,
    }
}

fn memory(task: &Task) -> Reading<&Memory> {
    match &task.memory {
        Some((_, Ok(memory))) => Ok(memory),
        Some((_, Err(missing))) => Err(missing.clone()),
        None if task.exited => Err(no("the task has ended")),
        None if task.raw.kthread => Err(no("a kernel thread has no memory of its own")),
        None if task.rss_bytes == 0 => Err(no("it has no memory")),
        None => Err(no("its memory was not looked at: there is a budget of time for each interval")),
    }
}

pub const MEM_PCT_BY_NODE: Metric<Task> = metric::<Task>(
    "mem_pct_by_node",
    ("MEM BY NODE", 11),
    Group::Memory,
    (Unit::Percent, Order::Descending),
    "Where its resident memory is, from about a thousand of its pages picked at random (mem_error_points says how exact). \
     Dim where the process has not been looked at for a while.",
    |task, snapshot| match only_node(snapshot) {
        Some(node) if task.rss_bytes > 0 => Ok(Value::ByNode(vec![(node, 100.0)])),
        _ => Ok(Value::ByNode(memory_shares(&memory(task)?.bytes_by_node))),
    },
)
.over(Over::Newest).with(Traits::NONE.needs(&[Facility::Placement]).several(Several::Nodes).least_width(11).ages());

pub const MEM_BYTES_BY_NODE: Metric<Task> = metric::<Task>(
    "mem_bytes_by_node",
    ("MEM/NODE", 11),
    Group::Memory,
    (Unit::Bytes, Order::Descending),
    "Resident memory on each node: shared memory counts for each process that has it mapped, swapped pages do not, pages \
     of hugetlbfs do. From the same pages as mem_pct_by_node, so that the sum may differ from RSS.",
    |task, snapshot| match only_node(snapshot) {
        Some(node) if task.rss_bytes > 0 => Ok(Value::ByNode(vec![(node, task.rss_bytes as f64)])),
        _ => {
            let by_node = memory(task)?.bytes_by_node.iter().enumerate();
            let used = by_node.filter(|(_, bytes)| **bytes > 0.0);
            Ok(Value::ByNode(used.map(|(node, bytes)| (NodeId(node as u32), bytes.round())).collect()))
        }
    },
)
.over(Over::Newest).with(Traits::NONE.needs(&[Facility::Placement]).ages());

pub const MEM_ERROR_POINTS: Metric<Task> = metric::<Task>(
    "mem_error_points",
    ("MEMERR", 6),
    Group::Memory,
    (Unit::Percent, Order::Descending),
    "Every share in mem_pct_by_node is this near the truth in 95 of 100 cases, in percentage points; 0: all pages were \
     looked at.",
    |task, snapshot| match only_node(snapshot) {
        Some(_) if task.rss_bytes > 0 => Ok(Value::F64(0.0)),
        _ => Ok(Value::F64(memory(task)?.error_points)),
    },
)
.over(Over::Level).with(Traits::NONE.needs(&[Facility::Placement, Facility::PlacementError]).ages());

pub const MEM_AGE_MS: Metric<Task> = metric::<Task>(
    "mem_age_ms",
    ("MEMAGE", 7),
    Group::Memory,
    (Unit::Milliseconds, Order::Descending),
    "How long ago its pages were looked at. A process is looked at again when its memory has changed, and after 30 s.",
    |task, snapshot| match (&task.memory, only_node(snapshot)) {
        (_, Some(_)) if task.rss_bytes > 0 => Ok(Value::U64(0)),
        (Some((read_ns, _)), _) => Ok(Value::U64(snapshot.mono_ns.saturating_sub(*read_ns) / 1_000_000)),
        (None, _) => memory(task).map(|_| Value::U64(0)),
    },
).with(Traits::NONE.needs(&[Facility::Placement, Facility::PlacementError]));

pub const OWN_POLICY_PCT: Metric<Task> = metric::<Task>(
    "own_policy_pct",
    ("OWNPOL", 6),
    Group::Memory,
    (Unit::Percent, Order::Descending),
    "Share of its resident memory in mappings with a memory policy of their own (mbind(2), or that of shared memory), as \
     /proc/PID/numa_maps has it. Read for processes whose policy is the default and of whose memory a fifth or more is not on \
     the node where they run most, or that are nearly as large as it, one at a time, at most once in five minutes.",
    |task, snapshot| match (task.policies.as_deref(), only_node(snapshot)) {
        (_, Some(_)) => Err(no("the machine has one node: policies change nothing")),
        (Some((_, Ok(bytes))), _) if bytes.all_bytes > 0 => {
            Ok(Value::F64(bytes.own_bytes.min(bytes.all_bytes) as f64 * 100.0 / bytes.all_bytes as f64))
        }
        (Some((_, Ok(_))), _) => Err(no("no page of it was found")),
        (Some((_, Err(missing))), _) => Err(missing.clone()),
        (None, _) => memory(task).and_then(|_| {
            Err(no("policies of its mappings were not read: they are where a fifth of its memory is not where it runs, or it is nearly as large as its node"))
        }),
    },
)
.over(Over::Level).with(Traits::NONE.needs(&[Facility::MappingPolicies]));

pub const HUGETLB_BYTES: Metric<Task> = metric::<Task>(
    "hugetlb_bytes",
    ("HUGETLB", 8),
    Group::Memory,
    (Unit::Bytes, Order::Descending),
    "Memory in pages of hugetlbfs, which is not in RSS, as /proc/PID/numa_maps has it. Read together with own_policy_pct, and for the \
     same processes.",
    |task, snapshot| match (task.policies.as_deref(), only_node(snapshot)) {
        (_, Some(_)) => Err(no("the machine has one node: the pools of others are no question")),
        (Some((_, Ok(bytes))), _) => {
            let sum = bytes.huge.iter().fold(0u64, |sum, pages| sum.saturating_add(pages.bytes()));
            Ok(Value::U64(sum))
        }
        (Some((_, Err(missing))), _) => Err(missing.clone()),
        (None, _) => memory(task).and_then(|_| Err(no("its mappings were not read: see own_policy_pct"))),
    },
)
.over(Over::Level)
.with(Traits::NONE.needs(&[Facility::MappingPolicies, Facility::HugePools]));

/// The source of a share of remote accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// The machine has one node.
    OneNode,
    /// RMA / (RMA + LMA).
    Counted,
    /// Sampled accesses, where their shares are by count.
    Sampled,
    /// Where it ran and where its memory is.
    Placement,
    /// The share of its hinting faults.
    Hinting,
}

impl Basis {
    fn id(self) -> &'static str {
        match self {
            Basis::OneNode => "one_node",
            Basis::Counted => "counted",
            Basis::Sampled => "sampled",
            Basis::Placement => "placement",
            Basis::Hinting => "hinting",
        }
    }

    fn witness(self) -> Witness {
        match self {
            Basis::OneNode | Basis::Counted => Witness::Counted,
            Basis::Sampled => Witness::Estimate,
            Basis::Placement => Witness::Memory,
            Basis::Hinting => Witness::Hints,
        }
    }
}

/// A row's remote accesses from each source, the best one first.
struct Known {
    basis: Basis,
    pct: f64,
    /// The least and the most that it could be.
    range: (f64, f64),
}

impl Known {
    fn exactly(basis: Basis, pct: f64) -> Known {
        Known { basis, pct, range: (pct, pct) }
    }

    /// The value of remote_pct for a row that ran so long and has so much memory.
    fn share(&self, run_ns: u64, rss_bytes: u64) -> Value {
        Value::Share {
            pct: self.pct,
            at_least: self.range.0,
            witness: self.basis.witness(),
            of: run_ns as f64,
            resident: Some(rss_bytes),
        }
    }

    /// The distance to the farther end of the range, in percentage points.
    fn error_points(&self) -> f64 {
        (self.pct - self.range.0).max(self.range.1 - self.pct)
    }
}

/// Hinting faults in an interval, from which on their share says something.
const ENOUGH_HINTS: u64 = 100;

/// The share by hinting faults, if they were enough. The error is that of the share among so many faults (Agresti and
/// Coull 1998, "Approximate is better than exact"); that faults are no accesses is not in it.
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

/// `lma` and `rma` of a row, what its samples say, and what its placement says or why it says nothing.
fn known(
    snapshot: &Snapshot,
    accesses: Option<(f64, f64)>,
    sampled: Option<&MemoryUse>,
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
    if let Some(sampled) = sampled.and_then(of_samples) {
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
        _ if ran => Err(no("where the memory of what ran is has not been looked at yet")),
        _ => Err(no("did not run in this interval")),
    })
}

/// The share of remote accesses as one source has it.
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
    let sampled = task.memory_use.as_ref().filter(|_| task.tid.is_none());
    let sampled = sampled.and_then(|sampled| of_samples(&sampled.found));
    let placed = of_placement(remote_of(task, snapshot), task.run_ns() > 0).ok();
    let hints = of_hints(Some(balancing::of_task(task)));
    let all = [counted, sampled, placed, hints].into_iter().flatten();
    all.map(|known| RemoteShare { basis: known.basis, pct: known.pct, range: known.range }).collect()
}

fn of_task(task: &Task, snapshot: &Snapshot) -> Reading<Known> {
    known_of_task(task, snapshot, || remote_of(task, snapshot))
}

/// The same where `remote` is [`remote_of`] it.
fn known_of_task(
    task: &Task,
    snapshot: &Snapshot,
    remote: impl FnOnce() -> Reading<Remote>,
) -> Reading<Known> {
    // Samples are added up by process, so threads have none.
    let sampled = task.memory_use.as_ref().filter(|_| task.tid.is_none()).map(|sampled| &*sampled.found);
    known(
        snapshot,
        counters::accesses(&task.delta.slots, snapshot),
        sampled,
        task.run_ns() > 0,
        remote,
        Some(balancing::of_task(task)),
    )
}

/// The values of remote_pct and remote_error_points of a row, where the host has both.
pub fn share_of_task(task: &Task, snapshot: &Snapshot) -> Option<(Value, f64)> {
    let known = of_task(task, snapshot).ok()?;
    Some((known.share(task.run_ns(), task.rss_bytes), known.error_points()))
}

/// The same of a container.
pub fn share_of_container(row: &Container, snapshot: &Snapshot) -> Option<(Value, f64)> {
    let known = of_container(row, snapshot).ok()?;
    Some((known.share(row.sum.run_ns(), row.sum.rss_bytes), known.error_points()))
}

fn remote_of(task: &Task, snapshot: &Snapshot) -> Reading<Remote> {
    if task.run_ns() == 0 {
        return Err(no("did not run in this interval"));
    }
    memory(task).map(|memory| Remote::of(&task.delta.run_ns, memory, &snapshot.room))
}

fn of_container(row: &Container, snapshot: &Snapshot) -> Reading<Known> {
    let accesses = counters::accesses(&row.sum.delta.slots, snapshot);
    let hints = Some(balancing::of_task(&row.sum));
    known(snapshot, accesses, None, row.sum.run_ns() > 0, || Ok(row.remote), hints)
}

fn of_node(node: &Node, snapshot: &Snapshot) -> Reading<Known> {
    let accesses = counters::accesses(&node.slots, snapshot);
    known(snapshot, accesses, None, node.busy_ns > 0, || Ok(node.remote), node.hints)
}

/// The sums behind remote_pct. Where a CPU counts accesses they are accesses, in every interval; elsewhere time on CPUs, so
/// that intervals and rows with different sources add up.
fn quotient(
    snapshot: &Snapshot,
    slots: &[Slot],
    run_ns: u64,
    remote: Option<Remote>,
    known: impl FnOnce() -> Reading<Known>,
) -> Reading<Quotient> {
    if only_node(snapshot).is_some() {
        return Ok(Quotient::pct(0.0, run_ns as f64));
    }
    match counters::accesses(slots, snapshot) {
        Some((lma, rma)) if lma + rma > 0.0 => return Ok(Quotient::pct(rma, lma + rma)),
        Some(_) => return Err(no("no memory access was counted in this interval")),
        None => {}
    }
    if let Some(lost) = counters::accesses_lost(slots, snapshot) {
        return Err(lost);
    }
    let known = known()?;
    match (known.basis, remote) {
        (Basis::Placement, Some(remote)) => Ok(Quotient::pct(remote.remote_ns, remote.run_ns)),
        _ => Ok(Quotient::pct(known.pct / 100.0 * run_ns as f64, run_ns as f64)),
    }
}

fn quotient_of_task(task: &Task, snapshot: &Snapshot) -> Reading<Quotient> {
    let remote = remote_of(task, snapshot);
    let known_remote = remote.as_ref().ok().copied();
    let known = || known_of_task(task, snapshot, || remote);
    quotient(snapshot, &task.delta.slots, task.run_ns(), known_remote, known)
}

fn quotient_of_container(row: &Container, snapshot: &Snapshot) -> Reading<Quotient> {
    let known = || of_container(row, snapshot);
    quotient(snapshot, &row.sum.delta.slots, row.sum.run_ns(), Some(row.remote), known)
}

fn quotient_of_node(node: &Node, snapshot: &Snapshot) -> Reading<Quotient> {
    quotient(snapshot, &node.slots, node.busy_ns, Some(node.remote), || of_node(node, snapshot))
}

fn best(snapshot: &Snapshot, remote: Reading<Remote>) -> Reading<Value> {
    if only_node(snapshot).is_some() {
        return Ok(Value::F64(0.0));
    }
    remote?.best_pct().map(Value::F64).ok_or_else(|| no("needs where it ran and where its memory is"))
}

const PCT_HELP: &str = "Share of its memory accesses that leave the node it runs on. = counted by the CPU; ~ sampled (--access); mem: not its \
    accesses but the share of its memory that is on other nodes than it runs on, which is the same only if it uses all \
    pages alike (remote_low_pct and remote_high_pct say how far off that may be); hint: the share of its hinting faults; \
    ? not known. Half of the time on each of two nodes with half of the memory on each is 50 %. With one node it is 0. Rows are \
    sorted by the CPU time that it is a share of, too; below 16 MiB of resident memory it is dim (--dim-below).";
const SOURCE_HELP: &str = "Where remote_pct is from: counted (RMA and LMA), sampled (accesses of its next instructions, \
    with --access, where they are shares of accesses and not of time), placement (where it ran and where its memory \
    is), hinting (its hinting faults, where its memory could not be looked at: a poor witness, see hint_remote_pct), \
    one_node.";
const ERROR_HELP: &str = "How far the share of accesses may be from remote_pct, in percentage points: the distance to the \
    farther of remote_low_pct and remote_high_pct; 0 for counted. With sampled: in 95 of 100 cases.";
const LOW_HELP: &str = "The least share of remote accesses that fits what is known. With placement: if its hot pages, at \
    least a megabyte and a hundredth of its memory, are as near as its memory allows.";
const HIGH_HELP: &str = "The most share of remote accesses that fits what is known. With placement: if its hot pages, at \
    least a megabyte and a hundredth of its memory, are as far as its memory allows.";
const BEST_HELP: &str = "The least remote_pct that moving could reach, if nothing else were on the machine: time and memory \
    together on as few nodes as have the CPUs and the memory for them, 0 where one has. Uniform use of pages is assumed.";

macro_rules! remote_metrics {
    ($row:ty, $known:path, $quotient:path, $remote:expr, $run_ns:expr, $rss_bytes:expr, $pct:ident, $source:ident, $error:ident, $low:ident, $high:ident, $best:ident) => {
        pub const $pct: Metric<$row> = metric(
            "remote_pct",
            ("REMOTE%", 7),
            Group::Memory,
            (Unit::Percent, Order::Descending),
            PCT_HELP,
            |row, snapshot| {
                let known = $known(row, snapshot)?;
                Ok(known.share($run_ns(row), $rss_bytes(row)))
            },
        )
        .over(Over::Quotient($quotient))
        .with(Traits {
            absent: "?",
            ..Traits::NONE.several(Several::Nodes).stands(Stands::RemoteShare).better(Better::Low)
        });
        pub const $source: Metric<$row> = metric(
            "remote_source",
            ("SOURCE", 9),
            Group::Memory,
            (Unit::Text, Order::Ascending),
            SOURCE_HELP,
            |row, snapshot| Ok(Value::Text($known(row, snapshot)?.basis.id().into())),
        );
        pub const $error: Metric<$row> = metric(
            "remote_error_points",
            ("REMERR", 6),
            Group::Memory,
            (Unit::Percent, Order::Descending),
            ERROR_HELP,
            |row, snapshot| Ok(Value::F64($known(row, snapshot)?.error_points())),
        )
        .over(Over::Level);
        pub const $low: Metric<$row> = metric(
            "remote_low_pct",
            ("REMLOW", 6),
            Group::Memory,
            (Unit::Percent, Order::Descending),
            LOW_HELP,
            |row, snapshot| Ok(Value::F64($known(row, snapshot)?.range.0)),
        )
        .over(Over::Level);
        pub const $high: Metric<$row> = metric(
            "remote_high_pct",
            ("REMHIGH", 7),
            Group::Memory,
            (Unit::Percent, Order::Descending),
            HIGH_HELP,
            |row, snapshot| Ok(Value::F64($known(row, snapshot)?.range.1)),
        )
        .over(Over::Level);
        pub const $best: Metric<$row> = metric(
            "remote_best_pct",
            ("BEST%", 5),
            Group::Memory,
            (Unit::Percent, Order::Descending),
            BEST_HELP,
            |row, snapshot| best(snapshot, $remote(row, snapshot)),
        )
        .over(Over::Level)
        .with(Traits::NONE.needs(&[Facility::Placement]));
    };
}

remote_metrics!(
    Task,
    of_task,
    quotient_of_task,
    remote_of,
    Task::run_ns,
    (|task: &Task| task.rss_bytes),
    REMOTE_PCT,
    REMOTE_SOURCE,
    REMOTE_ERROR_POINTS,
    REMOTE_LOW_PCT,
    REMOTE_HIGH_PCT,
    REMOTE_BEST_PCT
);
remote_metrics!(
    Container,
    of_container,
    quotient_of_container,
    (|row: &Container, _: &Snapshot| Ok(row.remote)),
    (|row: &Container| row.sum.run_ns()),
    (|row: &Container| row.sum.rss_bytes),
    CONTAINER_REMOTE_PCT,
    CONTAINER_REMOTE_SOURCE,
    CONTAINER_REMOTE_ERROR_POINTS,
    CONTAINER_REMOTE_LOW_PCT,
    CONTAINER_REMOTE_HIGH_PCT,
    CONTAINER_REMOTE_BEST_PCT
);
remote_metrics!(
    Node,
    of_node,
    quotient_of_node,
    (|node: &Node, _: &Snapshot| Ok(node.remote)),
    (|node: &Node| node.busy_ns),
    (|node: &Node| node.raw.mem_total_bytes),
    NODE_REMOTE_PCT,
    NODE_REMOTE_SOURCE,
    NODE_REMOTE_ERROR_POINTS,
    NODE_REMOTE_LOW_PCT,
    NODE_REMOTE_HIGH_PCT,
    NODE_REMOTE_BEST_PCT
);

pub const CONTAINER_MEM_PCT_BY_NODE: Metric<Container> = metric::<Container>(
    "mem_pct_by_node",
    ("MEM% NODES", 11),
    Group::Memory,
    (Unit::Percent, Order::Descending),
    "Where the memory charged to it and all below is, exactly (memory.numa_stat): page cache included.",
    |row, _| {
        let raw = row.raw.as_deref().ok_or_else(|| no("its files have not been read yet"))?;
        let nodes = raw.mem_bytes_by_node.clone()?;
        let mut bytes = vec![0.0; nodes.keys().last().map_or(0, |last| *last as usize + 1)];
        nodes.iter().for_each(|(node, on)| bytes[*node as usize] = *on as f64);
        Ok(Value::ByNode(memory_shares(&bytes)))
    },
)
.over(Over::Newest)
.with(Traits::NONE.several(Several::Nodes).least_width(11));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::access::answers::Answers;
    use crate::model::access::next_runs::NextRuns;
    use crate::model::access::{ByNodes, MappingUse};

    #[test]
    fn hinting_faults_are_a_source_when_there_are_enough() {
        assert!(of_hints(None).is_none());
        assert!(of_hints(Some(Hints { faults: 99, remote: 30 })).is_none());
        let known = of_hints(Some(Hints { faults: 100, remote: 30 })).unwrap();
        assert_eq!((known.basis.id(), known.pct), ("hinting", 30.0));
        // Wilson's interval, which has the same middle and is a little narrower, is 21.9 to 39.6.
        assert!((8.8..9.0).contains(&known.error_points()), "{}", known.error_points());
    }

    /// A process of which `remote` and `local` followed samples are unrelated to the runs after them.
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
    fn none_of_many_is_not_known_exactly() {
        let known = of_hints(Some(Hints { faults: 10_000, remote: 0 })).unwrap();
        assert!(known.pct == 0.0 && known.error_points() > 0.01, "{}", known.error_points());
    }
}
