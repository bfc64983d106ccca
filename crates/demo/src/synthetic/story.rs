//! The processes of the demo machine. Each is an example of an effect of NUMA on a program.

use std::collections::BTreeMap;

use super::containers::{
    self, BACKUP, CACHE, CI, GUEST, INIT, NGINX, ORDERS, POSTGRES, REPORT, SESSION, SSH,
};
use super::{Actor, BOOT_NS, Machine, SECOND};
use crate::model::accelerators::Accelerator;
use crate::model::counters::Counter;
use crate::model::demo::{self, MEMORY, NODES};
use crate::model::memory::{ObjectId, ObjectNodes};
use crate::model::sample::{Comm, Counts, MemPolicy, PagesByPolicy, SharedObject};
use crate::model::sockets::{SocketRoute, SocketUse};
use crate::model::units::NodeId;

/// MPOL_BIND and MPOL_INTERLEAVE of include/uapi/linux/mempolicy.h.
const BIND: u16 = 2;
const INTERLEAVE: u16 = 3;
/// Parts of memory, as many as pages are asked for to find out where it is.
const PARTS: u32 = super::ASKED;

/// The training job changes its node after this many seconds; its memory follows over most of them.
const STAY: u64 = 60;
const FOLLOW: u64 = 48;
const TRAINER: u32 = 6200;
const TRAINER_BYTES: u64 = 6 << 30;
/// Threads of the shop, which has no fixed node.
const SHOP: u32 = 5100;
const SHOP_MOVES: [(u32, u32); 3] = [(0, 2), (2, 3), (3, 0)];
const DATABASE: u32 = 4200;
/// Seconds that compiling a file takes.
const COMPILES: u64 = 3;
const COMPILER: u32 = 9100;

/// Interrupts per second of the network card, the disk and the GPU, by node.
const INTERRUPTS: [(&str, u32, u64); 4] =
    [(demo::ETH0, 0, 11_400), (demo::ETH0, 1, 600), (demo::NVME0, 2, 3_100), (demo::GPU0, demo::GPU_NODE, 0)];

/// Traffic to the disk on node 2: the log of the database from there, and the backup from node 3. Process, node, bytes and requests
/// per second.
const DISK_TRAFFIC: [(u32, u32, u64, u64); 2] =
    [(DATABASE, 2, 24_000_000, 2_900), (2710, 3, 96_000_000, 370)];

/// Traffic of the network card: the cache near its interrupts, the shop on the nodes that it comes to. Process, nodes of the
/// packets and of the process, received bytes, reads and sent bytes per second.
const SOCKET_TRAFFIC: [(u32, u32, u32, [u64; 3]); 4] = [
    (1450, 0, 0, [9_400_000, 8_100, 21_000_000]),
    (SHOP, 0, 0, [700_000, 900, 2_100_000]),
    (SHOP, 0, 2, [1_300_000, 1_700, 0]),
    (SHOP, 1, 2, [80_000, 100, 0]),
];

/// The node that the solver fills, and the pages that it and kswapd reclaim there per second.
const FULL_NODE: u32 = 1;
const SOLVER_BYTES: u64 = 55 << 30;
const DIRECT_PAGES: u64 = 3_400;
const KSWAPD_PAGES: u64 = 9_100;

/// Memory of the kernel on each node: slab, and page cache of files; on the full node only what reclaim leaves.
const SLAB: u64 = 2 << 30;
const FILES: u64 = 9 << 30;
const FILES_LEFT: u64 = 5 << 28;

