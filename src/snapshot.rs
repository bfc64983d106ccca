//! From two samples to what is shown: the only place that subtracts. Pure.

mod changes;
mod containers;
mod cpus;
mod dead_counters;
mod ids;
mod remote;
mod rows;
mod smt_neighbours;
mod tally;
mod waits;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::access::follow::by_count::{Evidence, by_count};
use crate::hot::profile::Profile;
use crate::model::access::{AccessSource, MemoryUse, SampledEvent};
use crate::model::event::Role;
use crate::model::process::ProcFields;
use crate::model::sample::{
    Flow, Hints, HostFacts, MachineRaw, Missing, Names, NodeRaw, PolicyBytes, Pressure, Reading, Resident,
    Sample, SelfUsage, Slot, TaskRaw,
};
use crate::model::units::NodeId;
use crate::program::overhead::Cost;

pub use containers::{Container, GroupDelta};
pub use cpus::CpuDelta;
pub use remote::{Accesses, Memory, Remote, Room, shares as memory_shares};
pub use smt_neighbours::{SmtNeighbour, beside};
pub use tally::Tally;
pub use waits::Waits;

use changes::Changes;
use containers::Sums;
use rows::{Gathered, threads};

/// The unit of one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowKind {
    /// A process: the sum of its threads, ended ones included.
    Processes,
    /// A thread; what ended threads left is a row with `tid` 0.
    Threads,
    /// The threads of one process id.
    ThreadsOf(u32),
}

/// Memory that a process uses, from samples.
#[derive(Clone, Debug)]
pub struct SampledUse {
    pub source: AccessSource,
    /// The event of a PMU that is sampled, too, if so.
    pub event: Option<SampledEvent>,
    /// Length of the window in seconds.
    pub window_s: f64,
    pub found: Arc<MemoryUse>,
}

/// One row: identity and gauges of a task, and what it did since we first saw it and in the interval.
#[derive(Clone, Debug)]
pub struct Task {
    /// Identity and gauges: of the thread, or of the process's leader.
    pub raw: Arc<TaskRaw>,
    /// `None` when the row is a process.
    pub tid: Option<u32>,
    /// Live threads; 0 for a process that ended.
    pub threads: u32,
    pub exited: bool,
    pub rss_bytes: u64,
    /// The same by kind; see [`TaskRaw::resident`].
    pub resident: Option<Resident>,
    /// Nodes that any of its live threads may run on, and take memory from; see [`TaskRaw::cpu_nodes`].
    pub cpu_nodes: Option<u64>,
    pub mem_nodes: Option<u64>,
    /// When its memory was looked at (CLOCK_MONOTONIC), and where it was; `None` for rows without memory and those
    /// whose turn has not come.
    pub memory: Option<(u64, Reading<Memory>)>,
    /// When the policies of its mappings were read (CLOCK_MONOTONIC), and the memory that they are for; `None` where nobody
    /// asked for them.
    pub policies: Option<Box<(u64, Reading<PolicyBytes>)>>,
    /// Fields of its process that were read on demand.
    pub about: Option<Reading<Arc<ProcFields>>>,
    /// The memory that its process uses, and the source and the window of that.
    pub memory_use: Option<SampledUse>,
    /// Cumulative. Fields that the kernel keeps since birth are since birth here.
    pub total: Tally,
    /// In the interval; all zero in a first sample.
    pub delta: Tally,
    /// Reasons of its waits in the interval.
    pub waits: Waits,
}

/// See [`Task::tie`].
pub type Tie = (Reverse<u64>, u32, u32, u64);

/// The amounts of a row by which the largest are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowUse {
    pub pid: u32,
    /// On-CPU time in the interval, ns.
    pub run_ns: u64,
    pub rss_bytes: u64,
}

/// One node of the machine.
#[derive(Clone, Debug)]
pub struct Node {
    pub raw: NodeRaw,
    /// Online CPUs.
    pub cpus: u32,
    /// In the interval: on-CPU time of its CPUs, and its counter slots.
    pub busy_ns: u64,
    pub irq_ns: u64,
    /// In the interval, of its CPUs; `None` where no CPU says.
    pub steal_ns: Option<u64>,
    pub slots: [Slot; crate::model::wire::SLOTS],
    /// In the interval: pages, as in numastat(8).
    pub pages: NumaPages,
    /// In the interval: see [`NodeRaw`].
    pub kswapd_pages: u64,
    pub direct_pages: u64,
    pub node_reclaims: u64,
    /// In the interval: pages that NUMA balancing brought here and took away.
    pub pages_in: u64,
    pub pages_out: u64,
    /// Of what ran on its CPUs.
    pub remote: Remote,
    /// In the interval, on its CPUs; `None` where they are not counted by CPU.
    pub hints: Option<Hints>,
}

