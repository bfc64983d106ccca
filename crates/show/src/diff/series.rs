//! From intervals to one series of sums for each metric of each row. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::stats::Part;
use crate::entity::{By, Who, container_name, program};
use crate::metric::container::CONTAINER_METRICS;
use crate::metric::host::{HOST_METRICS, HostMetric};
use crate::metric::node::NODE_METRICS;
use crate::metric::over::{Better, Over, Quotient};
use crate::metric::task::TASK_METRICS;
use crate::metric::{Metric, Unit};
use crate::model::sample::Reading;
use crate::snapshot::{Node, Snapshot};
use crate::text::one_line;

/// Points of all series of a side together, at most. Neighbouring intervals become one beyond that, which sums allow.
pub const POINTS: f64 = 4096.0;
/// Rows of a first look at most: names come from strangers.
const ROWS_MAX: usize = 20_000;

/// A metric that can be compared.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    pub id: &'static str,
    pub unit: Unit,
    pub better: Better,
    /// Its meaning.
    pub help: &'static str,
    /// For the time in which a row is missing, the value is zero.
    of_time: bool,
}

/// Sums of one metric of a row, interval by interval.
#[derive(Clone, Debug, Default)]
struct Series {
    parts: Vec<Part>,
    /// Intervals in the last part, and in all.
    in_last: usize,
    intervals: usize,
}

impl Series {
    fn push(&mut self, part: Part, each: usize) {
        self.intervals += 1;
        match self.parts.last_mut() {
            Some(last) if self.in_last < each => {
                *last = (last.0 + part.0, last.1 + part.1);
                self.in_last += 1;
            }
            _ => {
                self.parts.push(part);
                self.in_last = 1;
            }
        }
    }
}

/// A row of one side.
#[derive(Clone, Debug, Default)]
pub struct Subject {
    /// Its CPU time, in ns.
    pub run_ns: f64,
    /// Some interval has it.
    pub seen: bool,
    series: BTreeMap<&'static str, Series>,
}

impl Subject {
    /// The series of a metric; intervals with a zero divisor are left out.
    pub fn parts(&self, metric: &str) -> Option<&Vec<Part>> {
        self.series.get(metric).map(|series| &series.parts).filter(|parts| !parts.is_empty())
    }

    /// Intervals that this series is made of.
    pub fn intervals(&self, metric: &str) -> usize {
        self.series.get(metric).map_or(0, |series| series.intervals)
    }
}

/// One recording, or one stretch of a recording.
#[derive(Clone, Debug, Default)]
pub struct Side {
    /// Ids of the metrics that are compared.
    pub wanted: BTreeSet<&'static str>,
    /// Rows that are kept; empty: all of them, without series.
    chosen: Option<BTreeSet<Who>>,
    /// Intervals that become one.
    each: usize,
    pub intervals: usize,
    /// Time of all intervals, in ns.
    pub interval_ns: f64,
    pub subjects: BTreeMap<Who, Subject>,
    /// Reasons for which metrics have no value on this side, by id.
    pub missing: BTreeMap<&'static str, String>,
}

impl Side {
    /// Counts intervals and the CPU time of all rows, so that rows can be chosen.
    pub fn first_look() -> Side {
        Side { each: 1, ..Side::default() }
    }

    /// Keeps series of these rows, in which `each` intervals become one point. Points of two sides that are compared take
    /// the same time, because their deviations are taken to live on for as many points.
    pub fn of(wanted: BTreeSet<&'static str>, chosen: BTreeSet<Who>, each: usize) -> Side {
        let subjects = chosen.iter().map(|who| (who.clone(), Subject::default())).collect();
        Side { wanted, chosen: Some(chosen), each: each.max(1), subjects, ..Side::default() }
    }

    /// Mean length of an interval, in ns.
    pub fn mean_ns(&self) -> f64 {
        self.interval_ns / self.intervals.max(1) as f64
    }

