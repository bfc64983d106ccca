//! Values over several intervals: a quotient of sums is the value of the whole, however the time is cut.

use std::collections::BTreeMap;
use std::fmt::Debug;

use numatop_ng::metric::container::CONTAINER_METRICS;
use numatop_ng::metric::node::NODE_METRICS;
use numatop_ng::metric::over::{Over, Quotient};
use numatop_ng::metric::task::TASK_METRICS;
use numatop_ng::metric::{Metric, Value};
use numatop_ng::model::sample::Sample;
use numatop_ng::model::units::NodeId;
use numatop_ng::snapshot::{Container, Node, RowKind, Snapshot, Task, derive};
use numatop_ng::source::merge::Merger;
use numatop_ng::source::synthetic::{Machine, demo_machine};
use proptest::prelude::*;

const SECONDS: usize = 24;

fn run() -> (Machine, Vec<Sample>) {
    let mut machine = demo_machine();
    let samples = (0..=SECONDS).map(|_| machine.tick()).collect();
    (machine, samples)
}

/// The rows of a snapshot by a key that stays.
trait Rows: Sized + 'static {
    type Key: Ord + Debug;
    fn rows(snapshot: &Snapshot) -> Vec<(Self::Key, &Self)>;
    const METRICS: &'static [Metric<Self>];
}

impl Rows for Task {
    type Key = (u32, u32, u64);
    const METRICS: &'static [Metric<Task>] = TASK_METRICS;
    fn rows(snapshot: &Snapshot) -> Vec<(Self::Key, &Task)> {
        let key = |task: &Task| (task.raw.pid, task.tid.unwrap_or(0), task.raw.start_ns);
        snapshot.tasks.iter().map(|task| (key(task), task)).collect()
    }
}

impl Rows for Container {
    type Key = u64;
    const METRICS: &'static [Metric<Container>] = CONTAINER_METRICS;
    fn rows(snapshot: &Snapshot) -> Vec<(u64, &Container)> {
        snapshot.containers.iter().map(|row| (row.id, row)).collect()
    }
}

impl Rows for Node {
    type Key = u32;
    const METRICS: &'static [Metric<Node>] = NODE_METRICS;
    fn rows(snapshot: &Snapshot) -> Vec<(u32, &Node)> {
        snapshot.nodes.iter().map(|node| (node.raw.id, node)).collect()
    }
}

fn is_near(one: f64, other: f64) -> bool {
    one == other || (one - other).abs() <= 1e-9 * one.abs().max(other.abs())
}

/// The values of a row that are quotients: those by node with their node.
fn quotients<R: Rows>(metric: &Metric<R>, row: &R, snapshot: &Snapshot) -> Vec<(Option<NodeId>, Quotient)> {
    match metric.over {
        Over::Quotient(_) => {
            metric.quotient(row, snapshot).and_then(Result::ok).map(|of| (None, of)).into_iter().collect()
        }
        Over::ByNode(of) => {
            let found = of(row, snapshot).unwrap_or_default();
            found.into_iter().map(|(node, of)| (Some(node), of)).collect()
        }
        _ => Vec::new(),
    }
}

/// Asserts that the value of every row is that of its quotient, and gives the number of values compared by metric.
fn the_value_is_that_of_its_quotient<R: Rows>(snapshot: &Snapshot) -> BTreeMap<&'static str, usize> {
    let mut compared = BTreeMap::new();
    for metric in
        R::METRICS.iter().filter(|metric| matches!(metric.over, Over::Quotient(_) | Over::ByNode(_)))
    {
        for (key, row) in R::rows(snapshot) {
            let sums = quotients(metric, row, snapshot);
            let values: Vec<(Option<NodeId>, f64)> = match metric.read(row, snapshot) {
                Ok(Value::ByNode(values)) => values.into_iter().map(|(node, v)| (Some(node), v)).collect(),
                Ok(value) => vec![(None, value.number().expect("a quotient is a number"))],
                Err(_) => Vec::new(),
            };
            assert_eq!(sums.len(), values.len(), "{} of {key:?}", metric.id);
            for ((node, sum), (of, value)) in sums.iter().zip(&values) {
                assert!(node == of && is_near(sum.value(), *value), "{} of {key:?}: {sum:?}", metric.id);
                *compared.entry(metric.id).or_default() += 1;
            }
        }
    }
    compared
}

