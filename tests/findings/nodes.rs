//! Rules about nodes against each other: where work is bound, where memory is turned over, and the firmware's
//! distances.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use numatop_ng::container::group::describe;
use numatop_ng::container::names::ContainerNames;
use numatop_ng::finding::{Confidence, Severity};
use numatop_ng::model::sample::{Counts, FilePages, MemPolicy};
use numatop_ng::model::topology::{Cost, Device, DeviceClass, Topology};
use numatop_ng::model::units::NodeId;

use crate::sick_worlds;
use crate::world::{
    Actor, DOCKER, GIB, HIDDEN, Machine, OTHER_DOCKER, S, Shape, TWO, blind, commands, each_second, files,
    found, lines, machine, pages, undo, watch,
};

pub mod lopsided_nodes {
    use super::*;

    const ID: &str = "lopsided-nodes";

    /// Two containers that are bound to node 0 and wait there; node 1 idles.
    pub fn world() -> Machine {
        let bound = |pid: u32, comm: &str, cgroup: u64, pct: f64| {
            let actor = Actor {
                cgroup,
                cpu_nodes: Some(1),
                wait_pct: 200.0,
                rss: 8 * GIB,
                memory: pages(0),
                ..Actor::new(pid, comm)
            };
            actor.runs(&[(0, pct)])
        };
        let actors = vec![bound(600, "cart", DOCKER, 400.0), bound(601, "web", OTHER_DOCKER, 1100.0)];
        let mut world = machine(TWO, actors);
        let raw = Arc::new(files("0-7,16-23", "0-1"));
        world.groups = [(DOCKER, Arc::clone(&raw)), (OTHER_DOCKER, raw)].into();
        world
    }

    #[test]
    fn fires() {
        let found = found(world(), 70, ID);
        assert_eq!((found[0].severity, found[0].confidence), (Severity::Warning, Confidence::Estimated));
        assert_eq!(found[0].key.subject.to_string(), "node 0");
        assert_eq!(
            found[0].advice.sentence,
            "Node 0 is 93.8 % busy and tasks wait; node 1 is 0.0 % busy. 2 processes or containers are bound to node 0; 3c0f6a4c2b9f would fit on node 1."
        );
        let bind = &commands(&found[0])[0];
        assert!(bind.starts_with("docker update --cpuset-cpus 8-15,24-31 --cpuset-mems 1 3c0f"), "{bind}");
    }

    #[test]
    fn what_undoes_it_has_both_lists_where_they_are_two_lines() {
        let mut world = world();
        let mut names = (*world.names).clone();
        names.cgroups.insert(DOCKER, "/lxc.payload.cart".into());
        names.groups =
            describe(&names.cgroups, &BTreeMap::new(), &mut ContainerNames::new(Path::new("/none")));
        world.names = Arc::new(names);
        let found = found(world, 70, ID);
        assert_eq!(
            commands(&found[0]),
            [
                "lxc-cgroup -n cart cpuset.cpus 8-15,24-31",
                "lxc-cgroup -n cart cpuset.mems 1",
                "migratepages 600 0 1"
            ]
        );
        assert_eq!(
            undo(&found[0]),
            [
                "lxc-cgroup -n cart cpuset.cpus 0-7,16-23",
                "lxc-cgroup -n cart cpuset.mems 0-1",
                "migratepages 600 1 0"
            ]
        );
    }

    #[test]
    fn not_isolated() {
        let mut world = world();
        Arc::make_mut(&mut world.host).isolated_cpus = (8..16).chain(24..32).collect();
        assert!(found(world, 70, ID).is_empty());
    }

    #[test]
    fn not_reserved() {
        let mut world = world();
        world.groups.insert(11, Arc::new(files("8-15", "1")));
        world.actors.push(Actor { cgroup: 11, ..Actor::new(700, "mysqld") });
        assert!(found(world, 70, ID).is_empty());
    }

