//! Promises of the engine. Findings are the same for all intervals and orders of rows, live and in replay.
//! Missing values give none. A shell can read the commands.

use std::process::Command;
use std::sync::Arc;

use numatop_ng::finding::{Engine, Options, Severity, json, rules::RULES};
use numatop_ng::model::counters::Counter;
use numatop_ng::model::sample::{Comm, Counts, HostFacts, MemPolicy, Missing, Sample};
use numatop_ng::record::recorder::{RecordOptions, Recorder};
use numatop_ng::snapshot::{RowKind, derive};
use numatop_ng::source::Source;
use numatop_ng::source::recording::Recording;

use crate::world::{
    Actor, DOCKER, GIB, Machine, S, SERVICE, TWO, each_second, files, fold, lines, machine, pages, samples,
    watch,
};

/// A machine with most of the possible problems.
pub fn sick() -> Machine {
    sick_at(1000)
}

/// The same in steps of `step_ms` milliseconds.
pub fn sick_at(step_ms: u64) -> Machine {
    let pinned = Actor {
        cgroup: SERVICE,
        rss: 20 * GIB,
        memory: pages(42),
        cpu_nodes: Some(0b01),
        per_second: Counts::default().with([(Counter::BalancingNs, 500_000_000)]),
        ..Actor::new(900_001, "mysqld")
    };
    let bound = Actor {
        rss: 20 * GIB,
        memory: pages(100),
        mempolicy: MemPolicy { mode: 2, flags: 0, nodes: 0b10 },
        swapped: 4 * GIB,
        per_second: Counts::default().with([(Counter::MajFlt, 400)]),
        ..Actor::new(900_002, "pg_restore")
    };
    let apart = Actor { cgroup: DOCKER, rss: 8 * GIB, memory: pages(100), ..Actor::new(900_003, "cart") };
    let mut world =
        machine(TWO, vec![pinned.runs(&[(0, 400.0)]), bound.runs(&[(1, 71.0)]), apart.runs(&[(0, 200.0)])]);
    world.nodes[1].mem_free_bytes = 2 * GIB;
    world.vm.zone_reclaim_mode = Some(1);
    world.groups = [(DOCKER, Arc::new(files("0-3", "1"))), (1, Arc::new(files("0-31", "0-1")))].into();
    // Before each step, so that rates are the same at every interval.
    each_second(&mut world, move |machine, second| {
        let part = if second == 0 { 0 } else { step_ms };
        machine.nodes[1].direct_pages += part;
        machine.nodes[1].node_reclaims += 240 * part / 1000;
        machine.vm.swapped_out += 3584 * part / 1000;
    });
    world
}

fn all(engine: &Engine) -> String {
    format!("{:#}", json::findings(engine))
}

pub fn keys(engine: &Engine) -> Vec<String> {
    let mut keys = lines(engine);
    keys.sort();
    keys
}

#[test]
fn the_sick_machine_has_findings() {
    let engine = watch(sick(), 80);
    let keys = keys(&engine);
    assert!(keys.len() >= 6, "{keys:#?}");
}

#[test]
fn findings_are_the_same_at_every_interval() {
    let at = |ms| {
        let (host, samples) = samples(sick_at(ms), 90, ms);
        keys(&fold(&host, &samples).0)
    };
    let second = at(1000);
    for ms in [500, 2000, 5000] {
        assert_eq!(at(ms), second, "at {ms} ms");
    }
}

#[test]
fn the_order_of_rows_does_not_matter() {
    let (host, samples) = samples(sick(), 80, 1000);
    let straight = fold(&host, &samples).0;
    let mut engine = Engine::default();
    for (at, pair) in samples.windows(2).enumerate() {
        let mut snapshot = derive(&host, Some(&pair[0]), &pair[1], RowKind::Processes);
        let tasks = snapshot.tasks.len();
        snapshot.tasks.rotate_left(at % tasks.max(1));
        if at % 2 == 0 {
            snapshot.tasks.reverse();
            snapshot.nodes.reverse();
        }
        engine.take(&snapshot);
    }
    assert_eq!(all(&engine), all(&straight));
}

#[test]
fn a_missing_value_never_makes_a_finding() {
    let (host, samples) = samples(sick(), 80, 1000);
    let before = keys(&fold(&host, &samples).0);
    let ids: Vec<&str> = RULES.iter().flat_map(|rule| rule.needs.iter().copied()).collect();
    for id in ids {
        let mut host = HostFacts::clone(&host);
        host.missing.insert(id.to_owned(), Missing::NotCollected("taken away".into()));
        let after = fold(&Arc::new(host), &samples).0;
        check_less(&keys(&after), &before, id);
    }
    type Change = fn(&mut Sample);
    let changes: [(&str, Change); 5] = [
        ("cpu_nodes", |sample| each_task(sample, |task| task.cpu_nodes = None)),
        ("mem_nodes", |sample| each_task(sample, |task| task.mem_nodes = None)),
        ("resident", |sample| each_task(sample, |task| task.resident = None)),
        ("machine", |sample| sample.machine = None),
        ("groups", |sample| sample.groups.clear()),
    ];
    for (name, change) in changes {
        let mut samples = samples.clone();
        samples.iter_mut().for_each(change);
        check_less(&keys(&fold(&host, &samples).0), &before, name);
    }
}

pub fn each_task(sample: &mut Sample, change: fn(&mut numatop_ng::model::sample::TaskRaw)) {
    for task in &mut sample.tasks {
        change(Arc::make_mut(task));
    }
}

