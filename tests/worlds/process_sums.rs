//! Rows of processes and containers, compared with sums over threads that are added up one by one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;

use numatop_ng::model::counters::Counter;
use numatop_ng::model::group::{Group, GroupKind};
use numatop_ng::model::sample::{Comm, Counts, Names, PagesFound, PlacementRaw, Sample, TaskRaw};
use numatop_ng::snapshot::{Container, RowKind, Snapshot, Task, derive, derive_both, derive_tasks};
use numatop_ng::source::synthetic::demo_machine;
use numatop_ng::tui::history::{History, Want};

/// A thread in two samples: its process, its cgroup at both, its counts at the first, and what it did until the second.
#[derive(Clone, Debug)]
struct Thread {
    pid: u32,
    ended: bool,
    cgroups: [u64; 2],
    before: u64,
    did: u64,
    is_in: [bool; 2],
    rss: u64,
}

fn thread() -> impl Strategy<Value = Thread> {
    let cgroups = [1..6u64, 1..6u64];
    let did = prop_oneof![3 => Just(0), 1 => 1..1_000_000u64];
    let is_in = prop_oneof![5 => Just([true, true]), 1 => Just([true, false]), 1 => Just([false, true])];
    (1..6u32, prop::bool::weighted(0.1), cgroups, 0..1_000_000_000u64, did, is_in, 0..100u64).prop_map(
        |(pid, ended, cgroups, before, did, is_in, rss)| {
            let cgroups = if did == 0 { [cgroups[0]; 2] } else { cgroups };
            Thread { pid, ended, cgroups, before, did, is_in, rss }
        },
    )
}

fn samples(threads: &[Thread], placed: bool) -> [Sample; 2] {
    let raw = |at: usize, thread: &Thread, later: usize| {
        let count = thread.before + if later == 1 { thread.did } else { 0 };
        let counts = Counts { run_ns: vec![count / 3, count], ..Counts::default() };
        TaskRaw {
            serial: at as u64 + 1,
            pid: thread.pid,
            tid: if thread.ended { 0 } else { 100 + at as u32 },
            ppid: 1,
            cgroup_id: thread.cgroups[later],
            comm: Comm::new("thread"),
            cpus_allowed: 1 + at as u32 % 3,
            cpu_nodes: Some(1 << (at % 3)),
            rss_bytes: thread.rss,
            counts: counts.with([(Counter::Nvcsw, count / 7), (Counter::RunDelayNs, count / 5)]),
            ..TaskRaw::default()
        }
    };
    let mut rows: [Vec<Arc<TaskRaw>>; 2] = Default::default();
    for (at, thread) in threads.iter().enumerate() {
        let first = Arc::new(raw(at, thread, 0));
        if thread.is_in[0] {
            rows[0].push(Arc::clone(&first));
        }
        if thread.is_in[1] {
            rows[1].push(if thread.did == 0 { first } else { Arc::new(raw(at, thread, 1)) });
        }
    }
    // 1 is the root; 2 and 3 are in it, 4 is in 3, and 5 belongs to the row of 4.
    let group = |top, parent| Group {
        kind: GroupKind::Group,
        engine: None,
        user: None,
        name: String::new(),
        id: None,
        pod: None,
        pod_uid: None,
        namespace: None,
        unit: None,
        top,
        parent,
    };
    let groups = [(1, group(1, None)), (2, group(2, Some(1))), (3, group(3, Some(1)))];
    let more = [(4, group(4, Some(3))), (5, group(4, Some(3)))];
    let groups = groups.into_iter().chain(more).map(|(id, group)| (id, Arc::new(group))).collect();
    let names = Arc::new(Names { groups, ..Names::default() });
    let found = PagesFound { space_bytes: 1 << 20, asked: 10, by_node: vec![3, 5], error_hundredths: 100 };
    let placement =
        PlacementRaw { start_ns: 0, read_ns: 0, found: Ok(found), policies: None, by_policy: None };
    let placement = (1..3u64).filter(|_| placed).map(|pid| (pid, Arc::new(placement.clone())));
    let placement = Arc::new(placement.collect::<BTreeMap<_, _>>());
    let sample = |tasks: Vec<Arc<TaskRaw>>, mono_ns| Sample {
        tasks: tasks.into(),
        mono_ns,
        boot_ns: mono_ns,
        names: Arc::clone(&names),
        placement: Arc::clone(&placement),
        exited: Vec::new(),
        groups: BTreeMap::new(),
        ..demo_machine().tick()
    };
    let [before, after] = rows;
    [sample(before, 1_000), sample(after, 2_000)]
}

