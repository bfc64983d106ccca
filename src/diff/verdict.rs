//! The word for a difference: better, worse, changed, the same, unclear, or too short to say.

use super::Row;
use super::stats::{Comparison, LEAST_EFFECTIVE, LEAST_INTERVALS};
use crate::metric::Unit;
use crate::metric::over::Better;

/// Rate of false discoveries below which a difference is one.
const FALSE_DISCOVERIES: f64 = 0.05;

/// The word for a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// A side is worth fewer than ten independent intervals, or has fewer than 120; as many more times as long is enough.
    TooShort {
        times: f64,
    },
    /// No difference that matters.
    Same,
    Better,
    Worse,
    /// It differs, and neither direction is better.
    Changed,
    /// The error is too large; a recording so many times as long halves it to what matters.
    Unclear {
        times: f64,
    },
}

impl Verdict {
    /// As in JSON.
    pub fn id(self) -> &'static str {
        match self {
            Verdict::TooShort { .. } => "too_short",
            Verdict::Same => "same",
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::Changed => "changed",
            Verdict::Unclear { .. } => "unclear",
        }
    }
}

/// The size of a difference that matters.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// As a share of the value, 0 to 1.
    pub same: f64,
}

impl Limits {
    /// The word for a row whose `q` is known. A difference that does not matter is none, however sure it is.
    pub fn judge(&self, row: &Row) -> Verdict {
        let Comparison { a, b, .. } = row.comparison;
        if a.value == b.value {
            return Verdict::Same;
        }
        let by_recording = row.cliff.is_none();
        let least = |side: super::stats::Side| {
            let intervals = LEAST_INTERVALS as f64 / side.draws as f64;
            (LEAST_EFFECTIVE / side.effective).max(intervals)
        };
        let times = least(a).max(least(b));
        if times > 1.0 && !by_recording {
            return Verdict::TooShort { times };
        }
        let width = self.width(row);
        if (b.value - a.value).abs() <= small(row)
            || width.is_some_and(|(low, high)| low > -self.same && high < self.same)
        {
            return Verdict::Same;
        }
        if row.q < FALSE_DISCOVERIES {
            return match (row.better, b.value > a.value) {
                (Better::Neither, _) => Verdict::Changed,
                (Better::High, true) | (Better::Low, false) => Verdict::Better,
                (Better::High, false) | (Better::Low, true) => Verdict::Worse,
            };
        }
        let half = width.map_or(f64::INFINITY, |(low, high)| (high - low) / 2.0);
        Verdict::Unclear { times: (half / self.same).powi(2).max(1.0) }
    }

    /// The 95 % interval of the relative change.
    fn width(&self, row: &Row) -> Option<(f64, f64)> {
        row.comparison.factor.map(|factor| (factor.low - 1.0, factor.high - 1.0))
    }
}

/// A difference below this does not matter, whatever share of the value it is: one point of a share, and 0.01 of a quotient
/// of counts.
fn small(row: &Row) -> f64 {
    match row.unit {
        Unit::Percent => 1.0,
        Unit::Ratio => 0.01,
        _ => 0.0,
    }
}
