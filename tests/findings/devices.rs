//! Rules about devices and their interrupts.

use std::sync::Arc;

use numatop_ng::finding::Severity;
use numatop_ng::model::sample::Missing;
use numatop_ng::model::topology::{Device, DeviceClass};
use numatop_ng::model::units::NodeId;

use crate::sick_worlds::device;
use crate::world::{Actor, Machine, Shape, TWO, blind, commands, each_second, found, machine};

mod interrupts_off_node {
    use super::*;

    const ID: &str = "interrupts-off-node";

    /// A network card on node 0 whose interrupts go to these nodes, and node 1 in interrupts for `irq_ms` ms
    /// of each second. Nothing counts single interrupts, as in older recordings.
    fn world(irq_nodes: &[u32], irq_ms: u64) -> Machine {
        let mut world = machine(TWO, vec![Actor::new(500, "work").runs(&[(0, 100.0)])]);
        Arc::make_mut(&mut world.host).topology.nodes[0].devices.push(device(
            "eth0",
            DeviceClass::Net,
            0,
            irq_nodes,
        ));
        let not_kept = Missing::NotCollected("it was not kept".into());
        Arc::make_mut(&mut world.host).missing.insert("device_irqs_per_s".into(), not_kept);
        each_second(&mut world, move |machine, _| {
            machine
                .cpus
                .iter_mut()
                .filter(|cpu| cpu.node == 1)
                .for_each(|cpu| *cpu.irq_ns.get_or_insert_default() += irq_ms * 1_000_000);
        });
        world
    }

    #[test]
    fn fires() {
        let found = found(world(&[1], 50), 70, ID);
        assert_eq!(found[0].severity, Severity::Info);
        assert_eq!(found[0].key.subject.to_string(), "device eth0");
        assert_eq!(
            found[0].advice.sentence,
            "eth0 is on node 0, and all of its interrupts go to CPUs of node 1."
        );
        assert_eq!(
            commands(&found[0]),
            [
                "grep . /proc/irq/*/smp_affinity_list > /root/irq-before.txt",
                "for i in /sys/bus/pci/devices/0000:3b:00.0/msi_irqs/*; do echo 0-7,16-23 > \
                 /proc/irq/${i##*/}/smp_affinity_list; done"
            ]
        );
        for line in commands(&found[0]) {
            assert!(
                std::process::Command::new("sh").args(["-n", "-c", &line]).status().unwrap().success(),
                "{line}"
            );
        }
    }

    /// The same with interrupts per second by node that are counted.
    fn counted(by_node: &[(u32, u64)], irq_nodes: &[u32]) -> Machine {
        let mut world = world(irq_nodes, 50);
        Arc::make_mut(&mut world.host).missing.clear();
        world.irq_rates =
            by_node.iter().map(|(node, rate)| (("0000:3b:00.0".into(), *node), *rate)).collect();
        world
    }

    #[test]
    fn what_is_counted_says_more_than_lists() {
        // A queue at home has next to nothing, and the list of CPUs names both nodes.
        let found = found(counted(&[(0, 400), (1, 40_600)], &[0, 1]), 70, ID);
        let told = &found[0].advice;
        assert_eq!(
            told.sentence,
            "eth0 is on node 0, and CPUs of node 1 handle 99.0 % of its 41k interrupts a second."
        );
        let check = &told.check[0];
        assert_eq!((check.metric, check.below), ("device_irqs_away_pct", true));
        assert!((check.from - 99.0).abs() < 0.1 && (check.to - 19.8).abs() < 0.1, "{check:?}");
        assert!(!told.undo.is_empty());
    }

    #[test]
    fn a_device_that_is_not_counted_yet_is_no_matter_of_lists() {
        let mut world = world(&[1], 50);
        Arc::make_mut(&mut world.host).missing.clear();
        assert!(blind(world, 70, ID).is_some_and(|why| why.contains("counted only once")));
    }