/// Page allocations of a node in the interval, as numastat(8) names them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NumaPages {
    pub numa_hit: u64,
    pub numa_miss: u64,
    pub numa_foreign: u64,
    pub interleave_hit: u64,
    pub local_node: u64,
    pub other_node: u64,
}

/// Pages that came from swap and went to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swapped {
    pub pages_in: u64,
    pub pages_out: u64,
}

/// The cost of numatop-ng itself.
#[derive(Clone, Debug, Default)]
pub struct Own {
    pub raw: SelfUsage,
    /// CPU time in the interval, ns.
    pub cpu_ns: u64,
}

/// One interval, ready to be shown. Immutable.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub host: Arc<HostFacts>,
    pub wall_ns: i64,
    /// CLOCK_MONOTONIC of the later sample; identifies the snapshot.
    pub mono_ns: u64,
    /// CLOCK_BOOTTIME of the later sample: see [`TaskRaw::start_ns`].
    pub boot_ns: u64,
    /// Length of the interval; `None` when there is no sample before.
    pub interval_ns: Option<u64>,
    pub grain: RowKind,
    pub tasks: Vec<Task>,
    /// Of each row of `tasks`, in their order: a search over ten thousand rows reads 24 bytes of each, and not the rows,
    /// which are all over memory.
    pub row_uses: Vec<RowUse>,
    /// The same tasks as sums; a row includes the rows below it.
    pub containers: Vec<Container>,
    pub nodes: Vec<Node>,
    /// In the interval, of all rows with known memory.
    pub accesses: Accesses,
    /// For as much time and memory as the nodes have.
    pub room: Room,
    /// In the interval, like [`Sample::flows`] and [`Sample::page_flows`].
    pub flows: Vec<Flow>,
    pub page_flows: Vec<Flow>,
    /// In the interval: on-CPU time of all CPUs, their time in interrupts, and context switches.
    pub busy_ns: u64,
    pub irq_ns: u64,
    pub switches: u64,
    /// In the interval: time that a hypervisor took from all CPUs; `None` where no CPU says.
    pub steal_ns: Option<u64>,
    /// In the interval, of the whole machine; `None` where the kernel does not measure it.
    pub pressure: Option<Pressure>,
    /// As of now.
    pub machine: Option<MachineRaw>,
    /// In the interval, of the whole machine.
    pub swapped: Option<Swapped>,
    /// In the interval: hinting faults of the whole machine.
    pub hints: Option<Hints>,
    /// As of now; see [`crate::model::sample::VmStat`].
    pub zone_reclaim_mode: Option<u32>,
    pub online_cpus: u32,
    /// In the interval, ascending by id; empty in a first sample.
    pub cpus: Vec<CpuDelta>,
    /// In the interval, over all CPUs.
    pub slots: [Slot; crate::model::wire::SLOTS],
    /// Counters that have not counted anything yet: their 0 is no measurement.
    pub silent: BTreeSet<Role>,
    pub own: Own,
    /// Cumulative, by cause.
    pub lost: BTreeMap<String, u64>,
    /// CPU time of ended tasks without a row, ns, cumulative.
    pub exit_lost_ns: u64,
    pub names: Arc<Names>,
    pub notes: Vec<String>,
    /// Stacks that were sampled in the interval, when they were; not part of samples.
    pub hot: Option<Profile>,
    /// The cost of our own programs in the interval, while statistics are on; not part of samples.
    pub overhead: Option<Vec<Cost>>,
}

impl Snapshot {
    /// The same without rows of tasks and containers.
    #[must_use]
    pub fn machine(&self) -> Snapshot {
        Snapshot {
            host: Arc::clone(&self.host),
            nodes: self.nodes.clone(),
            tasks: Vec::new(),
            row_uses: Vec::new(),
            containers: Vec::new(),
            accesses: self.accesses.clone(),
            room: self.room.clone(),
            flows: self.flows.clone(),
            page_flows: self.page_flows.clone(),
            cpus: self.cpus.clone(),
            silent: self.silent.clone(),
            own: self.own.clone(),
            lost: self.lost.clone(),
            names: Arc::clone(&self.names),
            notes: Vec::new(),
            hot: None,
            overhead: None,
            ..*self
        }
    }

