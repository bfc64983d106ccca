//! A measurement, put into the profile of the same machine that is stored. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::plan::Stage;
use crate::model::profile::values::{Values, number, part, values, with_values};
use crate::model::profile::{Origin, Profile, State};

/// The profile to store once `new` was measured where `old` is stored. `None` if `old` stays, because it was
/// not disturbed and `new` was. `is_part`: only a part was requested. A measurement with missing numbers is a
/// part, too.
pub fn kept(old: Option<&Profile>, new: Profile, is_part: bool) -> Option<Profile> {
    match old {
        Some(old) if new.state == State::Disturbed && old.state != State::Disturbed => None,
        Some(old) if is_part || !is_whole(&new) => Some(merge(old, new)),
        _ => Some(new),
    }
}

/// Whether all parts are complete, as far as a profile shows.
fn is_whole(profile: &Profile) -> bool {
    match profile.state {
        State::Good => true,
        State::Partial => false,
        State::Disturbed | State::Wandering => {
            Stage::USUAL.iter().all(|stage| profile.measured.contains_key(stage.word()))
                && profile.missing.keys().all(|key| key == WANDERING)
        }
    }
}

/// The key of the looks at two CPUs.
const WANDERING: &str = "wandering";

/// `new`, with the numbers of `old` where it has none. Both are of the same machine, in a run of the kernel in which they
/// hold.
///
/// Each number, and each reason for a missing one, keeps the time and the state of its run
/// ([`Profile::origins`]). A disturbed number never replaces an undisturbed one. It is dropped if `new` was
/// not disturbed, because it is not used. A number measured while CPUs wandered stays until it is measured
/// again. The whole has the state of its worst number. It is not a part if `old` was whole.
pub fn merge(old: &Profile, new: Profile) -> Profile {
    let (before, now) = (values(old), values(&new));
    let is_disturbed = |key: &str| old.taint(key) == Some(State::Disturbed);
    let gives_up = |key: &str| new.state != State::Disturbed && is_disturbed(key);
    let takes = |key: &str| new.state != State::Disturbed || !before.contains_key(key) || is_disturbed(key);
    let mut all: Values = now.clone();
    all.retain(|key, _| takes(key));
    let taken: BTreeSet<String> = all.keys().cloned().collect();
    let stay = before.iter().filter(|(key, _)| !taken.contains(*key) && !gives_up(key));
    all.extend(stay.map(|(key, value)| (key.clone(), value.clone())));
    let given_up: Vec<&String> = before.keys().filter(|key| !all.contains_key(*key)).collect();

    // Parts that gave no number now have the time of the numbers that stay.
    let has = |word: &str| all.keys().any(|key| part(key) == Some(word));
    let gave = |word: &str| taken.iter().any(|key| part(key) == Some(word));
    let mut measured = old.measured.clone();
    measured.retain(|word, _| has(word));
    let newer = new.measured.iter().filter(|(word, _)| gave(word) || !has(word));
    measured.extend(newer.map(|(word, time)| (word.clone(), time.clone())));

    let mut merged = Profile { measured, origins: BTreeMap::new(), ..new.clone() };
    let stay = all.keys().filter(|key| !taken.contains(*key)).map(|key| (key, old.when(key), old.taint(key)));
    let come = taken.iter().map(|key| (key, new.when(key), new.taint(key)));
    let runs: Vec<_> = stay.chain(come).collect();
    let mut origins = BTreeMap::new();
    for (key, time, taint) in &runs {
        if taint.is_some() || *time != merged.when(key) {
            let state = taint.unwrap_or(State::Good);
            origins.insert((*key).clone(), Origin { time: (*time).to_owned(), state });
        }
    }
    let worst = |state| runs.iter().any(|(.., taint)| *taint == Some(state));
    merged.state = match () {
        () if worst(State::Disturbed) => State::Disturbed,
        () if worst(State::Wandering) => State::Wandering,
        () if new.state == State::Good || is_whole(old) && given_up.is_empty() => State::Good,
        () => State::Partial,
    };
    // The looks that the state is from.
    let from_old =
        merged.state == State::Wandering && new.state != State::Wandering || new.wandering.is_none();
    if from_old && old.wandering.is_some() {
        merged.wandering.clone_from(&old.wandering);
    }
    let reasons = Reasons { old, new: &new, all: &all, taken: &taken };
    merged.notes = reasons.notes();
    merged.missing = reasons.missing(&given_up);
    for key in merged.missing.keys().filter(|key| !new.missing.contains_key(*key)) {
        origins.insert(key.clone(), Origin { time: old.when(key).to_owned(), state: State::Good });
    }
    merged.origins = origins;
    with_values(merged, &all)
}

