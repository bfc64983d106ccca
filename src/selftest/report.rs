//! The report of a self-test, in the form of its JSON: comparisons, and counts of events beside the expected counts of
//! loads. It has no names of hosts, users or processes.

use serde::{Deserialize, Serialize};

use super::expected::CHECKS;
use super::judge::{Verdict, judge};
use crate::known::counted::Load;
use crate::model::event::{Event, Role, ShareOf};
use crate::model::profile::MachineKey;
use crate::pmu::table::Sees;

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
    /// See [`super::expected::CHECKS`].
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

/// All counts of a machine. It names no host, no user, no process and no folder.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CounterReport {
    /// The event table: `intel/ice-lake-sp`.
    pub table: String,
    /// The name of the PMU; empty where the kernel shows none.
    pub pmu: String,
    /// Counters for any event that nothing else uses.
    pub free_counters: u32,
    /// The version of the microcode, where the kernel reports it.
    pub microcode: Option<String>,
    /// The setting of transparent huge pages.
    pub huge_pages: Option<String>,
    /// Why the tool counted nothing, where it could not be asked.
    pub without_tool: Option<String>,
    pub measured: Vec<Measured>,
}

/// An event, as a table and the kernel have it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Subject {
    pub role: Role,
    /// The vendor's name.
    pub event: String,
    /// Terms of the table, type and config of perf_event_open(2).
    pub encoding: String,
    #[serde(default)]
    pub sees: Sees,
    /// Errata of the vendor.
    pub errata: Option<String>,
    pub share_of: ShareOf,
}

/// Counts of an event in a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    #[serde(flatten)]
    pub subject: Subject,
    pub load: Load,
    /// Node of the CPU and node of the memory, where they matter.
    pub nodes: Option<(u32, u32)>,
    /// Rounds or loads by which the two lengths differ.
    pub amount: u64,
    /// Differences of the counts of both lengths, of each repeat.
    pub user: Vec<i64>,
    pub kernel: Vec<i64>,
    /// The whole that it is a share of.
    pub whole: Vec<i64>,
    /// The least part of the time in which the counters counted, 0..=1.
    pub running: f64,
    /// The part of the memory on its node, 0..=1.
    pub on_node: f64,
    /// All of a job in user space and the kernel: by the thread itself, and by the tool.
    pub own: Option<u64>,
    pub tool: Option<u64>,
    /// The reason why the count is missing.
    pub why: Option<String>,
    /// The least and the most that it must be, with the tolerances of the version that judged.
    pub expected: Option<(f64, f64)>,
    pub verdict: Verdict,
    pub reason: Option<String>,
    /// Whether the tool counted what the thread did.
    pub tool_verdict: Verdict,
}

impl Subject {
    /// An event without a table.
    pub fn new(role: Role, event: &Event) -> Subject {
        Subject {
            role,
            event: event.name.clone(),
            encoding: format!("type {} config {:#x}", event.kind, event.config),
            sees: Sees::default(),
            errata: None,
            share_of: event.share_of,
        }
    }

    /// This event in a load, not counted yet.
    pub fn measured(&self, load: Load, nodes: Option<(u32, u32)>) -> Measured {
        Measured {
            subject: self.clone(),
            load,
            nodes,
            amount: 0,
            user: Vec::new(),
            kernel: Vec::new(),
            whole: Vec::new(),
            running: 1.0,
            on_node: 1.0,
            own: None,
            tool: None,
            why: None,
            expected: None,
            verdict: Verdict::Untested,
            reason: None,
            tool_verdict: Verdict::Untested,
        }
    }
}

impl Measured {
    /// The count: the median of the repeats in user space; `None` where nothing was counted.
    pub fn count(&self) -> Option<f64> {
        median(&self.user)
    }

    /// Its whole, in the unit of the event: slots where it counts slots.
    pub fn of_whole(&self) -> Option<f64> {
        let whole = median(&self.whole)?;
        Some(match self.subject.share_of {
            ShareOf::SlotsPerCycle(slots) => whole * f64::from(slots),
            ShareOf::Cycles | ShareOf::Slots => whole,
        })
    }

    /// Whether the event must count in this load; false without a comparison, and in controls.
    pub fn must_count(&self) -> bool {
        self.expected.is_some_and(|(low, _)| low > 0.0)
    }

    /// Whether it was compared where it must count, by itself and not through numatop-ng.
    pub fn is_direct(&self) -> bool {
        self.must_count() && self.tool.is_none()
    }

    /// Whether its memory is on the node of its CPU.
    pub fn is_local(&self) -> bool {
        self.nodes.is_none_or(|(from, to)| from == to)
    }
}

fn median(counts: &[i64]) -> Option<f64> {
    let mut counts = counts.to_vec();
    counts.sort_unstable();
    counts.get(counts.len() / 2).map(|count| *count as f64)
}
