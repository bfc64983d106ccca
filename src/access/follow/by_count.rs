//! The rule whether followed samples say shares by count or by time.

#![warn(missing_docs)]

/// Pairs below which nothing is said.
pub const PAIRS_MIN: usize = 100;
/// Correlation up to which one run of an instruction does not know where the next one goes.
const UNRELATED: f64 = 0.3;

/// The quantity that shares of followed samples divide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// Accesses: one run and the next one go to unrelated places.
    Count,
    /// Time: they go to the same, or there are too few pairs to tell.
    Time,
}

/// The rule: `pairs` says of the next run of an instruction and of the one after it whether they are remote (or in the
/// first of two places).
pub fn weight(pairs: &[(bool, bool)]) -> Weight {
    match correlation(pairs) {
        Some(correlation) if pairs.len() >= PAIRS_MIN && correlation.abs() <= UNRELATED => Weight::Count,
        _ => Weight::Time,
    }
}

/// Pearson's correlation of the two sides. `None` where one of them never changes: it says nothing then.
pub fn correlation(pairs: &[(bool, bool)]) -> Option<f64> {
    let n = pairs.len() as f64;
    let share = |of: fn(&(bool, bool)) -> bool| pairs.iter().filter(|pair| of(pair)).count() as f64 / n;
    let (one, other, both) = (share(|pair| pair.0), share(|pair| pair.1), share(|pair| pair.0 && pair.1));
    let spread = one * (1.0 - one) * other * (1.0 - other);
    (spread > 0.0).then(|| (both - one * other) / spread.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unrelated_places_are_by_count() {
        let pairs: Vec<(bool, bool)> = (0..200).map(|at| (at % 2 == 0, at % 4 < 2)).collect();
        assert_eq!(correlation(&pairs), Some(0.0));
        assert_eq!(weight(&pairs), Weight::Count);
    }

    #[test]
    fn runs_of_one_place_are_by_time() {
        let pairs: Vec<(bool, bool)> = (0..200).map(|at| (at < 90, at < 90)).collect();
        assert!((correlation(&pairs).unwrap() - 1.0).abs() < 1e-9);
        assert_eq!(weight(&pairs), Weight::Time);
        // Taking turns is as related as staying.
        let turns: Vec<(bool, bool)> = (0..200).map(|at| (at % 2 == 0, at % 2 == 1)).collect();
        assert_eq!(weight(&turns), Weight::Time);
    }

    #[test]
    fn few_pairs_and_one_place_say_nothing() {
        let few: Vec<(bool, bool)> = (0..99).map(|at| (at % 2 == 0, at % 4 < 2)).collect();
        assert_eq!(weight(&few), Weight::Time);
        assert_eq!(correlation(&[(true, true); 200]), None);
        assert_eq!(weight(&[(true, true); 200]), Weight::Time);
        assert_eq!(weight(&[]), Weight::Time);
    }
}
