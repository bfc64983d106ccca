//! A diff as a page in the frame of a report: one row a comparison, with the interval of its change as a picture.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use maud::{Markup, html};

use super::json::SideWords;
use super::stats::{Factor, Verdict};
use super::text::{counts, interval, short, signed, value, verdict};
use super::{Diff, DiffRow, series};
use crate::entity::{By, Who};
use crate::metric::over::Better;
use crate::report::shell::{self, Part, Shell};
use crate::text::{plural, rfc3339};

/// Maximum comparisons on a page: beyond that, equal ones are left out first.
const ROWS: usize = 2000;
/// Rows of one side only that are named.
const NAMED: usize = 50;
/// Maximum changes listed above all tables, of each direction.
const TOLD: usize = 5;

/// The end of the axis of intervals, as a factor and its inverse.
const EDGE: f64 = 10.0;
/// The change around which the axis goes from linear to logarithmic, as a logarithm.
const BEND: f64 = 0.03;
/// Marks of the axis, as factors.
const MARKS: [f64; 4] = [0.5, 0.9, 1.1, 2.0];

/// A diff, and the other facts on its page.
pub struct View<'a> {
    pub diff: &'a Diff,
    pub sides: [&'a SideWords; 2],
    pub warnings: &'a [String],
    /// See [`super::stats::Limits::same`].
    pub same: f64,
    /// Rows that are the same are shown from the start.
    pub all: bool,
    /// The command that makes it again. Clean.
    pub command: String,
}

/// The page.
pub fn render(view: &View<'_>) -> String {
    let [a, b] = view.sides;
    shell::render(&Shell {
        title: format!("{} → {}", name(a), name(b)),
        subtitle: html! { (side("A", a)) (side("B", b)) },
        summary: summary(view),
        parts: parts(view),
        command: &view.command,
        data: None,
    })
}

fn name(side: &SideWords) -> String {
    match side.paths.as_slice() {
        [one] => one.clone(),
        [first, more @ ..] => format!("{first} and {} more", more.len()),
        [] => String::new(),
    }
}

fn side(letter: &str, side: &SideWords) -> Markup {
    // Seconds are enough for a person.
    let time = |wall_ns| rfc3339(wall_ns).get(..19).unwrap_or_default().replace('T', " ");
    html! {
        p.sub {
            (letter) " " b { (side.paths.join(", ")) } " "
            (time(side.from_wall_ns)) "to " (time(side.to_wall_ns)) "UTC, " (plural(side.intervals, "interval"))
        }
    }
}

fn summary(view: &View<'_>) -> Markup {
    let diff = view.diff;
    let same = diff.rows.iter().filter(|row| row.verdict == Verdict::Same).count();
    let pct = short(view.same * 100.0);
    html! {
        div.lede {
            @if let Some(elapsed) = &diff.elapsed { p.facts { (elapsed.words()) "." } }
            p.facts { (counts(diff, view.same)) "." }
            @if !view.warnings.is_empty() {
                p.caveat {
                    @for (at, warning) in view.warnings.iter().enumerate() { @if at > 0 { "; " } (warning) }
                    ". " a href="#missing" { "All warnings" }
                }
            }
        }
        (told(diff, Verdict::Worse))
        (told(diff, Verdict::Better))
        p.muted {
            "Each value is the ratio of two sums over all intervals. A bar is the 95 % confidence interval \
             of the change, "
            @if diff.rows.iter().any(|row| row.cliff.is_some()) {
                "corrected for correlation between neighbouring intervals; "
            } @else { "and counts each recording as one observation; " }
            "the mark in the bar is the change itself; the grey band is ± " (pct) " %. For the verdicts “better”, “worse” and “changed”, the false discovery rate is kept below 5 % over all "
            (plural(diff.rows.len(), "comparison")) "."
        }
        @if same > 0 {
            p { label { input type="checkbox" id="all-rows" checked[view.all]; " Show " (plural(same, "comparison")) " with the verdict same" } }
        }
    }
}

/// The largest changes of a verdict, each a link to its row.
fn told(diff: &Diff, wanted: Verdict) -> Markup {
    let mut rows: Vec<(usize, &DiffRow)> =
        diff.rows.iter().enumerate().filter(|(_, row)| row.verdict == wanted).collect();
    let size = |row: &DiffRow| row.comparison.factor.map_or(f64::INFINITY, |factor| factor.middle.ln().abs());
    rows.sort_by(|one, other| size(other.1).total_cmp(&size(one.1)).then(one.0.cmp(&other.0)));
    html! {
        @if !rows.is_empty() {
            p.told.(wanted.id()) {
                b { (sign(wanted)) " " (wanted.id()) ": " }
                @for (nth, (at, row)) in rows.iter().take(TOLD).enumerate() {
                    @if nth > 0 { "; " }
                    a href=(format!("#r{at}")) { (row.who) ", " (row.metric) } " " (change(row))
                }
                @if rows.len() > TOLD { "; and " (rows.len() - TOLD) " more" }
            }
        }
    }
}

