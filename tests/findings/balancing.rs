//! Rules about NUMA balancing that need more than its cost.

use std::sync::Arc;

use numatop_ng::finding::{Confidence, Severity};
use numatop_ng::model::counters::Counter;
use numatop_ng::model::sample::{Counts, MemPolicy};

use crate::world::{
    Actor, BOOT_NS, GIB, Machine, S, TWO, blind, commands, each_second, found, machine, pages,
};

pub mod balancing_ping_pong {
    use super::*;

    const ID: &str = "balancing-ping-pong";

    /// A process of 4 GiB; balancing moves `there` of its pages a second from node 0 to node 1, and `back`
    /// pages back.
    pub fn world(there: u64, back: u64) -> Machine {
        let per_second = Counts::default().with([
            (Counter::BalancedPages, there + back),
            (Counter::MigratedPages, there + back),
            (Counter::BalancingNs, 600_000_000),
        ]);
        let actor = Actor { rss: 4 * GIB, memory: pages(50), per_second, ..Actor::new(900_000, "cache") };
        let mut world = machine(TWO, vec![actor.runs(&[(0, 300.0), (1, 300.0)])]);
        world.actors[0].start_ns = Some(BOOT_NS - 1000 * S);
        world.page_flow_rates = [((0, 1), there), ((1, 0), back)].into();
        world
    }

    #[test]
    fn fires() {
        let found = found(world(2200, 1800), 100, ID);
        assert_eq!((found[0].severity, found[0].confidence), (Severity::Warning, Confidence::Measured));
        assert_eq!(
            found[0].advice.sentence,
            "NUMA balancing moves 15.6 MiB of cache's memory between nodes 0-1 each second, and about as much comes back."
        );
        assert_eq!(commands(&found[0])[0], "sysctl -w kernel.numa_balancing=0");
        assert!((found[0].advice.gain.at_least.unwrap() - 0.6).abs() < 0.01, "{:?}", found[0].advice.gain);
    }

    #[test]
    fn phases_that_undo_each_other_are_the_same() {
        let mut world = world(2000, 2000);
        each_second(&mut world, |machine, second| {
            let (there, back) = if second / 15 % 2 == 0 { (4000, 0) } else { (0, 4000) };
            machine.page_flow_rates = [((0, 1), there), ((1, 0), back)].into();
        });
        assert_eq!(found(world, 100, ID).len(), 1);
    }

    /// Moves of one second in ten, as a scan makes them: `back` pages of two bursts go back.
    fn in_bursts(pages: u64, back: u64) -> Machine {
        let mut world = world(0, 0);
        each_second(&mut world, move |machine, second| {
            let pages = if second % 10 == 0 { pages } else { 0 };
            machine.actors[0].per_second = Counts::default().with([
                (Counter::BalancedPages, pages),
                (Counter::MigratedPages, pages),
                (Counter::HintFaults, pages),
                (Counter::HintRemote, pages),
                (Counter::MinFlt, 2 * pages),
                (Counter::BalancingNs, 600_000_000),
            ]);
            let (there, back) = if second / 10 % 2 < 2 - back { (pages, 0) } else { (0, pages) };
            machine.page_flow_rates = [((0, 1), there), ((1, 0), back)].into();
        });
        world
    }

    #[test]
    fn moves_in_bursts_are_moves() {
        let found = found(in_bursts(40_000, 1), 220, ID);
        assert_eq!((found.len(), found[0].severity), (1, Severity::Warning));
        assert!(self::found(in_bursts(4_000, 1), 220, ID).is_empty(), "a tenth of that is little");
    }

    #[test]
    fn bursts_in_one_direction_are_none() {
        assert!(found(in_bursts(40_000, 0), 220, ID).is_empty());
    }

    #[test]
    fn little_is_nothing() {
        assert!(found(world(500, 500), 100, ID).is_empty());
    }

    #[test]
    fn not_one_way() {
        assert!(found(world(3900, 100), 100, ID).is_empty());
        assert!(found(world(3000, 1000), 100, ID).is_empty());
    }

