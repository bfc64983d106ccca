//! A made-up machine: samples that follow from the work of made-up threads, the same every time.
//!
//! All numbers of a sample come from the same [`Actor`]s, so that they agree. The time of a node is that of
//! the threads on it, and remote accesses follow from where a thread ran and where its memory is. Time is
//! that of the machine; no clock is read.

mod actor;
mod containers;
pub mod events;
pub mod memory;
pub mod stacks;
mod story;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use self::actor::{Step, grown};
use crate::container::scope::Scope;
use crate::model::accelerators::Held;
use crate::model::counters::Counter;
use crate::model::disks::{DiskRoute, DiskSender, DiskTraffic, DiskUse};
use crate::model::group::DEPTH_MAX;
use crate::model::inputs::Inputs;
use crate::model::machine::PlaceMoves;
use crate::model::memory::{ObjectId, ObjectNodes};
use crate::model::process::ProcessId;
use crate::model::sample::{
    CpuRaw, FilePages, Flow, GroupRaw, Hints, HostFacts, MachineRaw, Missing, Names, NodeRaw, PagesByPolicy,
    PagesFound, PlacementRaw, PolicyBytes, Pressure, Sample, SelfUsage, TaskRaw, VmStat,
};
use crate::model::sockets::{SocketRoute, SocketTraffic, SocketUse};
use crate::model::topology::{Cpu, Llc, Node, Topology};
use crate::model::turns::{
    CacheId, CacheUse, DEMOTION, DramTraffic, FreeBlocks, Interrupts, NodeTier, PROMOTE_LIMIT, SchedExt,
    TierPages,
};
use crate::model::units::{CpuId, NodeId};

pub use self::actor::Actor;
pub use self::story::machine as demo_machine;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
/// include/linux/sched.h
const EXIT_DEAD: u32 = 0x10;
/// When the first sample is taken: 2026-01-02 03:04:05 UTC, a day after boot.
pub const WALL_NS: i64 = 1_767_323_045_000_000_000;
pub const BOOT_NS: u64 = 86_400 * SECOND;
/// Pages that are asked for to find out where the memory of a process is, and how wrong their shares may be.
const ASKED: u32 = 1024;
const ERROR_HUNDREDTHS: u32 = 310;
/// Swap of every machine: nothing is in it.
const SWAP: u64 = 8 << 30;

/// Bytes of an access to memory, and the part of lines that are modified and written back.
const LINE: u64 = 64;
const WRITTEN_BACK: u64 = 4;

/// Changes the machine before its actors work until the end of a second (0: before the first sample).
pub type Plan = Box<dyn FnMut(&mut Machine, u64) + Send>;

/// A host with actors on it.
pub struct Machine {
    /// The facts of the machine, as samples come with them.
    pub host: Arc<HostFacts>,
    /// The threads of the machine. One that is added has a row from the next sample on.
    pub actors: Vec<Actor>,
    /// Changes that no actor makes.
    pub plan: Option<Plan>,
    /// Share of their CPU time that all actors use, 0 to 1: lets work come in waves.
    pub busy: f64,
    /// Clock rate of every CPU.
    pub ghz: f64,
    /// Keep counters by node and by the state of SMT siblings, too.
    pub by_node: bool,
    /// Events of all roles count, not only cycles, instructions and memory accesses.
    pub all_roles: bool,
    /// The tasks that are watched. Only cgroups decide it.
    pub scope: Scope,
    /// Names of users and cgroups.
    pub names: Arc<Names>,
    /// CPUs, nodes and the machine as in the last sample: cumulative since start.
    pub cpus: Vec<CpuRaw>,
    pub nodes: Vec<NodeRaw>,
    pub vm: VmStat,
    pub state: MachineRaw,
    /// Tasks and pages that went from one node to another since start, by those two nodes.
    pub flows: BTreeMap<(u32, u32), u64>,
    pub page_flows: BTreeMap<(u32, u32), u64>,
    /// Further moves of tasks between places, since start: those between nodes are in `flows`.
    pub place_flows: BTreeMap<(u32, u32), u64>,
    /// The same in each second.
    pub flow_rates: BTreeMap<(u32, u32), u64>,
    pub page_flow_rates: BTreeMap<(u32, u32), u64>,
    /// Interrupts per second of PCI functions, by address and by node.
    pub irq_rates: BTreeMap<(String, u32), u64>,
    /// Nodes among memory tiers; pages that moved between tiers, cumulative; switches.
    pub tiers: BTreeMap<NodeId, NodeTier>,
    pub tier_pages: BTreeMap<NodeId, TierPages>,
    pub tier_switches: BTreeMap<String, u64>,
    /// Accesses to the memory of each node since start, where memory controllers are counted.
    pub dram_accesses: Option<BTreeMap<NodeId, u64>>,
    /// Traffic to disks per second: the process, the address of the disk, the node of the CPUs, bytes, requests.
    pub disk_rates: Vec<(u32, String, NodeId, u64, u64)>,
    /// Bytes per second that kernel threads write back: the cgroup, the address of the disk, the bytes.
    pub written_back: Vec<(u64, String, u64)>,
    /// Traffic of IP sockets per second: the process, the way of its packets, and what it moves.
    pub socket_rates: Vec<(u32, SocketRoute, SocketUse)>,
    /// Accelerators that processes hold, by process id.
    pub held: Vec<(u32, Held)>,
    /// Nodes of objects of shared memory, drawn each 30 s.
    pub object_nodes: BTreeMap<ObjectId, ObjectNodes>,
    /// The sched_ext scheduler that is loaded, by its name.
    pub scheduler: Option<(String, Arc<SchedExt>)>,
    /// The CPU monitors its L3 caches, as resctrl shows it.
    pub monitors_caches: bool,
    /// Losses by cause, cumulative.
    pub lost: BTreeMap<String, u64>,
    /// Of the next sample.
    pub notes: Vec<String>,
    /// Limits and memory of cgroups.
    pub groups: BTreeMap<u64, Arc<GroupRaw>>,
    /// Placement of memory by process id; samples also have that of actors with `memory`.
    pub placement: BTreeMap<u64, Arc<PlacementRaw>>,
    /// Time since the first sample, at the end of the last step and at its beginning.
    elapsed_ns: u64,
    step_began_ns: u64,
    began: bool,
    serials: u64,
    /// Accesses to local and to remote memory in the last step, by CPU.
    accesses: BTreeMap<u32, [u64; 2]>,
    rows: BTreeMap<u64, Arc<TaskRaw>>,
}

