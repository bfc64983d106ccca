//! The summary: two or three facts, the caveat, and a row for each lane.

use maud::{Markup, html};

use super::View;
use super::findings;
use super::parts::{SPARK, moment, spark};
use crate::report::lanes::{Id, Lane};
use crate::report::svg;
use crate::report::words;

pub(super) fn content(view: &View<'_>) -> Markup {
    let report = view.report;
    let caveat = words::caveat(report, view.clock);
    let lanes = report.lanes.iter().filter(|lane| report.has_nodes() || !lane.id.needs_nodes());
    html! {
        @if let Some((number, finding)) = findings::shown(report).find(|(_, finding)| finding.counts()) {
            @let (sign, word) = words::severity(finding.severity);
            p.gravest.(findings::class(finding.severity)) {
                a href=(format!("#f{number}")) { span.sev { (sign) " " (word) } " " b { (findings::prose(&finding.advice.sentence)) } }
            }
        }
        div.lede {
            p.facts { (words::lede(report)) }
            @if !caveat.is_empty() {
                p.caveat {
                    @for said in &caveat { (said) " " }
                    a href="#missing" { "All of it" }
                }
            }
        }
        table.summary {
            thead {
                tr {
                    th scope="col" { "Machine" }
                    th.n scope="col" { "median" }
                    th.n scope="col" { "5th–95th percentile" }
                    th.n scope="col" { "worst " (words::worst_span(report)) }
                    th.course scope="col" { "over time" }
                }
            }
            tbody { @for lane in lanes { (row(view, lane)) } }
        }
    }
}

fn row(view: &View<'_>, lane: &Lane) -> Markup {
    let report = view.report;
    let name = words::summary_name(lane.id, report.has_nodes());
    let unit = lane.id.unit();
    let track = &lane.machine;
    let source = (lane.id == Id::Remote).then(|| words::source(lane.sources.most()));
    let known = track.quantile(0.5).zip(track.worst(lane.id.least_is_worst()));
    let low_high = track.quantile(0.05).zip(track.quantile(0.95)).unwrap_or_default();
    html! {
        tr {
            th scope="row" {
                (name)
                @if let Some(source) = source { @if lane.missing.is_none() { span.muted { " " (source) } } }
            }
            @match (&lane.missing, known) {
                (None, Some((median, (at, worst)))) => {
                    td.n data-l="median" { b { (words::value(median, unit)) } }
                    td.n data-l="5th–95th" { (words::range(low_high.0, low_high.1, unit)) }
                    td.n data-l="worst" {
                        (words::value(worst, unit)) " "
                        (moment(&view.clock.time(report.grid.begins(at)), around(report.grid.count, at)))
                    }
                    td.course { (spark(&svg::thinned(track, &report.gaps, SPARK), &format!("{name} over time"))) }
                },
                (Some(why), _) => td.none colspan="4" { "not measured: " (why) },
                (None, None) => td.none colspan="4" { "no value in this time" },
            }
        }
    }
}

/// Buckets around a moment, which show the time before it.
fn around(count: usize, at: usize) -> (usize, usize) {
    let before = 15.min(count / 20 + 1);
    (at.saturating_sub(before), (at + 1 + before).min(count))
}
