//! One machine for each rule not in the field cases: its finding within the time of the rule plus 5 s, and no
//! other cause. Also machines with two problems at once.

use std::sync::Arc;

use numatop_ng::finding::rules::by_id;
use numatop_ng::finding::{Engine, Options, Severity};
use numatop_ng::model::counters::Counter;
use numatop_ng::model::sample::{Counts, FilePages, MemPolicy};
use numatop_ng::snapshot::{RowKind, derive};

use crate::devices::gpu_away;
use crate::disks::far_device;
use crate::huge_pages::hugetlb_on_other_node;
use crate::large::larger_than_node;
use crate::sick_worlds as worlds;
use crate::sockets::far_network;
use crate::world::{
    Actor, BOOT_NS, DOCKER, GIB, Machine, OTHER_DOCKER, PLAIN, S, TWO, each_second, files, fold, lines,
    machine, pages, samples, with_tier,
};

/// Causes after the time of the rule and 5 s are of this rule, or infos of the others.
fn exactly(id: &str, severity: Severity, world: Machine, also: &[&str]) {
    let seconds = by_id(id).unwrap().hold.on_s as u64 + 5;
    let (host, samples) = samples(world, seconds, 1000);
    let mut engine = Engine::new(Options::default());
    for pair in samples.windows(2) {
        engine.take(&derive(&host, Some(&pair[0]), &pair[1], RowKind::Processes));
        for finding in engine.findings().iter().filter(|finding| !finding.is_symptom()) {
            let expected = finding.key.id == id || also.contains(&finding.key.id);
            assert!(expected, "{id}: {:?}", lines(&engine));
        }
    }
    let found = engine.findings().iter().find(|finding| finding.key.id == id);
    assert_eq!(found.map(|finding| finding.severity), Some(severity), "{id}: {:?}", lines(&engine));
}

/// One process of 4 GiB on node 0.
fn work(pid: u32, comm: &str) -> Actor {
    Actor { rss: 4 * GIB, memory: pages(0), ..Actor::new(pid, comm).runs(&[(0, 100.0)]) }
}

#[test]
fn memory_rules() {
    exactly("larger-than-node", Severity::Info, larger_than_node::world(), &[]);
    exactly("hugetlb-on-other-node", Severity::Warning, hugetlb_on_other_node::world(), &[]);
    let redis = Actor {
        rss: 8 * GIB,
        memory: pages(50),
        mempolicy: MemPolicy { mode: 3, flags: 0, nodes: 3 },
        ..work(900, "redis")
    };
    exactly("interleaved-on-one-node", Severity::Info, machine(TWO, vec![redis]), &[]);
    let cache = Actor {
        rss: 20 * GIB,
        memory: vec![600, 0, 400],
        per_second: Counts::default().with([(Counter::HintFaults, 200), (Counter::HintRemote, 90)]),
        ..work(815, "cache")
    };
    exactly("slow-tier-memory", Severity::Info, with_tier(vec![cache]), &["memory-on-other-node"]);
    let mut full = machine(TWO, vec![Actor { cgroup: PLAIN, ..work(500, "work") }]);
    full.nodes[1].mem_free_bytes = 2 * GIB;
    let [active_bytes, inactive_bytes] = [GIB / 2, GIB];
    full.nodes[1].file_pages =
        Some(FilePages { active_bytes, inactive_bytes, shmem_bytes: 0, dirty_bytes: 0 });
    full.groups = [(PLAIN, Arc::new(files("0-31", "0-1")))].into();
    each_second(&mut full, |machine, _| machine.nodes[1].direct_pages += 1000);
    exactly("node-short-of-memory", Severity::Warning, full, &[]);
    let kswapd = Actor { ppid: 2, rss: 0, ..Actor::new(70, "kswapd1").runs(&[(1, 38.0)]) };
    exactly("reclaim-threads-busy", Severity::Info, machine(TWO, vec![kswapd]), &[]);
}

