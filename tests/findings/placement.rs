//! Rules about where memory and threads are.

use std::sync::Arc;

use numatop_ng::finding::{Confidence, Finding, Severity, SubjectKind};
use numatop_ng::model::counters::Counter;
use numatop_ng::model::event::Role;
use numatop_ng::model::sample::{CgroupFacts, CgroupMode, Counts, MemPolicy, PagesByPolicy};

use crate::sharing::{of_segment, sharing};
use crate::world::{
    Actor, DOCKER, GIB, Machine, PLAIN, SERVICE, TWO, blind, commands, count_also, each_second, files, found,
    lines, machine, pages, undo, watch,
};

mod remote_after_pin {
    use super::*;
    use crate::world::{found_in, sample_use, samples};

    /// A database that is pinned to node 0, with this share of its memory on node 1.
    fn world(remote: u32) -> Machine {
        let actor = Actor {
            cgroup: SERVICE,
            rss: 20 * GIB,
            memory: pages(remote),
            cpu_nodes: Some(0b01),
            ..Actor::new(4242, "mysqld")
        };
        machine(TWO, vec![actor.runs(&[(0, 400.0)])])
    }

    /// The finding where samples of time say what it uses.
    fn sampled(all: u64, at_memory: [u64; 3]) -> Vec<Finding> {
        let (host, mut samples) = samples(world(60), 40, 1000);
        sample_use(&mut samples, 4242, all, at_memory);
        found_in(&host, &samples, "remote-after-pin")
    }

    #[test]
    fn time_at_memory_of_other_nodes_bounds_the_gain() {
        // Half of its time at memory, four fifths of that remote.
        let found = sampled(1000, [100, 400, 0]).remove(0);
        assert_eq!(found.severity, Severity::Warning);
        let gain = &found.advice.gain;
        // 4 CPUs x 0.5 x (0.8 + 0.04) x (1 - 1/2).
        assert!(gain.at_most.is_some_and(|cpus| (0.80..0.85).contains(&cpus)), "{gain:?}");
        assert!(gain.assumes.iter().any(|one| one.id() == "memory_time_waits"), "{gain:?}");
        let without = found_in_world(world(60));
        assert!(without.advice.gain.at_most > gain.at_most, "{:?}", without.advice.gain);
    }

    fn found_in_world(world: Machine) -> Finding {
        found(world, 40, "remote-after-pin").remove(0)
    }

    #[test]
    fn memory_elsewhere_that_its_time_is_not_spent_at_is_cold() {
        // A twentieth of its accesses are remote: the memory that it uses is at home.
        assert!(sampled(1000, [475, 25, 0]).is_empty());
        // As few, but a third of the samples at memory have no address and may be remote.
        assert!(!sampled(1000, [320, 15, 165]).is_empty());
        // Too few samples to say.
        assert!(!sampled(300, [150, 5, 0]).is_empty());
    }

    #[test]
    fn fires() {
        let found = found(world(42), 40, "remote-after-pin");
        let finding = &found[0];
        assert_eq!((finding.severity, finding.confidence), (Severity::Warning, Confidence::Estimated));
        assert_eq!(
            finding.advice.sentence,
            "mysqld can run only on node 0, but 42.0 +-3.1 % of its memory is on node 1."
        );
        assert_eq!(commands(finding), ["migratepages 4242 1 0"]);
        // 42 % at distance 20: 1 - 1 / 1.42.
        assert!(
            (finding.advice.gain.at_most.unwrap() - 4.0 * 0.2957).abs() < 0.01,
            "{:?}",
            finding.advice.gain
        );
    }

    /// Backends of a container on node 0 that share a buffer with this share on node 1.
    fn backends(remote: u32) -> Machine {
        let backend = |pid| Actor {
            cgroup: DOCKER,
            rss: 20 * GIB,
            shmem: 19 * GIB,
            memory: pages(remote),
            cpu_nodes: Some(0b01),
            ..Actor::new(pid, "postgres").runs(&[(0, 30.0)])
        };
        let mut world = machine(TWO, (500..520).map(backend).collect());
        let mut raw = files("0-7", "0-1");
        raw.mem_bytes = Ok(24 * GIB);
        world.groups = [(DOCKER, Arc::new(raw))].into();
        world
    }