/// Findings without a value are among those with it, and no graver.
pub fn check_less(after: &[String], before: &[String], without: &str) {
    let key = |line: &String| line.rsplit_once(' ').map(|(_, key)| key.to_owned()).unwrap_or_default();
    let grave = |line: &String| {
        let word = line.split(' ').next().unwrap_or_default();
        Severity::ALL.iter().position(|severity| severity.name() == word)
    };
    for line in after {
        // A cause takes over the severity of its symptoms: without its symptom it has its own.
        let same = before.iter().find(|other| key(other) == key(line));
        let same = same.unwrap_or_else(|| panic!("without {without} there is {line}: {before:#?}"));
        assert!(grave(line) <= grave(same), "without {without}: {line}, not {same}");
    }
}

#[test]
fn a_wider_error_never_raises_anything() {
    let (host, samples) = samples(sick(), 80, 1000);
    let before = keys(&fold(&host, &samples).0);
    for hundredths in [400, 900, 2000] {
        let mut samples = samples.clone();
        for sample in &mut samples {
            let placement = Arc::make_mut(&mut sample.placement);
            for raw in placement.values_mut() {
                if let Ok(found) = &mut Arc::make_mut(raw).found {
                    found.error_hundredths = hundredths;
                }
            }
        }
        check_less(&keys(&fold(&host, &samples).0), &before, "a small error");
    }
}

#[test]
fn replay_says_the_same() {
    let (host, samples) = samples(sick(), 80, 1000);
    let folder = std::env::temp_dir().join(format!("numatop-findings-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("sick.nrec");
    let options = RecordOptions::every(std::time::Duration::from_secs(1));
    let mut recorder = Recorder::open(&path, options).unwrap();
    for sample in &samples {
        recorder.record(&host, sample).unwrap();
    }
    recorder.finish().unwrap();
    let mut recording = Recording::open(&path).unwrap();
    let mut replayed = Vec::new();
    while let Some(sample) = recording.next().unwrap() {
        replayed.push(sample);
    }
    let live = fold(&host, &samples).0;
    let replay = fold(&recording.host(), &replayed).0;
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(all(&replay), all(&live));
}

#[test]
fn flapping_is_no_finding() {
    let mut world = machine(TWO, vec![Actor::new(500, "work").runs(&[(1, 100.0)])]);
    world.vm.zone_reclaim_mode = Some(1);
    each_second(&mut world, |machine, second| {
        machine.nodes[1].node_reclaims += if second / 20 % 2 == 0 { 240 } else { 0 };
        machine.vm.swapped_out += if second / 10 % 2 == 0 { 3584 } else { 0 };
    });
    // 20 s are longer than the 15 s that it must hold; 10 s are not.
    let (host, samples) = samples(world, 300, 1000);
    let (engine, changes) = fold(&host, &samples);
    assert!(changes.len() <= 2, "announced {} times", changes.len());
    assert!(engine.findings().iter().all(|finding| finding.key.id == "zone-reclaim"));
}

#[test]
fn a_gap_is_no_time_in_which_anything_held() {
    let (host, samples) = samples(sick(), 100, 1000);
    let mut engine = Engine::default();
    let take = |engine: &mut Engine, from: usize, to: usize| {
        engine.take(&derive(&host, Some(&samples[from]), &samples[to], RowKind::Processes));
    };
    (0..5).for_each(|at| take(&mut engine, at, at + 1));
    take(&mut engine, 5, 80);
    (80..83).for_each(|at| take(&mut engine, at, at + 1));
    assert!(engine.findings().is_empty(), "{:?}", lines(&engine));
}

#[test]
fn every_command_is_one_that_a_shell_can_read() {
    let mut world = sick();
    world.actors[0].comm = Comm::new("'; reboot #");
    world.actors[1].comm = Comm::new("$(reboot)");
    let engine = watch(world, 80);
    let mut count = 0;
    for finding in engine.findings() {
        assert!(finding.advice.sentence.chars().count() <= 160, "{}", finding.advice.sentence);
        assert!(!finding.advice.or_else.is_empty(), "{}", finding.key);
        assert!(!finding.evidence.is_empty(), "{}", finding.key);
        for command in finding.advice.commands.iter().chain(&finding.advice.undo) {
            let Some(line) = &command.line else { continue };
            let line = line.to_string();
            assert!(!line.contains("reboot"), "{line}");
            let status = Command::new("sh").args(["-n", "-c", &line]).status().unwrap();
            assert!(status.success(), "{line}");
            count += 1;
        }
    }
    assert!(count >= 6, "{count} commands");
}

#[test]
fn rules_can_be_chosen() {
    let (host, samples) = samples(sick(), 60, 1000);
    let only = Options { only: Some(["zone-reclaim".to_owned()].into()), ..Options::default() };
    let mut engine = Engine::new(only);
    for pair in samples.windows(2) {
        engine.take(&derive(&host, Some(&pair[0]), &pair[1], RowKind::Processes));
    }
    assert_eq!(lines(&engine), ["warning measured zone-reclaim/host"]);
    assert_eq!(engine.summary().rules, 1);
}

#[test]
fn an_idle_machine_is_quiet() {
    let mut world = machine(TWO, vec![Actor::new(1, "systemd"), Actor::new(500, "work").runs(&[(0, 30.0)])]);
    world.actors[1].memory = pages(0);
    let (host, samples) = samples(world, 600, 1000);
    let (engine, changes) = fold(&host, &samples);
    assert!(changes.is_empty() && engine.findings().is_empty(), "{:?}", lines(&engine));
    assert!(engine.watched_ns() >= 599 * S);
}
