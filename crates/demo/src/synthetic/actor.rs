//! A made-up thread: what it does each second, and what its counters make of that.

use crate::model::counters::Counter;
use crate::model::event::Role;
use crate::model::sample::{
    Comm, Counts, HostFacts, HugePages, MemPolicy, PagesByPolicy, Resident, Slot, TaskRaw,
};
use crate::model::topology::Cpu;
use crate::model::units::NodeId;
use crate::model::wire::NodeCounts;

/// Part of its speed that a task loses where all of its memory is on other nodes, and where its SMT sibling is always
/// busy.
const REMOTE_COST: f64 = 0.55;
const SIBLING_COST: f64 = 0.4;

/// A thread and what it does each second.
#[derive(Clone, Debug)]
pub struct Actor {
    /// Process, thread and parent process; a thread with the id of its process is its leader.
    pub pid: u32,
    pub tid: u32,
    pub ppid: u32,
    /// Owner.
    pub uid: u32,
    /// Name of the thread.
    pub comm: Comm,
    /// Arguments, as `/proc/PID/cmdline` has them; empty for a kernel thread.
    pub cmdline: String,
    /// Id of its cgroup.
    pub cgroup: u64,
    /// Node, and percent of one CPU.
    pub runs: Vec<(u32, f64)>,
    /// The CPU that it is bound to; others of the node keep off it.
    pub pinned: Option<u32>,
    /// On which socket of its nodes it runs; `None`: on all.
    pub socket: Option<i32>,
    /// Number of CPUs that it may use; `None`: all, or the one to which it is bound.
    pub allowed: Option<u32>,
    /// The CPU in its row; `None`: the one it is bound to, or one of its node.
    pub last_cpu: Option<u32>,
    /// Instructions per cycle: with all memory local and the SMT sibling idle, unless `smt_busy` is given.
    pub ipc: f64,
    /// Share of its time in which its SMT sibling was busy, 0 to 1; `None`: as busy as the sibling is.
    pub smt_busy: Option<f64>,
    /// Memory accesses per thousand instructions.
    pub accesses: f64,
    /// The share of them that leaves the node, 0 to 1; `None` where all memory is used alike.
    pub remote_share: Option<f64>,
    /// Moves to another node per second.
    pub node_moves: u64,
    /// Percent of the time in which it waits for a CPU.
    pub wait_pct: f64,
    /// Context switches per second, all of them voluntary.
    pub switches: u64,
    /// Switches on each CPU that it runs on; `None`: its own, divided among them.
    pub cpu_switches: Option<u64>,
    /// Resident memory of its process, and the number of its parts on each node; no parts: not known.
    pub rss: u64,
    pub memory: Vec<u32>,
    /// Bytes of its memory in swap.
    pub swapped: u64,
    /// Share of `rss` in mappings with a policy of their own, in percent; `None`: not known.
    pub own_policy_pct: Option<u8>,
    /// Its pages by policy, as each look at them finds them; `None`: not known.
    pub by_policy: Option<PagesByPolicy>,
    /// Pages of hugetlbfs, known where `own_policy_pct` is.
    pub huge: Vec<HugePages>,
    /// The part of `rss` that is shared memory.
    pub shmem: u64,
    /// Share of the rest of `rss` that is of files, in percent.
    pub file_pct: u64,
    /// Allowed nodes for running and for memory, as bits; `None`: all with CPUs, and all.
    pub cpu_nodes: Option<u64>,
    pub mem_nodes: Option<u64>,
    /// Memory policy, and the state of NUMA balancing, as in its row.
    pub mempolicy: MemPolicy,
    pub preferred_node: Option<u32>,
    pub scan_period_ms: u32,
    pub numa_group: u32,
    /// Nice value.
    pub nice: i32,
    /// Counts per second that do not follow from the fields above.
    pub per_second: Counts,
    /// Its row does not change.
    pub asleep: bool,
    /// Start in ns since boot; `None`: its id in ms after boot.
    pub start_ns: Option<u64>,
    /// The second at which it ends, with its process when it is the leader.
    pub ends: Option<u64>,
    /// Its place among all actors so far; 0 until it has a row, which assigns it.
    pub serial: u64,
}

/// The work of an actor in one step.
pub(super) struct Step {
    /// Time since the machine began, before and after, ns.
    pub from_ns: u64,
    pub to_ns: u64,
    /// Time on a CPU by node.
    pub run_ns: Vec<(u32, u64)>,
    /// The same by place; empty where places are the nodes.
    pub by_place: Vec<(u32, u64)>,
    /// Share of that with a busy SMT sibling.
    pub smt_busy: f64,
    /// Events of all roles count, not only cycles, instructions and memory accesses.
    pub all_roles: bool,
}

