//! The rule whether followed samples say shares by count or by time.

#![warn(missing_docs)]

use std::collections::BTreeMap;
use std::fmt;

use crate::model::access::MemoryUse;
use crate::model::access::next_runs::{GaveUp, Pairs};

/// Fewer samples than this give no result.
pub const SAMPLES_MIN: f64 = 100.0;
/// Share of followed samples whose next run is known, at least, in per cent.
pub const RESOLVED_MIN_PCT: u64 = 80;
/// Fewer pairs than this give no result.
pub const PAIRS_MIN: u64 = 100;
/// Correlation up to which one run of an instruction does not know where the next one goes.
pub const UNRELATED: f64 = 0.3;

/// The facts that the rule looks at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evidence {
    /// Samples whose places are known; unresolved ones count with their own address.
    pub samples: f64,
    /// Samples that were followed.
    pub followed: u64,
    /// Samples whose next run has a known address.
    pub resolved: u64,
    /// The reason of most samples without one.
    pub end: Option<GaveUp>,
    /// Samples whose next two runs have known places.
    pub pairs: u64,
    /// Correlation of the two; `None` where one of them never changes.
    pub correlation: Option<f64>,
}

/// The reason why shares are by time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ByTime {
    /// Too few samples: this many are needed.
    FewSamples(f64),
    /// This percentage of the samples is resolved; most of the others end so.
    Unresolved(f64, Option<GaveUp>),
    /// Too few pairs to correlate.
    FewPairs(u64),
    /// Only one place is accessed: nothing to correlate.
    OnePlace,
    /// The next run goes where this one went, or never does.
    Correlated(f64),
}

impl fmt::Display for ByTime {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ByTime::FewSamples(samples) => {
                write!(
                    to,
                    "too few samples: {samples:.0} were followed and located, {SAMPLES_MIN} are needed"
                )
            }
            ByTime::Unresolved(pct, end) => {
                write!(
                    to,
                    "unresolved: the next access is known for {pct:.0} % of the samples, {RESOLVED_MIN_PCT} % are needed"
                )?;
                end.map_or(Ok(()), |end| write!(to, "; most of the rest end at {}", end.words()))
            }
            ByTime::FewPairs(pairs) => {
                write!(
                    to,
                    "too few samples: the next two accesses are known for {pairs}, {PAIRS_MIN} are needed"
                )
            }
            ByTime::OnePlace => write!(to, "too few places: all next accesses go to one place"),
            ByTime::Correlated(correlation) => write!(
                to,
                "correlated: an access predicts the place of the next one (correlation {correlation:.2}, limit {UNRELATED})"
            ),
        }
    }
}

impl Evidence {
    /// Of the places remote and local.
    pub fn of_remote(found: &MemoryUse) -> Evidence {
        Evidence::new(found, found.remote_by_count().1, &found.next_runs.by_remote)
    }

    /// Of mappings.
    pub fn of_mappings(found: &MemoryUse) -> Evidence {
        Evidence::new(found, found.placed_by_count(), &found.next_runs.by_mapping)
    }

    fn new<T: Copy + Ord>(found: &MemoryUse, samples: f64, pairs: &Pairs<T>) -> Evidence {
        Evidence {
            samples,
            followed: found.next_runs.followed,
            resolved: found.next_runs.resolved,
            end: found.next_runs.ends.iter().max_by_key(|(_, count)| **count).map(|(why, _)| *why),
            pairs: pairs.values().sum(),
            correlation: correlation(pairs),
        }
    }
}

/// Whether shares are shares of accesses.
///
/// # Errors
/// Why they are shares of time.
pub fn by_count(evidence: &Evidence) -> Result<(), ByTime> {
    if evidence.samples < SAMPLES_MIN {
        return Err(ByTime::FewSamples(evidence.samples));
    }
    if evidence.resolved * 100 < evidence.followed * RESOLVED_MIN_PCT {
        return Err(ByTime::Unresolved(
            100.0 * evidence.resolved as f64 / evidence.followed as f64,
            evidence.end,
        ));
    }
    if evidence.pairs < PAIRS_MIN {
        return Err(ByTime::FewPairs(evidence.pairs));
    }
    match evidence.correlation {
        None => Err(ByTime::OnePlace),
        Some(correlation) if correlation.abs() > UNRELATED => Err(ByTime::Correlated(correlation)),
        Some(_) => Ok(()),
    }
}

