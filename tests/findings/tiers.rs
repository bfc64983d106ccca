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
            found[0].told.sentence,
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
        world.actors[0].per_second[Counter::BalancedPages] = 10;
        assert!(found(world, 130, ID).is_empty());
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
