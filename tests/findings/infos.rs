//! Rules whose findings are infos most often.

use std::sync::Arc;

use numatop_ng::finding::{Confidence, Severity, SubjectKind};
use numatop_ng::model::counters::Counter;
use numatop_ng::model::sample::{Comm, Counts, MemPolicy};
use numatop_ng::model::units::NodeId;

use crate::sharing::{of_segment, sharing};
use crate::world::{
    Actor, DOCKER, GIB, Machine, OTHER_DOCKER, Shape, TWO, blind, commands, each_second, files, found,
    machine, pages,
};

mod memory_on_other_node {
    use super::*;

    /// A process on node 0 with this share of its memory on node 1.
    fn world(remote: u32) -> Machine {
        let actor = Actor { rss: 8 * GIB, memory: pages(remote), ..Actor::new(815, "postgres") };
        machine(TWO, vec![actor.runs(&[(0, 100.0)])])
    }

    /// All CPUs of node 1 are offline: its memory is no tier, and stayed behind.
    #[test]
    fn memory_of_a_node_whose_cpus_are_offline_is_found() {
        let mut world = world(88);
        let topology = &mut Arc::make_mut(&mut world.host).topology;
        topology.nodes[1].cpus.clear();
        // The kernel reports no socket of an offline CPU.
        topology.sockets = 1;
        for cpu in topology.cpus.iter_mut().filter(|cpu| cpu.node == Some(NodeId(1))) {
            cpu.online = false;
        }
        let found = found(world, 70, "memory-on-other-node");
        assert_eq!(commands(&found[0])[0], "migratepages 815 1 0");
    }

    #[test]
    fn fires() {
        let found = found(world(88), 70, "memory-on-other-node");
        assert_eq!((found[0].severity, found[0].confidence), (Severity::Info, Confidence::Estimated));
        assert_eq!(
            found[0].advice.sentence,
            "postgres runs on node 0, and 88.0 +-3.1 % of its memory is on node 1."
        );
        assert_eq!(commands(&found[0]), ["migratepages 815 1 0"]);
    }

    #[test]
    fn not_balancing_repairs() {
        let mut world = world(88);
        each_second(&mut world, |machine, second| {
            machine.actors[0].memory = pages(95 - second as u32);
        });
        assert!(found(world, 65, "memory-on-other-node").is_empty());
    }

    #[test]
    fn not_cold() {
        let mut world = world(88);
        world.actors[0].scan_period_ms = 1000;
        assert!(blind(world, 70, "memory-on-other-node").unwrap().starts_with("cold"));
    }

    #[test]
    fn not_no_room() {
        let mut world = world(88);
        world.nodes[0].mem_free_bytes = 4 * GIB;
        world.nodes[0].mem_file_bytes = 0;
        assert!(found(world, 70, "memory-on-other-node").is_empty());
    }

    #[test]
    fn not_policy() {
        let mut world = world(88);
        world.actors[0].mempolicy = MemPolicy { mode: 2, flags: 0, nodes: 3 };
        assert!(found(world, 70, "memory-on-other-node").is_empty());
    }

    #[test]
    fn not_bound() {
        let mut world = world(88);
        world.actors[0].cpu_nodes = Some(0b01);
        assert!(found(world, 70, "memory-on-other-node").is_empty());
    }

    #[test]
    fn not_two_thirds() {
        let mut world = world(88);
        world.actors[0].runs = vec![(0, 70.0), (1, 30.0)];
        assert!(found(world, 70, "memory-on-other-node").is_empty());
    }

    #[test]
    fn not_shared() {
        let mut world = world(88);
        world.actors[0].shmem = 4 * GIB;
        assert!(found(world, 70, "memory-on-other-node").is_empty());
    }

    #[test]
    fn not_group() {
        assert_eq!(
            of_segment(sharing(24, 96, 900..904), 4, "memory-on-other-node"),
            [(SubjectKind::Group, Severity::Warning)]
        );
    }

    #[test]
    fn not_others_map_it() {
        assert_eq!(
            of_segment(sharing(24, 96, 900..904), 50, "memory-on-other-node"),
            [(SubjectKind::Group, Severity::Info)]
        );
    }

