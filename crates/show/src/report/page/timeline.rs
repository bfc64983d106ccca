//! The timeline: one row a node, of all lanes on one axis.

use maud::{Markup, html};

use super::{View, findings};
use crate::finding::Finding;
use crate::metric::Unit;
use crate::report::clock::{Clock, length};
use crate::report::lanes::{Id, Lane};
use crate::report::picture::{self, HEIGHT, STEP};
use crate::report::track::Track;
use crate::report::{Report, words};

/// Nodes from which on a lane is a strip.
const STRIP: usize = 9;
/// Marks on the axis at most.
const MARKS: i64 = 8;

/// The end of the scale of a lane, in the unit of its values.
pub(super) fn top(report: &Report, lane: &Lane) -> f64 {
    let most = lane.nodes.iter().map(|(_, track)| track.most()).fold(lane.machine.most(), f64::max);
    match lane.id {
        Id::Cpu => 100.0,
        Id::Remote => picture::nice(most).clamp(10.0, 100.0),
        Id::Ipc => picture::nice(most).max(1.0),
        Id::Free => {
            let totals = report.memory.values().map(|(total, _)| *total as f64);
            let total = totals.fold(0.0, f64::max);
            // If most memory is in use, the picture shows the free part.
            if most > total / 4.0 { total.max(most) } else { bytes_above(most) }
        }
        Id::Pages | Id::Tasks | Id::Wait => picture::nice(most),
    }
}

/// A round number of bytes that is not below a value.
fn bytes_above(value: f64) -> f64 {
    const MIB: f64 = 1_048_576.0;
    let power = 1024f64.powf((value.max(MIB) / MIB).log(1024.0).floor()) * MIB;
    picture::nice(value / power) * power
}

/// Lanes that have something to show.
pub(super) fn shown(report: &Report) -> impl Iterator<Item = &Lane> {
    let is_there = |lane: &&Lane| {
        lane.missing.is_none()
            && (report.has_nodes() || !lane.id.needs_nodes())
            && lane.machine.value().is_some()
    };
    report.lanes.iter().filter(is_there)
}

/// Rows of a lane: nodes, or the machine.
pub(super) fn rows(lane: &Lane) -> Vec<(String, &Track)> {
    if lane.nodes.is_empty() {
        return vec![("machine".into(), &lane.machine)];
    }
    lane.nodes.iter().map(|(node, track)| (format!("node {node}"), track)).collect()
}

pub(super) fn content(view: &View<'_>) -> Markup {
    let report = view.report;
    let span = length(report.span.1 as f64 - report.span.0 as f64);
    let width = length(report.grid.width_ns as f64);
    let interval = length(report.interval_ns);
    let busy = report.lane(Id::Cpu).map(|lane| &lane.machine);
    html! {
        div.chosen {
            span id="chosen" { "Whole recording, " (span) "." }
            button type="button" id="all" hidden { "Show all" }
            span id="hint" hidden { "Drag over the strip to select a part; the tables then show this part." }
            code id="detail" hidden {}
        }
        p.muted.how {
            "Each point covers " (width) ": the line is the mean, and the shade spans the lowest to the \
                                          highest value per interval of "
            (interval) "; dots mark the lowest and the highest point. Times are " (view.clock.offset(report.span.0)) "."
        }
        div.lanes {
            @if let Some(busy) = busy {
                div.lane.over {
                    div.label { b { "The recording" } span { "machine busy" } }
                    div.plot id="strip" tabindex="-1"
                        data-label="Selected part of the recording: arrow keys move the part, plus and minus zoom, \
                                    Escape shows all" { (row(report, busy, (100.0, "busy time over the recording"), 34)) }
                    div.vals { span.val id="at" {} }
                }
            }
            @if report.findings.iter().any(Finding::counts) { (bars(view)) }
            @for lane in shown(report) { (one(report, lane)) }
            div.lane.axis { div.label {} div.plot id="axis" { (axis(view)) } div.vals {} }
        }
        @if report.gaps.contains(&true) {
            p.muted { span.key.gap {} "no samples: see " a href="#missing" { "missing data" } }
        }
    }
}

