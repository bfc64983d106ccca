//! Findings as text, as paragraphs and as JSON.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::properties::sick;
use crate::world::{Actor, TWO, each_second, fold, machine, samples};
use numatop_ng::analysis::highlights::Episodes;
use numatop_ng::finding::details::{Content, Section, details};
use numatop_ng::finding::{Engine, Severity, diagnosis, json};
use numatop_ng::model::sample::{HostFacts, Sample};
use numatop_ng::snapshot::{RowKind, derive};

fn watched(seconds: u64) -> (std::sync::Arc<HostFacts>, Engine) {
    let (host, samples) = samples(sick(), seconds, 1000);
    let engine = fold(&host, &samples).0;
    (host, engine)
}

#[test]
fn text_fits_the_terminal() {
    let (host, engine) = watched(80);
    for all in [false, true] {
        let text = diagnosis::render_text(&engine, &host, all, 80);
        // Command lines are copied whole, so that they are the only ones that may be longer.
        let long = text.lines().filter(|line| line.chars().count() > 80);
        let commands = ["migratepages", "docker", "echo", "systemctl", "sysctl", "taskset"];
        for line in long {
            assert!(commands.iter().any(|command| line.contains(command)), "{line}");
        }
        assert!(text.is_ascii(), "{text}");
        assert!(text.contains("rules ran"), "{text}");
    }
}

#[test]
fn a_report_says_what_to_type_and_what_must_change() {
    let (host, engine) = watched(80);
    let text = diagnosis::render_text(&engine, &host, false, 80);
    for part in [
        "CRITICAL  zone-reclaim  host  measured, held ",
        "  check         remote_pct: 100 % -> 5.0 % or less within 60 s\n",
        "  run           sysctl -w vm.zone_reclaim_mode=0\n",
        "  undo          sysctl -w vm.zone_reclaim_mode=1\n",
        "  check         node_reclaim_per_s of node 1: 240 -> 0.0 or less within 15 s\n",
        "  run           migratepages 900001 1 0\n",
    ] {
        assert!(text.contains(part), "'{part}' is missing:\n{text}");
    }
    assert!(!text.contains("swap-while-memory-free"), "symptoms are shown with --all:\n{text}");
    assert!(
        diagnosis::render_text(&engine, &host, true, 80)
            .contains("explained: CRITICAL  swap-while-memory-free")
    );
}

#[test]
fn without_a_finding_it_says_what_could_not_be_looked_at() {
    let (host, engine) = watched(3);
    let text = diagnosis::render_text(&engine, &host, false, 80);
    assert!(!text.contains("No finding") && text.contains("  ? WARNING") || text.contains("? "), "{text}");
    assert!(text.contains("held 3 s of "), "{text}");
}

#[test]
fn what_ended_before_the_end_is_not_no_finding() {
    let mut world = machine(TWO, vec![]);
    world.vm.zone_reclaim_mode = Some(1);
    each_second(&mut world, |machine, second| {
        machine.nodes[1].node_reclaims += if second < 60 { 240 } else { 0 }
    });
    let (host, samples) = samples(world, 200, 1000);
    let engine = fold(&host, &samples).0;
    assert!(engine.findings().is_empty());
    let text = diagnosis::render_text(&engine, &host, false, 80);
    assert!(!text.contains("No finding in"), "{text}");
    assert!(text.contains("No finding at the end of 3 min 20 s. 1 finding ended before."), "{text}");
    assert!(text.contains("  WARNING  zone-reclaim  host  held "), "{text}");
    // The exit code shows that it was found.
    assert!(
        diagnosis::is_found(&engine, Severity::Warning) && !diagnosis::is_found(&engine, Severity::Critical)
    );
}

#[test]
fn symptoms_that_ended_are_not_found() {
    let (host, samples) = samples(sick(), 80, 1000);
    let mut engine = fold(&host, &samples).0;
    let symptoms: Vec<_> =
        engine.findings().iter().filter(|finding| finding.is_symptom()).map(|it| it.key.clone()).collect();
    let causes: Vec<_> =
        engine.findings().iter().filter(|it| !it.is_symptom()).map(|it| it.severity).collect();
    assert!(!symptoms.is_empty());
    engine.interrupt();
    for key in symptoms {
        let ended = engine.ended().find(|ended| ended.key == key).expect("the process has ended");
        assert!(ended.is_symptom(), "{key}");
    }
    assert_eq!(engine.gravest_ended(), causes.into_iter().max());
}

