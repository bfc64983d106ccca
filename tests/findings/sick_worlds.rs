//! Machines of the field cases: each has one thing wrong with it.

use std::sync::Arc;

use numatop_ng::model::counters::Counter;
use numatop_ng::model::disks::{DiskUse, DisksUsed};
use numatop_ng::model::event::Role;
use numatop_ng::model::sample::{
    CgroupFacts, CgroupMode, Counts, FilePages, GroupCounters, GroupRaw, GroupReclaim, MemPolicy,
};
use numatop_ng::model::topology::{Cost, Device, DeviceClass};
use numatop_ng::model::units::NodeId;

use crate::sharing::policies;
use crate::world::{
    Actor, DOCKER, GIB, HIDDEN, Machine, OTHER_DOCKER, S, SERVICE, Shape, TWO, bound_threads, count_also,
    each_second, files, machine, more_containers, pages,
};

/// 32 cores with two threads each.
const HYGON: Shape = Shape { nodes: 4, cores: 8, threads: 2, sockets: 2, distance: 22, memory: 64 * GIB };

/// 16 nodes of 8 cores.
pub const FT_2500: Shape =
    Shape { nodes: 16, cores: 8, threads: 1, sockets: 2, distance: 30, memory: 32 * GIB };

fn bind(nodes: u64) -> MemPolicy {
    MemPolicy { mode: 2, flags: 0, nodes }
}

fn per_second<const N: usize>(counts: [(Counter, u64); N]) -> Counts {
    Counts::default().with(counts)
}

/// Distances as firmware has them: nodes of one socket are nearer to each other than to others.
fn set_distances(world: &mut Machine, within: u32, across: u32) {
    let topology = &mut Arc::make_mut(&mut world.host).topology;
    let of_socket = topology.nodes.len() / topology.sockets as usize;
    for (from, node) in topology.nodes.iter_mut().enumerate() {
        for (to, distance) in &mut node.distances {
            let to = to.0 as usize;
            *distance = match (from == to, from / of_socket == to / of_socket) {
                (true, _) => 10,
                (_, true) => within,
                _ => across,
            };
        }
    }
}

/// Case 1: 16 containers with a quota of 4 CPUs each, on 32 cores with two threads.
pub fn full_of_containers() -> Machine {
    let mut world = machine(HYGON, Vec::new());
    set_distances(&mut world, 16, 22);
    let containers = more_containers(&mut world, 16);
    for (at, id) in (0..).zip(&containers) {
        // A quota is used up in part, so that threads are alone on their cores now and then.
        let actor = Actor { cgroup: *id, smt_busy: Some(0.9), ..Actor::new(500 + at, "service") };
        world.actors.push(actor.runs(&[(at % 4, 390.0)]));
    }
    let mut raw = files("0-63", "0-3");
    raw.cpu_quota_milli = Ok(Some(4000));
    let raw = Arc::new(raw);
    world.groups = containers.into_iter().map(|id| (id, Arc::clone(&raw))).collect();
    world.by_node = true;
    world
}

/// Case 2: a service of 11 CPUs all over 16 nodes, whose threads wander.
pub fn spread() -> Machine {
    let runs: Vec<(u32, f64)> = (0..16).map(|node| (node, 70.0)).collect();
    let memory = vec![64; 16];
    let by_policy = policies(&memory, &[]);
    let rss = 97 * GIB / 2;
    let actor = Actor { rss, memory, by_policy, node_moves: 40, ..Actor::new(33727, "java") };
    let mut world = machine(FT_2500, vec![actor.runs(&runs)]);
    for node in &mut world.nodes {
        (node.mem_total_bytes, node.managed_bytes, node.mem_free_bytes) = (32 * GIB, 32 * GIB, 28 * GIB);
    }
    set_distances(&mut world, 30, 100);
    world
}

/// Case 3: 4.8 GiB of 18.8 on another node, because page cache fills the node of the process.
pub fn page_cache() -> Machine {
    let actor = Actor { rss: 18 * GIB, memory: pages(26), cgroup: SERVICE, ..Actor::new(54723, "java") };
    let mut world = machine(TWO, vec![actor.runs(&[(0, 390.0)])]);
    world.nodes[0].mem_free_bytes = 3 * GIB;
    let [active_bytes, inactive_bytes] = [4 * GIB, 30 * GIB];
    world.nodes[0].file_pages =
        Some(FilePages { active_bytes, inactive_bytes, shmem_bytes: 0, dirty_bytes: 0 });
    world
}

/// The container whose files fill node 0 in [`owned_page_cache`].
pub const BACKUP: u64 = DOCKER;

