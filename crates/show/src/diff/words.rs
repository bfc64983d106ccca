//! Words for numbers of a diff, in text and on the page.

use super::stats::LEAST_INTERVALS;
use super::verdict::Verdict;
use super::{Diff, Row};
use crate::entity::{By, Who};
use crate::metric::{Unit, Value, format, host, node, task};
use crate::text::plural;

/// The metric of a row; for busy time, also the number of CPUs that is 100 %.
pub(super) fn label(row: &Row) -> String {
    let id = row.metric;
    match row.who.by {
        By::Host if id == host::BUSY.id => format!("{id} (100 %: a CPU)"),
        By::Node if id == node::CPU_PCT.id => format!("{id} (100 %: all CPUs)"),
        By::Program | By::Container if id == task::CPU_PCT.id => format!("{id} (100 %: a CPU)"),
        _ => id.into(),
    }
}

/// Comparisons by verdict. `same`: see [`super::verdict::Limits::same`].
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
pub(super) fn verdict(row: &Row) -> String {
    let [a, b] = row.intervals;
    let has = a.min(b);
    let needs = |times: f64| match (has as f64 * times).ceil() {
        needed if times <= 1000.0 => format!("needs {needed:.0} intervals, has {has}"),
        _ => "no recording is long enough".into(),
    };
    match row.verdict {
        Verdict::TooShort { times } => format!("too short: {}", needs(times)),
        Verdict::Unclear { times } => format!("unclear: {}", needs(times)),
        other => other.id().into(),
    }
}

/// The rows that are too short, in one sentence; `None` without such rows.
pub(super) fn too_short(diff: &Diff, [a, b]: [usize; 2]) -> Option<String> {
    let is_short = |row: &&Row| matches!(row.verdict, Verdict::TooShort { .. });
    let short = diff.rows.iter().filter(is_short).count();
    let decided = |row: &Row| !matches!(row.verdict, Verdict::TooShort { .. } | Verdict::Same);
    let has = format!("A has {}, B has {b}; {LEAST_INTERVALS} are needed", plural(a, "interval"));
    match (short, diff.rows.iter().any(decided)) {
        (0, _) => None,
        (_, false) => Some(format!("too short: {has} (--all for numbers)")),
        (short, true) => Some(format!("{} too short (--all for numbers)", plural(short, "comparison"))),
    }
}

/// A number that rounds up below 10.
pub(super) fn short(number: f64) -> String {
    if number < 10.0 { format!("{}", (number * 10.0).ceil() / 10.0) } else { format!("{number:.0}") }
}

/// The 95 % interval of a change; `None` where a side is 0 or too short to have one, `?` where it has no end.
pub(super) fn interval(row: &Row) -> Option<String> {
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
