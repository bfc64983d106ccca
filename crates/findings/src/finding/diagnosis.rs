//! The output of `diagnose`: findings with their commands, and the rules without data.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use super::details::{Content, Paragraph, Section, details, short};
use super::verdict::{Verdict, Why};
use super::{Blind, Engine, Finding, Severity, State, json as objects, text};
use crate::model::sample::HostFacts;
use crate::text::{clean_str, hanging, one_line, plural, rfc3339, words};

/// Version of the object's shape. Keys may be added, never renamed or removed.
pub const SCHEMA: u32 = 1;

/// Columns of the words in front of paragraphs.
const INDENT: usize = 14;

/// Findings of a report: the ones that count, or all; below them the suspected ones.
fn shown(engine: &Engine, all: bool) -> Vec<Finding> {
    let mut shown: Vec<Finding> =
        engine.findings().iter().filter(|finding| all || finding.counts()).cloned().collect();
    shown.extend(engine.pending().into_iter().filter(|finding| all || finding.severity > Severity::Info));
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
        push(&mut out, engine, finding, all, width);
    }
    out.push('\n');
    out += &summary(engine, all, width);
    out
}

fn push(out: &mut String, engine: &Engine, finding: &Finding, all: bool, width: usize) {
    let rank = match (finding.rank, finding.state) {
        (Some(rank), _) => format!("{rank} "),
        (None, State::Pending) => "? ".to_owned(),
        (None, _) => "  explained: ".to_owned(),
    };
    let severity = finding.severity.name().to_uppercase();
    let held = match finding.state {
        State::Pending => {
            let needs = text::duration(engine.needs_ns(finding.key.id));
            format!("held {} of {needs}", text::duration(finding.held_ns))
        }
        _ => format!("held {}", text::duration(finding.held_ns)),
    };
    let whose = one_line(&finding.identity.label);
    let confidence = finding.confidence.name();
    *out += &hanging(
        "",
        words(&format!("{rank}{severity}  {}  {whose}  {confidence}, {held}", finding.key.id)),
        width,
    );
    *out += &hanging("  ", words(&one_line(&finding.advice.sentence)), width);
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

/// The last paragraph: the verdict, and the rules that lack data, never without each other.
fn summary(engine: &Engine, all: bool, width: usize) -> String {
    let verdict = Verdict::of(engine);
    let over: Vec<&Finding> = engine.ended().filter(|finding| finding.severity > Severity::Info).collect();
    let mut text = verdict.words();
    if verdict.summary.info > 0 {
        text += &format!(" {}{}.", plural(verdict.summary.info, "note"), if all { "" } else { " (--all)" });
    }
    text += &format!(" {}", verdict.rules());
    let mut out = hanging("", words(&text), width);
    for blind in engine.wholly_blind() {
        out += &hanging("  ", words(&one_line(&format!("{}: {}", blind.id, blind.words))), width);
    }
    for line in undecided(&verdict, all) {
        out += &hanging("  ", words(&one_line(&line)), width);
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
                finding.advice.sentence
            );
            out += &hanging("  ", words(&one_line(&text)), width);
        }
    }
    let some: Vec<&Blind> = engine.blind().iter().filter(|blind| blind.subjects.is_some()).collect();
    if !some.is_empty() {
        out += "Rules without data for some subjects:\n";
        for blind in some {
            let subjects = blind.subjects.unwrap_or(0);
            let text = format!("{}, {}: {}", blind.id, plural(subjects, "subject"), blind.words);
            out += &hanging("  ", words(&one_line(&text)), width);
        }
    }
    out
}

/// Lines on undecided rules. Rules that were watched for too short a time share lines by the time that they
/// need.
fn undecided(verdict: &Verdict, all: bool) -> Vec<String> {
    let mut by_need: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
    for rule in verdict.undecided.iter().filter(|rule| rule.why == Why::TooShort) {
        if all || rule.gravest > Severity::Info {
            by_need.entry(rule.needs_ns).or_default().push(rule.id);
        }
    }
    let short = by_need.iter().map(|(needs, ids)| {
        format!("not decided, because {} of data are needed: {}", text::duration(*needs), ids.join(", "))
    });
    let doubts = verdict.doubts.iter().map(|doubt| {
        format!(
            "{}: {:.0} +-{:.0} % of the accesses of {} are remote ({}): {}",
            doubt.rule, doubt.remote_pct, doubt.error, doubt.identity.label, doubt.source, doubt.because
        )
    });
    short.chain(doubts).collect()
}

/// The report as one JSON object. `exit` is the exit code.
pub fn render_json(engine: &Engine, host: &HostFacts, all: bool, wall_ns: i64, exit: u8) -> Json {
    let shown = shown(engine, all);
    let verdict = Verdict::of(engine);
    let mut summary = objects::summary(&verdict.summary);
    summary["exit"] = json!(exit);
    summary["undecided"] = objects::undecided(&verdict);
    summary["verdict"] = json!(verdict.words());
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
