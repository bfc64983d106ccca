//! Large and shared memory: severity by the known policies, and processes that share memory as one subject.

use std::sync::Arc;

use crate::world::{
    Actor, DOCKER, GIB, Machine, SERVICE, TWO, commands, count_also, files, found, found_in, lines, machine,
    pages, sample_use, samples, undo, watch,
};
use numatop_ng::finding::{Assumption, Finding, Gain, Severity, Subject, SubjectKind};
use numatop_ng::model::event::Role;
use numatop_ng::model::memory::{ObjectId, ObjectNodes};
use numatop_ng::model::sample::{PagesByPolicy, SharedObject};

const ID: &str = "memory-on-other-node";
const SPREAD: &str = "spread-over-nodes";

/// Its pages by policy: all found pages, and the intended ones.
pub fn policies(memory: &[u32], meant: &[u32]) -> Option<PagesByPolicy> {
    let (by_node, explicit, meant) = (memory.to_vec(), meant.to_vec(), meant.to_vec());
    Some(PagesByPolicy { mappings: 90, by_node, explicit, meant, ..PagesByPolicy::default() })
}

/// A database of `gib` GiB that runs on node 0, with this share of its memory on node 1.
fn database(gib: u64, elsewhere: u32, meant: &[u32]) -> Actor {
    let memory = pages(elsewhere);
    let by_policy = policies(&memory, meant);
    let actor = Actor { rss: gib * GIB, memory, by_policy, ..Actor::new(4242, "mysqld") };
    actor.runs(&[(0, 400.0)])
}

fn world_of(actors: Vec<Actor>) -> Machine {
    let mut world = machine(TWO, actors);
    world.state.numa_balancing = Some(0);
    for node in &mut world.nodes {
        node.mem_total_bytes = 128 * GIB;
        node.managed_bytes = 128 * GIB;
        node.mem_free_bytes = 90 * GIB;
    }
    world
}

fn one(world: Machine, id: &str) -> Option<Finding> {
    let mut found = found(world, 70, id);
    assert!(found.len() < 2, "{found:?}");
    found.pop()
}

mod severity {
    use super::*;

    fn of(actor: Actor) -> Option<(Severity, usize)> {
        one(world_of(vec![actor]), ID).map(|finding| (finding.severity, commands(&finding).len()))
    }

    #[test]
    fn a_process_larger_than_any_walk_is_a_warning() {
        assert_eq!(of(database(48, 96, &[])), Some((Severity::Warning, 1)));
    }

    #[test]
    fn without_policies_it_is_an_info() {
        let unknown = Actor { by_policy: None, ..database(48, 96, &[]) };
        assert_eq!(of(unknown), Some((Severity::Info, 1)));
    }

    #[test]
    fn memory_that_is_meant_to_be_there_is_no_finding() {
        assert_eq!(of(database(48, 96, &[0, 983])), None);
        assert_eq!(of(database(48, 96, &[0, 850])), None, "a tenth of it is not meant");
    }

    #[test]
    fn a_policy_that_names_the_node_where_it_runs_means_nothing_elsewhere() {
        assert_eq!(of(database(48, 96, &[40])), Some((Severity::Warning, 1)));
    }

    #[test]
    fn the_rest_beside_memory_that_is_meant_is_told_without_a_line() {
        assert_eq!(of(database(48, 96, &[0, 100])), Some((Severity::Warning, 0)));
        assert_eq!(of(database(48, 96, &[0, 400])), Some((Severity::Info, 0)), "which is used is not known");
    }

    #[test]
    fn a_share_within_its_error_of_the_limit_is_an_info() {
        assert_eq!(of(database(48, 22, &[])).map(|(severity, _)| severity), Some(Severity::Info));
        assert_eq!(of(database(48, 30, &[])).map(|(severity, _)| severity), Some(Severity::Warning));
    }

    #[test]
    fn mappings_that_changed_too_much_are_not_known() {
        let mut actor = database(48, 96, &[]);
        actor.by_policy.as_mut().unwrap().unmatched = 300;
        assert_eq!(of(actor).map(|(severity, _)| severity), Some(Severity::Info));
    }

