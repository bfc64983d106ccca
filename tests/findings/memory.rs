//! Rules about the memory of nodes.

use std::sync::Arc;

use numatop_ng::finding::{Finding, Severity};
use numatop_ng::model::counters::Counter;
use numatop_ng::model::sample::{Counts, FilePages, GroupRaw, MemPolicy, Pressure};

use crate::world::{
    Actor, BOOT_NS, DOCKER, GIB, Machine, PLAIN, S, TWO, commands, each_second, files, found, lines, machine,
    pages, watch, with_tier,
};

/// Page cache of a node filled by memory of processes: less than a fortieth.
const LITTLE_CACHE: FilePages =
    FilePages { active_bytes: GIB / 2, inactive_bytes: GIB, shmem_bytes: 0, dirty_bytes: 0 };

/// A machine whose node 1 has nothing left, and a process that waits for pages from the disk there.
fn full_node() -> Machine {
    let actor = Actor {
        cgroup: PLAIN,
        rss: 50 * GIB,
        memory: pages(100),
        swapped: 4 * GIB,
        per_second: Counts::default().with([(Counter::MajFlt, 400)]),
        ..Actor::new(7015, "pg_restore")
    };
    let mut world = machine(TWO, vec![actor.runs(&[(1, 71.0)])]);
    world.nodes[1].mem_free_bytes = 2 * GIB;
    world.nodes[1].file_pages = Some(LITTLE_CACHE);
    world.groups = [(PLAIN, Arc::new(files("0-31", "0-1")))].into();
    world
}

/// Reclaim and swapping, in pages a second.
fn reclaims(world: &mut Machine, direct: u64, swapped_out: u64) {
    each_second(world, move |machine, _| {
        machine.nodes[1].direct_pages += direct;
        machine.vm.swapped_out += swapped_out;
    });
}

/// Node 1 is a hundredth of its memory above its low watermark.
fn near_the_watermark(world: &mut Machine) {
    let node = &mut world.nodes[1];
    node.mem_free_bytes = node.low_watermark_bytes + node.managed_bytes / 100;
}

/// Reclaim and swapping near the low watermark, where kswapd keeps the node that frees pages, too.
fn held_by_kswapd(world: &mut Machine, direct: u64, swapped_out: u64, kswapd: u64) {
    near_the_watermark(world);
    each_second(world, move |machine, _| {
        machine.nodes[1].direct_pages += direct;
        machine.nodes[1].kswapd_pages += kswapd;
        machine.vm.swapped_out += swapped_out;
    });
}

/// The machine swaps, and kswapd turns over the page cache that fills most of node 1.
fn swaps_beside_a_stream(world: &mut Machine) {
    held_by_kswapd(world, 0, 3584, 90_000);
    world.nodes[1].file_pages = Some(FilePages { inactive_bytes: 56 * GIB, ..LITTLE_CACHE });
}

/// A container at its memory limit, which hits it all the time.
fn at_its_limit(world: &mut Machine) {
    let mut raw = files("0-31", "0-1");
    raw.mem_limit_bytes = Ok(Some(50 * GIB));
    raw.mem_bytes = Ok(50 * GIB);
    world.groups = [(PLAIN, Arc::new(raw))].into();
}

fn one(found: &[Finding]) -> &Finding {
    assert_eq!(found.len(), 1);
    &found[0]
}

mod node_short_of_memory {
    use super::*;

    fn world() -> Machine {
        let mut world = full_node();
        reclaims(&mut world, 1000, 0);
        world
    }

    #[test]
    fn fires() {
        let found = found(world(), 26, "node-short-of-memory");
        assert_eq!(one(&found).severity, Severity::Warning);
        assert_eq!(
            found[0].advice.sentence,
            "Node 1 is short of memory: tasks reclaim 1000 pages a second directly. 29.0 GiB are available on node 0."
        );
    }