    /// The rows of a kind with the most CPU time.
    pub fn top(&self, by: By, rows: usize) -> impl Iterator<Item = &Who> {
        let mut all: Vec<(&Who, f64)> =
            self.subjects.iter().filter(|(who, _)| who.by == by).map(|(who, of)| (who, of.run_ns)).collect();
        all.sort_by(|one, two| two.1.total_cmp(&one.1).then_with(|| one.0.cmp(two.0)));
        all.into_iter().take(rows).map(|(who, _)| who)
    }

    /// Takes the next interval.
    pub fn take(&mut self, snapshot: &Snapshot) {
        let Some(interval_ns) = snapshot.interval_ns.filter(|ns| *ns > 0) else { return };
        self.intervals += 1;
        self.interval_ns += interval_ns as f64;
        for metric in &self.wanted {
            if let Some(why) = snapshot.host_missing(metric) {
                self.missing.entry(metric).or_insert_with(|| one_line(&why.to_string()));
            }
        }
        let mut rows: BTreeMap<Who, Cells> = BTreeMap::new();
        self.host(snapshot, &mut rows);
        for node in &snapshot.nodes {
            let who = Who::new(By::Node, node.raw.id.to_string());
            self.add(&mut rows, who, NODE_METRICS, (node, snapshot), node.on_cpus.busy_ns);
        }
        for row in &snapshot.containers {
            if let Some(name) = container_name(row, snapshot) {
                let who = Who::new(By::Container, name);
                self.add(&mut rows, who, CONTAINER_METRICS, (row, snapshot), row.sum.run_ns());
            }
        }
        for task in snapshot.tasks.iter().filter(|task| task.run_ns() > 0 || task.rss_bytes > 0) {
            self.add(&mut rows, program(task, snapshot), TASK_METRICS, (task, snapshot), task.run_ns());
        }
        self.push(rows, interval_ns as f64, snapshot);
    }

    /// Notes the CPU time of a row. Returns its sums, if series of it are kept.
    fn row<'a>(&self, rows: &'a mut BTreeMap<Who, Cells>, who: Who, run_ns: u64) -> Option<&'a mut Cells> {
        if self.chosen.as_ref().is_some_and(|chosen| !chosen.contains(&who)) {
            return None;
        }
        let cells = rows.entry(who).or_default();
        cells.run_ns += run_ns as f64;
        self.chosen.is_some().then_some(cells)
    }

    fn host(&self, snapshot: &Snapshot, rows: &mut BTreeMap<Who, Cells>) {
        let Some(cells) = self.row(rows, Who::new(By::Host, ""), snapshot.on_cpus.busy_ns) else { return };
        for (metric, _) in host_metrics().filter(|(metric, _)| self.wanted.contains(metric.id)) {
            let value = metric.read(snapshot).map(|value| value.number().unwrap_or_default());
            let ns = snapshot.interval_ns.unwrap_or_default() as f64;
            cells.add(metric.id, value.map(|value| Quotient::of(value * ns, ns)), false);
        }
        // Amounts and quotients of nodes are those of the machine when they are added up.
        for node in &snapshot.nodes {
            self.fill(cells, of_nodes(), node, snapshot);
        }
    }

    fn add<R: 'static>(
        &self,
        rows: &mut BTreeMap<Who, Cells>,
        who: Who,
        metrics: &'static [Metric<R>],
        (row, snapshot): (&R, &Snapshot),
        run_ns: u64,
    ) {
        if let Some(cells) = self.row(rows, who, run_ns) {
            self.fill(cells, metrics.iter(), row, snapshot);
        }
    }

    fn fill<R: 'static>(
        &self,
        cells: &mut Cells,
        metrics: impl Iterator<Item = &'static Metric<R>>,
        row: &R,
        snapshot: &Snapshot,
    ) {
        for metric in metrics.filter(|metric| self.wanted.contains(metric.id)) {
            if let Some(sums) = metric.sums(row, snapshot) {
                cells.add(metric.id, sums, metric.over.adds_whole_rows());
            }
        }
    }

    /// Ends an interval: missing rows count as zero.
    fn push(&mut self, mut rows: BTreeMap<Who, Cells>, interval_ns: f64, snapshot: &Snapshot) {
        for (who, cells) in &rows {
            if self.subjects.len() < ROWS_MAX || self.subjects.contains_key(who) {
                let subject = self.subjects.entry(who.clone()).or_default();
                subject.run_ns += cells.run_ns;
                subject.seen = true;
            }
        }
        if self.chosen.is_none() {
            return;
        }
        let is_known = |column: &Column| column.of_time && snapshot.host_missing(column.id).is_none();
        for (who, subject) in &mut self.subjects {
            let each = self.each;
            let mut push = |metric, part| subject.series.entry(metric).or_default().push(part, each);
            match rows.remove(who) {
                Some(cells) => {
                    let divided = |sums: &Quotient| sums.den > 0.0 || sums.num > 0.0;
                    let cells = cells.sums.into_iter().filter(|(_, sums)| divided(sums));
                    cells.for_each(|(metric, sums)| push(metric, (sums.num * sums.scale, sums.den)));
                }
                None => {
                    let absent = columns(who.by, &self.wanted).filter(is_known);
                    absent.for_each(|column| push(column.id, (0.0, interval_ns)));
                }
            }
        }
    }
}

