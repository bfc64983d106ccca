use proptest::prelude::*;

use super::*;
use crate::model::event::{Event, ShareOf};
use crate::selftest::expected::{CountedIn, loads};
use crate::selftest::report::Subject;

fn intel() -> MachineKey {
    MachineKey { cpu: "GenuineIntel 6/106/6".into(), ..MachineKey::default() }
}

fn subject(role: Role, sees: Sees) -> Subject {
    let event = Event { name: role.id().to_uppercase(), ..Event::default() };
    Subject { sees, ..Subject::new(role, &event) }
}

/// Counts of a PMU that is right: of an event in a load of this amount, with memory of the own node or not.
fn right(role: Role, load: Load, amount: f64, local: bool) -> f64 {
    match (role, load) {
        (Role::Instructions, _) => 2.0 * amount,
        (Role::Cycles, _) => 64.0 * amount,
        (Role::Slots, _) => 6.0 * 64.0 * amount,
        (Role::Branch, Load::Coin) => amount / 2.0,
        (Role::Llc, Load::Single | Load::Pairs) | (Role::RemoteCache, Load::Written) => amount,
        (Role::Lma, Load::Single | Load::Pairs) if local => amount,
        (Role::Rma, Load::Single | Load::Pairs) if !local => amount,
        (Role::Dtlb, Load::Pages) => 0.98 * amount,
        (Role::StallBackend, Load::Single) => 90.0 * amount,
        (Role::StallFrontend, Load::FarCalls) => 60.0 * amount,
        (Role::Itlb, Load::FarCalls) => amount,
        (Role::StallBackend, _) => amount,
        _ => 0.0,
    }
}

/// A machine of two nodes with these roles, whose PMU counts the values of `count`.
fn machine(roles: &[(Role, Sees)], count: &dyn Fn(Role, Load, f64, bool) -> f64) -> CounterReport {
    let mut measured = Vec::new();
    for (role, sees) in roles {
        for (load, place) in loads(*role, *sees) {
            let nodes = (0, u32::from(place == CountedIn::Other));
            let amount = 65_536_u32;
            let user = count(*role, load, f64::from(amount), nodes.0 == nodes.1) as i64;
            measured.push(Measured {
                amount: amount.into(),
                user: vec![user, user + 1, user - 1],
                kernel: vec![0; 3],
                whole: vec![i64::from(amount) * 100; 3],
                ..subject(*role, *sees).measured(load, Some(nodes))
            });
        }
    }
    CounterReport { measured, ..CounterReport::default() }.judged(&intel())
}

const ROLES: [(Role, Sees); 12] = [
    (Role::Instructions, Sees::Unknown),
    (Role::Cycles, Sees::Unknown),
    (Role::Slots, Sees::Unknown),
    (Role::Branch, Sees::Unknown),
    (Role::Llc, Sees::Core),
    (Role::Lma, Sees::Fills),
    (Role::Rma, Sees::Demand),
    (Role::RemoteCache, Sees::Demand),
    (Role::Dtlb, Sees::Unknown),
    (Role::StallBackend, Sees::Unknown),
    (Role::StallFrontend, Sees::Unknown),
    (Role::Itlb, Sees::Unknown),
];

fn of(report: &CounterReport, role: Role) -> Vec<(Verdict, String)> {
    let mine = report.measured.iter().filter(|measured| measured.subject.role == role);
    mine.map(|measured| (measured.verdict, measured.reason.clone().unwrap_or_default())).collect()
}

#[test]
fn a_pmu_that_is_right_passes() {
    let report = machine(&ROLES, &right);
    for measured in &report.measured {
        let wanted = match measured.subject.role {
            Role::StallBackend | Role::StallFrontend => Verdict::Plausible,
            _ => Verdict::Ok,
        };
        assert_eq!(measured.verdict, wanted, "{measured:?}");
    }
}

/// A mistake that is made on purpose is found, and its reason begins with these words.
fn found(role: Role, mistake: &dyn Fn(Role, Load, f64, bool) -> f64, words: &str) {
    let report = machine(&ROLES, mistake);
    let verdicts = of(&report, role);
    assert!(
        verdicts.iter().any(|(verdict, reason)| *verdict == Verdict::Wrong && reason.starts_with(words)),
        "{role:?}: {verdicts:?}"
    );
}

