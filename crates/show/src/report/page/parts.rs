//! Small pictures and pieces that several parts of the page share.

use maud::{Markup, html};

use crate::report::programs::Sums;
use crate::report::svg::{self, HEIGHT, STEP};
use crate::report::{Report, words};

/// Points of a sparkline at most.
pub(super) const SPARK: usize = 120;
/// Nodes up to which a row shows where it runs and where its memory is.
pub(super) const CELLS: usize = 16;

/// A small line over time without a scale.
pub(super) fn spark(values: &[Option<f64>], label: &str) -> Markup {
    let paths = svg::spark(values);
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
pub(super) fn course(report: &Report, sums: &Sums) -> Vec<Option<f64>> {
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
pub(super) fn runs_and_memory(report: &Report, sums: &Sums) -> Markup {
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
pub(super) fn opacity(share: f64) -> String {
    let shown = if share < 0.005 { 0.1 } else { 0.2 + 0.8 * share.min(1.0) };
    format!("{shown:.2}")
}

/// A share of remote accesses: its bar and its number with mark. `?` has no bar.
pub(super) fn remote(sums: &Sums) -> Markup {
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
pub(super) fn moment(text: &str, (first, last): (usize, usize)) -> Markup {
    html! { a.when href="#timeline" data-show=(format!("{first},{last}")) { (text) } }
}
