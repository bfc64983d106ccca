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
            missing.entry(key).or_insert_with(|| "other tasks disturbed its measurement".into());
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
mod tests;