/// Two nodes in each of two sockets, and a dozen processes.
pub fn machine() -> Machine {
    let mut machine = Machine::new(super::events::host(), containers::names(), actors());
    (machine.by_node, machine.all_roles) = (true, true);
    machine.ghz = 2.6;
    machine.lost = crate::model::wire::Loss::ALL.map(|loss| (loss.id().to_string(), 0)).into();
    machine.notes = vec!["simulated machine (--demo): no value is measured".into()];
    let nodes = ObjectNodes {
        asked: 981,
        by_node: vec![939, 0, 42, 0],
        error_hundredths: 146,
        ..ObjectNodes::default()
    };
    machine.object_nodes = [(ObjectId { device: 1, inode: 32_768, generation: 7 }, nodes)].into();
    machine.irq_rates = INTERRUPTS.map(|(at, node, per_s)| ((at.into(), node), per_s)).into();
    machine.disk_rates = DISK_TRAFFIC
        .map(|(pid, node, bytes, requests)| (pid, demo::NVME0.into(), NodeId(node), bytes, requests))
        .into();
    machine.socket_rates = SOCKET_TRAFFIC
        .map(|(pid, from, to, [received, reads, sent])| {
            let route = SocketRoute { from: Some(NodeId(from)), to: NodeId(to) };
            (pid, route, SocketUse { received, reads, sent })
        })
        .into();
    let gpu = Accelerator {
        name: "nvidia0".into(),
        functions: vec![demo::GPU0.into()],
        nodes: vec![NodeId(demo::GPU_NODE)],
        is_nodeless: false,
    };
    machine.held = vec![(TRAINER, vec![gpu])];
    machine.monitors_caches = true;
    machine.plan = Some(Box::new(live));
    machine.dram_accesses = Some(BTreeMap::new());
    machine.state.load_hundredths = Some([1512, 1487, 1390]);
    machine
}

fn actors() -> Vec<Actor> {
    let mut actors = vec![
        process(1, "systemd", "/sbin/init", INIT, 12 << 20, [1024, 0, 0, 0]),
        Actor { ppid: 0, cgroup: 1, rss: 0, ..Actor::new(2, "kthreadd") },
        Actor { ppid: 2, cgroup: 1, rss: 0, switches: 300, ..Actor::new(74, "kcompactd2") }.runs(&[(2, 0.6)]),
        process(812, "sshd", "sshd: /usr/sbin/sshd -D", SSH, 9 << 20, [0, 1024, 0, 0]),
        Actor { uid: 1000, ppid: 812, ..process(3001, "bash", "-bash", SESSION, 5 << 20, [0, 1024, 0, 0]) },
    ];
    actors.extend(database());
    actors.extend(solver());
    actors.extend(shop());
    actors.extend(cache());
    actors.extend(report());
    actors.extend(neighbours());
    actors.extend(web());
    actors.push(trainer());
    actors.extend(guest());
    actors.extend(build());
    actors
}

fn process(pid: u32, comm: &str, cmdline: &str, cgroup: u64, rss: u64, memory: [u32; 4]) -> Actor {
    let by_policy =
        Some(PagesByPolicy { mappings: 120, by_node: memory.to_vec(), ..PagesByPolicy::default() });
    Actor {
        cmdline: cmdline.into(),
        cgroup,
        rss,
        memory: memory.to_vec(),
        by_policy,
        ..Actor::new(pid, comm)
    }
}

/// Threads of `leader` beside itself, `each` made from its number.
fn threads(leader: &Actor, count: u32, comm: &str, each: impl Fn(u32, Actor) -> Actor) -> Vec<Actor> {
    let thread = |n: u32| each(n, Actor { tid: leader.pid + n, comm: Comm::new(comm), ..leader.clone() });
    (1..=count).map(thread).collect()
}

/// Pages given to a task on each node in a second, some of them on another node than it runs on.
fn pages(by_node: [u64; 4], cross: u64) -> Counts {
    let all: u64 = by_node.iter().sum();
    Counts { pages: by_node.to_vec(), ..Counts::default() }.with([
        (Counter::UserAllocs, all),
        (Counter::CrossAllocs, cross),
        (Counter::MinFlt, all),
    ])
}

