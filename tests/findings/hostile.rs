//! Machines and recordings that were made to do harm: commands that must not be printed, circles, counts without end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use numatop_ng::container::group::describe;
use numatop_ng::container::names::ContainerNames;
use numatop_ng::finding::{Engine, Finding, Severity};
use numatop_ng::model::counters::Counter;
use numatop_ng::model::group::Group;
use numatop_ng::model::sample::{Counts, HostFacts, MemPolicy, Names, Sample};
use numatop_ng::model::topology::Llc;
use numatop_ng::snapshot::{RowKind, Snapshot, derive};

use crate::properties::sick;
use crate::world::{
    Actor, DOCKER, GIB, Machine, OTHER_DOCKER, Shape, TWO, commands, each_second, files, found, lines,
    machine, pages, samples, undo, watch,
};

const FOUR: Shape = Shape { nodes: 4, sockets: 4, ..TWO };

/// A process with all of its memory on node 1 of four, which it may use only, and which is full.
fn bound_to_node_1(free: [u64; 4]) -> Machine {
    let actor = Actor {
        rss: 20 * GIB,
        memory: vec![0, 1024, 0, 0],
        mempolicy: MemPolicy { mode: 2, flags: 0, nodes: 0b10 },
        per_second: Counts::default().with([(Counter::MajFlt, 400)]),
        swapped: 4 * GIB,
        ..Actor::new(900_002, "pg_restore")
    };
    let mut world = machine(FOUR, vec![actor.runs(&[(1, 90.0)])]);
    for (node, free) in world.nodes.iter_mut().zip(free) {
        node.mem_free_bytes = free;
    }
    each_second(&mut world, |machine, _| machine.vm.swapped_out += 3584);
    world
}

#[test]
fn memory_is_not_moved_to_a_node_without_room_for_it() {
    let id = "bound-to-full-node";
    // 15 GiB above the watermark on each of three nodes are no room for 20 GiB on one.
    let small = found(bound_to_node_1([18 * GIB, 2 * GIB, 18 * GIB, 18 * GIB]), 40, id);
    assert_eq!(small.len(), 1);
    assert_eq!(commands(&small[0]), Vec::<String>::new());
    assert!(!small[0].advice.sentence.contains("45.0 GiB"), "{}", small[0].advice.sentence);
    let large = found(bound_to_node_1([18 * GIB, 2 * GIB, 58 * GIB, 18 * GIB]), 40, id);
    assert_eq!(commands(&large[0]), ["migratepages 900002 1 2"]);
}

#[test]
fn memory_is_not_moved_where_a_cpuset_does_not_let_it() {
    let mut world = bound_to_node_1([58 * GIB, 2 * GIB, 50 * GIB, 18 * GIB]);
    world.actors[0].mem_nodes = Some(0b0110);
    let findings = found(world, 40, "bound-to-full-node");
    assert_eq!(findings.iter().flat_map(commands).collect::<Vec<_>>(), ["migratepages 900002 1 2"]);
}

#[test]
fn a_node_without_cpus_is_no_place_to_move_to() {
    let mut world = bound_to_node_1([4 * GIB, 2 * GIB, 58 * GIB, 4 * GIB]);
    let mut host = HostFacts::clone(&world.host);
    host.topology.nodes[2].cpus.clear();
    host.topology.cpus.retain(|cpu| cpu.node.is_none_or(|node| node.0 != 2));
    world.host = Arc::new(host);
    let findings = found(world, 40, "bound-to-full-node");
    let all: Vec<String> = findings.iter().flat_map(commands).collect();
    assert!(all.iter().all(|line| !line.ends_with(" 2")), "{all:?}");
}

