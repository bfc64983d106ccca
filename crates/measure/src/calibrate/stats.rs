//! One number of many: medians of rounds, and their errors.

pub use crate::model::profile::SURE;

/// Rounds at most, however far they are apart.
pub const MOST_ROUNDS: usize = 15;

/// A number and its error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Value {
    /// Median of the rounds.
    pub value: f64,
    /// Half the range of the middle rounds; `None` for a single round.
    pub error: Option<f64>,
}

impl Value {
    /// The value of these rounds; `None` without any. Their order does not matter.
    pub fn of(rounds: &[f64]) -> Option<Value> {
        let mut rounds: Vec<f64> = rounds.iter().copied().filter(|round| round.is_finite()).collect();
        rounds.sort_by(f64::total_cmp);
        let value = median_of_sorted(&rounds)?;
        // The outer quarters are left out: 1 of 5, 3 of 15.
        let outer = rounds.len() / 4;
        let middle = &rounds[outer..rounds.len() - outer];
        let error = (rounds.len() > 1).then(|| (middle[middle.len() - 1] - middle[0]) / 2.0);
        Some(Value { value, error })
    }

    /// Whether the error is small enough.
    pub fn is_sure(self) -> bool {
        self.error.is_some_and(|error| error <= SURE * self.value)
    }
}

/// The median of numbers in any order; `None` without any.
pub fn median(numbers: &[f64]) -> Option<f64> {
    let mut sorted: Vec<f64> = numbers.iter().copied().filter(|number| number.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    median_of_sorted(&sorted)
}

fn median_of_sorted(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        count if count % 2 == 1 => Some(sorted[middle]),
        _ => Some(sorted[middle - 1].midpoint(sorted[middle])),
    }
}

/// Whether more rounds are worth their time: at least `least`, then as long as the value is not sure.
pub fn wants_more(rounds: &[f64], least: usize) -> bool {
    rounds.len() < least || rounds.len() < MOST_ROUNDS && !Value::of(rounds).is_some_and(Value::is_sure)
}

/// Numbers in classes whose neighbours are more than a factor of `apart` from each other: counts, from the least number on.
pub fn classes(numbers: &[f64], apart: f64) -> Vec<u32> {
    let mut sorted: Vec<f64> = numbers.iter().copied().filter(|number| *number > 0.0).collect();
    sorted.sort_by(f64::total_cmp);
    sorted.chunk_by(|less, more| *more <= apart * *less).map(|class| class.len() as u32).collect()
}

/// Two peaks of numbers, each with more than a tenth of them, and a gap of more than 15 % between. Returns
/// the percentages of both, or nothing for a single peak.
pub fn two_peaks(numbers: &[f64]) -> Option<[f64; 2]> {
    const GAP: f64 = 1.15;
    const LEAST: f64 = 0.1;
    let mut sorted: Vec<f64> = numbers.iter().copied().filter(|number| *number > 0.0).collect();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len() as f64;
    let splits = (1..sorted.len()).filter(|at| sorted[*at] > GAP * sorted[at - 1]);
    let mut shares = splits.map(|at| at as f64 / count);
    let below = shares.find(|share| (LEAST..=1.0 - LEAST).contains(share))?;
    Some([100.0 * below, 100.0 * (1.0 - below)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_value_is_a_median_and_an_outlier_is_no_error() {
        let value = Value::of(&[100.0, 101.0, 99.0, 500.0, 100.0]).unwrap();
        assert_eq!(value, Value { value: 100.0, error: Some(0.5) });
        assert!(value.is_sure());
        assert!(!Value::of(&[100.0, 120.0, 90.0]).unwrap().is_sure());
        assert_eq!(
            Value::of(&[100.0]),
            Some(Value { value: 100.0, error: None }),
            "one round knows no error"
        );
        assert_eq!(Value::of(&[]), None);
        assert_eq!(Value::of(&[f64::NAN]), None);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn rounds_go_on_until_they_agree_or_are_fifteen() {
        assert!(wants_more(&[1.0; 4], 5));
        assert!(!wants_more(&[1.0; 5], 5));
        let wild: Vec<f64> = (0..15).map(|at| 100.0 + 10.0 * f64::from(at)).collect();
        assert!(wants_more(&wild[..5], 5) && wants_more(&wild[..14], 5));
        assert!(!wants_more(&wild, 5));
    }

    #[test]
    fn classes_are_a_factor_apart() {
        assert_eq!(classes(&[10.2, 28.0, 10.4, 26.0, 120.0], 1.7), [2, 2, 1]);
        assert_eq!(classes(&[82.0, 83.0], 1.7), [2]);
        assert_eq!(classes(&[], 1.7), [0; 0]);
    }

    #[test]
    fn peaks_have_a_gap_and_a_tenth_of_the_pages_each() {
        let mixed = |near: usize, far: usize| [vec![100.0; near], vec![140.0; far]].concat();
        assert_eq!(two_peaks(&mixed(50, 50)), Some([50.0, 50.0]));
        assert_eq!(two_peaks(&mixed(95, 5)), None);
        assert_eq!(two_peaks(&mixed(100, 0)), None);
        let slope: Vec<f64> = (0..100).map(|at| 100.0 + f64::from(at)).collect();
        assert_eq!(two_peaks(&slope), None, "a slope is no gap");
    }

    proptest! {
        #[test]
        fn an_order_of_rounds_changes_nothing(mut rounds in proptest::collection::vec(1.0..1000.0f64, 1..16), turn in 0..16usize) {
            let before = Value::of(&rounds);
            let turn = turn % rounds.len();
            rounds.rotate_left(turn);
            prop_assert_eq!(before, Value::of(&rounds));
            rounds.reverse();
            prop_assert_eq!(before, Value::of(&rounds));
            let value = before.unwrap();
            prop_assert!(rounds.iter().any(|round| *round <= value.value) && value.error.is_none_or(|error| error >= 0.0));
        }
    }
}