    #[test]
    fn many_nodes_that_handle_a_little_each_are_all_named() {
        let shape = Shape { nodes: 8, cores: 4, sockets: 8, ..TWO };
        let mut world = machine(shape, vec![Actor::new(500, "work").runs(&[(0, 100.0)])]);
        let topology = &mut Arc::make_mut(&mut world.host).topology;
        topology.nodes[0].devices = vec![device("eth0", DeviceClass::Net, 0, &[1, 2, 3, 4, 5, 6, 7])];
        world.irq_rates =
            (1..8).map(|node| (("0000:3b:00.0".into(), node), if node == 1 { 9000 } else { 200 })).collect();
        each_second(&mut world, |machine, _| {
            machine
                .cpus
                .iter_mut()
                .filter(|cpu| cpu.node > 0)
                .for_each(|cpu| *cpu.irq_ns.get_or_insert_default() += 50_000_000);
        });
        let found = found(world, 70, ID);
        assert!(
            found[0].advice.sentence.contains("CPUs of nodes 1-7 handle 100 %"),
            "{}",
            found[0].advice.sentence
        );
    }

    #[test]
    fn of_two_devices_away_one_moves_its_part_of_the_share() {
        let mut world = counted(&[(1, 30_000)], &[1]);
        let devices = &mut Arc::make_mut(&mut world.host).topology.nodes[0].devices;
        let twin = Device { name: "eth1".into(), pci: Some("0000:3b:00.1".into()), ..devices[0].clone() };
        devices.push(twin);
        world.irq_rates.insert(("0000:3b:00.1".into(), 1), 10_000);
        let found = found(world, 70, ID);
        let to: Vec<f64> = found.iter().map(|finding| finding.advice.check[0].to.round()).collect();
        assert_eq!(to, [40.0, 80.0], "three quarters and a quarter, of each a fifth may stay");
    }

    #[test]
    fn without_a_count_of_a_neighbour_there_is_no_check() {
        let mut world = counted(&[(1, 30_000)], &[1]);
        let devices = &mut Arc::make_mut(&mut world.host).topology.nodes[0].devices;
        let silent = Device { name: "eth1".into(), pci: Some("0000:3b:00.1".into()), ..devices[0].clone() };
        devices.push(silent);
        let found = found(world, 70, ID);
        let counted = found.iter().find(|finding| finding.key.subject.to_string() == "device eth0").unwrap();
        assert!(counted.advice.check.is_empty() && !counted.advice.commands.is_empty());
    }

    #[test]
    fn an_address_that_is_none_is_in_no_command() {
        let mut world = world(&[1], 50);
        Arc::make_mut(&mut world.host).topology.nodes[0].devices[0].pci = Some("$(reboot)".into());
        let found = found(world, 70, ID);
        assert!(commands(&found[0]).iter().all(|line| !line.contains("reboot")), "{:?}", commands(&found[0]));
    }

    #[test]
    fn not_no_cpus() {
        let mut world = world(&[1], 50);
        let topology = &mut Arc::make_mut(&mut world.host).topology;
        topology.nodes[0].cpus.clear();
        topology.cpus.iter_mut().filter(|cpu| cpu.node == Some(NodeId(0))).for_each(|cpu| cpu.online = false);
        assert!(found(world, 70, ID).is_empty());
    }

    #[test]
    fn not_isolated() {
        let mut world = world(&[1], 50);
        Arc::make_mut(&mut world.host).isolated_cpus = (0..8).chain(16..24).collect();
        assert!(found(world, 70, ID).is_empty());
    }

    #[test]
    fn not_partly() {
        assert!(found(world(&[0, 1], 50), 70, ID).is_empty());
        assert!(found(counted(&[(0, 8_000), (1, 33_000)], &[1]), 70, ID).is_empty(), "a fifth is at home");
    }

    #[test]
    fn not_few() {
        assert!(found(world(&[1], 10), 70, ID).is_empty());
        // Something else keeps the CPUs of node 1 busy with interrupts.
        assert!(found(counted(&[(1, 900)], &[1]), 70, ID).is_empty());
    }

    #[test]
    fn not_nodeless() {
        assert!(found(world(&[], 50), 70, ID).is_empty());
        let mut unplaced = world(&[1], 50);
        let topology = &mut Arc::make_mut(&mut unplaced.host).topology;
        let device = topology.nodes[0].devices.pop().unwrap();
        topology.unplaced_devices.push(Device { node: None, ..device });
        assert!(found(unplaced, 70, ID).is_empty());
    }
}
