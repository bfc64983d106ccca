//! Never a false all-clear: a rule watched for too short a time is undecided, a condition that holds so far
//! is suspected.

use numatop_ng::finding::verdict::{Verdict, Why};
use numatop_ng::finding::{Engine, Options, Severity, diagnosis};
use numatop_ng::snapshot::{RowKind, derive};

use crate::properties::sick;
use crate::sick_worlds as worlds;
use crate::world::{Machine, fold, samples, watch};

type World = fn() -> Machine;

const SICK: [(&str, World); 10] = [
    ("spread", worlds::spread),
    ("other node", worlds::other_node),
    ("zone reclaim", worlds::zone_reclaim),
    ("balancing", worlds::balancing),
    ("page cache", worlds::page_cache),
    ("bound and full", worlds::bound_and_full),
    ("loops", worlds::loops),
    ("interrupts", worlds::interrupts),
    ("far disk", worlds::far_disk),
    ("pinned late", worlds::pinned_late),
];

#[test]
fn a_sick_world_that_is_cut_is_no_healthy_one() {
    for (name, world) in SICK {
        for seconds in [1, 5, 15, 29] {
            let engine = watch(world(), seconds);
            let verdict = Verdict::of(&engine);
            let found = diagnosis::is_found(&engine, Severity::Warning);
            assert!(found || !verdict.decides(Severity::Warning), "{name}, {seconds} s: {}", verdict.words());
            assert!(!verdict.words().contains("No finding"), "{name}, {seconds} s: {}", verdict.words());
        }
    }
}

#[test]
fn a_condition_that_holds_so_far_is_suspected_with_the_time_that_it_has_held() {
    let engine = watch(sick(), 8);
    let verdict = Verdict::of(&engine);
    let suspected = verdict.suspected().find(|finding| finding.key.id == "remote-after-pin");
    let suspected = suspected.expect("it has held all the time");
    assert_eq!(suspected.severity, Severity::Warning, "the severity that it would have");
    let open =
        verdict.undecided.iter().find(|rule| rule.id == "remote-after-pin" && rule.why == Why::Suspected);
    let open = open.expect("it is in the list");
    assert!(open.had_ns < open.needs_ns && open.subjects.len() == 1, "{open:?}");
}

#[test]
fn two_short_runs_are_no_long_one() {
    let short = |id| {
        let (host, first) = samples(worlds::loops(), 20, 1000);
        let mut engine = fold(&host, &first).0;
        engine.interrupt();
        for pair in first.windows(2) {
            engine.take(&derive(&host, Some(&pair[0]), &pair[1], RowKind::Processes));
        }
        Verdict::of(&engine).undecided.into_iter().find(|rule| rule.id == id && rule.why == Why::TooShort)
    };
    let ping_pong = short("balancing-ping-pong").expect("it needs 90 s");
    assert!(ping_pong.had_ns <= 20_000_000_000, "{ping_pong:?}");
}

#[test]
fn intervals_that_are_too_long_decide_nothing_about_rules_that_need_less() {
    let (host, samples) = samples(worlds::zone_reclaim(), 81, 1000);
    let apart: Vec<_> = samples.into_iter().step_by(40).collect();
    let mut engine = Engine::new(Options::default());
    for pair in apart.windows(2) {
        engine.take(&derive(&host, Some(&pair[0]), &pair[1], RowKind::Processes));
    }
    let verdict = Verdict::of(&engine);
    assert!(verdict.undecided.iter().any(|rule| rule.why == Why::TooShort), "{verdict:?}");
    assert!(!verdict.decides(Severity::Info));
}

#[test]
fn what_was_watched_for_long_enough_is_decided() {
    let engine = watch(worlds::zone_reclaim(), 130);
    assert!(Verdict::of(&engine).too_short().next().is_none());
    assert!(diagnosis::is_found(&engine, Severity::Warning));
}

/// A process whose threads change nodes once in eight seconds: most short intervals have no move.
fn seldom_moved() -> Machine {
    let mut world = worlds::spread();
    world.actors[0].runs = (0..16).map(|node| (node, 6.0)).collect();
    world.actors[0].node_moves = 0;
    crate::world::each_second(&mut world, |machine, second| {
        machine.actors[0].node_moves = u64::from(second % 8 == 0);
    });
    world
}

#[test]
fn the_length_of_intervals_changes_nothing_that_is_found_in_a_sick_world() {
    let found = |engine: &Engine| -> Vec<String> {
        let mut all = crate::world::lines(engine);
        all.sort();
        all
    };
    for (name, world) in SICK.into_iter().chain([("seldom moved", seldom_moved as World)]) {
        let (host, every) = samples(world(), 200, 1000);
        let second = found(&fold(&host, &every).0);
        assert!(!second.is_empty() || name == "loops", "{name}");
        for apart in [2, 5] {
            let longer: Vec<_> = every.iter().step_by(apart).cloned().collect();
            assert_eq!(found(&fold(&host, &longer).0), second, "{name}, {apart} s");
        }
        // A plan changes a world once in each step.
        if world().plan.is_none() {
            let (host, halves) = samples(world(), 200, 500);
            assert_eq!(found(&fold(&host, &halves).0), second, "{name}, 500 ms");
        }
    }
}
