//! CPU time and remote accesses of the machine and its nodes, interval by interval. Pure.

use std::sync::Arc;

use crate::metric::placement::{NODE_REMOTE_PCT, share_of_task};
use crate::metric::{Value, Witness, counters};
use crate::model::units::NodeId;
use crate::snapshot::{Node, Remote, Snapshot};

/// Intervals that are kept; beyond them, two neighbours become one.
const MOST: usize = 1 << 12;

/// CPUs at work from which on an interval is marked for its remote accesses.
const WORK_CPUS: f64 = 0.5;
/// The shares of remote accesses from which on an interval is marked, and marked as most of them.
const REMOTE: f64 = 0.2;
const MOST_REMOTE: f64 = 0.5;
/// The part of the work whose accesses must be sampled so that the share is the machine's.
const SAMPLED: f64 = 0.8;

/// Why an interval is marked: the machine's share of remote accesses is at least [`REMOTE`] beyond its error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// By where tasks ran and where their memory is.
    Placed,
    /// By accesses that were counted or sampled.
    Seen,
    /// The same, and at least half of them.
    SeenMost,
}

/// Shares in an interval, 0 to 1; `None` where they are not known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shares {
    /// Busy share of the CPUs.
    pub cpu: Option<f64>,
    /// Share of accesses that left their node.
    pub remote: Option<f64>,
}

/// One interval.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Wall clock of its end, ns since 1970.
    pub wall_ns: i64,
    /// Its length, ns.
    pub length_ns: i64,
    /// The machine.
    pub machine: Shares,
    /// The highest mark of its parts, and how long parts were marked by place and by accesses, ns.
    pub level: Option<Level>,
    pub marked_ns: [i64; 2],
    /// Its nodes, ascending by id.
    pub nodes: Vec<(NodeId, Shares)>,
}

/// Intervals in the order of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve {
    points: Vec<Arc<Point>>,
}

impl Curve {
    /// Adds an interval; a first sample has none.
    pub fn take(&mut self, snapshot: &Snapshot) {
        let Some(length_ns) = snapshot.interval_ns.and_then(|ns| i64::try_from(ns).ok()) else { return };
        let mut nodes: Vec<(NodeId, Shares)> =
            snapshot.nodes.iter().map(|node| (NodeId(node.raw.id), shares(node, snapshot))).collect();
        nodes.sort_by_key(|(id, _)| *id);
        let cpus = f64::from(snapshot.online_cpus.max(1));
        let cpu = snapshot.share(snapshot.on_cpus.busy_ns).ok().map(|pct| (pct / 100.0 / cpus).min(1.0));
        let machine = Shares { cpu, remote: remote(snapshot, &nodes) };
        let level = level(snapshot);
        let marked = |is_marked| if is_marked { length_ns } else { 0 };
        let marked_ns = [level == Some(Level::Placed), level > Some(Level::Placed)].map(marked);
        let wall_ns = snapshot.wall_ns;
        self.points.push(Arc::new(Point { wall_ns, length_ns, machine, level, marked_ns, nodes }));
        if self.points.len() >= MOST {
            self.points = self.points.chunks(2).map(merged).collect();
        }
    }

    /// The intervals that are kept.
    pub fn points(&self) -> &[Arc<Point>] {
        &self.points
    }

    /// The length of the intervals that are marked by place, of those by accesses, and of all, ns.
    pub fn marked_ns(&self) -> ([i64; 2], i64) {
        let sum = |of: &dyn Fn(&Point) -> i64| {
            self.points.iter().fold(0i64, |sum, point| sum.saturating_add(of(point)))
        };
        ([sum(&|point| point.marked_ns[0]), sum(&|point| point.marked_ns[1])], sum(&|point| point.length_ns))
    }

    /// Whether the machine's share of remote accesses is known in an interval.
    pub fn knows_remote(&self) -> bool {
        self.points.iter().any(|point| point.machine.remote.is_some())
    }

    /// Wall clocks of the intervals with which marks of a level begin, ns since 1970.
    pub fn beginnings(&self) -> Vec<(i64, Level)> {
        let mut before = None;
        let mut begins = Vec::new();
        for point in &self.points {
            if let Some(level) = point.level.filter(|level| before != Some(*level)) {
                begins.push((point.wall_ns, level));
            }
            before = point.level;
        }
        begins
    }

    /// Forgets intervals that ended before this wall clock, ns since 1970.
    pub fn drop_before(&mut self, wall_ns: i64) {
        let old = self.points.partition_point(|point| point.wall_ns < wall_ns);
        self.points.drain(..old);
    }