    #[test]
    fn not_bandwidth() {
        use numatop_ng::model::event::{Event, Role};
        let counted = |accesses| {
            let mut world = world(88);
            let event = |name: &str, role| Event { name: name.into(), role, ..Event::default() };
            let events = [event("local", Role::Lma), event("remote", Role::Rma)];
            Arc::make_mut(&mut world.host).events.extend(events);
            world.actors[0].accesses = accesses;
            found(world, 70, "memory-on-other-node").len()
        };
        assert_eq!((counted(1.0), counted(400.0)), (1, 0));
    }

    /// The severity if this share of its memory has a separate policy.
    fn severity(own_policy_pct: Option<u8>, balancing: u32, hints: u64) -> Severity {
        let mut world = world(88);
        world.state.numa_balancing = Some(balancing);
        world.actors[0].own_policy_pct = own_policy_pct;
        world.actors[0].per_second =
            Counts::default().with([(Counter::HintFaults, hints), (Counter::HintRemote, hints)]);
        found(world, 70, "memory-on-other-node")[0].severity
    }

    #[test]
    fn not_own_policies() {
        assert_eq!(severity(Some(19), 0, 0), Severity::Warning);
        assert_eq!(severity(Some(21), 0, 0), Severity::Info);
        assert_eq!(severity(None, 0, 0), Severity::Info);
    }

    #[test]
    fn not_unused() {
        assert_eq!(severity(Some(0), 1, 0), Severity::Info);
        assert_eq!(severity(Some(0), 1, 50), Severity::Warning);
    }
}

mod spread_over_nodes {
    use super::*;
    use crate::sick_worlds::backends;

    const SIXTEEN: Shape =
        Shape { nodes: 16, cores: 8, threads: 1, sockets: 2, distance: 30, memory: 32 * GIB };

    /// A service all over a machine of 16 nodes, whose threads wander.
    fn world() -> Machine {
        let runs: Vec<(u32, f64)> = (0..16).map(|node| (node, 70.0)).collect();
        let actor =
            Actor { rss: 15 * GIB, memory: vec![64; 16], node_moves: 40, ..Actor::new(33727, "java") };
        machine(SIXTEEN, vec![actor.runs(&runs)])
    }

    #[test]
    fn fires() {
        let found = found(world(), 40, "spread-over-nodes");
        assert_eq!(found[0].severity, Severity::Info);
        assert!(found[0].advice.sentence.starts_with("java runs on 16 nodes, and 93.8 % of its memory"));
        // 11.2 CPUs need two nodes of 8 cores at 85 %.
        assert_eq!(commands(&found[0])[0], "taskset -acp 0-15 33727");
        assert_eq!(commands(&found[0])[1], "migratepages 33727 2-15 0-1");
    }

    #[test]
    fn not_shards() {
        let mut world = world();
        world.actors[0].node_moves = 0;
        assert!(found(world, 40, "spread-over-nodes").is_empty());
    }

    #[test]
    fn not_interleave() {
        let mut world = world();
        world.actors[0].mempolicy = MemPolicy { mode: 3, flags: 0, nodes: 0xffff };
        assert!(found(world, 40, "spread-over-nodes").is_empty());
    }

    #[test]
    fn not_needs_all() {
        let mut world = world();
        world.actors[0].runs.iter_mut().for_each(|(_, pct)| *pct = 790.0);
        assert!(found(world, 40, "spread-over-nodes").is_empty());
    }

    #[test]
    fn not_bound() {
        let mut world = world();
        world.actors[0].cpu_nodes = Some(0xff);
        assert!(found(world, 40, "spread-over-nodes").is_empty());
    }

    #[test]
    fn not_converging() {
        let mut world = world();
        world.actors[0].per_second = Counts::default().with([(Counter::MigratedPages, 20_000)]);
        assert!(found(world, 40, "spread-over-nodes").is_empty());
    }

    #[test]
    fn not_shared() {
        let mut world = world();
        world.actors[0].shmem = 8 * GIB;
        assert!(found(world, 40, "spread-over-nodes").is_empty());
    }

    /// Four processes all over the machine.
    fn all_over() -> Vec<Actor> {
        let process = |actor: Actor| Actor { runs: vec![(0, 20.0), (1, 20.0)], node_moves: 20, ..actor };
        sharing(24, 50, 900..904).into_iter().map(process).collect()
    }

    #[test]
    fn not_group() {
        assert_eq!(of_segment(all_over(), 4, "spread-over-nodes"), [(SubjectKind::Group, Severity::Warning)]);
    }

    #[test]
    fn not_others_map_it() {
        assert_eq!(of_segment(all_over(), 50, "spread-over-nodes"), [(SubjectKind::Group, Severity::Info)]);
    }