/// Sums of the counts of these, in wrapping arithmetic.
fn total<'a>(tasks: impl Iterator<Item = &'a Arc<TaskRaw>>) -> Counts {
    let mut sum = Counts { run_ns: vec![0, 0], ..Counts::default() };
    tasks.for_each(|task| sum += &task.counts);
    sum
}

/// The same, in the length of a row's list, which may be empty.
fn padded(counts: &Counts) -> Counts {
    let mut sum = Counts { run_ns: vec![0, 0], ..Counts::default() };
    sum += counts;
    sum
}

/// The parts of a row that are sums.
fn sums(task: &Task) -> impl PartialEq + std::fmt::Debug + use<> {
    let gauges = (task.threads, task.exited, task.rss_bytes, task.cpu_nodes, task.waits.bound_ns);
    (task.raw.serial, task.tid, gauges, padded(&task.total), padded(&task.delta), task.memory().is_some())
}

fn of_container(row: &Container) -> impl PartialEq + std::fmt::Debug + use<> {
    (row.id, row.parent, row.own_tasks, row.processes, sums(&row.sum), format!("{:?}", row.remote))
}

proptest! {
    #[test]
    fn rows_of_processes_and_containers_are_sums_of_threads(
        threads in prop::collection::vec(thread(), 0..40),
        placed: bool,
    ) {
        let host = demo_machine().host;
        let [before, after] = samples(&threads, placed);
        let snapshot = derive(&host, Some(&before), &after, RowKind::Processes);

        let pids: BTreeSet<u32> = after.tasks.iter().map(|task| task.pid).collect();
        for pid in &pids {
            let now: Vec<_> = after.tasks.iter().filter(|task| task.pid == *pid).collect();
            let then = before.tasks.iter().filter(|task| task.pid == *pid);
            let row = snapshot.tasks.iter().find(|row| row.raw.pid == *pid);
            let live = now.iter().filter(|task| task.tid != 0).count();
            let Some(row) = row else {
                prop_assert_eq!(live, 0, "process {} has no row", pid);
                continue;
            };
            let mut delta = total(now.iter().copied());
            delta -= &total(then);
            // Counts of the kernel from before we looked are not new.
            for came in now.iter().filter(|task| task.tid != 0 && !before.tasks.iter().any(|old| old.serial == task.serial)) {
                delta -= &came.counts.lifetime();
            }
            delta.clamp();
            prop_assert_eq!(row.threads as usize, live);
            prop_assert_eq!(padded(&row.total), total(now.iter().copied()));
            prop_assert_eq!(padded(&row.delta), delta);
            prop_assert_eq!(row.rss_bytes, now.iter().map(|task| task.rss_bytes).max().unwrap_or(0));
            prop_assert_eq!(row.cpu_nodes, now.iter().map(|task| task.cpu_nodes.unwrap_or(0)).reduce(|a, b| a | b));
        }

        let below = |id: u64| -> &'static [u64] {
            match id { 1 => &[1, 2, 3, 4, 5], 2 => &[2], 3 => &[3, 4, 5], _ => &[4, 5] }
        };
        for row in &snapshot.containers {
            let inside: Vec<_> = after.tasks.iter().filter(|task| below(row.id).contains(&task.cgroup_id)).collect();
            prop_assert_eq!(padded(&row.sum.total), total(inside.iter().copied()), "container {}", row.id);
            prop_assert_eq!(row.sum.threads as usize, inside.iter().filter(|task| task.tid != 0).count());
            // A process counts once in each row that has one of its threads.
            let rows = |cgroup: u64| if cgroup == 5 { 4 } else { cgroup };
            let threads = inside.iter().filter(|task| task.tid != 0);
            let pairs: BTreeSet<(u64, u32)> = threads.map(|task| (rows(task.cgroup_id), task.pid)).collect();
            prop_assert_eq!(row.processes as usize, pairs.len());
        }
    }

    #[test]
    fn both_kinds_of_rows_at_once_are_those_of_each_alone(
        threads in prop::collection::vec(thread(), 0..40),
        placed: bool,
        first: bool,
    ) {
        let host = demo_machine().host;
        let [before, after] = samples(&threads, placed);
        let before = (!first).then_some(&before);
        let (by_thread, by_process) = derive_both(&host, before, &after, true);
        for (one, kind) in [(by_thread, RowKind::Threads), (by_process, RowKind::Processes)] {
            let other = derive(&host, before, &after, kind);
            prop_assert_eq!(one.tasks.iter().map(sums).collect::<Vec<_>>(), other.tasks.iter().map(sums).collect::<Vec<_>>());
            let [one_rows, other_rows] =
                [&one, &other].map(|snapshot| snapshot.containers.iter().map(of_container).collect::<Vec<_>>());
            prop_assert_eq!(one_rows, other_rows);
            prop_assert_eq!(format!("{:?}", one.nodes), format!("{:?}", other.nodes));
            prop_assert_eq!(&one.accesses, &other.accesses);
            let without = derive_tasks(&host, before, &after, kind);
            prop_assert_eq!(without.tasks.iter().map(sums).collect::<Vec<_>>(), other.tasks.iter().map(sums).collect::<Vec<_>>());
            prop_assert!(without.containers.is_empty());
        }
    }
}

