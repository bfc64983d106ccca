//! Selection of rows that user space applies, their order, and the processes whose accesses are worth sampling. Pure.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};

use regex_lite::Regex;

use crate::metric::placement::{Basis, remote_by_source};
use crate::metric::{Metric, Order, Value};
use crate::model::process::ProcessId;
use crate::model::sample::{Comm, Reading};
use crate::model::units::NodeId;
use crate::snapshot::{Snapshot, Task};
use crate::text;

/// Rows to keep. The scope (pid, tid, uid, cgroup) is applied in the kernel and is not repeated here.
#[derive(Clone, Debug, Default)]
pub struct RowFilter {
    /// Must match the name of the task, in the form on the screen.
    pub comm: Option<Regex>,
    /// Ran on this node in the interval; or lives there, if it rested.
    pub node: Option<NodeId>,
    /// At most this many rows, after sorting.
    pub top: Option<usize>,
}

impl RowFilter {
    /// True when `task` is to be shown.
    pub fn keeps(&self, task: &Task) -> bool {
        self.matches(&task.raw.comm) && self.node.is_none_or(|node| touches(task, node))
    }

    /// True when something that is known by its name alone is to be shown.
    pub fn keeps_name(&self, comm: &Comm) -> bool {
        self.matches(comm) && self.node.is_none()
    }

    /// True if the filter can leave out rows.
    pub fn is_restricted(&self) -> bool {
        self.comm.is_some() || self.node.is_some()
    }

    fn matches(&self, comm: &Comm) -> bool {
        self.comm.as_ref().is_none_or(|regex| regex.is_match(&text::clean(comm.bytes())))
    }
}

fn touches(task: &Task, node: NodeId) -> bool {
    if task.run_ns() > 0 {
        return task.delta.run_ns.get(node.index()).is_some_and(|ns| *ns > 0);
    }
    task.home_node() == Some(node)
}

/// The sort key of a row, worked out once: comparing ten thousand rows must not look into each again.
/// Fields count in their order.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Rank<T> {
    key: SortKey,
    tie: T,
    /// Index of the row.
    at: usize,
}

/// Sorts by the results of `value`, in the metric's order or reversed. Rows without a value come last; rows
/// with equal values keep their order.
pub fn sort_rows<T>(rows: &mut [T], value: impl Fn(&T) -> Reading<Value>, order: Order, reversed: bool) {
    let descending = (order == Order::Descending) != reversed;
    rows.sort_by_cached_key(|row| SortKey::new(value(row), descending));
}

/// Rows without a value come last, whatever the direction.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum SortKey {
    Number(u64),
    Text(String),
    TextFromTheEnd(Reverse<String>),
    Missing,
}

impl SortKey {
    fn new(value: Reading<Value>, descending: bool) -> SortKey {
        match value {
            Err(_) => SortKey::Missing,
            Ok(Value::Text(text)) if descending => SortKey::TextFromTheEnd(Reverse(text)),
            Ok(Value::Text(text)) => SortKey::Text(text),
            Ok(value) => {
                let bits = ordered_bits(value.rank().unwrap_or(f64::NEG_INFINITY));
                SortKey::Number(if descending { !bits } else { bits })
            }
        }
    }
}

/// A whole number for each floating-point number, in the same order (IEEE 754 totalOrder).
fn ordered_bits(number: f64) -> u64 {
    let bits = number.to_bits();
    if number.is_sign_negative() { !bits } else { bits | 1 << 63 }
}

/// Indexes into `snapshot.tasks` of the rows that `filter` keeps, sorted by `metric` in its natural
/// order (or reversed). Rows without a value come last; ties are in the order of [`Task::tie`].
pub fn select(snapshot: &Snapshot, filter: &RowFilter, metric: &Metric<Task>, reversed: bool) -> Vec<usize> {
    let ranks = ranks(&snapshot.tasks, |task| filter.keeps(task), snapshot, metric, reversed, Task::tie);
    sorted(ranks, filter.top)
}

/// Indexes of the `rows` that `keeps` keeps, sorted by `metric` in its natural order (or reversed). Rows without a value
/// come last; ties are in the order of `tie`, then of `rows`.
pub fn order<R, T: Ord>(
    rows: &[R],
    keeps: impl Fn(&R) -> bool,
    snapshot: &Snapshot,
    metric: &Metric<R>,
    reversed: bool,
    tie: impl Fn(&R) -> T,
) -> Vec<usize> {
    sorted(ranks(rows, keeps, snapshot, metric, reversed, tie), None)
}

