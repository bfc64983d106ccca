//! The error of a share that was found in samples.

#![warn(missing_docs)]

/// Share of `part` in `whole` samples in percent, and half the width of its 95 % interval after Wilson
/// (1927). That interval is right for few samples too. `None` without samples. Samples may count in parts.
pub fn wilson(part: f64, whole: f64) -> Option<(f64, f64)> {
    const Z: f64 = 1.96;
    if whole <= 0.0 {
        return None;
    }
    let p = (part / whole).clamp(0.0, 1.0);
    let half = Z * (p * (1.0 - p) / whole + Z * Z / (4.0 * whole * whole)).sqrt() / (1.0 + Z * Z / whole);
    Some((100.0 * p, 100.0 * half))
}

/// Share of `part` in `whole` samples in percent, and the distance to the farther end of the same interval.
/// The interval is asymmetric near 0 and 100 %, so this error, applied to both sides, covers the truth in 95
/// of 100 cases there too. `None` without samples. Samples may count in parts.
pub fn wilson_farther(part: f64, whole: f64) -> Option<(f64, f64)> {
    const Z: f64 = 1.96;
    let (pct, half) = wilson(part, whole)?;
    let p = pct / 100.0;
    let middle = (p + Z * Z / (2.0 * whole)) / (1.0 + Z * Z / whole);
    Some((pct, half + 100.0 * (middle - p).abs()))
}

/// A share with bounds, because some samples do not count for or against it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounded {
    /// Share of the samples that say something, in percent.
    pub pct: f64,
    /// Distance to the farther end of its 95 % interval, in points.
    pub error: f64,
    /// The least and the greatest possible share, in percent: the other samples belong to it not at all, or
    /// all of them do.
    pub range: (f64, f64),
}

/// The share of `part` in `known` samples, where there are `all`. `None` without samples.
pub fn bounded(part: f64, known: f64, all: f64) -> Option<Bounded> {
    let (pct, error) = wilson_farther(part, known)?;
    let says = (known / all.max(known)).min(1.0);
    let low = (pct - error).max(0.0) * says;
    let high = (pct + error).min(100.0) * says + 100.0 * (1.0 - says);
    Some(Bounded { pct, error, range: (low, high.min(100.0)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_that_say_nothing_widen_the_range() {
        assert_eq!(bounded(0.0, 0.0, 100.0), None);
        let all = bounded(300.0, 400.0, 400.0).unwrap();
        assert_eq!((all.pct, all.range), (75.0, (75.0 - all.error, 75.0 + all.error)));
        // A fifth of the samples is not known.
        let some = bounded(300.0, 400.0, 500.0).unwrap();
        assert_eq!((some.pct, some.error), (all.pct, all.error));
        let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found} {expected}");
        near(some.range.0, 0.8 * (75.0 - all.error));
        near(some.range.1, 0.8 * (75.0 + all.error) + 20.0);
        assert_eq!(bounded(400.0, 400.0, 500.0).unwrap().range.1, 100.0);
        assert_eq!(bounded(4.0, 8.0, 3.0).unwrap().range, bounded(4.0, 8.0, 8.0).unwrap().range, "hostile");
    }

    #[test]
    fn errors_are_those_of_the_interval() {
        assert_eq!(wilson(0.0, 0.0), None);
        let (pct, error) = wilson(485.0, 970.0).unwrap();
        assert!((pct - 50.0).abs() < 1e-9 && (3.13..3.15).contains(&error), "{pct} {error}");
        assert!(wilson(100.0, 100.0).unwrap().1 > 0.0, "all of a hundred do not prove that it is all");
    }

    /// Share of samples of each size that hold the true share, by the binomial distribution, in per cent.
    fn holds(p: f64, n: u32, error: fn(f64, f64) -> Option<(f64, f64)>) -> f64 {
        // Logarithms: the chance of none of 500 is too small for a number.
        let mut chance = f64::from(n) * (1.0 - p).ln();
        let mut sum = 0.0;
        for part in 0..=n {
            let (pct, error) = error(f64::from(part), f64::from(n)).unwrap();
            if (pct - 100.0 * p).abs() <= error {
                sum += chance.exp();
            }
            chance += (f64::from(n - part) / f64::from(part + 1) * p / (1.0 - p)).ln();
        }
        100.0 * sum
    }

    #[test]
    fn the_farther_end_holds_shares_near_the_ends_too() {
        for p in [0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 0.95, 0.98, 0.99] {
            for n in [100, 150, 200, 300, 500] {
                let (farther, half) = (holds(p, n, wilson_farther), holds(p, n, wilson));
                assert!(farther >= 92.5 && farther >= half, "{p} of {n}: {farther}");
            }
        }
        let mean = |error| {
            let all = [0.05, 0.1, 0.3, 0.5, 0.9].map(|p| holds(p, 200, error));
            all.iter().sum::<f64>() / all.len() as f64
        };
        assert!(mean(wilson_farther) >= 95.0 && mean(wilson) < 95.0);
    }

    #[test]
    fn the_farther_end_of_all_or_none_is_that_of_the_interval() {
        assert_eq!(wilson_farther(0.0, 0.0), None);
        // Wilson: 0 of 100 is 0 to 3.70 %.
        assert!((3.6..3.8).contains(&wilson_farther(0.0, 100.0).unwrap().1));
        assert!((3.13..3.15).contains(&wilson_farther(485.0, 970.0).unwrap().1), "even in the middle");
    }
}
