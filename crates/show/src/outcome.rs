//! The outcome of a command: what it and its descendants did from its first instruction to its end. Pure.

pub mod data;
pub mod measures;
pub mod text;
pub mod totals;

use std::collections::BTreeMap;
use std::fmt;

use crate::finding::Finding;
use crate::model::sample::Reading;
use crate::model::units::NodeId;
use crate::snapshot::{Container, Snapshot};

/// The end of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By itself, with this code.
    Exited(u8),
    /// By this signal.
    Killed(i32),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Exited(code) => write!(f, "exit code {code}"),
            End::Killed(signal) => write!(f, "killed by signal {signal}"),
        }
    }
}

/// One run of a command.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub end: End,
    /// From its first instruction to its end, ns.
    pub elapsed_ns: u64,
    /// CPU time in user mode and in the kernel, ns, from wait4(2): of the command and of descendants that
    /// were waited for.
    pub user_ns: u64,
    pub system_ns: u64,
    /// Threads that its descendants and it began with.
    pub born: u64,
    /// Threads that lived on when it ended.
    pub living: u64,
    /// The machine in that time.
    pub machine: Snapshot,
    /// All tasks together.
    pub row: Container,
    pub waits: Waits,
    pub peak: Reading<Peak>,
    /// Losses in that time, by cause.
    pub lost: BTreeMap<String, u64>,
    /// CPU time of ended tasks without a final row, ns. It is in the sums.
    pub lost_ns: u64,
    /// Findings that held, at its end or before.
    pub findings: Vec<Finding>,
    /// The verdict of the rules in a sentence or two.
    pub verdict: String,
}

/// Parts of the time that its tasks waited for a CPU, ns; estimates, added up over the intervals.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Waits {
    /// That a CPU quota explains.
    pub quota_ns: f64,
    /// That an affinity or a cpuset explains.
    pub bound_ns: f64,
    /// In which a CPU of another node was idle.
    pub idle_elsewhere_ns: f64,
}

/// Resident memory when it was largest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Peak {
    /// The sum over its processes: shared memory counts for each.
    pub bytes: u64,
    /// By node, if most of the memory was sampled.
    pub by_node: Vec<(NodeId, f64)>,
}

/// The runs of a command in one place.
#[derive(Clone, Debug)]
pub struct Series {
    /// The place, as it was typed; `None`: it was not bound.
    pub binding: Option<String>,
    pub runs: Vec<Outcome>,
}

/// Numbers of several runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub mean: f64,
    /// Of the sample (n - 1); `None` of one run.
    pub deviation: Option<f64>,
    pub runs: usize,
}

/// The spread of these; `None` without any.
pub fn spread(numbers: &[f64]) -> Option<Spread> {
    if numbers.is_empty() {
        return None;
    }
    let count = numbers.len() as f64;
    let mean = numbers.iter().sum::<f64>() / count;
    let squares: f64 = numbers.iter().map(|number| (number - mean).powi(2)).sum();
    let deviation = (numbers.len() > 1).then(|| (squares / (count - 1.0)).sqrt());
    Some(Spread { mean, deviation, runs: numbers.len() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deviation_is_that_of_a_sample() {
        assert_eq!(spread(&[]), None);
        assert_eq!(spread(&[5.0]), Some(Spread { mean: 5.0, deviation: None, runs: 1 }));
        let spread = spread(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap();
        assert_eq!(spread.mean, 5.0);
        assert!((spread.deviation.unwrap() - (32.0f64 / 7.0).sqrt()).abs() < 1e-12);
    }
}