    #[test]
    fn not_unbound() {
        let mut world = world();
        world.actors.iter_mut().for_each(|actor| actor.cpu_nodes = None);
        assert!(found(world, 70, ID).is_empty());
    }

    #[test]
    fn not_one_subject() {
        let mut world = world();
        world.actors[1].cgroup = DOCKER;
        assert!(found(world, 70, ID).is_empty());
    }

    #[test]
    fn not_no_smt_room() {
        let mut world = world();
        // 9.6 cores take 8.2 CPUs at 85 %, in memory or time.
        world.actors[0].runs = vec![(0, 700.0)];
        world.actors[1].runs = vec![(0, 850.0)];
        world.actors.push(Actor::new(602, "other").runs(&[(1, 300.0)]));
        assert!(found(world, 70, ID).is_empty());
        let mut full = super::lopsided_nodes::world();
        full.nodes[1].mem_free_bytes = 4 * GIB;
        full.nodes[1].mem_file_bytes = 0;
        assert!(found(full, 70, ID).is_empty());
    }

    #[test]
    fn not_throttled() {
        let mut world = world();
        each_second(&mut world, |machine, second| {
            let mut raw = files("0-7,16-23", "0-1");
            let (now, before) = (second, second.saturating_sub(1));
            raw.read_ns = crate::world::BOOT_NS + now * S;
            raw.throttled_ns = Ok(now * 2 * S);
            raw.throttled_before =
                (second > 0).then_some((crate::world::BOOT_NS + before * S, before * 2 * S));
            let raw = Arc::new(raw);
            machine.groups = [(DOCKER, Arc::clone(&raw)), (OTHER_DOCKER, raw)].into();
        });
        assert!(found(world, 70, ID).is_empty());
    }

    /// CPUs of the sockets of a machine that shows one node.
    const SOCKET_0: &str = "0-25,52-77";

    /// The same where the firmware hides nodes: two containers with cpusets of socket 0.
    fn hidden() -> Machine {
        let bound = |pid: u32, comm: &str, cgroup: u64, pct: f64| {
            let actor = Actor {
                cgroup,
                socket: Some(0),
                allowed: Some(52),
                wait_pct: 700.0,
                rss: 8 * GIB,
                memory: vec![1024],
                ..Actor::new(pid, comm)
            };
            actor.runs(&[(0, pct)])
        };
        let actors = vec![bound(600, "cart", DOCKER, 1200.0), bound(601, "web", OTHER_DOCKER, 3600.0)];
        let mut world = machine(HIDDEN, actors);
        let raw = Arc::new(files(SOCKET_0, "0"));
        world.groups = [(DOCKER, Arc::clone(&raw)), (OTHER_DOCKER, raw)].into();
        world
    }