/// Bars of findings, in as many lines as overlap.
fn bars(view: &View<'_>) -> Markup {
    let report = view.report;
    let count = report.grid.count as f64;
    html! {
        div.lane {
            div.label { b { "Findings" } }
            div.plot.bars {
                @for (number, finding) in findings::shown(report).filter(|(_, finding)| finding.counts()) {
                    @let (first, last) = findings::buckets(report, finding);
                    @let (left, width) = (first as f64 * 100.0 / count, (last - first) as f64 * 100.0 / count);
                    div.track {
                        a.mark href=(format!("#f{number}")) data-a=(first) data-b=(last)
                            style=(format!("left:{left:.2}%;width:{width:.2}%")) title=(finding.advice.sentence) {
                            (format!("F{number}"))
                        }
                    }
                }
            }
            div.vals {}
        }
    }
}

fn one(report: &Report, lane: &Lane) -> Markup {
    let top = top(report, lane);
    let rows = rows(lane);
    let is_strip = rows.len() >= STRIP;
    let unit = lane.id.unit();
    let height = match rows.len() {
        1 => 52,
        2..=4 => 34,
        _ => 22,
    };
    let scale = match unit {
        Unit::PerSecond | Unit::Count => format!("0 to {}", words::short_scale(top)),
        unit => format!("0 to {}", words::value(top, unit)),
    };
    let source = (lane.id == Id::Remote).then(|| words::source(lane.sources.most()));
    html! {
        div.lane.(lane.id.id()) data-lane=(lane.id.id()) {
            div.label {
                b { (words::lane(lane.id)) }
                span {
                    (words::about_lane(lane.id, !lane.nodes.is_empty()))
                    @if let Some(source) = source { "; " (source) }
                    @if is_strip {
                        "; one row per node, " (rows[0].0) " on top; darker is "
                        (if lane.id.least_is_worst() { "less" } else { "more" })
                        ", " (words::value(top, unit)) " at most"
                    } @else { "; " (scale) }
                }
            }
            @if is_strip {
                div.plot { (picture(report, lane, top)) }
                div.vals.strip { (extremes(lane)) }
            } @else {
                div.plot {
                    @for (name, track) in &rows {
                        (row(report, track, (top, &format!("{} of {name}", words::lane(lane.id))), height))
                    }
                }
                div.vals {
                    @for (at, (name, track)) in rows.iter().enumerate() {
                        div.pair style=(format!("height:{height}px")) {
                            span { (name) @if let Some(ends) = ends(track, &report.gaps, unit) { " " small { (ends) } } }
                            b.val data-row=(at) { (track.value().map_or("–".into(), |value| words::value(value, unit))) }
                        }
                    }
                }
            }
        }
    }
}

/// The lowest and the highest point of a curve, which have dots.
fn ends(track: &Track, gaps: &[bool], unit: Unit) -> Option<String> {
    let there = track.cells.iter().enumerate().filter(|(at, _)| !gaps.get(*at).copied().unwrap_or(false));
    let values = || there.clone().filter_map(|(_, cell)| cell.value());
    let (low, high) = (values().reduce(f64::min)?, values().reduce(f64::max)?);
    // As shown: a constant series has no ends.
    (words::value(low, unit) != words::value(high, unit)).then(|| words::range(low, high, unit))
}

/// One row: band, area, line, dots and holes.
fn row(report: &Report, track: &Track, (top, label): (f64, &str), height: i64) -> Markup {
    let paths = picture::paths(track, &report.gaps, top);
    let width = report.grid.count as i64 * STEP;
    html! {
        svg.row viewBox=(format!("0 0 {width} {HEIGHT}")) height=(height) width="100%" preserveAspectRatio="none" role="img"
            aria-label=(label) {
            (holes(report))
            path.band d=(paths.band) fill="#59626d" fill-opacity=".25" {}
            path.area d=(paths.area) fill="#59626d" fill-opacity=".14" {}
            path.line d=(paths.line) fill="none" stroke="#15191e" vector-effect="non-scaling-stroke" {}
            @if !paths.dots.is_empty() { path.dot d=(paths.dots) fill="none" stroke="#15191e" stroke-width="5" stroke-linecap="round" vector-effect="non-scaling-stroke" {} }
            path.base d=(format!("M0 {HEIGHT}H{width}")) stroke="#d7dce1" vector-effect="non-scaling-stroke" {}
        }
    }
}

