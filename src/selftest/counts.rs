//! Counts of events beside the expected counts of loads, in the form of the JSON of a self-test.

use serde::{Deserialize, Serialize};

use super::judge::Verdict;
use crate::known::counted::Load;
use crate::model::event::{Event, Role, ShareOf};
use crate::pmu::table::Sees;

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

    /// Whether it was compared where it must count, by itself and not through the tool.
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