impl Machine {
    /// The CPUs and nodes of `host`, with `actors` on them.
    pub fn new(host: HostFacts, names: Names, actors: Vec<Actor>) -> Machine {
        let cpu = |cpu: &Cpu| CpuRaw {
            id: cpu.id.0,
            node: cpu.node.map_or(0, |node| node.0),
            online: cpu.online,
            hints: Some(Hints::default()),
            irq_ns: Some(0),
            steal_ns: Some(0),
            ..CpuRaw::default()
        };
        let node = |node: &Node| NodeRaw {
            id: node.id.0,
            mem_total_bytes: node.mem_total_bytes,
            mem_free_bytes: node.mem_free_bytes,
            mem_file_bytes: (node.mem_total_bytes - node.mem_free_bytes) / 3,
            mem_anon_bytes: (node.mem_total_bytes - node.mem_free_bytes) / 2,
            mem_slab_bytes: 1 << 30,
            huge_total: 512,
            huge_free: 128,
            low_watermark_bytes: 3 << 30,
            managed_bytes: node.mem_total_bytes,
            ..NodeRaw::default()
        };
        Machine {
            cpus: host.topology.cpus.iter().map(cpu).collect(),
            nodes: host.topology.nodes.iter().map(node).collect(),
            actors,
            plan: None,
            busy: 1.0,
            ghz: 2.0,
            by_node: false,
            all_roles: false,
            scope: Scope::default(),
            names: Arc::new(names),
            vm: VmStat { zone_reclaim_mode: Some(0), hints: Some(Hints::default()), ..VmStat::default() },
            state: MachineRaw {
                numa_balancing: Some(1),
                swappiness: Some(60),
                swap_total_bytes: Some(SWAP),
                swap_free_bytes: Some(SWAP),
                pressure: Some(Pressure::default()),
                load_hundredths: None,
            },
            flows: BTreeMap::new(),
            page_flows: BTreeMap::new(),
            place_flows: BTreeMap::new(),
            flow_rates: BTreeMap::new(),
            page_flow_rates: BTreeMap::new(),
            irq_rates: BTreeMap::new(),
            tiers: host.topology.nodes.iter().map(|node| (node.id, tier(&host.topology, node))).collect(),
            tier_pages: BTreeMap::new(),
            dram_accesses: None,
            disk_rates: Vec::new(),
            written_back: Vec::new(),
            socket_rates: Vec::new(),
            held: Vec::new(),
            tier_switches: [(DEMOTION.to_owned(), 0), (PROMOTE_LIMIT.to_owned(), 65_536)].into(),
            object_nodes: BTreeMap::new(),
            scheduler: None,
            monitors_caches: false,
            lost: BTreeMap::new(),
            notes: vec![],
            groups: BTreeMap::new(),
            placement: BTreeMap::new(),
            elapsed_ns: 0,
            step_began_ns: 0,
            began: false,
            serials: 0,
            accesses: BTreeMap::new(),
            rows: BTreeMap::new(),
            host: Arc::new(host),
        }
    }