/// A segment on node 0 that all processes share, all work on node 2, and balancing cannot help: pages that are shared stay.
fn database() -> Vec<Actor> {
    const SEGMENT: u64 = 23 << 30;
    // Of the pages that are found of each process 43 are its own, on node 2.
    let of_segment = vec![939, 0, 42, 0];
    let segment = SharedObject {
        device: 1,
        inode: 32_768,
        generation: 7,
        bytes: SEGMENT,
        resident_bytes: SEGMENT,
        mappings: Some(4),
        own_mappings: 1,
        by_node: of_segment.clone(),
        meant: vec![],
    };
    let command = "postgres: main -D /var/lib/postgresql";
    let main = process(DATABASE, "postgres", command, POSTGRES, SEGMENT + (1 << 30), [939, 0, 85, 0]);
    let by_policy = main.by_policy.clone().map(|pages| PagesByPolicy {
        shared: of_segment,
        objects: vec![segment],
        ..pages
    });
    let main = Actor { uid: 26, shmem: SEGMENT, by_policy, ..main };
    let backend = |pid: u32, client: &str, pct: f64| {
        let asked = pages([30, 0, 160, 0], 30).with([
            (Counter::HintFaults, 1900),
            (Counter::HintRemote, 1820),
            (Counter::BalancingNs, 14_000_000),
            (Counter::NumaStuck, 1),
        ]);
        Actor {
            pid,
            tid: pid,
            ppid: DATABASE,
            cmdline: format!("postgres: shop {client} SELECT"),
            ipc: 1.3,
            accesses: 9.0,
            switches: 2400,
            wait_pct: 1.5,
            preferred_node: Some(0),
            scan_period_ms: 1000,
            numa_group: DATABASE,
            per_second: asked,
            ..main.clone()
        }
        .runs(&[(2, pct)])
    };
    vec![
        main.clone(),
        backend(4210, "10.0.0.7(51234)", 88.0),
        backend(4211, "10.0.0.7(51240)", 81.0),
        backend(4212, "10.0.0.9(40112)", 74.0),
    ]
}

/// Bound to the cores and the memory of node 1, which it has outgrown: the kernel evicts pages of its mesh file while other
/// nodes have room.
fn solver() -> Vec<Actor> {
    let leader = Actor {
        uid: 1000,
        ppid: 3001,
        ipc: 2.1,
        accesses: 2.5,
        switches: 12,
        pinned: Some(4),
        preferred_node: Some(1),
        mempolicy: MemPolicy { mode: BIND, flags: 0, nodes: 1 << FULL_NODE },
        file_pct: 1,
        per_second: pages([0, 12, 0, 0], 0).with([(Counter::MajFlt, 90)]),
        ..process(7000, "solver", "./solver --mesh wing.msh", SESSION, SOLVER_BYTES, [0, 1024, 0, 0])
    }
    .runs(&[(1, 93.0)]);
    let others = threads(&leader, 3, "solver", |n, thread| Actor { pinned: Some(4 + n), ..thread });
    std::iter::once(leader).chain(others).collect()
}

/// Four threads without a node of their own: the scheduler moves them all the time.
fn shop() -> Vec<Actor> {
    let leader = Actor {
        uid: 1000,
        ..process(SHOP, "java", "java -Xmx12g -jar orders.jar", ORDERS, 9 << 30, [420, 40, 330, 234])
    };
    let work = threads(&leader, 4, "http-exec", |_, thread| Actor {
        ipc: 1.2,
        accesses: 6.0,
        switches: 3800,
        wait_pct: 4.0,
        node_moves: 9,
        scan_period_ms: 1000,
        per_second: pages([400, 0, 350, 300], 520).with([
            (Counter::MigratedPages, 90),
            (Counter::BalancedPages, 90),
            (Counter::NumaPagesMigrated, 90),
            (Counter::MigrateFailedPages, 6),
            (Counter::HintFaults, 700),
            (Counter::HintRemote, 460),
            (Counter::BalancingNs, 6_000_000),
            (Counter::NumaMoves, 2),
            (Counter::CpuMigrations, 40),
        ]),
        ..thread
    });
    std::iter::once(leader).chain(work).collect()
}

