//! Rules about CPU time: who waits where, and which cores are busy.

use std::sync::Arc;

use numatop_ng::finding::{Confidence, Severity};
use numatop_ng::model::counters::Counter;
use numatop_ng::model::sample::{Counts, MemPolicy};
use numatop_ng::model::topology::{Calibration, Division};

use crate::world::{
    Actor, BOOT_NS, DOCKER, GIB, HIDDEN, Machine, S, TWO, blind, commands, each_second, files, fold, found,
    machine, pages, samples,
};

mod bound_to_busy_cpus {
    use super::*;

    const ID: &str = "bound-to-busy-cpus";

    /// Four threads of one process on CPU 3, the only allowed one. They wait for it, this long at a time, in
    /// us; the 31 other CPUs idle.
    fn world(each_us: u64) -> Machine {
        let thread = |tid| Actor {
            tid,
            pinned: Some(3),
            wait_pct: 70.0,
            switches: 700_000 / each_us,
            cpu_nodes: Some(0b01),
            ..Actor::new(600, "worker").runs(&[(0, 25.0)])
        };
        machine(TWO, (600..604).map(thread).collect())
    }

    #[test]
    fn fires() {
        let found = found(world(5000), 40, ID);
        assert_eq!((found[0].severity, found[0].confidence), (Severity::Warning, Confidence::Estimated));
        assert_eq!(
            found[0].advice.sentence,
            "worker waits 2.8 s of each second for the 1 CPU in its affinity, while 15.0 other CPUs are idle."
        );
        assert_eq!(commands(&found[0])[0], "taskset -acp 0-7,16-23 600", "CPUs of its own node are enough");
        assert!(found[0].advice.undo[0].line.is_none(), "lists of several threads are not known");
    }

    #[test]
    fn where_its_node_is_full_every_cpu_is_offered() {
        let mut world = world(5000);
        world.actors.push(Actor::new(700, "spin").runs(&[(0, 1500.0)]));
        assert_eq!(commands(&found(world, 40, ID)[0])[0], "taskset -acp 0-31 600");
    }

    #[test]
    fn a_single_thread_on_one_cpu_can_go_back() {
        let mut world = world(5000);
        world.actors.truncate(1);
        world.actors[0].switches = 300;
        world.actors.push(Actor { pinned: Some(3), ..Actor::new(700, "spin").runs(&[(0, 75.0)]) });
        let found = found(world, 40, ID);
        assert_eq!(found[0].advice.undo[0].line.as_ref().unwrap().to_string(), "taskset -acp 3 600");
    }

    #[test]
    fn all_cpus_of_a_node_are_a_choice() {
        let (host, mut samples) = samples(world(5000), 40, 1000);
        for sample in &mut samples {
            for task in &mut sample.tasks {
                Arc::make_mut(task).cpus_allowed = 16;
            }
        }
        let found = fold(&host, &samples).0;
        let severities: Vec<Severity> = found
            .findings()
            .iter()
            .filter(|finding| finding.key.id == ID)
            .map(|finding| finding.severity)
            .collect();
        assert_eq!(severities, [Severity::Info]);
    }

    #[test]
    fn not_cpuset() {
        let mut world = world(5000);
        world.actors.iter_mut().for_each(|actor| actor.cgroup = DOCKER);
        world.groups = [(DOCKER, Arc::new(files("3", "0-1")))].into();
        assert!(found(world, 40, ID).is_empty());
    }

    #[test]
    fn not_isolated() {
        let mut world = world(5000);
        Arc::make_mut(&mut world.host).isolated_cpus = (0..3).chain(4..32).collect();
        assert!(found(world, 40, ID).is_empty());
    }

    #[test]
    fn not_short() {
        assert!(found(world(900), 40, ID).is_empty());
    }

    #[test]
    fn not_rt() {
        let (host, mut samples) = samples(world(5000), 40, 1000);
        for sample in &mut samples {
            sample.tasks.iter_mut().for_each(|task| Arc::make_mut(task).policy = 1);
        }
        assert!(fold(&host, &samples).0.findings().iter().all(|finding| finding.key.id != ID));
    }

    #[test]
    fn not_nice() {
        let mut world = world(5000);
        world.actors.iter_mut().for_each(|actor| actor.nice = 10);
        assert!(found(world, 40, ID).is_empty());
    }

