//! The metrics of pages that tasks are given, on their own or another node, and of pages that are moved: what for, from where and
//! to where.

use super::over::{self, Better, Over, Quotient};
use super::{Group, Metric, Order, Several, Traits, Unit, Value};
use crate::model::counters::Counter;
use crate::model::facility::Facility;
use crate::model::sample::{Counts, Missing, Reading};
use crate::snapshot::{Node, Snapshot, Task};

pub const ALLOC_PCT_BY_NODE: Metric<Task> = Metric {
    id: "alloc_pct_by_node",
    title: "NEW BY NODE",
    width: 11,
    group: Group::Memory,
    unit: Unit::Percent,
    order: Order::Descending,
    help: "Nodes of the pages allocated for it in the interval, for its own memory or the page cache. Moved huge \
           pages, and pages moved by mbind(2), count again at their new node; kernel memory and hugetlbfs do not \
           count.",
    value: |task, _| by_node(&task.delta).map(over::values).map(Value::ByNode),
    over: Over::ByNode(|task, _| by_node(&task.delta)),
    traits: Traits::NONE.needs(&[Facility::NewPages]),
};

pub const CROSS_NODE_FAULTS: Metric<Task> = Metric::memory_rate(
    "cross_node_faults_per_s",
    "XFLT/s",
    7,
    "Allocations of user pages from a node other than the one it ran on: page faults, and reads into the page \
     cache. A large page counts once. Faults that find their page in memory do not count.",
    |task, snapshot| snapshot.rate(task.delta[Counter::CrossAllocs]).map(Value::F64),
)
.with(Traits::NONE.needs(&[Facility::NewPages]).several(Several::Nodes).better(Better::Low));

pub const CROSS_NODE_FAULT_PCT: Metric<Task> = Metric {
    id: "cross_node_fault_pct",
    title: "XFLT%",
    width: 5,
    group: Group::Memory,
    unit: Unit::Percent,
    order: Order::Descending,
    help: "Share of its allocations of user pages from a node other than the one it ran on.",
    value: |task, snapshot| cross_node(task, snapshot).map(Quotient::value).map(Value::F64),
    over: Over::Quotient(cross_node),
    traits: Traits::NONE.needs(&[Facility::NewPages]).better(Better::Low),
};

pub const PAGES_MIGRATED: Metric<Task> = Metric::memory_rate(
    "pages_migrated_per_s",
    "PGMIG/s",
    7,
    "Pages moved while the task ran: by NUMA balancing at hinting faults, at its request (move_pages, mbind), or to make room for large pages.",
    |task, snapshot| snapshot.rate(task.delta[Counter::MigratedPages]).map(Value::F64),
)
.with(Traits::NONE.needs(&[Facility::MovedPages]).several(Several::Nodes).better(Better::Low));

pub const PAGES_MIGRATE_FAILED: Metric<Task> = Metric::memory_rate(
    "pages_migrate_failed_per_s",
    "PGFAIL/s",
    8,
    "Pages that could not be moved: busy or pinned, or the target node had no room.",
    |task, snapshot| snapshot.rate(task.delta[Counter::MigrateFailedPages]).map(Value::F64),
)
.with(Traits::NONE.needs(&[Facility::MovedPages]).better(Better::Low));

fn cross_node(task: &Task, snapshot: &Snapshot) -> Reading<Quotient> {
    snapshot.rate(0)?;
    match task.delta[Counter::UserAllocs] {
        0 => Err(none()),
        all => Ok(Quotient::pct(task.delta[Counter::CrossAllocs] as f64, all as f64)),
    }
}

fn by_node(delta: &Counts) -> Reading<over::ByNode> {
    let shares = over::shares(&delta.pages);
    if shares.is_empty() { Err(none()) } else { Ok(shares) }
}

fn none() -> Missing {
    Missing::NotCollected("no pages were allocated for it in this interval".into())
}

pub const BALANCING: Metric<Task> = Metric::memory_rate(
    "pages_migrated_balancing_per_s",
    "PGBAL/s",
    7,
    "Part of pages_migrated_per_s: pages that NUMA balancing moved at hinting faults to the node that uses \
     them.",
    |task, snapshot| snapshot.rate(task.delta[Counter::BalancedPages]).map(Value::F64),
)
.with(Traits::NONE.needs(&[Facility::MovedPages, Facility::MoveReasons]));

pub const ASKED: Metric<Task> = Metric::memory_rate(
    "pages_migrated_asked_per_s",
    "PGASK/s",
    7,
    "Part of pages_migrated_per_s: pages of this or another process moved by move_pages, migrate_pages or \
     mbind, or by a change of a cpuset's nodes.",
    |task, snapshot| snapshot.rate(task.delta[Counter::AskedPages]).map(Value::F64),
)
.with(Traits::NONE.needs(&[Facility::MovedPages, Facility::MoveReasons]));

pub const OTHER: Metric<Task> = Metric::memory_rate(
    "pages_migrated_other_per_s",
    "PGOTH/s",
    7,
    "Part of pages_migrated_per_s: pages moved for other reasons, such as compaction for large pages, \
     demotion to slower memory, and pinned, failing or removed memory.",
    |task, snapshot| {
        let delta = &task.delta;
        let known = delta[Counter::BalancedPages].saturating_add(delta[Counter::AskedPages]);
        snapshot.rate(delta[Counter::MigratedPages].saturating_sub(known)).map(Value::F64)
    },
)
.with(Traits::NONE.needs(&[Facility::MovedPages, Facility::MoveReasons]));

/// Sums over the rows of all tasks: for the host.
pub fn moves_of_host(snapshot: &Snapshot) -> impl Iterator<Item = (&'static str, Reading<f64>)> + '_ {
    let metrics = [PAGES_MIGRATED, PAGES_MIGRATE_FAILED, BALANCING, ASKED, OTHER];
    metrics.into_iter().map(|metric| {
        let add = |sum: f64, task: &Task| Ok(sum + (metric.value)(task, snapshot)?.number().unwrap_or(0.0));
        let sum = match snapshot.host_missing(metric.id) {
            Some(missing) => Err(missing.clone()),
            // Without tasks the interval still counts, or has not begun.
            None => snapshot.rate(0).and_then(|_| snapshot.tasks.iter().try_fold(0.0, add)),
        };
        (metric.id, sum)
    })
}

pub const PAGES_IN: Metric<Node> = pages_of_node(
    "pages_in_per_s",
    "IN/s",
    "Pages that NUMA balancing moved to this node, because the node uses them. Key x shows the source nodes.",
    |node, snapshot| snapshot.rate(node.counts.pages_in).map(Value::F64),
)
.with(
    Traits::NONE
        .needs(&[Facility::NumaFields, Facility::MovedPages, Facility::PageFlows])
        .several(Several::Nodes),
);

pub const PAGES_OUT: Metric<Node> = pages_of_node(
    "pages_out_per_s",
    "OUT/s",
    "Pages that NUMA balancing moved off this node, because another node uses them. Key x shows the target \
     nodes.",
    |node, snapshot| snapshot.rate(node.counts.pages_out).map(Value::F64),
)
.with(
    Traits::NONE
        .needs(&[Facility::NumaFields, Facility::MovedPages, Facility::PageFlows])
        .several(Several::Nodes),
);

const fn pages_of_node(
    id: &'static str,
    title: &'static str,
    help: &'static str,
    value: fn(&Node, &Snapshot) -> Reading<Value>,
) -> Metric<Node> {
    let kind = (Group::Node, Unit::PerSecond, Order::Descending);
    Metric::new(id, (title, 7), kind, help, value)
}
