use super::*;
use crate::model::profile::{Lines, Local, MachineKey, Matrix, NodeKey, Smt, Wandering};

const THEN: &str = "2026-11-20T10:00:00Z";
const NOW: &str = "2026-11-23T10:00:00Z";

/// A run that ended at this time, with latencies.
fn profile(time: &str, state: State, latency: [[Option<f64>; 2]; 2]) -> Profile {
    let node = |node, cpus: &str| NodeKey { node, cpus: cpus.into(), ..NodeKey::default() };
    Profile {
        state,
        time: time.into(),
        measured: parts(&["latency"], time),
        machine: MachineKey { nodes: vec![node(0, "0-3"), node(4, "4-7")], ..MachineKey::default() },
        latency_ns: latency.map(Vec::from).into(),
        ..Profile::default()
    }
}

/// These parts at this time.
fn parts(words: &[&str], time: &str) -> BTreeMap<String, String> {
    words.iter().map(|word| ((*word).to_owned(), time.to_owned())).collect()
}

fn missing(reasons: &[(&str, &str)]) -> BTreeMap<String, String> {
    reasons.iter().map(|(key, why)| ((*key).to_owned(), (*why).to_owned())).collect()
}

/// A run of everything.
fn whole(time: &str, state: State) -> Profile {
    Profile {
        measured: parts(&["latency", "bandwidth", "cores", "smt", "pages"], time),
        read_gbs: vec![vec![Some(60.0); 2]; 2],
        lines_ns: Lines { core: Some(7.0), llc: Some(40.0), ..Lines::default() },
        smt: Smt { additions: Some(1.0), memory: Some(1.9), ..Smt::default() },
        walk_ns: Some(20.0),
        ..profile(time, state, [[Some(80.0); 2]; 2])
    }
}

/// A run of `--only smt`.
fn smt(time: &str, state: State) -> Profile {
    Profile {
        measured: parts(&["smt"], time),
        smt: Smt { additions: Some(1.1), memory: Some(1.8), ..Smt::default() },
        ..profile(time, state, [[None; 2]; 2])
    }
}

const HERE: [[Option<f64>; 2]; 2] = [[Some(90.0); 2]; 2];

#[test]
fn new_cells_take_the_place_of_old_ones_and_others_stay() {
    let old = Profile {
        smt: Smt { additions: Some(1.0), memory: Some(1.9), ..Smt::default() },
        measured: parts(&["latency", "smt", "bandwidth", "pages"], THEN),
        local: vec![Local { node: 0, copy_gbs: Some(9.0), ..Local::default() }],
        walk_ns: Some(20.0),
        ..profile(THEN, State::Good, [[Some(80.0), Some(140.0)], [Some(141.0), None]])
    };
    let new = Profile {
        measured: parts(&["latency", "smt", "bandwidth"], NOW),
        smt: Smt { memory: Some(1.8), ..Smt::default() },
        local: vec![Local { node: 4, copy_gbs: Some(8.0), ..Local::default() }],
        missing: missing(&[("latency_ns.0.4", "why"), ("latency_ns.4.4", "why")]),
        ..profile(NOW, State::Partial, [[Some(85.0), None], [None, None]])
    };
    let merged = merge(&old, new);
    assert_eq!(merged.latency_ns, [[Some(85.0), Some(140.0)], [Some(141.0), None]]);
    assert_eq!((merged.smt.additions, merged.smt.memory), (Some(1.0), Some(1.8)));
    assert_eq!(merged.local.iter().map(|local| local.node).collect::<Vec<_>>(), [0, 4]);
    assert_eq!((merged.walk_ns, merged.state), (Some(20.0), State::Good));
    assert_eq!(merged.missing, missing(&[("latency_ns.4.4", "why")]));
}