#[test]
fn swapped_encodings_are_found() {
    let swapped = |role, load, amount, local| match role {
        Role::Lma => right(Role::Rma, load, amount, local),
        Role::Rma => right(Role::Lma, load, amount, local),
        Role::Instructions => 64.0 * amount,
        other => right(other, load, amount, local),
    };
    for role in [Role::Lma, Role::Rma] {
        found(role, &swapped, "counts the other node's accesses");
        let report = machine(&ROLES, &swapped);
        assert!(of(&report, role).iter().all(|(verdict, _)| *verdict == Verdict::Wrong));
    }
    found(
        Role::Instructions,
        &swapped,
        "32.00 times the expected count: the encoding may belong to another event",
    );
}

#[test]
fn half_twice_and_nothing_are_found_in_every_role() {
    for (role, _) in ROLES {
        for (times, words) in [(0.5, ""), (2.0, ""), (0.0, "can be opened and counts nothing")] {
            // Twice the share of a stall is at most its whole, and slots have no separate number.
            if times > 0.0 && matches!(role, Role::StallBackend | Role::StallFrontend | Role::Slots) {
                continue;
            }
            // Front ends that run ahead walk up to twice as often.
            if times > 1.0 && role == Role::Itlb {
                continue;
            }
            let mistake = move |asked, load, amount, local| {
                right(asked, load, amount, local) * if asked == role { times } else { 1.0 }
            };
            let report = machine(&ROLES, &mistake);
            let wrong: Vec<_> =
                of(&report, role).into_iter().filter(|(verdict, _)| *verdict == Verdict::Wrong).collect();
            assert!(!wrong.is_empty() && wrong[0].1.starts_with(words), "{role:?} {times}: {wrong:?}");
            let others = report.measured.iter().filter(|measured| measured.subject.role != role);
            assert!(others.into_iter().all(|other| other.verdict != Verdict::Wrong));
        }
    }
}

#[test]
fn an_event_that_counts_everything_fails_its_control() {
    let everything = |role, load, amount, local| match role {
        Role::Llc => amount,
        Role::Lma => amount,
        Role::Dtlb => amount,
        other => right(other, load, amount, local),
    };
    found(Role::Llc, &everything, "counts 100.0 % of the operations in a control test");
    found(Role::Lma, &everything, "counts both nodes equally");
    found(Role::Dtlb, &everything, "counts 100.0 % of the operations in a control test");
}

#[test]
fn a_control_alone_proves_nothing() {
    let judged = |change: &dyn Fn(&mut Measured)| {
        let mut report = machine(&[(Role::Llc, Sees::Demand)], &right);
        let must = report.measured.iter_mut().find(|measured| measured.load == Load::Single).unwrap();
        change(must);
        of(&report.judged(&intel()), Role::Llc).into_iter().map(|(verdict, _)| verdict).collect::<Vec<_>>()
    };
    use Verdict::{Ok, Untested, Wrong};
    assert_eq!(judged(&|_| {}), [Ok, Ok]);
    // It counted something where it must, and how much it should have been is not known.
    assert_eq!(judged(&|must| must.running = 0.5), [Untested, Untested]);
    assert_eq!(judged(&|must| must.on_node = 0.3), [Untested, Untested]);
    assert_eq!(judged(&|must| must.why = Some("one node".into())), [Untested, Untested]);
    assert_eq!(judged(&|must| must.user = vec![0; 3]), [Wrong, Untested]);
    // A count that is wrong, and larger than the control's.
    assert_eq!(judged(&|must| must.user = vec![4000; 3]), [Wrong, Ok]);
}

#[test]
fn known_mistakes_have_their_reasons() {
    let times = |role: Role, times: f64| {
        move |asked, load, amount, local| {
            right(asked, load, amount, local) * if asked == role { times } else { 1.0 }
        }
    };
    found(
        Role::Instructions,
        &times(Role::Instructions, 16.0),
        "16 times the expected count: AMD erratum 1291",
    );
    found(Role::Cycles, &times(Role::Cycles, 66.0 / 64.0), "+3.1 %: each instruction takes one cycle");
    found(
        Role::Lma,
        &times(Role::Lma, 2.0),
        "twice the expected count: the neighbour of each line is prefetched, and 'sees'",
    );
    found(
        Role::Llc,
        &times(Role::Llc, 0.5),
        "half the expected count: the event does not see prefetched lines, and 'sees'",
    );
    found(Role::Branch, &times(Role::Branch, 0.5), "half the expected count: one of two ways");
    found(Role::Cycles, &times(Role::Cycles, 1.2), "differs by +20.0 %: please report this");
}

