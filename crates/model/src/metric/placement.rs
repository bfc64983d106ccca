//! The metrics of where memory is, and of how much of its use is remote.

mod share;

use super::over::{Better, Over};
use super::{Group, Metric, Order, Several, Stands, Traits, Unit, Value, no};
use crate::model::facility::Facility;
use crate::model::sample::Reading;
use crate::model::units::NodeId;
use crate::snapshot::{Container, Memory, Node, Remote, Snapshot, Task, memory_shares};

pub use share::{Basis, RemoteShare, Share, remote_by_source, share_of_container, share_of_task};

use share::{
    of_container, of_node, of_task, quotient_of_container, quotient_of_node, quotient_of_task, remote_of,
};

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
    match task.memory() {
        Some((_, Ok(memory))) => Ok(memory),
        Some((_, Err(missing))) => Err(missing.clone()),
        None if task.exited => Err(no("the task has ended")),
        None if task.raw.kthread => Err(no("a kernel thread has no memory of its own")),
        None if task.rss_bytes == 0 => Err(no("the process has no memory")),
        None => Err(no("its memory was not located: the time budget of the interval was used up")),
    }
}

pub const MEM_PCT_BY_NODE: Metric<Task> = metric::<Task>(
    "mem_pct_by_node",
    ("MEM BY NODE", 11),
    Group::Memory,
    (Unit::Percent, Order::Descending),
    "Its resident memory by node, from about a thousand random pages (mem_error_points is the error). Dim if \
     the sample is old.",
    |task, snapshot| match only_node(snapshot) {
        Some(node) if task.rss_bytes > 0 => Ok(Value::ByNode(vec![(node, 100.0)])),
        _ => Ok(Value::ByNode(memory_shares(&memory(task)?.bytes_by_node))),
    },
)
.over(Over::Newest)
.with(Traits::NONE.needs(&[Facility::Placement]).several(Several::Nodes).least_width(11).ages());

pub const MEM_BYTES_BY_NODE: Metric<Task> = metric::<Task>(
    "mem_bytes_by_node",
    ("MEM/NODE", 11),
    Group::Memory,
    (Unit::Bytes, Order::Descending),
    "Resident memory on each node. Shared memory counts for each process that maps it. Swapped pages do not count, \
     hugetlbfs pages do. From the same pages as mem_pct_by_node, so the sum can differ from RSS.",
    |task, snapshot| match only_node(snapshot) {
        Some(node) if task.rss_bytes > 0 => Ok(Value::ByNode(vec![(node, task.rss_bytes as f64)])),
        _ => {
            let by_node = memory(task)?.bytes_by_node.iter().enumerate();
            let used = by_node.filter(|(_, bytes)| **bytes > 0.0);
            Ok(Value::ByNode(used.map(|(node, bytes)| (NodeId(node as u32), bytes.round())).collect()))
        }
    },
)
.over(Over::Newest)
.with(Traits::NONE.needs(&[Facility::Placement]).ages());

pub const MEM_ERROR_POINTS: Metric<Task> = metric::<Task>(
    "mem_error_points",
    ("MEMERR", 6),
    Group::Memory,
    (Unit::Percent, Order::Descending),
    "Error of each share in mem_pct_by_node (95 % confidence), in percentage points; 0 means that all pages \
     were read.",
    |task, snapshot| match only_node(snapshot) {
        Some(_) if task.rss_bytes > 0 => Ok(Value::F64(0.0)),
        _ => Ok(Value::F64(memory(task)?.error_points)),
    },
)
.over(Over::Level)
.with(Traits::NONE.needs(&[Facility::Placement, Facility::PlacementError]).ages());

pub const MEM_AGE_MS: Metric<Task> = metric::<Task>(
    "mem_age_ms",
    ("MEMAGE", 7),
    Group::Memory,
    (Unit::Milliseconds, Order::Descending),
    "Age of mem_pct_by_node. Pages are sampled again when its memory has changed, and after 30 s.",
    |task, snapshot| match (task.memory(), only_node(snapshot)) {
        (_, Some(_)) if task.rss_bytes > 0 => Ok(Value::U64(0)),
        (Some((read_ns, _)), _) => Ok(Value::U64(snapshot.mono_ns.saturating_sub(*read_ns) / 1_000_000)),
        (None, _) => memory(task).map(|_| Value::U64(0)),
    },
)
.with(Traits::NONE.needs(&[Facility::Placement, Facility::PlacementError]));