/// Memory interleaved over all nodes: three quarters are elsewhere, whichever node a thread runs on.
fn cache() -> Vec<Actor> {
    let leader = Actor {
        uid: 112,
        mempolicy: MemPolicy { mode: INTERLEAVE, flags: 0, nodes: 0b1111 },
        ..process(1450, "memcached", "numactl -i all memcached -m 16384", CACHE, 16 << 30, [256; 4])
    };
    let work = threads(&leader, 2, "mc-worker", |n, thread| {
        Actor { ipc: 1.6, accesses: 5.0, switches: 9000, per_second: pages([20; 4], 60), ..thread }
            .runs(&[(0, 38.0 + f64::from(n))])
    });
    std::iter::once(leader).chain(work).collect()
}

/// A container that wants two CPUs and may use one and a half.
fn report() -> Vec<Actor> {
    let leader = Actor {
        ..process(8300, "python3", "python3 report.py --month 12", REPORT, 3 << 30, [0, 0, 1000, 24])
    };
    let work = threads(&leader, 2, "report", |_, thread| {
        Actor {
            ipc: 1.9,
            accesses: 3.0,
            switches: 60,
            preferred_node: Some(2),
            per_second: pages([0, 0, 900, 0], 0).with([(Counter::Nivcsw, 30)]),
            ..thread
        }
        .runs(&[(2, 74.5)])
    });
    std::iter::once(leader).chain(work).collect()
}

/// Two hardware threads of one core: the compression of the backup slows the other one down.
fn neighbours() -> Vec<Actor> {
    vec![
        Actor {
            uid: 1000,
            ppid: 1,
            ipc: 1.9,
            accesses: 2.0,
            switches: 21_000,
            pinned: Some(13),
            preferred_node: Some(3),
            per_second: pages([0, 0, 0, 60], 0),
            ..process(2600, "redis-server", "redis-server *:6379", SESSION, 5 << 30, [0, 0, 0, 1024])
        }
        .runs(&[(3, 62.0)]),
        Actor {
            nice: 10,
            ipc: 1.7,
            accesses: 4.0,
            switches: 45,
            pinned: Some(29),
            preferred_node: Some(3),
            per_second: pages([0, 0, 0, 210], 0),
            ..process(2710, "zstd", "zstd -19 /backup/today.tar", BACKUP, 700 << 20, [0, 0, 0, 1024])
        }
        .runs(&[(3, 97.5)]),
    ]
}

/// Workers that stay where their memory is.
fn web() -> Vec<Actor> {
    let leader = Actor {
        cpu_nodes: Some(1),
        mem_nodes: Some(1),
        ..process(1900, "nginx", "nginx: master process", NGINX, 20 << 20, [1024, 0, 0, 0])
    };
    let worker = |pid: u32, pct: f64| {
        Actor {
            pid,
            tid: pid,
            ppid: 1900,
            uid: 33,
            cmdline: "nginx: worker process".into(),
            rss: 160 << 20,
            ipc: 1.5,
            accesses: 3.0,
            switches: 14_000,
            preferred_node: Some(0),
            per_second: pages([240, 0, 0, 0], 0),
            ..leader.clone()
        }
        .runs(&[(0, pct)])
    };
    vec![leader.clone(), worker(1901, 31.0), worker(1902, 27.0)]
}

/// NUMA balancing at work: its memory follows it.
fn trainer() -> Actor {
    Actor {
        uid: 1000,
        ppid: 3001,
        ipc: 1.9,
        accesses: 11.0,
        switches: 30,
        scan_period_ms: 1000,
        ..process(TRAINER, "train", "python3 train.py --epochs 40", SESSION, TRAINER_BYTES, [0, 0, 0, PARTS])
    }
}