#[test]
fn nodes_full_of_page_cache_have_no_memory_that_is_free_elsewhere() {
    // Between the low and the high watermark of nodes of 1 TiB is 1 GiB: reclaim stops there.
    for (nodes, memory) in [(2, 1024 * GIB), (16, 256 * GIB)] {
        let shape = Shape { nodes, sockets: nodes, memory, ..TWO };
        let reader = Actor {
            per_second: Counts::default().with([(Counter::MajFlt, 400)]),
            mempolicy: MemPolicy { mode: 2, flags: 0, nodes: 0b10 },
            rss: GIB,
            ..Actor::new(500, "backup")
        };
        let mut world = machine(shape, vec![reader.runs(&[(1, 80.0)])]);
        for node in &mut world.nodes {
            node.low_watermark_bytes = memory / 500;
            node.mem_free_bytes = memory / 500 + memory / 1000;
        }
        world.nodes[1].mem_free_bytes = memory / 500 - (1 << 20);
        world.vm.zone_reclaim_mode = Some(1);
        each_second(&mut world, |machine, _| {
            machine.nodes[1].direct_pages += 4000;
            machine.nodes[1].node_reclaims += 50;
            machine.vm.swapped_out += 300;
        });
        let engine = watch(world, 120);
        let grave: Vec<&Finding> =
            engine.findings().iter().filter(|finding| finding.severity > Severity::Info).collect();
        assert!(grave.is_empty(), "{nodes} nodes: {:?}", lines(&engine));
    }
}

/// Names of these cgroups, as a collector makes them.
fn names(paths: &[(u64, &str)]) -> Arc<Names> {
    let cgroups: BTreeMap<u64, String> = paths.iter().map(|(id, path)| (*id, (*path).to_owned())).collect();
    let mut book = ContainerNames::new("/nonexistent".as_ref());
    let groups = describe(&cgroups, &BTreeMap::new(), &mut book);
    Arc::new(Names { groups, cgroups, users: BTreeMap::new() })
}

/// Lines for a group at this path whose CPUs are on node 0 and whose memory is on node 1.
fn lines_at(path: &str) -> Vec<String> {
    use numatop_ng::model::sample::{CgroupFacts, CgroupMode};
    let actor = Actor { cgroup: 77, rss: 8 * GIB, memory: pages(100), ..Actor::new(900_003, "cart") };
    let mut world = machine(TWO, vec![actor.runs(&[(0, 200.0)])]);
    world.names = names(&[(1, "/"), (77, path)]);
    let mut host = HostFacts::clone(&world.host);
    host.cgroups = Some(CgroupFacts {
        mode: CgroupMode::V2,
        memory_migrate: None,
        memory_spread_page: None,
        memory_spread_slab: None,
    });
    world.host = Arc::new(host);
    world.groups = [(77, Arc::new(files("0-3", "1")))].into();
    let findings = found(world, 40, "cpus-and-memory-apart");
    assert_eq!(findings.len(), 1, "{path}");
    let all = [commands(&findings[0]), undo(&findings[0])].concat();
    for line in &all {
        let status = std::process::Command::new("sh").args(["-n", "-c", line]).status().unwrap();
        assert!(status.success() && line.is_ascii() && !line.contains('\n'), "{line}");
    }
    all
}

#[test]
fn a_command_names_the_group_that_exists() {
    let has = |path: &str, part: &str| {
        let all = lines_at(path);
        assert!(all.iter().any(|line| line.contains(part)), "{path}: {all:?}");
    };
    has("/my jobs/a", "> '/sys/fs/cgroup/my jobs/a/cpuset.mems'");
    has(r"/jobs/a\x2db", r"> '/sys/fs/cgroup/jobs/a\x2db/cpuset.mems'");
    has(r"/system.slice/my\x2ddb.service", r"'my\x2ddb.service'");
}

#[test]
fn a_command_is_not_made_of_what_it_cannot_name() {
    for path in
        ["/jobs/a\nb", "/jobs/$(reboot)", "/jobs/a'b", "/jobs/`x`", "/jobs/\u{e4}", "/jobs/a\u{f700}b"]
    {
        let all = lines_at(path);
        assert!(all.iter().all(|line| !line.contains("cgroup")), "{path:?}: {all:?}");
    }
    // The manager of the machine does not know units of a user, and would be asked for one of its units.
    let all = lines_at("/user.slice/user-1000.slice/user@1000.service/app.slice/mysql.service");
    assert!(all.iter().all(|line| !line.contains("set-property") || line.contains("--user")), "{all:?}");
    // The kubelet and its engine write these files.
    const ID: &str = "3c0f6a4c2b9f1e8d7a6b5c4d3e2f1a0b9c8d7e6f5a4b3c2d1e0f9a8b7c6d5e4f";
    for path in [
        "/kubepods.slice/kubepods-pod0b1c2d3e_0000_4000_8000_000000000000.slice".to_owned(),
        format!("/system.slice/crio-{ID}.scope"),
        format!("/garden/{ID}"),
        "/kubepods.slice".to_owned(),
    ] {
        let all = lines_at(&path);
        assert!(all.iter().all(|line| !line.contains("/sys/fs/cgroup")), "{path}: {all:?}");
    }
}