fn parts(view: &View<'_>) -> Vec<Part> {
    let shown = shown(view.diff);
    let kinds = [
        (By::Host, "machine", "The machine"),
        (By::Node, "nodes", "Nodes"),
        (By::Container, "containers", "Containers"),
        (By::Program, "programs", "Programs"),
    ];
    let of_kind = |(by, id, title)| {
        let content = table(view, by, &shown)?;
        Some(Part::new(id, title, content))
    };
    let mut parts: Vec<Part> = kinds.into_iter().filter_map(of_kind).collect();
    parts.push(Part::new("missing", "Missing data", missing(view, view.diff.rows.len() - shown.len())));
    parts.push(Part::new("metrics", "Metrics", metrics(view.diff)));
    parts
}

/// Places of the rows that are on the page.
fn shown(diff: &Diff) -> BTreeSet<usize> {
    let differs = |at: &usize| diff.rows[*at].verdict != Verdict::Same;
    let mut order: Vec<usize> = (0..diff.rows.len()).collect();
    order.sort_by_key(|at| !differs(at));
    order.into_iter().take(ROWS).collect()
}

/// Rows of one subject each, as ranges.
fn subjects(diff: &Diff, by: By) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    for (at, row) in diff.rows.iter().enumerate().filter(|(_, row)| row.who.by == by) {
        match found.last_mut() {
            Some(last) if last.end == at && diff.rows[last.start].who == row.who => last.end = at + 1,
            _ => found.push(at..at + 1),
        }
    }
    found
}

/// The comparisons of a kind of row; `None` without any.
fn table(view: &View<'_>, by: By, shown: &BTreeSet<usize>) -> Option<Markup> {
    let subjects: Vec<Range<usize>> = subjects(view.diff, by)
        .into_iter()
        .filter(|rows| rows.clone().any(|at| shown.contains(&at)))
        .collect();
    if subjects.is_empty() {
        return None;
    }
    let rows = &view.diff.rows;
    Some(html! {
        table.rows.diff {
            thead {
                tr {
                    th scope="col" { "Metric" }
                    th.n scope="col" { "A" }
                    th.n scope="col" { "B" }
                    th.n scope="col" { "Change" }
                    th.n scope="col" { "95 % interval" }
                    th.draw scope="col" { span.scale { @for mark in MARKS { (tick(mark)) } } }
                    th scope="col" { "Verdict" }
                }
            }
            @for subject in subjects {
                @let same = rows[subject.clone()].iter().filter(|row| row.verdict == Verdict::Same).count();
                tbody {
                    tr.who {
                        th colspan="7" scope="rowgroup" {
                            b { (rows[subject.start].who) }
                            @if same > 0 { span.muted { " " (same) " of " (subject.len()) " the same" } }
                        }
                    }
                    @for at in subject.filter(|at| shown.contains(at)) { (line(at, &rows[at], view.same)) }
                }
            }
        }
    })
}

fn line(at: usize, row: &DiffRow, same: f64) -> Markup {
    let interval = interval(row);
    let known = row.comparison.factor.filter(|_| interval.is_some());
    html! {
        tr id=(format!("r{at}")) class=(row.verdict.id()) {
            th scope="row" { code { (row.metric) } }
            td.n data-l="A" { (value(row.comparison.a.value, row.unit)) }
            td.n data-l="B" { (value(row.comparison.b.value, row.unit)) }
            td.n data-l="change" { b { (change(row)) } }
            td.n.ends data-l="95 %" { (interval.as_deref().unwrap_or("–")) }
            td.draw { @if let Some(factor) = known { (picture(&factor, same, row.verdict)) } }
            td.verdict { span.sign aria-hidden="true" { (sign(row.verdict)) } " " (verdict(row)) }
        }
    }
}

/// The change in words.
fn change(row: &DiffRow) -> String {
    let Some(factor) = row.comparison.factor else {
        return if row.comparison.a.value == 0.0 { "was 0".into() } else { "now 0".into() };
    };
    signed(factor.middle)
}

fn sign(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Better => "▲",
        Verdict::Worse => "▼",
        Verdict::Changed => "◆",
        Verdict::Same => "=",
        Verdict::Unclear { .. } | Verdict::TooShort { .. } => "?",
    }
}

/// The place of a factor on the axis, from -100 to 100: linear around no change, logarithmic beyond [`BEND`].
fn place(factor: f64) -> f64 {
    let bent = |factor: f64| (factor.ln() / BEND).asinh();
    (bent(factor) / bent(EDGE) * 100.0).clamp(-100.0, 100.0)
}

