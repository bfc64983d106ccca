//! The data that a rule may look at: one window of the machine and of its subject, limits, and the rows of now.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use super::engine::{Rare, Uses};
use super::env::{Env, env};
use super::fit::{NodeDistances, whole_nodes};
use super::history::Sorted;
use super::rule::{Blindness, Reason, Rule, Unmet};
use super::{Evidence, Identity, Note, Subject};
use crate::metric::node::WATERMARK_DISTANCE_PCT;
use crate::metric::placement::{CONTAINER_REMOTE_PCT, REMOTE_PCT};
use crate::metric::{Metric, Value, task};
use crate::model::group::{self, Group, GroupKind};
use crate::model::process::ProcessId;
use crate::model::sample::{GroupRaw, Hints, Missing, NodeRaw, Reading, TaskRaw};
use crate::model::topology::{self, Device, Topology, parse_cpulist};
use crate::model::units::{CpuId, NodeId};
use crate::snapshot::{Container, CpuSet, Node, ProcessGroup, Snapshot, Task};

/// A subject in a window.
#[derive(Clone, Copy, Debug)]
pub enum SubjectRef<'a> {
    /// The machine.
    Host,
    /// A node.
    Node(&'a Node),
    /// A socket of a machine that hides its nodes.
    Socket(&'a CpuSet),
    /// A process.
    Process(&'a Task),
    /// Processes that share memory: the sum of their rows, and the group in the interval.
    Group(&'a Task, &'a ProcessGroup),
    /// A container or another cgroup.
    Container(&'a Container),
    /// A device, and the node that it is on.
    Device(&'a Device, Option<NodeId>),
}

impl<'a> SubjectRef<'a> {
    /// Its identity.
    pub fn subject(&self) -> Subject {
        match self {
            SubjectRef::Host => Subject::Host,
            SubjectRef::Node(node) => Subject::Node(NodeId(node.raw.id)),
            SubjectRef::Socket(set) => Subject::Socket(set.id),
            SubjectRef::Process(task) => process(&task.raw),
            SubjectRef::Group(_, group) => Subject::Group(group.leader.0, group.leader.1),
            SubjectRef::Container(row) => Subject::Container(row.id),
            SubjectRef::Device(device, _) => Subject::Device(device.name.clone()),
        }
    }

    /// The process, or the sum of the group's or the container's.
    pub fn task(&self) -> Option<&'a Task> {
        match self {
            SubjectRef::Process(task) | SubjectRef::Group(task, _) => Some(task),
            SubjectRef::Container(row) => Some(&row.sum),
            _ => None,
        }
    }
}

/// The subject of a row.
pub fn process(raw: &TaskRaw) -> Subject {
    let (pid, start_ns) = raw.process();
    Subject::Process(pid, start_ns)
}

/// Rows that rules look at, found once for each interval.
#[derive(Debug, Default)]
pub struct Rows {
    /// Places of processes in the snapshot, in the order of subjects.
    pub processes: Sorted<Subject, usize>,
    /// Places of containers in the snapshot.
    pub containers: BTreeMap<u64, usize>,
    /// Processes that share memory, by subject.
    pub groups: BTreeMap<Subject, ProcessGroup>,
    /// Members of these.
    pub grouped: BTreeSet<ProcessId>,
    /// Places of the processes above, by each container that they are in.
    pub members: BTreeMap<u64, Vec<usize>>,
    /// Facts of nodes, made when they are asked for; the engine keeps them for as long as the facts of the host are the same.
    pub near: Arc<OnceLock<NodeDistances>>,
    /// Use of CPUs and rare events of subjects in the last minutes.
    pub(super) uses: Arc<Uses>,
    /// Subjects that have a state, in their order.
    pub(super) tracked: Vec<Subject>,
    /// Facts of nodes in the interval, and its kernel threads: each is found when a rule asks first, and not again for each process.
    levels: OnceLock<Levels>,
    kernel: OnceLock<KernelThreads>,
}

/// The least of a quantity over all nodes, as nearly every process leaves a rule by it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Levels {
    /// Distance to the low watermark, of nodes where it is known, in percent; infinite where it is of none.
    pub watermark_pct: f64,
    /// Whether it is known of all nodes.
    pub all_known: bool,
    /// Memory that a node with CPUs and memory manages, bytes; infinite without such a node.
    pub managed_bytes: f64,
}

/// Kernel threads among the rows.
#[derive(Debug, Default)]
pub struct KernelThreads {
    /// Whether there are any: a scope may leave them out.
    pub in_scope: bool,
    /// Places of kernel threads that clean up a node's memory or make room for large pages there, with that
    /// node.
    of_nodes: Vec<(NodeId, usize)>,
}

impl KernelThreads {
    fn of(snapshot: &Snapshot) -> KernelThreads {
        let mut found = KernelThreads::default();
        // None has private memory: that excludes most rows without reading them.
        let without = snapshot.row_uses.iter().enumerate().filter(|(_, row)| row.rss_bytes == 0);
        for (at, task) in
            without.map(|(at, _)| (at, &snapshot.tasks[at])).filter(|(_, task)| task.raw.kthread)
        {
            found.in_scope = true;
            let comm = task.raw.comm.bytes();
            let number = comm.strip_prefix(b"kswapd").or_else(|| comm.strip_prefix(b"kcompactd"));
            let node = number.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
            found.of_nodes.extend(node.map(|node| (NodeId(node), at)));
        }
        found
    }
}

impl Rows {
    /// Facts of the nodes of the machine.
    pub fn near(&self, snapshot: &Snapshot) -> &NodeDistances {
        self.near.get_or_init(|| NodeDistances::of(&snapshot.host.topology, &snapshot.host.isolated_cpus))
    }

    /// Kernel threads of the interval.
    pub fn kernel_threads(&self, snapshot: &Snapshot) -> &KernelThreads {
        self.kernel.get_or_init(|| KernelThreads::of(snapshot))
    }
}

/// One window of the machine for one rule.
pub struct View<'a> {
    /// The interval, with the rows of all tasks and containers.
    pub snapshot: &'a Snapshot,
    /// The machine in the window: the interval itself, or a longer one without rows.
    pub window: &'a Snapshot,
    /// Rows that rules look at.
    pub rows: &'a Rows,
    /// The rule that looks.
    pub rule: &'a Rule,
    /// Whether the question is if it is over: limits are then lower.
    pub over: bool,
    /// Halves of the window before: the subject's share of remote accesses in the first and in the last third, in percent.
    pub trend: Option<(f64, f64)>,
}

impl<'a> View<'a> {
    /// The limit of the rule with this name.
    pub fn limit(&self, name: &str) -> f64 {
        self.rule.limit(name, self.over)
    }

    /// Length of the window, ns.
    pub fn over_ns(&self) -> u64 {
        self.window.interval_ns.unwrap_or(0)
    }

    /// The machine's places.
    pub fn topology(&self) -> &'a Topology {
        &self.snapshot.host.topology
    }

    /// The value of a metric of a process, or of the sum of a container's processes.
    ///
    /// # Errors
    /// The reason why it is missing.
    pub fn number(&self, metric: &Metric<Task>, of: &SubjectRef<'_>) -> Reading<f64> {
        let task = of.task().ok_or_else(|| Missing::NotCollected("not a task".into()))?;
        number(metric, task, self.window)
    }

    /// The value of a metric of a node.
    ///
    /// # Errors
    /// The reason why it is missing.
    pub fn node_number(&self, metric: &Metric<Node>, node: &Node) -> Reading<f64> {
        number(metric, node, self.window)
    }

    /// The value of a metric of a socket.
    ///
    /// # Errors
    /// The reason why it is missing.
    pub fn set_number(&self, metric: &Metric<CpuSet>, set: &CpuSet) -> Reading<f64> {
        number(metric, set, self.window)
    }

    /// The share of remote accesses of a process or a container, in percent.
    ///
    /// # Errors
    /// The reason why it is missing.
    pub fn remote_pct(&self, of: &SubjectRef<'_>) -> Reading<f64> {
        match of {
            SubjectRef::Container(row) => number(&CONTAINER_REMOTE_PCT, *row, self.window),
            _ => self.number(&REMOTE_PCT, of),
        }
    }

    /// CPUs that it used in the window, by a share of the measured time; 0 for a subject that is no task.
    pub fn cpus(&self, of: &SubjectRef<'_>) -> f64 {
        self.number(&task::CPU_PCT, of).map_or(0.0, |pct| pct / 100.0)
    }

    /// CPUs that it needs: what it used in all but a twentieth of the last minutes, or its quota where that is less.
    pub fn need(&self, of: &SubjectRef<'_>) -> f64 {
        let subject = of.subject();
        let has_state = self.rows.tracked.binary_search(&subject).is_ok();
        let needed = self.rows.uses.need(&subject).filter(|_| has_state);
        let used = needed.unwrap_or(0.0).max(self.cpus(of));
        match self.quota(of) {
            Some(quota) => used.min(quota),
            None => used,
        }
    }

    /// The quota of its container, or of the nearest one above that has one, in CPUs.
    pub fn quota(&self, of: &SubjectRef<'_>) -> Option<f64> {
        let mut all = self.container_of(of)?.and_above(&self.snapshot.containers);
        all.find_map(|row| match row.raw.as_ref().map(|raw| &raw.cpu_quota_milli) {
            Some(Ok(Some(milli))) => Some(*milli as f64 / 1000.0),
            _ => None,
        })
    }

    /// Whether NUMA balancing is known to be off.
    pub fn balancing_is_off(&self) -> bool {
        self.snapshot.machine.and_then(|machine| machine.numa_balancing) == Some(0)
    }

    /// The sched_ext scheduler as another cause of where tasks run, where one is loaded.
    pub fn or_else_scheduler(&self) -> Option<String> {
        let (name, _) = self.snapshot.scheduler()?;
        Some(format!("The sched_ext scheduler {name} places tasks: its policy may be the cause."))
    }

    /// Its hinting faults, or those of its processes that rules look at, in the last two minutes. NUMA
    /// balancing scans in turns of a second and of a minute, so an interval of a process with many faults may
    /// have none.
    pub fn hints(&self, of: &SubjectRef<'_>) -> Hints {
        self.rare(of).hints
    }

    fn rare(&self, of: &SubjectRef<'_>) -> Rare {
        let its = |task: &&Task| self.rows.uses.rare(&process(&task.raw));
        self.processes_of(of).iter().map(its).fold(Rare::default(), Rare::and)
    }

    /// Times per second that it resumed on a different node: in the window, or in the last two minutes if that is more. A
    /// shorter interval has none of what happens every few seconds.
    ///
    /// # Errors
    /// The reason why it is missing.
    pub fn node_moves_per_s(&self, of: &SubjectRef<'_>) -> Reading<f64> {
        // A burst at the begin of a run is not spread over less than a minute.
        const LEAST_NS: u64 = 60_000_000_000;
        let now = self.number(&task::NODE_MIGRATIONS_PER_S, of)?;
        let over_s = self.rows.uses.rare_ns().max(LEAST_NS) as f64 / 1e9;
        Ok(now.max(self.rare(of).node_moves as f64 / over_s))
    }

    /// The row of the container that it is, or is in.
    pub fn container_of(&self, of: &SubjectRef<'_>) -> Option<&'a Container> {
        let id = match of {
            SubjectRef::Container(row) => row.id,
            SubjectRef::Process(task) => self.snapshot.names.top(task.raw.cgroup_id),
            SubjectRef::Group(_, group) => group.container?,
            _ => return None,
        };
        self.snapshot.containers.get(*self.rows.containers.get(&id)?)
    }

    /// The kind and names of the group that it is, or is in.
    pub fn group_of(&self, of: &SubjectRef<'_>) -> Option<&'a Group> {
        let groups = &self.snapshot.names.groups;
        let cgroup = match of {
            SubjectRef::Container(row) => row.id,
            SubjectRef::Process(task) => task.raw.cgroup_id,
            SubjectRef::Group(_, group) => group.container?,
            _ => return None,
        };
        let group = groups.get(&cgroup)?;
        Some(groups.get(&group.top).unwrap_or(group))
    }

    /// Files of the group that it is, or is in.
    pub fn files_of(&self, of: &SubjectRef<'_>) -> Option<&'a GroupRaw> {
        self.container_of(of)?.raw.as_deref()
    }

    /// Processes that rules look at: it, or those in it.
    pub fn processes_of<'b>(&self, of: &SubjectRef<'b>) -> Vec<&'b Task>
    where
        'a: 'b,
    {
        match of {
            SubjectRef::Process(task) => vec![task],
            SubjectRef::Group(_, group) => group.members.iter().map(|at| &self.snapshot.tasks[*at]).collect(),
            SubjectRef::Container(row) => self.members(row.id),
            _ => Vec::new(),
        }
    }

    /// Processes that rules look at in a container, as they were in the interval.
    pub fn members(&self, container: u64) -> Vec<&'a Task> {
        let places = self.rows.members.get(&container);
        places.into_iter().flatten().map(|at| &self.snapshot.tasks[*at]).collect()
    }

    /// Whether a process is a member of a group, which is looked at in its place where memory is asked about.
    pub fn is_in_group(&self, of: &SubjectRef<'_>) -> bool {
        matches!(of, SubjectRef::Process(task) if self.rows.grouped.contains(&task.raw.process()))
    }

    /// All processes that rules look at, in the order of subjects.
    pub fn candidates(&self) -> impl Iterator<Item = &'a Task> {
        self.rows.processes.values().map(|at| &self.snapshot.tasks[*at])
    }

    /// kswapd and kcompactd of a node, as they were in the interval.
    pub fn reclaimers(&self, node: NodeId) -> impl Iterator<Item = &'a Task> {
        let places = self.rows.kernel_threads(self.snapshot).of_nodes.iter();
        places.filter(move |(of, _)| *of == node).map(|(_, at)| &self.snapshot.tasks[*at])
    }

    /// The least of some quantities over all nodes in the window.
    pub fn levels(&self) -> Levels {
        if self.is_interval() {
            *self.rows.levels.get_or_init(|| self.find_levels())
        } else {
            self.find_levels()
        }
    }

    fn find_levels(&self) -> Levels {
        let mut levels =
            Levels { watermark_pct: f64::INFINITY, all_known: true, managed_bytes: f64::INFINITY };
        for row in &self.window.nodes {
            match self.node_number(&WATERMARK_DISTANCE_PCT, row) {
                Ok(pct) => levels.watermark_pct = levels.watermark_pct.min(pct),
                Err(_) => levels.all_known = false,
            }
        }
        for node in whole_nodes(self.topology()) {
            let managed = self.node(node).map_or(0.0, |row| row.raw.managed_bytes as f64);
            levels.managed_bytes = levels.managed_bytes.min(managed);
        }
        levels
    }

    /// Nodes with CPUs and memory.
    pub fn whole_nodes(&self) -> Vec<NodeId> {
        whole_nodes(self.topology()).collect()
    }

    /// Nodes whose memory is not a separate tier: those with CPUs, and those whose CPUs are all offline,
    /// where memory stayed behind.
    pub fn nodes_to_leave(&self) -> Vec<NodeId> {
        let has = |node: &&topology::Node| node.mem_total_bytes > 0 && !self.topology().is_tier(node);
        self.topology().nodes.iter().filter(has).map(|node| node.id).collect()
    }

    /// Nodes of these CPUs.
    pub fn nodes_of_cpus(&self, cpus: &[u32]) -> BTreeSet<NodeId> {
        cpus.iter().filter_map(|cpu| self.topology().cpu(CpuId(*cpu))?.node).collect()
    }

    /// Online CPUs of these nodes, ascending. Isolated ones are left to those who ask for them.
    pub fn cpus_of_nodes(&self, nodes: &[NodeId]) -> Vec<u32> {
        let isolated = &self.snapshot.host.isolated_cpus;
        let on = |cpu: &&crate::model::topology::Cpu| {
            cpu.node.is_some_and(|node| nodes.contains(&node)) && !isolated.contains(&cpu.id.0)
        };
        self.topology().online_cpus().filter(on).map(|cpu| cpu.id.0).collect()
    }

    /// The row of a node in the window.
    pub fn node(&self, id: NodeId) -> Option<&'a Node> {
        let nodes = &self.window.nodes;
        // Ids are most often places: machines without gaps among their nodes.
        let likely = nodes.get(id.index()).filter(|node| node.raw.id == id.0);
        likely.or_else(|| nodes.iter().find(|node| node.raw.id == id.0))
    }

    /// CPUs that were idle in the window, as a sum over online CPUs, or over those of one node.
    pub fn idle_cpus(&self, of: Option<NodeId>) -> f64 {
        let length = self.over_ns().max(1) as f64;
        let here =
            self.window.cpus.iter().filter(|cpu| cpu.online && of.is_none_or(|node| cpu.node == node.0));
        here.map(|cpu| (1.0 - cpu.busy_ns as f64 / length).clamp(0.0, 1.0)).sum()
    }

    /// The node with the most free memory above its low watermark, among those with CPUs that `may` be used,
    /// and that memory in bytes. `None` if no node has a significant amount. Page cache does not count as
    /// free here: a machine full of it is healthy, and reclaim leaves memory up to the high watermark free on
    /// each node, a thousandth above the low one.
    pub fn roomiest(&self, may: impl Fn(NodeId) -> bool) -> Option<(NodeId, f64)> {
        let whole = self.whole_nodes();
        let others = self.window.nodes.iter().map(|other| (NodeId(other.raw.id), &other.raw));
        let roomy = others.filter(|(id, raw)| whole.contains(id) && may(*id) && self.has_room(raw));
        let free = roomy.map(|(id, raw)| (id, above_watermark(raw)));
        free.max_by(|(a, x), (b, y)| x.total_cmp(y).then(b.cmp(a)))
    }

    /// Whether a node has as much free memory above its low watermark as is worth a word, and more than reclaim leaves.
    pub fn has_room(&self, raw: &NodeRaw) -> bool {
        const RECLAIMED: f64 = 0.01;
        above_watermark(raw) >= self.enough_free().max(raw.managed_bytes as f64 * RECLAIMED)
    }

    /// Whether masks of nodes have a bit for each node of the machine.
    pub fn masks_hold_all(&self) -> bool {
        self.topology().nodes.iter().all(|node| node.id.0 < u64::BITS)
    }

    /// Whether the window is the interval itself, not a longer one.
    pub fn is_interval(&self) -> bool {
        std::ptr::eq(self.window, self.snapshot)
    }

    /// The environment that the subject is in.
    pub fn env(&self, of: &SubjectRef<'_>) -> Env {
        let id = self.container_of(of).map(|row| row.id);
        // The raw path, not the one on screen: a command names files.
        let path = id.and_then(|id| self.snapshot.names.cgroups.get(&id));
        env(self.group_of(of), path.map(String::as_str))
    }

    /// The least significant amount: 1 GiB, or a tenth of a node that is smaller than 10 GiB.
    pub fn enough_free(&self) -> f64 {
        const GIB: f64 = (1u64 << 30) as f64;
        let sizes = self.window.nodes.iter().map(|node| node.raw.mem_total_bytes as f64);
        let smallest = sizes.filter(|bytes| *bytes > 0.0).fold(f64::INFINITY, f64::min);
        GIB.min(smallest * 0.1)
    }

    /// The list of CPUs that a subject may use, where it is known and has not all of them.
    fn restricted_to(&self, of: &SubjectRef<'_>) -> Option<String> {
        let own = super::cores::own_cpus(self, of)?;
        (own.len() < self.topology().online_cpus().count()).then(|| super::command::cpu_list(&own))
    }

    /// Identity of a subject in words.
    pub fn identity(&self, of: &SubjectRef<'_>) -> Identity {
        let group = self.group_of(of);
        let cgroup = |id: u64| self.snapshot.names.cgroups.get(&id).map(|path| group::show(path));
        let mut identity = Identity {
            container: group.filter(|group| group.kind != GroupKind::Group).map(|group| group.name.clone()),
            container_id: group.and_then(|group| group.id.clone()),
            cpus: self.restricted_to(of),
            ..Identity::default()
        };
        identity.label = match of {
            SubjectRef::Host => "host".to_owned(),
            SubjectRef::Node(node) => format!("node {}", node.raw.id),
            SubjectRef::Socket(set) => format!("socket {}", set.id),
            SubjectRef::Process(task) => {
                let comm = super::text::comm(task.raw.comm);
                identity.cgroup = cgroup(task.raw.cgroup_id);
                let label = format!("{} {comm}", task.raw.pid);
                identity.comm = Some(comm);
                label
            }
            SubjectRef::Group(task, its) => {
                identity.cgroup = its.container.and_then(cgroup);
                let comm = super::text::comm(task.raw.comm);
                let of = identity.container.as_deref().map_or_else(|| comm.clone(), super::text::name);
                identity.comm = Some(comm);
                identity.members =
                    its.members.iter().map(|at| self.snapshot.tasks[*at].raw.process()).collect();
                identity.objects.clone_from(&its.objects);
                format!("{of}, {} processes", its.members.len())
            }
            SubjectRef::Container(row) => {
                identity.cgroup = cgroup(row.id);
                match &row.group {
                    Some(group) => super::text::name(&group.name),
                    None => format!("cgroup {}", row.id),
                }
            }
            SubjectRef::Device(device, _) => super::text::name(&crate::text::clean_str(&device.name)),
        };
        identity
    }

    /// A value that the condition used.
    pub fn evidence(&self, metric: &'static str, of: Subject, value: f64) -> Evidence {
        Evidence {
            metric,
            of,
            node: None,
            nodes: Vec::new(),
            value,
            error: 0.0,
            over_ns: self.over_ns(),
            limit: None,
            note: None,
        }
    }
}

