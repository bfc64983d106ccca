//! Rules about devices and their interrupts.

use std::sync::Arc;

use numatop_ng::finding::{Confidence, Finding, Severity};
use numatop_ng::model::accelerators::Accelerator;
use numatop_ng::model::sample::Missing;
use numatop_ng::model::topology::{Device, DeviceClass};
use numatop_ng::model::units::NodeId;

use crate::sick_worlds::device;
use crate::world::{
    Actor, DOCKER, GIB, Machine, Shape, TWO, blind, commands, each_second, files, found, machine, pages,
};

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
        let not_kept = Missing::NotCollected("not recorded".into());
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

pub mod gpu_away {
    use super::*;

    const ID: &str = "gpu-away";

    fn gpu(name: &str, nodes: &[u32]) -> Accelerator {
        Accelerator {
            name: name.into(),
            functions: vec!["0000:81:00.0".into()],
            nodes: nodes.iter().copied().map(NodeId).collect(),
            is_nodeless: nodes.is_empty(),
        }
    }

    /// A process that runs here with this share of its memory on node 1, and holds these accelerators.
    fn holding(runs: &[(u32, f64)], remote: u32, held: &[Accelerator]) -> Machine {
        let actor = Actor { rss: 8 * GIB, memory: pages(remote), cgroup: 1, ..Actor::new(4242, "train") };
        let mut world = machine(TWO, vec![actor.runs(runs)]);
        world.held = vec![(4242, held.to_vec())];
        world
    }

    /// On node 0 with a GPU on node 1.
    pub fn world() -> Machine {
        holding(&[(0, 200.0)], 0, &[gpu("nvidia0", &[1])])
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
            "train holds nvidia0 on node 1, and spends 100 % of its time on other nodes."
        );
        let lines = commands(&found[0]);
        assert_eq!(lines[..2], ["taskset -acp 8-15,24-31 4242", "migratepages 4242 0 1"]);
        assert!(!found[0].advice.undo.is_empty() && found[0].advice.gain.at_most.is_none());
    }

    #[test]
    fn memory_far_from_the_gpu_counts_too() {
        let found = it(holding(&[(1, 200.0)], 30, &[gpu("nvidia0", &[1])]));
        assert_eq!(found[0].confidence, Confidence::Estimated);
        assert_eq!(
            found[0].advice.sentence,
            "train holds nvidia0 on node 1 and runs there, and 70.0 +-3.1 % of its memory is on node 0."
        );
        assert!(it(holding(&[(1, 200.0)], 60, &[gpu("nvidia0", &[1])])).is_empty());
    }

    #[test]
    fn a_process_that_holds_none_is_left_alone() {
        assert!(it(holding(&[(0, 200.0)], 0, &[])).is_empty());
        assert!(it(holding(&[(0, 79.0), (1, 21.0)], 0, &[gpu("nvidia0", &[1])])).is_empty());
    }

    #[test]
    fn where_nothing_lists_open_files_it_is_blind() {
        let mut world = world();
        let why = Missing::Unsupported("the kernel lacks it".into());
        Arc::make_mut(&mut world.host).missing.insert("accelerators".into(), why);
        assert!(blind(world, 70, ID).unwrap().starts_with("not_supported"));
    }

    #[test]
    fn not_several() {
        let both = [gpu("nvidia0", &[0]), gpu("nvidia1", &[1])];
        assert!(it(holding(&[(0, 200.0)], 0, &both)).is_empty());
        assert!(it(holding(&[(0, 200.0)], 0, &[gpu("vfio/12", &[1, 2])])).is_empty());
    }

    #[test]
    fn not_nodeless() {
        let some = [gpu("nvidia0", &[1]), gpu("nvidia1", &[])];
        assert!(it(holding(&[(0, 200.0)], 0, &some)).is_empty());
        assert!(it(holding(&[(0, 200.0)], 0, &[gpu("kfd", &[])])).is_empty());
    }

    #[test]
    fn not_no_cpus() {
        let actor = Actor { rss: 8 * GIB, cgroup: 1, ..Actor::new(4242, "train") };
        let mut world = machine(Shape { nodes: 4, ..TWO }, vec![actor.runs(&[(0, 200.0)])]);
        world.held = vec![(4242, vec![gpu("nvidia0", &[3])])];
        let topology = &mut Arc::make_mut(&mut world.host).topology;
        topology.nodes[3].cpus.clear();
        for cpu in topology.cpus.iter_mut().filter(|cpu| cpu.node == Some(NodeId(3))) {
            cpu.online = false;
        }
        assert!(it(world).is_empty());
    }

    #[test]
    fn not_bound_away() {
        let mut world = world();
        world.actors[0].cgroup = DOCKER;
        world.groups = [(DOCKER, Arc::new(files("0-7,16-23", "0-1")))].into();
        let found = it(world);
        assert_eq!(
            found[0].advice.sentence,
            "train holds nvidia0 on node 1, and spends 100 % of its time on other nodes, because its cpuset has CPUs 0-7,16-23 only."
        );
        assert!(commands(&found[0]).is_empty() && found[0].advice.undo.is_empty());
        assert_eq!(found[0].advice.commands[0].words, "add CPUs of node 1 to its cpuset: 8-15,24-31");
    }

    #[test]
    fn not_idle() {
        assert!(it(holding(&[(0, 40.0)], 0, &[gpu("nvidia0", &[1])])).is_empty());
    }

    #[test]
    fn not_display() {
        assert!(it(holding(&[(0, 200.0)], 0, &[gpu("card0", &[1])])).is_empty());
        assert_eq!(it(holding(&[(0, 200.0)], 0, &[gpu("card0", &[1]), gpu("renderD128", &[1])])).len(), 1);
    }

    #[test]
    fn not_small() {
        let mut world = holding(&[(1, 200.0)], 0, &[gpu("nvidia0", &[1])]);
        world.actors[0].rss = GIB / 8;
        assert!(it(world).is_empty());
    }
}