#[test]
fn each_number_has_the_time_of_its_own_run() {
    let old = whole(THEN, State::Good);
    // --from 0: a row of the matrix.
    let row = profile(NOW, State::Partial, [[Some(85.0), Some(141.0)], [None, None]]);
    let merged = merge(&old, row);
    let days: Vec<&str> = ["latency_ns.0.0", "latency_ns.4.0", "smt.memory", "read_gbs.0.4"]
        .map(|key| day(merged.when(key)))
        .into();
    assert_eq!(days, ["2026-11-23", "2026-11-20", "2026-11-20", "2026-11-20"]);
    // A number that stays for the second time.
    let later = merge(&merged, smt("2026-11-24T10:00:00Z", State::Partial));
    let days: Vec<&str> =
        ["latency_ns.0.0", "latency_ns.4.0", "smt.memory"].map(|key| day(later.when(key))).into();
    assert_eq!(days, ["2026-11-23", "2026-11-20", "2026-11-24"]);
    assert_eq!(later.state, State::Good, "nothing is lacking");
}

#[test]
fn a_part_that_failed_keeps_its_old_numbers_with_their_time_and_says_why() {
    let failed = Profile {
        smt: Smt::default(),
        missing: missing(&[("smt.additions", "CPU 1 did not run"), ("smt.memory", "no room")]),
        ..smt(NOW, State::Partial)
    };
    let merged = merge(&whole(THEN, State::Good), failed);
    assert_eq!(
        (merged.smt.memory, merged.when("smt.memory"), &merged.measured["smt"][..]),
        (Some(1.9), THEN, THEN)
    );
    assert_eq!(merged.missing, BTreeMap::new(), "the numbers are there");
    let said = "smt.memory: from 2026-11-20; not measured again on 2026-11-23: no room";
    assert!(merged.notes.iter().any(|note| note == said), "{:?}", merged.notes);
    // The next run that fails takes the place of that note, and one that does not takes it away.
    let again = Profile {
        missing: missing(&[("smt.memory", "busy")]),
        smt: Smt::default(),
        ..smt(NOW, State::Partial)
    };
    let again = merge(&merged, again);
    assert_eq!(again.notes.iter().filter(|note| note.starts_with("smt.memory:")).count(), 1);
    assert_eq!(merge(&again, smt(NOW, State::Partial)).notes, Vec::<String>::new());
}

#[test]
fn reasons_of_other_parts_stay_with_their_time() {
    let old = Profile {
        lines_ns: Lines::default(),
        missing: missing(&[
            ("lines_ns.core", "one thread a core"),
            ("lines_ns.nodes.0.4", "CPU 4 did not run"),
            ("pages", "does not fit into 5 s: raise --time"),
            ("local.4", "no room"),
            ("latency_ns.*.4", "too little memory"),
            ("smt.waiting", "CPU 1 did not run"),
        ]),
        walk_ns: None,
        ..whole(THEN, State::Partial)
    };
    let merged = merge(&old, smt(NOW, State::Partial));
    assert_eq!(merged.missing, old.missing);
    assert_eq!(merged.when("smt.waiting"), THEN, "the run that should have had it");
    assert_eq!(merged.when("smt.memory"), NOW);
    let lines =
        Lines { core: Some(7.0), nodes: vec![vec![None, Some(100.0)], vec![None; 2]], ..Lines::default() };
    let new = Profile {
        measured: parts(&["latency", "cores", "pages", "bandwidth"], NOW),
        lines_ns: lines,
        walk_ns: Some(20.0),
        missing: missing(&[("smt", "does not fit into 9 s: raise --time")]),
        ..profile(NOW, State::Partial, HERE)
    };
    let merged = merge(&merged, new);
    assert_eq!(merged.missing, missing(&[("smt.waiting", "CPU 1 did not run")]), "all others are there");
    assert!(merged.notes[0].starts_with("smt: from 2026-11-23; not measured again"), "{:?}", merged.notes);
}

#[test]
fn a_disturbed_profile_does_not_stay_in_a_clean_one() {
    let disturbed = whole(THEN, State::Disturbed);
    let merged = kept(Some(&disturbed), smt(NOW, State::Partial), true).unwrap();
    assert_eq!(
        (merged.state, merged.smt.memory, merged.smt.additions),
        (State::Partial, Some(1.8), Some(1.1))
    );
    assert_eq!((merged.latency_ns, merged.walk_ns), (vec![vec![None; 2]; 2], None));
    let why = "other tasks disturbed its measurement";
    assert_eq!(merged.missing["latency"], why);
    assert_eq!((merged.missing.len(), &merged.measured), (4, &parts(&["smt"], NOW)));
    assert!(merged.origins.values().all(|origin| origin.time == THEN), "{:?}", merged.origins);
    // A whole that lacks one part for want of time is a part.
    let mut most = whole(NOW, State::Partial);
    most.walk_ns = None;
    let merged = kept(Some(&disturbed), most, false).unwrap();
    assert_eq!((merged.state, merged.walk_ns), (State::Partial, None));
}

