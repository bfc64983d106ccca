//! The reviewed record of the programs that each kernel accepts: `snapshots/load-KERNEL-ARCH-VARIANT.txt`.
//!
//! Programs and reasons must be exactly those of the file. Instruction counts of the verifier
//! change with a point release or another clang, so they may differ by a quarter. The size of the
//! program on the hot path may differ by a twentieth.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use vmtests_protocol::{Event, Outcome};

use crate::record::GuestId;

const TOLERANCE: f64 = 0.25;

/// The program that runs at every context switch, and how much its size may change. The kernel drops branches that
/// cannot be taken and writes helpers out, so a point release may change a few instructions.
const HOT: &str = "on_sched_switch";
const HOT_TOLERANCE: f64 = 0.05;

/// The name of the comparison among the cases, and of the case that provides the data.
pub const CASE: &str = "snapshot";
pub const SEEN_BY: &str = "load";

/// The comparison of a snapshot with the result.
#[derive(Debug, PartialEq)]
pub enum Verdict {
    Same,
    /// There was none, or it was to be replaced.
    Written(PathBuf),
    /// Lines to show.
    Different(Vec<String>),
    /// The case passed, and what it saw did not arrive.
    Lost,
}

impl Verdict {
    /// The snapshot is a separate case: the set of programs that a kernel accepts may change only by a
    /// reviewed commit. A new snapshot was compared with nothing.
    pub fn end(&self) -> Option<Event> {
        let reason = match self {
            Verdict::Same => None,
            Verdict::Written(_) => return None,
            Verdict::Different(_) => Some("what this kernel takes has changed; --accept after a review"),
            Verdict::Lost => Some("what the case load saw did not arrive"),
        };
        let outcome = if reason.is_some() { Outcome::Failed } else { Outcome::Passed };
        let reason = reason.map(str::to_owned);
        Some(Event::End { case: CASE.to_owned(), outcome, reason, seconds: 0.0 })
    }

    /// The text for a person beside that.
    pub fn lines(&self) -> Vec<String> {
        match self {
            Verdict::Same | Verdict::Lost => Vec::new(),
            Verdict::Written(path) => vec![format!("  written {}", path.display())],
            Verdict::Different(lines) => lines.iter().map(|line| format!("      {line}")).collect(),
        }
    }
}

/// The report of the case `load` of a guest.
#[derive(Debug, Default)]
pub struct Seen {
    data: Option<Value>,
    passed: bool,
}

impl Seen {
    /// Takes its part of the guest's output.
    pub fn follow(&mut self, event: &Event) {
        match event {
            Event::Data { key, value, .. } if key == "load" => self.data = Some(value.clone()),
            Event::End { case, outcome: Outcome::Passed, .. } if case == SEEN_BY => self.passed = true,
            _ => {}
        }
    }

    /// The comparison with its snapshot if the case passed; with `accept`, the result becomes the snapshot.
    /// None if the case was not requested, or failed before it had a result.
    ///
    /// # Errors
    /// The snapshot cannot be written.
    pub fn verdict(&self, directory: &Path, id: &GuestId, accept: bool) -> Result<Option<Verdict>, String> {
        match &self.data {
            // The report of a case that failed is nothing to compare with later.
            Some(load) => check(directory, id, load, accept && self.passed).map(Some),
            None => Ok(self.passed.then_some(Verdict::Lost)),
        }
    }
}

/// Compares the data of the case `load` with its snapshot, or makes it the snapshot.
fn check(directory: &Path, id: &GuestId, load: &Value, accept: bool) -> Result<Verdict, String> {
    let name = format!("load-{}-{}-{}.txt", id.kernel, id.arch, id.variant);
    let path = directory.join(&name);
    let seen = render(load);
    if accept {
        fs::create_dir_all(directory)
            .map_err(|error| format!("creating {}: {error}", directory.display()))?;
        fs::write(&path, &seen).map_err(|error| format!("writing {}: {error}", path.display()))?;
        return Ok(Verdict::Written(path));
    }
    let Ok(known) = fs::read_to_string(&path) else {
        return Ok(Verdict::Different(vec![format!("there is no snapshots/{name} yet")]));
    };
    let lines = compare(&known, &seen);
    Ok(if lines.is_empty() { Verdict::Same } else { Verdict::Different(lines) })
}

