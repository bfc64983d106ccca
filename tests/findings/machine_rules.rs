//! Rules about the machine, its balancing and its quotas.

use std::sync::Arc;

use numatop_ng::finding::Severity;
use numatop_ng::model::counters::Counter;
use numatop_ng::model::sample::Counts;

use crate::world::{
    Actor, BOOT_NS, DOCKER, GIB, Machine, S, Shape, TWO, blind, commands, each_second, files, fold, found,
    lines, machine, pages, samples, watch,
};

mod zone_reclaim {
    use super::*;

    fn world(mode: u32, reclaims: u64, shape: Shape) -> Machine {
        let mut world = machine(shape, vec![Actor::new(500, "mysqld").runs(&[(1, 100.0)])]);
        world.vm.zone_reclaim_mode = Some(mode);
        each_second(&mut world, move |machine, _| machine.nodes[1].node_reclaims += reclaims);
        world
    }

    #[test]
    fn fires() {
        let found = found(world(1, 240, TWO), 20, "zone-reclaim");
        assert_eq!(found[0].severity, Severity::Warning);
        assert_eq!(
            found[0].advice.sentence,
            "zone_reclaim_mode is 1: node 1 is reclaimed 240 times a second while node 0 has 29.0 GiB free."
        );
        assert_eq!(commands(&found[0])[0], "sysctl -w vm.zone_reclaim_mode=0");
    }

    #[test]
    fn not_unused() {
        assert!(found(world(1, 5, TWO), 30, "zone-reclaim").is_empty());
        assert!(found(world(0, 240, TWO), 30, "zone-reclaim").is_empty());
    }

    #[test]
    fn not_far() {
        assert!(found(world(1, 240, Shape { distance: 32, ..TWO }), 30, "zone-reclaim").is_empty());
    }

    #[test]
    fn not_full() {
        let mut world = world(1, 240, TWO);
        world.nodes[0].mem_free_bytes = 3 * GIB;
        assert!(found(world, 30, "zone-reclaim").is_empty());
    }

    #[test]
    fn without_the_switch_it_is_blind() {
        let mut world = world(1, 240, TWO);
        world.vm.zone_reclaim_mode = None;
        assert!(blind(world, 30, "zone-reclaim").unwrap().starts_with("not_supported"));
    }

    #[test]
    fn it_ends_when_the_command_was_typed() {
        let mut world = world(1, 240, TWO);
        each_second(&mut world, |machine, second| {
            machine.vm.zone_reclaim_mode = Some(u32::from(second < 40));
            machine.nodes[1].node_reclaims += if second < 40 { 240 } else { 0 };
        });
        let engine = watch(world, 90);
        assert!(engine.findings().is_empty(), "{:?}", lines(&engine));
        let ended: Vec<_> = engine.ended().map(|finding| finding.key.to_string()).collect();
        assert_eq!(ended, ["zone-reclaim/host"]);
    }
}

mod balancing_cost {
    use super::*;

    /// A process that spends this share of its time in balancing, with this much of its memory on the other
    /// node at each second.
    fn world(pct: f64, cpus: f64, remote: impl Fn(u64) -> u32 + Send + 'static) -> Machine {
        let per_second = Counts::default().with([(Counter::BalancingNs, (pct * cpus * 1e7) as u64)]);
        let actor = Actor { rss: 8 * GIB, memory: pages(50), per_second, ..Actor::new(900_000, "mysqld") };
        let mut world = machine(TWO, vec![actor.runs(&[(0, cpus * 100.0)])]);
        each_second(&mut world, move |machine, second| {
            let remote = remote(second);
            machine.actors[0].memory = pages(remote);
        });
        world
    }

    #[test]
    fn fires() {
        let found = found(world(14.1, 4.0, |_| 50), 70, "balancing-cost");
        assert_eq!(found[0].severity, Severity::Warning);
        assert_eq!(
            found[0].advice.sentence,
            "NUMA balancing takes 14.1 % of mysqld's time, and the placement has not improved meanwhile."
        );
        let gain = &found[0].advice.gain;
        assert!((gain.at_least.unwrap() - 0.564).abs() < 0.01, "{gain:?}");
    }

    #[test]
    fn not_converging() {
        assert!(found(world(14.1, 4.0, |second| 90 - second as u32), 70, "balancing-cost").is_empty());
    }

    #[test]
    fn not_starting() {
        let mut world = world(14.1, 4.0, |_| 50);
        world.actors[0].start_ns = Some(BOOT_NS - 10 * S);
        assert!(found(world, 110, "balancing-cost").is_empty());
    }

    #[test]
    fn not_tiering() {
        let mut world = world(14.1, 4.0, |_| 50);
        Arc::make_mut(&mut world.host).topology.nodes[1].cpus.clear();
        let found = found(world, 70, "balancing-cost");
        assert!(found.iter().all(|finding| finding.severity == Severity::Info));
    }

    #[test]
    fn not_small() {
        assert!(found(world(8.0, 1.0, |_| 50), 70, "balancing-cost").is_empty());
    }

    #[test]
    fn of_a_placement_that_is_not_known_it_only_suspects() {
        let mut world = world(14.1, 4.0, |_| 50);
        world.plan = None;
        world.actors[0].memory.clear();
        let found = found(world, 70, "balancing-cost");
        assert_eq!(found[0].severity, Severity::Info);
    }
}

mod quota_throttled {
    use super::*;