impl Actor {
    /// A process that rests.
    pub fn new(pid: u32, comm: &str) -> Actor {
        Actor {
            pid,
            tid: pid,
            ppid: 1,
            uid: 0,
            comm: Comm::new(comm),
            cmdline: String::new(),
            cgroup: 1,
            runs: vec![],
            pinned: None,
            socket: None,
            allowed: None,
            last_cpu: None,
            ipc: 1.0,
            smt_busy: None,
            accesses: 0.0,
            remote_share: None,
            node_moves: 0,
            wait_pct: 0.0,
            switches: 2,
            cpu_switches: None,
            rss: 8 << 20,
            swapped: 0,
            memory: vec![],
            own_policy_pct: None,
            by_policy: None,
            huge: vec![],
            shmem: 0,
            file_pct: 10,
            cpu_nodes: None,
            mem_nodes: None,
            mempolicy: MemPolicy::default(),
            preferred_node: None,
            scan_period_ms: 0,
            numa_group: 0,
            nice: 0,
            per_second: Counts::default(),
            asleep: false,
            start_ns: None,
            ends: None,
            serial: 0,
        }
    }

    /// The same on these nodes, with percents of one CPU.
    pub fn runs(mut self, runs: &[(u32, f64)]) -> Actor {
        self.runs = runs.to_vec();
        self
    }

    /// Share of its memory that is not on `node`, 0 to 1; 0 if placement is unknown.
    pub(super) fn remote_from(&self, node: u32) -> f64 {
        let all: u32 = self.memory.iter().sum();
        let here = self.memory.get(node as usize).copied().unwrap_or(0);
        if all == 0 { 0.0 } else { f64::from(all - here) / f64::from(all) }
    }

    /// Start of its process in ns since boot.
    pub fn leader_start_ns(&self) -> u64 {
        self.start_ns.unwrap_or(u64::from(self.pid) * super::MS)
    }

    /// Its resident memory by kind, files in whole MiB.
    pub fn resident(&self) -> Resident {
        let own = self.rss.saturating_sub(self.shmem);
        let file_bytes = (own.saturating_mul(self.file_pct) / 100) >> 20 << 20;
        Resident {
            anon_bytes: own - file_bytes,
            file_bytes,
            shmem_bytes: self.rss - own,
            swap_bytes: self.swapped,
        }
    }

    fn nodes_of_cpus(&self, host: &HostFacts) -> u64 {
        let may_use = |cpu: &&Cpu| self.pinned.is_none_or(|pinned| pinned == cpu.id.0);
        bits(host.topology.cpus.iter().filter(may_use).filter_map(|cpu| cpu.node))
    }

    /// The row of one that has done nothing yet.
    pub(super) fn born(&self, host: &HostFacts) -> TaskRaw {
        let nodes = host.topology.possible_nodes as usize;
        TaskRaw {
            serial: self.serial,
            pid: self.pid,
            tid: self.tid,
            ppid: self.ppid,
            uid: self.uid,
            start_ns: self.start_ns.unwrap_or(u64::from(self.tid) * super::MS),
            leader_start_ns: self.leader_start_ns(),
            cgroup_id: self.cgroup,
            comm: self.comm,
            state: 0,
            exit_state: 0,
            policy: 0,
            nice: self.nice,
            cpu: 0,
            cpus_allowed: match (self.allowed, self.pinned) {
                (Some(allowed), _) => allowed,
                (None, Some(_)) => 1,
                (None, None) => host.topology.cpus.len() as u32,
            },
            cpu_nodes: Some(self.cpu_nodes.unwrap_or_else(|| self.nodes_of_cpus(host))),
            mem_nodes: Some(
                self.mem_nodes.unwrap_or_else(|| bits(host.topology.nodes.iter().map(|node| node.id))),
            ),
            kthread: self.ppid == 2 || self.pid == 2,
            rss_bytes: self.rss,
            resident: Some(self.resident()),
            exec_ns: 0,
            preferred_node: None,
            scan_period_ms: 0,
            numa_group: self.numa_group,
            mempolicy: self.mempolicy,
            counts: Counts {
                run_ns: vec![0; nodes],
                by_place: vec![0; host.topology.places.len()],
                ..Counts::default()
            },
        }
    }

