//! A diff as text, and the words for its numbers, which the page has, too.

use std::fmt::Write;

use super::json::SideWords;
use super::stats::{LEAST_INTERVALS, Verdict};
use super::{Diff, DiffRow};
use crate::entity::{By, Who};
use crate::metric::{Unit, Value, format, host, node, task};
use crate::text::{hanging, plural, rfc3339, words};

/// Rows that appeared or are gone are named as far as this; the rest is counted.
const NAMED: usize = 10;

/// The text, for a terminal of `width` columns. `all`: rows that are the same have lines of their own. `same`: see
/// [`super::stats::Limits::same`].
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
    if let Some(elapsed) = &diff.elapsed {
        out += &hanging("", words(&elapsed.words()), width);
    }
    out += &format!("{}\n", counts(diff, same));
    let short = too_short(diff, [sides[0].intervals, sides[1].intervals]).filter(|_| !all);
    let is_nothing = short.as_ref().is_some_and(|short| short.starts_with("too short"));
    if let Some(short) = short {
        out += &hanging("", words(&short), width);
    }
    if is_nothing {
        return out;
    }
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

fn block(out: &mut String, who: &Who, rows: &[DiffRow], all: bool) {
    let is_told = |row: &&DiffRow| all || !matches!(row.verdict, Verdict::Same | Verdict::TooShort { .. });
    let told: Vec<&DiffRow> = rows.iter().filter(is_told).collect();
    let folded = |verdict: &str| rows.iter().filter(|row| !all && row.verdict.id() == verdict).count();
    let (same, short) = (folded("same"), folded("too_short"));
    if told.is_empty() {
        return;
    }
    let title = who.to_string();
    let _ = writeln!(out, "\n{title:<30} {:>10} {:>10} {:>9}  95 % interval", "A", "B", "change");
    for row in told {
        let change = row.comparison.factor.map(|factor| signed(factor.middle)).unwrap_or_default();
        let interval = interval(row).unwrap_or_default();
        let _ = writeln!(
            out,
            "  {:<28} {:>10} {:>10} {change:>9}  {interval:<18} {}",
            label(row),
            value(row.comparison.a.value, row.unit),
            value(row.comparison.b.value, row.unit),
            verdict(row)
        );
    }
    match (same, short) {
        (0, 0) => {}
        (same, 0) => drop(writeln!(out, "  ({same} same)")),
        (0, short) => drop(writeln!(out, "  ({short} too short)")),
        (same, short) => drop(writeln!(out, "  ({same} same, {short} too short)")),
    }
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

/// The metric of a row; for busy time, also the number of CPUs that is 100 %.
pub(super) fn label(row: &DiffRow) -> String {
    let id = row.metric;
    match row.who.by {
        By::Host if id == host::BUSY.id => format!("{id} (100 %: a CPU)"),
        By::Node if id == node::CPU_PCT.id => format!("{id} (100 %: all CPUs)"),
        By::Program | By::Container if id == task::CPU_PCT.id => format!("{id} (100 %: a CPU)"),
        _ => id.into(),
    }
}

/// Comparisons by verdict. `same`: see [`super::stats::Limits::same`].
pub(super) fn counts(diff: &Diff, same: f64) -> String {
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

/// A value with its unit.
pub(super) fn value(value: f64, unit: Unit) -> String {
    let text = format::short(&Value::F64(value), unit);
    match unit {
        Unit::Percent => format!("{text} %"),
        Unit::PerSecond => format!("{text}/s"),
        _ => text,
    }
}

/// A factor as a change in per cent; as a factor where it is tenfold or more.
pub(super) fn signed(factor: f64) -> String {
    let pct = (factor - 1.0) * 100.0;
    match factor {
        factor if factor >= 10.0 => format!("× {}", short(factor)),
        _ if pct.abs() < 0.05 => "0.0 %".into(),
        _ => format!("{pct:+.1} %"),
    }
}

/// The verdict of a row, with the number of intervals that would be enough if it needs more.
pub(super) fn verdict(row: &DiffRow) -> String {
    let [a, b] = row.intervals;
    let has = a.min(b);
    let needs = |times: f64| match (has as f64 * times).ceil() {
        needed if times <= 1000.0 => format!("{needed:.0} intervals are needed, but there are {has}"),
        _ => "no recording would be long enough".into(),
    };
    match row.verdict {
        Verdict::TooShort { times } => format!("too short: {}", needs(times)),
        Verdict::Unclear { times } => format!("unclear: {}", needs(times)),
        other => other.id().into(),
    }
}

/// The rows that are too short, in one sentence; `None` without such rows.
pub(super) fn too_short(diff: &Diff, [a, b]: [usize; 2]) -> Option<String> {
    let is_short = |row: &&DiffRow| matches!(row.verdict, Verdict::TooShort { .. });
    let short = diff.rows.iter().filter(is_short).count();
    let decided = |row: &DiffRow| !matches!(row.verdict, Verdict::TooShort { .. } | Verdict::Same);
    let has = format!("A has {}, B has {b}; {LEAST_INTERVALS} are needed", plural(a, "interval"));
    match (short, diff.rows.iter().any(decided)) {
        (0, _) => None,
        (_, false) => Some(format!("too short: {has} (--all shows numbers)")),
        (short, true) => Some(format!("{} too short (--all shows numbers)", plural(short, "comparison"))),
    }
}

/// A number that rounds up below 10.
pub(super) fn short(number: f64) -> String {
    if number < 10.0 { format!("{}", (number * 10.0).ceil() / 10.0) } else { format!("{number:.0}") }
}

/// The 95 % interval of a change; `None` where a side is 0 or too short to have one, `?` where it has no end.
pub(super) fn interval(row: &DiffRow) -> Option<String> {
    let factor = row.comparison.factor.filter(|_| !matches!(row.verdict, Verdict::TooShort { .. }))?;
    let ends = format!("{} … {}", signed(factor.low), signed(factor.high));
    Some(if factor.high.is_finite() { ends } else { "?".into() })
}

/// A row of one side with its CPU time.
pub(super) fn one_sided((who, cpus): &(Who, f64)) -> String {
    match who.by {
        By::Container => format!("container {who} ({cpus:.2} CPUs)"),
        _ => format!("{who} ({cpus:.2} CPUs)"),
    }
}