    #[test]
    fn sockets_are_compared_where_nodes_are_hidden() {
        let found = found(hidden(), 70, ID);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].severity, found[0].confidence), (Severity::Warning, Confidence::Estimated));
        assert_eq!(found[0].key.to_string(), "lopsided-nodes/socket 0");
        assert_eq!(
            found[0].advice.sentence,
            "Socket 0 is 92.3 % busy and tasks wait; socket 1 is 0.0 % busy. 2 processes or containers are bound to socket 0; 3c0f6a4c2b9f would fit on socket 1."
        );
        let id = "3c0f6a4c2b9f1e8d7a6b5c4d3e2f1a0b9c8d7e6f5a4b3c2d1e0f9a8b7c6d5e4f";
        assert_eq!(commands(&found[0]), [format!("docker update --cpuset-cpus 26-51,78-103 {id}")]);
        assert_eq!(undo(&found[0]), [format!("docker update --cpuset-cpus {SOCKET_0} {id}")]);
    }

    #[test]
    fn the_printed_command_ends_the_lopsided_sockets() {
        let mut world = hidden();
        each_second(&mut world, |machine, second| {
            if second == 70 {
                machine.groups.insert(DOCKER, Arc::new(files("26-51,78-103", "0")));
                machine.actors[0].socket = Some(1);
                machine.actors.iter_mut().for_each(|actor| actor.wait_pct = 0.0);
            }
        });
        assert!(found(world, 200, ID).is_empty());
    }

    #[test]
    fn not_isolated_unbound_or_alone_on_sockets() {
        let mut isolated = hidden();
        Arc::make_mut(&mut isolated.host).isolated_cpus = (26..52).chain(78..104).collect();
        assert!(found(isolated, 70, ID).is_empty());
        let mut unbound = hidden();
        unbound.groups.clear();
        unbound.actors.iter_mut().for_each(|actor| actor.allowed = None);
        assert!(found(unbound, 70, ID).is_empty());
        let mut one = hidden();
        one.actors[1].cgroup = DOCKER;
        assert!(found(one, 70, ID).is_empty());
        let mut both = hidden();
        both.groups = [DOCKER, OTHER_DOCKER].map(|id| (id, Arc::new(files("0-77", "0")))).into();
        both.actors.iter_mut().for_each(|actor| actor.allowed = Some(78));
        assert!(found(both, 70, ID).is_empty());
        // 31.2 cores take 26.5 CPUs at 85 %.
        let mut large = hidden();
        (large.actors[0].runs, large.actors[1].runs) = (vec![(0, 2000.0)], vec![(0, 2800.0)]);
        large.actors.push(Actor { socket: Some(1), ..Actor::new(602, "other").runs(&[(0, 1200.0)]) });
        assert!(found(large, 70, ID).is_empty());
    }

    #[test]
    fn without_the_lists_of_bound_processes_it_is_blind_about_sockets() {
        let mut world = hidden();
        world.groups.clear();
        let why = blind(world, 70, ID).unwrap();
        assert_eq!(why, "no_input: the CPUs to which processes are bound are not known");
    }

    #[test]
    fn without_waits_a_full_node_is_no_matter() {
        let mut world = world();
        world.actors.iter_mut().for_each(|actor| actor.wait_pct = 20.0);
        assert!(found(world, 70, ID).is_empty());
    }
}

mod interleaved_on_one_node {
    use super::*;

    const ID: &str = "interleaved-on-one-node";

    fn world() -> Machine {
        let actor = Actor {
            rss: 8 * GIB,
            memory: pages(50),
            mempolicy: MemPolicy { mode: 3, flags: 0, nodes: 3 },
            ..Actor::new(900, "redis")
        };
        machine(TWO, vec![actor.runs(&[(0, 100.0)])])
    }

    #[test]
    fn fires() {
        let found = found(world(), 70, ID);
        // Nothing counts accesses on this machine: bandwidth may be the reason.
        assert_eq!((found[0].severity, found[0].confidence), (Severity::Info, Confidence::Suspected));
        assert_eq!(
            found[0].advice.sentence,
            "redis interleaves its memory over 2 nodes but runs on node 0, where all of it fits."
        );
        assert_eq!(commands(&found[0]), ["migratepages 900 1 0"]);
    }

    /// The same on a machine that counts accesses, this many per thousand instructions.
    fn counted(accesses: f64) -> Machine {
        use numatop_ng::model::event::{Event, Role};
        let mut world = world();
        let event = |name: &str, role| Event { name: name.into(), role, ..Event::default() };
        Arc::make_mut(&mut world.host).events.extend([event("local", Role::Lma), event("remote", Role::Rma)]);
        world.actors[0].accesses = accesses;
        world
    }

    #[test]
    fn not_bandwidth() {
        assert_eq!(found(counted(2.0), 70, ID)[0].confidence, Confidence::Estimated);
        assert!(found(counted(80.0), 70, ID).is_empty());
    }