    #[test]
    fn with_pressure_it_is_critical() {
        let mut world = full_node();
        each_second(&mut world, |machine, second| {
            machine.nodes[1].direct_pages += 1000;
            machine.state.pressure =
                Some(Pressure { memory_full_us: second * 200_000, ..Pressure::default() });
        });
        assert_eq!(one(&found(world, 26, "node-short-of-memory")).severity, Severity::Critical);
    }

    #[test]
    fn not_limit() {
        let mut world = world();
        at_its_limit(&mut world);
        assert!(found(world, 26, "node-short-of-memory").is_empty());
    }

    #[test]
    fn not_full_everywhere() {
        let mut world = world();
        world.nodes[0].mem_free_bytes = 3 * GIB;
        let found = found(world, 26, "node-short-of-memory");
        assert_eq!(one(&found).severity, Severity::Info);
        assert!(found[0].advice.sentence.ends_with("No other node has room."));
    }

    #[test]
    fn not_burst() {
        let mut world = full_node();
        each_second(&mut world, |machine, second| {
            machine.nodes[1].direct_pages += if second % 20 < 8 { 1000 } else { 0 };
        });
        assert!(found(world, 100, "node-short-of-memory").is_empty());
    }

    #[test]
    fn not_streaming() {
        let cached = || {
            let mut world = full_node();
            world.nodes[1].file_pages = Some(FilePages { inactive_bytes: 20 * GIB, ..LITTLE_CACHE });
            world
        };
        let mut quiet = cached();
        reclaims(&mut quiet, 1000, 0);
        assert!(found(quiet, 26, "node-short-of-memory").is_empty());
        // Swapping proves that it is more than that.
        let mut swaps = cached();
        reclaims(&mut swaps, 1000, 500);
        assert_eq!(found(swaps, 26, "node-short-of-memory").len(), 1);
    }

    #[test]
    fn not_memory_only() {
        for (full, findings) in [(2, 0), (1, 1)] {
            let mut world = with_tier(full_node().actors);
            world.groups = [(PLAIN, Arc::new(files("0-31", "0-2")))].into();
            world.nodes[full].mem_free_bytes = 2 * GIB;
            world.nodes[full].file_pages = Some(LITTLE_CACHE);
            each_second(&mut world, move |machine, _| machine.nodes[full].direct_pages += 1000);
            assert_eq!(found(world, 26, "node-short-of-memory").len(), findings, "node {full}");
        }
    }

    #[test]
    fn held_at_the_watermark_by_kswapd_it_fires() {
        for (pages, findings) in [(1000, 1), (100, 0)] {
            let mut world = world();
            held_by_kswapd(&mut world, 1000, 0, pages);
            assert_eq!(found(world, 26, "node-short-of-memory").len(), findings, "{pages}");
        }
    }

    #[test]
    fn above_the_watermark_it_is_quiet() {
        let mut world = world();
        world.nodes[1].mem_free_bytes = 9 * GIB;
        assert!(found(world, 26, "node-short-of-memory").is_empty());
    }
}

mod swap_while_memory_free {
    use super::*;

    fn world() -> Machine {
        let mut world = full_node();
        reclaims(&mut world, 0, 3584);
        world
    }

    #[test]
    fn fires() {
        let found = found(world(), 26, "swap-while-memory-free");
        assert_eq!(one(&found).severity, Severity::Critical);
        assert_eq!(
            found[0].advice.sentence,
            "The machine swaps out 14.0 MiB a second while node 0 has 29.0 GiB free."
        );
    }

    #[test]
    fn not_limit() {
        let mut world = world();
        at_its_limit(&mut world);
        assert!(found(world, 26, "swap-while-memory-free").is_empty());
    }

    /// As a guest did: no look finds less than the low watermark.
    #[test]
    fn held_at_the_watermark_by_kswapd_it_fires() {
        let mut world = world();
        held_by_kswapd(&mut world, 0, 3584, 3600);
        let found = found(world, 26, "swap-while-memory-free");
        assert_eq!(one(&found).severity, Severity::Critical);
    }