    #[test]
    fn processes_that_share_memory_are_their_container() {
        let mut unified = backends(42);
        Arc::make_mut(&mut unified.host).cgroups = Some(CgroupFacts {
            mode: CgroupMode::V2,
            memory_migrate: None,
            memory_spread_page: None,
            memory_spread_slab: None,
        });
        let found = found(unified, 40, "remote-after-pin");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].key.subject.to_string(), format!("cgroup {DOCKER}"));
        assert_eq!((found[0].severity, found[0].confidence), (Severity::Warning, Confidence::Estimated));
        assert_eq!(
            found[0].advice.sentence,
            "3c0f6a4c2b9f can run only on node 0, but 42.0 +-3.1 % of the memory of its processes is on node 1."
        );
        assert!(commands(&found[0])[0].starts_with("docker update --cpuset-cpus 0-7 --cpuset-mems 0 "));
        assert_eq!(found[0].identity.cpus.as_deref(), Some("0-7"));
        // 42 % of the container's charge, not of the sum of its processes.
        assert!((found[0].evidence[2].limit.unwrap() / GIB as f64 - 10.08).abs() < 0.1);
    }

    #[test]
    fn in_cgroup_v1_the_memory_of_its_processes_is_moved() {
        let found = found(backends(42), 40, "remote-after-pin");
        assert_eq!(commands(&found[0]).len(), 8);
        assert_eq!(commands(&found[0])[0], "migratepages 500 1 0");
    }

    #[test]
    fn a_container_without_room_or_without_a_list_is_quiet() {
        let mut full = backends(42);
        full.nodes[0].mem_free_bytes = 4 * GIB;
        full.nodes[0].mem_file_bytes = 0;
        assert!(found(full, 40, "remote-after-pin").is_empty());
        let mut free = backends(42);
        free.groups = [(DOCKER, Arc::new(files("0-31", "0-1")))].into();
        assert!(found(free, 40, "remote-after-pin").is_empty());
        assert!(found(backends(8), 40, "remote-after-pin").is_empty());
    }

    #[test]
    fn asks_for_accesses_of_its_process_before_it_is_shown() {
        let pids = |world, seconds| {
            let engine = watch(world, seconds);
            let asks: Vec<u32> = engine.asks().iter().map(|(pid, _)| *pid).collect();
            (engine.findings().len(), asks)
        };
        assert_eq!(pids(world(42), 5), (0, vec![4242]));
        assert_eq!(pids(world(42), 40).1, [4242]);
        assert_eq!(pids(world(0), 40), (0, vec![]));
    }

    #[test]
    fn an_error_bar_that_reaches_the_limit_makes_it_suspected() {
        let found = found(world(12), 40, "remote-after-pin");
        assert_eq!((found[0].severity, found[0].confidence), (Severity::Info, Confidence::Suspected));
    }

    #[test]
    fn little_is_nothing() {
        assert!(found(world(8), 40, "remote-after-pin").is_empty());
        let mut small = world(42);
        small.actors[0].rss = GIB / 8;
        assert!(found(small, 40, "remote-after-pin").is_empty());
    }

    #[test]
    fn not_cold() {
        let mut world = world(42);
        world.actors[0].scan_period_ms = 1000;
        assert!(blind(world, 40, "remote-after-pin").unwrap().starts_with("cold"));
    }

    #[test]
    fn accesses_say_more_than_places() {
        let counted = |share: Option<f64>| {
            let mut world = world(42);
            count_also(&mut world, &[Role::Lma, Role::Rma]);
            (world.actors[0].accesses, world.actors[0].remote_share) = (5.0, share);
            world
        };
        // 42 % of its memory, and 5 of 100 accesses.
        assert!(blind(counted(Some(0.05)), 40, "remote-after-pin").unwrap().starts_with("cold"));
        assert_eq!(found(counted(Some(0.2)), 40, "remote-after-pin")[0].severity, Severity::Warning);
        assert_eq!(found(counted(None), 40, "remote-after-pin")[0].severity, Severity::Warning);
    }

    #[test]
    fn memory_that_is_used_is_not_cold() {
        let mut world = world(42);
        world.actors[0].scan_period_ms = 1000;
        world.actors[0].per_second =
            Counts::default().with([(Counter::HintFaults, 200), (Counter::HintRemote, 90)]);
        assert_eq!(found(world, 40, "remote-after-pin").len(), 1);
    }

    #[test]
    fn not_interleave() {
        for policy in [MemPolicy { mode: 3, flags: 0, nodes: 3 }, MemPolicy { mode: 1, flags: 0, nodes: 2 }] {
            let mut world = world(42);
            world.actors[0].mempolicy = policy;
            assert!(found(world, 40, "remote-after-pin").is_empty());
        }
    }

    #[test]
    fn not_still_going_out() {
        let mut world = world(42);
        world.actors[0].per_second =
            Counts::default().with([(Counter::UserAllocs, 1000), (Counter::CrossAllocs, 600)]);
        assert!(found(world, 40, "remote-after-pin").is_empty());
    }

    #[test]
    fn not_mems_elsewhere() {
        let mut world = world(42);
        world.actors[0].mem_nodes = Some(0b10);
        assert!(found(world, 40, "remote-after-pin").is_empty());
    }

    #[test]
    fn not_no_room() {
        let mut world = world(42);
        world.nodes[0].mem_free_bytes = 4 * GIB;
        world.nodes[0].mem_file_bytes = 0;
        assert!(found(world, 40, "remote-after-pin").is_empty());
    }

    #[test]
    fn not_moving() {
        let mut moving = world(60);
        each_second(&mut moving, |machine, second| {
            let remote = 90 - second as u32;
            machine.actors[0].memory = pages(remote);
        });
        assert!(found(moving, 40, "remote-after-pin").is_empty());
        let mut moved = world(42);
        moved.actors[0].per_second = Counts::default().with([(Counter::MigratedPages, 20_000)]);
        assert!(found(moved, 40, "remote-after-pin").is_empty());
    }

    #[test]
    fn not_shared() {
        let mut world = world(42);
        world.actors[0].shmem = 8 * GIB;
        let found = found(world, 40, "remote-after-pin");
        assert!(found.iter().all(|finding| finding.severity == Severity::Info));
    }

    /// Four processes that are pinned to node 0 and share a segment.
    fn pinned_group() -> Vec<Actor> {
        let pinned = |actor| Actor { cpu_nodes: Some(0b01), ..actor };
        sharing(24, 60, 900..904).into_iter().map(pinned).collect()
    }

    #[test]
    fn not_group() {
        assert_eq!(
            of_segment(pinned_group(), 4, "remote-after-pin"),
            [(SubjectKind::Group, Severity::Warning)]
        );
        let apart = |(node, actor): (u32, Actor)| Actor { cpu_nodes: Some(1 << node), ..actor };
        let apart: Vec<Actor> = (0..2).cycle().zip(pinned_group()).map(apart).collect();
        assert_eq!(of_segment(apart, 4, "remote-after-pin"), [], "members are pinned to other nodes each");
    }

    #[test]
    fn not_others_map_it() {
        assert_eq!(
            of_segment(pinned_group(), 50, "remote-after-pin"),
            [(SubjectKind::Group, Severity::Info)]
        );
    }

    #[test]
    fn not_own_policies() {
        let by_policy = |meant: u32| {
            let mut world = world(42);
            let pages = PagesByPolicy { mappings: 90, by_node: pages(42), ..PagesByPolicy::default() };
            let meant = vec![0, meant * 1024 / 100];
            world.actors[0].by_policy = Some(PagesByPolicy { explicit: meant.clone(), meant, ..pages });
            let found = found(world, 40, "remote-after-pin");
            found.first().map(|finding| (finding.severity, commands(finding).len()))
        };
        assert_eq!(by_policy(0), Some((Severity::Warning, 1)));
        assert_eq!(
            by_policy(20),
            Some((Severity::Warning, 0)),
            "the line would move what is meant to be there"
        );
        assert_eq!(by_policy(40), None);
    }

    #[test]
    fn not_memory_only() {
        let mut world = world(42);
        let host = Arc::make_mut(&mut world.host);
        host.topology.nodes[1].cpus.clear();
        assert!(found(world, 40, "remote-after-pin").is_empty());
    }

    #[test]
    fn without_its_nodes_it_is_not_pinned() {
        let mut world = world(42);
        world.actors[0].cpu_nodes = Some(0b11);
        assert!(found(world, 40, "remote-after-pin").is_empty());
    }

    #[test]
    fn it_is_gone_with_its_process() {
        let mut world = world(42);
        world.actors[0].ends = Some(45);
        let engine = watch(world, 50);
        assert!(engine.findings().is_empty(), "{:?}", lines(&engine));
        assert_eq!(engine.ended().count(), 1);
    }
}

