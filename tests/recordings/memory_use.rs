//! Memory in use in recordings: a replay shows the same as the live view.

use std::sync::Arc;

use serde_json::Value;

use crate::commands::output;
use crate::machine::{self, Machine};
use crate::roundtrip::write;
use crate::scratch::Scratch;
use numatop_ng::metric::matrix::PAIR_METRICS;
use numatop_ng::model::access::answers::{AccessClass, Answers};
use numatop_ng::model::access::lines::{ContendedLine, ContendedLines, LineSide};
use numatop_ng::model::access::next_runs::NextRuns;
use numatop_ng::model::access::{AccessSource, MappingUse, MemoryUse, MemoryUses, SampledEvent};
use numatop_ng::model::sample::{Missing, Sample};
use numatop_ng::model::stacks::Function;
use numatop_ng::model::units::NodeId;
use numatop_ng::record::aggregate::{Fold, Keep};
use numatop_ng::record::format::End;
use numatop_ng::snapshot::{RowKind, derive};
use numatop_ng::source::Source;
use numatop_ng::source::recording::Recording;

/// Loads from memory; a quarter is remote and takes twice as long.
fn answers(loads: u64) -> Answers {
    let mut answers = Answers::default();
    for load in 0..loads {
        let remote = load % 4 == 0;
        answers.add(AccessClass::Dram { remote }, None, Some(if remote { 600 } else { 300 }));
    }
    answers
}

/// A line that a function on node 1 stores to, and another one on node 0 loads.
fn lines() -> ContendedLines {
    let function = |name: &str| {
        Some(Arc::new(Function { name: Some(name.into()), module: "queue".into(), kernel: false }))
    };
    let sides = vec![
        LineSide {
            function: function("pop"),
            offset: 0,
            cpu_node: Some(NodeId(0)),
            samples: 50,
            far: 40,
            ..LineSide::default()
        },
        LineSide {
            store: true,
            function: function("push"),
            offset: 8,
            cpu_node: Some(NodeId(1)),
            samples: 70,
            far: 0,
        },
    ];
    let (mapping, page_node) = ("[heap]".into(), Some(NodeId(1)));
    let line = ContendedLine { mapping, page_node, loads: 50, far: 40, stores: 70, sides };
    ContendedLines { loads: 100, listed: vec![line] }
}

/// Samples of a process whose accesses are remote for a third, by count and by time.
fn found() -> MemoryUse {
    let (near, far) = (Some(NodeId(0)), Some(NodeId(1)));
    let mapping = |start, name: &str, samples: f64| MappingUse {
        start,
        bytes: 1 << 20,
        name: name.into(),
        by_node: [((near, near), 2.0 * samples), ((far, near), samples)].into(),
        next_by_node: [((near, near), 2.0 * samples), ((far, near), samples)].into(),
        answers: answers(samples as u64),
    };
    let pairs = [(false, false), (false, true), (true, false), (true, true)].map(|pair| (pair, 50));
    MemoryUse {
        samples: 620,
        with_address: 600,
        plain: 20,
        of_all: 620,
        lost: [("ring_full".to_string(), 1)].into(),
        next_runs: NextRuns { followed: 600, resolved: 590, by_remote: pairs.into(), ..NextRuns::default() },
        mappings: vec![
            mapping(0x7f00_0000_0000, "/dev/shm/table", 150.0),
            mapping(0x5500_0000_0000, "[heap]", 50.0),
        ],
        answers: answers(200),
        lines: lines(),
        ..MemoryUse::default()
    }
}

/// Samples in which the process `of` chooses was sampled.
fn samples(of: impl Fn(&Sample) -> Vec<(u32, u64)>) -> Vec<Sample> {
    let mut samples = Machine::new(5).ticks(3);
    for sample in &mut samples {
        let processes = of(sample).into_iter().map(|process| (process, Arc::new(found()))).collect();
        let event = Some(SampledEvent { source: AccessSource::Pebs, threshold: Some(128) });
        let uses = MemoryUses { source: AccessSource::Clock, event, window_s: 9.5, processes };
        sample.memory_use = Some(Arc::new(uses));
    }
    samples
}

fn first(sample: &Sample) -> Vec<(u32, u64)> {
    sample.tasks.first().map(|task| task.process()).into_iter().collect()
}

/// The rows of the last interval as JSON, from `replay` or `export`.
fn rows(words: &[&str]) -> Vec<Value> {
    let (code, out, error) = output(words);
    assert_eq!(code, Some(0), "{error}");
    let last: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    last["tasks"].as_array().unwrap().clone()
}

