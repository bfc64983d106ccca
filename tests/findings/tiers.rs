//! Memory of nodes without CPUs.

use numatop_ng::finding::{Confidence, Severity};
use numatop_ng::model::counters::Counter;
use numatop_ng::model::sample::{Counts, MemPolicy};

use crate::world::{Actor, GIB, Machine, TWO, blind, commands, found, found_in, machine, samples, with_tier};

pub mod slow_tier_memory {
    use super::*;

    const ID: &str = "slow-tier-memory";

    /// A process on node 0 that uses memory of other nodes; 40 % of its memory is on node 2, which has no CPUs.
    pub fn world() -> Machine {
        let actor = Actor {
            rss: 20 * GIB,
            memory: vec![600, 0, 400],
            per_second: Counts::default().with([(Counter::HintFaults, 200), (Counter::HintRemote, 90)]),
            ..Actor::new(815, "cache")
        };
        with_tier(vec![actor.runs(&[(0, 200.0)])])
    }

    #[test]
    fn few_faults_at_a_time_say_the_same_at_each_interval() {
        for step_ms in [500, 1000, 5000] {
            let mut world = world();
            let faults = [(Counter::HintFaults, 4), (Counter::HintRemote, 2)];
            world.actors[0].per_second = Counts::default().with(faults);
            let (host, samples) = samples(world, 180, step_ms);
            assert_eq!(found_in(&host, &samples, ID).len(), 1, "at {step_ms} ms");
        }
    }

    #[test]
    fn fires() {
        let found = found(world(), 130, ID);
        assert_eq!((found[0].severity, found[0].confidence), (Severity::Info, Confidence::Estimated));
        assert_eq!(
            found[0].advice.sentence,
            "cache runs on node 0, and 40.0 +-3.1 % of its memory is on node 2, which has no CPUs."
        );
        assert_eq!(commands(&found[0]), ["migratepages 815 2 0", "sysctl -w kernel.numa_balancing=3"]);
    }

    #[test]
    fn not_unused() {
        let mut world = world();
        world.actors[0].per_second = Counts::default();
        assert!(found(world, 130, ID).is_empty());
    }

    #[test]
    fn not_policy() {
        let mut bound = world();
        bound.actors[0].mempolicy = MemPolicy { mode: 2, flags: 0, nodes: 0b101 };
        assert!(found(bound, 130, ID).is_empty());
        let mut cpuset = world();
        cpuset.actors[0].mem_nodes = Some(0b101);
        assert!(found(cpuset, 130, ID).is_empty());
    }

    #[test]
    fn not_promoting() {
        let mut world = world();
        world.state.numa_balancing = Some(2);
        // 8 GiB are 2,097,152 slow pages: a hundredth in 120 s are 175 pages a second.
        world.actors[0].per_second[Counter::BalancedPages] = 180;
        assert!(found(world, 130, ID).is_empty());
    }

    #[test]
    fn pages_that_come_one_by_one_do_not_count() {
        let mut world = world();
        world.state.numa_balancing = Some(2);
        world.actors[0].per_second[Counter::BalancedPages] = 100;
        assert_eq!(found(world, 130, ID).len(), 1);
    }

    #[test]
    fn not_cold() {
        let mut world = world();
        world.actors[0].scan_period_ms = 1000;
        world.actors[0].per_second = Counts::default();
        assert!(blind(world, 130, ID).unwrap().starts_with("cold"));
    }

    #[test]
    fn not_no_room() {
        let mut world = world();
        world.nodes[0].mem_free_bytes = 4 * GIB;
        world.nodes[0].mem_file_bytes = 0;
        assert!(found(world, 130, ID).is_empty());
    }

    #[test]
    fn not_shared() {
        let mut world = world();
        world.actors[0].shmem = 8 * GIB;
        assert!(found(world, 130, ID).is_empty());
    }

    #[test]
    fn memory_of_whole_nodes_is_not_its_matter() {
        let actor = Actor { rss: 20 * GIB, memory: vec![600, 400], ..Actor::new(815, "cache") };
        assert!(found(machine(TWO, vec![actor.runs(&[(0, 200.0)])]), 130, ID).is_empty());
    }
}

pub mod tier_ping_pong {
    use std::sync::Arc;

    use numatop_ng::model::turns::TierPages;
    use numatop_ng::model::units::NodeId;

    use super::*;
    use crate::world::{DOCKER, S, each_second, files};