    #[test]
    fn known_accesses_bound_the_gain() {
        // Half of the accesses leave the node, at twice the cost.
        let gain = |meant: &[u32]| {
            let actor = database(48, 96, meant);
            let mut world = world_of(vec![Actor { accesses: 1.0, remote_share: Some(0.5), ..actor }]);
            count_also(&mut world, &[Role::Lma, Role::Rma]);
            one(world, ID).unwrap().advice.gain
        };
        let is_near = |gain: &Gain, cpus: f64| (gain.at_most.unwrap() - cpus).abs() < 0.01;
        let all = gain(&[]);
        assert!(is_near(&all, 4.0 * (1.0 - 1.0 / 1.5)), "{all:?}");
        assert!(!all.assumes.contains(&Assumption::PagesUsedAlike), "{all:?}");
        // Of 983 pages elsewhere 100 are meant to be there, and so are as many of the accesses.
        let rest = gain(&[0, 100]);
        assert!(is_near(&rest, 4.0 * (1.0 - (1.0 + 0.5 * 100.0 / 983.0) / 1.5)), "{rest:?}");
        let without = one(world_of(vec![database(48, 96, &[])]), ID).unwrap().advice.gain;
        assert!(without.at_most > all.at_most, "{without:?}");
        assert!(without.assumes.contains(&Assumption::PagesUsedAlike), "{without:?}");
    }

    #[test]
    fn known_accesses_bound_the_gain_of_fewer_nodes() {
        let actor = database(20, 50, &[]).runs(&[(0, 200.0), (1, 200.0)]);
        let mut world =
            world_of(vec![Actor { accesses: 1.0, remote_share: Some(0.4), node_moves: 50, ..actor }]);
        count_also(&mut world, &[Role::Lma, Role::Rma]);
        let finding = one(world, SPREAD).unwrap();
        let gain = &finding.advice.gain;
        assert!((gain.at_most.unwrap() - 4.0 * (1.0 - 1.0 / 1.4)).abs() < 0.01, "{gain:?}");
        assert!(!gain.assumes.contains(&Assumption::PagesUsedAlike), "{gain:?}");
        let sentence = &finding.advice.sentence;
        assert!(sentence.contains("and 50.0 % of its memory is remote"), "{sentence}");
    }

    #[test]
    fn time_at_memory_of_other_nodes_shows_its_use() {
        // NUMA balancing is on: without a witness of use it is an info.
        let severity = |at_memory: Option<[u64; 3]>| {
            let mut world = world_of(vec![database(48, 96, &[])]);
            world.state.numa_balancing = Some(1);
            let (host, mut samples) = samples(world, 70, 1000);
            if let Some(at_memory) = at_memory {
                sample_use(&mut samples, 4242, 1000, at_memory);
            }
            found_in(&host, &samples, ID).first().map(|finding| finding.severity)
        };
        assert_eq!(severity(None), Some(Severity::Info));
        assert_eq!(severity(Some([100, 400, 0])), Some(Severity::Warning));
        // Without an address they may all be local: 15 of 50 are a fifth at least, of 75 they are not.
        assert_eq!(severity(Some([150, 150, 290])), Some(Severity::Warning));
        assert_eq!(severity(Some([250, 150, 350])), Some(Severity::Info));
    }

    #[test]
    fn more_memory_that_is_meant_never_raises_it() {
        let mut last = Some(Severity::Critical);
        for meant in (0..=983).step_by(60) {
            let severity = of(database(48, 96, &[0, meant])).map(|(severity, _)| severity);
            assert!(severity <= last, "{meant}: {severity:?} after {last:?}");
            last = severity;
        }
    }
}