mod cpus_and_memory_apart {
    use super::*;
    use crate::sick_worlds::apart as world;

    const ID: &str = "3c0f6a4c2b9f1e8d7a6b5c4d3e2f1a0b9c8d7e6f5a4b3c2d1e0f9a8b7c6d5e4f";

    #[test]
    fn both_files_of_a_cgroup_are_written_and_written_back() {
        let mut world = world("0-3", "1");
        world.actors[0].cgroup = PLAIN;
        world.groups = [(PLAIN, Arc::new(files("0-3", "1")))].into();
        let found = found(world, 20, "cpus-and-memory-apart");
        let file = |name: &str| format!("/sys/fs/cgroup/jobs/cpuset.{name}");
        let lines = |cpus: &str, mems: &str| {
            [format!("echo {cpus} > {}", file("cpus")), format!("echo {mems} > {}", file("mems"))]
        };
        assert_eq!(commands(&found[0]), lines("0-3", "0"));
        assert_eq!(undo(&found[0]), lines("0-3", "1"));
    }

    #[test]
    fn fires() {
        let found = found(world("0-3", "1"), 20, "cpus-and-memory-apart");
        assert_eq!(found[0].severity, Severity::Warning);
        assert_eq!(
            found[0].advice.sentence,
            "3c0f6a4c2b9f is limited to CPUs of node 0 and to memory of node 1: every access is remote."
        );
        let line = format!("docker update --cpuset-cpus 0-3 --cpuset-mems 0 {ID}");
        assert_eq!(commands(&found[0]), [line]);
        assert_eq!(found[0].advice.undo.len(), 1);
    }

