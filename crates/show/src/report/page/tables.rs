//! Tables of the page: the summary with a row for each lane, programs, containers, and hot spots with the picture of their
//! stacks, callers above callees.

use maud::{Markup, html};

use super::{CELLS, SPARK, View, course, findings, moment, remote, runs_and_memory, spark};
use crate::report::hot_spots::{Frame, Hot};
use crate::report::lanes::{Id, Lane};
use crate::report::programs::{ProgramRow, Sums, Table};
use crate::report::{Report, picture, words};
use crate::text::plural;
use crate::text::prose::bytes;

pub(super) fn summary(view: &View<'_>) -> Markup {
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
                    a href="#missing" { "All warnings" }
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
            tbody { @for lane in lanes { (summary_row(view, lane)) } }
        }
    }
}

fn summary_row(view: &View<'_>, lane: &Lane) -> Markup {
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
                    td.course { (spark(&picture::thinned(track, &report.gaps, SPARK), &format!("{name} over time"))) }
                },
                (Some(why), _) => td.none colspan="4" { "not measured: " (why) },
                (None, None) => td.none colspan="4" { "no value in this period" },
            }
        }
    }
}

/// Buckets around a moment, which show the time before it.
fn around(count: usize, at: usize) -> (usize, usize) {
    let before = 15.min(count / 20 + 1);
    (at.saturating_sub(before), (at + 1 + before).min(count))
}

/// Columns of a table, according to the machine.
#[derive(Clone, Copy)]
struct Columns {
    container: bool,
    nodes: bool,
    cells: bool,
    ipc: bool,
}

fn columns(report: &Report, table: &Table, is_programs: bool) -> Columns {
    let has = |of: fn(&Sums) -> bool| table.rows.iter().any(|row| of(&row.sums));
    Columns {
        container: is_programs && table.rows.iter().any(|row| row.container.is_some()),
        nodes: report.has_nodes(),
        cells: report.has_nodes() && report.nodes.len() <= CELLS,
        ipc: has(|sums| sums.ipc.den > 0.0),
    }
}

pub(super) fn programs(view: &View<'_>) -> Markup {
    let report = view.report;
    let table = &report.programs;
    let shown = table.rows.len();
    html! {
        p.muted {
            "The " (plural(shown, "program")) " with the most CPU time"
            @if table.rest.is_some() { ", and all other programs in one row. Together they make up the whole \
                                        machine" }
            ". 100 % is one CPU. A program means all processes of one name in one container."
            @if table.merged > 0 {
                "There were too many names to keep them all: " (words::thousands(table.merged)) " with little CPU time are always counted among the others."
            }
        }
        (one(view, table, true))
    }
}

pub(super) fn containers(view: &View<'_>) -> Markup {
    let table = &view.report.containers;
    html! {
        p.muted {
            "Containers, pods and units with the most CPU time. A row includes all groups below it."
            @if table.others > 0 { " " (words::others(table.others)) " are not shown." }
        }
        (one(view, table, false))
    }
}

fn one(view: &View<'_>, table: &Table, is_programs: bool) -> Markup {
    let report = view.report;
    let has = columns(report, table, is_programs);
    let id = if is_programs { "programs" } else { "containers" };
    html! {
        label.find hidden { "Find " input type="search" data-find=(id) placeholder="name" autocomplete="off"; }
        div.scroll {
        table.rows data-rows=(id) {
            thead {
                tr {
                    th scope="col" data-sort="name" { (if is_programs { "Program" } else { "Container" }) }
                    @if has.container { th scope="col" data-sort="text" { "Container" } }
                    th.n scope="col" data-sort="cpu" aria-sort="descending" { "CPU %" }
                    th.course scope="col" { "over time" }
                    @if has.cells { th scope="col" { "runs / memory" } }
                    @if has.nodes { th.n scope="col" data-sort="remote" { "Remote %" } }
                    @if has.ipc { th.n scope="col" data-sort="ipc" { "IPC" } }
                    th.n scope="col" data-sort="wait" { "Wait %" }
                    @if has.nodes { th.n scope="col" data-sort="moves" { "Moves/s" } }
                    th.n scope="col" data-sort="rss" { "Resident" }
                }
            }
            tbody {
                @for (at, row) in table.rows.iter().enumerate() { (line(report, row, at, has)) }
                @if let Some(rest) = &table.rest { (others(report, rest, table.others, table.rows.len(), has)) }
            }
        }
        }
        p.muted { "Resident: mean over time, summed over processes. Shared memory counts once where its objects \
                   are known, otherwise once per process." }
        @if has.cells {
            p.muted.keys {
                span { "One cell per node, darker is more:" } span.key.runs {} span { "where the program runs" } span.key.memory {}
                span { "where its memory is. Dark over pale: the program runs on a node without its memory." }
            }
        }
    }
}