mod device_node_unknown {
    use super::*;

    const ID: &str = "device-node-unknown";

    fn world(devices: &[(&str, DeviceClass)]) -> Machine {
        let mut world = machine(TWO, vec![Actor::new(500, "work").runs(&[(0, 100.0)])]);
        let unplaced =
            devices.iter().map(|(name, class)| Device { node: None, ..device(name, *class, 0, &[]) });
        Arc::make_mut(&mut world.host).topology.unplaced_devices = unplaced.collect();
        world
    }

    const ALL: [(&str, DeviceClass); 5] = [
        ("eth0", DeviceClass::Net),
        ("nvme0", DeviceClass::Nvme),
        ("0000:03:00.0", DeviceClass::Gpu),
        ("0000:04:00.0", DeviceClass::Gpu),
        ("0000:05:00.0", DeviceClass::Storage),
    ];

    #[test]
    fn fires() {
        let found = found(world(&ALL), 5, ID);
        assert_eq!(found[0].severity, Severity::Info);
        assert_eq!(
            found[0].advice.sentence,
            "The firmware does not give the node of 4 devices: eth0, nvme0, 0000:03:00.0 and 1 more."
        );
        assert!(commands(&found[0]).is_empty() && found[0].advice.commands[1].words.contains("taints"));
    }

    #[test]
    fn a_node_that_is_offline_is_known() {
        let mut world = world(&ALL[..1]);
        Arc::make_mut(&mut world.host).topology.unplaced_devices[0].node = Some(NodeId(7));
        assert!(found(world, 5, ID).is_empty());
    }

    #[test]
    fn not_one_node() {
        let mut world = machine(Shape { nodes: 1, sockets: 1, ..TWO }, vec![]);
        let gpu = Device { node: None, ..device("0000:03:00.0", DeviceClass::Gpu, 0, &[]) };
        Arc::make_mut(&mut world.host).topology.unplaced_devices = vec![gpu];
        assert!(found(world, 5, ID).is_empty());
    }

    #[test]
    fn not_vm() {
        let mut world = world(&ALL);
        Arc::make_mut(&mut world.host).cpu_model = "QEMU Virtual CPU".into();
        assert!(found(world, 5, ID).is_empty());
    }

    #[test]
    fn not_other_bus() {
        let mut world = world(&ALL[..1]);
        Arc::make_mut(&mut world.host).topology.unplaced_devices[0].pci = None;
        assert!(found(world, 5, ID).is_empty());
    }
}
