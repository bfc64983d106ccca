//! The part on missing and estimated numbers: holes, losses, events, metrics without values, rules that could not look.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::{View, moment};
use crate::report::clock::length;
use crate::report::gaps::Gap;
use crate::report::{Report, words};
use crate::text::plural;

/// Metrics with one reason that are named.
const NAMED: usize = 12;

pub(super) fn content(view: &View<'_>) -> Markup {
    let report = view.report;
    let missing = &report.missing;
    let lost = missing.lost.iter().filter(|(_, count)| **count > 0);
    let is_whole = missing.gaps.is_empty() && missing.lost.is_empty() && missing.torn_bytes == 0;
    html! {
        @if is_whole { p { "No samples are missing, and no events were lost." } }
        @if !missing.gaps.is_empty() || !missing.lost.is_empty() || missing.exit_lost_ns > 0 {
            table.lost {
                thead { tr { th scope="col" { "when" } th scope="col" { "lost" } th scope="col" { "reason and effect" } } }
                tbody {
                    @for gap in &missing.gaps { (hole(view, gap)) }
                    @for (cause, count) in lost {
                        tr { td { "all" } td.n { (words::thousands(*count as usize)) } td { (cause) ": included in counts, but not in rows" } }
                    }
                    @if missing.exit_lost_ns > 0 {
                        tr {
                            td { "all" }
                            td { (length(missing.exit_lost_ns as f64)) " of CPU time" }
                            td { "of short tasks not recorded individually: counted for the node, not for a \
                                  program" }
                        }
                    }
                }
            }
        }
        @if missing.more_gaps() > 0 {
            p.muted { "There are " (words::thousands(missing.more_gaps() + missing.gaps.len())) " gaps: adjacent ones share a line." }
        }
        @if missing.torn_bytes > 0 {
            p { "The last " (words::thousands(missing.torn_bytes as usize)) " bytes of the last file are not a whole frame: they are damaged, or were being written." }
        }
        @if report.about.boots > 1 { p { "The machine was started " (report.about.boots) " times; nodes and CPUs are those after the last start." } }
        @if report.about.changes > 0 { p { "Nodes, CPUs or devices changed " (plural(report.about.changes, "time")) "; the drawing shows the last state." } }
        (notes(view))
        (not_measured(report))
        (rules(report))
        p.muted {
            "The recorder itself used "
            (words::value(report.own_ns * 100.0 / report.total_ns.max(1.0), crate::metric::Unit::Percent))
            " of a CPU and " (crate::text::prose::bytes(report.own_rss as f64)) " at most."
        }
    }
}

fn hole(view: &View<'_>, gap: &Gap) -> Markup {
    let grid = &view.report.grid;
    let (first, last) = (grid.bucket(gap.from_ns), grid.bucket(gap.to_ns) + 1);
    let margin = (last - first) * 2 + 5;
    let around = (first.saturating_sub(margin), (last + margin).min(grid.count));
    let restarted = if gap.is_restart { "the machine was restarted" } else { "the recorder restarted" };
    html! {
        tr {
            td { (moment(&view.clock.time(gap.from_ns), around)) @if gap.count > 1 { "–" (view.clock.time(gap.to_ns)) } }
            td { (length(gap.ns)) "of samples" @if gap.count > 1 { "in " (words::thousands(gap.count)) " gaps" } }
            td {
                @if gap.new_runs > 0 { (restarted) @if gap.new_runs > 1 { " (" (gap.new_runs) " runs began)" } "; " }
                @for (at, why) in gap.why.iter().enumerate() { @if at > 0 { "; " } (why) }
                @if gap.more_why > 0 { "; " (plural(gap.more_why, "more reason")) }
                @if gap.why.is_empty() && gap.new_runs == 0 { "the recording states no reason" }
                @match gap.new_runs {
                    0 => ". The totals include this time; the curves do not.",
                    all if all == gap.count => ". Neither the totals nor the curves include this time.",
                    _ => ". The curves do not include this time; the totals do, unless a run began.",
                }
            }
        }
    }
}

fn notes(view: &View<'_>) -> Markup {
    let missing = &view.report.missing;
    html! {
        @if !missing.notes.is_empty() {
            details {
                summary { (plural(missing.notes.len() + missing.more_notes, "note")) " of the recorder" }
                ul { @for (wall_ns, note) in &missing.notes { li { (view.clock.time(*wall_ns)) " " (note) } } }
                @if missing.more_notes > 0 { p.muted { "and " (missing.more_notes) " more" } }
            }
        }
    }
}

fn not_measured(report: &Report) -> Markup {
    let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (metric, why) in &report.missing.not_measured {
        by_reason.entry(why).or_default().push(metric);
    }
    html! {
        @if !by_reason.is_empty() {
            h3 { "Not measured" }
            table.reasons {
                thead { tr { th scope="col" { "metrics" } th scope="col" { "reason" } } }
                tbody {
                    @for (why, metrics) in &by_reason {
                        tr {
                            td {
                                @for (at, metric) in metrics.iter().take(NAMED).enumerate() { @if at > 0 { ", " } code { (metric) } }
                                @if metrics.len() > NAMED { " and " (metrics.len() - NAMED) " more" }
                            }
                            td { (why) }
                        }
                    }
                }
            }
        }
    }
}

fn rules(report: &Report) -> Markup {
    html! {
        div id="rules" {
            @if report.blind.is_empty() {
                p.muted { "All rules had data at the end." }
            } @else {
                details {
                    summary { (plural(report.blind.len(), "rule")) " lacked data for all or some subjects" }
                    table.reasons {
                        thead { tr { th scope="col" { "rule" } th scope="col" { "reason" } } }
                        tbody {
                            @for blind in &report.blind {
                                tr {
                                    td { code { (blind.id) } @if let Some(subjects) = blind.subjects { " (" (plural(subjects, "subject")) ")" } }
                                    td { (blind.words) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