impl Evidence {
    /// The same with the limit that it passed.
    #[must_use]
    pub fn limit(self, limit: f64) -> Evidence {
        Evidence { limit: Some(limit), ..self }
    }

    /// The same with half of its 95 % interval.
    #[must_use]
    pub fn error(self, error: f64) -> Evidence {
        Evidence { error, ..self }
    }

    /// The same with its meaning.
    #[must_use]
    pub fn note(self, note: Note) -> Evidence {
        Evidence { note: Some(note), ..self }
    }

    /// The same of one node.
    #[must_use]
    pub fn on(self, node: NodeId) -> Evidence {
        Evidence { node: Some(node), ..self }
    }

    /// The same of several nodes together; of one node, where there is no other.
    #[must_use]
    pub fn over_nodes(self, nodes: &[NodeId]) -> Evidence {
        let mut nodes = if nodes.len() > 1 { nodes.to_vec() } else { Vec::new() };
        nodes.sort_unstable();
        Evidence { nodes, ..self }
    }
}

/// Free memory of a node above its low watermark in bytes; 0 where the kernel does not say the watermark.
pub fn above_watermark(raw: &NodeRaw) -> f64 {
    if raw.managed_bytes == 0 {
        return 0.0;
    }
    (raw.mem_free_bytes as f64 - raw.low_watermark_bytes as f64).max(0.0)
}