    #[test]
    fn not_throttled() {
        let mut world = world(5000);
        world.actors.iter_mut().for_each(|actor| actor.cgroup = DOCKER);
        each_second(&mut world, |machine, second| {
            let mut raw = files("0-31", "0-1");
            (raw.cpu_quota_milli, raw.read_ns) = (Ok(Some(1000)), BOOT_NS + second * S);
            raw.throttled_ns = Ok(second * S);
            let before = second.saturating_sub(1);
            raw.throttled_before = (second > 0).then_some((BOOT_NS + before * S, before * S));
            machine.groups = [(DOCKER, Arc::new(raw))].into();
        });
        assert!(found(world, 40, ID).is_empty());
    }

    #[test]
    fn a_cpu_that_has_time_for_it_is_no_reason() {
        let mut world = world(5000);
        world.actors.iter_mut().for_each(|actor| actor.wait_pct = 5.0);
        assert!(found(world, 40, ID).is_empty());
    }
}

mod idle_elsewhere {
    use super::*;

    const ID: &str = "idle-elsewhere";

    /// A container on node 0, which is full; it waits for a CPU for this long at a time, in us. Node 1 idles.
    fn world(cpus: f64, wait_pct: f64, each_us: u64) -> Machine {
        let actor = Actor {
            cgroup: DOCKER,
            wait_pct,
            switches: (wait_pct * 1e4) as u64 / each_us,
            rss: 8 * GIB,
            memory: pages(0),
            ..Actor::new(600, "nginx")
        };
        let spin = Actor::new(601, "spin").runs(&[(0, 1550.0 - cpus * 100.0)]);
        let mut world = machine(TWO, vec![actor.runs(&[(0, cpus * 100.0)]), spin]);
        world.groups = [(DOCKER, Arc::new(files("0-31", "0-1")))].into();
        world
    }

    #[test]
    fn fires() {
        let found = found(world(4.0, 80.0, 5000), 40, ID);
        assert_eq!((found[0].severity, found[0].confidence), (Severity::Warning, Confidence::Estimated));
        assert_eq!(
            found[0].advice.sentence,
            "nginx waits 0.8 s of each second for CPUs of node 0; node 1 is 100 % idle."
        );
        assert!(
            commands(&found[0])[0].starts_with("docker update --cpuset-cpus 8-15,24-31 --cpuset-mems 1 "),
            "{:?}",
            commands(&found[0])
        );
        assert!((found[0].advice.gain.at_most.unwrap() - 0.8).abs() < 0.01, "{:?}", found[0].advice.gain);
        assert_eq!(found[0].advice.or_else.len(), 1);
    }

    #[test]
    fn the_scheduler_that_is_loaded_may_be_the_cause() {
        let mut world = world(4.0, 80.0, 5000);
        world.scheduler = Some(("nng_test".into(), Arc::default()));
        let found = found(world, 40, ID);
        assert!(found[0].advice.or_else[1].contains("scheduler nng_test"), "{:?}", found[0].advice.or_else);
    }

    #[test]
    fn one_that_does_not_fit_there_is_an_info_without_a_command() {
        let found = found(world(12.0, 200.0, 5000), 40, ID);
        assert_eq!(found[0].severity, Severity::Info);
        assert!(commands(&found[0]).is_empty(), "{:?}", commands(&found[0]));
    }

    #[test]
    fn one_with_a_policy_is_told_nothing() {
        let mut world = world(4.0, 80.0, 5000);
        world.actors[0].mempolicy = MemPolicy { mode: 2, flags: 0, nodes: 1 };
        let found = found(world, 40, ID);
        assert_eq!(found[0].severity, Severity::Info);
        assert!(commands(&found[0]).is_empty());
    }

    #[test]
    fn without_files_of_its_group_it_only_suspects() {
        let mut world = world(4.0, 80.0, 5000);
        world.groups.clear();
        let found = found(world, 40, ID);
        assert_eq!((found[0].severity, found[0].confidence), (Severity::Info, Confidence::Suspected));
    }