/// A segment of `gib` GiB with this share on node 1, and processes on node 0 that share it. Each has one GiB
/// of private memory.
pub fn sharing(gib: u64, elsewhere: u32, pids: std::ops::Range<u32>) -> Vec<Actor> {
    let count = pids.len() as u32;
    // Of 1,024 pages these are the segment's.
    let of_segment = (gib * 1024 / (gib + 1)) as u32;
    let away = of_segment * elsewhere / 100;
    let segment = SharedObject {
        device: 5,
        inode: 77,
        generation: 3,
        bytes: gib * GIB,
        resident_bytes: gib * GIB,
        mappings: Some(count),
        own_mappings: 1,
        by_node: vec![of_segment - away, away],
        meant: vec![],
    };
    let memory = vec![1024 - away, away];
    let process = |pid: u32| {
        let by_policy = policies(&memory, &[]).map(|pages| PagesByPolicy {
            shared: segment.by_node.clone(),
            objects: vec![segment.clone()],
            ..pages
        });
        Actor {
            ppid: 900,
            cgroup: SERVICE,
            rss: (gib + 1) * GIB,
            shmem: gib * GIB,
            memory: memory.clone(),
            by_policy,
            ..Actor::new(pid, "postgres")
        }
        .runs(&[(0, 40.0)])
    };
    pids.map(process).collect()
}

/// Kinds of subjects and severities that a rule finds in these processes, whose segment all processes of the machine together
/// have mapped so often.
pub fn of_segment(mut actors: Vec<Actor>, mappings: u32, id: &str) -> Vec<(SubjectKind, Severity)> {
    for pages in actors.iter_mut().filter_map(|actor| actor.by_policy.as_mut()) {
        pages.objects[0].mappings = Some(mappings);
    }
    let all = found(world_of(actors), 70, id);
    all.iter().map(|finding| (finding.key.subject.kind(), finding.severity)).collect()
}

mod sums {
    use numatop_ng::metric::container;
    use numatop_ng::report::fold::{Fold, Interval};
    use numatop_ng::report::{Options, Report};
    use numatop_ng::snapshot::{RowKind, Snapshot, counted_twice, derive};

    use super::*;

    /// Two samples of 4 processes that share a segment of 24 GiB and have 1 GiB each.
    fn snapshot(rows: RowKind) -> Snapshot {
        let (host, samples) = samples(world_of(sharing(24, 96, 900..904)), 2, 1000);
        derive(&host, Some(&samples[1]), &samples[2], rows)
    }

    fn gib(bytes: f64) -> f64 {
        bytes / GIB as f64
    }

    #[test]
    fn a_container_has_shared_memory_once() {
        for rows in [RowKind::Processes, RowKind::Threads] {
            let snapshot = snapshot(rows);
            let row = snapshot.containers.iter().find(|row| row.id == SERVICE).unwrap();
            let read = container::by_id("rss_bytes").unwrap().read(row, &snapshot).unwrap();
            let found = gib(read.number().unwrap());
            assert!((found - 28.0).abs() < 0.1, "{found} GiB");
        }
    }

    #[test]
    fn a_program_of_a_report_has_shared_memory_once() {
        let snapshot = snapshot(RowKind::Processes);
        let span = (snapshot.wall_ns - 1_000_000_000, snapshot.wall_ns);
        let mut fold = Fold::new(Options::default(), span, 1_000_000_000, &snapshot.host).unwrap();
        fold.take(Interval { snapshot: &snapshot, is_interrupted: false, hot: None });
        let report: Report = fold.finish().unwrap();
        let row = report.programs.rows.iter().find(|row| row.name == "postgres").unwrap();
        let found = gib(row.sums.rss.value());
        assert!((found - 28.0).abs() < 0.1, "{found} GiB");
        let by_node = &row.sums.memory_by_node;
        let away = 100.0 * by_node[1] / by_node.iter().sum::<f64>();
        // 96 % of 24 GiB, and none of the other four.
        assert!((away - 82.3).abs() < 0.5, "{away} %");
    }

    #[test]
    fn parts_of_an_object_that_nobody_has_twice_stay() {
        // Each of four has touched a quarter of the segment: together they have it once.
        let snapshot = snapshot(RowKind::Processes);
        let parts = snapshot.tasks.iter().filter(|task| task.by_policy().is_some());
        let twice: f64 = counted_twice(parts.clone().take(1)).iter().sum();
        assert_eq!(twice, 0.0, "one process has nothing twice");
        let twice: f64 = counted_twice(parts.take(2)).iter().sum();
        assert!((gib(twice) - 24.0).abs() < 0.1, "{} GiB", gib(twice));
        let mut quarters = sharing(24, 96, 900..904);
        for actor in &mut quarters {
            actor.by_policy.as_mut().unwrap().objects[0].by_node = vec![10, 236];
        }
        let (host, samples) = samples(world_of(quarters), 2, 1000);
        let snapshot = derive(&host, Some(&samples[1]), &samples[2], RowKind::Processes);
        let parts = snapshot.tasks.iter().filter(|task| task.by_policy().is_some());
        let twice: f64 = counted_twice(parts).iter().sum();
        assert!(gib(twice) < 0.1, "{} GiB", gib(twice));
    }
}