/// The same with a container that has read the files that fill the node, while the process has read a few.
pub fn owned_page_cache() -> Machine {
    let mut world = page_cache();
    let host = Arc::make_mut(&mut world.host);
    host.cgroups = Some(CgroupFacts {
        mode: CgroupMode::V2,
        memory_migrate: None,
        memory_spread_page: None,
        memory_spread_slab: None,
    });
    host.group_reclaim = Some(GroupReclaim::Swappiness);
    world.actors.push(Actor { cgroup: BACKUP, rss: GIB, memory: pages(0), ..Actor::new(6001, "restic") });
    let group = |cache: &[(u32, u64)]| {
        let cache_by_node = Ok(cache.iter().copied().collect());
        Arc::new(GroupRaw { cache_by_node, mem_bytes: Ok(60 * GIB), ..files("0-31", "0-1") })
    };
    world.groups = [(SERVICE, group(&[(0, GIB)])), (BACKUP, group(&[(0, 32 * GIB), (1, 8 * GIB)]))].into();
    world
}

/// Case 4, first form: bound to a node that is full, and it swaps.
pub fn bound_and_full() -> Machine {
    let actor = Actor {
        rss: 60 * GIB,
        memory: pages(100),
        swapped: 4 * GIB,
        mempolicy: bind(0b10),
        per_second: per_second([(Counter::MajFlt, 400)]),
        ..Actor::new(7015, "pg_restore")
    };
    let mut world = machine(TWO, vec![actor.runs(&[(1, 71.0)])]);
    world.nodes[1].mem_free_bytes = 2 * GIB;
    world.nodes[0].mem_free_bytes = 60 * GIB;
    world.groups = [(1, Arc::new(files("0-31", "0-1")))].into();
    let [active_bytes, inactive_bytes] = [GIB / 2, GIB];
    world.nodes[1].file_pages =
        Some(FilePages { active_bytes, inactive_bytes, shmem_bytes: 0, dirty_bytes: 0 });
    each_second(&mut world, |machine, _| {
        machine.vm.swapped_out += 3584;
        machine.nodes[1].direct_pages += 1000;
    });
    world
}

/// Case 4, second form: zone_reclaim_mode is 1.
pub fn zone_reclaim() -> Machine {
    let actor = Actor { rss: 8 * GIB, memory: pages(0), ..Actor::new(7016, "mysqld") };
    let mut world = machine(TWO, vec![actor.runs(&[(0, 200.0)])]);
    world.vm.zone_reclaim_mode = Some(1);
    each_second(&mut world, |machine, _| machine.nodes[1].node_reclaims += 240);
    world
}

/// Case 5: NUMA balancing takes a seventh of a database's time and improves nothing.
pub fn balancing() -> Machine {
    let actor = Actor {
        rss: 40 * GIB,
        memory: vec![512, 512],
        per_second: per_second([(Counter::BalancingNs, 3_900_000_000)]),
        ..Actor::new(61238, "mysqld")
    };
    machine(Shape { cores: 16, ..TWO }, vec![actor.runs(&[(0, 1400.0), (1, 1400.0)])])
}

/// Case 6: two databases on one socket, and one on the other.
pub fn three_databases() -> Machine {
    let database = |pid: u32, node: u32, ipc: f64| Actor {
        ipc,
        rss: 20 * GIB,
        memory: pages(node * 100),
        cpu_nodes: Some(1 << node),
        ..Actor::new(pid, "mysqld").runs(&[(node, 1500.0)])
    };
    let sockets = Shape { cores: 32, threads: 1, ..TWO };
    machine(sockets, vec![database(4241, 0, 0.04), database(4242, 0, 0.04), database(4410, 1, 0.14)])
}

/// Case 6 as the firmware showed it: one node for both sockets.
pub fn three_databases_hidden() -> Machine {
    let database = |pid: u32, socket: i32, ipc: f64| Actor {
        ipc,
        rss: 20 * GIB,
        memory: vec![1024],
        socket: Some(socket),
        allowed: Some(32),
        ..Actor::new(pid, "mysqld").runs(&[(0, 1500.0)])
    };
    let shape = Shape { cores: 64, threads: 1, ..HIDDEN };
    machine(shape, vec![database(4241, 0, 0.04), database(4242, 0, 0.04), database(4410, 1, 0.14)])
}