    #[test]
    fn not_bound() {
        let mut pinned = world(1.0, 80.0, 5000);
        pinned.actors[0].pinned = Some(3);
        assert!(found(pinned, 40, ID).is_empty());
        let mut nodes = world(4.0, 80.0, 5000);
        nodes.actors[0].cpu_nodes = Some(1);
        assert!(found(nodes, 40, ID).is_empty());
        // A thread that is bound has all of the waits; its leader is free.
        let mut thread = world(4.0, 0.0, 5000);
        let bound = Actor {
            tid: 650,
            pinned: Some(3),
            wait_pct: 80.0,
            switches: 160,
            cpu_nodes: Some(0b11),
            ..thread.actors[0].clone()
        };
        thread.actors.push(bound.runs(&[(0, 50.0)]));
        assert!(found(thread, 40, ID).is_empty());
    }

    #[test]
    fn not_isolated() {
        let mut world = world(4.0, 80.0, 5000);
        Arc::make_mut(&mut world.host).isolated_cpus = (8..16).chain(24..32).collect();
        assert!(found(world, 40, ID).is_empty());
    }

    #[test]
    fn not_short() {
        assert!(found(world(4.0, 80.0, 900), 40, ID).is_empty());
    }

    #[test]
    fn not_rt() {
        let (host, mut samples) = samples(world(4.0, 80.0, 5000), 40, 1000);
        for sample in &mut samples {
            sample.tasks.iter_mut().for_each(|task| Arc::make_mut(task).policy = 1);
        }
        assert!(fold(&host, &samples).0.findings().iter().all(|finding| finding.key.id != ID));
    }

    #[test]
    fn not_throttled() {
        let mut world = world(4.0, 80.0, 5000);
        each_second(&mut world, |machine, second| {
            let mut raw = files("0-31", "0-1");
            (raw.cpu_quota_milli, raw.read_ns) = (Ok(Some(4500)), BOOT_NS + second * S);
            raw.throttled_ns = Ok(second * S / 2);
            let before = second.saturating_sub(1);
            raw.throttled_before = (second > 0).then_some((BOOT_NS + before * S, before * S / 2));
            machine.groups = [(DOCKER, Arc::new(raw))].into();
        });
        assert!(found(world, 40, ID).is_empty());
    }

    #[test]
    fn not_balancing_places() {
        let mut world = world(4.0, 80.0, 5000);
        world.actors[0].per_second = Counts::default().with([(Counter::NumaStuck, 3)]);
        assert!(found(world, 40, ID).is_empty());
    }

    #[test]
    fn a_node_that_is_not_full_or_not_idle_is_no_reason() {
        let mut room = world(4.0, 80.0, 5000);
        room.actors[1].runs = vec![(0, 500.0)];
        assert!(found(room, 40, ID).is_empty());
        let mut busy = world(4.0, 80.0, 5000);
        busy.actors.push(Actor::new(602, "other").runs(&[(1, 1100.0)]));
        assert!(found(busy, 40, ID).is_empty());
    }
}

mod cores_exhausted {
    use super::*;

    const ID: &str = "cores-exhausted";

    /// Both nodes with this share of all of their CPUs busy.
    fn world(pct: f64) -> Machine {
        machine(TWO, vec![Actor::new(600, "work").runs(&[(0, 16.0 * pct), (1, 16.0 * pct)])])
    }

    #[test]
    fn fires() {
        let found = found(world(95.0), 70, ID);
        assert_eq!((found[0].severity, found[0].confidence), (Severity::Info, Confidence::Measured));
        assert_eq!(
            found[0].advice.sentence,
            "16 of 16 cores have all of their threads busy: 32 CPUs share the execution units of 16 cores."
        );
    }

    #[test]
    fn without_counters_a_calibration_says_what_full_cores_do() {
        let mut world = world(95.0);
        let calibration = Calibration { smt_work: Some((1000, 1900)), ..Calibration::default() };
        Arc::make_mut(&mut world.host).topology.calibration = Some(calibration);
        assert_eq!(
            found(world, 70, ID)[0].advice.sentence,
            "16 of 16 cores have all of their threads busy: 32 CPUs do the work of 16 to 30 cores, as calibrate measured."
        );
    }