/// The value of a metric as a number.
fn number<R>(metric: &Metric<R>, row: &R, window: &Snapshot) -> Reading<f64> {
    let value: Value = metric.read(row, window)?;
    value.number().ok_or_else(|| Missing::NotCollected(format!("{} is not a number", metric.id)))
}

/// CPUs that a group may use, from its files.
pub fn cpus_of_files(files: &GroupRaw) -> Option<Vec<u32>> {
    parse_cpulist(files.cpus.as_ref().ok()?).ok()
}

/// Nodes that a group may take memory from, from its files.
pub fn mems_of_files(files: &GroupRaw) -> Option<Vec<NodeId>> {
    let nodes = parse_cpulist(files.mems.as_ref().ok()?).ok()?;
    Some(nodes.into_iter().map(NodeId).collect())
}

/// The reading, or blindness with its reason as the result of a rule.
///
/// # Errors
/// The result of the rule where it cannot look.
pub fn need<T>(reading: Reading<T>) -> Result<T, Unmet> {
    reading.map_err(|missing| Unmet::Blind(missing.into()))
}

/// The value, or blindness because numatop-ng or this recording does not have it.
///
/// # Errors
/// The result of the rule where it cannot look.
pub fn input<T>(value: Option<T>, words: &'static str) -> Result<T, Unmet> {
    value.ok_or_else(|| Unmet::Blind(Blindness::new(Reason::NoInput, words)))
}