    /// Why `metric` cannot be measured on this host, if it cannot.
    pub fn host_missing(&self, metric: &str) -> Option<&Missing> {
        self.host.missing.get(metric)
    }

    /// `count` per second of the interval.
    ///
    /// # Errors
    /// The first sample has no interval.
    pub fn rate(&self, count: u64) -> Reading<f64> {
        self.rate_f64(count as f64)
    }

    /// The same for a count that was scaled.
    ///
    /// # Errors
    /// The first sample has no interval.
    pub fn rate_f64(&self, count: f64) -> Reading<f64> {
        match self.interval_ns {
            Some(ns) if ns > 0 => Ok(count * 1e9 / ns as f64),
            _ => Err(Missing::FirstInterval),
        }
    }

    /// `ns` as a share of the interval in percent; 100 is one CPU.
    ///
    /// # Errors
    /// The first sample has no interval.
    pub fn share(&self, ns: u64) -> Reading<f64> {
        self.rate(ns).map(|per_second| per_second / 1e7)
    }
}

impl Task {
    /// A process that has done nothing yet and has nothing.
    pub(crate) fn new(raw: Arc<TaskRaw>) -> Task {
        Task {
            raw,
            tid: None,
            threads: 0,
            exited: false,
            rss_bytes: 0,
            resident: None,
            cpu_nodes: None,
            mem_nodes: None,
            memory: None,
            policies: None,
            about: None,
            memory_use: None,
            total: Tally::Nothing,
            delta: Tally::Nothing,
            waits: Waits::default(),
        }
    }

    /// True for the row of a process, and for that of its main thread.
    pub fn leads(&self) -> bool {
        self.tid.is_none_or(|tid| tid == self.raw.pid)
    }

    /// The order of rows that are equal: the busier, then the older task first, so that a screen does not flicker.
    pub fn tie(&self) -> Tie {
        (Reverse(self.total.cpu_ns()), self.raw.pid, self.raw.tid, self.raw.serial)
    }

    /// True for a row of a task that lives on where nobody looks: it was moved out of the scope.
    pub fn left(&self) -> bool {
        self.exited && self.raw.tid != 0 && self.raw.exit_state == 0
    }

    /// True for a row of a task that does not live any longer; see [`Task::left`] for the others without further rows.
    pub fn ended(&self) -> bool {
        self.exited && !self.left()
    }

    /// Time from the look at its memory to `now_ns`.
    pub fn memory_age_ns(&self, now_ns: u64) -> Option<u64> {
        self.memory.as_ref().map(|(read_ns, _)| now_ns.saturating_sub(*read_ns))
    }

    /// On-CPU time in the interval, ns.
    pub fn run_ns(&self) -> u64 {
        self.delta.cpu_ns()
    }

    /// Share of its on-CPU time per node in percent, over the interval.
    ///
    /// # Errors
    /// It did not run in the interval.
    pub fn run_pct_by_node(&self) -> Reading<Vec<(NodeId, f64)>> {
        shares(&self.delta.run_ns).ok_or_else(|| Missing::NotCollected("did not run in this interval".into()))
    }

    /// The node with the largest share of its on-CPU time: in the interval, or ever if it rested.
    pub fn home_node(&self) -> Option<NodeId> {
        let ran = if self.run_ns() > 0 { &self.delta.run_ns } else { &self.total.run_ns };
        let (node, ns) = ran.iter().enumerate().max_by_key(|(node, ns)| (**ns, std::cmp::Reverse(*node)))?;
        (*ns > 0).then_some(NodeId(node as u32))
    }
}

/// A recording may say anything: no sum of what it says is out of range.
fn add(sum: &mut u64, more: u64) {
    *sum = sum.saturating_add(more);
}

/// Adds to a sum that is `None` until something is known.
fn add_known(sum: &mut Option<u64>, more: Option<u64>) {
    if let Some(more) = more {
        add(sum.get_or_insert_default(), more);
    }
}