    /// The same, with so much of its memory in mappings with a policy of their own.
    fn with_policies(own_policy_pct: u8) -> Machine {
        let mut world = world();
        world.actors[0].own_policy_pct = Some(own_policy_pct);
        world
    }

    #[test]
    fn not_own_policies() {
        let warning = &found(with_policies(19), 40, "spread-over-nodes")[0];
        assert_eq!((warning.severity, warning.confidence), (Severity::Warning, Confidence::Estimated));
        let own = warning.evidence.iter().find(|evidence| evidence.metric == "own_policy_pct").unwrap();
        assert_eq!((own.value.round(), own.limit), (19.0, Some(20.0)));
        assert_eq!(found(with_policies(21), 40, "spread-over-nodes")[0].severity, Severity::Info);
    }

    #[test]
    fn not_vm() {
        let mut world = with_policies(0);
        world.actors[0].comm = Comm::new("qemu-system-x86");
        assert_eq!(found(world, 40, "spread-over-nodes")[0].severity, Severity::Info);
    }

    const CONTAINER: &str = "3c0f6a4c2b9f1e8d7a6b5c4d3e2f1a0b9c8d7e6f5a4b3c2d1e0f9a8b7c6d5e4f";

    #[test]
    fn processes_that_share_memory_are_their_container() {
        let found = found(backends("0-31", true), 40, "spread-over-nodes");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].key.subject.to_string(), format!("cgroup {DOCKER}"));
        assert_eq!((found[0].severity, found[0].confidence), (Severity::Warning, Confidence::Estimated));
        assert_eq!(
            found[0].advice.sentence,
            "3c0f6a4c2b9f runs on 4 nodes, and 75.0 % of its memory is remote from where it runs; it needs 3.2 CPUs and 20.0 GiB: \
             node 0 would do."
        );
        assert_eq!(
            commands(&found[0]),
            [format!("docker update --cpuset-cpus 0-7 --cpuset-mems 0 {CONTAINER}")]
        );
        let undo = found[0].advice.undo[0].line.as_ref().unwrap().to_string();
        assert_eq!(undo, format!("docker update --cpuset-cpus 0-31 --cpuset-mems 0-3 {CONTAINER}"));
    }

    #[test]
    fn in_cgroup_v1_the_memory_of_the_processes_of_a_container_is_moved() {
        let lines = commands(&found(backends("0-31", false), 40, "spread-over-nodes")[0]);
        assert_eq!((lines.len(), lines[1].as_str()), (9, "migratepages 500 1-3 0"));
    }

    #[test]
    fn a_list_of_cpus_on_four_nodes_becomes_one_of_free_cores() {
        let mut world = backends("0,8,16,24", true);
        // One process with private memory: its container is the subject, because the list belongs to that.
        world.actors.truncate(1);
        let actor = &mut world.actors[0];
        (actor.shmem, actor.runs) = (0, vec![(0, 80.0), (1, 80.0), (2, 80.0), (3, 80.0)]);
        let mut other = files("0-5", "0-3");
        other.mem_bytes = Ok(GIB);
        world.groups.insert(OTHER_DOCKER, Arc::new(other));
        world.actors.push(Actor { cgroup: OTHER_DOCKER, ..Actor::new(900, "web").runs(&[(0, 60.0)]) });
        let found = found(world, 40, "spread-over-nodes");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].key.subject.to_string(), format!("cgroup {DOCKER}"));
        // Cores 6 and 7 of node 0 are too few.
        assert_eq!(
            commands(&found[0]),
            [format!("docker update --cpuset-cpus 8-11 --cpuset-mems 1 {CONTAINER}")]
        );
    }

    #[test]
    fn cores_that_other_cpusets_name_are_not_taken() {
        let mut world = backends("0,8,16,24", true);
        world.groups.insert(OTHER_DOCKER, Arc::new(files("1-7,9-15,17-23,25-31", "0-3")));
        world.actors.push(Actor { cgroup: OTHER_DOCKER, ..Actor::new(900, "web").runs(&[(0, 60.0)]) });
        assert!(found(world, 40, "spread-over-nodes").is_empty());
    }

    #[test]
    fn a_container_with_policies_that_are_not_known_is_an_info() {
        let mut world = backends("0-31", true);
        world.actors[3].own_policy_pct = None;
        assert_eq!(found(world, 40, "spread-over-nodes")[0].severity, Severity::Info);
    }

    #[test]
    fn a_container_whose_processes_keep_to_their_node_is_quiet() {
        let mut shards = backends("0-31", true);
        shards.actors.iter_mut().for_each(|actor| actor.node_moves = 0);
        assert!(found(shards, 40, "spread-over-nodes").is_empty());
    }

    #[test]
    fn a_container_that_needs_the_bandwidth_of_all_nodes_is_quiet() {
        use numatop_ng::model::event::{Event, Role};
        let counted = |accesses| {
            let mut world = backends("0-31", true);
            let event = |name: &str, role| Event { name: name.into(), role, ..Event::default() };
            let events = [event("local", Role::Lma), event("remote", Role::Rma)];
            Arc::make_mut(&mut world.host).events.extend(events);
            world.actors.iter_mut().for_each(|actor| actor.accesses = accesses);
            found(world, 40, "spread-over-nodes").len()
        };
        assert_eq!((counted(1.0), counted(400.0)), (1, 0));
    }

    #[test]
    fn not_bandwidth() {
        use numatop_ng::model::event::{Event, Role};
        let counted = |accesses| {
            let mut world = with_policies(0);
            let event = |name: &str, role| Event { name: name.into(), role, ..Event::default() };
            let events = [event("local", Role::Lma), event("remote", Role::Rma)];
            Arc::make_mut(&mut world.host).events.extend(events);
            world.actors[0].accesses = accesses;
            found(world, 40, "spread-over-nodes")
        };
        assert_eq!(counted(1.0)[0].severity, Severity::Warning);
        assert!(counted(40.0).is_empty());
    }
}

