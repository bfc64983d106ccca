//! The details of a finding as typed paragraphs, which the screen, `diagnose` and text share.

use super::{Command, Finding, Note, State, Subject, text};
use crate::model::topology::format_cpulist;

/// Parts of the details, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Section {
    /// Rule, subject, how sure, how long.
    Head,
    /// The sentence.
    Sentence,
    /// Values that the condition used.
    Evidence,
    /// CPU time that can be won.
    Gain,
    /// Commands.
    Type,
    /// Commands that undo them.
    Undo,
    /// Numbers that must change.
    Check,
    /// Numbers that say to undo it.
    Stop,
    /// Effects that are not wanted.
    Risk,
    /// Other explanations.
    Else,
}

impl Section {
    /// The word before it, in small letters; empty for the head and the sentence.
    pub fn word(self) -> &'static str {
        match self {
            Section::Head | Section::Sentence => "",
            Section::Evidence => "evidence",
            Section::Gain => "gain",
            Section::Type => "run",
            Section::Undo => "undo",
            Section::Check => "check",
            Section::Stop => "roll back if",
            Section::Risk => "risk",
            Section::Else => "other causes",
        }
    }
}

/// A line of the evidence. Texts are clean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DetailRow {
    /// Metric and object: `irq_pct, node 0`.
    pub what: String,
    /// With its unit.
    pub value: String,
    /// Half of its 95 % interval; empty where none is known.
    pub error: String,
    /// The limit; empty where the value is not compared with one.
    pub limit: String,
    /// Its meaning; empty if the metric has it.
    pub note: &'static str,
}

/// The content of a paragraph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Words, which may be wrapped.
    Words(String),
    /// A command line, which is copied whole.
    Line(String),
    /// A line of the evidence.
    Row(DetailRow),
}

/// A paragraph of the details.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paragraph {
    /// The part that it belongs to.
    pub section: Section,
    /// Its content.
    pub content: Content,
}

fn words(section: Section, words: impl Into<String>) -> Paragraph {
    Paragraph { section, content: Content::Words(words.into()) }
}

/// The details of a finding, section by section.
pub fn details(finding: &Finding) -> Vec<Paragraph> {
    let mut all =
        vec![words(Section::Head, head(finding)), words(Section::Sentence, &finding.advice.sentence)];
    all.extend(
        rows(finding)
            .into_iter()
            .map(|row| Paragraph { section: Section::Evidence, content: Content::Row(row) }),
    );
    if let Some(cpus) = &finding.identity.cpus {
        all.push(words(Section::Evidence, format!("Its allowed CPUs: {cpus}.")));
    }
    if !finding.identity.members.is_empty() {
        all.push(words(Section::Evidence, members(finding)));
    }
    all.extend(short(finding));
    all
}

/// Processes of a group that are named.
const MEMBERS_MAX: usize = 8;

/// The processes of a group, and what they share.
fn members(finding: &Finding) -> String {
    let all = &finding.identity.members;
    let ids: Vec<String> = all.iter().take(MEMBERS_MAX).map(|(pid, _)| pid.to_string()).collect();
    let more = match all.len().saturating_sub(MEMBERS_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let shared: u64 = finding.identity.objects.iter().map(|object| object.facts.resident_bytes).sum();
    let words = format!(
        "Processes {}{more} share {}, which is counted once.",
        ids.join(", "),
        text::bytes(shared as f64)
    );
    match finding.identity.objects.iter().all(|object| object.is_drawn) {
        true => words,
        false => words + " Node figures cover only the shared pages that a process has touched.",
    }
}

/// The same without the evidence and other explanations: what must not be cut.
pub fn short(finding: &Finding) -> Vec<Paragraph> {
    let advice = &finding.advice;
    let mut all = Vec::new();
    // A finding without a command has no gain to speak of.
    if !advice.commands.is_empty() || advice.gain.at_most.or(advice.gain.at_least).is_some() {
        all.push(words(Section::Gain, text::gain(&advice.gain)));
    }
    for (section, commands) in [(Section::Type, &advice.commands), (Section::Undo, &advice.undo)] {
        commands.iter().for_each(|command| push_command(&mut all, section, command));
    }
    all.extend(advice.check.iter().map(|check| words(Section::Check, text::check(check, finding))));
    all.extend(advice.stop.iter().map(|check| words(Section::Stop, text::check(check, finding))));
    if !advice.risk.is_empty() {
        all.push(words(Section::Risk, &advice.risk));
    }
    all.extend(advice.or_else.iter().map(|other| words(Section::Else, other)));
    all
}

fn push_command(all: &mut Vec<Paragraph>, section: Section, command: &Command) {
    let when = match command.when {
        super::When::Now => "",
        super::When::NextStart => "next start: ",
        super::When::ForGood => "for good: ",
    };
    // In front of the line, or it would be taken for a word about the line before.
    match &command.line {
        Some(line) => {
            if !when.is_empty() {
                all.push(words(section, when.trim_end().to_owned()));
            }
            all.push(Paragraph { section, content: Content::Line(line.to_string()) });
            if !command.words.is_empty() {
                all.push(words(section, command.words.clone()));
            }
        }
        None if !command.words.is_empty() => all.push(words(section, format!("{when}{}", command.words))),
        None => {}
    }
}

/// Rule, subject, container, severity, confidence and time.
pub fn head(finding: &Finding) -> String {
    let mut parts = vec![finding.key.id.to_owned(), finding.identity.label.clone()];
    if let (Subject::Process(..), Some(container)) = (&finding.key.subject, &finding.identity.container) {
        parts.push(text::name(container));
    }
    parts.push(finding.severity.name().to_owned());
    parts.push(finding.confidence.name().to_owned());
    parts.push(match finding.state {
        State::Clearing => format!("clearing after {}", text::duration(finding.held_ns)),
        State::Ended => format!("ended after {}", text::duration(finding.held_ns)),
        _ => format!("held {}", text::duration(finding.held_ns)),
    });
    parts.join(" - ")
}

/// Lines of the evidence.
pub fn rows(finding: &Finding) -> Vec<DetailRow> {
    let row = |evidence: &super::Evidence| {
        let unit = text::unit_of(evidence.metric, &evidence.of);
        let whose = match (&evidence.of, evidence.node) {
            _ if !evidence.nodes.is_empty() => {
                format!(", nodes {}", format_cpulist(evidence.nodes.iter().map(|node| node.0)))
            }
            (_, Some(node)) => format!(", node {node}"),
            (subject, None) if *subject == finding.key.subject => String::new(),
            (subject, None) => format!(", {}", text::of(subject, finding)),
        };
        DetailRow {
            what: format!("{}{whose}", evidence.metric),
            value: text::value(evidence.value, unit),
            error: text::error(evidence, finding.confidence),
            limit: evidence.limit.map_or(String::new(), |limit| text::value(limit, unit)),
            note: evidence.note.map_or("", Note::words),
        }
    };
    finding.evidence.iter().map(row).collect()
}