/// Case 7: interrupts of a network card on the node where a database runs.
pub fn interrupts() -> Machine {
    let actor = Actor { rss: 8 * GIB, memory: pages(0), ..Actor::new(4242, "mysqld") };
    let mut world = machine(TWO, vec![actor.runs(&[(0, 800.0)])]);
    Arc::make_mut(&mut world.host).topology.nodes[0].devices.push(device("eth0", DeviceClass::Net, 0, &[0]));
    each_second(&mut world, |machine, _| {
        for cpu in &mut machine.cpus {
            *cpu.irq_ns.get_or_insert_default() += if cpu.node == 0 { 142 } else { 11 } * 1_000_000;
        }
    });
    world
}

/// Case 8: a database on node 0, and its disk on node 1.
pub fn far_disk() -> Machine {
    let actor = Actor { rss: 8 * GIB, memory: pages(0), cgroup: SERVICE, ..Actor::new(4242, "mysqld") };
    let mut world = machine(TWO, vec![actor.runs(&[(0, 200.0)])]);
    let nvme = device("nvme0", DeviceClass::Nvme, 1, &[1]);
    let log = DiskUse { bytes: 90_000_000, requests: 11_000 };
    let raw = GroupRaw {
        read_ns: 2 * S,
        counters_before: Some(GroupCounters { read_ns: S, ..GroupCounters::default() }),
        disks: Ok([(nvme.pci.clone().unwrap_or_default(), log)].into()),
        disks_before: Some(DisksUsed::new()),
        ..files("0-31", "0-1")
    };
    world.groups = [(SERVICE, Arc::new(raw))].into();
    Arc::make_mut(&mut world.host).topology.nodes[1].devices.push(nvme);
    world
}

/// Case 9: distances in order that are wrong in size, on a machine that was calibrated.
pub fn distances() -> Machine {
    let actor = Actor { rss: 4 * GIB, memory: vec![1024], ..Actor::new(700, "lat_mem_rd") };
    let mut world = machine(FT_2500, vec![actor.runs(&[(0, 100.0)])]);
    set_distances(&mut world, 30, 100);
    let topology = &mut Arc::make_mut(&mut world.host).topology;
    let of_socket = topology.nodes.len() as u32 / topology.sockets;
    let all: Vec<NodeId> = topology.nodes.iter().map(|node| node.id).collect();
    for node in &mut topology.nodes {
        // 80 % and 30 % of the speed of local memory.
        let cost = |to: &NodeId| {
            let latency_ps = match (node.id == *to, node.id.0 / of_socket == to.0 / of_socket) {
                (true, _) => 100_000,
                (_, true) => 125_000,
                _ => 333_000,
            };
            Cost {
                node: *to,
                latency_ps: Some(latency_ps),
                latency_error_ps: None,
                read_bytes_per_s: None,
                read_error_bytes_per_s: None,
            }
        };
        node.measured = all.iter().map(cost).collect();
    }
    world
}

/// Case 10: the BIOS shows one node for two sockets.
pub fn hidden() -> Machine {
    machine(HIDDEN, vec![Actor::new(500, "java").runs(&[(0, 4000.0)])])
}

/// Case 11, first form: two threads on the two CPUs of one core, whose siblings are busy for this share of their time.
pub fn siblings(busy: f64) -> Machine {
    let mut threads = bound_threads(700, "worker", 1, 0..1, 0, 100.0);
    threads.push(Actor { tid: 701, pinned: Some(16), ..threads[0].clone() });
    threads.iter_mut().for_each(|thread| thread.smt_busy = Some(busy));
    let mut world = machine(TWO, threads);
    world.by_node = true;
    world
}

/// Case 11, second form: all memory on the other node, and nothing that balances.
pub fn other_node() -> Machine {
    let by_policy = policies(&pages(88), &[]);
    let actor = Actor { rss: 8 * GIB, memory: pages(88), by_policy, ..Actor::new(815, "postgres") };
    let mut world = machine(TWO, vec![actor.runs(&[(0, 200.0)])]);
    world.state.numa_balancing = Some(0);
    world
}

/// Case 12: loops whose instructions per cycle differ, on CPUs of their own.
pub fn loops() -> Machine {
    let spin = |pid: u32, comm: &str, cpu: u32, ipc: f64| Actor {
        ipc,
        pinned: Some(cpu),
        ..Actor::new(pid, comm).runs(&[(cpu / 8, 100.0)])
    };
    let of = [("clflush", 0.7), ("nop", 1.57), ("rows", 2.1), ("columns", 0.3), ("bc", 2.19), ("bc", 0.92)];
    machine(TWO, (0..).zip(of).map(|(at, (comm, ipc))| spin(900 + at, comm, at * 3 % 16, ipc)).collect())
}