    #[test]
    fn not_streaming() {
        let mut world = world();
        swaps_beside_a_stream(&mut world);
        let found = found(world, 26, "swap-while-memory-free");
        assert_eq!(one(&found).severity, Severity::Info);
    }

    /// Fragments make kswapd work on a node that could take as much as is called free on another one.
    #[test]
    fn a_node_with_room_is_not_short() {
        let mut world = world();
        held_by_kswapd(&mut world, 0, 3584, 3600);
        world.nodes[1].mem_free_bytes += GIB;
        assert!(found(world, 26, "swap-while-memory-free").is_empty());
    }

    /// The third node is memory only: rarely used memory is sent there until it is full.
    #[test]
    fn not_memory_only() {
        for (full, fires) in [(2, false), (1, true)] {
            let mut world = with_tier(full_node().actors);
            world.groups = [(PLAIN, Arc::new(files("0-31", "0-2")))].into();
            world.nodes[full].mem_free_bytes = 2 * GIB;
            each_second(&mut world, |machine, _| machine.vm.swapped_out += 3584);
            assert_eq!(!found(world, 26, "swap-while-memory-free").is_empty(), fires, "node {full}");
        }
    }

    #[test]
    fn not_zram() {
        let mut world = world();
        Arc::make_mut(&mut world.host).swap_on_zram = Some(true);
        let found = found(world, 26, "swap-while-memory-free");
        assert_eq!(one(&found).severity, Severity::Warning);
        assert!(found[0].advice.sentence.contains("(zram)"), "{}", found[0].advice.sentence);
    }

    /// At memory.high a group is not full: it is held back, and its pages are swapped.
    #[test]
    fn not_limit_high() {
        let mut world = world();
        each_second(&mut world, |machine, second| {
            machine.vm.swapped_out += 3584;
            let at = |second| GroupRaw {
                read_ns: BOOT_NS + second * S,
                memory_max_events: Ok(50 * second),
                ..files("0-31", "0-1")
            };
            let before = Some(at(second.saturating_sub(1)).counters());
            machine.groups = [(PLAIN, Arc::new(GroupRaw { counters_before: before, ..at(second) }))].into();
        });
        assert!(found(world, 26, "swap-while-memory-free").is_empty());
    }

    #[test]
    fn not_all_of_the_time_is_enough() {
        for (seconds, fires) in [(3, true), (2, false)] {
            let mut world = full_node();
            near_the_watermark(&mut world);
            each_second(&mut world, move |machine, second| {
                let pages = if second % 5 < seconds { 3600 } else { 0 };
                machine.vm.swapped_out += pages;
                machine.nodes[1].kswapd_pages += pages;
            });
            assert_eq!(!found(world, 60, "swap-while-memory-free").is_empty(), fires, "{seconds} of 5");
        }
    }

    #[test]
    fn not_proactive() {
        // Near the watermark, as page cache fills any machine, kswapd has nothing to do.
        for (free, kswapd) in [(Some(9 * GIB), 3600), (None, 0)] {
            let mut world = world();
            held_by_kswapd(&mut world, 0, 3584, kswapd);
            world.nodes[1].mem_free_bytes = free.unwrap_or(world.nodes[1].mem_free_bytes);
            assert!(found(world, 26, "swap-while-memory-free").is_empty(), "{free:?}");
        }
    }

    #[test]
    fn not_full_everywhere() {
        let mut world = world();
        world.nodes[0].mem_free_bytes = 3 * GIB;
        assert!(found(world, 26, "swap-while-memory-free").is_empty());
    }

    #[test]
    fn not_way_back() {
        let mut world = full_node();
        each_second(&mut world, |machine, _| machine.vm.swapped_in += 3584);
        assert!(found(world, 26, "swap-while-memory-free").is_empty());
    }