#[test]
fn nothing_goes_on_from_one_recorded_run_to_the_next() {
    // Two runs of 40 s, with 5 s between them.
    let mut world = machine(TWO, vec![Actor::new(900_002, "busy").runs(&[(0, 100.0)])]);
    world.vm.zone_reclaim_mode = Some(1);
    each_second(&mut world, |machine, _| machine.nodes[1].node_reclaims += 240);
    let (host, samples) = samples(world, 85, 1000);
    let mut episodes = Episodes::default();
    let mut engine = Engine::default();
    let mut previous: Option<&Sample> = None;
    for (at, sample) in samples.iter().enumerate().filter(|(at, _)| !(40..45).contains(at)) {
        let continues = !matches!(at, 0 | 45);
        if !continues {
            engine.interrupt();
        }
        if let Some(previous) = previous.filter(|_| continues) {
            engine.take(&derive(&host, Some(previous), sample, RowKind::Processes));
        }
        previous = Some(sample);
        episodes.take(&host, sample.clone(), continues);
    }
    let of = |engine: &Engine| -> Vec<(String, u64, Option<u64>)> {
        let all = engine.ended().chain(engine.findings());
        all.map(|it| (it.key.to_string(), it.since_mono_ns, it.until_mono_ns)).collect()
    };
    let episodes = episodes.into_engine();
    assert_eq!(of(&engine), of(&episodes), "the screen and diagnose conclude the same");
    let zone: Vec<_> = of(&engine).into_iter().filter(|(key, ..)| key.starts_with("zone-reclaim")).collect();
    assert_eq!(zone.len(), 2, "{zone:?}");
    // It ended with the first run, and began again in the second.
    assert!(zone[0].2.is_some_and(|until| until <= samples[40].mono_ns), "{zone:?}");
    assert!(zone[1].1 >= samples[45].mono_ns && zone[1].2.is_none(), "{zone:?}");
    assert_eq!(engine.watched_ns() / 1_000_000_000, 39 + samples.len() as u64 - 46);
}

#[test]
fn details_have_all_sections_in_order() {
    let (_, engine) = watched(80);
    for finding in engine.findings() {
        let paragraphs = details(finding);
        let sections: Vec<Section> = paragraphs.iter().map(|paragraph| paragraph.section).collect();
        assert!(sections.is_sorted(), "{}: {sections:?}", finding.key);
        for section in [Section::Head, Section::Sentence, Section::Evidence, Section::Else] {
            assert!(sections.contains(&section), "{}: no {section:?}", finding.key);
        }
        let rows = paragraphs.iter().filter(|paragraph| matches!(paragraph.content, Content::Row(_)));
        assert_eq!(rows.count(), finding.evidence.len(), "{}", finding.key);
    }
}

#[test]
fn json_has_the_keys_of_the_schema() {
    const KEYS: [&str; 20] = [
        "key",
        "id",
        "subject",
        "severity",
        "confidence",
        "state",
        "since",
        "held_s",
        "times",
        "sentence",
        "because_of",
        "rank",
        "gain",
        "evidence",
        "commands",
        "undo",
        "check",
        "stop",
        "risk",
        "else",
    ];
    let parts: BTreeMap<&str, &[&str]> = [
        ("evidence", &["metric", "of", "value", "error", "over_s", "limit", "note"][..]),
        ("commands", &["when", "line", "words", "scope"]),
        ("undo", &["when", "line", "words", "scope"]),
        ("check", &["metric", "of", "from", "to", "below", "within_s"]),
        ("stop", &["metric", "of", "from", "to", "below", "within_s"]),
    ]
    .into();
    let (host, engine) = watched(80);
    let findings = json::findings(&engine);
    let findings = findings.as_array().unwrap();
    assert!(findings.len() >= 6);
    let has = |object: &Value, key: &str| assert!(object.get(key).is_some(), "no {key} in {object}");
    for finding in findings {
        KEYS.iter().for_each(|key| has(finding, key));
        for (part, keys) in &parts {
            for object in finding[*part].as_array().unwrap() {
                keys.iter().for_each(|key| has(object, key));
            }
        }
        for key in ["at_least_cpus", "at_most_cpus", "of_cpus", "how", "assumes"] {
            has(&finding["gain"], key);
        }
        assert!(!finding["evidence"].as_array().unwrap().is_empty());
        assert!(!finding["else"].as_array().unwrap().is_empty());
    }
    let whole = diagnosis::render_json(&engine, &host, true, 0, 5);
    for key in ["schema", "time", "host", "watched_s", "findings", "findings_blind", "ended", "summary"] {
        has(&whole, key);
    }
    assert_eq!(whole["summary"]["exit"], 5);
}

#[test]
fn values_have_units_of_their_metric() {
    use numatop_ng::finding::text::unit_of;
    let (_, engine) = watched(80);
    for finding in engine.findings() {
        for evidence in &finding.evidence {
            assert!(unit_of(evidence.metric, &evidence.of).is_some(), "{}: {evidence:?}", finding.key);
        }
        for check in finding.advice.check.iter().chain(&finding.advice.stop) {
            assert!(unit_of(check.metric, &check.of).is_some(), "{}: {check:?}", finding.key);
        }
    }
}
