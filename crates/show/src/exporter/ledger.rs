//! Everything that was added up since the start, and amounts of rows of tasks: of programs and of containers. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Limits;
use super::page::Labels;
use super::places::Places;
use super::top::{Sum, Top};
use crate::metric::amounts::{
    AmountRow, Counted, FamilyOver, NODE_AMOUNTS, NS, NodeFamily, NodeNow, Number, RowNow, families,
};
use crate::metric::events;
use crate::metric::over::Located;
use crate::model::group::{Group, GroupKind};
use crate::model::units::NodeId;
use crate::snapshot::{Snapshot, Task};
use crate::text::clean;

/// Gauges of a row as of now.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Now {
    pub processes: u64,
    pub rss_bytes: u64,
}

/// Sums of the amounts of a node, in the order of [`NODE_AMOUNTS`]; `None` until one is known.
#[derive(Clone, Debug)]
pub(super) struct NodeSums(pub Vec<Option<f64>>);

/// Totals by row.
pub(super) struct Ledger {
    pub intervals: u64,
    pub nodes: BTreeMap<u32, NodeSums>,
    pub containers: Top<Labels, Sums>,
    pub programs: Top<Labels, Sums>,
    pub containers_now: BTreeMap<Labels, Now>,
    pub programs_now: BTreeMap<Labels, Now>,
    /// Seconds of CPU time by node of the CPU and of the memory.
    pub accesses_s: BTreeMap<(u32, u32), f64>,
    pub task_moves: BTreeMap<(u32, u32), f64>,
    pub page_moves: BTreeMap<(u32, u32), f64>,
    pub places: Places,
}

/// The name of the series of all rows without one of their own.
pub(super) const OTHERS: &str = "(others)";

impl Ledger {
    /// Begins at zero.
    pub(super) fn new(limits: Limits) -> Ledger {
        Ledger {
            intervals: 0,
            nodes: BTreeMap::new(),
            containers: Top::new(limits.containers),
            programs: Top::new(limits.programs),
            containers_now: BTreeMap::new(),
            programs_now: BTreeMap::new(),
            accesses_s: BTreeMap::new(),
            task_moves: BTreeMap::new(),
            page_moves: BTreeMap::new(),
            places: Places::default(),
        }
    }

    /// Adds an interval, with rows of processes.
    pub(super) fn take(&mut self, snapshot: &Snapshot) {
        self.intervals += 1;
        let (mut containers, mut programs) =
            (BTreeMap::<Labels, Sums>::new(), BTreeMap::<Labels, Sums>::new());
        (self.containers_now, self.programs_now) = (BTreeMap::new(), BTreeMap::new());
        let mut labels = BTreeMap::<u64, Labels>::new();
        let counted = Counted::of(snapshot);
        let mut all = Sums::default();
        let mut located = BTreeMap::<usize, Located>::new();
        for task in &snapshot.tasks {
            let id = task.raw.cgroup_id;
            let group = snapshot.names.groups.get(&id);
            let container = labels.entry(id).or_insert_with(|| container_of(group)).clone();
            let program = program_of(group, task);
            let known = Located::of(task, snapshot);
            let sums = Sums::of(task, known, snapshot, &counted);
            all.add(&sums);
            for (node, more) in known.into_iter().flat_map(|known| known.by_node(task)) {
                *located.entry(node).or_default() += more;
            }
            containers.entry(container.clone()).or_default().add(&sums);
            programs.entry(program.clone()).or_default().add(&sums);
            for now in [self.containers_now.entry(container), self.programs_now.entry(program)] {
                let now = now.or_default();
                now.processes += u64::from(!task.exited && !task.left());
                now.rss_bytes += task.rss_bytes;
            }
        }
        self.containers.take(containers);
        self.programs.take(programs);
        for node in &snapshot.nodes {
            let at = node.raw.id as usize;
            let cpu_s = Some(all.cpu_s_by_node.get(at).copied().unwrap_or(0.0));
            let now = NodeNow { node, snapshot, located: located.get(&at).copied(), cpu_s };
            let sums = self.nodes.entry(node.raw.id);
            sums.or_insert_with(|| NodeSums(vec![None; NODE_AMOUNTS.len()])).take(now);
        }
        self.take_pairs(snapshot);
        self.places.take(snapshot);
    }