fn guest() -> Vec<Actor> {
    let leader = Actor {
        uid: 64055,
        ..process(
            3900,
            "qemu-system-x86",
            "qemu-system-x86_64 -name windows -m 8192",
            GUEST,
            8 << 30,
            [0, 0, 80, 944],
        )
    };
    let cpus = threads(&leader, 2, "CPU 0/KVM", |n, thread| {
        Actor {
            comm: Comm::new(if n == 1 { "CPU 0/KVM" } else { "CPU 1/KVM" }),
            ipc: 1.4,
            accesses: 3.0,
            switches: 1800,
            preferred_node: Some(3),
            per_second: pages([0, 0, 0, 20], 0),
            ..thread
        }
        .runs(&[(3, 42.0 - 9.0 * f64::from(n))])
    });
    std::iter::once(leader).chain(cpus).collect()
}

/// Starts short-lived compilers, one after the other.
fn build() -> Vec<Actor> {
    vec![process(9000, "make", "make -j1", CI, 6 << 20, [1024, 0, 0, 0])]
}

/// A compiler that works from `second` on.
fn compiler(second: u64, start_ns: u64) -> Actor {
    let pid = COMPILER + 2 * (second / COMPILES % 4000) as u32;
    Actor {
        ppid: 9000,
        ipc: 1.6,
        accesses: 5.0,
        switches: 25,
        start_ns: Some(start_ns),
        ends: Some(second.max(1) + COMPILES - 1),
        per_second: pages([9000, 0, 0, 0], 0),
        ..process(pid, "cc1plus", "cc1plus -O2 mesh.cc", CI, 310 << 20, [1024, 0, 0, 0])
    }
    .runs(&[(0, 96.0)])
}

/// Changes of the machine until the end of `second`.
fn live(machine: &mut Machine, second: u64) {
    machine.busy = 1.0 - 0.01 * ((second * 7) % 5) as f64;
    for actor in &mut machine.actors {
        actor.asleep = actor.runs.is_empty() && !second.is_multiple_of(3);
        if actor.pid == SHOP && actor.tid != SHOP {
            wander(actor, second);
        }
        if actor.pid == TRAINER {
            follow(actor, second);
        }
    }
    if machine.actors.iter().all(|actor| actor.ends.is_none()) {
        machine.actors.push(compiler(second, BOOT_NS + machine.step_began_ns));
    }
    set_flows(machine, second);
    fill_nodes(machine);
    machine.groups = containers::groups(&machine.actors, &machine.groups, machine.elapsed_ns);
}

/// Sets the moves of tasks that are watched, and of their pages, until the end of `second`.
fn set_flows(machine: &mut Machine, second: u64) {
    let moves_of = |cgroup, rate| if machine.watches(cgroup) { rate } else { 0 };
    let (tasks, shop_pages) = (moves_of(ORDERS, 12), moves_of(ORDERS, 120));
    let (from, to, pages) = moving(second);
    let (trainer, pages) = (moves_of(SESSION, moves(second)), moves_of(SESSION, pages));
    machine.flow_rates = SHOP_MOVES.map(|pair| (pair, tasks)).into();
    machine.page_flow_rates = SHOP_MOVES.map(|pair| (pair, shop_pages)).into();
    *machine.flow_rates.entry((from, to)).or_default() += trainer;
    *machine.page_flow_rates.entry((from, to)).or_default() += pages;
}

/// A thread of the shop: mostly on one of three nodes, on another one soon.
fn wander(actor: &mut Actor, second: u64) {
    let turn = (second / 2 + u64::from(actor.tid)) as usize;
    let share = [34.0, 13.0, 8.0];
    actor.runs = (0..3).map(|at| (SHOP_MOVES[(turn + at) % 3].0, share[at])).collect();
}

/// The node of the training job until the end of `second`, its previous node, and the time since the change.
fn stay(second: u64) -> (u32, u32, u64) {
    let (turn, since) = (second.saturating_sub(1) / STAY, second.saturating_sub(1) % STAY);
    if turn.is_multiple_of(2) { (2, 3, since) } else { (3, 2, since) }
}

/// Pages of the training job that move in a second, and between which nodes.
fn moving(second: u64) -> (u32, u32, u64) {
    let (to, from, since) = stay(second);
    let pages = TRAINER_BYTES / 4096 * 9 / 10 / FOLLOW;
    (from, to, if since < FOLLOW && second > 0 { pages } else { 0 })
}