    /// The sample after another second of work; the first one is taken at once.
    pub fn tick(&mut self) -> Sample {
        self.step(SECOND)
    }

    /// The sample after `ns` more of work; the first one is taken at once.
    pub fn step(&mut self, ns: u64) -> Sample {
        let from_ns = self.elapsed_ns;
        self.step_began_ns = from_ns;
        if self.began {
            self.elapsed_ns += ns;
        }
        self.began = true;
        let to_ns = self.elapsed_ns;
        let second = to_ns.div_ceil(SECOND);
        if let Some(mut plan) = self.plan.take() {
            plan(self, second);
            self.plan = Some(plan);
        }
        let exited = self.work(from_ns, to_ns, second);
        // Some task waits for a CPU in as much of the time as all of them wait, or always.
        let wait_pct = self.actors.iter().map(|actor| actor.wait_pct).sum::<f64>().min(100.0);
        if let Some(pressure) = &mut self.state.pressure {
            pressure.cpu_some_us += grown((wait_pct * 1e4) as u64, from_ns, to_ns);
        }
        for (pair, rate) in &self.flow_rates {
            *self.flows.entry(*pair).or_default() += grown(*rate, from_ns, to_ns);
        }
        for (pair, rate) in &self.page_flow_rates {
            *self.page_flows.entry(*pair).or_default() += grown(*rate, from_ns, to_ns);
        }
        Sample {
            wall_ns: WALL_NS + to_ns as i64,
            mono_ns: BOOT_NS + to_ns,
            boot_ns: BOOT_NS + to_ns,
            tasks: self.rows.values().filter(|row| self.watches(row.cgroup_id)).cloned().collect(),
            exited: exited.into_iter().filter(|row| self.watches(row.cgroup_id)).collect(),
            cpus: self.cpus.clone(),
            nodes: self.nodes.iter().map(|node| self.with_file_pages(node)).collect(),
            vm: Some(self.vm),
            machine: Some(self.state),
            flows: flows(&self.flows),
            page_flows: flows(&self.page_flows),
            inputs: Inputs {
                interrupts: Arc::new(self.interrupts(from_ns, to_ns)),
                free_blocks: Arc::new(self.free_blocks()),
                schedulers: Arc::new(self.scheduler.iter().cloned().collect()),
                tiers: Arc::new(shared(&self.tiers)),
                tier_pages: Arc::new(shared(&self.tier_pages)),
                scope_ns: Arc::default(),
                tier_switches: Arc::new(shared(&self.tier_switches)),
                object_nodes: Arc::new(self.object_nodes(to_ns)),
                disk_traffic: Arc::new(self.disk_traffic(to_ns)),
                socket_traffic: Arc::new(self.socket_traffic(to_ns)),
                accelerators: Arc::new(self.accelerators()),
                place_moves: Arc::new(self.place_moves()),
                cache_use: Arc::new(self.cache_use(to_ns - from_ns)),
                node_dram: Arc::new(self.dram(|node| Some(node.id))),
                socket_dram: Arc::new(self.dram(|node| {
                    let cpu = self.host.topology.cpu(*node.cpus.first()?)?;
                    u32::try_from(cpu.socket?).ok()
                })),
            },
            lost: self.lost.clone(),
            exit_lost_ns: vec![],
            own: SelfUsage { cpu_ns: to_ns / 1000 * 3, rss_bytes: 12 << 20, sample_ns: MS },
            names: Arc::clone(&self.names),
            groups: self.groups.clone(),
            placement: Arc::new(self.placements()),
            about: Arc::default(),
            command_lines: Arc::default(),
            memory_use: None,
            hot: None,
            notes: std::mem::take(&mut self.notes),
        }
    }

    /// Traffic of memory controllers, by nodes or what they are in.
    fn dram<K: Ord>(&self, place: impl Fn(&Node) -> Option<K>) -> BTreeMap<K, Arc<DramTraffic>> {
        let mut places: BTreeMap<K, DramTraffic> = BTreeMap::new();
        let Some(accesses) = &self.dram_accesses else { return BTreeMap::new() };
        for node in &self.host.topology.nodes {
            let Some(place) = place(node) else { continue };
            let (traffic, accesses) =
                (places.entry(place).or_default(), accesses.get(&node.id).copied().unwrap_or(0));
            traffic.read.bytes += accesses * LINE;
            traffic.write.bytes += accesses / WRITTEN_BACK * LINE;
        }
        places.into_iter().map(|(place, traffic)| (place, Arc::new(traffic))).collect()
    }

