use super::*;
use crate::calibrate::job::Limits;
use crate::calibrate::plan::{Asked, Column, MatrixRow};
use crate::model::profile::NodeKey;
use proptest::prelude::*;

fn machine() -> MachineKey {
    let node = |node, cpus: &str| NodeKey { node, cpus: cpus.into(), slit: vec![10, 20] };
    MachineKey {
        nodes: vec![node(0, "0-1"), node(3, "2-3")],
        hypervisor: Some(false),
        ..MachineKey::default()
    }
}

fn plan() -> Plan {
    let limits = Limits { line_bytes: 64, keep_bytes: 0 };
    let column = |node| Column { node, touched_by: 0, bytes: 1 << 30, limits };
    Plan {
        rows: vec![MatrixRow { node: 0, cpus: vec![1, 0] }, MatrixRow { node: 3, cpus: vec![2, 3] }],
        columns: vec![column(0), column(3)],
        walk_bytes: 16 << 20,
        walk_wanted: 16 << 20,
        orders: 1,
        evicted_bytes: None,
        stream_bytes: BTreeMap::new(),
        rounds: 5,
        windows: 5,
        pairs: Vec::new(),
        siblings: None,
        siblings_node: None,
        wanders: None,
        hidden: false,
        stages: Asked::default().only.into_iter().map(|stage| (stage, 1.0)).collect(),
        left_out: Vec::new(),
        absent: Vec::new(),
        missing: BTreeMap::new(),
    }
}

fn all(results: &mut Results) {
    for (from, to, ns) in [(0, 0, 80.0), (0, 3, 140.0), (3, 0, 141.0), (3, 3, 81.0)] {
        (0..5).for_each(|round| results.take(Cell::Latency(from, to), ns + f64::from(round)));
    }
    results.judge(true);
    results.smt = SmtLoad::ALL.map(|load| (load, 1.0)).into();
    results.walks = (Some(120.0), Some(100.0));
}

#[test]
fn rounds_become_a_matrix_by_node() {
    let mut results = Results::default();
    all(&mut results);
    results.take(Cell::Read(0, 3), 60.0);
    results.judge(true);
    let profile = results.profile(&plan(), machine(), Run::default());
    assert_eq!(profile.latency_ns, [[Some(82.0), Some(142.0)], [Some(143.0), Some(83.0)]]);
    assert_eq!(profile.latency_error[0][0], Some(1.0), "half the range of the middle three");
    assert_eq!(profile.read_gbs, [[None, Some(60.0)], [None, None]]);
    assert_eq!(profile.state, State::Good);
    assert_eq!(profile.schema, SCHEMA);
}

#[test]
fn rounds_that_others_disturbed_are_measured_again_twice() {
    let (mut results, cell) = (Results::default(), Cell::Latency(0, 0));
    for _ in 0..2 {
        results.take(cell, 500.0);
        results.judge(false);
        assert!(results.rounds(cell).is_empty() && results.wants_more(cell, 5));
    }
    results.take(cell, 500.0);
    results.judge(false);
    assert_eq!((results.rounds(cell), results.disturbed), (&[500.0][..], 1));
    all(&mut results);
    assert_eq!(results.profile(&plan(), machine(), Run::default()).state, State::Disturbed);
}

#[test]
fn a_cell_without_a_number_has_a_reason_and_is_not_asked_for_again() {
    let mut results = Results::default();
    let cell = Cell::Latency(0, 3);
    assert!(results.wants_more(cell, 5));
    results.lacks(cell, "no room".into());
    assert!(!results.wants_more(cell, 5));
    let profile = results.profile(&plan(), machine(), Run::default());
    assert_eq!(profile.missing["latency_ns.0.3"], "no room");
    assert_eq!(profile.state, State::Partial);
}