/// Share of resident memory with a policy other than the default, in percent, and its error in points, where that is known.
fn own_policy(task: &Task, snapshot: &Snapshot) -> Reading<(f64, Option<f64>)> {
    if only_node(snapshot).is_some() {
        return Err(no("the machine has one node: policies change nothing"));
    }
    if let Some(pages) = task.by_policy() {
        return pages.explicit_pct().map(|(pct, error)| (pct, Some(error)));
    }
    match task.policies() {
        Some((_, Ok(bytes))) if bytes.all_bytes > 0 => {
            Ok((bytes.own_bytes.min(bytes.all_bytes) as f64 * 100.0 / bytes.all_bytes as f64, None))
        }
        Some((_, Ok(_))) => Err(no("none of its pages was found")),
        Some((_, Err(missing))) => Err(missing.clone()),
        None => memory(task).and_then(|_| Err(no("memory policies of its mappings have not been read"))),
    }
}

pub const OWN_POLICY_PCT: Metric<Task> = metric::<Task>(
    "own_policy_pct",
    ("OWNPOL", 6),
    Group::Memory,
    (Unit::Percent, Order::Descending),
    "Share of its resident memory with an explicit memory policy: set by mbind(2), by set_mempolicy(2), or \
     for shared memory. It uses the same pages as mem_pct_by_node; own_policy_error_points is the error. \
     Without a BPF iterator over mappings, the source is /proc/PID/numa_maps. Only processes below 16 GiB \
     with 20 % of their memory on other nodes then have a value.",
    |task, snapshot| own_policy(task, snapshot).map(|(pct, _)| Value::F64(pct)),
)
.over(Over::Level)
.with(Traits::NONE.needs(&[Facility::MappingPolicies]));

pub const OWN_POLICY_ERROR_POINTS: Metric<Task> = metric::<Task>(
    "own_policy_error_points",
    ("OWNERR", 6),
    Group::Memory,
    (Unit::Percent, Order::Descending),
    "Error of own_policy_pct (95 % confidence), in percentage points.",
    |task, snapshot| match own_policy(task, snapshot)? {
        (_, Some(error)) => Ok(Value::F64(error)),
        (_, None) => Ok(Value::F64(0.0)),
    },
)
.over(Over::Level)
.with(Traits::NONE.needs(&[Facility::MappingPolicies]));

pub const HUGETLB_BYTES: Metric<Task> = metric::<Task>(
    "hugetlb_bytes",
    ("HUGETLB", 8),
    Group::Memory,
    (Unit::Bytes, Order::Descending),
    "Memory in hugetlbfs pages, which RSS excludes, from /proc/PID/numa_maps. Read together with own_policy_pct, \
     for the same processes.",
    |task, snapshot| match (task.policies(), only_node(snapshot)) {
        (_, Some(_)) => Err(no("the machine has one node, so there are no other pools")),
        (None, None) if task.by_policy().is_some_and(|pages| pages.huge == 0) => Ok(Value::U64(0)),
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

fn best(snapshot: &Snapshot, remote: Reading<Remote>) -> Reading<Value> {
    if only_node(snapshot).is_some() {
        return Ok(Value::F64(0.0));
    }
    remote?.best_pct().map(Value::F64).ok_or_else(|| no("CPU time and memory by node are needed"))
}

const PCT_HELP: &str = "Share of its memory accesses that leave the node it runs on. A mark shows the \
                        source. =: counted by the CPU. ~: sampled (--access). time: share of the time at \
                        memory accesses, from the same samples. mem: estimated from CPU time and memory by \
                        node, as if all pages were used equally (range: remote_low_pct to remote_high_pct). \
                        hint: from hinting faults. ?: unknown. With one node it is 0. Sorting weights it by \
                        CPU time; it is dim below 16 MiB of resident memory (--dim-below).";
const SOURCE_HELP: &str = "Source of remote_pct. counted: RMA and LMA. sampled: by access, with --access. \
                           sampled_time: the same samples by time, which is higher, because remote accesses take \
                           longer. placement: CPU time and memory by node. hinting: hinting faults, if its memory \
                           could not be located; unreliable, see hint_remote_pct. one_node: the machine has one \
                           node.";
const ERROR_HELP: &str = "Error of remote_pct, in percentage points: the distance to the farther of remote_low_pct \
                          and remote_high_pct. 0 if counted; with 95 % confidence if sampled.";
const LOW_HELP: &str = "Lower bound of the share of remote accesses. With sampled_time, samples without an address \
                        count as local. With placement, its hottest pages (1 %, at least 1 MiB) are assumed to be \
                        as local as possible.";
const HIGH_HELP: &str = "Upper bound of the share of remote accesses. With sampled_time, samples without an \
                         address count as remote. With placement, its hottest pages (1 %, at least 1 MiB) are \
                         assumed to be as remote as possible.";
const BEST_HELP: &str = "The lowest remote_pct that placement could reach on an otherwise idle machine: 0 if one \
                         node has enough CPUs and memory. Assumes that all pages are used equally.";

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
    (|node: &Node| node.on_cpus.busy_ns),
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
    "Memory charged to it and to groups below it, by node, exact (memory.numa_stat): page cache included.",
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