    /// Two sockets that the firmware shows as one node, with these shares of all of their CPUs busy.
    fn hidden(pct: [f64; 2]) -> Machine {
        let actor = |socket: i32| Actor {
            socket: Some(socket),
            ..Actor::new(600 + socket as u32, "work").runs(&[(0, 52.0 * pct[socket as usize])])
        };
        machine(HIDDEN, vec![actor(0), actor(1)])
    }

    #[test]
    fn one_socket_is_enough_where_nodes_are_hidden() {
        let found = found(hidden([95.0, 20.0]), 70, ID);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].severity, found[0].confidence), (Severity::Info, Confidence::Measured));
        assert_eq!(found[0].key.subject.to_string(), "socket 0");
        assert_eq!(
            found[0].advice.sentence,
            "26 of 26 cores of socket 0 have all of their threads busy: 52 CPUs share the execution units of 26 cores."
        );
        assert!(found[0].advice.or_else[0].starts_with("Socket 1 is 20.0 % busy"));
        let value = &found[0].evidence[0];
        assert_eq!((value.metric, value.of.to_string()), ("cpu_pct", "socket 0".to_owned()));
        assert!((value.value - 95.0).abs() < 0.1 && value.limit == Some(72.0), "{value:?}");
    }

    #[test]
    fn all_sockets_are_the_machine() {
        let found = found(hidden([95.0, 95.0]), 70, ID);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].key.subject.to_string(), "host");
    }

    #[test]
    fn not_nice_and_not_half_idle_on_a_socket() {
        let mut nice = hidden([95.0, 20.0]);
        nice.actors[0].nice = 19;
        assert!(found(nice, 70, ID).is_empty());
        assert!(found(hidden([75.0, 75.0]), 70, ID).is_empty());
        let mut by_nodes = hidden([95.0, 20.0]);
        Arc::make_mut(&mut by_nodes.host).topology.divide(Division::Nodes).unwrap();
        assert!(blind(by_nodes, 70, ID).unwrap().contains("--places l3"));
    }

    /// Quotas of containers that may use one socket only, in thousandths of a CPU each.
    #[test]
    fn quotas_within_a_socket_make_it_a_warning() {
        for (cpus, severity) in [("0-25,52-77", Severity::Warning), ("0-103", Severity::Info)] {
            let mut world = hidden([95.0, 20.0]);
            world.by_node = true;
            (world.actors[0].cgroup, world.actors[0].smt_busy) = (DOCKER, Some(0.9));
            let mut raw = files(cpus, "0");
            raw.cpu_quota_milli = Ok(Some(50_000));
            world.groups = [(DOCKER, Arc::new(raw))].into();
            assert_eq!(found(world, 70, ID)[0].severity, severity, "{cpus}");
        }
    }

    /// Case 1 with quotas of this many CPUs for each of 16 containers.
    fn promised(milli: u64) -> Vec<numatop_ng::finding::Finding> {
        let mut world = crate::sick_worlds::full_of_containers();
        for raw in world.groups.values_mut() {
            Arc::make_mut(raw).cpu_quota_milli = Ok(Some(milli));
        }
        found(world, 70, ID)
    }

    #[test]
    fn quotas_beyond_what_cores_can_do_make_it_a_warning() {
        // 32 cores, and 60 % of its speed beside a busy thread: 38.4, and 42.2 with a tenth more.
        for (milli, severity) in [(2700, Severity::Warning), (2500, Severity::Info)] {
            assert_eq!(promised(milli)[0].severity, severity, "{milli}");
        }
    }

    #[test]
    fn not_no_smt() {
        let shape = crate::world::Shape { cores: 16, threads: 1, ..TWO };
        let actor = Actor::new(600, "work").runs(&[(0, 1600.0), (1, 1600.0)]);
        assert!(found(machine(shape, vec![actor]), 70, ID).is_empty());
    }

    #[test]
    fn not_nice() {
        let mut world = world(95.0);
        world.actors[0].nice = 19;
        assert!(found(world, 70, ID).is_empty());
    }

    #[test]
    fn not_half_idle() {
        assert!(found(world(75.0), 70, ID).is_empty());
        let mut one_node = world(95.0);
        one_node.actors[0].runs = vec![(0, 1600.0), (1, 800.0)];
        assert!(found(one_node, 70, ID).is_empty());
    }
}
