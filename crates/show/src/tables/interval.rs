//! An interval for the rows of tables: the snapshot, and values computed once for all rows.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::column::Stamp;
use crate::metric::amounts::{AmountRow, Counted, RowNow};
use crate::metric::over::Located;
use crate::metric::{Metric, Value};
use crate::model::counters::Counter;
use crate::model::group::DEPTH_MAX;
use crate::model::sample::{HostFacts, Sample};
use crate::snapshot::{Snapshot, Task};
use crate::text::clean_str;

/// Losses since the start of a run, by cause.
#[derive(Clone, Debug, Default)]
pub struct Losses(BTreeMap<String, u64>);

/// The cause of CPU time that is in no row, named as in JSON; its count is nanoseconds.
const NOT_ITEMISED: &str = "exits_not_itemised_cpu_ns";

impl Losses {
    /// The losses up to this sample.
    pub fn of(sample: &Sample) -> Losses {
        let mut causes: BTreeMap<String, u64> =
            sample.lost.iter().map(|(cause, count)| (clean_str(cause), *count)).collect();
        let lost_ns = sample.exit_lost_ns.iter().fold(0, |sum: u64, ns| sum.saturating_add(*ns));
        causes.insert(NOT_ITEMISED.into(), lost_ns);
        Losses(causes)
    }

    /// Causes with losses since `before`.
    pub fn since(&self, before: &Losses) -> Vec<(String, u64)> {
        let more = |(cause, count): (&String, &u64)| {
            let count = count.saturating_sub(before.0.get(cause).copied().unwrap_or(0));
            (count > 0).then(|| (cause.clone(), count))
        };
        self.0.iter().filter_map(more).collect()
    }
}

/// A time without samples, or with samples that were not recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The reason, as far as the recording has one.
    pub why: String,
    /// Its length, ns.
    pub ns: u64,
}

/// A snapshot with values computed once for all its rows.
pub struct Interval {
    pub(super) snapshot: Snapshot,
    pub(super) stamp: Stamp,
    counted: Counted,
}

/// The first columns of rows of this host at this moment.
pub(super) fn stamp(host: &HostFacts, wall_ns: i64, interval_ns: Option<u64>) -> Stamp {
    Stamp {
        time_us: wall_ns.div_euclid(1000),
        interval_ns,
        hostname: clean_str(&host.hostname).into(),
        boot_id: clean_str(&host.boot_id).into(),
    }
}

impl Interval {
    pub(super) fn new(snapshot: Snapshot) -> Interval {
        let stamp = stamp(&snapshot.host, snapshot.wall_ns, snapshot.interval_ns);
        Interval { counted: Counted::of(&snapshot), snapshot, stamp }
    }

    /// A row of this interval.
    pub(super) fn now<'a>(&'a self, row: AmountRow<'a>, located: Option<Located>) -> RowNow<'a> {
        RowNow { row, snapshot: &self.snapshot, counted: &self.counted, located }
    }

    /// The count of a task or of a sum of tasks; `None` where it was not counted.
    pub(super) fn counter(&self, row: &Task, counter: Counter) -> Option<u64> {
        self.counted.count(row, counter)
    }

    /// The text of a metric.
    pub(super) fn text<R: 'static>(&self, metric: &Metric<R>, row: &R) -> Option<Cow<'static, str>> {
        match metric.read(row, &self.snapshot) {
            Ok(Value::Text(text)) => Some(Cow::Owned(text)),
            _ => None,
        }
    }

    /// The values of a metric by node.
    pub(super) fn by_node<R: 'static>(&self, metric: &Metric<R>, row: &R) -> Option<BTreeMap<u32, f64>> {
        match metric.read(row, &self.snapshot) {
            Ok(Value::ByNode(values)) => {
                Some(values.into_iter().map(|(node, value)| (node.0, value)).collect())
            }
            _ => None,
        }
    }
}

/// Time whose place of memory is known, of everything that is a sum of tasks.
pub(super) struct LocatedSums {
    /// By task, in their order.
    pub tasks: Vec<Option<Located>>,
    /// By node id.
    pub nodes: BTreeMap<usize, Located>,
    /// By row of containers, with those below it.
    pub containers: Vec<Option<Located>>,
}

impl LocatedSums {
    pub(super) fn of(snapshot: &Snapshot) -> LocatedSums {
        let mut sums = LocatedSums {
            tasks: Vec::with_capacity(snapshot.tasks.len()),
            nodes: BTreeMap::new(),
            containers: vec![None; snapshot.containers.len()],
        };
        let places = snapshot.containers.iter().enumerate().map(|(at, row)| (row.id, at));
        let places: BTreeMap<u64, usize> = places.collect();
        for task in &snapshot.tasks {
            let located = Located::of(task, snapshot);
            sums.tasks.push(located);
            let Some(located) = located else { continue };
            for (node, more) in located.by_node(task) {
                *sums.nodes.entry(node).or_default() += more;
            }
            let cgroup = task.raw.cgroup_id;
            let top = snapshot.names.top(cgroup);
            // A circle of groups, which only a damaged recording has, ends there, too.
            let above = |at: &usize| snapshot.containers[*at].parent;
            for at in std::iter::successors(places.get(&top).copied(), above).take(DEPTH_MAX) {
                *sums.containers[at].get_or_insert_default() += located;
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_of_an_interval_are_those_since_the_sample_before() {
        let losses = |counts: &[(&str, u64)]| {
            Losses(counts.iter().map(|(cause, count)| (cause.to_string(), *count)).collect())
        };
        let (before, after) = (losses(&[("a", 3), ("b", 7)]), losses(&[("a", 5), ("b", 7), ("c", 1)]));
        assert_eq!(after.since(&before), [("a".to_owned(), 2), ("c".to_owned(), 1)]);
        assert_eq!(before.since(&after), []);
    }
}
