//! The output of `diagnose`: findings with their commands, and the rules that could not look.

use serde_json::{Value as Json, json};

use super::details::{Content, Paragraph, Section, details, short};
use super::{Blind, Engine, Finding, Severity, State, json as objects, text};
use crate::model::sample::HostFacts;
use crate::text::{clean_str, hanging, one_line, plural, rfc3339, words};

/// Version of the object's shape. Keys may be added, never renamed or removed.
pub const SCHEMA: u32 = 1;

/// Columns of the words in front of paragraphs.
const INDENT: usize = 9;

/// Findings of a report: those that count, or all, with what held for too short a time.
fn shown(engine: &Engine, all: bool) -> Vec<Finding> {
    let mut shown: Vec<Finding> =
        engine.findings().iter().filter(|finding| all || finding.counts()).cloned().collect();
    if all {
        shown.extend(engine.pending());
    }
    shown
}

/// The report as text of `width` columns. Command lines are never wrapped.
pub fn render_text(engine: &Engine, host: &HostFacts, all: bool, width: usize) -> String {
    let topology = &host.topology;
    let watched = text::duration(engine.watched_ns());
    let mut out = hanging(
        "",
        words(&format!(
            "{}: {}, {}. Watched for {watched}.",
            clean_str(&host.hostname),
            plural(topology.online_cpus().count(), "CPU"),
            plural(topology.nodes.len(), "node"),
        )),
        width,
    );
    let shown = shown(engine, all);
    for finding in &shown {
        out.push('\n');
        push(&mut out, finding, all, width);
    }
    out.push('\n');
    out += &summary(engine, all, width);
    out
}

fn push(out: &mut String, finding: &Finding, all: bool, width: usize) {
    let rank = match (finding.rank, finding.state) {
        (Some(rank), _) => format!("{rank} "),
        (None, State::Pending) => "? ".to_owned(),
        (None, _) => "  explained: ".to_owned(),
    };
    let severity = finding.severity.name().to_uppercase();
    let held = match finding.state {
        State::Pending => format!("held {}, too short to be sure", text::duration(finding.held_ns)),
        _ => format!("held {}", text::duration(finding.held_ns)),
    };
    let whose = one_line(&finding.identity.label);
    let confidence = finding.confidence.name();
    *out += &hanging(
        "",
        words(&format!("{rank}{severity}  {}  {whose}  {confidence}, {held}", finding.key.id)),
        width,
    );
    *out += &hanging("  ", words(&one_line(&finding.told.sentence)), width);
    let paragraphs = if all { details(finding) } else { short(finding) };
    let mut before = None;
    for Paragraph { section, content } in &paragraphs {
        if matches!(section, Section::Head | Section::Sentence) {
            continue;
        }
        let word = if before == Some(*section) { "" } else { section.word() };
        before = Some(*section);
        let prefix = format!("  {word:INDENT$}");
        match content {
            Content::Words(text) => *out += &hanging(&prefix, words(&one_line(text)), width),
            Content::Line(line) => *out += &format!("{prefix}{}\n", one_line(line)),
            Content::Row(row) => {
                let limit =
                    if row.limit.is_empty() { String::new() } else { format!(", limit {}", row.limit) };
                let error = if row.error.is_empty() || row.error == "0" {
                    String::new()
                } else {
                    format!(" +-{}", row.error)
                };
                let note = if row.note.is_empty() { String::new() } else { format!(" ({})", row.note) };
                let text = format!("{} {}{error}{limit}{note}", row.what, row.value);
                *out += &hanging(&prefix, words(&one_line(&text)), width);
            }
        }
    }
}

/// The last paragraph: numbers of findings, and the rules that could not look, never without each other.
fn summary(engine: &Engine, all: bool, width: usize) -> String {
    let summary = engine.summary();
    let counted = summary.critical + summary.warning;
    let over: Vec<&Finding> = engine.ended().filter(|finding| finding.severity > Severity::Info).collect();
    let mut text = match counted {
        0 if over.is_empty() => format!("No finding in {}.", text::duration(engine.watched_ns())),
        0 => format!("No finding at the end of {}.", text::duration(engine.watched_ns())),
        _ => format!("{}, {} explained.", plural(counted, "finding"), summary.explained),
    };
    if !over.is_empty() {
        text += &format!(" {} ended before.", over.len());
    }
    if summary.info > 0 {
        text += &format!(" {}{}.", plural(summary.info, "info"), if all { "" } else { " (--all)" });
    }
    text += &format!(" {} of {} rules could look", summary.could_look, summary.rules);
    let all_blind: Vec<&Blind> = engine.wholly_blind().collect();
    text += if all_blind.is_empty() { "." } else { "; not:" };
    let mut out = hanging("", words(&text), width);
    for blind in all_blind {
        out += &hanging("  ", words(&one_line(&format!("{}: {}", blind.id, blind.words))), width);
    }
    if !over.is_empty() {
        out += "Ended before:\n";
        for finding in over {
            let until =
                finding.until_wall_ns.map_or(String::new(), |until| format!(", until {}", rfc3339(until)));
            let whose = format!(
                "{}  {}  {}",
                finding.severity.name().to_uppercase(),
                finding.key.id,
                finding.identity.label
            );
            let text = format!(
                "{whose}  held {}{until}: {}",
                text::duration(finding.held_ns),
                finding.told.sentence
            );
            out += &hanging("  ", words(&one_line(&text)), width);
        }
    }
    let some: Vec<&Blind> = engine.blind().iter().filter(|blind| blind.subjects.is_some()).collect();
    if !some.is_empty() {
        out += "Not for all:\n";
        for blind in some {
            let subjects = blind.subjects.unwrap_or(0);
            let text = format!("{}: {} of its subjects: {}", blind.id, subjects, blind.words);
            out += &hanging("  ", words(&one_line(&text)), width);
        }
    }
    out
}

/// The report as one JSON object. `exit` is the exit code.
pub fn render_json(engine: &Engine, host: &HostFacts, all: bool, wall_ns: i64, exit: u8) -> Json {
    let shown = shown(engine, all);
    let mut summary = objects::summary(&engine.summary());
    summary["exit"] = json!(exit);
    json!({
        "schema": SCHEMA,
        "time": rfc3339(wall_ns),
        "host": {
            "hostname": clean_str(&host.hostname),
            "kernel": clean_str(&host.kernel),
            "cpus": host.topology.online_cpus().count(),
            "nodes": host.topology.nodes.len(),
        },
        "watched_s": engine.watched_ns() as f64 / 1e9,
        "findings": shown.iter().map(objects::finding).collect::<Vec<Json>>(),
        "findings_blind": objects::blinds(engine),
        "ended": engine.ended().map(objects::finding).collect::<Vec<Json>>(),
        "summary": summary,
    })
}

/// Whether a cause is at least as grave, or was and has ended: it was found in the time that was watched.
pub fn is_found(engine: &Engine, least: Severity) -> bool {
    engine.gravest_ended().is_some_and(|ended| ended >= least)
        || engine.findings().iter().any(|finding| !finding.is_symptom() && finding.severity >= least)
}
