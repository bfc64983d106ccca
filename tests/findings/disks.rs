//! Disks on other nodes than the one where a container runs.

use std::sync::Arc;

use numatop_ng::finding::{Confidence, End, Finding, Severity};
use numatop_ng::model::disks::{DiskUse, DisksUsed};
use numatop_ng::model::sample::{CgroupFacts, CgroupMode, GroupCounters, GroupRaw};
use numatop_ng::model::topology::{Device, DeviceClass};
use numatop_ng::model::units::NodeId;

use crate::world::{
    Actor, DOCKER, GIB, Machine, PLAIN, S, TWO, blind, commands, each_second, files, found, lines, machine,
    pages, watch,
};

pub mod far_device {
    use super::*;

    const ID: &str = "far-device";

    /// Addresses of a disk on each node.
    const NEAR: &str = "0000:3b:00.0";
    const FAR: &str = "0000:81:00.0";

    const MB: u64 = 1_000_000;

    /// Files of a group that used disks so much in a second: address, bytes, requests.
    fn using(disks: &[(&str, u64, u64)]) -> GroupRaw {
        let used = disks.iter().map(|(address, bytes, requests)| {
            ((*address).to_owned(), DiskUse { bytes: *bytes, requests: *requests })
        });
        GroupRaw {
            read_ns: 2 * S,
            counters_before: Some(GroupCounters { read_ns: S, ..GroupCounters::default() }),
            disks: Ok(used.collect()),
            disks_before: Some(DisksUsed::new()),
            ..files("0-31", "0-1")
        }
    }

    fn disk(name: &str, address: &str, node: u32) -> Device {
        Device {
            name: name.into(),
            class: DeviceClass::Nvme,
            pci: Some(address.into()),
            node: Some(NodeId(node)),
            irq_nodes: vec![],
        }
    }

    /// A database on node 0, in this cgroup, with a disk on each node.
    fn world_in(cgroup: u64, disks: &[(&str, u64, u64)]) -> Machine {
        let actor = Actor { rss: 8 * GIB, memory: pages(0), cgroup, ..Actor::new(4242, "mysqld") };
        let mut world = machine(TWO, vec![actor.runs(&[(0, 200.0)])]);
        let host = Arc::make_mut(&mut world.host);
        host.topology.nodes[0].devices.push(disk("nvme0", NEAR, 0));
        host.topology.nodes[1].devices.push(disk("nvme1", FAR, 1));
        host.cgroups = Some(CgroupFacts {
            mode: CgroupMode::V2,
            memory_migrate: None,
            memory_spread_page: None,
            memory_spread_slab: None,
        });
        world.groups = [(cgroup, Arc::new(using(disks)))].into();
        world
    }