/// One line per fact, sorted, to be read by a reviewer and by `compare`.
fn render(load: &Value) -> String {
    let mut lines = Vec::new();
    for (name, program) in load["programs"].as_object().into_iter().flatten() {
        let number = |key: &str| program[key].as_u64().unwrap_or(0);
        lines.push(format!("program {name} type {} verified {}", number("type"), number("verified")));
    }
    if let Some(instructions) = load["programs"][HOT]["instructions"].as_u64() {
        lines.push(format!("hot {HOT} translated {instructions}"));
    }
    for (metric, reason) in load["missing"].as_object().into_iter().flatten() {
        lines.push(format!("missing {metric}: {}", reason.as_str().unwrap_or_default()));
    }
    if let Some(reason) = load["refused"].as_str() {
        lines.extend(reason.lines().map(|line| format!("refused: {line}")));
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn compare(known: &str, seen: &str) -> Vec<String> {
    let mut differences = Vec::new();
    for line in known.lines() {
        if !seen.lines().any(|other| same(line, other)) {
            differences.push(format!("- {line}"));
        }
    }
    for line in seen.lines() {
        if !known.lines().any(|other| same(line, other)) {
            differences.push(format!("+ {line}"));
        }
    }
    differences
}

fn same(a: &str, b: &str) -> bool {
    let split = |line| {
        [(" verified ", TOLERANCE), (" translated ", HOT_TOLERANCE)]
            .into_iter()
            .find_map(|(word, tolerance)| str::rsplit_once(line, word).map(|parts| (parts, tolerance)))
    };
    match (split(a), split(b)) {
        (Some(((a, m), tolerance)), Some(((b, n), _))) => a == b && near(m, n, tolerance),
        _ => a == b,
    }
}

fn near(a: &str, b: &str, tolerance: f64) -> bool {
    let number = |text: &str| text.parse::<f64>().unwrap_or(f64::NAN);
    let (a, b) = (number(a), number(b));
    (a - b).abs() <= a.min(b) * tolerance
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn counts_may_drift_and_reasons_may_not() {
        let load = |verified: u64, why: &str| json!({"programs": {"on_switch": {"type": 26, "verified": verified}}, "missing": {"ipc": why}});
        let known = render(&load(1000, "no PMU"));
        assert_eq!(known, "program on_switch type 26 verified 1000\nmissing ipc: no PMU\n");
        assert!(compare(&known, &render(&load(1200, "no PMU"))).is_empty());
        assert_eq!(compare(&known, &render(&load(1300, "no PMU"))).len(), 2);
        assert_eq!(compare(&known, &render(&load(700, "no PMU"))).len(), 2);
        assert_eq!(
            compare(&known, &render(&load(1000, "EPERM"))),
            ["- missing ipc: no PMU", "+ missing ipc: EPERM"]
        );
    }

    #[test]
    fn the_hot_path_may_hardly_grow() {
        let load = |instructions: u64| json!({"programs": {HOT: {"type": 26, "verified": 9000, "instructions": instructions}}});
        let known = render(&load(700));
        assert_eq!(known, format!("program {HOT} type 26 verified 9000\nhot {HOT} translated 700\n"));
        assert!(compare(&known, &render(&load(735))).is_empty());
        assert_eq!(
            compare(&known, &render(&load(736))),
            [format!("- hot {HOT} translated 700"), format!("+ hot {HOT} translated 736")]
        );
    }

    #[test]
    fn a_snapshot_that_differs_is_the_end_of_a_case_that_failed() {
        let outcome = |verdict: Verdict| match verdict.end() {
            Some(Event::End { outcome, .. }) => Some(outcome),
            _ => None,
        };
        assert_eq!(outcome(Verdict::Same), Some(Outcome::Passed));
        assert_eq!(outcome(Verdict::Different(vec!["- missing ipc: EPERM".into()])), Some(Outcome::Failed));
        assert_eq!(outcome(Verdict::Written("new".into())), None);
    }

    #[test]
    fn a_case_that_passed_must_have_told_what_it_saw() {
        let [arch, kernel, topology, variant] = ["amd64", "6.12", "2", "plain"].map(str::to_owned);
        let id = GuestId { arch, kernel, topology, variant };
        let verdict = |outcome| {
            let mut seen = Seen::default();
            seen.follow(&Event::End { case: "load".into(), outcome, reason: None, seconds: 1.0 });
            seen.verdict(Path::new("no directory"), &id, false).unwrap()
        };
        assert_eq!(verdict(Outcome::Failed), None);
        assert!(matches!(
            verdict(Outcome::Passed).and_then(|verdict| verdict.end()),
            Some(Event::End { outcome: Outcome::Failed, .. })
        ));
    }

    #[test]
    fn a_refusal_is_a_fact_too() {
        assert_eq!(
            render(&json!({"refused": "kernel too old\nneeds 5.11"})),
            "refused: kernel too old\nrefused: needs 5.11\n"
        );
    }
}
