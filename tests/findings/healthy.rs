//! Healthy machines: nothing above an info may be found in five minutes. The numbers are those of the table
//! of the false-alarm budget.

use std::sync::Arc;

use numatop_ng::finding::verdict::Verdict;
use numatop_ng::finding::{Change, Severity};
use numatop_ng::model::counters::Counter;
use numatop_ng::model::sample::{Counts, MemPolicy};

use crate::properties::sick;
use crate::world::{
    Actor, DOCKER, GIB, Machine, OTHER_DOCKER, PLAIN, SERVICE, Shape, TWO, each_second, files, fold, lines,
    machine, pages, samples, with_tier,
};

const BIND: u16 = 2;
const INTERLEAVE: u16 = 3;

fn policy(mode: u16, nodes: u64) -> MemPolicy {
    MemPolicy { mode, flags: 0, nodes }
}

fn per_second(counter: Counter, count: u64) -> Counts {
    Counts::default().with([(counter, count)])
}

/// Nothing above an info begins at any time, at several intervals; infos are of these rules only.
fn quiet(name: &str, world: impl Fn() -> Machine, infos: &[&str]) {
    quiet_for(name, world, infos, 300, &[500, 1000, 10_000]);
}

/// The same for `seconds` seconds, at intervals of this many milliseconds.
pub fn quiet_for(name: &str, world: impl Fn() -> Machine, infos: &[&str], seconds: u64, intervals: &[u64]) {
    for ms in intervals.iter().copied() {
        let (host, samples) = samples(world(), seconds, ms);
        let (engine, changes) = fold(&host, &samples);
        for change in &changes {
            let (Change::Began(finding) | Change::Ended(finding)) = change;
            let allowed = finding.severity == Severity::Info && infos.contains(&finding.key.id);
            assert!(
                allowed,
                "{name} at {ms} ms: {:?} {}: {}",
                finding.severity, finding.key, finding.advice.sentence
            );
        }
        let all = engine.findings();
        assert!(
            all.iter().all(|finding| finding.severity == Severity::Info && infos.contains(&finding.key.id)),
            "{name} at {ms} ms: {:?}",
            lines(&engine)
        );
        // As long as the slowest rule needs that can warn.
        if seconds >= 95 && ms <= 5000 {
            let verdict = Verdict::of(&engine);
            assert!(verdict.decides(Severity::Warning), "{name} at {ms} ms: {:?}", verdict.undecided);
        }
    }
}

#[test]
fn h02_one_node_at_full_load() {
    let one = Shape { nodes: 1, sockets: 1, ..TWO };
    let spin = |pid| Actor {
        wait_pct: 80.0,
        rss: 2 * GIB,
        memory: vec![1024],
        ..Actor::new(pid, "spin").runs(&[(0, 100.0)])
    };
    quiet("H2", || machine(one, (500..516).map(spin).collect()), &["cores-exhausted"]);
}

#[test]
fn h05_bound_to_a_node_and_60_pct_of_it() {
    let store = || Actor {
        rss: 38 * GIB,
        memory: pages(0),
        cpu_nodes: Some(0b01),
        mempolicy: policy(BIND, 0b01),
        ..Actor::new(500, "store").runs(&[(0, 400.0)])
    };
    quiet("H5", || machine(TWO, vec![store()]), &[]);
}

#[test]
fn h06_interleaved_larger_than_a_node() {
    let database = || Actor {
        rss: 90 * GIB,
        memory: pages(50),
        mempolicy: policy(INTERLEAVE, 0b11),
        node_moves: 50,
        ..Actor::new(500, "database").runs(&[(0, 400.0), (1, 400.0)])
    };
    quiet("H6", || machine(TWO, vec![database()]), &[]);
}

#[test]
fn h07_pool_interleaved_by_its_mappings() {
    let pool = || Actor {
        rss: 20 * GIB,
        memory: pages(50),
        node_moves: 50,
        ..Actor::new(500, "mysqld").runs(&[(0, 200.0), (1, 200.0)])
    };
    quiet("H7", || machine(TWO, vec![pool()]), &["spread-over-nodes"]);
    // Once policies of its mappings are known it stays an info.
    let known = || Actor { own_policy_pct: Some(90), ..pool() };
    quiet("H7", || machine(TWO, vec![known()]), &["spread-over-nodes"]);
}

#[test]
fn h08_a_shard_per_node() {
    for balancing in [0, 1] {
        let world = || {
            let shards = Actor {
                rss: 20 * GIB,
                memory: pages(50),
                ..Actor::new(500, "shards").runs(&[(0, 100.0), (1, 100.0)])
            };
            let mut world = machine(TWO, vec![shards]);
            world.state.numa_balancing = Some(balancing);
            world
        };
        quiet("H8", world, if balancing == 0 { &["spread-over-nodes"] } else { &[] });
    }
}