    pub fn world() -> Machine {
        world_in(DOCKER, &[(FAR, 95 * MB, 900), (NEAR, 5 * MB, 100)])
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
            "3c0f6a4c2b9f runs on node 0, but 95.0 % of its 95.4 MiB/s of disk traffic goes to disks of node 1 (nvme1)."
        );
        let lines = commands(&found[0]);
        assert!(
            lines[0].starts_with("docker update --cpuset-cpus 8-15,24-31 --cpuset-mems 1 3c0f6a4c2b9f"),
            "{lines:?}"
        );
        let words: Vec<&str> =
            found[0].advice.commands.iter().map(|command| command.words.as_str()).collect();
        assert!(words.last().unwrap().ends_with("a disk of node 0: nvme0"), "{words:?}");
        assert!(found[0].advice.gain.at_most.is_none() && !found[0].advice.undo.is_empty());
    }

    #[test]
    fn with_the_printed_lists_it_ends() {
        let mut world = world();
        each_second(&mut world, |machine, second| {
            if second == 100 {
                let actor = &mut machine.actors[0];
                (actor.runs, actor.memory) = (vec![(1, 200.0)], pages(100));
            }
        });
        let engine = watch(world, 190);
        assert!(engine.findings().iter().all(|finding| finding.key.id != ID), "{:?}", lines(&engine));
        let ended: Vec<_> = engine.ended().filter(|finding| finding.key.id == ID).collect();
        assert_eq!(
            ended.iter().map(|finding| finding.end.map(|(end, _)| end)).collect::<Vec<_>>(),
            [Some(End::Cleared)]
        );
    }

    #[test]
    fn where_it_does_not_fit_no_command_is_printed() {
        let mut world = world();
        world.nodes[1].mem_free_bytes = GIB;
        world.nodes[1].file_pages = Some(Default::default());
        let found = it(world);
        assert!(
            commands(&found[0]).is_empty()
                && found[0].advice.undo.is_empty()
                && found[0].advice.risk.is_empty()
        );
        assert!(
            found[0].advice.commands[0].words.contains("too little room for its memory"),
            "{:?}",
            found[0].advice.commands
        );
    }

    #[test]
    fn many_small_requests_are_as_much() {
        let few = it(world_in(DOCKER, &[(FAR, 20 * MB, 4_900)]));
        let many = it(world_in(DOCKER, &[(FAR, 20 * MB, 5_000)]));
        assert_eq!((few.len(), many.len()), (0, 1));
        assert_eq!(many[0].evidence[1].metric, "disk_requests_per_s");
    }

    #[test]
    fn files_that_were_not_kept_make_it_blind() {
        let mut world = world();
        let raw =
            GroupRaw { counters_before: Some(GroupCounters::default()), read_ns: S, ..files("0-31", "0-1") };
        world.groups = [(DOCKER, Arc::new(raw))].into();
        let why = blind(world, 70, ID).unwrap();
        assert_eq!(why, "not_collected: not recorded");
    }

    /// The same process in no container, whose own traffic is counted.
    fn process_world() -> Machine {
        let mut world = world_in(1, &[]);
        world.groups.clear();
        world.disk_rates =
            vec![(4242, FAR.into(), NodeId(0), 95 * MB, 900), (4242, NEAR.into(), NodeId(0), 5 * MB, 100)];
        world
    }

    #[test]
    fn a_process_in_no_container_is_one_by_itself() {
        let found = it(process_world());
        assert_eq!((found[0].severity, found[0].confidence), (Severity::Info, Confidence::Measured));
        assert_eq!(
            found[0].advice.sentence,
            "mysqld runs on node 0, but 95.0 % of its 95.4 MiB/s of disk traffic goes to disks of node 1 (nvme1)."
        );
        assert_eq!(found[0].evidence[0].value, 95.0);
        let lines = commands(&found[0]);
        assert!(lines[0].contains("8-15,24-31") && lines[0].ends_with("4242"), "{lines:?}");
        let mut few = process_world();
        few.disk_rates[0].3 = 40 * MB;
        assert!(it(few).is_empty());
    }

    #[test]
    fn not_writes_back() {
        let written = |bytes| {
            let mut world = world();
            world.written_back = vec![(DOCKER, FAR.into(), bytes)];
            it(world).len()
        };
        assert_eq!((written(40 * MB), written(60 * MB)), (1, 0));
    }

    #[test]
    fn not_in_container() {
        let mut world = world_in(DOCKER, &[(NEAR, 95 * MB, 900)]);
        world.disk_rates = vec![(4242, FAR.into(), NodeId(0), 95 * MB, 900)];
        assert!(it(world).is_empty());
    }

    #[test]
    fn not_nodeless() {
        let mut unplaced = world();
        let topology = &mut Arc::make_mut(&mut unplaced.host).topology;
        let device = topology.nodes[1].devices.pop().unwrap();
        topology.unplaced_devices.push(Device { node: None, ..device });
        assert!(it(unplaced).is_empty());
        assert!(it(world_in(DOCKER, &[("", 95 * MB, 900), (FAR, 5 * MB, 100)])).is_empty());
    }

    #[test]
    fn not_cached() {
        assert!(it(world_in(DOCKER, &[(FAR, 49 * MB, 900)])).is_empty());
        assert!(it(world_in(DOCKER, &[])).is_empty());
    }

    #[test]
    fn not_several_nodes() {
        let mut world = world();
        world.actors[0].runs = vec![(0, 150.0), (1, 50.0)];
        assert!(it(world).is_empty());
    }

    #[test]
    fn not_near() {
        assert!(it(world_in(DOCKER, &[(FAR, 79 * MB, 900), (NEAR, 21 * MB, 100)])).is_empty());
    }

    #[test]
    fn not_group() {
        assert!(it(world_in(PLAIN, &[(FAR, 95 * MB, 900)])).is_empty());
    }
}