    #[test]
    fn memory_that_has_not_followed_yet_is_an_info_for_a_minute() {
        let pinned = |seconds| {
            let mut world = world("0-3", "1");
            world.actors[0].cpu_nodes = Some(0b01);
            each_second(&mut world, |machine, second| {
                let mems = if second < 30 { "1" } else { "0" };
                machine.groups = [(DOCKER, Arc::new(files("0-3", mems)))].into();
            });
            let engine = watch(world, seconds);
            let apart = engine.ended().any(|ended| ended.key.id == "cpus-and-memory-apart");
            let pinned = engine.findings().iter().find(|finding| finding.key.id == "remote-after-pin");
            (apart, pinned.map(|finding| finding.severity))
        };
        for (seconds, severity) in [(80, Severity::Info), (140, Severity::Warning)] {
            assert_eq!(pinned(seconds), (true, Some(severity)), "{seconds}");
        }
    }

    #[test]
    fn in_cgroup_v1_memory_does_not_follow() {
        let mut world = world("0-3", "1");
        Arc::make_mut(&mut world.host).cgroups = None;
        let found = found(world, 20, "cpus-and-memory-apart");
        assert_eq!(commands(&found[0])[1], "migratepages 700 1 0");
    }

    #[test]
    fn a_bind_policy_says_the_same_of_a_process() {
        let mut world = world("0-31", "0-1");
        world.actors[0].cgroup = 1;
        world.actors[0].cpu_nodes = Some(0b01);
        world.actors[0].mempolicy = MemPolicy { mode: 2, flags: 0, nodes: 0b10 };
        let found = found(world, 20, "cpus-and-memory-apart");
        assert_eq!(found[0].severity, Severity::Warning);
        assert_eq!(commands(&found[0]), ["migratepages 700 1 0"]);
        assert_eq!(undo(&found[0]), ["migratepages 700 0 1"]);
    }

    #[test]
    fn common_nodes_are_quiet() {
        assert!(found(world("0-3", "0-1"), 20, "cpus-and-memory-apart").is_empty());
    }

