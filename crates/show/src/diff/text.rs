//! A diff as text.

use std::fmt::Write;

use super::json::SideWords;
use super::verdict::Verdict;
use super::words::{counts, interval, label, one_sided, signed, too_short, value, verdict};
use super::{Diff, Row};
use crate::entity::Who;
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

fn block(out: &mut String, who: &Who, rows: &[Row], all: bool) {
    let is_told = |row: &&Row| all || !matches!(row.verdict, Verdict::Same | Verdict::TooShort { .. });
    let told: Vec<&Row> = rows.iter().filter(is_told).collect();
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
