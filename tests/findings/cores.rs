//! Rules about cores that are shared: by threads of one process, and by containers.

use std::sync::Arc;

use numatop_ng::finding::{Assumption, Confidence, Finding, Severity};
use numatop_ng::model::sample::Counts;
use numatop_ng::model::topology::Calibration;
use numatop_ng::model::wire::NodeCounts;

use crate::world::{
    Actor, DOCKER, Machine, OTHER_DOCKER, Shape, TWO, bound_threads, commands, each_second, files, found,
    found_in, machine, read_about, samples,
};

mod sibling_contention {
    use super::*;

    const ID: &str = "sibling-contention";

    /// Two threads on the two CPUs of core 0, whose siblings are busy for 80 % of their time.
    fn world() -> Machine {
        crate::sick_worlds::siblings(0.8)
    }

    /// The same where the IPC beside a busy sibling is this share of that alone, in percent.
    fn at_speed(pct: u64) -> Machine {
        let mut world = world();
        world.by_node = false;
        let state = |cycles: u64, ipc_pct| NodeCounts { cycles, instructions: cycles * ipc_pct / 100 };
        let by_sibling = [state(400_000_000, 100), state(1_600_000_000, pct)];
        world.actors.iter_mut().for_each(|thread| {
            thread.per_second = Counts { by_sibling, ..Counts::default() };
        });
        world
    }

    #[test]
    fn fires() {
        let found = found(world(), 70, ID);
        assert_eq!((found[0].severity, found[0].confidence), (Severity::Warning, Confidence::Measured));
        assert_eq!(
            found[0].advice.sentence,
            "worker shares cores with busy threads for 80.0 % of its time, while 7 cores of node 0 are idle."
        );
        assert_eq!(commands(&found[0]), ["taskset -acp 1-2 700"]);
        // Two CPUs, 80 % of their time at 60 % of the speed.
        assert!(
            (found[0].advice.gain.at_most.unwrap() - 2.0 * 0.8 * 0.4).abs() < 0.01,
            "{:?}",
            found[0].advice.gain
        );
    }

    #[test]
    fn not_fast() {
        for (pct, fires) in [(50, true), (79, true), (95, false)] {
            assert_eq!(found(at_speed(pct), 70, ID).len(), usize::from(fires), "{pct} %");
        }
    }

    #[test]
    fn without_counters_it_only_suspects() {
        let mut world = world();
        world.by_node = false;
        let found = found(world, 70, ID);
        assert_eq!((found[0].severity, found[0].confidence), (Severity::Info, Confidence::Suspected));
    }

    #[test]
    fn without_counters_the_ceiling_is_that_of_the_calibration() {
        for (smt_work, gain, assumes) in [
            (None, 2.0 * 0.8 * 0.5, Assumption::SiblingsAddNothing),
            (Some((1400, 1900)), 2.0 * 0.8 * 0.3, Assumption::MeasuredSiblings),
        ] {
            let mut world = world();
            world.by_node = false;
            let calibration = Calibration { smt_work, ..Calibration::default() };
            Arc::make_mut(&mut world.host).topology.calibration = Some(calibration);
            let told = found(world, 70, ID).remove(0).advice;
            assert!((told.gain.at_most.unwrap() - gain).abs() < 0.01, "{:?}", told.gain);
            assert_eq!(told.gain.assumes, [assumes]);
        }
    }

    /// Without counters, with an affinity of these CPUs.
    fn with_affinity(cpus: &str, count: u32) -> Vec<Finding> {
        let mut world = world();
        world.by_node = false;
        let (host, mut samples) = samples(world, 70, 1000);
        for sample in &mut samples {
            sample.tasks.iter_mut().for_each(|task| Arc::make_mut(task).cpus_allowed = count);
        }
        read_about(&mut samples, 700, cpus, 0.0);
        found_in(&host, &samples, ID)
    }

    #[test]
    fn an_affinity_with_both_threads_of_a_core_contradicts_itself() {
        let found = with_affinity("0,16", 2);
        assert_eq!((found[0].severity, found[0].confidence), (Severity::Warning, Confidence::Estimated));
        // One of its cores, and one of the idle ones.
        assert_eq!(commands(&found[0]), ["taskset -acp 0-1 700"]);
        assert_eq!(found[0].advice.undo[0].line.as_ref().unwrap().to_string(), "taskset -acp 0,16 700");
        let details = format!("{:?}", numatop_ng::finding::details::details(&found[0]));
        assert!(details.contains("Its allowed CPUs: 0,16."), "{details}");
    }

    #[test]
    fn an_affinity_with_cores_for_all_is_none() {
        let found = with_affinity("0-3,16", 5);
        assert_eq!(found[0].severity, Severity::Info);
    }

    #[test]
    fn whole_cores_of_a_group_are_an_info() {
        let mut world = world();
        world.actors.iter_mut().for_each(|thread| thread.cgroup = DOCKER);
        world.groups = [(DOCKER, Arc::new(files("0-1,16-17", "0-1")))].into();
        assert_eq!(found(world, 70, ID)[0].severity, Severity::Info);
    }

    #[test]
    fn not_no_idle_core() {
        let mut world = world();
        world.actors.push(Actor::new(800, "spin").runs(&[(0, 1300.0)]));
        assert!(found(world, 70, ID).is_empty());
    }

    #[test]
    fn not_fast_change() {
        let mut world = world();
        each_second(&mut world, |machine, second| {
            let busy = if second / 5 % 2 == 0 { 0.8 } else { 0.2 };
            machine.actors.iter_mut().for_each(|thread| thread.smt_busy = Some(busy));
        });
        assert!(found(world, 200, ID).is_empty());
    }