    /// Traffic of processes and write-back at constant rates.
    fn disk_traffic(&self, to_ns: u64) -> BTreeMap<DiskSender, Arc<DiskTraffic>> {
        let mut senders: BTreeMap<DiskSender, DiskTraffic> = BTreeMap::new();
        for (pid, disk, from, bytes, requests) in &self.disk_rates {
            let mut rows = self.rows.values().filter(|row| self.watches(row.cgroup_id));
            let Some(row) = rows.find(|row| row.pid == *pid) else { continue };
            let (bytes, requests) = (grown(*bytes, 0, to_ns), grown(*requests, 0, to_ns));
            let route = DiskRoute { disk: disk.clone(), from: *from };
            let traffic = senders.entry(row.process().into()).or_default();
            traffic.insert(route, DiskUse { bytes, requests });
        }
        for (cgroup, disk, bytes) in &self.written_back {
            let route = DiskRoute { disk: disk.clone(), from: NodeId(0) };
            let used = DiskUse { bytes: grown(*bytes, 0, to_ns), requests: 0 };
            senders.entry(DiskSender { pid: 0, id: *cgroup }).or_default().insert(route, used);
        }
        senders.into_iter().map(|(sender, traffic)| (sender, Arc::new(traffic))).collect()
    }

    /// Traffic of sockets of processes at constant rates.
    fn socket_traffic(&self, to_ns: u64) -> BTreeMap<ProcessId, Arc<SocketTraffic>> {
        let mut processes: BTreeMap<ProcessId, SocketTraffic> = BTreeMap::new();
        for (pid, route, SocketUse { received, reads, sent }) in &self.socket_rates {
            let mut rows = self.rows.values().filter(|row| self.watches(row.cgroup_id));
            let Some(row) = rows.find(|row| row.pid == *pid) else { continue };
            let [received, reads, sent] = [*received, *reads, *sent].map(|rate| grown(rate, 0, to_ns));
            let used = SocketUse { received, reads, sent };
            processes.entry(row.process()).or_default().insert(*route, used);
        }
        shared(&processes)
    }

    /// Accelerators of processes that live.
    fn accelerators(&self) -> BTreeMap<ProcessId, Arc<Held>> {
        let of = |(pid, held): &(u32, Held)| {
            let row = self.rows.values().find(|row| row.pid == *pid)?;
            Some((row.process(), Arc::new(held.clone())))
        };
        self.held.iter().filter_map(of).collect()
    }

    /// Moves from node to node as moves between the first places of these nodes, and those of `place_flows`.
    fn place_moves(&self) -> BTreeMap<u32, Arc<PlaceMoves>> {
        let topology = &self.host.topology;
        let nodes: Vec<u32> = topology.nodes_of_places().collect();
        let llcs: Vec<Option<u32>> = topology.llcs_of_places().collect();
        let sockets: Vec<Option<u32>> = topology.sockets_of_places().collect();
        let mut places = vec![PlaceMoves::default(); nodes.len()];
        let first = |node: &u32| nodes.iter().position(|of| of == node);
        let between_nodes =
            self.flows.iter().filter_map(|((from, to), count)| Some((first(from)?, first(to)?, *count)));
        let between_places =
            self.place_flows.iter().map(|((from, to), count)| (*from as usize, *to as usize, *count));
        for (from, to, count) in between_nodes.chain(between_places) {
            let llc = if llcs[from] == llcs[to] { 0 } else { count };
            let socket = if sockets[from] == sockets[to] { 0 } else { count };
            (places[from].llc_out, places[from].socket_out) =
                (places[from].llc_out + llc, places[from].socket_out + socket);
            (places[to].llc_in, places[to].socket_in) =
                (places[to].llc_in + llc, places[to].socket_in + socket);
        }
        (0..).zip(places).map(|(place, moves)| (place, Arc::new(moves))).collect()
    }