/// A mark of the axis with its words.
fn tick(factor: f64) -> Markup {
    let left = (place(factor) + 100.0) / 2.0;
    let words = format!("{:+.0} %", (factor - 1.0) * 100.0).replace('-', "−");
    html! { span style=(format!("left:{left:.1}%")) { (words) } }
}

/// The interval of a change beside the band that does not matter. Colours without style are those of the light theme.
fn picture(factor: &Factor, same: f64, verdict: Verdict) -> Markup {
    let (low, high) = (place(factor.low), place(factor.high));
    let (left, right) = (place(1.0 - same.min(0.9)), place(1.0 + same));
    let colour = match verdict {
        Verdict::Better => "#0c7f63",
        Verdict::Worse => "#b3261e",
        _ => "#59626d",
    };
    let label = format!(
        "change {}, 95 % interval {} to {}",
        signed(factor.middle),
        signed(factor.low),
        ending(factor)
    );
    html! {
        svg.interval viewBox="-100 0 200 16" height="16" width="100%" preserveAspectRatio="none" role="img" aria-label=(label) {
            rect.band x=(format!("{left:.1}")) y="0" width=(format!("{:.1}", right - left)) height="16" fill="#59626d" fill-opacity=".14" {}
            rect.bar x=(format!("{low:.1}")) y="6" width=(format!("{:.1}", (high - low).max(0.6))) height="4" fill=(colour) {}
            path.middle d=(format!("M{:.1} 2V14", place(factor.middle))) stroke="#15191e" stroke-width="2"
                vector-effect="non-scaling-stroke" {}
        }
    }
}

fn ending(factor: &Factor) -> String {
    if factor.high.is_finite() { signed(factor.high) } else { "no end".into() }
}

fn missing(view: &View<'_>, left_out: usize) -> Markup {
    let diff = view.diff;
    html! {
        @if view.warnings.is_empty() { p { "The recordings show no other difference between the two sides." } }
        @else { ul { @for warning in view.warnings { li { (warning) } } } }
        (one_sided("Appeared: only in B", &diff.appeared))
        (one_sided("Gone: only in A", &diff.gone))
        @if !diff.not_compared.is_empty() {
            h3 { "Not compared" }
            table.reasons {
                thead { tr { th scope="col" { "metric" } th scope="col" { "reason" } } }
                tbody { @for (metric, why) in &diff.not_compared { tr { td { code { (metric) } } td { (why) } } } }
            }
        }
        @if diff.zeros > 0 { p.muted { (plural(diff.zeros, "comparison")) " of rows that are 0 on both sides are not shown" } }
        @if left_out > 0 { p.muted { (plural(left_out, "more comparison")) " in the JSON form (--format json)." } }
    }
}

fn one_sided(title: &str, rows: &[(Who, f64)]) -> Markup {
    html! {
        @if !rows.is_empty() {
            h3 { (title) }
            table.reasons {
                thead { tr { th scope="col" { "row" } th.n scope="col" { "CPUs" } } }
                tbody {
                    @for (who, cpus) in rows.iter().take(NAMED) {
                        tr { td { @if who.by == By::Container { "container " } (who) } td.n data-l="CPUs" { (format!("{cpus:.2}")) } }
                    }
                }
            }
            @if rows.len() > NAMED { p.muted { "and " (rows.len() - NAMED) " more" } }
        }
    }
}

/// The meanings of all metrics on the page.
fn metrics(diff: &Diff) -> Markup {
    let wanted: BTreeSet<&'static str> = diff.rows.iter().map(|row| row.metric).collect();
    let columns = By::ALL.into_iter().flat_map(|by| series::columns(by, &wanted));
    let by_id: BTreeMap<&'static str, series::Column> = columns.map(|column| (column.id, column)).collect();
    html! {
        table.reasons.meanings {
            thead { tr { th scope="col" { "metric" } th scope="col" { "better" } th scope="col" { "meaning" } } }
            tbody {
                @for (id, column) in &by_id {
                    tr {
                        td { code { (id) } }
                        td data-l="better" { (better(column.better)) }
                        td { (column.help) }
                    }
                }
            }
        }
    }
}

fn better(better: Better) -> &'static str {
    match better {
        Better::High => "more",
        Better::Low => "less",
        Better::Neither => "neither",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_axis_is_symmetric_and_ends_at_its_edge() {
        assert_eq!(place(1.0), 0.0);
        assert!((place(2.0) + place(0.5)).abs() < 1e-9);
        for (factor, edge) in
            [(10.0, 100.0), (1e9, 100.0), (f64::INFINITY, 100.0), (0.1, -100.0), (0.0, -100.0)]
        {
            assert!((place(factor) - edge).abs() < 1e-9, "{factor}: {}", place(factor));
        }
        // Five percent can be seen.
        assert!(place(1.05) > 20.0, "{}", place(1.05));
    }
}