    #[test]
    fn not_bandwidth_that_monitors_or_controllers_see() {
        let seen = |accesses: f64, controllers: bool| {
            let mut world = world();
            world.actors[0].accesses = accesses;
            world.monitors_caches = !controllers;
            world.dram_accesses = controllers.then(BTreeMap::new);
            found(world, 70, ID)
        };
        for controllers in [false, true] {
            assert_eq!(seen(2.0, controllers)[0].confidence, Confidence::Estimated, "{controllers}");
            assert!(seen(160.0, controllers).is_empty(), "{controllers}");
        }
    }

    #[test]
    fn not_half() {
        let mut world = world();
        world.actors[0].rss = 40 * GIB;
        assert!(found(world, 70, ID).is_empty());
    }

    #[test]
    fn not_children() {
        let mut world = world();
        let child = |n: u32| Actor { ppid: 900, ..Actor::new(910 + n, "redis") }.runs(&[(1, 10.0)]);
        world.actors.extend((0..5).map(child));
        assert!(found(world, 70, ID).is_empty());
    }

    #[test]
    fn not_no_room() {
        let mut world = world();
        world.nodes[0].mem_free_bytes = 4 * GIB;
        world.nodes[0].mem_file_bytes = 0;
        assert!(found(world, 70, ID).is_empty());
    }

    #[test]
    fn not_bound() {
        let mut world = world();
        world.actors[0].mem_nodes = Some(2);
        assert!(found(world, 70, ID).is_empty());
    }

    #[test]
    fn not_shared() {
        let mut world = world();
        world.actors[0].shmem = 4 * GIB;
        assert!(found(world, 70, ID).is_empty());
    }

    #[test]
    fn not_moving() {
        use numatop_ng::model::counters::Counter;
        let mut world = world();
        world.actors[0].per_second = Counts::default().with([(Counter::MigratedPages, 20_000)]);
        assert!(found(world, 70, ID).is_empty());
    }

    #[test]
    fn one_that_runs_on_both_nodes_is_right() {
        let mut world = world();
        world.actors[0].runs = vec![(0, 80.0), (1, 20.0)];
        assert!(found(world, 70, ID).is_empty());
    }
}

mod reclaim_threads_busy {
    use super::*;

    const ID: &str = "reclaim-threads-busy";

    fn world(comm: &str, pct: f64) -> Machine {
        let thread = Actor { ppid: 2, rss: 0, ..Actor::new(74, comm) };
        let mut world = machine(TWO, vec![thread.runs(&[(1, pct)])]);
        world.nodes[1].mem_file_bytes = 48 * GIB;
        world
    }

    #[test]
    fn fires() {
        let found = found(world("kswapd1", 38.0), 70, ID);
        assert_eq!(found[0].severity, Severity::Info);
        assert_eq!(found[0].key.subject.to_string(), "node 1");
        assert_eq!(
            found[0].advice.sentence,
            "kswapd1 takes 38.0 % of a CPU: it reclaims pages of node 1, most likely because files are read (75.0 % of the node's memory is page cache)."
        );
    }

    #[test]
    fn compaction_has_another_sentence() {
        let found = found(world("kcompactd1", 38.0), 70, ID);
        assert!(found[0].advice.sentence.ends_with("moved to make room for large pages."));
    }

    #[test]
    fn a_little_time_and_other_names_are_nothing() {
        assert!(found(world("kswapd1", 20.0), 70, ID).is_empty());
        assert!(found(world("kswapd11", 80.0), 70, ID).is_empty());
        // Anybody may choose that name; a process is no kernel thread.
        let mut process = world("kswapd1", 80.0);
        process.actors[0].ppid = 1;
        process.actors.push(Actor { ppid: 2, rss: 0, ..Actor::new(75, "kthread") });
        assert!(found(process, 70, ID).is_empty());
    }

    #[test]
    fn not_explained() {
        let mut world = world("kswapd1", 38.0);
        world.nodes[1].mem_free_bytes = 2 * GIB;
        let [active_bytes, inactive_bytes] = [GIB / 2, GIB];
        world.nodes[1].file_pages =
            Some(FilePages { active_bytes, inactive_bytes, shmem_bytes: 0, dirty_bytes: 0 });
        each_second(&mut world, |machine, _| machine.nodes[1].direct_pages += 1000);
        let engine = watch(world, 80);
        let found = engine.findings().iter().find(|finding| finding.key.id == ID).unwrap();
        let cause = found.because_of.as_ref().map(|key| key.id);
        assert_eq!(cause, Some("node-short-of-memory"), "{:?}", lines(&engine));
    }