mod moves_between_nodes {
    use super::*;

    fn world(moves: u64, switches: u64) -> Machine {
        let actor = Actor { node_moves: moves, switches, ..Actor::new(600, "wander") };
        machine(TWO, vec![actor.runs(&[(0, 50.0), (1, 50.0)])])
    }

    #[test]
    fn fires() {
        let found = found(world(200, 2000), 70, "moves-between-nodes");
        assert_eq!(found[0].severity, Severity::Info);
        assert!((found[0].advice.gain.at_most.unwrap() - 0.1).abs() < 1e-6);
    }

    #[test]
    fn the_scheduler_that_is_loaded_may_be_the_cause() {
        let mut world = world(200, 2000);
        world.scheduler = Some(("nng_test".into(), Arc::default()));
        let found = found(world, 70, "moves-between-nodes");
        assert!(found[0].advice.or_else[1].contains("scheduler nng_test"), "{:?}", found[0].advice.or_else);
    }

    #[test]
    fn not_tiny() {
        assert!(found(world(8, 100), 70, "moves-between-nodes").is_empty());
        assert!(found(world(60, 2000), 70, "moves-between-nodes").is_empty());
    }

    #[test]
    fn not_sleepers() {
        assert!(found(world(200, 30_000), 70, "moves-between-nodes").is_empty());
    }
}

mod stolen_time {
    use super::*;

    fn world(busy_pct: f64, steal_ms: u64) -> Machine {
        let mut world = machine(TWO, vec![Actor::new(600, "work").runs(&[(0, busy_pct)])]);
        each_second(&mut world, move |machine, _| {
            machine.cpus[0].steal_ns = machine.cpus[0].steal_ns.map(|ns| ns + steal_ms * 1_000_000);
        });
        world
    }

    #[test]
    fn fires() {
        let found = found(world(200.0, 400), 70, "stolen-time");
        assert_eq!(found[0].severity, Severity::Info);
        assert!(found[0].advice.sentence.contains("takes 0.4 CPUs"), "{}", found[0].advice.sentence);
    }

    #[test]
    fn not_idle() {
        assert!(found(world(50.0, 400), 70, "stolen-time").is_empty());
        assert!(found(world(200.0, 100), 70, "stolen-time").is_empty());
    }

    #[test]
    fn without_the_number_it_is_blind() {
        let mut world = world(200.0, 400);
        each_second(&mut world, |machine, _| machine.cpus.iter_mut().for_each(|cpu| cpu.steal_ns = None));
        assert!(blind(world, 70, "stolen-time").is_some());
    }
}

mod counters_taken_turns {
    use super::*;