    #[test]
    fn not_memory_only() {
        let mut world = world("0-3", "1");
        Arc::make_mut(&mut world.host).topology.nodes[1].cpus.clear();
        assert!(found(world, 20, "cpus-and-memory-apart").is_empty());
    }

    #[test]
    fn not_no_memory() {
        let mut world = world("0-3", "1");
        Arc::make_mut(&mut world.host).topology.nodes[0].mem_total_bytes = 0;
        assert!(found(world, 20, "cpus-and-memory-apart").is_empty());
    }

    #[test]
    fn not_prefer() {
        let mut world = world("0-31", "0-1");
        world.actors[0].cpu_nodes = Some(0b01);
        world.actors[0].mempolicy = MemPolicy { mode: 1, flags: 0, nodes: 0b10 };
        assert!(found(world, 20, "cpus-and-memory-apart").is_empty());
    }

    #[test]
    fn not_small() {
        let mut world = world("0-3", "1");
        world.actors[0].rss = GIB / 8;
        assert!(found(world, 20, "cpus-and-memory-apart").is_empty());
    }
}

mod page_cache_fills_node {
    use super::*;
    use numatop_ng::model::sample::{FilePages, GroupRaw, GroupReclaim};

    const CACHE: FilePages =
        FilePages { active_bytes: 4 * GIB, inactive_bytes: 30 * GIB, shmem_bytes: 0, dirty_bytes: 0 };

    /// A process on node 0, which is full of page cache, with a quarter of its memory on node 1.
    fn world(cache: FilePages) -> Machine {
        let actor = Actor { rss: 18 * GIB, memory: pages(26), cgroup: SERVICE, ..Actor::new(54723, "java") };
        let mut world = machine(TWO, vec![actor.runs(&[(0, 390.0)])]);
        world.nodes[0].mem_free_bytes = 3 * GIB;
        world.nodes[0].file_pages = Some(cache);
        world
    }

    #[test]
    fn fires() {
        let found = found(world(CACHE), 40, "page-cache-fills-node");
        assert_eq!(found[0].severity, Severity::Warning);
        assert_eq!(
            found[0].advice.sentence,
            "Node 0 is full of page cache, so 26.0 +-3.1 % of java's memory is on node 1."
        );
        assert_eq!(commands(&found[0]), ["echo 1 > /proc/sys/vm/drop_caches", "migratepages 54723 1 0"]);
        assert!(found[0].advice.risk.starts_with("This affects the whole machine"));
    }

    #[test]
    fn the_file_of_a_node_goes_before_all_caches() {
        let mut world = world(CACHE);
        Arc::make_mut(&mut world.host).node_reclaim_file = Some(true);
        let found = found(world, 40, "page-cache-fills-node");
        assert_eq!(
            commands(&found[0])[0],
            "echo \"9704M swappiness=0\" > /sys/devices/system/node/node0/reclaim"
        );
    }

    /// The groups that own the page cache of node 0, by path: bytes there, and on node 1.
    fn owned(groups: &[(u64, u64, u64)], reclaim: Option<GroupReclaim>) -> Finding {
        let mut world = world(CACHE);
        let host = Arc::make_mut(&mut world.host);
        host.cgroups = Some(CgroupFacts {
            mode: CgroupMode::V2,
            memory_migrate: None,
            memory_spread_page: None,
            memory_spread_slab: None,
        });
        host.group_reclaim = reclaim;
        for (at, (id, here, there)) in (0..).zip(groups) {
            world.actors.push(Actor { cgroup: *id, memory: pages(0), ..Actor::new(6000 + at, "reader") });
            let cache_by_node = Ok([(0, *here), (1, *there)].into());
            let raw = GroupRaw { cache_by_node, mem_bytes: Ok(40 * GIB), ..files("0-31", "0-1") };
            world.groups.insert(*id, Arc::new(raw));
        }
        found(world, 40, "page-cache-fills-node").remove(0)
    }

