//! Rules that compare nodes and processes by their counters.

use std::sync::Arc;

use numatop_ng::finding::{Confidence, Finding, Severity};
use numatop_ng::model::event::Role;
use numatop_ng::model::sample::Sample;
use numatop_ng::model::topology::Division;
use numatop_ng::model::units::CpuId;

use crate::sick_worlds;
use crate::world::{
    Actor, BOOT_NS, GIB, Machine, S, Shape, TWO, blind, commands, count_also, each_second, found, found_in,
    machine, pages, samples, undo,
};

mod slow_clock {
    use super::*;

    const ID: &str = "slow-clock";

    /// Two nodes with two processes each, busy by these shares.
    fn world(busy: [f64; 2]) -> Machine {
        let actor = |pid: u32, node: u32| Actor::new(pid, "work").runs(&[(node, busy[node as usize] * 8.0)]);
        machine(TWO, vec![actor(500, 0), actor(501, 0), actor(502, 1), actor(503, 1)])
    }

    /// The same with the cycles of node 1 at this share, in percent.
    fn slowed(world: Machine, pct: u64) -> Vec<Finding> {
        let (host, mut samples) = samples(world, 130, 1000);
        for cpu in
            samples.iter_mut().flat_map(|sample: &mut Sample| &mut sample.cpus).filter(|cpu| cpu.node == 1)
        {
            cpu.slots[0].count = cpu.slots[0].count / 100 * pct;
        }
        found_in(&host, &samples, ID)
    }

    #[test]
    fn fires() {
        let found = slowed(world([80.0, 80.0]), 70);
        assert_eq!((found[0].severity, found[0].confidence), (Severity::Info, Confidence::Measured));
        assert_eq!(found[0].key.subject.to_string(), "node 1");
        assert_eq!(
            found[0].advice.sentence,
            "CPUs of node 1 run at 1.40 GHz, those of node 0 at 2.00 GHz, although node 1 is 80.0 % busy."
        );
    }

    #[test]
    fn a_step_of_the_turbo_is_nothing() {
        assert!(slowed(world([80.0, 80.0]), 90).is_empty());
    }

    #[test]
    fn not_core_types() {
        let mut world = world([80.0, 80.0]);
        let host = Arc::make_mut(&mut world.host);
        let mut event = host.events[0].clone();
        let small: Vec<CpuId> = host.topology.nodes[1].cpus.clone();
        host.events[0].cpus = Some(host.topology.nodes[0].cpus.clone());
        (event.name, event.cpus) = ("cycles-of-small-cores".into(), Some(small));
        host.events.push(event);
        assert!(slowed(world, 70).is_empty());
    }

    #[test]
    fn not_one_process() {
        let mut world = world([80.0, 80.0]);
        (world.actors[2].runs, world.actors[3].runs) = (vec![(1, 1200.0)], vec![(1, 80.0)]);
        assert!(slowed(world, 70).is_empty());
    }

    #[test]
    fn not_unlike_load() {
        assert!(slowed(world([80.0, 55.0]), 70).is_empty());
        assert!(slowed(world([45.0, 45.0]), 70).is_empty());
    }

    #[test]
    fn without_counters_it_is_blind() {
        let mut world = world([80.0, 80.0]);
        Arc::make_mut(&mut world.host).events.clear();
        assert!(blind(world, 130, ID).is_some());
    }
}

mod noisy_neighbour {
    use super::*;

    const ID: &str = "noisy-neighbour";
    const SOCKETS: Shape = Shape { cores: 32, threads: 1, ..TWO };

    /// Case 6: two databases on node 0 and one on node 1, with their instructions per cycle.
    fn world() -> Machine {
        let database = |pid: u32, node: u32, ipc: f64| Actor {
            ipc,
            rss: 20 * GIB,
            memory: pages(node * 100),
            ..Actor::new(pid, "mysqld").runs(&[(node, 1500.0)])
        };
        machine(SOCKETS, vec![database(4241, 0, 0.04), database(4242, 0, 0.04), database(4410, 1, 0.14)])
    }

    #[test]
    fn fires() {
        let found = found(world(), 70, ID);
        assert_eq!(found.len(), 2, "both of node 0");
        assert_eq!((found[0].severity, found[0].confidence), (Severity::Info, Confidence::Estimated));
        assert_eq!(
            found[0].advice.sentence,
            "mysqld needs 3.5 times the cycles per instruction of process 4410, which has the same name and runs on node 1. mysqld 4242 runs on node 0, too."
        );
        // Up to 71 % of its time.
        assert!((found[0].advice.gain.at_most.unwrap() - 15.0 * (1.0 - 4.0 / 14.0)).abs() < 0.1);
    }

    #[test]
    fn the_smaller_one_goes_where_it_fits() {
        let mut world = world();
        (world.actors[1].runs, world.actors[2].runs) = (vec![(0, 800.0)], vec![(1, 300.0)]);
        let found = found(world, 70, ID);
        assert!(commands(&found[0])[0].starts_with("taskset -acp 32-63 4242"), "{:?}", commands(&found[0]));
    }

    #[test]
    fn many_counted_accesses_make_it_a_warning() {
        let mut world = world();
        count_also(&mut world, &[Role::Lma, Role::Rma]);
        for (actor, accesses) in world.actors.iter_mut().zip([30.0, 30.0, 5.0]) {
            actor.accesses = accesses;
        }
        assert_eq!(found(world, 70, ID)[0].severity, Severity::Warning);
    }

    /// The same where the firmware shows one node, with processes that may use all CPUs.
    fn hidden() -> Machine {
        let mut world = sick_worlds::three_databases_hidden();
        world.actors.iter_mut().for_each(|actor| actor.allowed = None);
        world
    }

