//! The metrics of pages that tasks are given, on their own or another node, and of pages that are moved for them.

use super::over::{self, Better, Over, Quotient};
use super::{Group, Metric, Order, Several, Traits, Unit, Value};
use crate::model::counters::Counter;
use crate::model::facility::Facility;
use crate::model::sample::{Counts, Missing, Reading};
use crate::snapshot::{Snapshot, Task};

pub const ALLOC_PCT_BY_NODE: Metric<Task> = Metric {
    id: "alloc_pct_by_node",
    title: "NEW BY NODE",
    width: 11,
    group: Group::Memory,
    unit: Unit::Percent,
    order: Order::Descending,
    help: "Nodes of the pages allocated for it in the interval, for its own memory or the page cache. \
           Moved huge pages, and pages moved by mbind(2), count again at their new node; kernel memory and \
           hugetlbfs do not count.",
    value: |task, _| by_node(&task.delta).map(over::values).map(Value::ByNode),
    over: Over::ByNode(|task, _| by_node(&task.delta)),
    traits: Traits::NONE.needs(&[Facility::NewPages]),
};

pub const CROSS_NODE_FAULTS: Metric<Task> = Metric::memory_rate(
    "cross_node_faults_per_s",
    "XFLT/s",
    7,
    "Allocations of user pages from a node other than the one it ran on: page faults, large pages as one, \
           and reads into the page cache. Faults that find their page in memory do not count.",
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
    "Pages that were moved while it ran: by NUMA balancing at its hinting faults, at its request \
           (move_pages, mbind), or to make room for large pages.",
    |task, snapshot| snapshot.rate(task.delta[Counter::MigratedPages]).map(Value::F64),
)
.with(Traits::NONE.needs(&[Facility::MovedPages]).several(Several::Nodes).better(Better::Low));

pub const PAGES_MIGRATE_FAILED: Metric<Task> = Metric::memory_rate(
    "pages_migrate_failed_per_s",
    "PGFAIL/s",
    8,
    "Pages that could not be moved: busy, pinned, or no room at the target.",
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
