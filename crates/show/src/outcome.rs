//! The outcome of a command: what it and its descendants did from its first instruction to its end. Pure.

pub mod csv;
pub mod json;
pub mod measures;
pub mod stats;
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