    #[test]
    fn sockets_are_compared_where_nodes_are_hidden() {
        let found = found(hidden(), 70, ID);
        assert_eq!(found.len(), 2, "both of socket 0");
        // Memory of another socket looks local, so one other reason is open.
        assert_eq!((found[0].severity, found[0].confidence), (Severity::Info, Confidence::Suspected));
        assert_eq!(
            found[0].advice.sentence,
            "mysqld needs 3.5 times the cycles per instruction of process 4410, which has the same name and runs on socket 1. mysqld \
             4242 runs on socket 0, too."
        );
        assert_eq!(found[0].evidence[2].of.to_string(), "socket 0");
        assert!(found[0].advice.or_else[1].contains("hides its nodes"));
        let beside: f64 = found[0].evidence[2].value;
        assert!((beside - 1500.0).abs() < 1.0, "{beside}");
    }

    #[test]
    fn only_cpus_are_bound_where_nodes_are_hidden() {
        let mut world = hidden();
        (world.actors[1].runs, world.actors[2].runs) = (vec![(0, 800.0)], vec![(0, 300.0)]);
        let finding = found(world, 70, ID).remove(0);
        assert_eq!(commands(&finding), ["taskset -acp 32-63 4242"]);
        assert_eq!(undo(&finding), ["taskset -acp 0-63 4242"]);
        assert_eq!(finding.advice.commands[1].words, "start the program with taskset -c 32-63");
        // Bound processes stay.
        let mut bound = hidden();
        bound.actors[1].runs = vec![(0, 800.0)];
        bound.actors[1].allowed = Some(32);
        assert!(commands(&found(bound, 70, ID)[0]).is_empty());
    }

    #[test]
    fn not_alone_on_its_socket() {
        let mut world = hidden();
        world.actors[1] = Actor { socket: Some(1), ..Actor::new(900, "other").runs(&[(0, 1500.0)]) };
        assert!(found(world, 70, ID).is_empty());
    }

    #[test]
    fn without_time_by_socket_it_is_blind() {
        let mut world = hidden();
        Arc::make_mut(&mut world.host).topology.divide(Division::Nodes).unwrap();
        let why = blind(world, 70, ID).unwrap();
        assert!(
            why.starts_with("not_collected: no node spans sockets, or CPU time is recorded per node only (use --places l3)"),
            "{why}"
        );
    }

    #[test]
    fn accesses_of_sockets_make_it_a_warning() {
        let mut world = hidden();
        count_also(&mut world, &[Role::Lma, Role::Rma]);
        for (actor, accesses) in world.actors.iter_mut().zip([30.0, 30.0, 5.0]) {
            (actor.accesses, actor.remote_share) = (accesses, Some(0.5));
        }
        let many = found(world, 70, ID);
        // The CPU counts accesses to another socket, whatever the firmware shows.
        assert_eq!((many[0].severity, many[0].confidence), (Severity::Warning, Confidence::Estimated));
        assert_eq!(many[0].advice.or_else.len(), 1);
    }

    #[test]
    fn not_explained_by_memory_of_another_socket() {
        let mut world = hidden();
        count_also(&mut world, &[Role::Lma, Role::Rma]);
        for (actor, remote) in world.actors.iter_mut().zip([0.6, 0.6, 0.1]) {
            (actor.accesses, actor.remote_share) = (30.0, Some(remote));
        }
        assert!(found(world, 70, ID).is_empty());
    }

    #[test]
    fn without_a_placement_it_only_suspects() {
        let mut world = world();
        world.actors.iter_mut().for_each(|actor| actor.memory.clear());
        assert_eq!(found(world, 70, ID)[0].confidence, Confidence::Suspected);
    }

    #[test]
    fn not_different_work() {
        let mut world = world();
        world.actors[1].ipc = 0.14;
        assert!(found(world, 70, ID).is_empty());
    }

    #[test]
    fn not_phases() {
        let mut world = world();
        each_second(&mut world, |machine, second| {
            machine.actors[2].ipc = if second / 4 % 2 == 0 { 0.09 } else { 0.19 };
        });
        assert!(found(world, 200, ID).is_empty());
    }

    #[test]
    fn not_start() {
        let mut world = world();
        world.actors[2].start_ns = Some(BOOT_NS);
        assert!(found(world, 70, ID).is_empty());
        let mut old = self::world();
        old.actors[2].start_ns = Some(BOOT_NS - 60 * S);
        assert!(!found(old, 70, ID).is_empty());
    }

    #[test]
    fn not_no_twin() {
        let mut world = world();
        world.actors[2].comm = numatop_ng::model::sample::Comm::new("postgres");
        assert!(found(world, 70, ID).is_empty());
    }

    #[test]
    fn not_bigger() {
        let mut world = world();
        world.actors[2].rss = 4 * GIB;
        assert!(found(world, 70, ID).is_empty());
    }

    #[test]
    fn not_explained() {
        let mut world = world();
        // Memory of another node is a separate reason.
        world.actors[0].memory = pages(60);
        world.actors[1].memory = pages(60);
        assert!(found(world, 70, ID).is_empty());
    }

    #[test]
    fn not_alone() {
        let mut world = world();
        world.actors[1] = Actor::new(4242, "other").runs(&[(0, 100.0)]);
        assert!(found(world, 70, ID).is_empty());
        let mut both = self::world();
        both.actors.push(Actor::new(900, "other").runs(&[(1, 1500.0)]));
        assert!(found(both, 70, ID).is_empty());
    }
}