    #[test]
    fn it_is_hung_below_its_cause() {
        let mut world = full_node();
        world.vm.zone_reclaim_mode = Some(1);
        each_second(&mut world, |machine, second| {
            machine.vm.swapped_out += 3584;
            machine.nodes[1].node_reclaims += if second > 10 { 240 } else { 0 };
        });
        let engine = watch(world, 40);
        assert_eq!(
            lines(&engine),
            ["critical measured zone-reclaim/host", "critical measured swap-while-memory-free/host",]
        );
        assert!(engine.findings()[1].because_of.is_some());
        assert_eq!(engine.summary().critical, 1);
    }
}

mod bound_to_full_node {
    use super::*;

    fn world() -> Machine {
        let mut world = full_node();
        world.actors[0].mempolicy = MemPolicy { mode: 2, flags: 0, nodes: 0b10 };
        world.actors[0].rss = 20 * GIB;
        reclaims(&mut world, 0, 3584);
        world
    }

    #[test]
    fn fires() {
        let found = found(world(), 26, "bound-to-full-node");
        assert_eq!(one(&found).severity, Severity::Critical);
        assert_eq!(
            found[0].advice.sentence,
            "7015 pg_restore is limited to memory of node 1, which is below its low watermark; 29.0 GiB are available on node 0."
        );
        assert_eq!(commands(&found[0]), ["migratepages 7015 1 0"]);
    }

    #[test]
    fn held_at_the_watermark_by_kswapd_it_fires() {
        let mut world = world();
        held_by_kswapd(&mut world, 0, 3584, 3600);
        let found = found(world, 26, "bound-to-full-node");
        let check = &one(&found).advice.check[0];
        assert_eq!(
            (check.metric, check.of.to_string().as_str(), check.to),
            ("swap_out_pages_per_s", "host", 0.0)
        );
    }

    #[test]
    fn a_container_gets_more_nodes() {
        let mut world = full_node();
        world.actors[0].cgroup = DOCKER;
        world.actors[0].mem_nodes = Some(0b10);
        world.groups = [(DOCKER, Arc::new(files("0-31", "1")))].into();
        reclaims(&mut world, 0, 3584);
        let found = found(world, 26, "bound-to-full-node");
        assert_eq!(one(&found).key.subject.to_string(), format!("cgroup {DOCKER}"));
        assert!(commands(&found[0])[0].starts_with("docker update --cpuset-cpus 0-31 --cpuset-mems 0-1 "));
    }

    #[test]
    fn not_streaming() {
        let mut world = world();
        world.nodes[1].file_pages = Some(FilePages { inactive_bytes: 20 * GIB, ..LITTLE_CACHE });
        reclaims(&mut world, 5000, 0);
        assert!(found(world, 26, "bound-to-full-node").is_empty());
    }

    #[test]
    fn not_limit() {
        let mut world = world();
        at_its_limit(&mut world);
        assert!(found(world, 26, "bound-to-full-node").is_empty());
    }

    #[test]
    fn not_full_everywhere() {
        let mut world = world();
        world.nodes[0].mem_free_bytes = 3 * GIB;
        assert!(found(world, 26, "bound-to-full-node").is_empty());
    }

    #[test]
    fn not_other() {
        let mut world = world();
        world.actors[0].per_second = Counts::default();
        assert!(found(world, 26, "bound-to-full-node").is_empty());
    }

    #[test]
    fn not_cached() {
        let mut world = world();
        swaps_beside_a_stream(&mut world);
        let found = found(world, 26, "bound-to-full-node");
        assert_eq!(one(&found).severity, Severity::Info);
    }

    /// The machine swaps for another reason: no page of the process is in swap.
    #[test]
    fn not_swapped() {
        let mut world = world();
        world.actors[0].swapped = 0;
        assert!(found(world, 26, "bound-to-full-node").is_empty());
    }

    #[test]
    fn unbound_it_is_quiet() {
        let mut world = world();
        world.actors[0].mempolicy = MemPolicy::default();
        assert!(found(world, 26, "bound-to-full-node").is_empty());
    }
}
