//! Tables of programs and of containers.

use maud::{Markup, html};

use super::View;
use super::parts::{CELLS, course, remote, runs_and_memory, spark};
use crate::report::Report;
use crate::report::programs::{Row, Sums, Table};
use crate::report::words;
use crate::text::plural;
use crate::text::prose::bytes;

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
            @if table.rest.is_some() { ", and all others as one row: together they are the machine" }
            ". 100 % is one CPU. A program is all processes of one name in one container."
            @if table.merged > 0 {
                " There were too many names to keep: " (words::thousands(table.merged)) " with little time are counted among the others throughout."
            }
        }
        (one(view, table, true))
    }
}

pub(super) fn containers(view: &View<'_>) -> Markup {
    let table = &view.report.containers;
    html! {
        p.muted {
            "Containers, pods and units with the most CPU time. A row includes everything below it."
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
        p.muted { "Resident: mean over time, summed over processes. Memory that processes share counts once where its objects are known, else for each of them." }
        @if has.cells {
            p.muted.keys {
                span { "One cell per node, darker is more:" } span.key.runs {} span { "where it runs" } span.key.memory {}
                span { "where its memory is. Dark over pale: it runs where it has no memory." }
            }
        }
    }
}

fn line(report: &Report, row: &Row, at: usize, has: Columns) -> Markup {
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