#[test]
fn a_container_keeps_its_cpus_where_its_memory_comes_to_them() {
    let all = lines_at("/docker/3c0f6a4c2b9f1e8d7a6b5c4d3e2f1a0b9c8d7e6f5a4b3c2d1e0f9a8b7c6d5e4f");
    assert!(all[0].contains("--cpuset-cpus 0-3 --cpuset-mems 0 "), "{all:?}");
}

#[test]
fn no_command_is_for_process_0() {
    let mut world = sick();
    for actor in &mut world.actors {
        (actor.pid, actor.tid) = (0, actor.tid);
    }
    let engine = watch(world, 80);
    for line in engine.findings().iter().flat_map(commands) {
        let words: Vec<&str> = line.split(' ').collect();
        assert!(words[0] != "migratepages" || words[1] != "0", "{line}");
        assert!(words[0] != "taskset" || words[3] != "0", "{line}");
    }
}

#[test]
fn more_nodes_than_a_mask_has_bits_are_no_binding() {
    let shape = Shape { nodes: 72, sockets: 72, cores: 2, threads: 1, ..TWO };
    let mut memory = vec![0; 72];
    memory[70] = 1024;
    let actor = Actor {
        rss: 20 * GIB,
        memory,
        cpu_nodes: Some(u64::MAX),
        mem_nodes: Some(u64::MAX),
        ..Actor::new(900_001, "mysqld")
    };
    let engine = watch(machine(shape, vec![actor.runs(&[(0, 150.0)])]), 80);
    assert!(engine.findings().is_empty(), "{:?}", lines(&engine));
}

#[test]
fn groups_in_a_circle_end() {
    let actor = Actor {
        cgroup: DOCKER,
        wait_pct: 300.0,
        rss: 8 * GIB,
        memory: pages(50),
        ..Actor::new(900_003, "cart")
    };
    let mut world = machine(TWO, vec![actor.runs(&[(0, 400.0)])]);
    let mut names = Names::clone(&world.names);
    for (id, above) in [(DOCKER, OTHER_DOCKER), (OTHER_DOCKER, DOCKER)] {
        let group = names.groups[&id].clone();
        names.groups.insert(id, Arc::new(Group { parent: Some(above), ..Group::clone(&group) }));
    }
    world.names = Arc::new(names);
    world.groups =
        [(DOCKER, Arc::new(files("0-3", "0-1"))), (OTHER_DOCKER, Arc::new(files("0-3", "0-1")))].into();
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send(lines(&watch(world, 80))));
    ended.recv_timeout(Duration::from_secs(60)).expect("it goes on for ever");
}

fn snapshots(world: Machine, seconds: u64) -> Vec<Snapshot> {
    let (host, samples) = samples(world, seconds, 1000);
    samples.windows(2).map(|pair| derive(&host, Some(&pair[0]), &pair[1], RowKind::Processes)).collect()
}

