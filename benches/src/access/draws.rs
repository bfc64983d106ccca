//! Draws of a few samples of many: the number of times that the error of a share holds the truth. Pure.

use numatop_ng::collect::placement::draw::Random;
use numatop_ng::model::share::{bounded, wilson_farther};

/// Samples of one draw: as many as a busy thread has in two seconds at the default rate.
pub const DRAW: usize = 200;
/// Draws.
const DRAWS: usize = 100;

/// Draws of a hundred that hold the truth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Held {
    /// The share is as near the truth as its own error claims.
    pub by_error: usize,
    /// The truth is between the bounds, in which samples without an address may be of either region.
    pub by_bounds: usize,
}

/// Draws that hold the truth (per cent). `unknown`: samples without an address for each that has one. `None` where there are fewer
/// than four times as many samples as in one draw: draws would be much the same.
pub fn holds(samples: &[bool], unknown: f64, truth: f64, seed: u64) -> Option<Held> {
    if samples.len() < 4 * DRAW {
        return None;
    }
    let (mut samples, mut random) = (samples.to_vec(), Random(seed | 1));
    let mut held = Held { by_error: 0, by_bounds: 0 };
    for _ in 0..DRAWS {
        for at in 0..DRAW {
            let other = at + random.below((samples.len() - at) as u64) as usize;
            samples.swap(at, other);
        }
        let part = samples[..DRAW].iter().filter(|first| **first).count();
        let (share, error) = wilson_farther(part as f64, DRAW as f64)?;
        held.by_error += usize::from((share - truth).abs() <= error);
        let (low, high) = bounded(part as f64, DRAW as f64, DRAW as f64 * (1.0 + unknown))?.range;
        held.by_bounds += usize::from((low..=high).contains(&truth));
    }
    Some(held)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_of_a_true_sample_hold_the_truth_and_those_of_another_do_not() {
        let samples: Vec<bool> = (0..3000).map(|at| at % 10 < 3).collect();
        let held = holds(&samples, 0.0, 30.0, 7).unwrap();
        assert!((90..=100).contains(&held.by_error) && held.by_bounds >= 90, "{held:?}");
        let other = holds(&samples, 0.0, 50.0, 7).unwrap();
        assert!(other.by_error < 5 && other.by_bounds < 5, "{other:?}");
        // Half as many samples without an address may all be of the first region.
        assert!(holds(&samples, 0.5, 50.0, 7).unwrap().by_bounds > 50);
        assert_eq!(holds(&samples[..799], 0.0, 30.0, 7), None);
    }
}