    /// The last `count` intervals that ended at or before this wall clock, the newest last.
    pub fn last(&self, count: usize, wall_ns: i64) -> &[Arc<Point>] {
        let end = self.points.partition_point(|point| point.wall_ns <= wall_ns);
        &self.points[end.saturating_sub(count)..end]
    }

    /// A share of a node in the last `count` intervals up to this wall clock, the newest last; `None` in front where fewer
    /// are kept.
    pub fn of_node(
        &self,
        node: NodeId,
        count: usize,
        wall_ns: i64,
        share: fn(&Shares) -> Option<f64>,
    ) -> Vec<Option<f64>> {
        let points = self.last(count, wall_ns);
        let of = |point: &Arc<Point>| share(&point.nodes.iter().find(|(id, _)| *id == node)?.1);
        let missing = vec![None; count - points.len()];
        missing.into_iter().chain(points.iter().map(of)).collect()
    }

    /// The largest value of each of `cells` equal parts of a stretch, wall clock in ns since 1970; `None` for
    /// a part without an interval.
    pub fn cells<T: PartialOrd>(
        &self,
        (from, to): (i64, i64),
        cells: usize,
        value: impl Fn(&Point) -> Option<T>,
    ) -> Vec<Option<T>> {
        let length = to.saturating_sub(from).max(1) as f64;
        let edge = |at: usize| from.saturating_add((length * at as f64 / cells.max(1) as f64) as i64);
        let largest = |at: usize| {
            let (begin, end) = (edge(at), edge(at + 1).max(edge(at) + 1));
            let first = self.points.partition_point(|point| point.wall_ns <= begin);
            let overlaps = |point: &&Arc<Point>| point.wall_ns.saturating_sub(point.length_ns) < end;
            let here = self.points[first..].iter().take_while(overlaps);
            here.filter_map(|point| value(point)).reduce(|a, b| if b > a { b } else { a })
        };
        (0..cells).map(largest).collect()
    }
}

fn shares(node: &Node, snapshot: &Snapshot) -> Shares {
    let cpus = f64::from(node.cpus);
    let cpu = snapshot.share(node.on_cpus.busy_ns).ok().filter(|_| node.cpus > 0);
    let remote = NODE_REMOTE_PCT.read(node, snapshot).ok().as_ref().and_then(Value::number);
    Shares {
        cpu: cpu.map(|pct| (pct / 100.0 / cpus).min(1.0)),
        remote: remote.map(|pct| (pct / 100.0).clamp(0.0, 1.0)),
    }
}

/// The remote share of the machine: that of its nodes, weighed by their CPU time.
fn remote(snapshot: &Snapshot, nodes: &[(NodeId, Shares)]) -> Option<f64> {
    let of = |node: &Node| {
        let known = nodes.iter().find(|(id, _)| id.0 == node.raw.id)?;
        known.1.remote.map(|share| (share * node.on_cpus.busy_ns as f64, node.on_cpus.busy_ns as f64))
    };
    let (remote, all) =
        snapshot.nodes.iter().filter_map(of).fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    (all > 0.0).then_some(remote / all)
}

/// The mark of an interval.
fn level(snapshot: &Snapshot) -> Option<Level> {
    let is_at_work = snapshot.share(snapshot.on_cpus.busy_ns).is_ok_and(|pct| pct >= WORK_CPUS * 100.0);
    if !is_at_work || snapshot.host.topology.nodes.len() < 2 {
        return None;
    }
    let level = |share: f64| if share >= MOST_REMOTE { Level::SeenMost } else { Level::Seen };
    if let Some(share) = counted(snapshot).or_else(|| sampled(snapshot)) {
        return (share >= REMOTE).then(|| level(share));
    }
    let mut placed = Remote::default();
    snapshot.nodes.iter().for_each(|node| placed += &node.remote);
    placed.sure_share().filter(|share| *share >= REMOTE).map(|_| Level::Placed)
}

/// The machine's share of remote accesses where they are counted.
fn counted(snapshot: &Snapshot) -> Option<f64> {
    let (local, remote) = counters::accesses(&snapshot.on_cpus.slots, snapshot)?;
    (local + remote > 0.0).then(|| remote / (local + remote))
}

/// The least that it can be by accesses that were sampled, where they are those of nearly all work.
fn sampled(snapshot: &Snapshot) -> Option<f64> {
    let (mut remote, mut all) = (0.0, 0.0);
    for task in snapshot.tasks.iter().filter(|task| task.memory_use().is_some()) {
        if let Some(Value::Share { at_least, witness: Witness::Estimate | Witness::Time, of, .. }) =
            share_of_task(task, snapshot).map(|share| share.value)
        {
            (remote, all) = (remote + at_least / 100.0 * of, all + of);
        }
    }
    (all > 0.0 && all >= SAMPLED * snapshot.on_cpus.busy_ns as f64).then(|| remote / all)
}

