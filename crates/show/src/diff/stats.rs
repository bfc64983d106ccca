//! Whether a quotient of two sums differs between two series of intervals, where neighbouring intervals are alike. Pure.
//!
//! A test that treats intervals as independent draws calls most pairs of identical runs different, because a
//! busy second follows a busy second. Here the variance of a side is that of its residuals times their
//! autocorrelation time. So a thousand intervals with ten alike in a row count as a hundred.
//!
//! Residuals of a quotient: the delta method (Cochran, "Sampling Techniques", 6.3). Autocorrelation time: Geyer, "Practical
//! Markov chain Monte Carlo", 1992, the initial monotone sequence. Two sides of unequal variance: Welch, 1947. No random
//! numbers: the same input gives the same output.

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::DiffRow;
use crate::metric::Unit;
use crate::metric::over::Better;

/// Intervals of a side from which on a verdict is given.
pub const LEAST_INTERVALS: usize = 120;

/// The number of independent intervals equivalent to a side from which on a verdict is given.
pub const LEAST_EFFECTIVE: f64 = 10.0;

/// Differences below this share of a value are of rounding.
pub const ROUNDING: f64 = 1e-9;

/// Numerator and denominator of one interval.
pub type Part = (f64, f64);

/// A quotient on one side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Side {
    /// Sum of numerators by sum of denominators.
    pub value: f64,
    /// Intervals, or recordings where each is one draw.
    pub draws: usize,
    /// Independent draws that they are worth.
    pub effective: f64,
    /// Variance of `value`.
    pub variance: f64,
}

/// Two sides against each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    pub a: Side,
    pub b: Side,
    /// Intervals in which a deviation lives on; 1: each is independent of the one before.
    pub tau: f64,
    /// Probability of such a difference between identical sides.
    pub p: f64,
    /// The change from `a` to `b` as a factor, and its 95 % interval; `None` where a side is 0.
    pub factor: Option<Factor>,
}

/// A change as a factor: 1.1 is 10 % more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Factor {
    pub middle: f64,
    pub low: f64,
    pub high: f64,
}

/// The quotient of the sums; `None` where nothing was divided by.
pub fn value(parts: &[Part]) -> Option<f64> {
    let (num, den) = parts.iter().fold((0.0, 0.0), |(num, den), part| (num + part.0, den + part.1));
    (den > 0.0).then_some(num / den)
}

/// Deviations of the intervals from the value of their side, in the unit of the value.
fn residuals(parts: &[Part], value: f64) -> Vec<f64> {
    let mean = parts.iter().map(|part| part.1).sum::<f64>() / parts.len() as f64;
    // Rounding leaves deviations of a constant that would live on for ever.
    let least = ROUNDING * value.abs();
    let deviation = |(num, den): &Part| (num - value * den) / mean;
    parts.iter().map(deviation).map(|one| if one.abs() <= least { 0.0 } else { one }).collect()
}

/// Intervals in which a deviation lives on, from the residuals of all series together; at least 1.
///
/// Sums of two neighbouring autocorrelations are positive and fall for a stationary process, so that noise begins where they
/// do not. An autocorrelation is estimated too small by about its sum over the length, which the last factor makes good.
fn autocorrelation_time(series: &[&[f64]]) -> f64 {
    let longest = series.iter().map(|one| one.len()).max().unwrap_or(0);
    let all: usize = series.iter().map(|one| one.len()).sum();
    let products = |lag: usize| -> f64 {
        let of = |one: &&[f64]| -> f64 {
            one.iter().zip(one.get(lag..).unwrap_or_default()).map(|(early, late)| early * late).sum()
        };
        series.iter().map(of).sum()
    };
    let none = products(0);
    if none <= 0.0 {
        return 1.0;
    }
    let (mut sum, mut before) = (0.0, f64::INFINITY);
    for lag in (0..longest.saturating_sub(1)).step_by(2) {
        let pair = ((products(lag) + products(lag + 1)) / none).min(before);
        if pair <= 0.0 {
            break;
        }
        (sum, before) = (sum + pair, pair);
    }
    let tau = (2.0 * sum - 1.0).max(1.0);
    let length = all as f64 / series.len() as f64;
    (tau * (1.0 + 3.0 * tau / length)).min(length)
}

fn side(parts: &[Part], value: f64, residuals: &[f64], tau: f64) -> Side {
    let draws = parts.len() as f64;
    let spread = residuals.iter().map(|one| one * one).sum::<f64>() / (draws - 1.0).max(1.0);
    let effective = draws / tau;
    // The mean was taken from the same draws: as (n - 1) for independent ones, with tau in place of 1.
    let short = if draws > tau { draws / (draws - tau) } else { f64::INFINITY };
    Side { value, draws: parts.len(), effective, variance: spread * short / effective }
}

