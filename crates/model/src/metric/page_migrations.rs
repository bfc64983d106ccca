//! The metrics of pages that are moved: what for, from where and to where.

use super::{Group, Metric, Order, Several, Traits, Unit, Value, pages};
use crate::model::counters::Counter;
use crate::model::facility::Facility;
use crate::model::sample::Reading;
use crate::snapshot::{Node, Snapshot, Task};

pub const BALANCING: Metric<Task> = Metric::memory_rate(
    "pages_migrated_balancing_per_s",
    "PGBAL/s",
    7,
    "Of pages_migrated_per_s, those that NUMA balancing moved to the node that uses them, at hinting faults.",
    |task, snapshot| snapshot.rate(task.delta[Counter::BalancedPages]).map(Value::F64),
)
.with(Traits::NONE.needs(&[Facility::MovedPages, Facility::MoveReasons]));

pub const ASKED: Metric<Task> = Metric::memory_rate(
    "pages_migrated_asked_per_s",
    "PGASK/s",
    7,
    "Of pages_migrated_per_s, those moved by move_pages, migrate_pages or mbind, its own pages or another \
           process's, or because the nodes of a cpuset changed.",
    |task, snapshot| snapshot.rate(task.delta[Counter::AskedPages]).map(Value::F64),
)
.with(Traits::NONE.needs(&[Facility::MovedPages, Facility::MoveReasons]));

pub const OTHER: Metric<Task> = Metric::memory_rate(
    "pages_migrated_other_per_s",
    "PGOTH/s",
    7,
    "Of pages_migrated_per_s, all others: compaction for large pages, demotion to slower memory, pinned, \
           failing or removed memory.",
    |task, snapshot| {
        let delta = &task.delta;
        let known = delta[Counter::BalancedPages].saturating_add(delta[Counter::AskedPages]);
        snapshot.rate(delta[Counter::MigratedPages].saturating_sub(known)).map(Value::F64)
    },
)
.with(Traits::NONE.needs(&[Facility::MovedPages, Facility::MoveReasons]));

/// Sums over the rows of all tasks: for the host.
pub fn of_host(snapshot: &Snapshot) -> impl Iterator<Item = (&'static str, Reading<f64>)> + '_ {
    let metrics = [pages::PAGES_MIGRATED, pages::PAGES_MIGRATE_FAILED, BALANCING, ASKED, OTHER];
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

pub const PAGES_IN: Metric<Node> = node(
    "pages_in_per_s",
    "IN/s",
    "Pages that NUMA balancing moved to the node, because it uses them; x shows from where.",
    |node, snapshot| snapshot.rate(node.counts.pages_in).map(Value::F64),
)
.with(
    Traits::NONE
        .needs(&[Facility::NumaFields, Facility::MovedPages, Facility::PageFlows])
        .several(Several::Nodes),
);

pub const PAGES_OUT: Metric<Node> = node(
    "pages_out_per_s",
    "OUT/s",
    "Pages that NUMA balancing moved off the node, because another uses them; x shows to where.",
    |node, snapshot| snapshot.rate(node.counts.pages_out).map(Value::F64),
)
.with(
    Traits::NONE
        .needs(&[Facility::NumaFields, Facility::MovedPages, Facility::PageFlows])
        .several(Several::Nodes),
);

const fn node(
    id: &'static str,
    title: &'static str,
    help: &'static str,
    value: fn(&Node, &Snapshot) -> Reading<Value>,
) -> Metric<Node> {
    let kind = (Group::Node, Unit::PerSecond, Order::Descending);
    Metric::new(id, (title, 7), kind, help, value)
}
