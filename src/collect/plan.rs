//! What can be measured on a host with these facts, and what its owner can do about the rest. Pure:
//! nothing here looks at the machine.

mod rules;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::host::btf::Feature;
use crate::host::check::HostCheck;
use crate::metric::balancing;
use crate::metric::mempolicy::MEMPOLICY;
use crate::metric::node::{self, NODE_METRICS};
use crate::metric::task::TASK_METRICS;
use crate::metric::{moved, pages, placement};
use crate::pmu::event::Role;
use crate::sample::Missing;
use crate::text::{hanging, words};

/// A thing to do, in words, and the command to type where there is one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Advice {
    pub say: String,
    pub command: Option<String>,
}

impl Advice {
    pub fn say(say: impl Into<String>) -> Advice {
        Advice { say: say.into(), command: None }
    }

    pub fn command(say: impl Into<String>, command: impl Into<String>) -> Advice {
        Advice { say: say.into(), command: Some(command.into()) }
    }

    /// The words wrapped at `width` behind `indent`, and the command on a line of its own, never wrapped.
    pub fn render(&self, indent: &str, width: usize) -> String {
        match &self.command {
            Some(command) => {
                hanging(indent, words(&format!("{}:", self.say)), width) + &format!("{indent}  {command}\n")
            }
            None => hanging(indent, words(&self.say), width),
        }
    }
}

/// Why something cannot be measured, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Obstacle {
    pub missing: Missing,
    pub advice: Vec<Advice>,
}

impl Obstacle {
    fn new(missing: Missing, advice: impl Into<Vec<Advice>>) -> Obstacle {
        Obstacle { missing, advice: advice.into() }
    }
}

pub type Verdict = Result<(), Obstacle>;

/// What the tool measures with: probes, counters, files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// CPU time by node, charged at each context switch.
    CpuTime,
    /// The list of tasks, from the kernel's task iterator.
    TaskWalk,
    /// Births and final totals of tasks.
    Exits,
    /// Time with a busy SMT sibling.
    SmtTime,
    /// At least one of the wanted counters.
    Counters,
    /// The counter, or the counters, of this role.
    Counter(Role),
    /// What NUMA balancing keeps in the task structure.
    NumaFields,
    /// Memory of each node.
    NodeMemory,
    /// Allocations of each node, as numastat(8) shows them, and memory policies: both come with CONFIG_NUMA.
    NodePages,
    /// Pages freed on each node, and by whom.
    Reclaim,
    /// Watermarks of each node.
    Watermarks,
    /// Pages that tasks are given, by node.
    NewPages,
    /// Pages that are moved for tasks.
    MovedPages,
    /// Where the memory of processes is, from pages picked at random.
    Placement,
    /// Tasks that NUMA balancing sends to another node.
    SentTasks,
    /// From which node to which NUMA balancing moves pages.
    PageFlows,
}

impl Part {
    pub const ALL: [Part; 25] = [
        Part::CpuTime,
        Part::TaskWalk,
        Part::Exits,
        Part::SmtTime,
        Part::Counters,
        Part::Counter(Role::Cycles),
        Part::Counter(Role::Instructions),
        Part::Counter(Role::Lma),
        Part::Counter(Role::Rma),
        Part::Counter(Role::StallFrontend),
        Part::Counter(Role::StallBackend),
        Part::Counter(Role::Llc),
        Part::Counter(Role::Dtlb),
        Part::Counter(Role::Itlb),
        Part::Counter(Role::Branch),
        Part::NumaFields,
        Part::NodeMemory,
        Part::NodePages,
        Part::Reclaim,
        Part::Watermarks,
        Part::NewPages,
        Part::MovedPages,
        Part::Placement,
        Part::SentTasks,
        Part::PageFlows,
    ];

    /// A live view has all of these or does not start.
    pub const ESSENTIAL: [Part; 3] = [Part::CpuTime, Part::TaskWalk, Part::Exits];

    /// What a part stands on in the kernel.
    pub fn features(self) -> &'static [Feature] {
        use Feature::*;
        match self {
            Part::CpuTime => &[SchedSwitch, TaskStorage, CurrentTask, TracingStorage],
            Part::TaskWalk => {
                &[TaskIterator, TaskStorage, TracingStorage, TaskState, ThreadInfoCpu, SchedInfo]
            }
            Part::Exits => &[
                TaskNewtask,
                SchedProcessFree,
                RingBuffer,
                TaskStorage,
                TracingStorage,
                TaskState,
                ThreadInfoCpu,
                SchedInfo,
            ],
            Part::Reclaim => &[ShrinkInactive, NodeReclaim, CurrentTask],
            Part::NewPages => &[PageAlloc, TaskStorage, CurrentTask, TracingStorage],
            Part::MovedPages | Part::PageFlows => &[MigratePages, TaskStorage, CurrentTask, TracingStorage],
            Part::SentTasks => &[MoveNuma, TaskStorage, CurrentTask, TracingStorage],
            _ => &[],
        }
    }
}

