//! More healthy machines, each for ten minutes: nothing above an info, and infos of named rules only. The numbers are those of the
//! table of the false-alarm budget.

use std::sync::Arc;

use numatop_ng::finding::Severity;
use numatop_ng::model::counters::Counter;
use numatop_ng::model::event::Role;
use numatop_ng::model::sample::{Counts, FilePages, HostFacts, MemPolicy};
use numatop_ng::model::wire::NodeCounts;

use crate::healthy::quiet_for;
use crate::world::{
    Actor, BOOT_NS, DOCKER, GIB, Machine, OTHER_DOCKER, PLAIN, S, Shape, TWO, bound_threads, count_also,
    each_second, files, fold, lines, machine, more_containers, pages, read_about, samples, with_tier,
};

const TEN_MINUTES: u64 = 600;

fn quiet(name: &str, world: impl Fn() -> Machine, infos: &[&str]) {
    quiet_for(name, world, infos, TEN_MINUTES, &[1000, 5000]);
}

#[test]
fn h01_an_idle_machine() {
    for nodes in [1, 2, 4, 16] {
        let shape = Shape { nodes, sockets: nodes.min(2), cores: 4, ..TWO };
        let world = move || {
            let mut actors = vec![Actor::new(1, "systemd"), Actor::new(700, "sshd").runs(&[(0, 2.0)])];
            actors.push(Actor { ppid: 2, ..Actor::new(60, "kswapd0").runs(&[(0, 1.0)]) });
            let mut world = machine(shape, actors);
            // Nodes of one socket are nearer.
            for (from, node) in Arc::make_mut(&mut world.host).topology.nodes.iter_mut().enumerate() {
                let half = (nodes as usize).div_ceil(2);
                for (to, distance) in node.distances.iter_mut().filter(|(to, _)| to.0 as usize != from) {
                    *distance = if from / half == to.0 as usize / half { 12 } else { 20 };
                }
            }
            world
        };
        quiet("H1", world, &[]);
    }
}

/// Processes that begin in each second, and end after `lives` seconds.
fn storm(shape: Shape, each: u32, lives: u64, pct: f64) -> Machine {
    let mut world = machine(shape, vec![Actor::new(500, "make")]);
    each_second(&mut world, move |machine, second| {
        for at in 0..each {
            let id = 1000 + second as u32 * each + at;
            let node = id % shape.nodes;
            machine.actors.push(Actor {
                rss: GIB / 2,
                memory: pages((1 - node % 2) * 100),
                node_moves: 20,
                wait_pct: 20.0,
                start_ns: Some(BOOT_NS + second * S),
                ends: Some(second + lives),
                ..Actor::new(id, "cc1").runs(&[(node, pct)])
            });
        }
    });
    world
}

#[test]
fn h03_a_build_of_a_kernel() {
    quiet("H3", || storm(Shape { cores: 4, ..TWO }, 2, 5, 90.0), &[]);
}

#[test]
fn h04_a_storm_of_forks() {
    quiet("H4", || storm(Shape { cores: 4, ..TWO }, 20, 1, 20.0), &[]);
}

/// A process on node 0 whose memory on the other node nothing uses, as the kernel's scans say.
fn unused(scan_period_ms: u32, pinned: bool) -> Actor {
    Actor {
        rss: 4 * GIB,
        memory: pages(60),
        scan_period_ms,
        cpu_nodes: pinned.then_some(0b01),
        ..Actor::new(500, "cart").runs(&[(0, 200.0)])
    }
}

#[test]
fn h09_memory_that_nothing_reads() {
    for pinned in [true, false] {
        quiet("H9", || machine(TWO, vec![unused(1000, pinned)]), &[]);
        let (host, samples) = samples(machine(TWO, vec![unused(1000, pinned)]), 100, 1000);
        let engine = fold(&host, &samples).0;
        let cold = |id| engine.blind().iter().any(|blind| blind.id == id && blind.reason.id() == "cold");
        assert!(cold(if pinned { "remote-after-pin" } else { "memory-on-other-node" }));
    }
    let tier = || with_tier(vec![Actor { memory: vec![400, 0, 600], ..unused(1000, false) }]);
    quiet("H9, on a node without CPUs", tier, &[]);
}