#[test]
fn times_and_counts_without_end_do_no_harm() {
    let plain = snapshots(sick(), 30);
    type Change = fn(&mut Snapshot);
    let changes: [(&str, Change); 7] = [
        ("the end of time", |snapshot| snapshot.mono_ns = u64::MAX),
        ("an interval without end", |snapshot| {
            (snapshot.mono_ns, snapshot.interval_ns) = (u64::MAX - 1, Some(u64::MAX - 1));
        }),
        ("an interval of nothing", |snapshot| snapshot.interval_ns = Some(1)),
        ("the wall clock", |snapshot| snapshot.wall_ns = i64::MIN),
        ("the time since boot", |snapshot| snapshot.boot_ns = 0),
        ("time on CPUs", |snapshot| {
            for task in &mut snapshot.tasks {
                let mut counts = Counts::clone(&task.delta);
                counts.run_ns.iter_mut().for_each(|ns| *ns = u64::MAX / 2);
                task.delta = counts.into();
                task.rss_bytes = u64::MAX;
            }
        }),
        ("memory of nodes", |snapshot| {
            for node in &mut snapshot.nodes {
                (node.raw.mem_free_bytes, node.raw.mem_total_bytes) = (u64::MAX, u64::MAX);
                node.on_cpus.busy_ns = u64::MAX;
            }
        }),
    ];
    for (name, change) in changes {
        eprintln!("{name}");
        for every in [1, 7] {
            let mut engine = Engine::default();
            for (at, snapshot) in plain.iter().enumerate() {
                let mut snapshot = snapshot.clone();
                if at % every == 0 {
                    change(&mut snapshot);
                }
                engine.take(&snapshot);
            }
            engine.pending();
        }
    }
}

#[test]
fn a_node_with_a_huge_id_takes_no_memory() {
    let actor = Actor { cgroup: DOCKER, rss: 8 * GIB, memory: pages(100), ..Actor::new(900_003, "cart") };
    let mut world = machine(TWO, vec![actor.runs(&[(0, 200.0)])]);
    let mut host = HostFacts::clone(&world.host);
    let huge = numatop_ng::model::units::NodeId(u32::MAX - 1);
    host.topology.nodes[0].id = huge;
    host.topology
        .cpus
        .iter_mut()
        .filter(|cpu| cpu.node.is_some_and(|node| node.0 == 0))
        .for_each(|cpu| cpu.node = Some(huge));
    host.topology.llcs = vec![Llc { cpus: vec![], level: None, size_bytes: None }];
    world.host = Arc::new(host);
    world.groups = [(DOCKER, Arc::new(files("0-3", "1")))].into();
    let (host, samples): (_, Vec<Sample>) = samples(world, 40, 1000);
    let mut engine = Engine::default();
    for pair in samples.windows(2) {
        engine.take(&derive(&host, Some(&pair[0]), &pair[1], RowKind::Processes));
    }
}

#[test]
fn a_gain_that_becomes_small_ends_the_finding() {
    let pinned =
        Actor { rss: 20 * GIB, memory: pages(42), cpu_nodes: Some(0b01), ..Actor::new(900_001, "mysqld") };
    let mut world = machine(TWO, vec![pinned.runs(&[(0, 100.0)])]);
    // Its threads stop waiting for memory: a better placement then gains next to nothing.
    each_second(&mut world, |machine, second| {
        if second > 60 {
            machine.actors[0].memory = vec![1024 * 91 / 100, 1024 * 9 / 100];
            machine.actors[0].runs = vec![(0, 40.0)];
        }
    });
    let (host, samples) = samples(world, 300, 1000);
    let (engine, changes) = crate::world::fold(&host, &samples);
    assert_eq!(changes.len(), 2, "{changes:#?}");
    assert!(engine.findings().is_empty(), "{:?}", lines(&engine));
}

#[test]
fn a_condition_that_held_too_shortly_is_suspected() {
    let (host, samples) = samples(sick(), 8, 1000);
    let engine = crate::world::fold(&host, &samples).0;
    let pending = engine.pending();
    assert!(!pending.is_empty());
    for finding in pending {
        assert_eq!(finding.confidence.name(), "suspected", "{}", finding.key);
    }
}

#[test]
fn isolated_cpus_are_in_no_list() {
    let java = Actor { rss: 8 * GIB, memory: pages(50), node_moves: 100, ..Actor::new(900_001, "java") };
    let mut world = machine(TWO, vec![java.runs(&[(0, 100.0), (1, 100.0)])]);
    Arc::make_mut(&mut world.host).isolated_cpus = vec![1, 2, 3];
    let all: Vec<String> = found(world, 60, "spread-over-nodes").iter().flat_map(commands).collect();
    assert!(
        all.iter().any(|line| line.starts_with("taskset -acp 8-15,24-31") || line.contains(" 0,4-7,16-23 ")),
        "{all:?}"
    );
}