    /// Counters that run this share of the time in the first seconds.
    fn world(running_pct: u64, seconds: u64) -> Machine {
        let mut world = machine(TWO, vec![Actor::new(600, "work").runs(&[(0, 100.0)])]);
        each_second(&mut world, move |machine, second| {
            for slot in machine.cpus.iter_mut().flat_map(|cpu| &mut cpu.slots[..2]) {
                slot.enabled_ns += 1_000_000_000;
                slot.running_ns += if second <= seconds { running_pct * 10_000_000 } else { 1_000_000_000 };
            }
        });
        world
    }

    #[test]
    fn fires() {
        let found = found(world(71, 100), 40, "counters-taken-turns");
        assert!(found[0].advice.sentence.contains("71.0 %"), "{}", found[0].advice.sentence);
    }

    #[test]
    fn not_short() {
        assert!(found(world(71, 10), 60, "counters-taken-turns").is_empty());
        assert!(found(world(99, 100), 40, "counters-taken-turns").is_empty());
    }

    #[test]
    fn not_no_counters() {
        let mut world = world(71, 100);
        Arc::make_mut(&mut world.host).events.clear();
        assert!(found(world, 40, "counters-taken-turns").is_empty());
    }
}

mod node_without_memory {
    use super::*;

    fn world(pct: f64) -> Machine {
        let mut world = machine(TWO, vec![Actor::new(600, "work").runs(&[(1, pct)])]);
        Arc::make_mut(&mut world.host).topology.nodes[1].mem_total_bytes = 0;
        world.nodes[1].mem_total_bytes = 0;
        world.nodes[1].managed_bytes = 0;
        world
    }

    #[test]
    fn fires() {
        let found = found(world(800.0), 3, "node-without-memory");
        assert_eq!(found[0].key.subject.to_string(), "node 1");
        assert_eq!(commands(&found[0]), ["dmidecode -t memory"]);
    }

    #[test]
    fn not_vm() {
        let mut world = world(800.0);
        Arc::make_mut(&mut world.host).cpu_model = "Common KVM processor".into();
        assert!(found(world, 3, "node-without-memory").is_empty());
    }

    #[test]
    fn not_idle() {
        assert!(found(world(50.0), 3, "node-without-memory").is_empty());
    }

    #[test]
    fn not_isolated() {
        let mut world = world(800.0);
        Arc::make_mut(&mut world.host).isolated_cpus = (8..16).chain(24..32).collect();
        assert!(found(world, 3, "node-without-memory").is_empty());
    }
}

mod cpus_too_few {
    use super::*;

    /// A container on four CPUs of node 0, all busy, with waiting threads.
    fn world(quota: Option<u64>) -> Machine {
        let actor = Actor { cgroup: DOCKER, wait_pct: 200.0, ..Actor::new(600, "build") };
        let mut world = machine(TWO, vec![actor.runs(&[(0, 400.0)])]);
        let mut raw = files("0-3", "0-1");
        raw.cpu_quota_milli = Ok(quota);
        world.groups = [(DOCKER, Arc::new(raw))].into();
        world
    }

    #[test]
    fn fires() {
        let found = found(world(None), 70, "cpus-too-few");
        assert_eq!(found[0].severity, Severity::Info);
        assert!(
            found[0].advice.sentence.contains("is limited to 4 CPUs, all busy"),
            "{}",
            found[0].advice.sentence
        );
        assert!(commands(&found[0])[0].starts_with("docker update --cpuset-cpus 0-7,16-23 "));
    }

    #[test]
    fn a_larger_quota_contradicts_it() {
        assert_eq!(found(world(Some(8000)), 70, "cpus-too-few")[0].severity, Severity::Warning);
    }

    #[test]
    fn not_quota() {
        assert!(found(world(Some(4000)), 70, "cpus-too-few").is_empty());
    }

    #[test]
    fn not_isolated() {
        let mut world = world(None);
        Arc::make_mut(&mut world.host).isolated_cpus = (4..32).collect();
        assert!(found(world, 70, "cpus-too-few").is_empty());
    }

    #[test]
    fn not_batch() {
        let mut world = world(None);
        world.actors[0].nice = 19;
        assert!(found(world, 70, "cpus-too-few").is_empty());
    }

    #[test]
    fn with_nothing_idle_it_is_quiet() {
        let mut world = world(None);
        world.actors.push(Actor::new(601, "spin").runs(&[(0, 1200.0), (1, 1600.0)]));
        assert!(found(world, 70, "cpus-too-few").is_empty());
    }
}
