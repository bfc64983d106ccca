//! Verdicts on recordings of loads whose CPU time is known: written by the recorder, read back, derived and compared.

#[allow(dead_code, reason = "tests of pages need more of it")]
use std::collections::BTreeSet;
use std::f64::consts::TAU;

use numatop_ng::diff::series::Side;
use numatop_ng::diff::stats::{LEAST_EFFECTIVE, Part, compare};
use numatop_ng::entity::{By, Who};
use numatop_ng::metric::task;
use numatop_ng::model::sample::{HostFacts, Names, Sample};
use numatop_ng::snapshot::{RowKind, derive};
use numatop_ng::source::Source;
use numatop_ng::source::recording::Recording;
use numatop_ng::source::synthetic::{Actor, Machine, demo_machine};

use crate::pages;
use crate::scratch::Scratch;
use pages::{record, seconds};

/// Recordings of one load, each compared with all others, and of the load with more work.
const SAME: u64 = 40;
const MORE: u64 = 20;
/// Intervals of a recording.
const INTERVALS: usize = 240;
/// The load in percent of a CPU, and the factor for more work.
const LOAD: f64 = 40.0;
const FACTOR: f64 = 1.2;

/// From 0 to 1, neither included (xorshift64*, Vigna 2016).
fn uniform(state: &mut u64) -> f64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    ((state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 + 0.5) / (1u64 << 53) as f64
}

/// A program whose CPU time wanders by a tenth around `pct`; neighbouring seconds are correlated by 0.7.
fn load(pct: f64, seed: u64) -> Machine {
    const PHI: f64 = 0.7;
    let mut host = HostFacts::clone(&demo_machine().host);
    host.topology.nodes.truncate(1);
    host.topology.cpus.retain(|cpu| cpu.node.is_some_and(|node| node.0 == 0));
    let actor = Actor::new(100, "worker").runs(&[(0, pct)]);
    let mut machine = Machine::new(host, Names::default(), vec![actor]);
    let mut state = 0x9E37_79B9_7F4A_7C15 ^ (seed << 17);
    let mut normal = move || (-2.0 * uniform(&mut state).ln()).sqrt() * (TAU * uniform(&mut state)).cos();
    // Seeds that are alike begin alike.
    let mut deviation = (0..20).map(|_| normal()).sum::<f64>() / 20f64.sqrt();
    machine.plan = Some(Box::new(move |machine, _| {
        deviation = PHI * deviation + (1.0 - PHI * PHI).sqrt() * normal();
        machine.actors[0].runs[0].1 = pct * (1.0 + 0.1 * deviation);
    }));
    machine
}

/// The series of its CPU time, as diff computes it from a recording.
fn recorded(scratch: &Scratch, pct: f64, seed: u64) -> Vec<Part> {
    let path = scratch.join(&format!("load-{seed}.nrec"));
    record(&path, &seconds(&mut load(pct, seed), INTERVALS + 1));
    let who = Who::program(None, "worker");
    let mut side = Side::of(BTreeSet::from([task::CPU_PCT.id]), BTreeSet::from([who.clone()]), 1);
    let mut recording = Recording::open(&path).unwrap();
    let mut before: Option<Sample> = None;
    while let Some(sample) = recording.next().unwrap() {
        if let Some(before) = &before {
            side.take(&derive(&recording.host(), Some(before), &sample, RowKind::Processes));
        }
        before = Some(sample);
    }
    assert_eq!((who.by, side.intervals), (By::Program, INTERVALS));
    side.subjects[&who].parts(task::CPU_PCT.id).unwrap().clone()
}

#[test]
fn known_loads_have_known_verdicts() {
    let scratch = Scratch::new();
    let same: Vec<Vec<Part>> = (0..SAME).map(|seed| recorded(&scratch, LOAD, seed)).collect();
    let more: Vec<Vec<Part>> =
        (SAME..SAME + MORE).map(|seed| recorded(&scratch, LOAD * FACTOR, seed)).collect();
    let (mut pairs, mut different) = (0, 0);
    for (at, one) in same.iter().enumerate() {
        for other in &same[at + 1..] {
            let comparison = compare(one, other).unwrap();
            pairs += 1;
            let is_long = comparison.a.effective.min(comparison.b.effective) >= LEAST_EFFECTIVE;
            different += usize::from(is_long && comparison.p < 0.05);
        }
    }
    let (mut asked, mut within, mut found) = (0, 0, 0);
    for one in &same {
        for other in &more {
            let comparison = compare(one, other).unwrap();
            let factor = comparison.factor.unwrap();
            asked += 1;
            within += usize::from((factor.low..=factor.high).contains(&FACTOR));
            found += usize::from(comparison.p < 0.05);
        }
    }
    let pct = |count: usize, of: usize| count as f64 * 100.0 / of as f64;
    let (different, within, found) = (pct(different, pairs), pct(within, asked), pct(found, asked));
    println!(
        "{pairs} identical pairs, {different:.1} % called different; +20 %: {within:.1} % within the interval, {found:.1} % found"
    );
    assert!(different <= 8.0, "{different} % of {pairs} identical pairs");
    assert!(within >= 92.0, "the known change is within {within} % of {asked} intervals");
    assert!(found >= 99.0, "found in {found} % of {asked}");
}

#[test]
fn a_diff_of_two_runs_of_a_command_begins_with_elapsed_time() {
    let scratch = Scratch::new();
    let mut paths = Vec::new();
    for (name, pct, intervals) in [("a", 80.0, 10), ("b", 40.0, 20)] {
        let mut machine = load(pct, 1);
        let host = std::sync::Arc::get_mut(&mut machine.host).unwrap();
        host.scope = "command ./worker".into();
        paths.push(scratch.join(&format!("{name}.nrec")));
        record(paths.last().unwrap(), &seconds(&mut machine, intervals + 1));
    }
    let [a, b] = [0, 1].map(|at| pages::text(&paths[at]));
    let text = pages::stdout(&["diff", a, b]);
    let line = text.lines().find(|line| line.starts_with("elapsed")).unwrap();
    // Half the speed on half the CPUs.
    assert!(
        line.starts_with("elapsed time 10.000 s (A), 20.000 s (B), +100.0 %; main cause: CPUs used 0."),
        "{text}"
    );
    let json: serde_json::Value =
        serde_json::from_str(&pages::stdout(&["diff", a, b, "--format", "json"])).unwrap();
    assert_eq!(json["elapsed"]["main_cause"], "CPUs used");
    // A part of a run is no elapsed time.
    assert!(!pages::stdout(&["diff", &format!("{a}@..+5s"), b]).contains("elapsed"));
}