/// One interval for neighbours: their means by time.
fn merged(points: &[Arc<Point>]) -> Arc<Point> {
    let [first, second] = points else { return Arc::clone(&points[0]) };
    let (a, b) = (first.length_ns.max(1) as f64, second.length_ns.max(1) as f64);
    let mean = |one: Option<f64>, other: Option<f64>| match (one, other) {
        (Some(one), Some(other)) => Some((one * a + other * b) / (a + b)),
        (one, other) => one.or(other),
    };
    let both = |one: Shares, other: Shares| Shares {
        cpu: mean(one.cpu, other.cpu),
        remote: mean(one.remote, other.remote),
    };
    let before =
        |id| first.nodes.iter().find(|(node, _)| *node == id).map_or(Shares::default(), |found| found.1);
    Arc::new(Point {
        wall_ns: second.wall_ns,
        length_ns: first.length_ns.saturating_add(second.length_ns),
        machine: both(first.machine, second.machine),
        level: first.level.max(second.level),
        marked_ns: [0, 1].map(|at| first.marked_ns[at].saturating_add(second.marked_ns[at])),
        nodes: second.nodes.iter().map(|(id, shares)| (*id, both(before(*id), *shares))).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000_000;

    fn point(second: i64, cpu: f64) -> Arc<Point> {
        let machine = Shares { cpu: Some(cpu), remote: None };
        let (level, nodes) = (None, vec![(NodeId(1), machine)]);
        Arc::new(Point { wall_ns: second * S, length_ns: S, machine, level, marked_ns: [0; 2], nodes })
    }

    fn cells(curve: &Curve, span: (i64, i64), count: usize) -> Vec<Option<f64>> {
        curve.cells((span.0 * S, span.1 * S), count, |point| point.machine.cpu)
    }

    #[test]
    fn cells_have_the_largest_of_their_intervals_and_none_in_a_hole() {
        let seconds = [(1, 0.1), (2, 0.9), (3, 0.3), (4, 0.2), (9, 0.5)];
        let curve = Curve { points: seconds.map(|(at, cpu)| point(at, cpu)).to_vec() };
        assert_eq!(cells(&curve, (0, 4), 2), [Some(0.9), Some(0.3)]);
        assert_eq!(
            cells(&curve, (0, 2), 4),
            [Some(0.1), Some(0.1), Some(0.9), Some(0.9)],
            "wider than a cell"
        );
        assert_eq!(cells(&curve, (4, 9), 5), [None, None, None, None, Some(0.5)]);
        assert_eq!(cells(&Curve::default(), (0, 9), 3), [None; 3]);
        assert_eq!(curve.last(2, 3 * S).iter().map(|point| point.wall_ns / S).collect::<Vec<_>>(), [2, 3]);
    }

    #[test]
    fn marks_of_neighbours_are_kept_when_they_become_one() {
        let marked = |second, level: Option<Level>, marked_ns| {
            Arc::new(Point { level, marked_ns, ..Point::clone(&point(second, 0.5)) })
        };
        let points = [
            marked(1, None, [0, 0]),
            marked(2, Some(Level::Placed), [S, 0]),
            marked(3, Some(Level::SeenMost), [0, S]),
            marked(4, Some(Level::SeenMost), [0, S]),
            marked(5, None, [0, 0]),
        ];
        let mut curve = Curve { points: points.to_vec() };
        let begins =
            |curve: &Curve| curve.beginnings().iter().map(|(at, level)| (at / S, *level)).collect::<Vec<_>>();
        assert_eq!(begins(&curve), [(2, Level::Placed), (3, Level::SeenMost)]);
        assert_eq!(curve.marked_ns(), ([S, 2 * S], 5 * S));
        curve.points = curve.points.chunks(2).map(merged).collect();
        assert_eq!(begins(&curve), [(2, Level::Placed), (4, Level::SeenMost)]);
        assert_eq!(curve.marked_ns(), ([S, 2 * S], 5 * S));
        let levels = curve.cells((0, 5 * S), 5, |point| point.level);
        let most = Some(Level::SeenMost);
        assert_eq!(levels, [Some(Level::Placed), Some(Level::Placed), most, most, None]);
    }

    #[test]
    fn neighbours_become_one_with_their_mean() {
        let one = merged(&[point(1, 0.2), point(2, 0.4)]);
        assert_eq!((one.wall_ns, one.length_ns), (2 * S, 2 * S));
        assert!((one.machine.cpu.unwrap() - 0.3).abs() < 1e-9);
        assert!((one.nodes[0].1.cpu.unwrap() - 0.3).abs() < 1e-9);
    }
}