#[test]
fn h10_memory_arrives_and_balancing_brings_it_nearer() {
    let world = || {
        let actor = Actor {
            rss: 8 * GIB,
            memory: pages(90),
            scan_period_ms: 1000,
            start_ns: Some(crate::world::BOOT_NS - 30 * crate::world::S),
            per_second: Counts::default().with([
                (Counter::BalancingNs, 60_000_000),
                (Counter::MigratedPages, 23_000),
                (Counter::HintFaults, 2000),
                (Counter::HintRemote, 1500),
            ]),
            ..Actor::new(500, "cart").runs(&[(0, 100.0)])
        };
        let mut world = machine(TWO, vec![actor]);
        each_second(&mut world, |machine, second| {
            let left = 90u64.saturating_sub(second);
            machine.actors[0].memory = pages(left as u32);
            if left == 0 {
                machine.actors[0].per_second = Counts::default();
            }
        });
        world
    };
    quiet("H10", world, &[]);
}

#[test]
fn h12_short_jobs() {
    let world = || {
        let mut world = machine(TWO, vec![]);
        each_second(&mut world, |machine, second| {
            if second.is_multiple_of(4) {
                let start = crate::world::BOOT_NS + second * crate::world::S;
                machine.actors.push(Actor {
                    rss: 4 * GIB,
                    memory: pages(100),
                    cpu_nodes: Some(0b01),
                    start_ns: Some(start),
                    ends: Some(second + 30),
                    ..Actor::new(1000 + second as u32, "job").runs(&[(0, 100.0)])
                });
            }
        });
        world
    };
    quiet("H12", world, &[]);
}

#[test]
fn h13_backup_fills_all_nodes_with_page_cache() {
    for nodes in [2, 8] {
        let world = move || {
            let shape = Shape { nodes, sockets: nodes, memory: 512 * GIB, ..TWO };
            let mut world =
                machine(shape, vec![Actor { rss: GIB, ..Actor::new(500, "backup").runs(&[(0, 90.0)]) }]);
            for node in &mut world.nodes {
                node.low_watermark_bytes = GIB;
                node.mem_free_bytes = GIB + GIB / 2;
            }
            each_second(&mut world, |machine, second| {
                for (at, node) in machine.nodes.iter_mut().enumerate() {
                    node.direct_pages += 3000;
                    node.kswapd_pages += 90_000;
                    let low = (second + at as u64).is_multiple_of(2);
                    node.mem_free_bytes = if low { GIB - (1 << 20) } else { GIB + GIB / 2 };
                }
            });
            world
        };
        quiet("H13", world, &["node-short-of-memory"]);
    }
}

#[test]
fn h15_container_at_its_limit_swaps() {
    let world = || {
        let actor = Actor {
            cgroup: DOCKER,
            rss: 10 * GIB,
            memory: pages(100),
            per_second: per_second(Counter::MajFlt, 500),
            ..Actor::new(500, "limited").runs(&[(1, 80.0)])
        };
        let mut world = machine(TWO, vec![actor]);
        world.nodes[1].mem_free_bytes = 2 * GIB;
        let mut raw = files("0-31", "1");
        raw.mem_limit_bytes = Ok(Some(10 * GIB));
        raw.mem_bytes = Ok(10 * GIB - (1 << 20));
        world.groups = [(DOCKER, Arc::new(raw)), (OTHER_DOCKER, Arc::new(files("0-31", "0-1")))].into();
        each_second(&mut world, |machine, _| {
            machine.nodes[1].direct_pages += 1000;
            machine.vm.swapped_out += 500;
        });
        world
    };
    quiet("H15", world, &[]);
}

#[test]
fn a_limit_that_cannot_be_read_is_no_sign_that_none_is() {
    let world = || {
        let actor = Actor {
            cgroup: DOCKER,
            rss: 10 * GIB,
            memory: pages(100),
            per_second: per_second(Counter::MajFlt, 500),
            ..Actor::new(500, "limited").runs(&[(1, 80.0)])
        };
        let other = Actor { cgroup: SERVICE, ..Actor::new(600, "other").runs(&[(0, 80.0)]) };
        let mut world = machine(TWO, vec![actor, other]);
        world.nodes[1].mem_free_bytes = 2 * GIB;
        // The files of one group were read, those of the other were not.
        world.groups = [(SERVICE, Arc::new(files("0-31", "0-1")))].into();
        each_second(&mut world, |machine, _| machine.vm.swapped_out += 500);
        world
    };
    let (host, samples) = samples(world(), 60, 1000);
    let engine = fold(&host, &samples).0;
    assert!(
        engine.findings().iter().all(|finding| finding.severity < Severity::Critical),
        "{:?}",
        lines(&engine)
    );
}

#[test]
fn h16_container_at_its_quota() {
    let world = || {
        let actor = Actor { cgroup: DOCKER, wait_pct: 300.0, ..Actor::new(500, "spin").runs(&[(0, 200.0)]) };
        let mut world = machine(TWO, vec![actor]);
        each_second(&mut world, |machine, second| {
            let mut raw = files("0-3", "0-1");
            raw.cpu_quota_milli = Ok(Some(2000));
            raw.read_ns = crate::world::BOOT_NS + second * crate::world::S;
            raw.throttled_ns = Ok(second * 900_000_000);
            raw.throttled_before = second
                .checked_sub(1)
                .map(|before| (crate::world::BOOT_NS + before * crate::world::S, before * 900_000_000));
            machine.groups = [(DOCKER, Arc::new(raw))].into();
        });
        world
    };
    quiet("H16", world, &["quota-throttled"]);
}