    #[test]
    fn not_shared() {
        let mut world = world();
        world.actors[0].cgroup = DOCKER;
        world.actors[1] = Actor { cgroup: OTHER_DOCKER, tid: 750, pid: 750, ..world.actors[1].clone() };
        world.groups =
            [(DOCKER, Arc::new(files("0", "0-1"))), (OTHER_DOCKER, Arc::new(files("16", "0-1")))].into();
        assert!(found(world, 70, ID).is_empty());
    }

    #[test]
    fn not_one_thread_per_core() {
        let mut threads = bound_threads(700, "worker", 1, 0..2, 0, 100.0);
        threads.iter_mut().for_each(|thread| thread.smt_busy = Some(0.8));
        assert!(found(machine(Shape { threads: 1, ..TWO }, threads), 70, ID).is_empty());
    }

    #[test]
    fn not_isolated() {
        let mut world = world();
        Arc::make_mut(&mut world.host).isolated_cpus = (1..16).chain(17..32).collect();
        assert!(found(world, 70, ID).is_empty());
    }
}

mod shared_cores {
    use super::*;

    const ID: &str = "shared-cores";
    const SECOND: &str = "9f8e7d6c5b4a39281706f5e4d3c2b1a09f8e7d6c5b4a39281706f5e4d3c2b1a0";

    /// A container on CPUs 0-3, and one on their siblings.
    fn world() -> Machine {
        let first = bound_threads(700, "cart", DOCKER, 0..4, 0, 95.0);
        let second = bound_threads(800, "web", OTHER_DOCKER, 16..20, 0, 80.0);
        let mut world = machine(TWO, first.into_iter().chain(second).collect());
        world.groups =
            [(DOCKER, Arc::new(files("0-3", "0-1"))), (OTHER_DOCKER, Arc::new(files("16-19", "0-1")))].into();
        world
    }

    fn with_lists(first: &str, second: &str) -> Machine {
        let mut world = world();
        world.groups =
            [(DOCKER, Arc::new(files(first, "0-1"))), (OTHER_DOCKER, Arc::new(files(second, "0-1")))].into();
        world
    }

    #[test]
    fn fires() {
        let found = found(world(), 70, ID);
        assert_eq!(found.len(), 1, "a pair is one finding");
        assert_eq!((found[0].severity, found[0].confidence), (Severity::Warning, Confidence::Measured));
        assert_eq!(
            found[0].advice.sentence,
            "3c0f6a4c2b9f and 9f8e7d6c5b4a are pinned to the same cores: 4 CPUs of the first container share cores with the second. 12 idle cores \
             are in no cpuset."
        );
        // The smaller one moves, to cores of the same node.
        assert_eq!(
            commands(&found[0]),
            [format!("docker update --cpuset-cpus 4-7 --cpuset-mems 0-1 {SECOND}")]
        );
        let undo = found[0].advice.undo[0].line.as_ref().unwrap().to_string();
        assert_eq!(undo, format!("docker update --cpuset-cpus 16-19 --cpuset-mems 0-1 {SECOND}"));
    }

    #[test]
    fn the_busier_one_is_named_first() {
        let mut world = with_lists("0-4", "16-19");
        world.actors.iter_mut().filter(|actor| actor.pid == 700).for_each(|actor| actor.runs[0].1 = 60.0);
        let found = found(world, 70, ID);
        assert_eq!(found[0].key.subject.to_string(), format!("cgroup {DOCKER}"));
        let words = "9f8e7d6c5b4a and 3c0f6a4c2b9f are pinned to the same cores: 4 CPUs of the first";
        assert!(found[0].advice.sentence.starts_with(words), "{}", found[0].advice.sentence);
        assert!(commands(&found[0])[0].contains(" 3c0f6a4c2b9f"), "{:?}", commands(&found[0]));
    }

    #[test]
    fn waits_for_the_same_cpus_count_too() {
        let mut world = with_lists("0-3", "2-5");
        for actor in &mut world.actors {
            actor.smt_busy = Some(0.0);
            actor.wait_pct = 40.0;
        }
        let found = found(world, 70, ID);
        assert_eq!(found[0].evidence[0].metric, "runq_wait_pct");
    }

    #[test]
    fn not_pool() {
        assert!(found(with_lists("0-3,16-19", "0-3,16-19"), 70, ID).is_empty());
    }

    #[test]
    fn not_nested() {
        let mut world = world();
        // A container of a pod, and the pod, whose list is wider.
        let names = Arc::make_mut(&mut world.names);
        let mut group = (*names.groups[&DOCKER]).clone();
        group.parent = Some(OTHER_DOCKER);
        names.groups.insert(DOCKER, Arc::new(group));
        assert!(found(world, 70, ID).is_empty());
    }

    #[test]
    fn not_idle() {
        let mut world = world();
        world.actors.iter_mut().filter(|actor| actor.pid == 800).for_each(|actor| actor.runs[0].1 = 10.0);
        assert!(found(world, 70, ID).is_empty());
    }

    #[test]
    fn not_no_trouble() {
        let mut world = world();
        world.actors.iter_mut().for_each(|actor| actor.smt_busy = Some(0.1));
        assert!(found(world, 70, ID).is_empty());
    }

    #[test]
    fn not_no_free_core() {
        let mut world = world();
        world.actors.push(Actor::new(900, "spin").runs(&[(0, 800.0), (1, 1600.0)]));
        let found = found(world, 70, ID);
        assert_eq!(found[0].severity, Severity::Info);
        assert!(commands(&found[0]).is_empty(), "{:?}", commands(&found[0]));
    }
}