    #[test]
    fn without_kernel_threads_it_is_blind() {
        let world = machine(TWO, vec![Actor::new(600, "work").runs(&[(0, 100.0)])]);
        assert!(blind(world, 70, ID).is_some());
    }
}

mod distances_wrong {
    use super::*;

    const ID: &str = "distances-wrong";

    /// Four nodes in two sockets, with these distances.
    fn world(distance: impl Fn(u32, u32) -> u32) -> Machine {
        let shape = Shape { nodes: 4, cores: 4, ..TWO };
        let mut world = machine(shape, vec![Actor::new(600, "work").runs(&[(0, 100.0)])]);
        set(&mut Arc::make_mut(&mut world.host).topology, distance);
        world
    }

    fn set(topology: &mut Topology, distance: impl Fn(u32, u32) -> u32) {
        for node in &mut topology.nodes {
            let from = node.id.0;
            node.distances.iter_mut().for_each(|(to, value)| *value = distance(from, to.0));
        }
    }

    /// 12 in a socket, 20 between sockets.
    fn right(a: u32, b: u32) -> u32 {
        match a.abs_diff(b) {
            0 => 10,
            _ if a / 2 == b / 2 => 12,
            _ => 20,
        }
    }

    #[test]
    fn fires() {
        let one_way = |a, b| if (a, b) == (1, 3) { 32 } else { right(a, b) };
        let found = found(world(one_way), 3, ID);
        assert_eq!((found[0].severity, found[0].confidence), (Severity::Info, Confidence::Measured));
        assert_eq!(
            found[0].advice.sentence,
            "The firmware gives 32 as the distance from node 1 to node 3, but the distance in the other direction is different."
        );
    }

    /// The same with latencies that `calibrate` measured, in parts of that of the own memory.
    fn calibrated(distance: impl Fn(u32, u32) -> u32, times: impl Fn(u32, u32) -> f64) -> Machine {
        let mut world = world(distance);
        for node in &mut Arc::make_mut(&mut world.host).topology.nodes {
            let cost = |to: u32| {
                let latency_ps = Some((times(node.id.0, to) * 100_000.0) as u64);
                Cost {
                    node: NodeId(to),
                    latency_ps,
                    latency_error_ps: None,
                    read_bytes_per_s: None,
                    read_error_bytes_per_s: None,
                }
            };
            node.measured = (0..4).map(cost).collect();
        }
        world
    }

    #[test]
    fn latencies_that_were_measured_contradict_it() {
        // A socket of an FT-2500: the firmware has 10 times, the measurement 3.3 times.
        let far = |a, b| if right(a, b) == 20 { 100 } else { right(a, b) };
        let truth = |a: u32, b: u32| match right(a, b) {
            10 => 1.0,
            12 => 1.25,
            _ => 3.3,
        };
        let wrong = found(calibrated(far, truth), 3, ID);
        assert_eq!(
            wrong[0].advice.sentence,
            "The firmware gives 100 as the distance from node 0 to node 2, but calibrate measured 3.3 times the latency of local \
             memory, not 10.0."
        );
        assert!(wrong[0].advice.or_else[0].contains("calibrate --show"));
        // Too small a number is as wrong, and one of half the pairs is enough.
        let near = |a: u32, b: u32| if (a, b) == (3, 0) { 4.0 } else { f64::from(right(a, b)) / 10.0 };
        let wrong = found(calibrated(right, near), 3, ID);
        assert!(wrong[0].advice.sentence.contains("from node 3 to node 0"), "{}", wrong[0].advice.sentence);
    }

