//! Which rows are shown, and in which order: the part of a selection that user space decides.

use regex_lite::Regex;

use crate::metric::{Metric, Order, Value};
use crate::sample::Reading;
use crate::snapshot::{Snapshot, Task};
use crate::text;
use crate::units::Nid;

/// Rows to keep. The scope (pid, tid, uid, cgroup) is applied in the kernel and is not repeated here.
#[derive(Clone, Debug, Default)]
pub struct RowFilter {
    /// Must match the name of the task, as it is shown.
    pub comm: Option<Regex>,
    /// Ran on this node in the interval; or lives there, if it rested.
    pub node: Option<Nid>,
    /// At most this many rows, after sorting.
    pub top: Option<usize>,
}

impl RowFilter {
    /// True when `task` is to be shown.
    pub fn keeps(&self, task: &Task) -> bool {
        self.comm.as_ref().is_none_or(|regex| regex.is_match(&text::clean(task.raw.comm.bytes())))
            && self.node.is_none_or(|node| touches(task, node))
    }
}

fn touches(task: &Task, node: Nid) -> bool {
    if task.run_ns() > 0 {
        return task.delta.run_ns.get(node.index()).is_some_and(|ns| *ns > 0);
    }
    task.home_node() == Some(node)
}

/// Indexes into `snapshot.tasks` of the rows that `filter` keeps, sorted by `metric` in its natural
/// order (or reversed). Rows without a value come last; ties go to the busier, then the older task,
/// so that a screen does not flicker.
pub fn select(snapshot: &Snapshot, filter: &RowFilter, metric: &Metric<Task>, reversed: bool) -> Vec<usize> {
    let mut keyed: Vec<(usize, Reading<Value>)> = (0..snapshot.tasks.len())
        .filter(|at| filter.keeps(&snapshot.tasks[*at]))
        .map(|at| (at, metric.read(&snapshot.tasks[at], snapshot)))
        .collect();
    let descending = (metric.order == Order::Descending) != reversed;
    let age = |at: usize| {
        let task = &snapshot.tasks[at];
        (std::cmp::Reverse(task.total.cpu_ns()), task.raw.pid, task.raw.tid, task.raw.serial)
    };
    keyed.sort_by(|(a, va), (b, vb)| {
        let by_value = match (va, vb) {
            (Ok(va), Ok(vb)) if descending => compare(vb, va),
            (Ok(va), Ok(vb)) => compare(va, vb),
            (Ok(_), Err(_)) => std::cmp::Ordering::Less,
            (Err(_), Ok(_)) => std::cmp::Ordering::Greater,
            (Err(_), Err(_)) => std::cmp::Ordering::Equal,
        };
        by_value.then_with(|| age(*a).cmp(&age(*b)))
    });
    keyed.truncate(filter.top.unwrap_or(usize::MAX));
    keyed.into_iter().map(|(at, _)| at).collect()
}

/// Sorts by what `value` gives, in the metric's order or reversed; rows without a value come last, others
/// with the same value stay as they are.
pub fn sort_rows<T>(rows: &mut [T], value: impl Fn(&T) -> Option<Value>, order: Order, reversed: bool) {
    let descending = (order == Order::Descending) != reversed;
    rows.sort_by(|a, b| match (value(a), value(b)) {
        (Some(a), Some(b)) if descending => compare(&b, &a),
        (Some(a), Some(b)) => compare(&a, &b),
        (a, b) => b.is_some().cmp(&a.is_some()),
    });
}

/// Text by letters, everything else by number.
pub fn compare(a: &Value, b: &Value) -> std::cmp::Ordering {
    match (a, b) {
        (Value::Text(a), Value::Text(b)) => a.cmp(b),
        (a, b) => a.number().unwrap_or(f64::NEG_INFINITY).total_cmp(&b.number().unwrap_or(f64::NEG_INFINITY)),
    }
}