    /// Each counted access moves a line. A cache is full at 4 GB/s.
    fn cache_use(&self, over_ns: u64) -> BTreeMap<CacheId, Arc<CacheUse>> {
        const FULL_AT: u64 = 4_000_000_000;
        let of_llc = |llc: &Llc| {
            let per_s = |at: &[usize]| {
                let counted = llc.cpus.iter().filter_map(|cpu| self.accesses.get(&cpu.0));
                let lines: u64 = counted.map(|counts| at.iter().map(|at| counts[*at]).sum::<u64>()).sum();
                lines * LINE * 1000 / (over_ns / 1_000_000).max(1)
            };
            let (total, size) = (per_s(&[0, 1]), llc.size_bytes.unwrap_or(0));
            let occupancy = u128::from(size) * u128::from(total.min(FULL_AT)) / u128::from(FULL_AT);
            let rate = |bytes| if over_ns > 0 { Ok(bytes) } else { Err(Missing::FirstInterval) };
            let domain = CacheUse {
                occupancy_bytes: Ok(occupancy as u64),
                total_bytes_per_s: rate(total),
                local_bytes_per_s: rate(per_s(&[0])),
            };
            Some((CacheId { cpu: llc.cpus.first()?.0, node: None }, Arc::new(domain)))
        };
        self.host.topology.llcs.iter().filter(|_| self.monitors_caches).filter_map(of_llc).collect()
    }

    /// The node with the kinds of its pages of files, unless a plan has set them.
    fn with_file_pages(&self, node: &NodeRaw) -> NodeRaw {
        let shared = |actor: &Actor| {
            let all: u32 = actor.memory.iter().sum();
            let here = actor.memory.get(node.id as usize).copied().unwrap_or(0);
            actor.shmem / u64::from(all.max(1)) * u64::from(here)
        };
        let leaders = self.actors.iter().filter(|actor| actor.pid == actor.tid);
        let shmem_bytes = leaders.map(shared).sum::<u64>().min(node.mem_file_bytes);
        let pages = file_pages(node.mem_file_bytes - shmem_bytes, shmem_bytes);
        NodeRaw { file_pages: Some(node.file_pages.unwrap_or(pages)), ..node.clone() }
    }

    /// Lets the actors work from one time to another. Returns the rows of processes that end.
    fn work(&mut self, from_ns: u64, to_ns: u64, second: u64) -> Vec<Arc<TaskRaw>> {
        for actor in self.actors.iter_mut().filter(|actor| actor.serial == 0) {
            self.serials += 1;
            actor.serial = self.serials;
        }
        let places = Places::new(self, to_ns - from_ns);
        let (mut rows, mut exited) = (BTreeMap::new(), Vec::new());
        self.accesses.clear();
        for actor in &self.actors {
            let row = match self.rows.remove(&actor.serial) {
                Some(row) if actor.asleep => row,
                before => {
                    let mut row = before.map_or_else(|| actor.born(&self.host), Arc::unwrap_or_clone);
                    let step = places.step_of(actor, from_ns, to_ns, self.busy);
                    actor.work(&mut row, &step, &self.host, self.ghz, self.by_node);
                    row.cpu = places.last_cpu(actor, second);
                    let sums = Sums {
                        cpus: &mut self.cpus,
                        accesses: &mut self.accesses,
                        dram: self.dram_accesses.as_mut(),
                    };
                    charge(sums, actor, &step, &places, (&self.host, self.ghz));
                    count_pages(&mut self.nodes, actor, &step);
                    count_hints(&mut self.cpus, &mut self.vm, actor, &step, row.cpu);
                    Arc::new(row)
                }
            };
            if actor.ends.is_some_and(|end| second >= end) {
                exited.push(Arc::new(TaskRaw { exit_state: EXIT_DEAD, ..TaskRaw::clone(&row) }));
            } else {
                rows.insert(actor.serial, row);
            }
        }
        self.actors.retain(|actor| actor.ends.is_none_or(|end| second < end));
        self.rows = rows;
        exited
    }
}

impl Machine {
    /// Whether tasks of a cgroup are in scope.
    pub fn watches(&self, cgroup: u64) -> bool {
        let parent = |id: &u64| self.names.groups.get(id).and_then(|group| group.parent);
        let up = || std::iter::successors(Some(cgroup), parent).take(DEPTH_MAX);
        let wanted = !self.scope.by_cgroup || up().any(|id| self.scope.cgroups.contains(&id));
        wanted && !up().any(|id| self.scope.outside.contains(&id))
    }

    /// Interrupts in the step, of functions that have any.
    fn interrupts(&self, from_ns: u64, to_ns: u64) -> Interrupts {
        let mut all = Interrupts::new();
        for ((address, node), rate) in self.irq_rates.iter().filter(|_| to_ns > from_ns) {
            let device = Arc::make_mut(all.entry(address.clone()).or_default());
            (device.read_ns, device.over_ns) = (BOOT_NS + to_ns, to_ns - from_ns);
            device.by_node.insert(NodeId(*node), grown(*rate, from_ns, to_ns));
        }
        all
    }

