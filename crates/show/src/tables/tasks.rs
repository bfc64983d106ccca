//! Tables of tasks: processes or threads, and each of them by node.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use super::cells::RowGroup;
use super::column::{Cell, Column, Get, columns};
use super::interval::Interval;
use crate::metric::amounts::{self, AmountRow, ROW_AMOUNTS, RowAmount};
use crate::metric::over::Located;
use crate::metric::{Value, accelerators, disks, events, identity, placement};
use crate::model::counters::Counter;
use crate::model::disks::DiskUse;
use crate::model::event::Role;
use crate::model::group::Group;
use crate::model::traffic::total;
use crate::model::wire::NodeCounts;
use crate::snapshot::Task;
use crate::text::{clean, clean_str};

/// A task in the interval.
pub(super) struct TaskRow {
    interval: Arc<Interval>,
    at: usize,
    located: Option<Located>,
}

impl TaskRow {
    fn task(&self) -> &Task {
        &self.interval.snapshot.tasks[self.at]
    }

    fn group(&self) -> Option<&Group> {
        self.interval.snapshot.names.groups.get(&self.task().raw.cgroup_id).map(Arc::as_ref)
    }

    /// An amount of [`AMOUNTS`].
    fn amount(&self, at: usize) -> Option<i64> {
        AMOUNTS[at].value(self.interval.now(AmountRow::Task(self.task()), self.located)).cell()
    }

    /// A sum over all disks; empty of threads, and where it is not counted.
    fn disk(&self, of: fn(&DiskUse) -> u64) -> Option<u64> {
        let snapshot = &self.interval.snapshot;
        disks::PROCESS_BYTES_PER_S.read(self.task(), snapshot).ok()?;
        Some(of(&total(disks::traffic(self.task(), snapshot).ok()?.values())))
    }

    fn remote_source(&self) -> Option<String> {
        self.located?;
        match placement::REMOTE_SOURCE.read(self.task(), &self.interval.snapshot) {
            Ok(Value::Text(source)) => Some(source),
            _ => None,
        }
    }
}

columns! {
    FIRST of TaskRow: row => {
        "pid" Int row.task().raw.pid;
        "start_ns" Int row.task().raw.leader_start_ns;
        "tid" Int row.task().tid;
        "comm" Text clean(row.task().raw.comm.bytes());
        "user" Text row.interval.text(&identity::USER, row.task());
        "cgroup" Text row.interval.text(&identity::CGROUP, row.task());
        "container" Text row.interval.text(&identity::CONTAINER, row.task());
        "pod" Text row.interval.text(&identity::POD, row.task());
        "namespace" Text row.group().and_then(|group| group.namespace.as_deref());
        "threads" Int row.task().threads;
    }
}

columns! {
    SOURCE of TaskRow: row => {
        "remote_source" Text row.remote_source();
    }
}

columns! {
    LAST of TaskRow: row => {
        "rss_bytes" Int (!row.task().exited).then_some(row.task().rss_bytes);
        "home_node" Int row.task().home_node().map(|node| node.0);
        "disk_bytes" Int row.disk(|used| used.bytes);
        "disk_requests" Int row.disk(|used| used.requests);
        "accelerators" Text row.interval.text(&accelerators::ACCELERATORS, row.task());
        "accelerator_nodes" Text row.interval.text(&accelerators::ACCELERATOR_NODES, row.task());
        "exited" Flag row.task().ended();
    }
}

/// Amounts of tasks; counters without a line of their own stand last.
static AMOUNTS: LazyLock<Vec<RowAmount>> = LazyLock::new(|| {
    let of_tasks = ROW_AMOUNTS.iter().filter(|amount| amount.is_of_tasks());
    of_tasks.copied().chain(amounts::others()).collect()
});

/// All columns.
pub(super) static TASKS: LazyLock<Vec<Column<TaskRow>>> = LazyLock::new(|| {
    let others = AMOUNTS.len() - amounts::others().count();
    let mut all: Vec<Column<TaskRow>> = FIRST.to_vec();
    for (at, amount) in AMOUNTS.iter().enumerate() {
        if at == others {
            all.extend_from_slice(LAST);
        }
        all.push(Column { name: amount.column, get: Get::Listed(TaskRow::amount, at) });
        if amount.column == "remote_best_ns" {
            all.extend_from_slice(SOURCE);
        }
    }
    all
});

/// A task on a node.
pub(super) struct TaskNodeRow {
    task: Arc<TaskRow>,
    node: usize,
    run_ns: u64,
    cycles: Option<f64>,
    instructions: Option<f64>,
    pages: Option<u64>,
    mem_bytes: Option<f64>,
}

columns! {
    pub(super) TASK_NODES of TaskNodeRow: row => {
        "pid" Int row.task.task().raw.pid;
        "start_ns" Int row.task.task().raw.leader_start_ns;
        "tid" Int row.task.task().tid;
        "node" Int row.node;
        "run_ns" Int row.run_ns;
        "cycles" Int row.cycles;
        "instructions" Int row.instructions;
        "alloc_pages" Int row.pages;
        "mem_bytes" Int row.mem_bytes;
    }
}

/// An event of a task.
pub(super) struct EventRow {
    task: Arc<TaskRow>,
    /// The place of its name in the host's list.
    at: usize,
    count: f64,
}

columns! {
    pub(super) EVENTS of EventRow: row => {
        "pid" Int row.task.task().raw.pid;
        "start_ns" Int row.task.task().raw.leader_start_ns;
        "tid" Int row.task.task().tid;
        "comm" Text clean(row.task.task().raw.comm.bytes());
        "event" Text clean_str(&row.task.interval.snapshot.host.asked[row.at]);
        "count" Int row.count;
    }
}