/// Moves of the training job to another node.
fn moves(second: u64) -> u64 {
    u64::from(second > 1 && stay(second).2 == 0)
}

/// The training job: on one node, with less and less of its memory on the other one.
fn follow(actor: &mut Actor, second: u64) {
    let (to, from, since) = stay(second);
    let pages = moving(second).2;
    let followed = PARTS * 9 / 10 * since.min(FOLLOW) as u32 / FOLLOW as u32 + PARTS / 20;
    actor.runs = vec![(to, 98.5)];
    actor.memory = vec![0; NODES as usize];
    actor.memory[to as usize] = followed;
    actor.memory[from as usize] = PARTS - followed;
    actor.preferred_node = Some(to);
    actor.node_moves = moves(second);
    let faults = if pages > 0 { 26_000 } else { 1_500 };
    actor.per_second = Counts::from([
        (Counter::MigratedPages, pages),
        (Counter::BalancedPages, pages),
        (Counter::NumaPagesMigrated, pages),
        (Counter::HintFaults, faults),
        (Counter::HintRemote, faults * u64::from(PARTS - followed) / u64::from(PARTS)),
        (Counter::BalancingNs, if pages > 0 { 41_000_000 } else { 4_000_000 }),
        (Counter::NumaMoves, actor.node_moves),
    ]);
}

/// Memory of a process on `node` in bytes: its own, and shared memory. The shared segment counts with the server only, and
/// threads have no memory.
pub(super) fn memory_on(actor: &Actor, node: u32) -> (u64, u64) {
    if actor.pid != actor.tid {
        return (0, 0);
    }
    let part = |parts: &[u32]| parts.get(node as usize).map_or(0, |part| u64::from(*part));
    let shared = actor.by_policy.as_ref().map_or(0, |pages| part(&pages.shared));
    let bytes = actor.rss / u64::from(actor.memory.iter().sum::<u32>().max(1));
    let is_backend = actor.ppid == DATABASE;
    (bytes * (part(&actor.memory) - shared), if is_backend { 0 } else { bytes * shared })
}

/// Pages of files in its own memory, bytes: as in its row.
pub(super) fn file_bytes(actor: &Actor, own: u64) -> u64 {
    own * actor.file_pct / 100
}

/// Sets the memory of nodes to the sum of processes, page cache and kernel. The page cache has the files of processes.
fn fill_nodes(machine: &mut Machine) {
    for node in &mut machine.nodes {
        let (mut anon_bytes, mut shmem_bytes) = (0, 0);
        for actor in &machine.actors {
            let (own, shared) = memory_on(actor, node.id);
            anon_bytes += own - file_bytes(actor, own);
            shmem_bytes += shared;
        }
        let files = if node.id == FULL_NODE { FILES_LEFT } else { FILES };
        node.mem_anon_bytes = anon_bytes;
        node.mem_file_bytes = files + shmem_bytes;
        node.file_pages = Some(super::file_pages(files, shmem_bytes));
        node.mem_slab_bytes = SLAB;
        if node.id == FULL_NODE {
            // The first second finds the last free pages.
            let seconds = (machine.elapsed_ns / SECOND).saturating_sub(1);
            (node.direct_pages, node.kswapd_pages) = (DIRECT_PAGES * seconds, KSWAPD_PAGES * seconds);
            (machine.vm.direct_pages, machine.vm.kswapd_pages) = (node.direct_pages, node.kswapd_pages);
        }
        // Tests add programs to the full node.
        node.mem_free_bytes = MEMORY.saturating_sub(anon_bytes + node.mem_file_bytes + SLAB);
    }
    for cpu in machine.cpus.iter_mut().filter(|cpu| cpu.id.is_multiple_of(8)) {
        cpu.irq_ns = Some(machine.elapsed_ns / SECOND * 10 * super::MS);
    }
}
