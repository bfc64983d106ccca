//! From two samples to the values shown: the only place that subtracts. Pure.

mod changes;
mod containers;
mod cpu_sets;
mod cpus;
mod machine;
mod remote;
mod rows;
mod sharing;
mod smt_neighbours;
mod tally;
mod task;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use changes::Changes;
use containers::Sums;
use machine::machine;
use rows::{Gathered, threads};
use task::LookedUp;

use crate::access::follow::by_count::{Evidence, by_count};
use crate::hot::profile::Profile;
use crate::model::access::MemoryUse;
use crate::model::disks::{DiskSender, DiskTraffic};
use crate::model::event::Role;
use crate::model::inputs::Inputs;
use crate::model::process::{ProcFields, ProcessId};
use crate::model::sample::{Flow, HostFacts, MachineRaw, Missing, Names, Reading, Sample, SelfUsage};
use crate::model::sockets::SocketTraffic;
use crate::model::topology::Device;
use crate::model::turns::{DeviceInterrupts, SchedExt};
use crate::model::units::NodeId;
use crate::overhead::Cost;

pub use self::changes::IdHash;
pub use self::task::Waits;
pub use containers::{Container, GroupDelta, upwards};
pub use cpu_sets::{CpuSet, PlaceSets, SetKind, SetMoves, most_used};
pub use cpus::{CpuDelta, OnCpus};
pub use machine::{MachineCounts, Node, NodeCounts, NumaPages, Swapped};
pub use remote::{Accesses, Memory, Remote, Room, shares as memory_shares};
pub use sharing::{GroupObject, ProcessGroup, counted_twice, groups as process_groups, large_bytes};
pub use smt_neighbours::{SmtNeighbour, beside};
pub use tally::Tally;
pub use task::{RowKind, RowUse, SampledUse, Task, Tie};

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
    /// CLOCK_BOOTTIME of the later sample: see [`crate::model::sample::TaskRaw::start_ns`].
    pub boot_ns: u64,
    /// Length of the interval; `None` for the first sample.
    pub interval_ns: Option<u64>,
    pub grain: RowKind,
    pub tasks: Vec<Task>,
    /// The use of each row of `tasks`, in their order. A search over ten thousand rows then reads 24 bytes of
    /// each, instead of rows spread over memory.
    pub row_uses: Vec<RowUse>,
    /// Places of live processes that map large memory of others, ascending.
    pub sharers: Vec<usize>,
    /// The same tasks as sums; a row includes the rows below it.
    pub containers: Vec<Container>,
    pub nodes: Vec<Node>,
    /// Sockets, then L3 domains, where they are not the nodes.
    pub cpu_sets: Vec<CpuSet>,
    /// The sets of these by which time of tasks is kept.
    pub place_sets: PlaceSets,
    /// In the interval, of all rows with known memory.
    pub accesses: Accesses,
    /// For as much time and memory as the nodes have.
    pub room: Room,
    /// In the interval, like [`Sample::flows`] and [`Sample::page_flows`].
    pub flows: Vec<Flow>,
    pub page_flows: Vec<Flow>,
    /// As of now.
    pub inputs: Inputs,
    /// In the interval: traffic to disks by sender. Senders without any are left out.
    pub disk_traffic: BTreeMap<DiskSender, DiskTraffic>,
    /// In the interval: traffic of IP sockets by process. Processes without any are left out.
    pub socket_traffic: BTreeMap<ProcessId, SocketTraffic>,
    /// In the interval, of all CPUs.
    pub on_cpus: OnCpus,
    /// In the interval, of the whole machine.
    pub counts: MachineCounts,
    /// As of now.
    pub machine: Option<MachineRaw>,
    /// As of now; see [`crate::model::sample::VmStat`].
    pub zone_reclaim_mode: Option<u32>,
    pub online_cpus: u32,
    /// In the interval, ascending by id; empty in a first sample.
    pub cpus: Vec<CpuDelta>,
    /// Counters that have not counted anything yet: their 0 is no measurement.
    pub silent: BTreeSet<Role>,
    /// Of each event of the host: it is open on every CPU, and has counted something.
    pub open_slots: Vec<bool>,
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
    /// Sockets, or L3 domains, where they are not the nodes.
    pub fn sets(&self, kind: SetKind) -> impl Iterator<Item = &CpuSet> + Clone {
        self.cpu_sets.iter().filter(move |set| set.kind == kind)
    }

    /// The same without rows of tasks, containers and senders to disks.
    #[must_use]
    pub fn machine(&self) -> Snapshot {
        Snapshot {
            host: Arc::clone(&self.host),
            nodes: self.nodes.clone(),
            cpu_sets: self.cpu_sets.clone(),
            place_sets: self.place_sets.clone(),
            tasks: Vec::new(),
            row_uses: Vec::new(),
            sharers: Vec::new(),
            containers: Vec::new(),
            accesses: self.accesses.clone(),
            room: self.room.clone(),
            flows: self.flows.clone(),
            page_flows: self.page_flows.clone(),
            inputs: self.inputs.clone(),
            disk_traffic: BTreeMap::new(),
            socket_traffic: BTreeMap::new(),
            cpus: self.cpus.clone(),
            silent: self.silent.clone(),
            open_slots: self.open_slots.clone(),
            own: self.own.clone(),
            lost: self.lost.clone(),
            names: Arc::clone(&self.names),
            notes: Vec::new(),
            counts: self.counts.clone(),
            hot: None,
            overhead: None,
            ..*self
        }
    }

    /// Why `metric` cannot be measured on this host, if it cannot.
    pub fn host_missing(&self, metric: &str) -> Option<&Missing> {
        self.host.missing.get(metric)
    }

    /// Name and facts of the sched_ext scheduler that is loaded.
    pub fn scheduler(&self) -> Option<(&str, &SchedExt)> {
        self.inputs.schedulers.first_key_value().map(|(name, scheduler)| (name.as_str(), &**scheduler))
    }

    /// Interrupts of a device, where they are counted.
    pub fn interrupts_of(&self, device: &Device) -> Option<&DeviceInterrupts> {
        self.inputs.interrupts.get(device.pci.as_ref()?).map(|counted| &**counted)
    }

    /// Whether CPUs of a node handle interrupts of a device: as counted, else by its lists of CPUs.
    pub fn handles(&self, node: NodeId, device: &Device) -> bool {
        match self.interrupts_of(device) {
            Some(counted) => counted.per_second_on(node) > 0.0,
            None => device.irq_nodes.contains(&node),
        }
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

/// A recording may contain any number: no sum of them overflows.
fn add(sum: &mut u64, more: u64) {
    *sum = sum.saturating_add(more);
}

fn sum(numbers: &[u64]) -> u64 {
    numbers.iter().fold(0, |sum, number| sum.saturating_add(*number))
}

/// The interval between `previous` and `current`. Without `previous`, totals only.
pub fn derive(
    host: &Arc<HostFacts>,
    previous: Option<&Sample>,
    current: &Sample,
    grain: RowKind,
) -> Snapshot {
    let machine = machine(host, previous, current);
    let (processes, sums) = processes_with_sums(&machine, previous, current);
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

/// The interval with rows of threads, and with rows of processes, each as from [`derive()`]. The first is
/// without containers, unless they are wanted. Common parts are derived once.
pub fn derive_both(
    host: &Arc<HostFacts>,
    previous: Option<&Sample>,
    current: &Sample,
    containers: bool,
) -> (Snapshot, Snapshot) {
    let machine = machine(host, previous, current);
    let (processes, sums) = processes_with_sums(&machine, previous, current);
    let threads = threads(previous, current, None);
    let mut by_thread = with_tasks(machine.clone(), current, RowKind::Threads, threads);
    if containers {
        by_thread = with_containers(by_thread, sums.clone());
    }
    let by_process = with_tasks(machine, current, RowKind::Processes, processes);
    (by_thread, with_containers(by_process, sums))
}

/// Processes in `current`, with their changes, and processes that ended.
fn gather<'a>(previous: Option<&'a Sample>, current: &'a Sample) -> (Gathered, Changes<'a>, Vec<Task>) {
    let changes = previous.map_or_else(Changes::default, |previous| Changes::between(previous, current));
    let mut processes = Gathered::of(current);
    if let Some(previous) = previous {
        processes.add(&changes, previous, current);
    }
    let exited = processes.exited(&changes, previous, current);
    (processes, changes, exited)
}

fn processes_with_sums(machine: &Snapshot, previous: Option<&Sample>, current: &Sample) -> (Vec<Task>, Sums) {
    let (processes, changes, exited) = gather(previous, current);
    let sums = Sums::of(machine, previous, current, &processes, &changes, &exited);
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
    snapshot.containers = sums.with_accesses(&snapshot.tasks, &snapshot.sharers, &snapshot.room);
    snapshot
}

/// Adds to each row the values of its process that were looked up beside its counts.
fn look_up(tasks: &mut [Task], current: &Sample) {
    if current.placement.is_empty()
        && current.about.is_empty()
        && current.command_lines.is_empty()
        && current.memory_use.is_none()
    {
        return;
    }
    // Threads of a process most often stand together.
    let mut last: Option<(ProcessId, Option<Arc<LookedUp>>)> = None;
    for task in tasks {
        let process = task.raw.process();
        if last.as_ref().is_none_or(|(known, _)| *known != process) {
            last = Some((process, looked_up(current, process)));
        }
        task.looked_up = last.as_ref().and_then(|(_, values)| values.clone());
    }
}

fn looked_up(current: &Sample, process: ProcessId) -> Option<Arc<LookedUp>> {
    let placed = remote::placement_of(current, process);
    let recorded = || Some(Ok(Arc::new(ProcFields::recorded(current.command_lines.get(&process)?))));
    let about = current.about.get(&process).cloned().or_else(recorded);
    let used = current.memory_use.as_ref().and_then(|uses| {
        let found = Arc::clone(uses.processes.get(&process)?);
        Some(SampledUse { source: uses.source, event: uses.event, window_s: uses.window_s, found })
    });
    let has_some = placed.is_some() || about.is_some() || used.is_some();
    has_some.then(|| {
        Arc::new(LookedUp {
            memory: placed.map(remote::memory_of),
            policies: placed.and_then(|placed| placed.policies.clone()),
            by_policy: placed.and_then(|placed| placed.by_policy.clone()),
            about,
            memory_use: used,
        })
    })
}

/// Adds rows, and what depends on where their memory is.
fn with_tasks(mut snapshot: Snapshot, current: &Sample, grain: RowKind, mut tasks: Vec<Task>) -> Snapshot {
    look_up(&mut tasks, current);
    task::throttle(&mut tasks, current, snapshot.interval_ns);
    snapshot.row_uses.reserve_exact(tasks.len());
    // One pass: each row is fetched from memory once.
    for (at, task) in tasks.iter().enumerate() {
        let (run_ns, rss_bytes) = (task.run_ns(), task.rss_bytes);
        if !task.exited && rss_bytes > 0 && task.by_policy().is_some_and(|pages| !pages.objects.is_empty()) {
            snapshot.sharers.push(at);
        }
        snapshot.row_uses.push(RowUse { pid: task.raw.pid, run_ns, rss_bytes });
        // One that rested accessed nothing.
        if run_ns == 0 {
            continue;
        }
        let memory = task.memory().and_then(|(_, memory)| memory.as_ref().ok());
        if let Some(memory) = memory {
            for node in &mut snapshot.nodes {
                node.remote += &Remote::on(node.raw.id as usize, &task.delta.run_ns, memory);
            }
        }
        add_accesses(&mut snapshot.accesses, task, memory);
    }
    snapshot.place_sets.count(&tasks, &mut snapshot.cpu_sets);
    (snapshot.grain, snapshot.tasks) = (grain, tasks);
    snapshot
}

/// Adds the accesses of a row with this memory.
fn add_accesses(sum: &mut Accesses, task: &Task, memory: Option<&Memory>) {
    match task.memory_use().filter(|sampled| is_by_count(&sampled.found)) {
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
