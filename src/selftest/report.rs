//! The report of a self-test, in the form of its JSON: no names of hosts, users or processes.

use serde::{Deserialize, Serialize};

use super::counts::CounterReport;
use super::judge::{Verdict, judge};
use super::software::CHECKS;
use crate::model::profile::MachineKey;

/// Version of the JSON: changes only when a key changes its meaning or goes.
pub const SCHEMA: u32 = 1;

/// All comparisons.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Version of the tool.
    pub tool: String,
    /// Release of the kernel.
    pub kernel: String,
    /// The machine.
    pub machine: MachineKey,
    /// Length of the test, s.
    pub took_s: f64,
    pub comparisons: Vec<Comparison>,
    /// Events beside loads whose counts are known; `None` where they were not tested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counters: Option<CounterReport>,
    /// The same on cores of other kinds, each on its own CPUs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_cores: Vec<CounterReport>,
}

/// A number of the tool beside the truth.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// See [`super::software::CHECKS`].
    pub check: String,
    /// The truth, in the unit of the check; `None` where it could not be made.
    pub truth: Option<f64>,
    /// The number of the tool.
    pub tool: Option<f64>,
    /// The tool's own statement of its error, in the same unit, where it makes one.
    pub error: Option<f64>,
    /// Why one of them is missing.
    pub why: Option<String>,
    pub verdict: Verdict,
    /// The reason of a verdict that is not `ok`.
    pub reason: Option<String>,
}

impl Comparison {
    /// A comparison without a verdict.
    pub fn new(check: &str, truth: f64, tool: f64) -> Comparison {
        Comparison {
            check: check.into(),
            truth: Some(truth),
            tool: Some(tool),
            error: None,
            why: None,
            verdict: Verdict::Untested,
            reason: None,
        }
    }

    /// A check that was not made, and why.
    pub fn untested(check: &str, why: impl Into<String>) -> Comparison {
        Comparison { truth: None, tool: None, why: Some(why.into()), ..Comparison::new(check, 0.0, 0.0) }
    }

    /// All checks, all of them skipped, and why.
    pub fn none_made(why: &str) -> Vec<Comparison> {
        CHECKS.iter().map(|check| Comparison::untested(check.id, why)).collect()
    }

    /// The same with the verdict of this version.
    #[must_use]
    pub fn judged(mut self) -> Comparison {
        (self.verdict, self.reason) = judge(&self);
        self
    }
}

impl Report {
    /// The same with the verdicts of this version: a file is trusted for its numbers only.
    #[must_use]
    pub fn judged(mut self) -> Report {
        self.comparisons = self.comparisons.into_iter().map(Comparison::judged).collect();
        let judged = |counters: CounterReport| counters.judged(&self.machine);
        self.counters = self.counters.map(judged);
        self.other_cores = self.other_cores.into_iter().map(judged).collect();
        self
    }

    /// Events on cores of each kind.
    pub fn cores(&self) -> impl Iterator<Item = &CounterReport> + Clone {
        self.counters.iter().chain(&self.other_cores)
    }

    /// Comparisons with this verdict; the tool's count of an event is a separate one.
    pub fn count(&self, verdict: Verdict) -> usize {
        let software = self.comparisons.iter().map(|comparison| comparison.verdict);
        let counters = self.cores().flat_map(|counters| &counters.measured);
        let tool =
            counters.clone().map(|measured| measured.tool_verdict).filter(|of| *of != Verdict::Untested);
        let all = software.chain(counters.map(|measured| measured.verdict)).chain(tool);
        all.filter(|of| *of == verdict).count()
    }
}