/// Two series of intervals; `None` where a side has nothing to divide by.
pub fn compare(a: &[Part], b: &[Part]) -> Option<Comparison> {
    let (of_a, of_b) = (value(a)?, value(b)?);
    let (left_a, left_b) = (residuals(a, of_a), residuals(b, of_b));
    let tau = autocorrelation_time(&[&left_a, &left_b]);
    Some(welch(side(a, of_a, &left_a, tau), side(b, of_b, &left_b, tau), tau))
}

/// Recordings against recordings: each is one draw, with its value over the whole recording. At least two a
/// side.
pub fn compare_recordings(a: &[f64], b: &[f64]) -> Option<Comparison> {
    let of = |values: &[f64]| {
        let draws = values.len() as f64;
        let mean = values.iter().sum::<f64>() / draws;
        let spread = values.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / (draws - 1.0);
        let (value, variance) = (mean, spread / draws);
        (values.len() > 1).then_some(Side { value, draws: values.len(), effective: draws, variance })
    };
    Some(welch(of(a)?, of(b)?, 1.0))
}

fn welch(a: Side, b: Side, tau: f64) -> Comparison {
    let variance = a.variance + b.variance;
    let difference = b.value - a.value;
    let of = |side: Side| side.variance.powi(2) / (side.effective - 1.0).max(1e-9);
    let freedom = (variance.powi(2) / (of(a) + of(b))).max(1.0);
    let (p, quantile) = match StudentsT::new(0.0, 1.0, freedom) {
        Ok(student) if variance > 0.0 && variance.is_finite() => {
            (2.0 * student.sf((difference / variance.sqrt()).abs()), student.inverse_cdf(0.975))
        }
        // Series without any spread differ, or they do not.
        _ if variance == 0.0 => {
            let is_none = difference.abs() <= ROUNDING * a.value.abs().max(b.value.abs());
            (if is_none { 1.0 } else { 0.0 }, 0.0)
        }
        _ => (1.0, f64::INFINITY),
    };
    let factor = (a.value > 0.0 && b.value > 0.0).then(|| {
        let relative = (a.variance / a.value.powi(2) + b.variance / b.value.powi(2)).sqrt();
        let (middle, width) = (b.value / a.value, (quantile * relative).exp());
        Factor { middle, low: middle / width, high: middle * width }
    });
    Comparison { a, b, tau, p, factor }
}

/// The least rate of false discoveries at which each of these comparisons is one (Benjamini and Hochberg, 1995), in their
/// order.
pub fn false_discovery_rates(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|one, other| p[*one].total_cmp(&p[*other]));
    let mut rates = vec![1.0; p.len()];
    let mut least: f64 = 1.0;
    for (rank, at) in order.iter().enumerate().rev() {
        least = least.min(p[*at] * p.len() as f64 / (rank + 1) as f64);
        rates[*at] = least;
    }
    rates
}

/// Cliff's delta: the probability that a value of `b` is above one of `a`, less that of the reverse; -1 to 1.
/// It measures how far apart two sides are, and is not a test.
pub fn cliffs_delta(a: &[f64], b: &[f64]) -> Option<f64> {
    if a.is_empty() || b.is_empty() {
        return None;
    }
    let mut sorted = a.to_vec();
    sorted.sort_by(f64::total_cmp);
    let score = |value: &f64| {
        let below = sorted.partition_point(|one| one < value) as f64;
        let not_above = sorted.partition_point(|one| one <= value) as f64;
        below - (sorted.len() as f64 - not_above)
    };
    Some(b.iter().map(score).sum::<f64>() / (a.len() as f64 * b.len() as f64))
}

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
    pub fn too_short(&self, row: &DiffRow) -> Option<f64> {
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
    pub fn judge(&self, row: &DiffRow) -> Verdict {
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
    fn width(&self, row: &DiffRow) -> Option<(f64, f64)> {
        row.comparison.factor.map(|factor| (factor.low - 1.0, factor.high - 1.0))
    }
}

/// The values are equal, except for rounding.
fn is_none(row: &DiffRow) -> bool {
    let Comparison { a, b, .. } = row.comparison;
    (b.value - a.value).abs() <= ROUNDING * a.value.abs().max(b.value.abs())
}

/// A difference below this does not matter, whatever share of the value it is: one point of a share, and 0.01 of
/// instructions per cycle.
fn small(row: &DiffRow) -> f64 {
    match row.unit {
        Unit::Percent => 1.0,
        Unit::Ratio if row.better == Better::High => 0.01,
        _ => 0.0,
    }
}