#[test]
fn h11_a_niced_batch_beside_a_service() {
    let world = || {
        let service = Actor { rss: 4 * GIB, memory: pages(0), ..Actor::new(500, "service") };
        let batch = Actor { nice: 19, wait_pct: 300.0, ..Actor::new(600, "spin") };
        machine(
            TWO,
            vec![
                service.runs(&[(0, 200.0), (1, 50.0)]),
                batch.clone().runs(&[(0, 1300.0)]),
                Actor { pid: 601, tid: 601, ..batch }.runs(&[(1, 1450.0)]),
            ],
        )
    };
    quiet("H11", world, &["cores-exhausted"]);
}

#[test]
fn h14_a_backup_that_is_bound_to_a_node() {
    // kswapd keeps up with it, and then it does not: only page cache is turned over, and nothing waits for memory.
    for direct in [50, 3000] {
        let world = move || {
            let backup = Actor {
                cgroup: PLAIN,
                rss: GIB,
                memory: pages(100),
                mempolicy: MemPolicy { mode: 2, flags: 0, nodes: 0b10 },
                mem_nodes: Some(0b10),
                ..Actor::new(500, "backup").runs(&[(1, 90.0)])
            };
            let kswapd = Actor { ppid: 2, ..Actor::new(60, "kswapd1").runs(&[(1, 40.0)]) };
            let mut world = machine(TWO, vec![backup, kswapd]);
            let mut raw = files("0-31", "1");
            raw.mem_bytes_by_node = Ok([(1, 55 * GIB)].into());
            world.groups = [(PLAIN, Arc::new(raw)), (1, Arc::new(files("0-31", "0-1")))].into();
            world.nodes[1].mem_file_bytes = 56 * GIB;
            let [active_bytes, inactive_bytes] = [8 * GIB, 48 * GIB];
            world.nodes[1].file_pages =
                Some(FilePages { active_bytes, inactive_bytes, shmem_bytes: 0, dirty_bytes: 0 });
            each_second(&mut world, move |machine, second| {
                machine.nodes[1].direct_pages += direct;
                machine.nodes[1].kswapd_pages += 90_000;
                let low = direct > 1000 || second.is_multiple_of(2);
                machine.nodes[1].mem_free_bytes = if low { 3 * GIB - (1 << 20) } else { 3 * GIB + GIB / 4 };
            });
            world
        };
        quiet("H14", world, &["reclaim-threads-busy"]);
    }
}

#[test]
fn h18_isolated_cpus_idle_and_the_rest_is_busy() {
    let world = || {
        let spin = |pid: u32, node: u32, pct: f64| Actor {
            wait_pct: 200.0,
            switches: 300,
            rss: GIB,
            memory: pages(node * 100),
            cgroup: DOCKER,
            ..Actor::new(pid, "spin").runs(&[(node, pct)])
        };
        // Node 1 is isolated except for one core, which is busy as well.
        let mut world = machine(TWO, vec![spin(500, 0, 1500.0), spin(501, 0, 60.0)]);
        Arc::make_mut(&mut world.host).isolated_cpus = (8..16).chain(24..32).collect();
        world.groups = [(DOCKER, Arc::new(files("0-7,16-23", "0-1")))].into();
        world
    };
    quiet("H18", world, &[]);
}

/// Two threads of one process on the two CPUs of a core, with this share of their speed beside each other, in percent.
fn on_one_core(pct: u64) -> Machine {
    let mut threads = bound_threads(700, "worker", 1, 0..1, 0, 100.0);
    threads.push(Actor { tid: 701, pinned: Some(16), ..threads[0].clone() });
    let state = |cycles: u64, pct| NodeCounts { cycles, instructions: cycles * pct / 100 };
    for thread in &mut threads {
        thread.smt_busy = Some(0.9);
        let by_sibling = [state(200_000_000, 100), state(1_800_000_000, pct)];
        thread.per_second = Counts { by_sibling, ..Counts::default() };
    }
    machine(TWO, threads)
}

#[test]
fn h19_unlike_threads_on_siblings() {
    quiet("H19", || on_one_core(93), &[]);
}

#[test]
fn h20_pods_with_whole_cores() {
    let world = || {
        let mut first = bound_threads(700, "first", DOCKER, 0..4, 0, 95.0);
        first.extend(bound_threads(710, "first", DOCKER, 16..20, 0, 95.0));
        let second = bound_threads(800, "second", OTHER_DOCKER, 4..6, 0, 95.0);
        let mut world = machine(TWO, first.into_iter().chain(second).collect());
        world.by_node = true;
        // All cores of node 0 are given out; some of the second pod's rest.
        world.groups = [
            (DOCKER, Arc::new(files("0-3,16-19", "0"))),
            (OTHER_DOCKER, Arc::new(files("4-15,20-31", "0-1"))),
        ]
        .into();
        world
    };
    quiet("H20", world, &["sibling-contention"]);
}