/// What metrics need besides [`Part::ESSENTIAL`].
const NEEDS: [(&[&str], &[Part]); 30] = [
    (&["smt_busy_pct"], &[Part::SmtTime]),
    (&["cycles_total", "ghz"], &[Part::Counter(Role::Cycles)]),
    (&["instructions_total"], &[Part::Counter(Role::Instructions)]),
    (&["ipc", "cpi", "ipc_by_node"], &[Part::Counter(Role::Cycles), Part::Counter(Role::Instructions)]),
    (
        &["ipc_smt_idle", "ipc_smt_busy"],
        &[Part::SmtTime, Part::Counter(Role::Cycles), Part::Counter(Role::Instructions)],
    ),
    (&["stall_frontend_pct"], &[Part::Counter(Role::StallFrontend), Part::Counter(Role::Cycles)]),
    (&["stall_backend_pct"], &[Part::Counter(Role::StallBackend), Part::Counter(Role::Cycles)]),
    (&["llc_mpki"], &[Part::Counter(Role::Llc), Part::Counter(Role::Instructions)]),
    (&["dtlb_mpki"], &[Part::Counter(Role::Dtlb), Part::Counter(Role::Instructions)]),
    (&["itlb_mpki"], &[Part::Counter(Role::Itlb), Part::Counter(Role::Instructions)]),
    (&["branch_mpki"], &[Part::Counter(Role::Branch), Part::Counter(Role::Instructions)]),
    (&["lma_per_s", "rma_lma"], &[Part::Counter(Role::Lma)]),
    (&["rma_per_s", "rma_lma"], &[Part::Counter(Role::Rma)]),
    (&["lpi"], &[Part::Counter(Role::Lma), Part::Counter(Role::Instructions)]),
    (&["rpi"], &[Part::Counter(Role::Rma), Part::Counter(Role::Instructions)]),
    (&["counters_running_pct"], &[Part::Counters]),
    (&["preferred_node", "scan_period_ms", "numa_group"], &[Part::NumaFields]),
    (&balancing::HINTS, &[Part::NumaFields]),
    (&balancing::TIME, &[Part::NumaFields]),
    (&balancing::CHOICES, &[Part::NumaFields, Part::SentTasks]),
    (
        &[
            "mem_total_bytes",
            "mem_free_bytes",
            "mem_file_bytes",
            "mem_anon_bytes",
            "mem_slab_bytes",
            "huge_total",
            "huge_free",
        ],
        &[Part::NodeMemory],
    ),
    (
        &[
            "numa_hit_per_s",
            "numa_miss_per_s",
            "numa_foreign_per_s",
            "interleave_hit_per_s",
            "local_node_per_s",
            "other_node_per_s",
        ],
        &[Part::NodePages],
    ),
    (&MEMPOLICY, &[Part::NodePages]),
    (&node::RECLAIM, &[Part::Reclaim]),
    (&node::WATERMARKS, &[Part::Watermarks]),
    (&pages::PAGES, &[Part::NewPages]),
    (&pages::MIGRATED, &[Part::MovedPages]),
    (&moved::BY_REASON, &[Part::MovedPages]),
    (&moved::FLOWS, &[Part::NumaFields, Part::MovedPages, Part::PageFlows]),
    (&placement::SAMPLED, &[Part::Placement]),
];

fn parts_of(id: &str) -> impl Iterator<Item = &'static Part> {
    NEEDS.iter().filter(move |(ids, _)| ids.contains(&id)).flat_map(|(_, parts)| *parts)
}

/// Something that works, but not as one might think.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Caveat {
    pub about: &'static str,
    pub say: String,
    pub advice: Vec<Advice>,
}

/// What can be measured here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    verdicts: BTreeMap<Part, Verdict>,
    pub caveats: Vec<Caveat>,
}

impl Plan {
    pub fn part(&self, part: Part) -> &Verdict {
        &self.verdicts[&part]
    }

    /// Replaces the rule's verdict by what happened when the part was tried.
    pub fn observe(&mut self, part: Part, verdict: Verdict) {
        self.verdicts.insert(part, verdict);
    }

    /// The first reason why a live view cannot start.
    pub fn obstacle_to_start(&self) -> Option<&Obstacle> {
        Part::ESSENTIAL.iter().find_map(|part| self.part(*part).as_ref().err())
    }

    /// Whether the metric called `id` can be measured in a live view. Its own reason comes before that of
    /// the whole view: it would stay when the other is gone.
    pub fn metric(&self, id: &str) -> Result<(), &Obstacle> {
        let mut needed = parts_of(id).chain(&Part::ESSENTIAL);
        needed.find_map(|part| self.part(*part).as_ref().err()).map_or(Ok(()), Err)
    }

    /// Metric id → why it cannot be measured: what [`crate::sample::HostFacts::missing`] holds.
    pub fn missing(&self) -> BTreeMap<String, Missing> {
        let tasks = TASK_METRICS.iter().map(|metric| metric.id);
        let nodes = NODE_METRICS.iter().map(|metric| metric.id);
        let missing = |id: &str| Some((id.to_string(), self.metric(id).err()?.missing.clone()));
        tasks.chain(nodes).filter_map(missing).collect()
    }
}

/// Applies the rules to the facts of one host.
pub fn plan(check: &HostCheck) -> Plan {
    Plan {
        verdicts: Part::ALL.map(|part| (part, rules::verdict(check, part))).into(),
        caveats: rules::caveats(check),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_needs_names_metrics_that_exist() {
        let known = |id: &str| {
            TASK_METRICS.iter().any(|metric| metric.id == id)
                || NODE_METRICS.iter().any(|metric| metric.id == id)
        };
        for id in NEEDS.iter().flat_map(|(ids, _)| *ids) {
            assert!(known(id), "{id} is no metric");
        }
    }
}