#[test]
fn h22_memory_on_a_node_without_cpus_by_policy() {
    let world = || {
        let actor = Actor {
            rss: 30 * GIB,
            memory: vec![0, 0, 1024],
            mempolicy: policy(BIND, 0b100),
            ..Actor::new(500, "tiered").runs(&[(0, 200.0)])
        };
        with_tier(vec![actor])
    };
    quiet("H22", world, &[]);
}

#[test]
fn h26_zone_reclaim_with_room() {
    let world = || {
        let mut world = machine(TWO, vec![Actor::new(500, "work").runs(&[(0, 200.0)])]);
        world.vm.zone_reclaim_mode = Some(1);
        each_second(&mut world, |machine, _| machine.nodes[0].node_reclaims += 2);
        world
    };
    quiet("H26", world, &[]);
}

#[test]
fn h30_backends_share_a_buffer() {
    let backend = |pid| Actor {
        cgroup: SERVICE,
        rss: 40 * GIB,
        shmem: 39 * GIB,
        memory: pages(60),
        ..Actor::new(pid, "postgres").runs(&[(0, 60.0)])
    };
    quiet("H30", || machine(TWO, (500..540).map(backend).collect()), &[]);
}

#[test]
fn h32_a_gap_and_a_suspend() {
    // Sick for a moment at first, and for another one after an hour.
    let (host, mut samples) = samples(sick(), 12, 1000);
    for sample in &mut samples[8..] {
        sample.wall_ns += 3_600_000_000_000;
        sample.boot_ns += 3_600_000_000_000;
    }
    let (engine, changes) = fold(&host, &samples[5..12]);
    assert!(changes.is_empty(), "{:?}", lines(&engine));
    let mut gap = samples;
    for sample in &mut gap[6..] {
        sample.mono_ns += 3_600_000_000_000;
    }
    let (engine, changes) = fold(&host, &gap);
    assert!(changes.is_empty(), "{:?}", lines(&engine));
}

#[test]
fn h33_a_cpu_and_the_memory_of_a_node_go_and_come() {
    let world = || {
        let actor = Actor { rss: 4 * GIB, memory: pages(0), ..Actor::new(500, "work").runs(&[(0, 200.0)]) };
        let mut world = machine(TWO, vec![actor]);
        each_second(&mut world, |machine, second| {
            let there = second / 30 % 2 == 0;
            machine.cpus.iter_mut().filter(|cpu| cpu.node == 1).for_each(|cpu| cpu.online = there);
            machine.nodes[1].mem_free_bytes = if there { 30 * GIB } else { 0 };
            machine.nodes[1].mem_total_bytes = if there { 64 * GIB } else { 0 };
            machine.nodes[1].managed_bytes = if there { 64 * GIB } else { 0 };
        });
        world
    };
    quiet("H33", world, &[]);
}

#[test]
fn h34_what_flips_every_twenty_seconds() {
    let world = || {
        let mut world = machine(
            TWO,
            vec![Actor {
                cgroup: PLAIN,
                rss: 20 * GIB,
                memory: pages(0),
                cpu_nodes: Some(0b01),
                ..Actor::new(500, "flips").runs(&[(0, 300.0)])
            }],
        );
        each_second(&mut world, |machine, second| {
            let sick = second / 20 % 2 == 0;
            machine.actors[0].memory = pages(if sick { 60 } else { 0 });
            machine.actors[0].per_second =
                per_second(Counter::BalancingNs, if sick { 400_000_000 } else { 0 });
        });
        world
    };
    quiet("H34", world, &[]);
}

#[test]
fn h35_numatop_ng_itself() {
    let own = |pid: u32, comm: &str| Actor {
        rss: 10 * GIB,
        memory: pages(100),
        cpu_nodes: Some(0b01),
        ..Actor::new(pid, comm).runs(&[(0, 100.0)])
    };
    quiet("H35", || machine(TWO, vec![own(500, "numatop-ng"), own(501, "nng-collect")]), &[]);
}

#[test]
fn it_takes_seconds_not_samples_at_the_shortest_and_the_longest_interval() {
    for ms in [100, 60_000] {
        let (host, samples) = samples(crate::properties::sick_at(ms), if ms > 1000 { 1200 } else { 90 }, ms);
        let engine = fold(&host, &samples).0;
        let keys = lines(&engine);
        assert!(keys.iter().any(|key| key.contains("remote-after-pin")), "at {ms} ms: {keys:?}");
        assert!(keys.iter().any(|key| key.contains("zone-reclaim")), "at {ms} ms: {keys:?}");
    }
}