/// Correlation of the two sides of pairs: for two places Pearson's, for more that of all their indicators
/// together. `None` if one of the sides never changes: the correlation is undefined then.
pub fn correlation<T: Copy + Ord>(pairs: &Pairs<T>) -> Option<f64> {
    let n = pairs.values().sum::<u64>() as f64;
    let mut sides: BTreeMap<T, [f64; 2]> = BTreeMap::new();
    let mut same = 0.0;
    for ((one, other), count) in pairs {
        let share = *count as f64 / n;
        sides.entry(*one).or_default()[0] += share;
        sides.entry(*other).or_default()[1] += share;
        same += if one == other { share } else { 0.0 };
    }
    let sum = |of: fn(&[f64; 2]) -> f64| sides.values().map(of).sum::<f64>();
    let by_chance = sum(|share| share[0] * share[1]);
    let spread = (1.0 - sum(|share| share[0] * share[0])) * (1.0 - sum(|share| share[1] * share[1]));
    // Shares add up to one, except for rounding.
    (n > 0.0 && spread > 1e-12).then(|| (same - by_chance) / spread.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENOUGH: Evidence = Evidence {
        samples: 100.0,
        followed: 100,
        resolved: 80,
        end: None,
        pairs: 100,
        correlation: Some(0.3),
    };

    #[test]
    fn all_conditions_at_their_edge_are_by_count() {
        assert_eq!(by_count(&ENOUGH), Ok(()));
        assert_eq!(by_count(&Evidence { correlation: Some(-0.3), ..ENOUGH }), Ok(()));
    }

    #[test]
    fn fewer_samples_are_too_few() {
        assert_eq!(by_count(&Evidence { samples: 99.5, ..ENOUGH }), Err(ByTime::FewSamples(99.5)));
        let none =
            Evidence { samples: 0.0, followed: 0, resolved: 0, end: None, pairs: 0, correlation: None };
        assert_eq!(by_count(&none), Err(ByTime::FewSamples(0.0)));
    }

    #[test]
    fn fewer_that_are_resolved_are_by_time() {
        let few = by_count(&Evidence { resolved: 79, end: Some(GaveUp::Branch), ..ENOUGH }).unwrap_err();
        assert_eq!(few, ByTime::Unresolved(79.0, Some(GaveUp::Branch)));
        assert!(few.to_string().ends_with("; most of the rest end at unknown branches"), "{few}");
        assert!(by_count(&Evidence { followed: 1001, resolved: 801, ..ENOUGH }).is_ok());
        assert!(by_count(&Evidence { followed: 1001, resolved: 800, ..ENOUGH }).is_err());
    }

    #[test]
    fn fewer_pairs_are_too_few() {
        assert_eq!(by_count(&Evidence { pairs: 99, ..ENOUGH }), Err(ByTime::FewPairs(99)));
    }

    #[test]
    fn related_runs_are_by_time() {
        for correlation in [0.301, -0.301, 1.0, -1.0] {
            let related = Evidence { correlation: Some(correlation), ..ENOUGH };
            assert_eq!(by_count(&related), Err(ByTime::Correlated(correlation)));
        }
        assert_eq!(by_count(&Evidence { correlation: None, ..ENOUGH }), Err(ByTime::OnePlace));
    }

    #[test]
    fn two_places_have_the_correlation_of_pearson() {
        let even =
            Pairs::from([((false, false), 50), ((false, true), 50), ((true, false), 50), ((true, true), 50)]);
        assert_eq!(correlation(&even), Some(0.0));
        let near = |pairs: Pairs<bool>, expected: f64| {
            let found = correlation(&pairs).unwrap();
            assert!((found - expected).abs() < 1e-9, "{found} {expected}");
        };
        near(Pairs::from([((false, false), 110), ((true, true), 90)]), 1.0);
        near(Pairs::from([((false, true), 100), ((true, false), 100)]), -1.0);
        // (0.4 - 0.5 * 0.6) / sqrt(0.25 * 0.24)
        near(
            Pairs::from([((true, true), 40), ((true, false), 10), ((false, true), 20), ((false, false), 30)]),
            0.1 / 0.06_f64.sqrt(),
        );
    }

    #[test]
    fn more_places_are_correlated_together() {
        let all = |count: fn(u64, u64) -> u64| -> Pairs<u64> {
            (0..3).flat_map(|one| (0..3).map(move |other| ((one, other), count(one, other)))).collect()
        };
        assert!(correlation(&all(|_, _| 20)).unwrap().abs() < 1e-9);
        assert!((correlation(&all(|one, other| u64::from(one == other) * 20)).unwrap() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn one_place_says_nothing() {
        assert_eq!(correlation(&Pairs::from([((true, true), 200)])), None);
        assert_eq!(correlation(&Pairs::from([((true, true), 100), ((true, false), 100)])), None);
        assert_eq!(correlation::<bool>(&Pairs::new()), None);
    }
}
