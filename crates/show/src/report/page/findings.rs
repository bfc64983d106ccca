//! Findings: the sentence, when, what it costs, what to type.

use maud::{Markup, html};

use super::{View, moment};
use crate::finding::details::{Content, Paragraph, Section, details};
use crate::finding::{Finding, FindingKey, Severity};
use crate::report::{Report, words};
use crate::text::{one_line, plural};

/// Findings that are shown; the rest is counted.
const SHOWN: usize = 20;

/// Findings that ask for a deed.
pub(super) fn counted(report: &Report) -> usize {
    report.findings.iter().filter(|finding| finding.counts()).count()
}

/// The findings that are shown, with their numbers on the page: actionable ones before all others.
pub(super) fn shown(report: &Report) -> impl Iterator<Item = (usize, &Finding)> {
    report.findings.iter().take(SHOWN).enumerate().map(|(at, finding)| (at + 1, finding))
}

pub(super) fn content(view: &View<'_>) -> Markup {
    let report = view.report;
    let left_out = report.findings.len().saturating_sub(SHOWN);
    let (grave, minor): (Vec<_>, Vec<_>) = shown(report).partition(|(_, finding)| finding.counts());
    html! {
        p.rules { (words::rules(report)) " " @if !report.blind.is_empty() { a href="#rules" { "Rules that did not run for lack of data" } } }
        @for (number, finding) in &grave { (one(view, *number, finding, true)) }
        @if !minor.is_empty() {
            details.minor open[grave.is_empty()] {
                summary { (minor_words(&minor)) }
                @for (number, finding) in &minor { (one(view, *number, finding, false)) }
            }
        }
        @if left_out > 0 { p.muted { (plural(left_out, "more finding")) " in the JSON form (--format json)." } }
    }
}

/// `2 notes, 1 explained by another finding`.
fn minor_words(minor: &[(usize, &Finding)]) -> String {
    let explained = minor.iter().filter(|(_, finding)| finding.is_symptom()).count();
    let infos = minor.len() - explained;
    let mut said = Vec::new();
    if infos > 0 {
        said.push(plural(infos, "note"));
    }
    if explained > 0 {
        said.push(format!("{explained} explained by another finding"));
    }
    said.join(", ")
}

pub(super) fn class(severity: Severity) -> &'static str {
    match severity {
        Severity::Critical => "critical",
        Severity::Warning => "warning",
        Severity::Info => "info",
    }
}

/// Buckets of a finding.
pub(super) fn buckets(report: &Report, finding: &Finding) -> (usize, usize) {
    let first = report.grid.bucket(finding.since_wall_ns);
    let last = finding.until_wall_ns.map_or(report.grid.count, |until| report.grid.bucket(until) + 1);
    (first, last.max(first + 1))
}

/// The number of a cause that is on the page, with its place; else its key.
fn because(report: &Report, cause: &FindingKey) -> Markup {
    let number = shown(report).find(|(_, other)| other.key == *cause).map(|(number, _)| number);
    html! {
        @match number {
            Some(number) => a href=(format!("#f{number}")) { "F" (number) },
            None => (one_line(&cause.to_string())),
        }
    }
}

fn one(view: &View<'_>, number: usize, finding: &Finding, is_open: bool) -> Markup {
    let report = view.report;
    let (sign, word) = words::severity(finding.severity);
    let (first, last) = buckets(report, finding);
    let margin = (last - first) / 4 + 2;
    let around = (first.saturating_sub(margin), (last + margin).min(report.grid.count));
    let all = details(finding);
    let part = |section: Section| all.iter().filter(move |paragraph| paragraph.section == section);
    let has = |sections: &[Section]| all.iter().any(|paragraph| sections.contains(&paragraph.section));
    html! {
        article.finding.(class(finding.severity)) id=(format!("f{number}")) {
            p.head {
                span.sev { span aria-hidden="true" { (sign) } " " (word) }
                (moment(&words::when(finding, view.clock), around))
                span.muted { (finding.confidence.name()) }
            }
            div.body {
                h3 { span.fn { (format!("F{number}")) } " " (prose(&finding.advice.sentence)) }
                p.muted.whose {
                    (finding.title) ": " (one_line(&finding.identity.label))
                    @if let Some(container) = &finding.identity.container { " in " (one_line(container)) }
                    @if let Some(cause) = &finding.because_of { ", because of " (because(report, cause)) }
                    @if finding.times > 1 { ", " (finding.times) " times" }
                }
                @for paragraph in part(Section::Gain).filter(|paragraph| words_of(paragraph) != "not known") { p { b { "To gain: " } (words_of(paragraph)) } }
                @if is_open { @for paragraph in part(Section::Type) { (command(paragraph)) } }
                @if has(&[Section::Evidence, Section::Undo, Section::Check, Section::Risk, Section::Else]) {
                    details {
                        summary { (if is_open { "Evidence, undo, check, risk" } else { "Command, evidence, undo, check, risk" }) }
                        @if !is_open { @for paragraph in part(Section::Type) { (command(paragraph)) } }
                        (evidence(&all))
                        @for (section, title) in [
                            (Section::Undo, "Undo"),
                            (Section::Check, "Check"),
                            (Section::Stop, "Roll back if"),
                            (Section::Risk, "Risk"),
                            (Section::Else, "Other causes"),
                        ] {
                            @for paragraph in part(section) {
                                @match &paragraph.content {
                                    Content::Line(_) => { p.label { (title) } (command(paragraph)) },
                                    _ => p { b { (title) ": " } (words_of(paragraph)) },
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A sentence of the engine, which is ASCII, with the sign that a page has.
pub(super) fn prose(sentence: &str) -> String {
    one_line(sentence).replace(" +-", " ± ")
}

fn words_of(paragraph: &Paragraph) -> String {
    match &paragraph.content {
        Content::Words(words) => prose(words),
        Content::Line(line) => one_line(line),
        Content::Row(row) => row.what.clone(),
    }
}

fn command(paragraph: &Paragraph) -> Markup {
    match &paragraph.content {
        Content::Line(line) => html! {
            div.command {
                pre tabindex="0" { code { (one_line(line)) } }
                button.copy type="button" hidden { "Copy" }
            }
        },
        _ => html! { p.muted { (words_of(paragraph)) } },
    }
}

fn evidence(all: &[Paragraph]) -> Markup {
    let rows = all.iter().filter_map(|paragraph| match &paragraph.content {
        Content::Row(row) => Some(row),
        _ => None,
    });
    let rows: Vec<_> = rows.collect();
    let others = all.iter().filter(|paragraph| paragraph.section == Section::Evidence);
    html! {
        @if !rows.is_empty() {
            table.evidence {
                thead { tr { th scope="col" { "Evidence" } th.n scope="col" { "value" } th.n scope="col" { "limit" } th scope="col" { "note" } } }
                tbody {
                    @for row in rows {
                        tr {
                            td { (one_line(&row.what)) }
                            td.n {
                                (row.value)
                                @if !row.error.is_empty() && row.error != "0" { " ± " (row.error) }
                            }
                            td.n { (row.limit) }
                            td { (row.note) }
                        }
                    }
                }
            }
        }
        @for paragraph in others {
            @if let Content::Words(words) = &paragraph.content { p { (prose(words)) } }
        }
    }
}