/// The sums of one row in one interval.
#[derive(Default)]
struct Cells {
    run_ns: f64,
    sums: BTreeMap<&'static str, Quotient>,
}

impl Cells {
    fn add(&mut self, metric: &'static str, sums: Reading<Quotient>, whole: bool) {
        // A row that did not run adds nothing, and needs no reason.
        let Ok(sums) = sums else { return };
        let cell = self.sums.entry(metric).or_default();
        if whole || cell.den == 0.0 {
            cell.add(sums);
        } else {
            cell.num += sums.num;
        }
    }
}

/// Shares of time of the whole machine, with the direction that is better.
fn host_metrics() -> impl Iterator<Item = (&'static HostMetric, Better)> {
    HOST_METRICS.iter().filter_map(|metric| Some((metric, metric.share_of_time?)))
}

/// Metrics of nodes that add up to the machine.
fn of_nodes() -> impl Iterator<Item = &'static Metric<Node>> {
    let adds_up = |metric: &&Metric<Node>| match metric.over {
        Over::Quotient(_) => true,
        Over::Time => metric.unit == Unit::PerSecond,
        _ => metric.unit == Unit::Bytes,
    };
    NODE_METRICS.iter().filter(adds_up)
}

/// A level that adds up over rows, or anything that is no level.
pub fn compares<R>(metric: &Metric<R>) -> bool {
    match metric.over {
        Over::Time | Over::Quotient(_) => true,
        Over::Level => matches!(metric.unit, Unit::Bytes),
        Over::ByNode(_) | Over::Total | Over::Newest => false,
    }
}

fn column<R>(metric: &Metric<R>) -> Column {
    let of_time = matches!(metric.over, Over::Time);
    Column { id: metric.id, unit: metric.unit, better: metric.traits.better, help: metric.help, of_time }
}

/// The wanted metrics that rows of a kind have.
pub fn columns<'a>(by: By, wanted: &'a BTreeSet<&'static str>) -> Box<dyn Iterator<Item = Column> + 'a> {
    let of_host = || {
        let own = host_metrics().map(|(metric, better)| Column {
            id: metric.id,
            unit: Unit::Percent,
            better,
            help: metric.help,
            of_time: true,
        });
        own.chain(of_nodes().map(column))
    };
    match by {
        By::Host => Box::new(of_host().filter(|column| wanted.contains(column.id))),
        By::Node => all(NODE_METRICS, wanted),
        By::Container => all(CONTAINER_METRICS, wanted),
        By::Program => all(TASK_METRICS, wanted),
    }
}

fn all<'a, R>(
    metrics: &'static [Metric<R>],
    wanted: &'a BTreeSet<&'static str>,
) -> Box<dyn Iterator<Item = Column> + 'a> {
    let all = metrics.iter().filter(|metric| compares(metric)).map(column);
    Box::new(all.filter(|column| wanted.contains(column.id)))
}