    #[test]
    fn not_churn() {
        let mut world = world(2000, 2000);
        // A moved page is faulted twice: by the hint, and again afterwards.
        world.actors[0].per_second[Counter::HintFaults] = 4000;
        world.actors[0].per_second[Counter::MinFlt] = 8100;
        assert_eq!(found(world, 100, ID).len(), 1);
        let mut world = self::world(2000, 2000);
        world.actors[0].per_second[Counter::MinFlt] = 9000;
        assert!(found(world, 100, ID).is_empty());
    }

    #[test]
    fn not_demotion() {
        let mut world = world(2000, 2000);
        Arc::make_mut(&mut world.host).topology.nodes[1].cpus.clear();
        assert!(found(world, 100, ID).is_empty());
    }

    #[test]
    fn not_others() {
        let mut world = world(2000, 2000);
        world.page_flow_rates = [((0, 1), 4000), ((1, 0), 4000)].into();
        assert!(found(world, 100, ID).is_empty());
    }

    #[test]
    fn not_starting() {
        let mut world = world(2000, 2000);
        // Old enough for all other rules from the beginning, and for this one from 59 s on.
        world.actors[0].start_ns = Some(BOOT_NS - 61 * S);
        assert!(found(world, 120, ID).is_empty());
    }
}

mod balancing_off {
    use super::*;

    const ID: &str = "balancing-off";

    /// `count` processes on node 0 with most of their memory on node 1, on a machine with this setting.
    fn world(count: u32, mode: Option<u32>) -> Machine {
        let actor = |n: u32| {
            let actor = Actor { rss: 4 * GIB, memory: pages(88), ..Actor::new(800 + n, "postgres") };
            actor.runs(&[(0, 100.0)])
        };
        let mut actors: Vec<Actor> = (0..count).map(actor).collect();
        actors.push(Actor::new(700, "busy").runs(&[(0, 500.0), (1, 1000.0)]));
        let mut world = machine(TWO, actors);
        world.state.numa_balancing = mode;
        world
    }

    #[test]
    fn fires() {
        let found = found(world(3, Some(0)), 70, ID);
        assert_eq!((found[0].severity, found[0].confidence), (Severity::Info, Confidence::Estimated));
        assert_eq!(
            found[0].advice.sentence,
            "NUMA balancing is off, and 3 processes using 3.0 CPUs could run nearer to their memory."
        );
        assert_eq!(commands(&found[0])[0], "sysctl -w kernel.numa_balancing=1");
        assert_eq!(found[0].evidence.len(), 4);
    }

    #[test]
    fn one_small_process_is_not_enough() {
        assert!(found(world(1, Some(0)), 70, ID).is_empty());
    }

    #[test]
    fn not_bound() {
        let mut affine = world(3, Some(0));
        affine.actors.iter_mut().for_each(|actor| actor.cpu_nodes = Some(1));
        assert!(found(affine, 70, ID).is_empty());
        let mut policy = world(3, Some(0));
        policy
            .actors
            .iter_mut()
            .for_each(|actor| actor.mempolicy = MemPolicy { mode: 2, flags: 0, nodes: 2 });
        assert!(found(policy, 70, ID).is_empty());
    }

    #[test]
    fn not_tiering() {
        let mut world = world(3, Some(0));
        let topology = &mut Arc::make_mut(&mut world.host).topology;
        let mut slow = topology.nodes[1].clone();
        (slow.id, slow.cpus) = (numatop_ng::model::units::NodeId(2), vec![]);
        topology.nodes.push(slow);
        assert!(found(world, 70, ID).is_empty());
    }

    #[test]
    fn not_on() {
        assert!(found(world(3, Some(1)), 70, ID).is_empty());
        assert!(found(world(3, Some(2)), 70, ID).is_empty());
    }

    #[test]
    fn without_the_switch_or_the_placement_it_is_blind() {
        assert!(blind(world(3, None), 70, ID).is_some());
        let mut unknown = world(3, Some(0));
        unknown.actors.iter_mut().for_each(|actor| actor.memory.clear());
        assert!(blind(unknown, 70, ID).is_some());
    }
}