fn ranks<R, T: Ord>(
    rows: &[R],
    keeps: impl Fn(&R) -> bool,
    snapshot: &Snapshot,
    metric: &Metric<R>,
    reversed: bool,
    tie: impl Fn(&R) -> T,
) -> Vec<Rank<T>> {
    let descending = (metric.order == Order::Descending) != reversed;
    // Asked once, not for each row.
    let measured = snapshot.host_missing(metric.missing_as()).is_none();
    let rank = |(at, row): (usize, &R)| Rank {
        key: if measured {
            SortKey::new((metric.value)(row, snapshot), descending)
        } else {
            SortKey::Missing
        },
        tie: tie(row),
        at,
    };
    rows.iter().enumerate().filter(|(_, row)| keeps(row)).map(rank).collect()
}

/// The first `top` of them, or all.
fn sorted<T: Ord>(mut ranks: Vec<Rank<T>>, top: Option<usize>) -> Vec<usize> {
    if let Some(top) = top.filter(|top| *top < ranks.len()) {
        ranks.select_nth_unstable(top);
        ranks.truncate(top);
    }
    ranks.sort_unstable();
    ranks.into_iter().map(|rank| rank.at).collect()
}

/// CPU time, as a share of one CPU, below which ten seconds hold too few samples for a share: a hundred at 97 a second.
const LEAST_CPU: f64 = 0.1;

/// CPU time that a row may have spent at accesses to other nodes, at most, in ns. 0 if the CPU counts them,
/// if all memory is near, and if nothing is known yet.
///
/// Samples are left out: with them a row would be worth less, lose its place, and then be worth more again.
fn worth_ns(task: &Task, snapshot: &Snapshot) -> f64 {
    let sources = remote_by_source(task, snapshot);
    if sources.iter().any(|share| share.basis == Basis::Counted) {
        return 0.0;
    }
    let placed = sources.iter().find(|share| share.basis == Basis::Placement);
    placed.map_or(0.0, |share| share.range.1 / 100.0 * task.run_ns() as f64)
}

/// Processes to sample, the most important one first: the one in the details, the ones that findings ask about, and
/// the ones in `in_view` with most time at possibly remote accesses.
pub fn worth_sampling(
    snapshot: &Snapshot,
    details: Option<ProcessId>,
    findings: &[ProcessId],
    in_view: &[ProcessId],
) -> Vec<ProcessId> {
    let least_ns = LEAST_CPU * snapshot.interval_ns.unwrap_or(u64::MAX) as f64;
    let in_view: HashSet<&ProcessId> = in_view.iter().collect();
    let mut worth: BTreeMap<ProcessId, (f64, u64)> = BTreeMap::new();
    // Most rows are idle: they are worth nothing, and the row alone shows it.
    for task in snapshot.tasks.iter().filter(|task| task.run_ns() > 0) {
        if task.exited || task.raw.kthread {
            continue;
        }
        let process = task.raw.process();
        if in_view.contains(&process) {
            let (worth_of_all, ran_ns) = worth.entry(process).or_default();
            // Rows may be threads.
            *worth_of_all += worth_ns(task, snapshot);
            *ran_ns += task.run_ns();
        }
    }
    let mut rows: Vec<(ProcessId, f64)> = worth
        .into_iter()
        .filter(|(_, (worth, ran_ns))| *worth > 0.0 && *ran_ns as f64 >= least_ns)
        .map(|(process, (worth, _))| (process, worth))
        .collect();
    rows.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut wanted: Vec<ProcessId> = Vec::new();
    for process in details.into_iter().chain(findings.iter().copied()).chain(rows.iter().map(|row| row.0)) {
        if !wanted.contains(&process) {
            wanted.push(process);
        }
    }
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::sample::Missing;

    #[test]
    fn keys_sort_as_their_values_and_missing_ones_last() {
        let keys = |descending: bool| {
            [-1.5, 0.0, 2.0, 1e300].map(|number| SortKey::new(Ok(Value::F64(number)), descending))
        };
        assert!(keys(false).is_sorted());
        assert!(keys(true).iter().rev().is_sorted());
        for descending in [false, true] {
            let missing = SortKey::new(Err(Missing::FirstInterval), descending);
            let text = SortKey::new(Ok(Value::Text("z".into())), descending);
            assert!(text < missing && keys(descending).iter().all(|key| *key < missing));
        }
        assert!(
            SortKey::new(Ok(Value::Text("b".into())), true) < SortKey::new(Ok(Value::Text("a".into())), true)
        );
    }
}