    /// Its row after a step of work. `by_node`: counters are kept by node and by the state of the sibling,
    /// too.
    pub(super) fn work(&self, row: &mut TaskRaw, step: &Step, host: &HostFacts, ghz: f64, by_node: bool) {
        row.state = u32::from(self.runs.is_empty());
        row.rss_bytes = self.rss;
        row.resident = Some(self.resident());
        row.preferred_node = self.preferred_node.map(NodeId);
        row.scan_period_ms = self.scan_period_ms;
        let counts = &mut row.counts;
        if by_node && counts.by_node.is_empty() {
            counts.by_node = vec![NodeCounts::default(); counts.run_ns.len()];
        }
        for (node, ns) in &step.run_ns {
            counts.run_ns[*node as usize] += ns;
            row.exec_ns += ns;
            counts[Counter::SmtBusyNs] += (*ns as f64 * step.smt_busy) as u64;
            let counted = self.counted(*node, *ns, step.smt_busy, ghz);
            counted.add_to(&mut counts.slots, host, step.all_roles);
            if by_node {
                let here = &mut counts.by_node[*node as usize];
                here.cycles += counted.cycles;
                here.instructions += counted.instructions;
                counted.divide(step.smt_busy, &mut counts.by_sibling);
            }
        }
        for (place, ns) in &step.by_place {
            counts.by_place[*place as usize] += ns;
        }
        let grown = |rate: u64| grown(rate, step.from_ns, step.to_ns);
        counts[Counter::NodeMoves] += grown(self.node_moves);
        counts[Counter::Nvcsw] += grown(self.switches);
        counts[Counter::RunCount] += grown(self.switches);
        counts[Counter::RunDelayNs] += grown((self.wait_pct * 1e7) as u64);
        *counts += &self.per_second.map(grown);
    }

    /// Counts of a CPU while it runs there.
    pub(super) fn counted(&self, node: u32, ns: u64, smt_busy: f64, ghz: f64) -> Counted {
        let (remote, cost) = match self.smt_busy {
            Some(_) => (0.0, 1.0),
            None => {
                let remote = self.remote_from(node);
                (remote, (1.0 - REMOTE_COST * remote) * (1.0 - SIBLING_COST * smt_busy))
            }
        };
        let cycles = ns as f64 * ghz;
        let instructions = cycles * self.ipc * cost;
        let accesses = instructions * self.accesses / 1000.0;
        let remote = self.remote_share.unwrap_or(remote);
        Counted {
            cycles: cycles as u64,
            instructions: instructions as u64,
            local: (accesses * (1.0 - remote)) as u64,
            remote: (accesses * remote) as u64,
        }
    }
}

/// Nodes as bits; those above 63 are left out.
fn bits(nodes: impl Iterator<Item = NodeId>) -> u64 {
    nodes.filter(|node| node.0 < u64::BITS).fold(0, |bits, node| bits | 1 << node.0)
}

/// Counts of a stretch of time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    pub cycles: u64,
    pub instructions: u64,
    pub local: u64,
    pub remote: u64,
}

impl Counted {
    /// Adds it to the slots that count it. `all_roles`: the rest of the roles, too.
    pub(super) fn add_to(&self, slots: &mut [Slot], host: &HostFacts, all_roles: bool) {
        let main = [
            (Role::Cycles, self.cycles),
            (Role::Instructions, self.instructions),
            (Role::Lma, self.local),
            (Role::Rma, self.remote),
        ];
        let others = self.others();
        for (role, count) in main.iter().chain(others.iter().filter(|_| all_roles)) {
            let open = |slot: &usize| !all_roles || !host.missing.contains_key(&host.events[*slot].name);
            if let Some(slot) = host.slots(*role).find(open) {
                slots[slot].count += count;
            }
        }
    }

    /// Counts that follow from these: a core that retires four instructions per cycle stalls at memory in the rest of the time.
    fn others(&self) -> [(Role, u64); 7] {
        let accesses = self.local + self.remote;
        let idle = self.cycles.saturating_sub(self.instructions / 4);
        [
            (Role::RemoteCache, self.remote / 9),
            (Role::StallFrontend, idle / 12),
            (Role::StallBackend, idle / 6 * 5),
            (Role::Llc, accesses),
            (Role::Dtlb, accesses / 7),
            (Role::Itlb, self.instructions / 9000),
            (Role::Branch, self.instructions / 240),
        ]
    }

    /// Divides it between stretches with an idle and with a busy sibling, so that IPC differs by the cost of
    /// a busy one.
    fn divide(&self, smt_busy: f64, by_sibling: &mut [NodeCounts]) {
        let (idle, busy) = (1.0 - smt_busy, smt_busy);
        let weight = idle + busy * (1.0 - SIBLING_COST);
        let busy_cycles = (self.cycles as f64 * busy) as u64;
        let busy_instructions =
            (self.instructions as f64 * busy * (1.0 - SIBLING_COST) / weight.max(f64::MIN_POSITIVE)) as u64;
        by_sibling[0].cycles += self.cycles - busy_cycles;
        by_sibling[0].instructions += self.instructions - busy_instructions.min(self.instructions);
        by_sibling[1].cycles += busy_cycles;
        by_sibling[1].instructions += busy_instructions;
    }
}

/// Growth of a count of `rate` per second between two times, without drift over many short steps.
pub(super) fn grown(rate: u64, from_ns: u64, to_ns: u64) -> u64 {
    let at = |ns: u64| u128::from(rate) * u128::from(ns) / 1_000_000_000;
    (at(to_ns) - at(from_ns)) as u64
}
