//! Rules about huge pages.

use std::sync::Arc;

use numatop_ng::finding::{Confidence, Finding, Severity};
use numatop_ng::model::event::Role;

use crate::world::{
    Actor, GIB, Machine, TWO, blind, count_also, each_second, found_in, machine, pages, read_about, samples,
};

mod tlb_misses {
    use super::*;

    const ID: &str = "tlb-misses";

    /// A virtual machine of Java with this many TLB misses for data in a second, at 2 * 10⁹ instructions and
    /// 4 * 10⁹ cycles.
    fn world(misses: u64) -> Machine {
        let actor = Actor { rss: 20 * GIB, memory: pages(0), ipc: 0.5, ..Actor::new(900, "java") };
        let mut world = machine(TWO, vec![actor.runs(&[(0, 200.0)])]);
        let slot = count_also(&mut world, &[Role::Dtlb, Role::Itlb]);
        world.actors[0].per_second.slots[slot].count = misses;
        world.actors[0].per_second.slots[slot + 1].count = 1000;
        each_second(&mut world, move |machine, _| {
            machine.cpus[0].slots[slot].count += misses;
            machine.cpus[0].slots[slot + 1].count += 1000;
        });
        world
    }

    fn watched(world: Machine, huge_pct: f64) -> Vec<Finding> {
        let (host, mut samples) = samples(world, 70, 1000);
        read_about(&mut samples, 900, "0-31", huge_pct);
        found_in(&host, &samples, ID)
    }

    #[test]
    fn fires() {
        // 3 misses in 1,000 cycles: 35 cycles each are 10.5 %.
        let found = watched(world(12_100_000), 0.0);
        assert_eq!((found[0].severity, found[0].confidence), (Severity::Info, Confidence::Estimated));
        assert_eq!(
            found[0].advice.sentence,
            "java spends about 10.6 % of its cycles in page walks; 0.0 % of its memory is in huge pages."
        );
        assert!(found[0].advice.commands[0].words.contains("-XX:+UseTransparentHugePages"));
    }

    #[test]
    fn not_has_huge() {
        assert!(watched(world(12_100_000), 90.0).is_empty());
    }

    #[test]
    fn not_small() {
        let mut world = world(12_100_000);
        world.actors[0].rss = 60 << 20;
        assert!(watched(world, 0.0).is_empty());
    }

    #[test]
    fn not_few() {
        assert!(watched(world(8_000_000), 0.0).is_empty());
    }

    #[test]
    fn a_guest_is_named() {
        let mut world = world(12_100_000);
        Arc::make_mut(&mut world.host).cpu_model = "QEMU Virtual CPU version 2.5+".into();
        assert!(watched(world, 0.0)[0].advice.or_else[0].contains("guest"));
    }

    #[test]
    fn without_its_inputs_it_is_blind() {
        assert!(blind(world(12_100_000), 70, ID).unwrap().contains("huge pages"));
        assert!(blind(machine(TWO, vec![Actor::new(900, "java").runs(&[(0, 200.0)])]), 70, ID).is_some());
    }
}