    #[test]
    fn other_contradictions_are_seen() {
        let far = |a, b| if (a, b) == (2, 2) { 11 } else { right(a, b) };
        assert_eq!(found(world(far), 3, ID)[0].evidence[0].value, 11.0);
        let near = |a: u32, b: u32| if a + b == 1 { 10 } else { right(a, b) };
        assert!(found(world(near), 3, ID)[0].advice.sentence.contains("only the node itself"));
        let equal = |a, b| if a == b { 10 } else { 20 };
        assert!(found(world(equal), 3, ID)[0].advice.sentence.contains("in one socket"));
    }

    #[test]
    fn not_vm() {
        let equal = |a, b| if a == b { 10 } else { 20 };
        let mut named = world(equal);
        Arc::make_mut(&mut named.host).cpu_model = "QEMU Virtual CPU version 2.5+".into();
        assert!(found(named, 3, ID).is_empty());
        let mut sockets = world(equal);
        Arc::make_mut(&mut sockets.host).topology.sockets = 16;
        assert!(found(sockets, 3, ID).is_empty());
    }

    #[test]
    fn not_same_order() {
        assert!(found(world(right), 3, ID).is_empty());
        // Large numbers in the right order are not a contradiction: an FT-2500 has up to 100.
        assert!(found(world(|a, b| right(a, b) * if a == b { 1 } else { 5 }), 3, ID).is_empty());
        // Latencies that are near enough to it.
        let near = |a, b| f64::from(right(a, b)) / 10.0 * if right(a, b) == 20 { 1.49 } else { 1.0 };
        assert!(found(calibrated(right, near), 3, ID).is_empty());
        // Four sockets of one node each, all linked to each other.
        let shape = Shape { nodes: 4, cores: 4, sockets: 4, ..TWO };
        let full = machine(shape, vec![Actor::new(600, "work").runs(&[(0, 100.0)])]);
        assert!(found(full, 3, ID).is_empty());
    }

    #[test]
    fn machines_of_the_field_are_quiet() {
        for name in ["ft-2500", "kunpeng-920-4826", "hygon-c86-5280", "intel-e5-2682v4", "intel-96cpu", "cxl"]
        {
            let topology =
                numatop_ng::host::topology::read(&crate::fixture::tree(&format!("hosts/{name}"))).unwrap();
            let mut world = machine(TWO, vec![Actor::new(600, "work")]);
            let mut host = (*world.host).clone();
            host.topology = topology;
            world = Machine::new(host, (*world.names).clone(), vec![Actor::new(600, "work")]);
            assert!(found(world, 3, ID).is_empty(), "{name}");
        }
    }

    #[test]
    fn not_one_socket() {
        let shape = Shape { nodes: 4, cores: 4, sockets: 1, ..TWO };
        let world = machine(shape, vec![Actor::new(600, "work").runs(&[(0, 100.0)])]);
        assert!(found(world, 3, ID).is_empty());
    }
}

mod interrupts_on_busy_node {
    use super::*;

    const ID: &str = "interrupts-on-busy-node";

    /// A process on node 0, whose CPUs are in interrupts for `here_ms` ms of each second; those of node 1 for
    /// another number.
    fn world(here_ms: u64, there_ms: u64) -> Machine {
        let actor = Actor::new(4242, "mysqld").runs(&[(0, 800.0)]);
        let mut world = machine(TWO, vec![actor]);
        each_second(&mut world, move |machine, _| {
            for cpu in &mut machine.cpus {
                *cpu.irq_ns.get_or_insert_default() +=
                    if cpu.node == 0 { here_ms } else { there_ms } * 1_000_000;
            }
        });
        world
    }

    #[test]
    fn fires() {
        let found = found(world(142, 11), 70, ID);
        assert_eq!((found[0].severity, found[0].confidence), (Severity::Info, Confidence::Estimated));
        assert_eq!(
            found[0].advice.sentence,
            "Interrupts take 14.2 % of the time of node 0, where mysqld runs, and 1.1 % of node 1."
        );
        assert!((found[0].advice.gain.at_most.unwrap() - 1.136).abs() < 0.01, "{:?}", found[0].advice.gain);
        assert!(commands(&found[0]).is_empty(), "it is not known which device has them");
    }