    fn take_pairs(&mut self, snapshot: &Snapshot) {
        let nodes = || snapshot.nodes.iter().map(|node| NodeId(node.raw.id));
        for from in nodes() {
            for to in nodes() {
                let ns = snapshot.accesses.ns(from, to);
                if ns > 0.0 {
                    *self.accesses_s.entry((from.0, to.0)).or_default() += ns * NS;
                }
            }
        }
        let kinds = [(&snapshot.flows, &mut self.task_moves), (&snapshot.page_flows, &mut self.page_moves)];
        for (flows, sums) in kinds {
            for flow in flows.iter().filter(|flow| flow.count > 0) {
                *sums.entry((flow.from.0, flow.to.0)).or_default() += flow.count as f64;
            }
        }
    }
}

impl NodeSums {
    fn take(&mut self, now: NodeNow<'_>) {
        for (sum, amount) in self.0.iter_mut().zip(NODE_AMOUNTS) {
            if let Some(NodeFamily { over: FamilyOver::Sum(factor), .. }) = amount.family
                && let Some(more) = (amount.value)(now)
            {
                *sum.get_or_insert(0.0) += more.as_f64() * factor;
            }
        }
    }
}

/// Labels of the container, unit or group whose tasks these are.
fn container_of(group: Option<&Arc<Group>>) -> Labels {
    match group {
        Some(group) => container_labels(group),
        None => Labels::of([("container", own_name("")), ("kind", GroupKind::Group.name())]),
    }
}

/// Labels of a row of containers.
pub(super) fn container_labels(group: &Group) -> Labels {
    let is_pod = group.kind == GroupKind::Pod;
    let pod = if is_pod { Some(group.name.as_str()) } else { group.pod.as_deref() };
    let labels = Labels::of([
        ("namespace", group.namespace.as_deref().unwrap_or_default()),
        ("pod", pod.unwrap_or_default()),
        ("container", if is_pod { "" } else { own_name(&group.name) }),
        ("kind", group.kind.name()),
    ]);
    // Only of a user's engine, so that other series stay as they are.
    match &group.user {
        Some(user) => labels.and("user", user),
        None => labels,
    }
}

/// Labels of a program: with its container if it is in one.
fn program_of(group: Option<&Arc<Group>>, task: &Task) -> Labels {
    let group = group.filter(|group| matches!(group.kind, GroupKind::Container | GroupKind::Machine));
    let comm = clean(task.raw.comm.bytes());
    let (namespace, pod, container) = match group {
        Some(group) => (group.namespace.as_deref(), group.pod.as_deref(), own_name(&group.name)),
        None => (None, None, ""),
    };
    Labels::of([
        ("namespace", namespace.unwrap_or_default()),
        ("pod", pod.unwrap_or_default()),
        ("container", container),
        ("comm", own_name(&comm)),
    ])
}

/// A name that is not taken for that of the rest, and not left out.
fn own_name(name: &str) -> &str {
    match name {
        "" => "(none)",
        OTHERS => "(others)_",
        name => name,
    }
}

/// Amounts of a row: CPU time by node, and each amount as far as it was ever known.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sums {
    pub cpu_s_by_node: Vec<f64>,
    /// In the order of [`families`].
    pub amounts: Vec<Option<f64>>,
    /// Events that were asked for by name, in their order.
    pub events: Vec<Option<f64>>,
}

impl Sums {
    /// The amounts of a task in the interval, with its time for which the place of memory is known.
    pub(super) fn of(task: &Task, located: Option<Located>, snapshot: &Snapshot, counted: &Counted) -> Sums {
        let now = RowNow { row: AmountRow::Task(task), snapshot, counted, located };
        let amounts = families()
            .map(|(amount, family)| amount.value(now).map(Number::as_f64).map(|value| value * family.factor));
        Sums {
            cpu_s_by_node: task.delta.run_ns.iter().map(|ns| *ns as f64 * NS).collect(),
            amounts: amounts.collect(),
            events: snapshot.host.asked.iter().map(|name| events::count(name, task, snapshot).ok()).collect(),
        }
    }
}

impl Sum for Sums {
    fn add(&mut self, other: &Sums) {
        if self.cpu_s_by_node.len() < other.cpu_s_by_node.len() {
            self.cpu_s_by_node.resize(other.cpu_s_by_node.len(), 0.0);
        }
        for (mine, theirs) in self.cpu_s_by_node.iter_mut().zip(&other.cpu_s_by_node) {
            *mine += theirs;
        }
        for (mine, theirs) in [(&mut self.amounts, &other.amounts), (&mut self.events, &other.events)] {
            if mine.len() < theirs.len() {
                mine.resize(theirs.len(), None);
            }
            for (mine, theirs) in mine.iter_mut().zip(theirs) {
                if let Some(theirs) = theirs {
                    *mine.get_or_insert(0.0) += theirs;
                }
            }
        }
    }

    fn weight(&self) -> f64 {
        self.amounts.first().copied().flatten().unwrap_or(0.0)
    }
}