#[test]
fn scheduler_rules() {
    let raw = || Arc::new(files("0-31", "0-1"));
    let waits = Actor { cgroup: DOCKER, wait_pct: 80.0, switches: 160, rss: 8 * GIB, ..work(600, "nginx") };
    let spin = Actor::new(601, "spin").runs(&[(0, 1150.0)]);
    let mut idle = machine(TWO, vec![waits.runs(&[(0, 400.0)]), spin]);
    idle.groups = [(DOCKER, raw())].into();
    exactly("idle-elsewhere", Severity::Warning, idle, &[]);
    let build = Actor { cgroup: DOCKER, wait_pct: 200.0, ..Actor::new(600, "build") };
    let mut few = machine(TWO, vec![build.runs(&[(0, 400.0)])]);
    few.groups = [(DOCKER, Arc::new(files("0-3", "0-1")))].into();
    exactly("cpus-too-few", Severity::Info, few, &[]);
    let mut quota =
        machine(TWO, vec![Actor { cgroup: DOCKER, ..Actor::new(600, "ads").runs(&[(0, 150.0)]) }]);
    each_second(&mut quota, |machine, second| {
        let mut raw = files("0-31", "0-1");
        raw.cpu_quota_milli = Ok(Some(2000));
        raw.read_ns = BOOT_NS + second * S;
        raw.throttled_ns = Ok(second * 600_000_000);
        raw.throttled_before =
            second.checked_sub(1).map(|before| (BOOT_NS + before * S, before * 600_000_000));
        machine.groups = [(DOCKER, Arc::new(raw))].into();
    });
    exactly("quota-throttled", Severity::Warning, quota, &[]);
    let wander =
        Actor { node_moves: 200, switches: 2000, ..Actor::new(600, "wander").runs(&[(0, 50.0), (1, 50.0)]) };
    exactly("moves-between-nodes", Severity::Info, machine(TWO, vec![wander]), &[]);
    let mut stolen = machine(TWO, vec![work(600, "work").runs(&[(0, 200.0)])]);
    each_second(&mut stolen, |machine, _| {
        machine.cpus[0].steal_ns = machine.cpus[0].steal_ns.map(|ns| ns + 400_000_000);
    });
    exactly("stolen-time", Severity::Info, stolen, &[]);
    let bound = |pid: u32, cgroup: u64, pct: f64| Actor {
        cgroup,
        cpu_nodes: Some(1),
        wait_pct: 200.0,
        ..work(pid, "cart").runs(&[(0, pct)])
    };
    let mut lopsided = machine(TWO, vec![bound(600, DOCKER, 400.0), bound(601, OTHER_DOCKER, 1100.0)]);
    let list = Arc::new(files("0-7,16-23", "0-1"));
    lopsided.groups = [(DOCKER, Arc::clone(&list)), (OTHER_DOCKER, list)].into();
    exactly("lopsided-nodes", Severity::Warning, lopsided, &[]);
}

#[test]
fn machine_rules() {
    let mut gone = machine(TWO, vec![Actor::new(600, "work").runs(&[(1, 800.0)])]);
    Arc::make_mut(&mut gone.host).topology.nodes[1].mem_total_bytes = 0;
    gone.nodes[1].mem_total_bytes = 0;
    gone.nodes[1].managed_bytes = 0;
    exactly("node-without-memory", Severity::Info, gone, &[]);
    exactly("far-device", Severity::Info, far_device::world(), &[]);
    exactly("far-network", Severity::Info, far_network::world(), &[]);
    exactly("gpu-away", Severity::Info, gpu_away::world(), &[]);
    let off = |pid| Actor { memory: pages(88), ..work(pid, "postgres") };
    let mut off = machine(TWO, (800..803).map(off).collect());
    off.state.numa_balancing = Some(0);
    exactly("balancing-off", Severity::Info, off, &["memory-on-other-node"]);
}

#[test]
fn two_at_once_are_both_told() {
    let mut world = worlds::interrupts();
    world.actors.push(Actor { memory: pages(60), cpu_nodes: Some(0b10), rss: 20 * GIB, ..work(900, "java") });
    world.actors[1].runs = vec![(1, 400.0)];
    world.actors[1].memory = pages(40);
    let (host, samples) = samples(world, 70, 1000);
    let engine = fold(&host, &samples).0;
    let causes: Vec<&str> = engine.findings().iter().map(|finding| finding.key.id).collect();
    assert_eq!(causes, ["remote-after-pin", "interrupts-on-busy-node"], "{:?}", lines(&engine));
}

#[test]
fn a_symptom_that_comes_first_is_hung_below_its_cause() {
    // It swaps from the start; the mode that explains it is set 20 s later.
    let mut world = machine(TWO, vec![work(500, "work")]);
    world.nodes[1].mem_free_bytes = 2 * GIB;
    world.groups = [(1, Arc::new(files("0-31", "0-1")))].into();
    each_second(&mut world, |machine, second| {
        machine.vm.swapped_out += 3584;
        machine.vm.zone_reclaim_mode = Some(u32::from(second > 20));
        machine.nodes[1].node_reclaims += if second > 20 { 240 } else { 0 };
    });
    let (host, samples) = samples(world, 60, 1000);
    let before = fold(&host, &samples[..30]).0;
    let swap = before.findings().iter().find(|finding| finding.key.id == "swap-while-memory-free").unwrap();
    assert!(!swap.is_symptom(), "{:?}", lines(&before));
    let after = fold(&host, &samples).0;
    let swap = after.findings().iter().find(|finding| finding.key.id == "swap-while-memory-free").unwrap();
    assert_eq!(swap.because_of.as_ref().map(|cause| cause.id), Some("zone-reclaim"), "{:?}", lines(&after));
}