mod groups {
    use super::*;

    #[test]
    fn processes_that_share_memory_are_one_finding_with_one_line() {
        let finding = one(world_of(sharing(24, 96, 900..904)), ID).unwrap();
        assert_eq!(finding.severity, Severity::Warning);
        assert_eq!(finding.key.subject, Subject::Group(900, 900_000_000));
        assert_eq!(finding.identity.label, "mysql.service, 4 processes");
        assert_eq!(finding.identity.members.len(), 4);
        let words = &finding.advice.commands[0].words;
        assert!(words.starts_with("moves 23.0 GiB to node 0"), "{words}");
        assert_eq!(commands(&finding), ["migratepages 900 1 0"]);
        assert_eq!(undo(&finding), ["migratepages 900 0 1"]);
        assert!(
            finding.advice.undo[0].words.starts_with("moves all of its memory back"),
            "{:?}",
            finding.advice.undo
        );
    }

    #[test]
    fn other_processes_that_map_it_are_the_reason_of_an_info() {
        let mut world = sharing(24, 96, 900..904);
        for pages in world.iter_mut().filter_map(|actor| actor.by_policy.as_mut()) {
            pages.objects[0].mappings = Some(50);
        }
        let finding = one(world_of(world), ID).unwrap();
        assert_eq!(finding.severity, Severity::Info);
        assert!(
            finding.advice.or_else[0].starts_with("Other processes also map this memory"),
            "{:?}",
            finding.advice.or_else
        );
    }

    #[test]
    fn a_process_alone_in_its_group_is_a_process() {
        // Three mappings, all its own.
        let mut alone = sharing(24, 96, 900..901);
        let segment = &mut alone[0].by_policy.as_mut().unwrap();
        (segment.shared, segment.objects) = (vec![], vec![]);
        alone[0].runs = vec![(0, 160.0)];
        let finding = one(world_of(alone), ID).unwrap();
        assert_eq!(finding.key.subject, Subject::Process(900, 900_000_000));
        assert_eq!(finding.severity, Severity::Warning);
    }

    /// The finding if these numbers of pages of the segment were drawn on each node, and `meant` of them are
    /// intended.
    fn drawn(by_node: [u32; 2], meant: u32, error_hundredths: u32) -> Option<Finding> {
        let mut world = world_of(sharing(24, 96, 900..904));
        let nodes = ObjectNodes {
            asked: 1024,
            by_node: by_node.into(),
            meant: vec![0, meant],
            error_hundredths,
            read_ns: 0,
        };
        world.object_nodes = [(ObjectId { device: 5, inode: 77, generation: 3 }, nodes)].into();
        one(world, ID)
    }

    #[test]
    fn nodes_of_a_segment_are_those_of_the_page_cache() {
        // By page tables 96 % are on node 1.
        assert_eq!(drawn([1000, 24], 0, 90), None);
        assert_eq!(drawn([24, 1000], 1000, 90), None, "they are meant to be there");
        let found = drawn([300, 724], 0, 290).unwrap();
        let words = &found.advice.commands[0].words;
        assert!(words.starts_with("moves 17.0 GiB to node 0"), "{words}");
        assert!(found.identity.objects[0].is_drawn && found.identity.objects[0].error_hundredths == 290);
    }

    #[test]
    fn a_draw_that_finds_next_to_nothing_is_not_used() {
        let found = drawn([2, 1], 0, 5000).unwrap();
        assert!(!found.identity.objects[0].is_drawn, "{:?}", found.identity.objects);
        assert!(!drawn([0, 0], 0, 0).unwrap().identity.objects[0].is_drawn);
    }

