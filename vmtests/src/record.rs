//! The file of results: one JSON line per event, each with the guest it came from.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};
use vmtests_protocol::{Event, Outcome};

use crate::plan::Job;
use crate::snapshots;

/// The guest that a line is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GuestId {
    pub arch: String,
    pub kernel: String,
    pub topology: String,
    pub variant: String,
}

impl GuestId {
    pub fn of(job: &Job) -> Self {
        GuestId {
            arch: job.kernel.arch.debian().to_owned(),
            kernel: job.kernel.name.clone(),
            topology: job.topology.name.clone(),
            variant: job.variant.name().to_owned(),
        }
    }
}

impl std::fmt::Display for GuestId {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "{} {}, topology {}", self.kernel, self.arch, self.topology)?;
        if self.variant == "plain" { Ok(()) } else { write!(f, ", {}", self.variant) }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Line {
    pub guest: GuestId,
    #[serde(flatten)]
    pub what: What,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
pub enum What {
    Event(Event),
    Guest(GuestEnd),
}

/// The end of a guest as a whole.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct GuestEnd {
    pub package: Option<String>,
    pub seconds: f64,
    /// Boots that died before their ready line and were tried again.
    pub retries: u32,
    /// The reason for a missing verdict: the kernel or the binaries could not be fetched.
    pub not_covered: Option<String>,
    /// Why the guest failed apart from its cases: died, deadline, noise.
    pub failed: Option<String>,
}

impl GuestEnd {
    /// A guest that was not started.
    pub fn not_covered(why: String) -> Self {
        GuestEnd { not_covered: Some(why), ..GuestEnd::default() }
    }
}

/// Where lines go; nowhere when no file was asked for.
pub struct Record(Option<File>);

impl Record {
    pub fn open(path: Option<&Path>) -> Result<Self, String> {
        let open = |path: &Path| {
            OpenOptions::new()
                .create(true)
                .append(true)
                .open(path)
                .map_err(|error| format!("opening {}: {error}", path.display()))
        };
        Ok(Record(path.map(open).transpose()?))
    }

    pub fn add(&mut self, guest: &GuestId, what: What) -> Result<(), String> {
        let Some(file) = &mut self.0 else { return Ok(()) };
        let line = Line { guest: guest.clone(), what };
        let text = serde_json::to_string(&line).map_err(|error| format!("writing a result: {error}"))?;
        writeln!(file, "{text}").map_err(|error| format!("writing a result: {error}"))
    }
}

/// Reads a file of results.
pub fn read(text: &str) -> Result<Vec<Line>, String> {
    text.lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(index, line)| {
            serde_json::from_str(line).map_err(|error| format!("line {}: {error}", index + 1))
        })
        .collect()
}

/// A case in a guest.
pub type Place = (GuestId, String);

/// The last word on each case: a file may have several runs in it (`--again`), and later ones count.
#[derive(Default)]
pub struct Standing<'a> {
    /// The last end of each case, with its reason.
    pub cases: BTreeMap<Place, (Outcome, Option<&'a str>)>,
    /// The ends of all guests: a failed one is not outweighed by another, which may have run other cases.
    pub guests: Vec<(&'a GuestId, &'a GuestEnd)>,
    /// Cases that passed after failing in an earlier run of their guest.
    pub repeated: BTreeSet<Place>,
}

impl<'a> Standing<'a> {
    pub fn of(lines: &'a [Line]) -> Self {
        let mut standing = Standing::default();
        for line in lines {
            match &line.what {
                What::Event(Event::End { case, outcome, reason, .. }) => {
                    let place = (line.guest.clone(), case.clone());
                    let before = standing.cases.insert(place.clone(), (*outcome, reason.as_deref()));
                    if *outcome != Outcome::Passed {
                        standing.repeated.remove(&place);
                    } else if before.is_some_and(|(outcome, _)| outcome != Outcome::Passed) {
                        standing.repeated.insert(place);
                    }
                }
                What::Guest(end) => standing.guests.push((&line.guest, end)),
                What::Event(_) => {}
            }
        }
        standing
    }