/// Whether a task has a row: it ran, waited or ended in the interval. The sum of ended threads of a live process is no task that
/// ends.
fn is_busy(task: &Task) -> bool {
    let ends = task.exited && (task.raw.tid != 0 || task.tid.is_none());
    ends || task.run_ns() > 0 || task.delta[Counter::RunDelayNs] > 0
}

/// Adds the rows of an interval to the tables that are wanted; `all`: of tasks that rested, too.
pub(super) fn add(
    interval: &Arc<Interval>,
    located: &[Option<Located>],
    all: bool,
    (mut tasks, mut nodes, mut of_events): (
        Option<&mut RowGroup>,
        Option<&mut RowGroup>,
        Option<&mut RowGroup>,
    ),
) {
    for (at, task) in interval.snapshot.tasks.iter().enumerate().filter(|(_, task)| all || is_busy(task)) {
        let located = located.get(at).copied().flatten();
        let row = Arc::new(TaskRow { interval: Arc::clone(interval), at, located });
        if let Some(tasks) = &mut tasks {
            tasks.push(&interval.stamp, &TASKS, &*row);
        }
        if let Some(nodes) = &mut nodes {
            by_node(&row, task, |of_node| nodes.push(&interval.stamp, TASK_NODES, &of_node));
        }
        if let Some(of_events) = &mut of_events {
            for (at, name) in interval.snapshot.host.asked.iter().enumerate() {
                let Ok(count) = events::count(name, task, &interval.snapshot) else { continue };
                of_events.push(&interval.stamp, EVENTS, &EventRow { task: Arc::clone(&row), at, count });
            }
        }
    }
}

/// Gives the rows of a task by node: where it ran, was given pages or has memory.
fn by_node(row: &Arc<TaskRow>, task: &Task, mut give: impl FnMut(TaskNodeRow)) {
    let interval = &row.interval;
    let mem_bytes = interval.by_node(&placement::MEM_BYTES_BY_NODE, task);
    let pages_known = interval.counter(task, Counter::UserAllocs).is_some() && !task.delta.pages.is_empty();
    let ran_on = task.delta.run_ns.iter().filter(|ns| **ns > 0).count();
    let split = |role, of: fn(&NodeCounts) -> u64| {
        let all = amounts::events(&task.delta.slots, &interval.snapshot, role);
        Split::new(all, &task.delta.by_node, of, ran_on)
    };
    let cycles = split(Role::Cycles, |counts| counts.cycles);
    let instructions = split(Role::Instructions, |counts| counts.instructions);
    let last = mem_bytes.iter().flat_map(BTreeMap::keys).next_back().map_or(0, |last| *last as usize + 1);
    let most = task.delta.run_ns.len().max(task.delta.pages.len()).max(last);
    for node in 0..most {
        let run_ns = task.delta.run_ns.get(node).copied().unwrap_or(0);
        let pages = task.delta.pages.get(node).copied().unwrap_or(0);
        let bytes = mem_bytes.as_ref().map(|bytes| bytes.get(&(node as u32)).copied().unwrap_or(0.0));
        if run_ns == 0 && pages == 0 && bytes.is_none_or(|bytes| bytes <= 0.0) {
            continue;
        }
        give(TaskNodeRow {
            task: Arc::clone(row),
            node,
            run_ns,
            cycles: cycles.on(node, run_ns),
            instructions: instructions.on(node, run_ns),
            pages: pages_known.then_some(pages),
            mem_bytes: bytes,
        });
    }
}

/// A count by node. Where counters took turns, parts are scaled as their sum is.
struct Split<'a> {
    all: Option<f64>,
    parts: &'a [NodeCounts],
    of: fn(&NodeCounts) -> u64,
    sum: f64,
    /// All of its time is on one node.
    only_one: bool,
}

impl<'a> Split<'a> {
    fn new(
        all: Option<f64>,
        parts: &'a [NodeCounts],
        of: fn(&NodeCounts) -> u64,
        ran_on: usize,
    ) -> Split<'a> {
        Split {
            all,
            parts,
            of,
            sum: parts.iter().map(|counts| of(counts) as f64).sum(),
            only_one: ran_on == 1,
        }
    }

    fn on(&self, node: usize, run_ns: u64) -> Option<f64> {
        let all = self.all?;
        if run_ns == 0 {
            return Some(0.0);
        }
        if self.only_one {
            return Some(all);
        }
        let part = (self.of)(self.parts.get(node)?) as f64;
        Some(if self.sum > 0.0 { all * part / self.sum } else { 0.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_count_add_up_to_it() {
        let counts = [(10, 5), (30, 0)].map(|(cycles, instructions)| NodeCounts { cycles, instructions });
        // Counters took turns: the estimate is twice the count.
        let cycles = Split::new(Some(80.0), &counts, |counts| counts.cycles, 2);
        assert_eq!((cycles.on(0, 7), cycles.on(1, 7), cycles.on(2, 7)), (Some(20.0), Some(60.0), None));
        assert_eq!(cycles.on(0, 0), Some(0.0), "it did not run there");
        let only = Split::new(Some(80.0), &[], |counts| counts.cycles, 1);
        assert_eq!(only.on(3, 7), Some(80.0));
        assert_eq!(Split::new(None, &counts, |counts| counts.cycles, 1).on(0, 7), None, "not counted");
    }
}
