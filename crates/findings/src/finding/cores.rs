//! Cores and CPUs for rules: idle cores, CPUs of cpusets, and CPUs that a subject can use. Rules about neighbours compare
//! regions: nodes, or sockets where the machine hides its nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::rules::hides_nodes;
use super::view::{SubjectRef, View, cpus_of_files, mems_of_files};
use super::{Subject, text};
use crate::metric::{cpu_set, node, places};
use crate::model::group::GroupKind;
use crate::model::sample::{Counts, Missing, Reading};
use crate::model::topology::parse_cpulist;
use crate::model::units::{CpuId, NodeId};
use crate::snapshot::{CpuSet, SetKind, Snapshot, Task};

/// Busy share of a CPU in percent below which it counts as idle: housekeeping alone takes a percent or two.
const IDLE_PCT: f64 = 5.0;

/// The part of a core that may be missing. Two threads use 2.02 CPUs in some intervals, because the account
/// of a running task is as of its last tick. They need no third core for that.
const ROUNDING: f64 = 0.1;

/// Whole cores that so much work needs, in CPUs; at least one.
pub fn needed(cpus: f64) -> usize {
    (cpus - ROUNDING).ceil().max(1.0) as usize
}

/// A physical core with its online CPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct Core {
    /// The node that it is on.
    pub node: NodeId,
    /// Its online CPUs, ascending.
    pub cpus: Vec<u32>,
}

/// All cores with a known node, in the order of their first CPUs.
pub fn cores(view: &View<'_>) -> Vec<Core> {
    let mut by_core: BTreeMap<u32, Core> = BTreeMap::new();
    for cpu in view.topology().online_cpus() {
        let Some(node) = cpu.node else { continue };
        by_core.entry(cpu.core).or_insert_with(|| Core { node, cpus: Vec::new() }).cpus.push(cpu.id.0);
    }
    by_core.into_values().collect()
}

/// Cores of these nodes whose CPUs were all idle in the window and are not isolated. Cores of the first node
/// come first.
pub fn idle_cores(view: &View<'_>, nodes: &[NodeId]) -> Vec<Core> {
    let length = view.over_ns().max(1) as f64;
    let busy: BTreeMap<u32, f64> = view
        .window
        .cpus
        .iter()
        .filter(|cpu| cpu.online)
        .map(|cpu| (cpu.id, cpu.busy_ns as f64 * 100.0 / length))
        .collect();
    let isolated = &view.snapshot.host.isolated_cpus;
    let rests = |cpu: &u32| busy.get(cpu).is_some_and(|pct| *pct < IDLE_PCT) && !isolated.contains(cpu);
    let mut idle: Vec<Core> = cores(view)
        .into_iter()
        .filter(|core| nodes.contains(&core.node) && core.cpus.iter().all(rests))
        .collect();
    idle.sort_by_key(|core| nodes.iter().position(|node| *node == core.node));
    idle
}

/// The least of a list of cores that has as many as work needs, by their first CPUs; `None` where these are too few.
pub fn first_threads(cores: &[Core], cpus: f64) -> Option<Vec<u32>> {
    let wanted = needed(cpus);
    let mut first: Vec<u32> =
        cores.iter().filter_map(|core| core.cpus.first().copied()).take(wanted).collect();
    first.sort_unstable();
    (first.len() == wanted).then_some(first)
}

/// Whether any CPU of these nodes was idle in the window: a look that costs little, before cores are looked at.
pub fn any_idle(view: &View<'_>, nodes: &[NodeId]) -> bool {
    let length = view.over_ns().max(1) as f64;
    let rests = |busy_ns: u64| (busy_ns as f64) * 100.0 < IDLE_PCT * length;
    view.window.cpus.iter().any(|cpu| cpu.online && rests(cpu.busy_ns) && nodes.contains(&NodeId(cpu.node)))
}

/// CPUs that some cpuset with fewer than all of them names.
pub fn named_cpus(view: &View<'_>) -> BTreeSet<u32> {
    let online = view.topology().online_cpus().count();
    // Most groups have the same list: each is read once.
    let of_group =
        |row: &'_ crate::snapshot::Container| Some(row.raw.as_deref()?.cpus.as_ref().ok()?.clone());
    let texts: BTreeSet<String> = view.snapshot.containers.iter().filter_map(of_group).collect();
    let lists = texts.iter().filter_map(|text| parse_cpulist(text).ok());
    lists.filter(|list| list.len() < online).flatten().collect()
}

