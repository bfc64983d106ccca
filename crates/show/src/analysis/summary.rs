//! Numbers of the machine and of its nodes over many intervals: the usual, the bad and the worst. Pure.

use crate::metric::host::{self, HostMetric};
use crate::metric::{Metric, Unit, Value, node, placement, pressure};
use crate::model::units::NodeId;
use crate::snapshot::{Node, Snapshot};

/// Intervals whose numbers are kept; beyond them, every second one is dropped, except the worst.
const MOST: usize = 1 << 14;

/// Numbers of the machine, with their titles and units. CPU time is a share of all CPUs, as that of a node is.
static OF_HOST: [(&HostMetric, &str, Unit, bool); 5] = [
    (&host::BUSY, node::CPU_PCT.title, Unit::Percent, true),
    (&host::IRQ, host::IRQ.title, Unit::Percent, true),
    (&host::STEAL, host::STEAL.title, Unit::Percent, true),
    (&host::SWAP_OUT, host::SWAP_OUT.title, Unit::PerSecond, false),
    (&pressure::HOST_MEMORY_FULL, pressure::HOST_MEMORY_FULL.title, Unit::Percent, false),
];

/// Numbers of each node; whether the low ones are the bad ones.
static OF_NODE: [(&Metric<Node>, bool); 5] = [
    (&node::CPU_PCT, false),
    (&node::IPC, true),
    (&placement::NODE_REMOTE_PCT, false),
    (&node::WATERMARK_DISTANCE_PCT, true),
    (&node::NUMA_MISS_PER_S, false),
];

/// A number over all intervals that have it.
#[derive(Clone, Debug, PartialEq)]
pub struct SummaryRow {
    /// Its title, as columns have it.
    pub title: &'static str,
    /// `None` for the machine.
    pub node: Option<NodeId>,
    pub unit: Unit,
    pub median: f64,
    /// 95 of 100 intervals are no worse.
    pub p95: f64,
    pub worst: f64,
    /// Wall clock of the end of the worst interval, ns since 1970.
    pub worst_wall_ns: i64,
    pub intervals: u64,
}

/// The numbers of one row, by interval.
#[derive(Clone, Debug)]
struct Series {
    title: &'static str,
    node: Option<NodeId>,
    unit: Unit,
    low_is_bad: bool,
    kept: Vec<f64>,
    /// One interval in this many is kept.
    every: u64,
    worst: (f64, i64),
    intervals: u64,
}

impl Series {
    fn add(&mut self, value: f64, wall_ns: i64) {
        let is_worse = if self.low_is_bad { value < self.worst.0 } else { value > self.worst.0 };
        if is_worse || self.intervals == 0 {
            self.worst = (value, wall_ns);
        }
        if self.intervals.is_multiple_of(self.every) {
            self.kept.push(value);
        }
        self.intervals += 1;
        if self.kept.len() == MOST {
            let mut at = 0;
            self.kept.retain(|_| {
                at += 1;
                at % 2 == 1
            });
            self.every *= 2;
        }
    }

    fn row(&self) -> Option<SummaryRow> {
        let mut sorted = self.kept.clone();
        sorted.sort_by(f64::total_cmp);
        if self.low_is_bad {
            sorted.reverse();
        }
        let last = sorted.len().checked_sub(1)?;
        let at = |share: f64| sorted[(last as f64 * share).round() as usize];
        Some(SummaryRow {
            title: self.title,
            node: self.node,
            unit: self.unit,
            median: at(0.5),
            p95: at(0.95),
            worst: self.worst.0,
            worst_wall_ns: self.worst.1,
            intervals: self.intervals,
        })
    }
}

/// The numbers so far.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    series: Vec<Series>,
}

impl Summary {
    /// Adds an interval.
    pub fn take(&mut self, snapshot: &Snapshot) {
        if snapshot.interval_ns.is_none() {
            return;
        }
        for (metric, title, unit, is_of_cpus) in OF_HOST {
            if let Some(value) = metric.read(snapshot).ok().and_then(|value| value.number()) {
                let cpus = if is_of_cpus { snapshot.online_cpus.max(1) } else { 1 };
                let value = Value::F64(value / f64::from(cpus));
                self.add((title, None, unit, false), &value, snapshot.wall_ns);
            }
        }
        for row in &snapshot.nodes {
            for (metric, low_is_bad) in OF_NODE {
                if let Ok(value) = metric.read(row, snapshot) {
                    let what = (metric.title, Some(NodeId(row.raw.id)), metric.unit, low_is_bad);
                    self.add(what, &value, snapshot.wall_ns);
                }
            }
        }
    }

    fn add(
        &mut self,
        (title, node, unit, low_is_bad): (&'static str, Option<NodeId>, Unit, bool),
        value: &Value,
        wall_ns: i64,
    ) {
        let Some(value) = value.number().filter(|value| value.is_finite()) else { return };
        let known = self.series.iter_mut().find(|series| series.title == title && series.node == node);
        let series = match known {
            Some(series) => series,
            None => {
                let (kept, worst) = (Vec::new(), (value, wall_ns));
                let new = Series { title, node, unit, low_is_bad, kept, every: 1, worst, intervals: 0 };
                self.series.push(new);
                self.series.last_mut().expect("it was pushed above")
            }
        };
        series.add(value, wall_ns);
    }

    /// A row for each number that some interval has: the machine, then its nodes.
    pub fn rows(&self) -> Vec<SummaryRow> {
        let mut rows: Vec<SummaryRow> = self.series.iter().filter_map(Series::row).collect();
        rows.sort_by_key(|row| row.node);
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(low_is_bad: bool) -> Series {
        Series {
            title: "CPU%",
            node: None,
            unit: Unit::Percent,
            low_is_bad,
            kept: Vec::new(),
            every: 1,
            worst: (0.0, 0),
            intervals: 0,
        }
    }

    #[test]
    fn the_worst_is_the_largest_or_the_smallest() {
        for (low_is_bad, p95, worst) in [(false, 95.0, 100.0), (true, 5.0, 0.0)] {
            let mut series = series(low_is_bad);
            (0..=100).for_each(|value| series.add(f64::from(value), i64::from(value)));
            let row = series.row().unwrap();
            assert_eq!((row.median, row.p95, row.worst), (50.0, p95, worst));
            assert_eq!((row.worst_wall_ns, row.intervals), (worst as i64, 101));
        }
    }

    #[test]
    fn many_intervals_take_bounded_room_and_lose_no_worst() {
        let mut series = series(false);
        for at in 0..200_000u32 {
            let value = if at == 77_777 { 1e9 } else { f64::from(at % 1000) };
            series.add(value, i64::from(at));
        }
        let row = series.row().unwrap();
        assert!(series.kept.len() < MOST);
        assert_eq!((row.worst, row.worst_wall_ns), (1e9, 77_777));
        assert!((450.0..550.0).contains(&row.median) && (930.0..970.0).contains(&row.p95), "{row:?}");
    }

    #[test]
    fn what_nothing_has_is_no_row() {
        assert!(series(false).row().is_none());
        assert!(Summary::default().rows().is_empty());
    }
}