    #[test]
    fn the_group_that_owns_it_is_named_and_reclaimed() {
        let found = owned(&[(SERVICE, GIB, 0), (PLAIN, 20 * GIB, 20 * GIB)], Some(GroupReclaim::Swappiness));
        assert!(found.advice.sentence.contains("page cache (59 % jobs), so"), "{}", found.advice.sentence);
        // Half of the lost part is on node 1.
        assert_eq!(commands(&found)[0], "echo \"19408M swappiness=0\" > /sys/fs/cgroup/jobs/memory.reclaim");
        assert!(found.advice.commands[0].words.contains("9704 MiB on nodes other than 0"));
        let owner = found.evidence.last().unwrap();
        assert_eq!((owner.metric, owner.value), ("cache_bytes_by_node", 20.0 * GIB as f64));
        let before = owned(&[(PLAIN, 20 * GIB, 0)], Some(GroupReclaim::Amount));
        assert_eq!(commands(&before)[0], "echo 9704M > /sys/fs/cgroup/jobs/memory.reclaim");
        assert!(before.advice.commands[0].words.contains("can also swap"));
    }

    #[test]
    fn a_unit_gets_a_limit() {
        let found = owned(&[(SERVICE, 30 * GIB, 0)], Some(GroupReclaim::Swappiness));
        let line = &commands(&found)[2];
        assert!(line.starts_with("systemctl set-property mysql.service MemoryHigh="), "{line}");
    }

    #[test]
    fn a_kernel_without_the_file_and_many_owners_get_the_command_for_all() {
        let all = "echo 1 > /proc/sys/vm/drop_caches";
        let absent = owned(&[(PLAIN, 20 * GIB, 0)], Some(GroupReclaim::Absent));
        assert_eq!(commands(&absent)[0], all);
        assert!(absent.advice.sentence.contains("(59 % jobs)"));
        let groups = [(SERVICE, 10 * GIB, 0), (PLAIN, 11 * GIB, 0), (DOCKER, 9 * GIB, 0)];
        let many = owned(&groups, Some(GroupReclaim::Swappiness));
        assert_eq!(commands(&many)[0], all);
        assert!(many.advice.sentence.contains("(32 % jobs, 29 % mysql.service)"), "{}", many.advice.sentence);
        let none = owned(&[(SERVICE, GIB, 0)], Some(GroupReclaim::Swappiness));
        assert!(
            none.advice.sentence.contains("97 % not charged to a group with tasks"),
            "{}",
            none.advice.sentence
        );
    }

    #[test]
    fn not_shm() {
        let shm = FilePages { active_bytes: 0, inactive_bytes: GIB, shmem_bytes: 33 * GIB, dirty_bytes: 0 };
        assert!(found(world(shm), 40, "page-cache-fills-node").is_empty());
    }

    #[test]
    fn not_dirty() {
        assert!(
            found(world(FilePages { dirty_bytes: 20 * GIB, ..CACHE }), 40, "page-cache-fills-node")
                .is_empty()
        );
    }

    #[test]
    fn not_full() {
        let few = FilePages { inactive_bytes: 2 * GIB, ..CACHE };
        assert!(found(world(few), 40, "page-cache-fills-node").is_empty());
    }

    #[test]
    fn not_interleave() {
        let mut world = world(CACHE);
        world.actors[0].mempolicy = MemPolicy { mode: 3, flags: 0, nodes: 3 };
        assert!(found(world, 40, "page-cache-fills-node").is_empty());
    }

    #[test]
    fn not_cold() {
        let mut world = world(CACHE);
        world.actors[0].scan_period_ms = 1000;
        assert!(blind(world, 40, "page-cache-fills-node").unwrap().starts_with("cold"));
    }

    #[test]
    fn not_mems_elsewhere() {
        let mut world = world(CACHE);
        world.actors[0].mem_nodes = Some(0b10);
        assert!(found(world, 40, "page-cache-fills-node").is_empty());
    }

    #[test]
    fn with_room_on_its_node_it_is_quiet() {
        let mut world = world(CACHE);
        world.nodes[0].mem_free_bytes = 10 * GIB;
        assert!(found(world, 40, "page-cache-fills-node").is_empty());
    }
}