/// The CPUs that a subject may use, as far as the list is known: the cpuset of a container, or the affinity of a process.
pub fn own_cpus(view: &View<'_>, of: &SubjectRef<'_>) -> Option<Vec<u32>> {
    let of_group = view.files_of(of).and_then(cpus_of_files);
    let SubjectRef::Process(task) = of else { return of_group };
    if let Some(Ok(about)) = task.about()
        && let Ok(texts) = &about.texts
        && let Ok(list) = &texts.cpus_allowed
    {
        return parse_cpulist(list).ok();
    }
    let all: Vec<u32> = view.topology().online_cpus().map(|cpu| cpu.id.0).collect();
    let count = task.raw.cpus_allowed as usize;
    [Some(all), of_group].into_iter().flatten().find(|list| list.len() == count)
}

/// Whether it may use fewer CPUs than are online; `None` where that is not known.
pub fn is_restricted(view: &View<'_>, of: &SubjectRef<'_>) -> Option<bool> {
    let online = view.topology().online_cpus().count();
    match of {
        SubjectRef::Process(task) => {
            (task.raw.cpus_allowed > 0).then_some((task.raw.cpus_allowed as usize) < online)
        }
        _ => own_cpus(view, of).map(|list| list.len() < online),
    }
}

/// Whether a list of CPUs has all online threads of each core that it names.
pub fn is_whole_cores(view: &View<'_>, list: &[u32]) -> bool {
    let named = |core: &&Core| core.cpus.iter().any(|cpu| list.contains(cpu));
    cores(view).iter().filter(named).all(|core| core.cpus.iter().all(|cpu| list.contains(cpu)))
}

/// Nodes that it ran on for a twentieth of its time or more, the one with the most time first.
pub fn nodes_in_use(of: &SubjectRef<'_>) -> Vec<NodeId> {
    let Some(task) = of.task() else { return Vec::new() };
    let all = task.run_ns();
    let mut ran: Vec<(u64, NodeId)> = (0..)
        .map(NodeId)
        .zip(&task.delta.run_ns)
        .filter(|(_, ns)| **ns > 0 && ns.saturating_mul(20) >= all)
        .map(|(node, ns)| (*ns, node))
        .collect();
    ran.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    ran.into_iter().map(|(_, node)| node).collect()
}

/// Whether it is a container, pod, machine or unit with tasks, not a group that only holds others.
pub fn is_container(of: &SubjectRef<'_>) -> bool {
    matches!(of, SubjectRef::Container(row) if row.own_tasks && row.kind() != GroupKind::Group)
}

/// Nodes from which its cpuset lets a subject take memory, or all whole nodes if that is unknown. With these
/// lists a change of CPUs does not affect memory.
pub fn own_mems(view: &View<'_>, of: &SubjectRef<'_>) -> Vec<NodeId> {
    view.files_of(of)
        .and_then(mems_of_files)
        .filter(|nodes| !nodes.is_empty())
        .unwrap_or_else(|| view.whole_nodes())
}

/// The name of a process, or the label of a container, for sentences.
pub fn name(view: &View<'_>, of: &SubjectRef<'_>) -> String {
    match of {
        SubjectRef::Process(task) => text::comm(task.raw.comm),
        _ => view.identity(of).label,
    }
}

/// A process of the subject that a command may name.
pub fn pid(view: &View<'_>, of: &SubjectRef<'_>) -> Option<u32> {
    match of {
        SubjectRef::Process(task) => Some(task.raw.pid),
        SubjectRef::Container(row) => view.members(row.id).first().map(|task| task.raw.pid),
        _ => None,
    }
}

/// A node, or a socket of a machine that hides its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Region {
    /// A NUMA node.
    Node(NodeId),
    /// A socket by its `physical_package_id`.
    Socket(u32),
}

impl fmt::Display for Region {
    /// `node 1`, `socket 1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Region::Node(node) => write!(f, "node {node}"),
            Region::Socket(socket) => write!(f, "socket {socket}"),
        }
    }
}

impl Region {
    /// It as the subject of a finding or of a value.
    pub fn subject(self) -> Subject {
        match self {
            Region::Node(node) => Subject::Node(node),
            Region::Socket(socket) => Subject::Socket(socket),
        }
    }

    /// The region that a subject is; `None` for others.
    pub fn of(of: &SubjectRef<'_>) -> Option<Region> {
        match of {
            SubjectRef::Node(node) => Some(Region::Node(NodeId(node.raw.id))),
            SubjectRef::Socket(set) => Some(Region::Socket(set.id)),
            _ => None,
        }
    }

    /// The same at the beginning of a sentence.
    pub fn title(self) -> String {
        let mut words = self.to_string();
        words[..1].make_ascii_uppercase();
        words
    }
}

/// Sockets of a machine that hides its nodes; none on others.
pub fn hidden_sockets(snapshot: &Snapshot) -> impl Iterator<Item = &CpuSet> {
    let hidden = hides_nodes(snapshot);
    snapshot.cpu_sets.iter().filter(move |set| hidden && set.kind == SetKind::Socket)
}

