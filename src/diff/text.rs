//! A diff as text.

use std::fmt::Write;

use super::json::SideWords;
use super::verdict::Verdict;
use super::{Diff, Row};
use crate::entity::{By, Who};
use crate::metric::{Unit, Value, format};
use crate::text::{hanging, plural, rfc3339, words};

/// Rows that appeared or are gone are named as far as this; the rest is counted.
const NAMED: usize = 10;

/// The text, for a terminal of `width` columns. `all`: rows that are the same have lines of their own. `same`: see
/// [`super::verdict::Limits::same`].
pub fn render(
    diff: &Diff,
    sides: [&SideWords; 2],
    warnings: &[String],
    (same, all): (f64, bool),
    width: usize,
) -> String {
    let mut out = String::new();
    for (name, side) in ["A", "B"].iter().zip(sides) {
        let (from, to) = (rfc3339(side.from_wall_ns), rfc3339(side.to_wall_ns));
        let intervals = plural(side.intervals, "interval");
        out += &hanging(
            &format!("{name}  "),
            words(&format!("{}, {from} to {to}, {intervals}", side.paths.join(" "))),
            width,
        );
    }
    out += &format!("{}\n", counts(diff, same));
    for warning in warnings {
        out += &hanging("   ", words(warning), width);
    }
    let mut at = 0;
    while at < diff.rows.len() {
        let who = &diff.rows[at].who;
        let rows = diff.rows[at..].iter().take_while(|row| row.who == *who).count();
        block(&mut out, who, &diff.rows[at..at + rows], all);
        at += rows;
    }
    out.push('\n');
    named(&mut out, "appeared", &diff.appeared, width);
    named(&mut out, "gone", &diff.gone, width);
    for (metric, why) in &diff.not_compared {
        out += &hanging("not compared  ", words(&format!("{metric}: {why}")), width);
    }
    out
}

fn counts(diff: &Diff, same: f64) -> String {
    let mut counts = Vec::new();
    for word in ["better", "worse", "changed", "same", "unclear", "too_short"] {
        let rows = diff.rows.iter().filter(|row| row.verdict.id() == word).count();
        match (rows, word) {
            (0, _) => {}
            (_, "same") => counts.push(format!("{rows} same (± {} %)", short(same * 100.0))),
            (_, word) => counts.push(format!("{rows} {}", word.replace('_', " "))),
        }
    }
    let all = plural(diff.rows.len(), "comparison");
    if counts.is_empty() { all } else { format!("{all}: {}", counts.join(", ")) }
}

fn block(out: &mut String, who: &Who, rows: &[Row], all: bool) {
    let told: Vec<&Row> = rows.iter().filter(|row| all || row.verdict != Verdict::Same).collect();
    let folded = rows.len() - told.len();
    if told.is_empty() {
        return;
    }
    let title = who.to_string();
    let _ = writeln!(out, "\n{title:<30} {:>10} {:>10} {:>9}  95 % interval", "A", "B", "change");
    for row in told {
        let change = row.comparison.factor.map(|factor| {
            let interval = format!("{} … {}", signed(factor.low), signed(factor.high));
            (signed(factor.middle), if factor.high.is_finite() { interval } else { "?".into() })
        });
        let (change, mut interval) = change.unwrap_or_default();
        if matches!(row.verdict, Verdict::TooShort { .. }) {
            interval.clear();
        }
        let _ = writeln!(
            out,
            "  {:<28} {:>10} {:>10} {change:>9}  {interval:<18} {}",
            row.metric,
            value(row.comparison.a.value, row.unit),
            value(row.comparison.b.value, row.unit),
            verdict(row.verdict)
        );
    }
    if folded > 0 {
        let _ = writeln!(out, "  ({folded} same)");
    }
}

fn value(value: f64, unit: Unit) -> String {
    let text = format::short(&Value::F64(value), unit);
    match unit {
        Unit::Percent => format!("{text} %"),
        Unit::PerSecond => format!("{text}/s"),
        _ => text,
    }
}

/// A factor as a change in per cent; as a factor where it is tenfold or more.
fn signed(factor: f64) -> String {
    let pct = (factor - 1.0) * 100.0;
    match factor {
        factor if factor >= 10.0 => format!("× {}", short(factor)),
        _ if pct.abs() < 0.05 => "0.0 %".into(),
        _ => format!("{pct:+.1} %"),
    }
}

fn verdict(verdict: Verdict) -> String {
    let times = |times: f64| match times {
        times if times <= 1000.0 => format!("record {} times as long", short(times.max(1.1))),
        _ => "no recording is long enough".into(),
    };
    match verdict {
        Verdict::TooShort { times: more } => format!("too short: {}", times(more)),
        Verdict::Unclear { times: more } => format!("unclear: {}", times(more)),
        other => other.id().into(),
    }
}

fn short(number: f64) -> String {
    if number < 10.0 { format!("{}", (number * 10.0).ceil() / 10.0) } else { format!("{number:.0}") }
}

fn named(out: &mut String, word: &str, rows: &[(Who, f64)], width: usize) {
    if rows.is_empty() {
        return;
    }
    let mut names: Vec<String> = rows.iter().take(NAMED).map(one_sided).collect();
    if rows.len() > NAMED {
        names.push(format!("and {} more", rows.len() - NAMED));
    }
    *out += &hanging(&format!("{word:<14}"), words(&names.join(", ")), width);
}

fn one_sided((who, cpus): &(Who, f64)) -> String {
    match who.by {
        By::Container => format!("container {who} ({cpus:.2} CPUs)"),
        _ => format!("{who} ({cpus:.2} CPUs)"),
    }
}