/// Two profiles, the numbers of both after merging, and the keys of the new ones.
struct Reasons<'a> {
    old: &'a Profile,
    new: &'a Profile,
    all: &'a Values,
    taken: &'a BTreeSet<String>,
}

impl Reasons<'_> {
    /// Whether the number that a reason is about exists, or a number of the part.
    fn has(&self, key: &str) -> bool {
        match Stage::by_word(key) {
            Some(stage) => self.all.keys().any(|known| part(known) == Some(stage.word())),
            None => self.all.contains_key(&number(self.new, key)),
        }
    }

    /// Whether one of its numbers stays from `old`.
    fn stays(&self, key: &str) -> bool {
        let is_old = |known: &&String| !self.taken.contains(*known);
        let mut stay = self.all.keys().filter(is_old);
        match Stage::by_word(key) {
            Some(stage) => stay.any(|known| part(known) == Some(stage.word())),
            None => {
                let number = number(self.new, key);
                stay.any(|known| *known == number)
            }
        }
    }

    /// Why numbers are missing: from the last run that should have measured them.
    fn missing(&self, given_up: &[&String]) -> BTreeMap<String, String> {
        let Reasons { old, new, .. } = *self;
        let mut missing = new.missing.clone();
        missing.retain(|key, _| !self.has(key));
        for (key, why) in old.missing.iter().filter(|(key, _)| !self.has(key)) {
            let is_settled = match part(key) {
                _ if key == WANDERING => new.wandering.is_some(),
                // A row or a column, or several numbers: measured again with their part.
                Some(word) if is_of_several(key) => new.measured.contains_key(word),
                _ => false,
            };
            if !is_settled {
                missing.entry(key.clone()).or_insert_with(|| why.clone());
            }
        }
        for key in given_up {
            let word = part(key).unwrap_or_default();
            let key = if self.has(word) { (*key).clone() } else { word.to_owned() };
            missing.entry(key).or_insert_with(|| "other tasks disturbed the measurement of this part".into());
        }
        missing
    }

    /// Notes on the last run, on earlier numbers that it could not measure, and on numbers that stay.
    fn notes(&self) -> Vec<String> {
        let Reasons { old, new, .. } = *self;
        let mut notes = new.notes.clone();
        for (key, why) in new.missing.iter().filter(|(key, _)| self.stays(key)) {
            let (then, now) = (day(old.when(&number(old, key))), day(&new.time));
            notes.push(format!("{key}: from {then}; not measured again on {now}: {why}"));
        }
        let subject = |note: &str| note.split(": ").next().unwrap_or_default().to_owned();
        let said: BTreeSet<String> = notes.iter().map(|note| subject(note)).collect();
        let stay = old.notes.iter().filter(|note| {
            let subject = subject(note);
            !said.contains(&subject) && self.stays(&subject)
        });
        notes.extend(stay.cloned());
        notes
    }
}

/// Whether a reason is about a row, a column or all numbers of a node.
fn is_of_several(key: &str) -> bool {
    let words: Vec<&str> = key.split('.').collect();
    match words[..] {
        ["latency_ns" | "latency_asleep_ns" | "read_gbs" | "loaded", ref rest @ ..] => {
            rest.len() != 2 || rest.contains(&"*")
        }
        ["local", _] => true,
        _ => Stage::by_word(key).is_some(),
    }
}

/// The day of a time, RFC 3339.
fn day(time: &str) -> &str {
    time.split('T').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
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
        let lines = Lines {
            core: Some(7.0),
            nodes: vec![vec![None, Some(100.0)], vec![None; 2]],
            ..Lines::default()
        };
        let new = Profile {
            measured: parts(&["latency", "cores", "pages", "bandwidth"], NOW),
            lines_ns: lines,
            walk_ns: Some(20.0),
            missing: missing(&[("smt", "does not fit into 9 s: raise --time")]),
            ..profile(NOW, State::Partial, HERE)
        };
        let merged = merge(&merged, new);
        assert_eq!(merged.missing, missing(&[("smt.waiting", "CPU 1 did not run")]), "all others are there");
        assert!(
            merged.notes[0].starts_with("smt: from 2026-11-23; not measured again"),
            "{:?}",
            merged.notes
        );
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
        let why = "other tasks disturbed the measurement of this part";
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
        assert_eq!(
            (merged.taint("read_gbs.0.4"), merged.when("read_gbs.0.4")),
            (Some(State::Wandering), THEN)
        );
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
}