    pub fn passed(&self, guest: &GuestId, case: &str) -> bool {
        let end = self.cases.get(&(guest.clone(), case.to_owned()));
        end.is_some_and(|(outcome, _)| *outcome == Outcome::Passed)
    }

    /// Leaves the cases that have not passed yet, with their guests. `load` runs again if its result differs
    /// from the snapshot.
    pub fn left_of(&self, jobs: Vec<Job>) -> Vec<Job> {
        let left = jobs.into_iter().map(|mut job| {
            let guest = GuestId::of(&job);
            let snapshot = self.cases.get(&(guest.clone(), snapshots::CASE.to_owned()));
            let changed = snapshot.is_some_and(|(outcome, _)| *outcome != Outcome::Passed);
            job.cases.retain(|case| !self.passed(&guest, case) || changed && case == snapshots::SEEN_BY);
            job
        });
        left.filter(|job| !job.cases.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_back_as_they_went() {
        let guest = GuestId {
            arch: "arm64".into(),
            kernel: "6.12".into(),
            topology: "2".into(),
            variant: "plain".into(),
        };
        let end = Event::End { case: "nodes".into(), outcome: Outcome::Passed, reason: None, seconds: 0.25 };
        let line = Line { guest: guest.clone(), what: What::Event(end.clone()) };
        let lines = read(&serde_json::to_string(&line).unwrap()).unwrap();
        assert_eq!(lines[0].guest, guest);
        assert!(matches!(&lines[0].what, What::Event(event) if *event == end));
        assert!(read("{}").unwrap_err().starts_with("line 1"));
    }

    fn line(case: &str, outcome: Outcome) -> Line {
        let guest = GuestId {
            arch: "amd64".into(),
            kernel: "6.12".into(),
            topology: "2".into(),
            variant: "plain".into(),
        };
        let end = Event::End { case: case.into(), outcome, reason: None, seconds: 1.0 };
        Line { guest, what: What::Event(end) }
    }

    #[test]
    fn the_last_end_of_a_case_counts_and_a_repeat_is_named() {
        let lines = [
            line("pinned", Outcome::Failed),
            line("moving", Outcome::Passed),
            line("storm", Outcome::Skipped),
            line("pinned", Outcome::Passed),
            line("exits", Outcome::Failed),
            line("exits", Outcome::Passed),
            line("exits", Outcome::Failed),
        ];
        let standing = Standing::of(&lines);
        let place = |case: &str| (lines[0].guest.clone(), case.to_owned());
        assert_eq!(standing.repeated, BTreeSet::from([place("pinned")]));
        let passed = |case| standing.passed(&lines[0].guest, case);
        assert!(passed("pinned") && passed("moving"));
        assert!(!passed("storm") && !passed("exits") && !passed("never_run"));
    }

    #[test]
    fn what_is_left_is_what_has_not_passed() {
        let wanted = crate::plan::Wanted {
            kernels: vec!["6.12".into()],
            archs: vec![crate::kernels::Arch::Amd64],
            topologies: vec!["2".into()],
            variants: vec![crate::plan::Variant::Plain],
            cases: vec!["pinned".into(), "moving".into(), "load".into()],
            ..crate::plan::Wanted::default()
        };
        let jobs = || crate::plan::shipped(&wanted).unwrap();
        let left = |lines: &[Line]| -> Vec<String> {
            Standing::of(lines).left_of(jobs()).into_iter().flat_map(|job| job.cases).collect()
        };
        assert_eq!(left(&[]).len(), 3);
        let [moving, load] = ["moving", "load"].map(|case| line(case, Outcome::Passed));
        let failed = line("pinned", Outcome::Failed);
        assert_eq!(left(&[moving.clone(), failed, load.clone()]), ["pinned"]);
        let all = [moving, line("pinned", Outcome::Passed), load];
        assert!(left(&all).is_empty());
        let changed = line(snapshots::CASE, Outcome::Failed);
        assert_eq!(left(&[&all[..], &[changed]].concat()), [snapshots::SEEN_BY]);
    }
}