    const ID: &str = "tier-ping-pong";

    /// Rates of pages that leave and reach node 0, and the share of a CPU that its kswapd takes.
    fn world_of(promoted: u64, demoted: u64, asked: u64, kswapd_pct: f64) -> Machine {
        let kswapd = Actor { ppid: 2, rss: 0, ..Actor::new(70, "kswapd0").runs(&[(0, kswapd_pct)]) };
        let mut world = with_tier(vec![kswapd, Actor::new(815, "cache").runs(&[(0, 200.0)])]);
        each_second(&mut world, move |machine, second| {
            // The limit bounds promotions; each page that comes pushes one out.
            let limit_mbs = machine.tier_switches["promote_rate_limit_mbs"];
            let limited = promoted.min(limit_mbs * 1_000_000 / 4096);
            let gone = if limited < promoted { limited } else { demoted };
            for node in [0, 1, 2] {
                let moved = machine.tier_pages.entry(NodeId(node)).or_insert(TierPages {
                    promoted: Some(0),
                    candidates: Some(0),
                    demoted: Some(0),
                    demoted_asked: Some(0),
                });
                if node == 0 && second > 0 {
                    moved.promoted = moved.promoted.map(|pages| pages + limited);
                    moved.demoted = moved.demoted.map(|pages| pages + gone);
                    moved.demoted_asked = moved.demoted_asked.map(|pages| pages + asked);
                }
            }
        });
        world
    }

    pub fn world() -> Machine {
        world_of(10_000, 14_000, 0, 20.0)
    }

    #[test]
    fn fires() {
        let found = found(world(), 70, ID);
        assert_eq!((found[0].severity, found[0].confidence), (Severity::Warning, Confidence::Measured));
        assert_eq!(
            found[0].advice.sentence,
            "Each second 14000 pages of node 0 go to slower memory and 10000 come back; the transfers take 20.0 % of a CPU."
        );
        assert_eq!(commands(&found[0]), ["sysctl -w kernel.numa_balancing_promote_rate_limit_MBps=2"]);
    }

    #[test]
    fn one_direction_few_pages_or_no_cost_is_no_finding() {
        for (promoted, demoted, kswapd_pct) in
            [(10_000, 50_000, 20.0), (10_000, 0, 20.0), (900, 900, 20.0), (10_000, 14_000, 2.0)]
        {
            assert!(
                found(world_of(promoted, demoted, 0, kswapd_pct), 70, ID).is_empty(),
                "{promoted} {demoted}"
            );
        }
    }

    #[test]
    fn not_start() {
        let (host, mut samples) = samples(world(), 70, 1000);
        let day = samples[0].boot_ns - S;
        samples.iter_mut().for_each(|sample| sample.boot_ns -= day);
        assert!(found_in(&host, &samples, ID).is_empty());
    }

    #[test]
    fn not_limit() {
        let limited = |hits: u64| {
            let mut world = world();
            world.actors[1].cgroup = DOCKER;
            let mut plan = world.plan.take().unwrap();
            each_second(&mut world, move |machine, second| {
                plan(machine, second);
                let mut raw = files("0-31", "0-2");
                raw.read_ns = crate::world::BOOT_NS + second * S;
                raw.counters_before = machine.groups.get(&DOCKER).map(|before| before.counters());
                raw.memory_max_events = Ok(hits * second);
                let demoted = Some(10_000 * second);
                raw.tier_pages = Ok(TierPages { promoted: Some(0), demoted, ..TierPages::default() });
                machine.groups = [(DOCKER, Arc::new(raw))].into();
            });
            found(world, 70, ID)
        };
        assert_eq!(limited(0).len(), 1, "it has not met its limit");
        assert!(limited(5).is_empty());
    }

    #[test]
    fn not_proactive() {
        assert!(found(world_of(10_000, 14_000, 7_000, 20.0), 70, ID).is_empty());
        assert_eq!(found(world_of(10_000, 14_000, 6_000, 20.0), 70, ID).len(), 1);
    }

    #[test]
    fn one_tier_has_nothing_to_move() {
        let world = || machine(TWO, vec![Actor::new(815, "cache").runs(&[(0, 200.0)])]);
        assert_eq!(blind(world(), 70, ID), None);
        let mut unread = world();
        unread.tiers.clear();
        assert!(blind(unread, 70, ID).is_some(), "nothing is known of tiers");
    }
}
