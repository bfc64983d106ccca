//! Regions: nodes, or sockets where the machine hides its nodes. Rules about neighbours compare them.

use std::fmt;

use super::rules::hides_nodes;
use super::view::{SubjectRef, View};
use super::{Subject, cores};
use crate::metric::{cpu_set, node, places};
use crate::model::sample::{Counts, Missing, Reading};
use crate::model::units::{CpuId, NodeId};
use crate::snapshot::{CpuSet, SetKind, Snapshot, Task};

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
        home.ok_or_else(|| Missing::NotCollected("it has not run yet".into()))
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
        match (cores::is_restricted(self, &of), cores::own_cpus(self, &of)) {
            (Some(false), _) => Some(false),
            (_, Some(list)) => Some(list.iter().all(on)),
            _ => None,
        }
    }
}