impl View<'_> {
    /// Regions with CPUs: sockets where nodes are hidden, else nodes that have memory, too.
    pub fn regions(&self) -> Vec<Region> {
        let sockets: Vec<Region> = hidden_sockets(self.snapshot).map(|set| Region::Socket(set.id)).collect();
        match sockets.is_empty() {
            true => self.whole_nodes().into_iter().map(Region::Node).collect(),
            false => sockets,
        }
    }

    /// A socket of a machine that hides its nodes, in the window.
    pub fn socket(&self, id: u32) -> Option<&CpuSet> {
        hidden_sockets(self.window).find(|set| set.id == id)
    }

    /// CPUs of a region that are online, ascending. Isolated ones are left to those who ask for them.
    pub fn cpus_of(&self, region: Region) -> Vec<u32> {
        match region {
            Region::Node(node) => self.cpus_of_nodes(&[node]),
            Region::Socket(id) => {
                let isolated = &self.snapshot.host.isolated_cpus;
                let cpus = self.socket(id).map(|set| &set.cpus);
                cpus.into_iter().flatten().filter(|cpu| !isolated.contains(cpu)).copied().collect()
            }
        }
    }

    /// The region with most of its time in the last interval, or ever if it rested.
    ///
    /// # Errors
    /// Time is not kept by sockets, or it has not run yet.
    pub fn home(&self, task: &Task) -> Reading<Region> {
        if hidden_sockets(self.snapshot).next().is_some() {
            return places::home(task, self.snapshot, SetKind::Socket).map(Region::Socket);
        }
        let home = task.home_node().map(Region::Node);
        home.ok_or_else(|| Missing::NotCollected("the task has not run yet".into()))
    }

    /// Time in a region, ns; `None` where time is not kept by sockets.
    pub fn ran_in(&self, counts: &Counts, region: Region) -> Option<u64> {
        match region {
            Region::Node(node) => Some(counts.run_ns.get(node.index()).copied().unwrap_or(0)),
            Region::Socket(id) => {
                let times = self.snapshot.place_sets.times(counts, SetKind::Socket)?;
                Some(times.into_iter().find(|(socket, _)| *socket == id).map_or(0, |(_, ns)| ns))
            }
        }
    }

    /// CPUs of a region that were busy in the window, as a sum.
    pub fn busy_in(&self, region: Region) -> f64 {
        let on_cpus = match region {
            Region::Node(node) => self.node(node).map(|row| &row.on_cpus),
            Region::Socket(id) => self.socket(id).map(|set| &set.on_cpus),
        };
        on_cpus.map_or(0.0, |on_cpus| on_cpus.busy_ns as f64 / self.over_ns().max(1) as f64)
    }

    /// Memory accesses per second of what ran in a region, as far as they are counted.
    pub fn accesses_in(&self, region: Region) -> Option<f64> {
        match region {
            Region::Node(id) => {
                let row = self.node(id)?;
                Some(
                    self.node_number(&node::LMA_PER_S, row).ok()?
                        + self.node_number(&node::RMA_PER_S, row).ok()?,
                )
            }
            Region::Socket(id) => {
                let set = self.socket(id)?;
                let [local, remote] = [&cpu_set::LMA_PER_S, &cpu_set::RMA_PER_S];
                Some(self.set_number(local, set).ok()? + self.set_number(remote, set).ok()?)
            }
        }
    }

    /// Whether a process may use CPUs of this region only; `None` where its list of CPUs is not known.
    pub fn is_bound_to(&self, task: &Task, region: Region) -> Option<bool> {
        let socket = match region {
            Region::Node(node) => return Some(node.0 < u64::BITS && task.cpu_nodes == Some(1 << node.0)),
            Region::Socket(id) => id,
        };
        let of = SubjectRef::Process(task);
        let on = |cpu: &u32| {
            let cpu = self.topology().cpu(CpuId(*cpu));
            cpu.is_none_or(|cpu| !cpu.online || cpu.socket.is_some_and(|its| its as u32 == socket))
        };
        match (is_restricted(self, &of), own_cpus(self, &of)) {
            (Some(false), _) => Some(false),
            (_, Some(list)) => Some(list.iter().all(on)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundredth_of_a_cpu_needs_no_core_more() {
        assert_eq!([0.0, 1.01, 2.0, 1.2].map(needed), [1, 1, 2, 2]);
        let cores: Vec<Core> = [0, 2, 4].map(|cpu| Core { node: NodeId(0), cpus: vec![cpu, cpu + 1] }).into();
        assert_eq!(first_threads(&cores, 2.02), Some(vec![0, 2]));
        assert_eq!(first_threads(&cores, 2.2), Some(vec![0, 2, 4]));
        assert_eq!(first_threads(&cores[..2], 2.2), None);
        assert_eq!(first_threads(&cores, 0.0), Some(vec![0]));
    }
}