#[test]
fn a_disturbed_measurement_takes_the_place_of_no_clean_one() {
    for state in [State::Good, State::Partial, State::Wandering] {
        assert_eq!(kept(Some(&whole(THEN, state)), whole(NOW, State::Disturbed), false), None);
        assert_eq!(kept(Some(&smt(THEN, state)), smt(NOW, State::Disturbed), true), None);
    }
    let fresh = kept(None, smt(NOW, State::Disturbed), true).unwrap();
    assert_eq!(fresh.state, State::Disturbed);
    // Of two disturbed ones the newer is no worse.
    let both = kept(Some(&whole(THEN, State::Disturbed)), smt(NOW, State::Disturbed), true).unwrap();
    assert_eq!((both.state, both.smt.memory, both.walk_ns), (State::Disturbed, Some(1.8), Some(20.0)));
    // merge() by itself marks what it takes, and takes nothing clean away.
    let marked = merge(&smt(THEN, State::Good), whole(NOW, State::Disturbed));
    assert_eq!((marked.smt.memory, marked.taint("smt.memory")), (Some(1.8), None));
    assert_eq!((marked.taint("walk_ns"), marked.state), (Some(State::Disturbed), State::Disturbed));
}

#[test]
fn wandering_ends_when_the_last_number_of_it_is_measured_again() {
    let looks = |classes: &[u32]| Some(Wandering { classes: classes.into(), ..Wandering::default() });
    let old = Profile { wandering: looks(&[3, 17]), ..whole(THEN, State::Wandering) };
    let still = |new: Profile| Profile { wandering: looks(&[20]), ..new };
    let merged = merge(&old, still(profile(NOW, State::Partial, HERE)));
    assert_eq!((merged.state, merged.taint("latency_ns.0.4")), (State::Wandering, None));
    assert_eq!((merged.taint("read_gbs.0.4"), merged.when("read_gbs.0.4")), (Some(State::Wandering), THEN));
    assert_eq!(merged.wandering, old.wandering, "the looks that the state is from");
    let rest = Profile {
        measured: parts(&["bandwidth", "cores", "smt", "pages"], NOW),
        latency_ns: Matrix::new(),
        ..whole(NOW, State::Partial)
    };
    let clean = merge(&merged, still(rest));
    assert_eq!((clean.state, clean.wandering.unwrap().classes), (State::Good, vec![20]));
    assert!(clean.origins.is_empty(), "{:?}", clean.origins);
    // A part that wandered marks its numbers, and no others.
    let marked = merge(&whole(THEN, State::Good), smt(NOW, State::Wandering));
    assert_eq!((marked.state, marked.taint("smt.memory")), (State::Wandering, Some(State::Wandering)));
    assert_eq!(marked.taint("latency_ns.0.4"), None);
}

#[test]
fn a_whole_measurement_takes_the_place_of_everything() {
    for state in [State::Good, State::Wandering] {
        for old in [State::Good, State::Disturbed, State::Wandering] {
            let new = whole(NOW, state);
            assert_eq!(kept(Some(&whole(THEN, old)), new.clone(), false), Some(new));
        }
    }
}

#[test]
fn a_part_of_a_part_is_one() {
    let state = |old, new| merge(&profile(THEN, old, HERE), profile(NOW, new, HERE)).state;
    assert_eq!(state(State::Disturbed, State::Good), State::Good);
    assert_eq!(state(State::Good, State::Disturbed), State::Good, "no disturbed number was taken");
    assert_eq!(state(State::Partial, State::Wandering), State::Wandering);
    assert_eq!(state(State::Partial, State::Partial), State::Partial);
    assert_eq!(state(State::Partial, State::Good), State::Good);
}