/// Case 13: a virtual machine of Java that misses the TLB, without the data that is read on demand.
pub fn page_walks() -> Machine {
    let actor = Actor { rss: 20 * GIB, memory: pages(0), ipc: 0.5, ..Actor::new(900, "java") };
    let mut world = machine(TWO, vec![actor.runs(&[(0, 200.0)])]);
    let slot = count_also(&mut world, &[Role::Dtlb, Role::Itlb]);
    let misses = [12_100_000, 6_000_000];
    for (at, count) in misses.into_iter().enumerate() {
        world.actors[0].per_second.slots[slot + at].count = count;
    }
    each_second(&mut world, move |machine, _| {
        for (at, count) in misses.into_iter().enumerate() {
            machine.cpus[0].slots[slot + at].count += count;
        }
    });
    world
}

/// Case 14: 28 events of another tool leave ours 18 % of the time.
pub fn many_events() -> Machine {
    let mut world = machine(TWO, vec![Actor::new(600, "work").runs(&[(0, 100.0)])]);
    each_second(&mut world, |machine, _| {
        for slot in machine.cpus.iter_mut().flat_map(|cpu| &mut cpu.slots[..2]) {
            slot.enabled_ns += 1_000_000_000;
            slot.running_ns += 180_000_000;
        }
    });
    world
}

/// Case 15: pinned after its start, with the memory from before that.
pub fn pinned_late() -> Machine {
    let actor = Actor {
        cgroup: SERVICE,
        rss: 20 * GIB,
        memory: pages(60),
        cpu_nodes: Some(0b01),
        ..Actor::new(4242, "mysqld")
    };
    machine(TWO, vec![actor.runs(&[(0, 400.0)])])
}

/// Case 16, first form: two containers on each other's siblings.
pub fn shared_siblings() -> Machine {
    let first = bound_threads(700, "cart", DOCKER, 0..4, 0, 95.0);
    let second = bound_threads(800, "web", OTHER_DOCKER, 16..20, 0, 80.0);
    let mut world = machine(TWO, first.into_iter().chain(second).collect());
    world.groups =
        [(DOCKER, Arc::new(files("0-3", "0-1"))), (OTHER_DOCKER, Arc::new(files("16-19", "0-1")))].into();
    world
}

/// Case 16, second form: a container with these CPUs and nodes, whose memory is on node 1.
pub fn apart(cpus: &str, mems: &str) -> Machine {
    let actor = Actor { cgroup: DOCKER, rss: 8 * GIB, memory: pages(100), ..Actor::new(700, "cart") };
    let mut world = machine(TWO, vec![actor.runs(&[(0, 200.0)])]);
    world.groups = [(DOCKER, Arc::new(files(cpus, mems)))].into();
    Arc::make_mut(&mut world.host).cgroups = Some(CgroupFacts {
        mode: CgroupMode::V2,
        memory_migrate: None,
        memory_spread_page: None,
        memory_spread_slab: None,
    });
    world
}

/// A container on four nodes of 8 cores, with this list of CPUs: ten backends that share a buffer. `unified`: cgroup v2 alone.
pub fn backends(cpus: &str, unified: bool) -> Machine {
    let four = Shape { nodes: 4, cores: 8, threads: 1, sockets: 4, distance: 21, memory: 64 * GIB };
    let backend = |pid| Actor {
        cgroup: DOCKER,
        rss: 13 * GIB,
        shmem: 12 * GIB,
        memory: vec![256; 4],
        node_moves: 20,
        own_policy_pct: Some(0),
        ..Actor::new(pid, "postgres").runs(&[(0, 8.0), (1, 8.0), (2, 8.0), (3, 8.0)])
    };
    let mut world = machine(four, (500..510).map(backend).collect());
    let mut raw = files(cpus, "0-3");
    raw.mem_bytes = Ok(20 * GIB);
    world.groups = [(DOCKER, Arc::new(raw))].into();
    Arc::make_mut(&mut world.host).cgroups = Some(CgroupFacts {
        mode: if unified { CgroupMode::V2 } else { CgroupMode::V1 },
        memory_migrate: None,
        memory_spread_page: None,
        memory_spread_slab: None,
    });
    world
}

/// A device on this node whose interrupts go to these.
pub fn device(name: &str, class: DeviceClass, node: u32, irq_nodes: &[u32]) -> Device {
    Device {
        name: name.into(),
        class,
        pci: Some("0000:3b:00.0".into()),
        node: Some(NodeId(node)),
        irq_nodes: irq_nodes.iter().copied().map(NodeId).collect(),
    }
}