#[test]
fn a_crumb_of_memory_is_no_source_and_the_largest_part_comes_first() {
    use numatop_ng::finding::guards::Placed;
    use numatop_ng::model::units::NodeId;
    let placed = |bytes: &[f64]| Placed { bytes: bytes.to_vec(), ..Placed::default() };
    let home = [NodeId(2)];
    let crumb = placed(&[0.7, 0.0, 0.0, 99.3]);
    assert_eq!(crumb.sources(&home), [NodeId(3)]);
    let two = placed(&[20.0, 0.0, 10.0, 70.0]);
    assert_eq!(
        (two.sources(&home), two.most(&two.sources(&home))),
        (vec![NodeId(0), NodeId(3)], Some(NodeId(3)))
    );
    // Many small parts count together.
    let many: Vec<f64> = (0..32).map(|_| 1.0).collect();
    assert_eq!(placed(&many).sources(&home).len(), 31);
}

mod memory_on_one_node {
    use super::*;
    use numatop_ng::model::counts::Counts;

    const ID: &str = "memory-on-one-node";

    /// A process that needs the CPUs of both nodes; one thread has touched its memory on node 0.
    fn actor() -> Actor {
        let actor = Actor {
            rss: 20 * GIB,
            memory: vec![1024, 0],
            own_policy_pct: Some(0),
            cgroup: SERVICE,
            ..Actor::new(4242, "java")
        };
        actor.runs(&[(0, 700.0), (1, 700.0)])
    }

    fn world(actor: Actor) -> Machine {
        let mut world = machine(TWO, vec![actor]);
        world.state.numa_balancing = Some(0);
        world
    }

    fn is_quiet(actor: Actor) {
        assert!(found(world(actor), 90, ID).is_empty());
    }

    #[test]
    fn fires() {
        let found = found(world(actor()), 90, ID).remove(0);
        assert_eq!((found.severity, found.confidence), (Severity::Warning, Confidence::Estimated));
        assert_eq!(
            found.advice.sentence,
            "java runs 50.0 % of its time on node 1, which has none of its 20.0 GiB; its memory is on node 0."
        );
        assert!(found.advice.commands[0].words.starts_with("kernel.numa_balancing=1"));
    }

    #[test]
    fn where_balancing_is_on_only_the_next_start_is_left() {
        let mut world = world(actor());
        world.state.numa_balancing = Some(1);
        let found = found(world, 90, ID).remove(0);
        assert!(found.advice.commands[0].words.starts_with("put numactl --interleave=0-1"));
    }

    #[test]
    fn unknown_policies_make_it_an_info() {
        let found = found(world(Actor { own_policy_pct: None, ..actor() }), 90, ID).remove(0);
        assert_eq!(found.severity, Severity::Info);
    }

    #[test]
    fn not_fits() {
        let small = Actor { runs: vec![(0, 150.0), (1, 150.0)], ..actor() };
        let engine = watch(world(small), 90);
        let ids: Vec<&str> = engine.findings().iter().map(|finding| finding.key.id).collect();
        assert!(ids.contains(&"spread-over-nodes") && !ids.contains(&ID), "{ids:?}");
    }

    #[test]
    fn not_interleave() {
        let mempolicy = MemPolicy { mode: 3, flags: 0, nodes: 0b11 };
        is_quiet(Actor { mempolicy, ..actor() });
    }

    #[test]
    fn not_bound() {
        is_quiet(Actor { mem_nodes: Some(0b01), ..actor() });
    }

    #[test]
    fn not_own_policies() {
        is_quiet(Actor { own_policy_pct: Some(90), ..actor() });
    }

    #[test]
    fn not_shared() {
        is_quiet(Actor { shmem: 10 * GIB, ..actor() });
    }

    #[test]
    fn not_unused() {
        let scanned = Counts::default().with([(Counter::HintFaults, 900), (Counter::HintRemote, 0)]);
        let mut world = world(Actor { scan_period_ms: 1000, per_second: scanned, ..actor() });
        world.state.numa_balancing = Some(1);
        assert!(found(world, 90, ID).is_empty());
    }

    #[test]
    fn not_converging() {
        let moved = Counts::default().with([(Counter::MigratedPages, 200_000)]);
        is_quiet(Actor { per_second: moved, ..actor() });
    }

    #[test]
    fn not_no_room() {
        let mut world = world(actor());
        world.nodes[1].mem_free_bytes = GIB;
        world.nodes[1].mem_file_bytes = 0;
        assert!(found(world, 90, ID).is_empty());
    }

    #[test]
    fn memory_on_both_nodes_is_quiet() {
        is_quiet(Actor { memory: pages(10), ..actor() });
    }
}