#[test]
fn h21_a_shared_pool_of_the_kubelet() {
    let world = || {
        let mut world = machine(TWO, Vec::new());
        let ids = more_containers(&mut world, 10);
        for (at, id) in (0..).zip(&ids) {
            let actor = Actor { cgroup: *id, wait_pct: 15.0, switches: 500, ..Actor::new(500 + at, "pod") };
            world.actors.push(actor.runs(&[(0, 60.0), (1, 60.0)]));
        }
        let raw = Arc::new(files("2-15,18-31", "0-1"));
        world.groups = ids.into_iter().map(|id| (id, Arc::clone(&raw))).collect();
        world
    };
    quiet("H21", world, &[]);
}

#[test]
fn h23_loops_with_their_counters() {
    let world = || {
        let loops =
            [("clflush", 0.7), ("nop", 1.57), ("rows", 2.1), ("columns", 0.3), ("bc", 2.19), ("bc", 0.92)];
        let actor = |(at, (comm, ipc)): (u32, (&str, f64))| Actor {
            ipc,
            rss: 40 << 20,
            memory: pages(at % 2 * 100),
            ..Actor::new(900 + at, comm).runs(&[(at % 2, 100.0)])
        };
        let mut world = machine(TWO, (0..).zip(loops).map(actor).collect());
        let slot = count_also(&mut world, &[Role::Dtlb, Role::Itlb]);
        // The walk along columns misses the TLB with each access.
        world.actors[3].per_second.slots[slot].count = 50_000_000;
        each_second(&mut world, move |machine, _| {
            machine.cpus[0].slots[slot].count += 50_000_000;
            machine.cpus[0].slots[slot + 1].count += 1000;
        });
        world
    };
    quiet("H23", world, &[]);
    let (host, mut samples) = samples(world(), 100, 1000);
    read_about(&mut samples, 903, "0-31", 0.0);
    assert_eq!(lines(&fold(&host, &samples).0), Vec::<String>::new());
}

#[test]
fn h24_a_hot_loop_in_the_cache_beside_memory_elsewhere() {
    for (pinned, infos) in [(true, &["remote-after-pin"][..]), (false, &["memory-on-other-node"])] {
        // The scan of a process that rarely faults is slow, so half a minute of it shows nothing.
        let world = || {
            let faults = [(Counter::HintFaults, 3), (Counter::HintRemote, 0)];
            let actor = unused(30_000, pinned);
            machine(TWO, vec![Actor { per_second: Counts::default().with(faults), ..actor }])
        };
        quiet("H24", world, infos);
    }
}

#[test]
fn h27_interrupts_are_even() {
    let world = || {
        let mut world = machine(TWO, vec![Actor::new(500, "mysqld").runs(&[(0, 600.0)])]);
        each_second(&mut world, |machine, _| {
            machine.cpus.iter_mut().for_each(|cpu| *cpu.irq_ns.get_or_insert_default() += 150_000_000);
        });
        world
    };
    quiet("H27", world, &[]);
}

#[test]
fn h28_perf_stat_for_ten_seconds() {
    let world = || {
        let mut world = machine(TWO, vec![Actor::new(600, "work").runs(&[(0, 100.0)])]);
        each_second(&mut world, |machine, second| {
            for slot in machine.cpus.iter_mut().flat_map(|cpu| &mut cpu.slots[..2]) {
                slot.enabled_ns += S;
                slot.running_ns += if second % 120 < 10 { S * 6 / 10 } else { S };
            }
        });
        world
    };
    // Sums of all counters would make the whole run look so.
    quiet_for("H28", world, &[], TEN_MINUTES, &[1000]);
}

#[test]
fn h29_a_guest_with_nodes_of_its_own() {
    let world = || {
        let guest = Actor {
            rss: 80 * GIB,
            memory: pages(50),
            node_moves: 2,
            cmdline: "qemu-system-x86_64 -numa node".into(),
            ..Actor::new(500, "qemu-system-x86").runs(&[(0, 500.0), (1, 500.0)])
        };
        machine(TWO, vec![guest])
    };
    quiet("H29", world, &["spread-over-nodes"]);
}