    /// Objects as they were drawn last.
    fn object_nodes(&self, now_ns: u64) -> BTreeMap<ObjectId, Arc<ObjectNodes>> {
        const TURN_NS: u64 = 30_000_000_000;
        let read_ns = BOOT_NS + now_ns / TURN_NS * TURN_NS;
        let drawn = |(id, nodes): (&ObjectId, &ObjectNodes)| {
            (*id, Arc::new(ObjectNodes { read_ns, ..nodes.clone() }))
        };
        self.object_nodes.iter().map(drawn).collect()
    }

    /// Free memory by blocks: three quarters in the largest, the rest in single pages.
    fn free_blocks(&self) -> BTreeMap<NodeId, Arc<FreeBlocks>> {
        const LARGEST: usize = 10;
        const PAGE: u64 = 4096;
        let of_node = |node: &NodeRaw| {
            let pages = node.mem_free_bytes / PAGE;
            let mut by_order = vec![0; LARGEST + 1];
            by_order[LARGEST] = (pages / 4 * 3) >> LARGEST;
            by_order[0] = pages - (by_order[LARGEST] << LARGEST);
            let free = FreeBlocks { by_order, page_bytes: PAGE, huge_bytes: Some(2 << 20) };
            (NodeId(node.id), Arc::new(free))
        };
        self.nodes.iter().map(of_node).collect()
    }

    /// Placement of the memory of all processes, read for this sample.
    fn placements(&self) -> BTreeMap<u64, Arc<PlacementRaw>> {
        let is_leader = |actor: &&Actor| actor.pid == actor.tid && !actor.memory.is_empty();
        let leaders = self.actors.iter().filter(is_leader).filter(|actor| self.watches(actor.cgroup));
        let look = |actor: &Actor| {
            let found = PagesFound {
                space_bytes: actor.rss,
                asked: ASKED,
                by_node: actor.memory.clone(),
                error_hundredths: ERROR_HUNDREDTHS,
            };
            let (start_ns, read_ns) = (actor.leader_start_ns(), BOOT_NS + self.elapsed_ns);
            let own = |pct: u64| PolicyBytes {
                all_bytes: actor.rss,
                own_bytes: actor.rss * pct / 100,
                huge: actor.huge.clone(),
            };
            let policies = actor.own_policy_pct.map(|pct| (read_ns, Ok(own(pct.into()))));
            let by_policy = actor.by_policy.clone().map(|pages| Arc::new(PagesByPolicy { read_ns, ..pages }));
            let raw = PlacementRaw { start_ns, read_ns, found: Ok(found), policies, by_policy };
            (u64::from(actor.pid), Arc::new(raw))
        };
        self.placement.iter().map(|(pid, raw)| (*pid, Arc::clone(raw))).chain(leaders.map(look)).collect()
    }
}

/// The kinds of a node's pages of files: `of_files` bytes, and shared memory. Most have not been used lately.
fn file_pages(of_files: u64, shmem_bytes: u64) -> FilePages {
    let inactive_bytes = of_files / 3 * 2;
    let active_bytes = of_files - inactive_bytes;
    FilePages { active_bytes, inactive_bytes, shmem_bytes, dirty_bytes: inactive_bytes / 100 }
}

/// The tier of DRAM, and a slower one for memory without CPUs.
fn tier(topology: &Topology, node: &Node) -> NodeTier {
    let (dram, slow) = (4, 63);
    NodeTier {
        tier: Some(if topology.is_tier(node) { slow } else { dram }),
        weight: Some(1),
        ..NodeTier::default()
    }
}

/// The values of a map for a sample.
fn shared<K: Ord + Clone, V: Clone>(map: &BTreeMap<K, V>) -> BTreeMap<K, Arc<V>> {
    map.iter().map(|(key, value)| (key.clone(), Arc::new(value.clone()))).collect()
}

/// The CPUs that actors run on in a step, and the load of each CPU.
struct Places {
    /// Places in the list of CPUs, by node: online and not kept by a thread that is bound.
    free: BTreeMap<u32, Vec<usize>>,
    /// The same by node and socket.
    of_sockets: BTreeMap<(u32, i32), Vec<usize>>,
    /// The place of each CPU in the list, by id.
    at: BTreeMap<u32, [usize; 1]>,
    /// By place in the list: id, and the place of its SMT sibling.
    cpus: Vec<(u32, Option<usize>)>,
    /// By place in the list: its set of CPUs by which time is kept; empty where these are the nodes.
    places: Vec<u32>,
    busy_ns: Vec<u64>,
    step_ns: u64,
    all_roles: bool,
}

