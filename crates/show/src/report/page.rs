//! The page: one file of HTML and SVG that is complete without script and loads nothing; and pieces that its parts share.

mod data;
mod findings;
mod machine;
mod missing;
mod tables;
mod timeline;

use maud::{Markup, html};

use super::clock::Clock;
use super::picture::{self, HEIGHT, STEP};
use super::shell::{self, Part, Shell};
use super::{Report, words};
use crate::report::programs::Sums;

/// A report, and the other facts on its page.
pub struct View<'a> {
    pub report: &'a Report,
    pub clock: &'a Clock,
    /// The command that reads the same recording, if known: `numatop-ng report DIR`. Clean.
    pub command: String,
}

fn sections(view: &View<'_>) -> Vec<Part> {
    let report = view.report;
    let counted = findings::counted(report);
    let mut all = vec![Part {
        word: format!("Findings ({counted})"),
        ..Part::new("findings", "Findings", findings::content(view))
    }];
    all.push(Part::new("timeline", "Timeline", timeline::content(view)));
    if report.has_nodes() {
        all.push(Part::new("nodes", "Node to node", machine::between_nodes(view)));
    }
    all.push(Part::new("machine", "The machine", machine::content(view)));
    all.push(Part::new("programs", "Programs", tables::programs(view)));
    if !report.containers.rows.is_empty() {
        all.push(Part::new("containers", "Containers", tables::containers(view)));
    }
    if let Some(hot) = &report.hot {
        all.push(Part::new("hot", "Hot spots", tables::hot_spots(hot)));
    }
    all.push(Part::new("missing", "Missing data", missing::content(view)));
    all
}

/// The page.
pub fn render(view: &View<'_>) -> String {
    shell::render(&Shell {
        title: words::title(view.report, view.clock),
        subtitle: subtitle(view),
        summary: tables::summary(view),
        parts: sections(view),
        command: &view.command,
        data: Some(data::text(view)),
    })
}

fn subtitle(view: &View<'_>) -> Markup {
    html! { p.sub { (words::subtitle(view.report, view.clock)) } }
}

/// Points of a sparkline at most.
const SPARK: usize = 120;

/// Nodes up to which a row shows where it runs and where its memory is.
const CELLS: usize = 16;

/// A small line over time without a scale.
fn spark(values: &[Option<f64>], label: &str) -> Markup {
    let paths = picture::spark(values);
    let width = values.len() as i64 * STEP;
    html! {
        svg.spark viewBox=(format!("0 0 {width} {HEIGHT}")) preserveAspectRatio="none" role="img" aria-label=(label) {
            path.area d=(paths.area) fill="#59626d" fill-opacity=".18" {}
            path.line d=(paths.line) fill="none" stroke="#59626d" vector-effect="non-scaling-stroke" {}
            @if !paths.dots.is_empty() { path.dot d=(paths.dots) fill="none" stroke="#15191e" stroke-width="4" stroke-linecap="round" vector-effect="non-scaling-stroke" {} }
        }
    }
}

/// CPU time over time of a row, from the beginning to the end.
fn course(report: &Report, sums: &Sums) -> Vec<Option<f64>> {
    let points = report.parts.count.min(SPARK);
    let each = report.parts.count.div_ceil(points.max(1)).max(1);
    let mut values = vec![0.0; report.parts.count.div_ceil(each)];
    for (at, part) in &sums.parts {
        if let Some(value) = values.get_mut(*at as usize / each) {
            *value += f64::from(part.run_ns);
        }
    }
    values.into_iter().map(Some).collect()
}

/// Shares of a list, by place in `nodes`.
fn shares(list: &[f64], nodes: &[u32]) -> Vec<f64> {
    let all: f64 = list.iter().sum();
    let of = |node: &u32| list.get(*node as usize).copied().unwrap_or(0.0);
    nodes.iter().map(|node| if all > 0.0 { of(node) / all } else { 0.0 }).collect()
}

/// Nodes with most of a row, in words: `node 3`, `nodes 0 (60 %) and 1 (40 %)`.
fn where_words(shares: &[f64], nodes: &[u32]) -> String {
    let mut most: Vec<(u32, f64)> = nodes.iter().copied().zip(shares.iter().copied()).collect();
    most.retain(|(_, share)| *share >= 0.05);
    most.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    match most.as_slice() {
        [] => "not known".into(),
        [(node, _)] => format!("node {node}"),
        many => {
            let named: Vec<String> =
                many.iter().take(4).map(|(node, share)| format!("{node} ({:.0} %)", share * 100.0)).collect();
            format!("nodes {}", words::and(&named))
        }
    }
}

/// One cell a node: above where it runs, below where its memory is, the darker the more.
fn runs_and_memory(report: &Report, sums: &Sums) -> Markup {
    let nodes = &report.nodes;
    let (runs, memory) = (shares(&sums.run_by_node, nodes), shares(&sums.memory_by_node, nodes));
    let label = format!("runs on {}; memory on {}", where_words(&runs, nodes), where_words(&memory, nodes));
    let has_memory = memory.iter().any(|share| *share > 0.0);
    let (cell, wide) = (10, nodes.len() as i64 * 10);
    html! {
        svg.cells viewBox=(format!("0 0 {wide} 16")) width=(wide) height="16" role="img" aria-label=(label) {
            title { (label) }
            @for (at, share) in runs.iter().enumerate() {
                rect.runs x=(at as i64 * cell) y="0" width="9" height="7" fill="#1664b0" fill-opacity=(opacity(*share)) {}
            }
            @for (at, share) in memory.iter().enumerate().filter(|_| has_memory) {
                rect.memory x=(at as i64 * cell) y="9" width="9" height="7" fill="#be5c0a" fill-opacity=(opacity(*share)) {}
            }
        }
    }
}

/// Nothing stays a pale frame, and a little is more than nothing.
fn opacity(share: f64) -> String {
    let shown = if share < 0.005 { 0.1 } else { 0.2 + 0.8 * share.min(1.0) };
    format!("{shown:.2}")
}

/// A share of remote accesses: its bar and its number with mark. `?` has no bar.
fn remote(sums: &Sums) -> Markup {
    let text = words::remote(sums);
    let share = if sums.remote.den > 0.0 { (sums.remote.num / sums.remote.den).clamp(0.0, 1.0) } else { 0.0 };
    let error = sums.sources.error_points().map(|points| format!("± {}", words::short(points)));
    html! {
        @if sums.remote.den > 0.0 {
            svg.bar viewBox="0 0 40 8" width="40" height="8" aria-hidden="true" preserveAspectRatio="none" {
                rect.back width="40" height="8" fill="#d7dce1" {}
                rect.memory width=(format!("{:.1}", share * 40.0)) height="8" fill="#be5c0a" {}
            }
        }
        span.num title=(error.unwrap_or_default()) { (text) }
    }
}

/// A moment or a stretch that the timeline can show: buckets from the first to the second.
fn moment(text: &str, (first, last): (usize, usize)) -> Markup {
    html! { a.when href="#timeline" data-show=(format!("{first},{last}")) { (text) } }
}