#[test]
fn h31_a_primary_and_its_replica() {
    let world = || {
        let database = |pid: u32, node: u32, ipc: f64| Actor {
            ipc,
            rss: 20 * GIB,
            memory: pages(node * 100),
            ..Actor::new(pid, "postgres").runs(&[(node, 400.0)])
        };
        let other = Actor::new(700, "etl").runs(&[(0, 600.0)]);
        machine(Shape { cores: 16, ..TWO }, vec![database(500, 0, 0.4), database(600, 1, 1.2), other])
    };
    quiet("H31", world, &["noisy-neighbour"]);
}

#[test]
fn h36_a_stream_over_all_nodes_at_full_bandwidth() {
    let world = || {
        let stream = Actor {
            rss: 30 * GIB,
            memory: pages(50),
            node_moves: 5,
            ipc: 0.6,
            accesses: 9.0,
            ..Actor::new(500, "stream").runs(&[(0, 1500.0), (1, 1500.0)])
        };
        let mut world = machine(TWO, vec![stream]);
        count_also(&mut world, &[Role::Lma, Role::Rma]);
        world
    };
    let (host, some) = samples(world(), 3, 1000);
    assert!(accesses(&host, &some) >= 50e6, "{} accesses per second and node", accesses(&host, &some));
    quiet("H36", world, &["cores-exhausted"]);
}

/// Counted memory accesses of node 0 per second.
fn accesses(host: &Arc<HostFacts>, samples: &[numatop_ng::model::sample::Sample]) -> f64 {
    use numatop_ng::metric::node::{LMA_PER_S, RMA_PER_S};
    use numatop_ng::snapshot::{RowKind, derive};
    let snapshot = derive(host, Some(&samples[1]), &samples[2], RowKind::Processes);
    let of = |metric: &numatop_ng::metric::Metric<numatop_ng::snapshot::Node>| {
        metric.read(&snapshot.nodes[0], &snapshot).unwrap().number().unwrap()
    };
    of(&LMA_PER_S) + of(&RMA_PER_S)
}

#[test]
fn a_budget_of_nothing_is_kept_by_machines_that_are_not_empty() {
    // A world without work would keep it, too: these have processes that rules look at.
    let (host, samples) = samples(machine(TWO, vec![unused(1000, true)]), 100, 1000);
    let engine = fold(&host, &samples).0;
    assert!(engine.findings().iter().all(|finding| finding.severity == Severity::Info));
    assert!(engine.summary().could_look > 20, "{:?}", engine.summary());
}

#[test]
fn h17_as_many_cpus_as_its_quota() {
    // All of its CPUs are busy, its threads wait, and most of the machine is idle.
    let world = || {
        let spin = Actor { cgroup: DOCKER, wait_pct: 300.0, ..Actor::new(500, "spin") };
        let mut world = machine(TWO, vec![spin.runs(&[(0, 400.0)])]);
        let mut raw = files("0-3", "0-1");
        raw.cpu_quota_milli = Ok(Some(4000));
        world.groups = [(DOCKER, Arc::new(raw))].into();
        world
    };
    quiet("H17", world, &[]);
}

#[test]
fn h25_balancing_works_for_a_minute_and_is_done() {
    // It has run for long when its memory is to be moved: all of it is on the other node, and balancing
    // brings it back.
    let world = || {
        let cart = Actor {
            rss: 8 * GIB,
            memory: pages(90),
            scan_period_ms: 60_000,
            start_ns: Some(BOOT_NS - 600 * S),
            ..Actor::new(500, "cart")
        };
        let mut world = machine(TWO, vec![cart.runs(&[(0, 100.0)])]);
        each_second(&mut world, |machine, second| {
            let (begins, ends) = (140, 205);
            let works = (begins..ends).contains(&second);
            let cart = &mut machine.actors[0];
            cart.memory = pages(90 * (ends - second.clamp(begins, ends)) as u32 / (ends - begins) as u32);
            cart.scan_period_ms = if works { 1000 } else { 60_000 };
            let work = [
                (Counter::BalancingNs, 100_000_000),
                (Counter::MigratedPages, 29_000),
                (Counter::BalancedPages, 29_000),
                (Counter::HintFaults, 2000),
                (Counter::HintRemote, 1500),
                (Counter::MinFlt, 2000),
            ];
            cart.per_second = if works { Counts::default().with(work) } else { Counts::default() };
        });
        world
    };
    quiet("H25", world, &["memory-on-other-node"]);
}