impl Places {
    fn new(machine: &Machine, step_ns: u64) -> Places {
        let topology = &machine.host.topology;
        let at: BTreeMap<u32, [usize; 1]> =
            machine.cpus.iter().enumerate().map(|(at, cpu)| (cpu.id, [at])).collect();
        let sibling = |cpu: &CpuRaw| {
            let siblings = &topology.cpu(CpuId(cpu.id))?.siblings;
            siblings.iter().find(|other| other.0 != cpu.id).and_then(|other| at.get(&other.0)).map(|[at]| *at)
        };
        let bound: BTreeSet<u32> = machine.actors.iter().filter_map(|actor| actor.pinned).collect();
        let mut free: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        let mut of_sockets: BTreeMap<(u32, i32), Vec<usize>> = BTreeMap::new();
        for (at, cpu) in
            machine.cpus.iter().enumerate().filter(|(_, cpu)| cpu.online && !bound.contains(&cpu.id))
        {
            free.entry(cpu.node).or_default().push(at);
            if let Some(socket) = topology.cpu(CpuId(cpu.id)).and_then(|cpu| cpu.socket) {
                of_sockets.entry((cpu.node, socket)).or_default().push(at);
            }
        }
        let mut places = Places {
            free,
            of_sockets,
            cpus: machine.cpus.iter().map(|cpu| (cpu.id, sibling(cpu))).collect(),
            at,
            places: match topology.places.is_empty() {
                true => Vec::new(),
                false => machine.cpus.iter().map(|cpu| topology.node_and_place(CpuId(cpu.id)).1).collect(),
            },
            busy_ns: Vec::new(),
            step_ns,
            all_roles: machine.all_roles,
        };
        let mut busy_ns = vec![0; machine.cpus.len()];
        for actor in &machine.actors {
            for (node, pct) in &actor.runs {
                let on = places.on(actor, *node);
                let ns = run_ns(*pct, machine.busy, step_ns) / on.len().max(1) as u64;
                on.iter().for_each(|at| busy_ns[*at] += ns);
            }
        }
        places.busy_ns = busy_ns;
        places
    }

    /// The CPUs among which the time of an actor on a node is divided.
    fn on(&self, actor: &Actor, node: u32) -> &[usize] {
        match (actor.pinned, actor.socket) {
            (Some(id), _) => self.at.get(&id).map_or(&[], |at| at),
            (None, Some(socket)) => self.of_sockets.get(&(node, socket)).map_or(&[], |free| free),
            (None, None) => self.free.get(&node).map_or(&[], |free| free),
        }
    }

    fn step_of(&self, actor: &Actor, from_ns: u64, to_ns: u64, busy: f64) -> Step {
        let run_ns: Vec<(u32, u64)> =
            actor.runs.iter().map(|(node, pct)| (*node, run_ns(*pct, busy, self.step_ns))).collect();
        let smt_busy = actor.smt_busy.unwrap_or_else(|| self.smt_busy(actor));
        let by_place = self.by_place(actor, &run_ns);
        Step { from_ns, to_ns, run_ns, smt_busy, by_place, all_roles: self.all_roles }
    }

    /// Time of an actor by place. CPUs of a node have equal parts; the first has what does not divide.
    fn by_place(&self, actor: &Actor, run_ns: &[(u32, u64)]) -> Vec<(u32, u64)> {
        let mut by_place = Vec::new();
        for (node, ns) in run_ns.iter().filter(|_| !self.places.is_empty()) {
            let on = self.on(actor, *node);
            let share = ns / on.len().max(1) as u64;
            for (nth, at) in on.iter().enumerate() {
                let rest = if nth == 0 { ns - share * on.len() as u64 } else { 0 };
                by_place.push((self.places[*at], share + rest));
            }
        }
        by_place
    }

    /// Load of the SMT siblings of the CPUs that an actor runs on, 0 to 1.
    fn smt_busy(&self, actor: &Actor) -> f64 {
        let (mut time, mut busy) = (0.0, 0.0);
        for (node, pct) in &actor.runs {
            let on = self.on(actor, *node);
            for at in on {
                let weight = pct / on.len() as f64;
                let of_sibling = self.cpus[*at].1.map_or(0, |sibling| self.busy_ns[sibling]);
                time += weight;
                busy += weight * (of_sibling as f64 / self.step_ns.max(1) as f64).min(1.0);
            }
        }
        if time > 0.0 { busy / time } else { 0.0 }
    }

    /// The CPU in the row of an actor after a step: another one in each second, unless it is bound.
    fn last_cpu(&self, actor: &Actor, second: u64) -> u32 {
        let turn = |(node, _): &(u32, f64)| {
            let on = self.on(actor, *node);
            let nth = (u64::from(actor.tid) + second).checked_rem(on.len() as u64)?;
            Some(self.cpus[on[nth as usize]].0)
        };
        actor.pinned.or(actor.last_cpu).or_else(|| actor.runs.first().and_then(turn)).unwrap_or(0)
    }
}

