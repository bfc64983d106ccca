//! Pages of hugetlbfs in pools of other nodes.

use numatop_ng::finding::{Confidence, End, Finding, Severity};
use numatop_ng::model::sample::{HugeNode, HugePages, MemPolicy};
use numatop_ng::model::units::NodeId;

use crate::world::{
    Actor, BOOT_NS, GIB, Machine, S, TWO, blind, commands, each_second, found, lines, machine, pages, undo,
    watch,
};

pub mod hugetlb_on_other_node {
    use super::*;

    const ID: &str = "hugetlb-on-other-node";

    /// Pages of 2 MiB on two nodes: of the process, of the pool, and free.
    fn pools(nodes: [[u64; 3]; 2]) -> Vec<HugePages> {
        let by_node = (0..).zip(nodes.map(|[used, total, free]| HugeNode { used, total, free }));
        vec![HugePages { page_bytes: 2 << 20, by_node: by_node.collect() }]
    }

    /// A database on node 0, whose pool has 4 GiB; 16 GiB of its 20 come from that of node 1.
    fn database() -> Actor {
        let actor = Actor {
            rss: 20 * GIB,
            memory: pages(80),
            own_policy_pct: Some(0),
            huge: pools([[2048, 2048, 0], [8192, 8192, 0]]),
            ..Actor::new(4242, "mysqld")
        };
        actor.runs(&[(0, 400.0)])
    }

    pub fn world() -> Machine {
        let mut world = machine(TWO, vec![database()]);
        world.state.numa_balancing = Some(0);
        world
    }

    fn with(change: impl FnOnce(&mut Actor)) -> Machine {
        let mut world = world();
        change(&mut world.actors[0]);
        world
    }

    fn it(world: Machine) -> Vec<Finding> {
        found(world, 40, ID)
    }

    #[test]
    fn fires() {
        let found = it(world());
        assert_eq!((found[0].severity, found[0].confidence), (Severity::Warning, Confidence::Estimated));
        assert!(
            found[0]
                .advice
                .sentence
                .starts_with("mysqld runs on node 0, whose pool of huge pages is used up; 80.0 +-")
                && found[0].advice.sentence.ends_with(" % of the process memory is in huge pages of node 1."),
            "{}",
            found[0].advice.sentence
        );
        let pool = |node: u32| {
            format!("/sys/devices/system/node/node{node}/hugepages/hugepages-2048kB/nr_hugepages")
        };
        assert_eq!(
            commands(&found[0]),
            [format!("echo 10240 > {}", pool(0)), format!("echo 0 > {}", pool(1))]
        );
        assert_eq!(undo(&found[0]), [format!("echo 2048 > {}", pool(0)), format!("echo 8192 > {}", pool(1))]);
        let words = &found[0].advice.commands[2].words;
        assert!(words.contains("hugepagesz=2M hugepages=0:10240,1:0"), "{words}");
        // All of four CPUs, 80 % at distance 20.
        let gain = found[0].advice.gain.at_most.unwrap();
        assert!((gain - 4.0 * (1.0 - 1.0 / 1.8)).abs() < 0.05, "{gain}");
    }

    #[test]
    fn it_explains_the_memory_on_the_other_node() {
        let engine = watch(world(), 80);
        let symptom = engine.findings().iter().find(|finding| finding.key.id == "memory-on-other-node");
        let cause = symptom.and_then(|finding| finding.because_of.as_ref()).map(|key| key.id);
        assert_eq!(cause, Some(ID), "{:?}", lines(&engine));
    }

    #[test]
    fn with_the_printed_sizes_and_a_restart_it_ends_and_does_not_come_back() {
        let mut world = world();
        each_second(&mut world, |machine, second| {
            if second == 60 {
                let new = Actor { pid: 4300, tid: 4300, start_ns: Some(BOOT_NS + 60 * S), ..database() };
                machine.actors =
                    vec![Actor { memory: pages(0), huge: pools([[10240, 10240, 0], [0, 0, 0]]), ..new }];
            }
        });
        let engine = watch(world, 220);
        assert!(engine.findings().iter().all(|finding| finding.key.id != ID), "{:?}", lines(&engine));
        let ended: Vec<_> = engine.ended().filter(|finding| finding.key.id == ID).collect();
        assert_eq!(ended.len(), 1);
        assert_eq!(ended[0].end.map(|(end, _)| end), Some(End::Gone));
    }

    #[test]
    fn a_restart_without_the_printed_sizes_is_the_same_again() {
        let mut world = world();
        each_second(&mut world, |machine, second| {
            if second == 60 {
                machine.actors =
                    vec![Actor { pid: 4300, tid: 4300, start_ns: Some(BOOT_NS + 60 * S), ..database() }];
            }
        });
        assert_eq!(found(world, 220, ID).len(), 1);
    }

    #[test]
    fn without_room_no_command_is_printed() {
        let mut world = world();
        world.nodes[0].mem_free_bytes = 8 * GIB;
        world.nodes[0].file_pages = Some(Default::default());
        let found = it(world);
        assert!(commands(&found[0]).is_empty() && found[0].advice.undo.is_empty());
        assert!(
            found[0].advice.commands[0].words.contains("needs 16.0 GiB"),
            "{:?}",
            found[0].advice.commands
        );
    }

    #[test]
    fn a_gain_that_is_not_worth_it_makes_it_an_info() {
        // A node that is hardly farther than the own one.
        let mut near = world();
        let topology = &mut std::sync::Arc::make_mut(&mut near.host).topology;
        for node in &mut topology.nodes {
            node.distances = vec![(NodeId(0), 10), (NodeId(1), 10)];
        }
        assert_eq!(it(near)[0].severity, Severity::Info);
    }

    #[test]
    fn mappings_that_were_not_read_make_it_blind() {
        let why = blind(with(|actor| actor.own_policy_pct = None), 40, ID).unwrap();
        assert!(why.contains("huge pages"), "{why}");
    }

    #[test]
    fn not_thp() {
        assert!(it(with(|actor| actor.huge = vec![])).is_empty());
    }

    #[test]
    fn not_policy() {
        assert!(it(with(|actor| actor.own_policy_pct = Some(25))).is_empty());
        let interleaved = MemPolicy { mode: 3, flags: 0, nodes: 3 };
        assert!(it(with(|actor| actor.mempolicy = interleaved)).is_empty());
    }

    #[test]
    fn not_pool_even() {
        let even = || pools([[2048, 8192, 0], [8192, 8192, 0]]);
        assert_eq!(it(with(|actor| actor.huge = even())).len(), 1, "it runs on one of them");
        let both = with(|actor| (actor.huge, actor.runs) = (even(), vec![(0, 240.0), (1, 160.0)]));
        assert!(it(both).is_empty());
    }

    #[test]
    fn not_pool_has_room() {
        assert!(it(with(|actor| actor.huge = pools([[2048, 2049, 1], [8192, 8192, 0]]))).is_empty());
        assert!(it(with(|actor| actor.huge = pools([[2048, 10240, 0], [8192, 8192, 0]]))).is_empty());
    }

    #[test]
    fn not_mems_elsewhere() {
        assert!(it(with(|actor| actor.mem_nodes = Some(0b10))).is_empty());
    }

    #[test]
    fn not_small_pages() {
        assert!(it(with(|actor| actor.huge = pools([[2048, 2048, 0], [512, 8192, 0]]))).is_empty());
    }
}
