//! A process that is nearly as large as its node.

use std::sync::Arc;

use numatop_ng::finding::{Confidence, Finding, Severity};
use numatop_ng::model::sample::{FilePages, MemPolicy};

use crate::world::{
    Actor, DOCKER, GIB, Machine, TWO, blind, commands, files, found, lines, machine, pages, watch,
};

pub mod larger_than_node {
    use super::*;

    const ID: &str = "larger-than-node";

    /// A database of `gib` GiB on node 0 of 64, with this share of its memory on node 1. At most 1 GiB may
    /// come to node 0.
    fn database(gib: u64, remote: u32) -> Actor {
        let actor = Actor {
            rss: gib * GIB,
            memory: pages(remote),
            own_policy_pct: Some(0),
            cgroup: DOCKER,
            ..Actor::new(4242, "mysqld")
        };
        actor.runs(&[(0, 400.0)])
    }

    fn world_of(actors: Vec<Actor>) -> Machine {
        let mut world = machine(TWO, actors);
        world.nodes[0].mem_free_bytes = 4 * GIB;
        world.nodes[0].mem_file_bytes = GIB;
        world.nodes[0].file_pages =
            Some(FilePages { active_bytes: GIB, inactive_bytes: 0, shmem_bytes: 0, dirty_bytes: 0 });
        world.nodes[1].mem_free_bytes = 40 * GIB;
        world
    }

    /// Another process of node 0, with this share of its 8 GiB on node 1.
    fn victim(pid: u32, remote: u32) -> Actor {
        Actor { rss: 8 * GIB, memory: pages(remote), ..Actor::new(pid, "postgres").runs(&[(0, 200.0)]) }
    }

    pub fn world() -> Machine {
        world_of(vec![database(54, 5)])
    }

    fn it(world: Machine) -> Vec<Finding> {
        found(world, 70, ID)
    }

    #[test]
    fn fires() {
        let found = it(world());
        assert_eq!((found[0].severity, found[0].confidence), (Severity::Info, Confidence::Measured));
        assert_eq!(
            found[0].advice.sentence,
            "mysqld has 54.0 GiB of the 64.0 GiB of node 0, which has no room left."
        );
        // No command: moved pages come back with the next page.
        assert!(commands(&found[0]).is_empty());
        let words: Vec<&str> =
            found[0].advice.commands.iter().map(|command| command.words.as_str()).collect();
        assert!(
            words[0].contains("--interleave=all") && words[1].contains("innodb_numa_interleave"),
            "{words:?}"
        );
        assert!(found[0].advice.gain.at_most.is_none());
    }

    #[test]
    fn a_process_whose_memory_had_to_go_elsewhere_makes_it_a_warning() {
        let world = world_of(vec![database(54, 5), victim(815, 88), victim(816, 40), victim(817, 10)]);
        let found = it(world);
        assert_eq!((found[0].severity, found[0].confidence), (Severity::Warning, Confidence::Estimated));
        assert_eq!(
            found[0].advice.sentence,
            "mysqld has 54.0 GiB of the 64.0 GiB of node 0, which has no room left; memory of 815 postgres and of another process is on other nodes."
        );
        // 88 and 40 % at distance 20, of two CPUs each.
        let gain = 2.0 * (1.0 - 1.0 / 1.88) + 2.0 * (1.0 - 1.0 / 1.4);
        assert!((found[0].advice.gain.at_most.unwrap() - gain).abs() < 0.02, "{:?}", found[0].advice.gain);
    }

    #[test]
    fn a_victim_that_asked_for_it_or_loses_nothing_is_none() {
        let bound = Actor { mempolicy: MemPolicy { mode: 2, flags: 0, nodes: 0b10 }, ..victim(815, 88) };
        let idle = victim(816, 88).runs(&[(0, 1.0)]);
        let found = it(world_of(vec![database(54, 5), bound, idle]));
        assert_eq!(found[0].severity, Severity::Info);
    }

    #[test]
    fn the_memory_of_its_victims_is_explained_by_it() {
        let mut world = world_of(vec![database(54, 5), victim(815, 88)]);
        // Room for the victim's memory, and less than a tenth of the node.
        world.nodes[0].mem_free_bytes = 9 * GIB;
        let mut small = victim(815, 88);
        (small.rss, small.own_policy_pct) = (4 * GIB, Some(0));
        world.actors[1] = small;
        world.state.numa_balancing = Some(0);
        let engine = watch(world, 80);
        let symptom = engine.findings().iter().find(|finding| finding.key.id == "memory-on-other-node");
        let cause = symptom.and_then(|finding| finding.because_of.as_ref()).map(|key| key.id);
        assert_eq!(cause, Some(ID), "{:?}", lines(&engine));
    }

    #[test]
    fn policies_of_its_mappings_that_are_not_known_make_it_blind() {
        let mut world = world();
        world.actors[0].own_policy_pct = None;
        assert!(blind(world, 70, ID).unwrap().contains("policies"));
    }

    #[test]
    fn less_than_four_fifths_or_room_left_is_nothing() {
        assert!(it(world_of(vec![database(50, 5)])).is_empty());
        let mut world = world();
        world.nodes[0].mem_free_bytes = 12 * GIB;
        assert!(it(world).is_empty());
    }

    #[test]
    fn not_interleave() {
        let mut own = world();
        own.actors[0].own_policy_pct = Some(25);
        assert!(it(own).is_empty());
        let mut task = world();
        task.actors[0].mempolicy = MemPolicy { mode: 3, flags: 0, nodes: 3 };
        assert!(it(task).is_empty());
    }

    #[test]
    fn not_limit() {
        let limited = |limit: u64| {
            let mut world = world();
            let mut raw = files("0-31", "0-1");
            (raw.mem_limit_bytes, raw.mem_bytes) = (Ok(Some(limit * GIB)), Ok(54 * GIB));
            world.groups = [(DOCKER, Arc::new(raw))].into();
            it(world).len()
        };
        assert_eq!((limited(56), limited(60)), (0, 1));
    }

    #[test]
    fn not_bound() {
        let mut world = world();
        world.actors[0].mem_nodes = Some(0b01);
        assert!(it(world).is_empty());
    }

    #[test]
    fn not_spread() {
        assert!(it(world_of(vec![database(54, 45)])).is_empty());
    }

    #[test]
    fn not_cache() {
        let mut world = world();
        world.actors[0].file_pct = 50;
        assert!(it(world).is_empty());
    }

    #[test]
    fn not_shared() {
        let mut world = world();
        world.actors[0].shmem = 11 * GIB;
        assert!(it(world).is_empty());
    }

    #[test]
    fn not_full_everywhere() {
        let mut world = world();
        world.nodes[1].mem_free_bytes = 15 * GIB;
        assert!(it(world).is_empty());
    }
}