#[test]
fn an_interval_of_the_past_is_what_it_was() {
    let mut machine = demo_machine();
    let mut history = History::new(Want::default());
    let samples: Vec<Sample> = (0..220).map(|_| machine.tick()).collect();
    for sample in &samples {
        history.sample(machine.host.clone(), sample.clone(), 1);
        history.tidy();
    }
    for number in (1..220).step_by(13).chain(220..220) {
        for threads in [false, true] {
            history.want(Want { number: Some(number as u64), threads, containers: true, ..Want::default() });
            let shown = history.show().unwrap();
            let grain = if threads { RowKind::Threads } else { RowKind::Processes };
            let was = derive(&machine.host, Some(&samples[number - 1]), &samples[number], grain);
            assert_eq!(shown.number, number as u64);
            assert_eq!(format!("{:?}", shown.snapshot), format!("{was:?}"), "interval {number}");
        }
    }
}

/// The demo machine in the live view, several samples at once; rows of each interval on the screen, and its
/// findings.
fn shown(want: Want) -> Vec<(u64, String, String)> {
    let mut machine = demo_machine();
    let mut history = History::new(want);
    let (mut shown, mut samples) = (Vec::new(), Vec::new());
    for second in 0..150 {
        let sample = machine.tick();
        history.sample(machine.host.clone(), sample.clone(), 1);
        samples.push(sample);
        if second % 7 > 2 {
            let now = history.show().expect("a sample is there");
            let grain = if want.threads { RowKind::Threads } else { RowKind::Processes };
            let [.., before, after] = &samples[..] else { continue };
            let alone = derive(&machine.host, Some(before), after, grain);
            assert_eq!(
                now.snapshot.tasks.iter().map(sums).collect::<Vec<_>>(),
                alone.tasks.iter().map(sums).collect::<Vec<_>>()
            );
            let containers = |of: &Snapshot| of.containers.iter().map(of_container).collect::<Vec<_>>();
            assert!(!want.containers || containers(&now.snapshot) == containers(&alone));
            shown.push((now.number, format!("{:?}", now.conclusions), format!("{:?}", now.summary)));
        }
    }
    shown
}

#[test]
fn a_view_of_threads_has_the_findings_of_one_of_processes() {
    let processes = shown(Want { summary: true, ..Want::default() });
    assert!(processes.len() > 40 && processes.iter().any(|(_, found, _)| !found.contains("findings: []")));
    for containers in [false, true] {
        let threads = shown(Want { threads: true, containers, summary: true, ..Want::default() });
        assert!(threads == processes, "the findings of {} intervals differ", threads.len());
    }
}
