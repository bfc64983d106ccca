//! The word for a difference: better, worse, changed, the same, unclear, or too short to say.

use super::Row;
use super::stats::{Comparison, LEAST_EFFECTIVE, LEAST_INTERVALS, ROUNDING, Side};
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
    /// The error is too large; a recording this many times as long halves it to a useful size.
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
    /// Whether a row is too short for any word, and how many times as long is enough.
    pub fn too_short(&self, row: &Row) -> Option<f64> {
        let by_recording = row.cliff.is_none();
        let Comparison { a, b, .. } = row.comparison;
        if by_recording || is_none(row) {
            return None;
        }
        let of = |side: Side, intervals: usize| {
            (LEAST_EFFECTIVE / side.effective).max(LEAST_INTERVALS as f64 / intervals as f64)
        };
        let times = of(a, row.intervals[0]).max(of(b, row.intervals[1]));
        (times > 1.0).then_some(times)
    }

    /// The word for a row whose `q` is known. A difference that does not matter counts as none, however
    /// certain it is.
    pub fn judge(&self, row: &Row) -> Verdict {
        let Comparison { a, b, .. } = row.comparison;
        if is_none(row) {
            return Verdict::Same;
        }
        if let Some(times) = self.too_short(row) {
            return Verdict::TooShort { times };
        }
        let width = self.width(row);
        let is_small = (b.value - a.value).abs() <= small(row);
        let error = 2.0 * (a.variance + b.variance).sqrt();
        let is_sure = row.q < FALSE_DISCOVERIES || error <= small(row);
        if is_small && is_sure || width.is_some_and(|(low, high)| low > -self.same && high < self.same) {
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

/// The values are equal, except for rounding.
fn is_none(row: &Row) -> bool {
    let Comparison { a, b, .. } = row.comparison;
    (b.value - a.value).abs() <= ROUNDING * a.value.abs().max(b.value.abs())
}

/// A difference below this does not matter, whatever share of the value it is: one point of a share, and 0.01 of
/// instructions per cycle.
fn small(row: &Row) -> f64 {
    match row.unit {
        Unit::Percent => 1.0,
        Unit::Ratio if row.better == Better::High => 0.01,
        _ => 0.0,
    }
}