#[test]
fn a_value_is_that_of_its_quotient() {
    let (machine, samples) = run();
    let mut compared = BTreeMap::<&str, usize>::new();
    for pair in samples.windows(2) {
        for grain in [RowKind::Processes, RowKind::Threads] {
            let snapshot = derive(&machine.host, Some(&pair[0]), &pair[1], grain);
            for of in [
                the_value_is_that_of_its_quotient::<Task>(&snapshot),
                the_value_is_that_of_its_quotient::<Container>(&snapshot),
                the_value_is_that_of_its_quotient::<Node>(&snapshot),
            ] {
                of.into_iter().for_each(|(id, n)| *compared.entry(id).or_default() += n);
            }
        }
    }
    // The made-up machine counts neither stalls nor misses: those are values by the macro that makes them quotients.
    assert!(compared.len() >= 15, "only {compared:?}");
}

/// The sums over the pieces that end at these samples; the first of them is the beginning.
fn sums<R: Rows>(
    machine: &Machine,
    samples: &[Sample],
    ends: &[usize],
) -> BTreeMap<(&'static str, R::Key, Option<NodeId>), Quotient>
where
    R::Key: Clone,
{
    let mut sums = BTreeMap::new();
    for piece in ends.windows(2) {
        let mut to = samples[piece[1]].clone();
        // Ends of processes are in one sample only.
        for between in samples[piece[0] + 1..piece[1]].iter().rev() {
            Merger::default().merge(between.clone(), &mut to);
        }
        let snapshot = derive(&machine.host, Some(&samples[piece[0]]), &to, RowKind::Processes);
        for metric in R::METRICS {
            for (key, row) in R::rows(&snapshot) {
                // Placement is the state of memory at the end of a piece, so it is a sum only while memory
                // does not move.
                for (node, of) in quotients(metric, row, &snapshot) {
                    sums.entry((metric.id, key.clone(), node)).or_insert_with(Quotient::default).add(of);
                }
            }
        }
    }
    sums
}

fn pieces_are_the_whole<R: Rows>(machine: &Machine, samples: &[Sample], cuts: &[usize])
where
    R::Key: Clone,
{
    let mut ends: Vec<usize> = cuts.to_vec();
    ends.extend([0, SECONDS]);
    ends.sort_unstable();
    ends.dedup();
    let whole = sums::<R>(machine, samples, &[0, SECONDS]);
    let pieces = sums::<R>(machine, samples, &ends);
    for (at, of) in &whole {
        // A task that began or ended in a piece is in the whole with less than its total.
        let Some(found) = pieces.get(at) else { panic!("{at:?} is not in the pieces {ends:?}") };
        assert!(is_near(found.value(), of.value()), "{at:?}: {found:?} and {of:?} with {ends:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_quotient_of_sums_is_the_value_of_the_whole(cuts in prop::collection::vec(1..SECONDS, 0..8)) {
        let (machine, samples) = run();
        pieces_are_the_whole::<Task>(&machine, &samples, &cuts);
        pieces_are_the_whole::<Container>(&machine, &samples, &cuts);
        pieces_are_the_whole::<Node>(&machine, &samples, &cuts);
    }
}

#[test]
fn ratios_are_quotients() {
    // A mean of ratios by time is never right.
    let wrong =
        |unit, over: &str| matches!(unit, numatop_ng::metric::Unit::Ratio) && !over.starts_with("quotient");
    for metric in TASK_METRICS {
        assert!(!wrong(metric.unit, metric.over.name()), "{}", metric.id);
    }
    for metric in CONTAINER_METRICS {
        assert!(!wrong(metric.unit, metric.over.name()), "{}", metric.id);
    }
    for metric in NODE_METRICS {
        assert!(!wrong(metric.unit, metric.over.name()), "{}", metric.id);
    }
}