    #[test]
    fn a_segment_that_is_meant_to_be_there_is_quiet() {
        let mut meant = sharing(24, 96, 900..904);
        for actor in &mut meant {
            let pages = actor.by_policy.as_mut().unwrap();
            let all = pages.objects[0].by_node.clone();
            (pages.meant, pages.explicit) = (all.clone(), all.clone());
            pages.objects[0].meant = all;
        }
        assert_eq!(one(world_of(meant), ID), None);
    }

    #[test]
    fn members_are_no_subjects_of_their_own() {
        let engine = watch(world_of(sharing(24, 96, 900..904)), 70);
        assert_eq!(lines(&engine), ["warning estimated memory-on-other-node/group 900@900000000"]);
    }

    #[test]
    fn a_small_object_makes_no_group() {
        let mut small = sharing(24, 96, 900..904);
        for actor in &mut small {
            actor.by_policy.as_mut().unwrap().objects[0].resident_bytes = 100 << 20;
        }
        assert_eq!(one(world_of(small), ID), None, "a fifth of its memory is shared");
    }

    #[test]
    fn a_group_has_the_verdict_of_one_process_with_the_same_sums() {
        for elsewhere in [10, 30, 60, 96] {
            let group = one(world_of(sharing(24, elsewhere, 900..904)), ID);
            let mut whole = database(28, elsewhere * 24 / 28, &[]);
            whole.runs = vec![(0, 160.0)];
            let process = one(world_of(vec![whole]), ID);
            let severity = |finding: Option<Finding>| finding.map(|finding| finding.severity);
            assert_eq!(severity(group), severity(process), "{elsewhere} %");
        }
    }

    /// Processes that are pinned to node 0, with this share of their segment on node 1.
    fn pinned(elsewhere: u32) -> Vec<Actor> {
        let pinned = |actor| Actor { cpu_nodes: Some(0b01), ..actor };
        sharing(24, elsewhere, 900..904).into_iter().map(pinned).collect()
    }

    #[test]
    fn a_group_that_is_pinned_is_one_finding_with_one_line() {
        let engine = watch(world_of(pinned(60)), 70);
        assert_eq!(lines(&engine), ["warning estimated remote-after-pin/group 900@900000000"]);
        let finding = &engine.findings()[0];
        assert_eq!(
            finding.advice.sentence,
            "mysql.service, 4 processes, can run only on node 0, but 51.4 +-2.7 % of their memory is on node 1."
        );
        assert_eq!(commands(finding), ["migratepages 900 1 0"]);
        let words = &finding.advice.commands[0].words;
        assert!(words.starts_with("moves 14.4 GiB to node 0") && words.contains("as root"), "{words}");
        assert_eq!(finding.advice.check[0].of, Subject::Process(900, 900_000_000));
        assert!(watch(world_of(pinned(5)), 70).findings().is_empty());
    }

    #[test]
    fn a_container_with_a_cpuset_is_the_subject_for_its_group() {
        let mut contained = pinned(60);
        contained.iter_mut().for_each(|actor| actor.cgroup = DOCKER);
        let mut world = world_of(contained);
        world.groups = [(DOCKER, Arc::new(files("0-7", "0-1")))].into();
        let engine = watch(world, 70);
        assert_eq!(lines(&engine), [format!("warning estimated remote-after-pin/cgroup {DOCKER}")]);
    }

    #[test]
    fn a_group_that_is_spread_is_bound_as_its_unit() {
        let mut spread = sharing(24, 50, 900..904);
        for actor in &mut spread {
            (actor.runs, actor.node_moves) = (vec![(0, 20.0), (1, 20.0)], 20);
        }
        let finding = one(world_of(spread), SPREAD).unwrap();
        assert_eq!(finding.severity, Severity::Warning);
        let lines = commands(&finding);
        assert!(
            lines[0].starts_with("systemctl set-property --runtime mysql.service AllowedCPUs="),
            "{lines:?}"
        );
        // A group has no row in which to look.
        let watched: Vec<&Subject> =
            finding.advice.check.iter().chain(&finding.advice.stop).map(|check| &check.of).collect();
        assert_eq!(watched, [&Subject::Process(900, 900_000_000); 2]);
    }
}