    /// A container that uses this much of its quota in CPUs and is stopped for `throttled_ms` ms of each
    /// second.
    fn world(cpus: f64, quota_milli: u64, throttled_ms: u64) -> Machine {
        let actor = Actor { cgroup: DOCKER, ..Actor::new(600, "ads") };
        let mut world = machine(TWO, vec![actor.runs(&[(0, cpus * 100.0)])]);
        each_second(&mut world, move |machine, second| {
            let mut raw = files("0-31", "0-1");
            raw.cpu_quota_milli = Ok(Some(quota_milli));
            raw.read_ns = BOOT_NS + second * S;
            raw.throttled_ns = Ok(second * throttled_ms * 1_000_000);
            let before = second.saturating_sub(1);
            raw.throttled_before =
                (second > 0).then(|| (BOOT_NS + before * S, before * throttled_ms * 1_000_000));
            machine.groups = [(DOCKER, Arc::new(raw))].into();
        });
        world
    }

    #[test]
    fn fires() {
        let found = found(world(1.5, 2000, 600), 70, "quota-throttled");
        assert_eq!(found[0].severity, Severity::Warning);
        assert_eq!(
            found[0].advice.sentence,
            "3c0f6a4c2b9f is throttled in bursts: it uses 1.5 of its 2.0 CPUs on average, yet its quota stops it for 0.6 s \
             of each second."
        );
        let id = "3c0f6a4c2b9f1e8d7a6b5c4d3e2f1a0b9c8d7e6f5a4b3c2d1e0f9a8b7c6d5e4f";
        assert_eq!(commands(&found[0]), [format!("docker update --cpus 3 {id}")]);
        assert!((found[0].advice.gain.at_most.unwrap() - 0.6).abs() < 0.01);
    }

    /// Its quota is raised from 0.75 to 4 CPUs in second 70, by the printed command. The earlier throttled
    /// time over the new quota would look like bursts.
    #[test]
    fn a_quota_that_was_raised_makes_no_bursts() {
        let mut world = world(0.75, 750, 900);
        each_second(&mut world, |machine, second| {
            let (throttled_ms, quota_milli) = (second.min(70) * 900, if second < 70 { 750 } else { 4000 });
            machine.actors[0].runs = vec![(0, if second < 70 { 75.0 } else { 200.0 })];
            let mut raw = files("0-31", "0-1");
            (raw.cpu_quota_milli, raw.read_ns) = (Ok(Some(quota_milli)), BOOT_NS + second * S);
            raw.throttled_ns = Ok(throttled_ms * 1_000_000);
            let before = second.saturating_sub(1);
            raw.throttled_before = (second > 0).then(|| (BOOT_NS + before * S, before.min(70) * 900_000_000));
            machine.groups = [(DOCKER, Arc::new(raw))].into();
        });
        let (host, samples) = samples(world, 150, 1000);
        let engine = fold(&host, &samples).0;
        let ended: Vec<Severity> = engine.ended().map(|finding| finding.severity).collect();
        assert_eq!(ended, [Severity::Info], "{:?}", engine.findings());
        assert!(engine.findings().is_empty());
    }

    /// Most quotas of pods are below half a CPU, less than other rules look at.
    #[test]
    fn a_small_quota_is_found() {
        let found = found(world(0.3, 300, 900), 70, "quota-throttled");
        assert!(
            found[0].advice.sentence.contains("at its quota of 0.3 CPUs"),
            "{}",
            found[0].advice.sentence
        );
    }

    #[test]
    fn at_its_limit_it_is_an_info() {
        let found = found(world(2.0, 2000, 600), 70, "quota-throttled");
        assert_eq!(found[0].severity, Severity::Info);
    }

    #[test]
    fn not_host_busy() {
        let mut world = world(1.5, 2000, 600);
        world.actors.push(Actor::new(601, "spin").runs(&[(0, 1450.0), (1, 1550.0)]));
        assert!(found(world, 70, "quota-throttled").is_empty());
    }

    #[test]
    fn not_nice() {
        let mut world = world(1.5, 2000, 600);
        world.actors[0].nice = 19;
        assert!(found(world, 70, "quota-throttled").is_empty());
    }

    #[test]
    fn not_ancestor() {
        let mut world = world(1.5, 2000, 600);
        let plan = world.plan.take();
        let mut plan = plan.unwrap();
        each_second(&mut world, move |machine, second| {
            plan(machine, second);
            let raw = Arc::make_mut(machine.groups.get_mut(&DOCKER).unwrap());
            raw.cpu_quota_milli = Ok(None);
        });
        assert!(found(world, 70, "quota-throttled").is_empty());
    }

    #[test]
    fn little_is_nothing() {
        assert!(found(world(1.5, 2000, 200), 70, "quota-throttled").is_empty());
    }
}

mod nodes_hidden {
    use super::*;

    fn world(shape: Shape) -> Machine {
        machine(shape, vec![Actor::new(500, "work").runs(&[(0, 100.0)])])
    }

    const HIDDEN: Shape = Shape { nodes: 1, sockets: 2, cores: 16, ..TWO };

    #[test]
    fn fires() {
        let found = found(world(HIDDEN), 2, "nodes-hidden");
        assert_eq!(found[0].severity, Severity::Info);
        assert!(found[0].advice.sentence.starts_with("This machine has 2 sockets but shows 1 node"));
    }

    #[test]
    fn not_one_socket() {
        assert!(found(world(TWO), 5, "nodes-hidden").is_empty());
        assert!(found(world(Shape { sockets: 1, ..HIDDEN }), 5, "nodes-hidden").is_empty());
    }

    #[test]
    fn not_vm() {
        assert!(found(world(Shape { sockets: 16, ..HIDDEN }), 5, "nodes-hidden").is_empty());
        let mut world = world(HIDDEN);
        Arc::make_mut(&mut world.host).cpu_model = "QEMU Virtual CPU version 2.5+".into();
        assert!(found(world, 5, "nodes-hidden").is_empty());
    }
}