#[test]
fn an_erratum_makes_a_wrong_count_a_known_one_and_a_right_one_stays_right() {
    let judged = |times: i64| {
        let subject = Subject { errata: Some("BDM69".into()), ..subject(Role::Dtlb, Sees::Unknown) };
        let measured =
            Measured { amount: 1000, user: vec![1000 * times], ..subject.measured(Load::Pages, None) };
        let report = CounterReport { measured: vec![measured], ..CounterReport::default() }.judged(&intel());
        of(&report, Role::Dtlb).remove(0)
    };
    assert_eq!(judged(1), (Verdict::Ok, String::new()));
    let (verdict, reason) = judged(3);
    assert_eq!(verdict, Verdict::Known);
    assert!(reason.starts_with("erratum BDM69: differs by"), "{reason}");
}

#[test]
fn nothing_passes_that_was_not_compared() {
    let good = Measured {
        amount: 1000,
        user: vec![2000],
        ..subject(Role::Instructions, Sees::Unknown).measured(Load::Loop, None)
    };
    let judged = |change: &dyn Fn(&mut Measured)| {
        let mut measured = good.clone();
        change(&mut measured);
        let report = CounterReport { measured: vec![measured], ..CounterReport::default() }.judged(&intel());
        of(&report, Role::Instructions).remove(0)
    };
    assert_eq!(judged(&|_| {}).0, Verdict::Ok);
    for (change, words) in [
        (
            &(|measured: &mut Measured| measured.why = Some("no PMU".into())) as &dyn Fn(&mut Measured),
            "no PMU",
        ),
        (&|measured: &mut Measured| measured.running = 0.5, "the event was counted 50 % of the time"),
        (&|measured: &mut Measured| measured.on_node = 0.5, "only 50 % of the memory"),
        (&|measured: &mut Measured| measured.user.clear(), "the event was not counted"),
        (&|measured: &mut Measured| measured.amount = 0, "the event was not counted"),
        (&|measured: &mut Measured| measured.load = Load::Pages, "this version has no reference"),
    ] {
        let (verdict, reason) = judged(change);
        assert!(verdict == Verdict::Untested && reason.starts_with(words), "{verdict:?} {reason}");
    }
    let stall = Measured {
        amount: 1000,
        user: vec![900],
        ..Subject { share_of: ShareOf::SlotsPerCycle(4), ..subject(Role::StallBackend, Sees::Unknown) }
            .measured(Load::Single, None)
    };
    assert!(expected(&stall, false).unwrap_err().contains("the total of this event was not counted"));
    let whole = Measured { whole: vec![500], ..stall };
    assert_eq!(expected(&whole, false).unwrap().low, 1200.0, "four slots a cycle");
}

#[test]
fn the_tool_has_a_verdict_of_its_own() {
    let verdict = |own: u64, tool: u64| {
        let measured = Measured {
            own: Some(own),
            tool: Some(tool),
            ..subject(Role::Instructions, Sees::Unknown).measured(Load::Loop, None)
        };
        by_the_tool(&measured)
    };
    assert_eq!(verdict(200_000_000, 200_900_000), Verdict::Ok);
    assert_eq!(verdict(200_000_000, 100_000_000), Verdict::Wrong);
    assert_eq!(verdict(10_000, 11_999), Verdict::Ok);
    assert_eq!(verdict(10_000, 0), Verdict::Wrong);
    assert_eq!(verdict(0, 0), Verdict::Untested);
}

proptest! {
    #[test]
    fn a_factor_that_no_tolerance_has_is_never_ok(at in 0..ROLES.len(), times in prop_oneof![0.0..0.85f64, 2.3..40.0f64]) {
        let (role, _) = ROLES[at];
        // A whole number of slots a cycle passes, and a stall has no truth that is exact.
        prop_assume!(!matches!(role, Role::Slots | Role::StallBackend | Role::StallFrontend));
        let mistake = move |asked, load, amount, local| {
            right(asked, load, amount, local) * if asked == role { times } else { 1.0 }
        };
        let verdicts = of(&machine(&ROLES, &mistake), role);
        prop_assert_ne!(verdicts[0].0, Verdict::Ok);
    }
}