#[test]
fn shares_and_metrics_are_in_replay_and_export() {
    let scratch = Scratch::new();
    let file = scratch.join("file");
    let samples = samples(first);
    let pid = samples[0].tasks[0].pid;
    write(&file, &samples).end(End::Stopped).unwrap();
    let file = file.to_str().unwrap();
    for words in [
        ["replay", file, "-b", "--format=json", "--json-full"],
        ["export", file, "--top=1000", "--format=json", "--json-full"],
    ] {
        let rows = rows(&words);
        let row = rows.iter().find(|row| row["pid"] == pid).unwrap();
        let access = &row["access"];
        assert_eq!((&access["source"], &access["by"]), (&"clock".into(), &"count".into()), "{access}");
        let of_first = &access["mappings"][0];
        assert_eq!(
            (&of_first["start"], &of_first["name"]),
            (&"7f0000000000".into(), &"/dev/shm/table".into())
        );
        assert_eq!(
            (&of_first["use_pct"], &of_first["remote_pct"]),
            (&75.0.into(), &33.3.into()),
            "{of_first}"
        );
        assert_eq!(access["window_s"], 9.5);
        assert_eq!((&row["access_source"], &row["access_samples"]), (&"clock+pebs".into(), &620.into()));
        assert_eq!(row["dram_remote_pct"], 25.0, "{access}");
        let pmu = &access["pmu"];
        assert_eq!(
            (&pmu["source"], &pmu["threshold_cycles"], &pmu["samples"]),
            (&"pebs".into(), &128.into(), &200.into())
        );
        assert_eq!(pmu["by_answer"]["remote_dram"], 50);
        let line = &pmu["contended_lines"][0];
        assert_eq!((&pmu["contended_loads"], &line["loads_pct"]), (&100.into(), &50.0.into()), "{pmu}");
        assert_eq!((&line["mapping"], &line["loads_from_other_node"]), (&"[heap]".into(), &40.into()));
        let sides = ["pop", "push"]
            .map(|name| line["sides"].as_array().unwrap().iter().any(|side| side["function"] == name));
        assert_eq!(sides, [true, true], "{line}");
        let p50 = |place: &str| of_first["latency_cycles"][place]["p50"].as_f64().unwrap();
        assert!(
            (p50("local") / 300.0 - 1.0).abs() < 0.04 && (p50("remote") / 600.0 - 1.0).abs() < 0.04,
            "{of_first}"
        );
        assert_eq!(row["mem_time_remote_pct"].as_f64().unwrap().round(), 33.0);
        assert_eq!(
            (&row["remote_source"], row["remote_pct"].as_f64().unwrap().round()),
            (&"sampled".into(), 33.0)
        );
        assert!(rows.iter().all(|row| row["pid"] == pid || row.get("access").is_none()));
    }
}

#[test]
fn the_matrix_is_that_of_samples_where_there_are_some() {
    let host = Arc::new(machine::host());
    let samples = samples(|sample| sample.tasks.iter().map(|task| task.process()).collect());
    let snapshot = derive(&host, Some(&samples[1]), &samples[2], RowKind::Processes);
    // All of its processes were sampled on node 0, where a third of their accesses are remote.
    let accesses = &snapshot.accesses;
    let (near, far) =
        (accesses.pct(NodeId(0), NodeId(0)).unwrap(), accesses.pct(NodeId(0), NodeId(1)).unwrap());
    assert!(near > 0.0 && (far / near - 0.5).abs() < 1e-9, "{near} {far}");
    assert!(accesses.sampled_pct().unwrap() > 0.0);
    let metric = &PAIR_METRICS[0];
    assert!(metric.sources(&snapshot).unwrap().contains("weighted by sampled accesses"));
    let without = Machine::new(5).ticks(3);
    let snapshot = derive(&host, Some(&without[1]), &without[2], RowKind::Processes);
    assert_eq!((snapshot.accesses.sampled_pct().unwrap_or(0.0), metric.sources(&snapshot)), (0.0, None));
}

#[test]
fn a_recording_without_samples_says_how_they_are_had() {
    let scratch = Scratch::new();
    let file = scratch.join("file");
    write(&file, &Machine::new(5).ticks(3)).end(End::Stopped).unwrap();
    let (code, out, _) = output(&["export", file.to_str().unwrap(), "--format", "json", "--json-full"]);
    assert_eq!(code, Some(0));
    let last: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    assert!(
        last["missing"]["mem_time_pct"]
            .as_str()
            .unwrap()
            .contains("start them with --access or with u in the details"),
        "{last}"
    );
}

#[test]
fn one_of_an_older_version_did_not_keep_it() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/recordings/format-1.nrec");
    let mut recording = Recording::open(file.as_ref()).unwrap();
    assert!(recording.next().unwrap().unwrap().memory_use.is_none());
    let why = &recording.host().missing["mem_time_pct"];
    assert!(matches!(why, Missing::NotCollected(why) if why.starts_with("not recorded by")), "{why}");
}

#[test]
fn processes_that_are_folded_keep_nothing() {
    let samples = samples(|sample| sample.tasks.iter().map(|task| task.process()).collect());
    let host = Arc::new(machine::host());
    let mut fold = Fold::new(Keep { top: Some(1), min_cpu_pct: None });
    for (at, sample) in samples.iter().enumerate() {
        let folded = fold.fold(&host, sample);
        let uses = folded.sample.memory_use.clone().unwrap();
        assert_eq!(uses.processes.len(), if at == 0 { sample.tasks.len() } else { 1 });
        fold.commit(folded);
    }
}