#[test]
fn a_run_says_what_it_was() {
    let state = |run: Run, change: &dyn Fn(&mut Results, &mut Plan)| {
        let (mut results, mut plan) = (Results::default(), plan());
        all(&mut results);
        change(&mut results, &mut plan);
        results.profile(&plan, machine(), run).state
    };
    assert_eq!(state(Run { forced: true, ..Run::default() }, &|_, _| {}), State::Disturbed);
    assert_eq!(state(Run { cut_short: true, ..Run::default() }, &|_, _| {}), State::Partial);
    let without = |stage: Stage, absent: bool| {
        move |_: &mut Results, plan: &mut Plan| {
            plan.stages.retain(|(kept, _)| *kept != stage);
            let list = if absent { &mut plan.absent } else { &mut plan.left_out };
            list.push((stage, "why".into()));
        }
    };
    assert_eq!(state(Run::default(), &without(Stage::Smt, true)), State::Good, "cores have one thread each");
    assert_eq!(state(Run::default(), &without(Stage::Pages, false)), State::Partial, "no time");
    let looks = |ns: &[f64]| {
        let ns = ns.to_vec();
        move |results: &mut Results, plan: &mut Plan| {
            plan.wanders = Some((0, 1));
            results.looks_ns.clone_from(&ns);
        }
    };
    assert_eq!(state(Run::default(), &looks(&[10.0, 11.0, 10.5])), State::Good);
    assert_eq!(state(Run::default(), &looks(&[10.0, 28.0, 10.5])), State::Wandering);
    assert_eq!(state(Run::default(), &looks(&[0.0, 0.0])), State::Wandering, "not known is not good");
    assert_eq!(state(Run::default(), &|results, _| results.walks.0 = None), State::Partial);
}

#[test]
fn a_number_that_is_missing_has_a_reason() {
    let (mut results, mut plan) = (Results::default(), plan());
    plan.hidden = true;
    plan.pairs =
        vec![Pair { kind: PairKind::Core, cpus: (0, 1) }, Pair { kind: PairKind::Nodes(0, 1), cpus: (1, 2) }];
    all(&mut results);
    results.smt.remove(&SmtLoad::Memory);
    results.walks = (None, Some(100.0));
    results.missing.insert("lines_ns.core".into(), "said".into());
    let profile = results.profile(&plan, machine(), Run::default());
    let keys: Vec<&str> = profile.missing.keys().map(String::as_str).collect();
    assert_eq!(keys, ["hidden_nodes", "lines_ns.core", "lines_ns.nodes.1.2", "smt.memory", "walk_ns"]);
    assert_eq!(profile.missing["lines_ns.core"], "said");
    assert_eq!(profile.state, State::Partial);
}

#[test]
fn a_round_that_went_wrong_takes_no_number_away() {
    let mut results = Results::default();
    all(&mut results);
    results.lacks(Cell::Latency(0, 3), "only 90 % of the test memory is on node 3".into());
    results.take(Cell::Read(0, 0), 60.0);
    results.judge(true);
    let profile = results.profile(&plan(), machine(), Run::default());
    assert_eq!((profile.latency_ns[0][1], profile.missing.len()), (Some(142.0), 0), "{:?}", profile.missing);
    assert_eq!(
        profile.notes,
        ["latency_ns.0.3: from 5 rounds only: only 90 % of the test memory is on node 3"]
    );
    assert_eq!(profile.read_error[0][0], None, "one round knows no error");
}

#[test]
fn cores_fill_a_node_where_more_gain_nothing() {
    let counts = |points: &[(u32, f64)]| points.iter().copied().collect::<BTreeMap<_, _>>();
    assert_eq!(cores_to_fill(&counts(&[(1, 10.0), (2, 20.0), (4, 30.0), (8, 30.5)])), Some(4));
    assert_eq!(cores_to_fill(&counts(&[(1, 10.0), (2, 10.1), (4, 30.0)])), Some(4));
    assert_eq!(cores_to_fill(&counts(&[(1, 10.0)])), Some(1));
    assert_eq!(cores_to_fill(&counts(&[])), None);
}

#[test]
fn eviction_that_disagrees_is_a_note() {
    let note = |evicted| {
        let mut results = Results { evicted: Some(evicted), ..Results::default() };
        all(&mut results);
        results.profile(&plan(), machine(), Run::default()).notes
    };
    assert_eq!(note(83.0), [""; 0]);
    assert!(note(90.2)[0].ends_with("an evicted one 90.2 ns (+10 %)"), "{:?}", note(90.2));
}

proptest! {
    #[test]
    fn an_order_of_cells_changes_no_value(order in Just((0..20usize).collect::<Vec<_>>()).prop_shuffle(), values in proptest::collection::vec(50.0..500.0f64, 20)) {
        let cells = [Cell::Latency(0, 0), Cell::Latency(0, 3), Cell::Latency(3, 0), Cell::Latency(3, 3)];
        let profile = |order: &[usize]| {
            let mut results = Results::default();
            for at in order {
                results.take(cells[at % 4], values[*at]);
                results.judge(true);
            }
            results.profile(&plan(), machine(), Run::default())
        };
        let in_order: Vec<usize> = (0..20).collect();
        prop_assert_eq!(profile(&order), profile(&in_order));
    }
}