fn sum(numbers: &[u64]) -> u64 {
    numbers.iter().fold(0, |sum, number| sum.saturating_add(*number))
}

fn shares(run_ns: &[u64]) -> Option<Vec<(NodeId, f64)>> {
    let sum = sum(run_ns);
    if sum == 0 {
        return None;
    }
    let share = |(node, ns): (usize, &u64)| (NodeId(node as u32), *ns as f64 * 100.0 / sum as f64);
    Some(run_ns.iter().enumerate().filter(|(_, ns)| **ns > 0).map(share).collect())
}

/// The interval between `previous` and `current`. Without `previous`, totals only.
pub fn derive(
    host: &Arc<HostFacts>,
    previous: Option<&Sample>,
    current: &Sample,
    grain: RowKind,
) -> Snapshot {
    let machine = machine(host, previous, current);
    let (processes, sums) = processes_with_sums(host, previous, current);
    let tasks = threads_of(previous, current, grain).unwrap_or(processes);
    with_containers(with_tasks(machine, current, grain, tasks), sums)
}

/// As [`derive()`], without containers: with thousands of cgroups those cost as much as all the rest.
pub fn derive_tasks(
    host: &Arc<HostFacts>,
    previous: Option<&Sample>,
    current: &Sample,
    grain: RowKind,
) -> Snapshot {
    let tasks = threads_of(previous, current, grain).unwrap_or_else(|| {
        let (processes, _, exited) = gather(previous, current);
        processes.finish(exited)
    });
    with_tasks(machine(host, previous, current), current, grain, tasks)
}

/// The interval with rows of threads, and with rows of processes, each as [`derive()`] has it; the first without containers,
/// unless they are wanted. All that both have is derived once.
pub fn derive_both(
    host: &Arc<HostFacts>,
    previous: Option<&Sample>,
    current: &Sample,
    containers: bool,
) -> (Snapshot, Snapshot) {
    let machine = machine(host, previous, current);
    let (processes, sums) = processes_with_sums(host, previous, current);
    let threads = threads(previous, current, None);
    let mut by_thread = with_tasks(machine.clone(), current, RowKind::Threads, threads);
    if containers {
        by_thread = with_containers(by_thread, sums.clone());
    }
    let by_process = with_tasks(machine, current, RowKind::Processes, processes);
    (by_thread, with_containers(by_process, sums))
}

/// Processes as they are at `current`, with what changed, and those that ended.
fn gather<'a>(previous: Option<&'a Sample>, current: &'a Sample) -> (Gathered, Changes<'a>, Vec<Task>) {
    let changes = previous.map_or_else(Changes::default, |previous| Changes::between(previous, current));
    let mut processes = Gathered::of(current);
    if let Some(previous) = previous {
        processes.add(&changes, previous, current);
    }
    let exited = processes.exited(&changes, previous, current);
    (processes, changes, exited)
}

fn processes_with_sums(host: &HostFacts, previous: Option<&Sample>, current: &Sample) -> (Vec<Task>, Sums) {
    let (processes, changes, exited) = gather(previous, current);
    let sums = Sums::of(&host.topology, previous, current, &processes, &changes, &exited);
    (processes.finish(exited), sums)
}

/// Rows of threads; `None` where rows are processes.
fn threads_of(previous: Option<&Sample>, current: &Sample, grain: RowKind) -> Option<Vec<Task>> {
    match grain {
        RowKind::Processes => None,
        RowKind::Threads => Some(threads(previous, current, None)),
        RowKind::ThreadsOf(pid) => Some(threads(previous, current, Some(pid))),
    }
}

fn with_containers(mut snapshot: Snapshot, sums: Sums) -> Snapshot {
    snapshot.containers = sums.with_accesses(&snapshot.tasks, &snapshot.room);
    snapshot
}