/// Percent of one CPU in a step as time.
fn run_ns(pct: f64, busy: f64, step_ns: u64) -> u64 {
    (pct * busy * (step_ns as f64 / 100.0)) as u64
}

/// Sums of [`Machine`] that the work of actors adds to.
struct Sums<'m> {
    cpus: &'m mut [CpuRaw],
    accesses: &'m mut BTreeMap<u32, [u64; 2]>,
    dram: Option<&'m mut BTreeMap<NodeId, u64>>,
}

/// Adds the work of an actor to the CPUs that it was on, and its accesses.
fn charge(
    Sums { cpus, accesses, mut dram }: Sums<'_>,
    actor: &Actor,
    step: &Step,
    places: &Places,
    (host, ghz): (&HostFacts, f64),
) {
    for (node, ns) in &step.run_ns {
        let on = places.on(actor, *node);
        let share = ns / on.len().max(1) as u64;
        let all: u64 = step.run_ns.iter().map(|(_, ns)| ns).sum();
        let switches = actor.cpu_switches.unwrap_or_else(|| {
            let here = u128::from(actor.switches) * u128::from(*ns) / u128::from(all.max(1));
            here as u64 / on.len().max(1) as u64
        });
        let counted = actor.counted(*node, share, step.smt_busy, ghz);
        if let Some(dram) = &mut dram {
            let cpus = on.len() as u64;
            count_accesses(dram, actor, *node, [counted.local * cpus, counted.remote * cpus]);
        }
        for at in on {
            let cpu = &mut cpus[*at];
            cpu.busy_ns += share;
            cpu.switches += grown(switches, step.from_ns, step.to_ns);
            counted.add_to(&mut cpu.slots, host, step.all_roles);
            let [local, remote] = accesses.entry(cpu.id).or_default();
            (*local, *remote) = (*local + counted.local, *remote + counted.remote);
        }
    }
}

/// Adds the accesses of an actor from CPUs of `node` to the nodes that its memory is on.
fn count_accesses(dram: &mut BTreeMap<NodeId, u64>, actor: &Actor, node: u32, [local, mut remote]: [u64; 2]) {
    *dram.entry(NodeId(node)).or_default() += local;
    let others = || (0..).zip(&actor.memory).filter(|(other, parts)| *other != node && **parts > 0);
    let mut parts: u64 = others().map(|(_, parts)| u64::from(*parts)).sum();
    for (other, own) in others() {
        let here = remote * u64::from(*own) / parts;
        *dram.entry(NodeId(other)).or_default() += here;
        (remote, parts) = (remote - here, parts - u64::from(*own));
    }
}

/// Adds the pages that an actor was given to the nodes that they are on.
fn count_pages(nodes: &mut [NodeRaw], actor: &Actor, step: &Step) {
    for (at, pages) in actor.per_second.pages.iter().enumerate() {
        let Some(node) = nodes.iter_mut().find(|node| node.id as usize == at) else { continue };
        let cross =
            actor.per_second[Counter::CrossAllocs] * pages / actor.per_second[Counter::UserAllocs].max(1);
        let hit = grown(*pages, step.from_ns, step.to_ns);
        let other = grown(cross, step.from_ns, step.to_ns).min(hit);
        node.numa_hit += hit;
        node.other_node += other;
        node.local_node += hit - other;
    }
}

/// Adds the hinting faults of an actor to the CPU it was on last, and to the machine.
fn count_hints(cpus: &mut [CpuRaw], vm: &mut VmStat, actor: &Actor, step: &Step, cpu: u32) {
    let faults = grown(actor.per_second[Counter::HintFaults], step.from_ns, step.to_ns);
    let remote = grown(actor.per_second[Counter::HintRemote], step.from_ns, step.to_ns);
    let here = cpus.iter_mut().find(|here| here.id == cpu).and_then(|here| here.hints.as_mut());
    for hints in [here, vm.hints.as_mut()].into_iter().flatten() {
        hints.faults += faults;
        hints.remote += remote;
    }
}

/// As samples have them: ascending, without pairs that nothing went between.
fn flows(counts: &BTreeMap<(u32, u32), u64>) -> Vec<Flow> {
    let flow = |((from, to), count): (&(u32, u32), &u64)| Flow {
        from: NodeId(*from),
        to: NodeId(*to),
        count: *count,
    };
    counts.iter().filter(|(_, count)| **count > 0).map(flow).collect()
}