    /// A device of node 1 whose interrupts go to these nodes.
    fn device(name: &str, irq_nodes: &[u32]) -> Device {
        Device {
            pci: Some(format!("0000:3b:00.{}", name.len() % 8)),
            ..sick_worlds::device(name, DeviceClass::Net, 1, irq_nodes)
        }
    }

    fn with(devices: Vec<Device>) -> Machine {
        let mut world = world(142, 11);
        Arc::make_mut(&mut world.host).topology.nodes[1].devices = devices;
        world
    }

    #[test]
    fn the_only_device_with_interrupts_there_is_in_the_command() {
        let one = found(with(vec![device("eth0", &[0, 1]), device("nvme0", &[1])]), 70, ID);
        let lists = |cpus: &str| {
            format!(
                "for i in /sys/bus/pci/devices/0000:3b:00.4/msi_irqs/*; do echo {cpus} > /proc/irq/${{i##*/}}/smp_affinity_list; done"
            )
        };
        let keep = "grep . /proc/irq/*/smp_affinity_list > /root/irq-before.txt";
        assert_eq!(commands(&one[0]), [keep.to_owned(), lists("8-15,24-31")]);
        assert_eq!(undo(&one[0]), [lists("0-7,16-23")]);
    }

    #[test]
    fn of_several_devices_the_loudest_is_in_the_command() {
        let loud = |eth0: u64, nvme0: u64| {
            let mut world = with(vec![device("eth0", &[0]), device("nvme0", &[0])]);
            world.irq_rates = [("0000:3b:00.4", eth0), ("0000:3b:00.5", nvme0)]
                .map(|(address, rate)| ((address.into(), 0), rate))
                .into();
            found(world, 70, ID)
        };
        let one = loud(41_000, 2_000);
        assert!(
            one[0]
                .advice
                .sentence
                .ends_with("and 1.1 % of node 1. eth0 raises 41k interrupts a second there.")
        );
        assert!(commands(&one[0])[1].contains("0000:3b:00.4"), "{:?}", commands(&one[0]));
        let quiet = loud(3, 0);
        assert!(commands(&quiet[0]).is_empty(), "three interrupts a second are no tenth of a node");
        let both = loud(20_000, 9_000);
        assert!(commands(&both[0]).is_empty());
        let words = &both[0].advice.commands[0].words;
        assert!(words.contains("here: eth0: 20k a second, nvme0: 9.0k a second"), "{words}");
    }

    #[test]
    fn of_several_devices_none_is_in_a_command() {
        let two = found(with(vec![device("eth0", &[0]), device("nvme0", &[0])]), 70, ID);
        assert!(commands(&two[0]).is_empty());
        assert!(
            two[0].advice.commands[0].words.contains("here: eth0, nvme0"),
            "{:?}",
            two[0].advice.commands
        );
    }

    #[test]
    fn not_even() {
        assert!(found(world(142, 80), 70, ID).is_empty());
        assert!(found(world(80, 1), 70, ID).is_empty());
    }

    #[test]
    fn not_busy_elsewhere() {
        let mut world = world(142, 11);
        world.actors.push(Actor::new(700, "other").runs(&[(1, 1300.0)]));
        assert!(found(world, 70, ID).is_empty());
    }

    #[test]
    fn not_nothing_runs() {
        let mut world = world(142, 11);
        world.actors[0].runs = vec![(0, 60.0)];
        assert!(found(world, 70, ID).is_empty());
    }

    #[test]
    fn not_isolated() {
        let mut world = world(142, 11);
        Arc::make_mut(&mut world.host).isolated_cpus = (8..16).chain(24..32).collect();
        assert!(found(world, 70, ID).is_empty());
    }
}