/// Adds rows, and what depends on where their memory is.
fn with_tasks(mut snapshot: Snapshot, current: &Sample, grain: RowKind, mut tasks: Vec<Task>) -> Snapshot {
    if !current.placement.is_empty() {
        for task in &mut tasks {
            if let Some(raw) = remote::placement_of(current, task.raw.process()) {
                task.memory = Some(remote::memory_of(raw));
                task.policies = raw.policies.clone().map(Box::new);
            }
        }
    }
    if !current.about.is_empty() {
        for task in &mut tasks {
            task.about = current.about.get(&task.raw.process()).cloned();
        }
    }
    if let Some(uses) = &current.memory_use {
        for task in &mut tasks {
            let of_process = uses.processes.get(&task.raw.process()).cloned();
            task.memory_use = of_process.map(|found| SampledUse {
                source: uses.source,
                event: uses.event,
                window_s: uses.window_s,
                found,
            });
        }
    }
    waits::throttle(&mut tasks, current, snapshot.interval_ns);
    snapshot.row_uses.reserve_exact(tasks.len());
    // One pass: each row is fetched from memory once.
    for task in &tasks {
        let memory = task.memory.as_ref().and_then(|(_, memory)| memory.as_ref().ok());
        if let Some(memory) = memory {
            for node in &mut snapshot.nodes {
                node.remote += &Remote::on(node.raw.id as usize, &task.delta.run_ns, memory, &snapshot.room);
            }
        }
        add_accesses(&mut snapshot.accesses, task, memory);
        let (run_ns, rss_bytes) = (task.run_ns(), task.rss_bytes);
        snapshot.row_uses.push(RowUse { pid: task.raw.pid, run_ns, rss_bytes });
    }
    (snapshot.grain, snapshot.tasks) = (grain, tasks);
    snapshot
}

/// The machine in the interval, without rows of tasks and containers.
fn machine(host: &Arc<HostFacts>, previous: Option<&Sample>, current: &Sample) -> Snapshot {
    let cpus = cpus::deltas(previous, current);
    let interval_ns = previous.map(|previous| current.mono_ns.saturating_sub(previous.mono_ns));
    let own_before = previous.map_or(current.own.cpu_ns, |sample| sample.own.cpu_ns);
    let mut snapshot = Snapshot {
        host: Arc::clone(host),
        wall_ns: current.wall_ns,
        mono_ns: current.mono_ns,
        boot_ns: current.boot_ns,
        interval_ns,
        grain: RowKind::Processes,
        tasks: Vec::new(),
        row_uses: Vec::new(),
        containers: Vec::new(),
        nodes: nodes(previous, current, &cpus),
        flows: flows(previous, current, |sample| &sample.flows),
        page_flows: Vec::new(),
        accesses: Accesses::default(),
        room: Room::of(current, interval_ns.unwrap_or(0)),
        busy_ns: 0,
        irq_ns: 0,
        switches: 0,
        steal_ns: None,
        pressure: pressure(previous, current),
        machine: current.machine,
        swapped: swapped(previous, current),
        hints: hints(previous, current),
        zone_reclaim_mode: current.vm.and_then(|vm| vm.zone_reclaim_mode),
        online_cpus: current.cpus.iter().filter(|cpu| cpu.online).count() as u32,
        cpus: Vec::new(),
        slots: Default::default(),
        silent: dead_counters::roles(host, current),
        own: Own { raw: current.own.clone(), cpu_ns: current.own.cpu_ns.saturating_sub(own_before) },
        lost: current.lost.clone(),
        exit_lost_ns: sum(&current.exit_lost_ns),
        names: Arc::clone(&current.names),
        notes: current.notes.clone(),
        hot: None,
        overhead: None,
    };
    snapshot.page_flows = page_flows(previous, current, &mut snapshot.nodes);
    for cpu in &cpus {
        add(&mut snapshot.busy_ns, cpu.busy_ns);
        add(&mut snapshot.irq_ns, cpu.irq_ns);
        add_known(&mut snapshot.steal_ns, cpu.steal_ns);
        add(&mut snapshot.switches, cpu.switches);
        add_slots(&mut snapshot.slots, &cpu.slots);
    }
    snapshot.cpus = cpus;
    snapshot
}

/// Adds the accesses of a row with this memory.
fn add_accesses(sum: &mut Accesses, task: &Task, memory: Option<&Memory>) {
    match task.memory_use.as_ref().filter(|sampled| is_by_count(&sampled.found)) {
        Some(sampled) => {
            sum.add_sampled(&task.delta.run_ns, &sampled.found.followed_by_nodes(), memory);
        }
        None => memory.into_iter().for_each(|memory| sum.add(&task.delta.run_ns, memory)),
    }
}

/// Whether shares of these samples are shares of accesses, by nodes.
fn is_by_count(found: &MemoryUse) -> bool {
    found.complete().is_ok() && by_count(&Evidence::of_remote(found)).is_ok()
}

