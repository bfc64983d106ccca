//! A diff as one JSON object.

use serde_json::{Value, json};

use super::elapsed::Elapsed;
use super::stats::Verdict;
use super::{Diff, DiffRow};
use crate::entity::Who;
use crate::metric::Unit;
use crate::text::json::number;

/// The version of the object.
pub const SCHEMA: &str = "numatop-diff/1";

/// Words about a side.
#[derive(Clone, Debug)]
pub struct SideWords {
    /// Recordings, as they were typed.
    pub paths: Vec<String>,
    pub intervals: usize,
    /// Ends of the first and the last sample, ns since 1970.
    pub from_wall_ns: i64,
    pub to_wall_ns: i64,
}

/// The object.
pub fn object(diff: &Diff, sides: [&SideWords; 2], warnings: &[String]) -> Value {
    let side = |words: &SideWords| {
        json!({
            "recordings": words.paths,
            "intervals": words.intervals,
            "from": crate::text::rfc3339(words.from_wall_ns),
            "to": crate::text::rfc3339(words.to_wall_ns),
        })
    };
    let one_sided = |rows: &[(Who, f64)]| -> Vec<Value> {
        rows.iter()
            .map(|(who, cpus)| json!({ "by": who.by.id(), "who": who.name, "cpus": number(*cpus) }))
            .collect()
    };
    json!({
        "schema": SCHEMA,
        "a": side(sides[0]),
        "b": side(sides[1]),
        "elapsed": diff.elapsed.as_ref().map(Elapsed::json),
        "warnings": warnings,
        "comparisons": diff.rows.iter().map(row).collect::<Vec<_>>(),
        "appeared": one_sided(&diff.appeared),
        "gone": one_sided(&diff.gone),
        "not_compared": diff.not_compared,
    })
}

fn row(row: &DiffRow) -> Value {
    let of = &row.comparison;
    let change =
        of.factor.map(|factor| [factor.middle, factor.low, factor.high].map(|factor| (factor - 1.0) * 100.0));
    let more = match row.verdict {
        Verdict::TooShort { times } | Verdict::Unclear { times } => Some(number(times)),
        _ => None,
    };
    json!({
        "by": row.who.by.id(),
        "who": row.who.name,
        "metric": row.metric,
        "unit": unit(row.unit),
        "better": row.better.id(),
        "a": number(of.a.value),
        "b": number(of.b.value),
        "n_a": row.intervals[0],
        "n_b": row.intervals[1],
        "tau": number(of.tau),
        "change_pct": change.map(|change| number(change[0])),
        "low_pct": change.map(|change| number(change[1])),
        "high_pct": change.map(|change| number(change[2])),
        "p": of.p,
        "q": row.q,
        "cliff": row.cliff.map(number),
        "verdict": row.verdict.id(),
        "times_as_long": more,
    })
}

fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::Percent => "percent",
        Unit::PerSecond => "per second",
        Unit::Bytes => "bytes",
        Unit::Nanoseconds => "ns",
        Unit::Microseconds => "us",
        Unit::Milliseconds => "ms",
        Unit::Ratio => "ratio",
        Unit::Gigahertz => "GHz",
        Unit::GigabytesPerSecond => "GB/s",
        Unit::Count | Unit::Id | Unit::Text => "count",
    }
}