/// Rectangles where samples are missing.
fn holes(report: &Report) -> Markup {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for at in (0..report.gaps.len()).filter(|at| report.gaps[*at]) {
        match runs.last_mut() {
            Some(last) if last.1 == at => last.1 = at + 1,
            _ => runs.push((at, at + 1)),
        }
    }
    html! {
        @for (first, last) in runs {
            rect.hole x=(first as i64 * STEP) y="0" width=((last - first) as i64 * STEP) height=(HEIGHT) fill="#d7dce1"
                stroke="#59626d" stroke-dasharray="2 3" vector-effect="non-scaling-stroke" {}
        }
    }
}

/// All nodes in one picture.
fn picture(report: &Report, lane: &Lane, top: f64) -> Markup {
    let is_least = lane.id.least_is_worst();
    let levels: Vec<Vec<Option<f64>>> =
        lane.nodes.iter().map(|(_, track)| picture::levels(track, &report.gaps, top, is_least)).collect();
    let colour = match lane.id {
        Id::Cpu => [22, 100, 176],
        Id::Remote => [190, 92, 10],
        _ => [89, 98, 109],
    };
    let (width, height) = (report.grid.count as i64 * STEP, (lane.nodes.len() * 12).clamp(120, 384));
    html! {
        @match picture::strip(&levels, colour) {
            Ok(address) => svg.row.picture viewBox=(format!("0 0 {width} {HEIGHT}")) height=(height) width="100%"
                preserveAspectRatio="none" role="img" aria-label=(format!("{} of {} nodes", words::lane(lane.id), lane.nodes.len())) {
                (holes(report))
                image x="0" y="0" width=(width) height=(HEIGHT) preserveAspectRatio="none" href=(address)
                    style="image-rendering:pixelated" {}
            },
            Err(error) => p.none { "no picture: " (error) },
        }
    }
}

/// The machine, and the node that is worst.
fn extremes(lane: &Lane) -> Markup {
    let unit = lane.id.unit();
    let values = lane.nodes.iter().filter_map(|(node, track)| Some((*node, track.value()?)));
    let is_least = lane.id.least_is_worst();
    let worst = values.reduce(|worst, next| {
        let is_worse = if is_least { next.1 < worst.1 } else { next.1 > worst.1 };
        if is_worse { next } else { worst }
    });
    let all = lane.machine.value().filter(|_| lane.id != Id::Free);
    html! {
        @if let Some(all) = all { div.pair { span { "all nodes" } b.val data-row="all" { (words::value(all, unit)) } } }
        @if let Some((node, value)) = worst {
            div.pair { span { (if is_least { "lowest" } else { "highest" }) ": node " (node) } b { (words::value(value, unit)) } }
        }
    }
}

/// Marks of the axis at round times.
fn axis(view: &View<'_>) -> Markup {
    let grid = &view.report.grid;
    let span = grid.width_ns.saturating_mul(grid.count as i64);
    let step = step(span);
    let clock = Clock { seconds: step < 60_000_000_000, ..view.clock.clone() };
    // Round in the zone of the report, as far as it has one offset.
    let offset = jiff::Timestamp::from_nanosecond(grid.begin_ns.into())
        .map_or(0, |at| i64::from(view.clock.zone.to_offset(at).seconds()) * 1_000_000_000);
    let local = grid.begin_ns.saturating_add(offset);
    let mut marks = Vec::new();
    let mut at = local.div_euclid(step).saturating_mul(step);
    while at < local.saturating_add(span) && marks.len() <= 2 * MARKS as usize {
        if at >= local {
            let left = (at - local) as f64 * 100.0 / span as f64;
            // A word at the very end would leave the page.
            if left < 96.0 {
                marks.push((left, clock.time(at - offset), (at - local) as f64 / grid.width_ns as f64));
            }
        }
        at = at.saturating_add(step);
    }
    html! {
        @for (left, time, bucket) in marks {
            span.tick data-a=(format!("{bucket:.2}")) style=(format!("left:{left:.2}%")) { (time) }
        }
    }
}

/// A round step for at most [`MARKS`] marks, in ns.
fn step(span: i64) -> i64 {
    const SECOND: i64 = 1_000_000_000;
    const STEPS: [i64; 19] = [
        1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400,
        604_800,
    ];
    let fits = STEPS.iter().map(|step| step * SECOND).find(|step| span / step < MARKS);
    fits.unwrap_or(span / MARKS + 1)
}