fn flows(previous: Option<&Sample>, current: &Sample, of: fn(&Sample) -> &[Flow]) -> Vec<Flow> {
    let Some(previous) = previous else { return Vec::new() };
    let before: HashMap<_, _> = of(previous).iter().map(|flow| ((flow.from, flow.to), flow.count)).collect();
    let delta = |flow: &Flow| {
        let count = flow.count.saturating_sub(before.get(&(flow.from, flow.to)).copied().unwrap_or(0));
        Flow { count, ..*flow }
    };
    of(current).iter().map(delta).collect()
}

/// Pages that went from node to node; each node has its share of them.
fn page_flows(previous: Option<&Sample>, current: &Sample, nodes: &mut [Node]) -> Vec<Flow> {
    let flows = flows(previous, current, |sample| &sample.page_flows);
    let at: HashMap<NodeId, usize> =
        nodes.iter().enumerate().map(|(at, node)| (NodeId(node.raw.id), at)).collect();
    for flow in &flows {
        if let Some(from) = at.get(&flow.from) {
            add(&mut nodes[*from].pages_out, flow.count);
        }
        if let Some(to) = at.get(&flow.to) {
            add(&mut nodes[*to].pages_in, flow.count);
        }
    }
    flows
}

fn swapped(previous: Option<&Sample>, current: &Sample) -> Option<Swapped> {
    let (before, now) = (previous?.vm?, current.vm?);
    Some(Swapped {
        pages_in: now.swapped_in.saturating_sub(before.swapped_in),
        pages_out: now.swapped_out.saturating_sub(before.swapped_out),
    })
}

fn pressure(previous: Option<&Sample>, current: &Sample) -> Option<Pressure> {
    Some(current.machine?.pressure?.since(previous?.machine?.pressure?))
}

fn hints(previous: Option<&Sample>, current: &Sample) -> Option<Hints> {
    Some(current.vm?.hints?.since(previous?.vm?.hints?))
}

fn add_slots(sum: &mut [Slot], slots: &[Slot]) {
    for (sum, slot) in sum.iter_mut().zip(slots) {
        add(&mut sum.count, slot.count);
        add(&mut sum.enabled_ns, slot.enabled_ns);
        add(&mut sum.running_ns, slot.running_ns);
    }
}

fn nodes(previous: Option<&Sample>, current: &Sample, cpus: &[CpuDelta]) -> Vec<Node> {
    let row = |raw: &NodeRaw| {
        let before =
            previous.and_then(|sample| sample.nodes.iter().find(|node| node.id == raw.id)).unwrap_or(raw);
        let online = current.cpus.iter().filter(|cpu| cpu.online && cpu.node == raw.id).count() as u32;
        let mut node = Node {
            raw: raw.clone(),
            cpus: online,
            busy_ns: 0,
            irq_ns: 0,
            steal_ns: None,
            slots: Default::default(),
            kswapd_pages: raw.kswapd_pages.saturating_sub(before.kswapd_pages),
            direct_pages: raw.direct_pages.saturating_sub(before.direct_pages),
            node_reclaims: raw.node_reclaims.saturating_sub(before.node_reclaims),
            pages: NumaPages {
                numa_hit: raw.numa_hit.saturating_sub(before.numa_hit),
                numa_miss: raw.numa_miss.saturating_sub(before.numa_miss),
                numa_foreign: raw.numa_foreign.saturating_sub(before.numa_foreign),
                interleave_hit: raw.interleave_hit.saturating_sub(before.interleave_hit),
                local_node: raw.local_node.saturating_sub(before.local_node),
                other_node: raw.other_node.saturating_sub(before.other_node),
            },
            pages_in: 0,
            pages_out: 0,
            remote: Remote::default(),
            hints: None,
        };
        for cpu in cpus.iter().filter(|cpu| cpu.node == raw.id) {
            add(&mut node.busy_ns, cpu.busy_ns);
            add(&mut node.irq_ns, cpu.irq_ns);
            add_known(&mut node.steal_ns, cpu.steal_ns);
            add_slots(&mut node.slots, &cpu.slots);
            if let Some(more) = cpu.hints {
                let sum = node.hints.get_or_insert_default();
                add(&mut sum.faults, more.faults);
                add(&mut sum.remote, more.remote);
            }
        }
        node
    };
    current.nodes.iter().map(row).collect()
}