fn line(report: &Report, row: &ProgramRow, at: usize, has: Columns) -> Markup {
    let who = words::who(&row.sums);
    html! {
        tr data-at=(at) {
            th scope="row" { b { (row.name) } @if !who.is_empty() { span.muted { " " (who) } } }
            @if has.container { td.whose { (row.container.as_deref().unwrap_or("")) } }
            (numbers(report, &row.sums, has, &row.name))
        }
    }
}

fn others(report: &Report, rest: &Sums, count: usize, at: usize, has: Columns) -> Markup {
    html! {
        tr.rest data-at=(at) {
            th scope="row" { (words::others(count)) }
            @if has.container { td {} }
            (numbers(report, rest, has, "all others"))
        }
    }
}

fn numbers(report: &Report, sums: &Sums, has: Columns, name: &str) -> Markup {
    let percent = |ns: f64| ns * 100.0 / report.total_ns.max(1.0);
    let (cpu, wait) = (percent(sums.run_ns), percent(sums.wait_ns));
    let moves = sums.moves * 1e9 / report.total_ns.max(1.0);
    let ipc = (sums.ipc.den > 0.0).then(|| sums.ipc.value());
    let rss = (sums.rss.den > 0.0).then(|| sums.rss.value());
    let remote_pct = (sums.remote.den > 0.0).then(|| sums.remote.value());
    let sort = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.6}"));
    html! {
        td.n.cpu data-l="CPU %" data-v=(sort(Some(cpu))) { (words::short(cpu)) }
        td.course { (spark(&course(report, sums), &format!("CPU time of {name} over time"))) }
        @if has.cells { td.where { (runs_and_memory(report, sums)) } }
        @if has.nodes { td.n.remote data-l="remote %" data-v=(sort(remote_pct)) { (remote(sums)) } }
        @if has.ipc { td.n.ipc data-l="IPC" data-v=(sort(ipc)) { (ipc.map_or("–".into(), |ipc| format!("{ipc:.2}"))) } }
        td.n.wait data-l="wait %" data-v=(sort(Some(wait))) { (words::short(wait)) }
        @if has.nodes { td.n data-l="moves/s" data-v=(sort(Some(moves))) { (words::short(moves)) } }
        td.n data-l="resident" data-v=(sort(rss)) { (rss.map_or("–".into(), bytes)) }
    }
}

/// Height of a frame in the picture, pixels.
const HOT_ROW: usize = 18;

pub(super) fn hot_spots(hot: &Hot) -> Markup {
    let depth = hot.frames.iter().map(|frame| frame.depth + 1).max().unwrap_or(0);
    html! {
        p.muted {
            (words::thousands(hot.samples as usize)) " stacks, " (hot.event) " at " (hot.hz)
            "Hz on each CPU. Callers are on top, callees below; the width is the share of the samples. Blue \
             means kernel."
            @if !hot.stem.is_empty() { " All stacks are under " (hot.stem.join(" › ")) "." }
            @if hot.lost > 0 { " " (words::thousands(hot.lost as usize)) " samples were lost." }
        }
        div.flame style=(format!("height:{}px", depth * HOT_ROW)) {
            @for frame in &hot.frames { (hot_spot(frame)) }
        }
        @if hot.frames_left_out > 0 {
            p.muted { (plural(hot.frames_left_out, "frame")) "with few samples (less than 0.05 %, or 1 % at \
                                                              great depth), or beyond the first 5,000, are \
                                                              not drawn, nor are their callees." }
        }
        h3 { "Functions by own share" }
        table.spots {
            thead {
                tr {
                    th scope="col" { "Function" }
                    th scope="col" { "File" }
                    th.n scope="col" { "own %" }
                    th.n scope="col" { "± 95 %" }
                    th.n scope="col" { "with callees %" }
                }
            }
            tbody {
                @for spot in &hot.spots {
                    tr {
                        th scope="row" { code { (spot.function) } }
                        td.whose { (spot.module) }
                        td.n data-l="own %" { (words::short(spot.own_pct)) }
                        td.n data-l="±" { (words::short(spot.error_pct)) }
                        td.n data-l="with callees %" { (words::short(spot.total_pct)) }
                    }
                }
            }
        }
        @if hot.spots_left_out > 0 { p.muted { (words::thousands(hot.spots_left_out)) " more functions." } }
    }
}

fn hot_spot(frame: &Frame) -> Markup {
    let style = format!("left:{:.3}%;width:{:.3}%;top:{}px", frame.left, frame.width, frame.depth * HOT_ROW);
    let label = format!("{}: {} %", frame.function, words::short(frame.pct));
    html! {
        button type="button" class=(if frame.kernel { "frame kernel" } else { "frame" }) style=(style) title=(label) {
            (frame.function)
        }
    }
}
