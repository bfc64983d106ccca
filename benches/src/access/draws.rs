//! Draws of a few samples of many: the number of times that the error of a share holds the truth. Pure.

use numatop_ng::collect::placement::draw::Random;
use numatop_ng::model::share::wilson_farther;

/// Samples of one draw: as many as a busy thread has in two seconds at the default rate.
pub const DRAW: usize = 200;
/// Draws.
const DRAWS: usize = 100;

/// Draws of a hundred whose share is as near the truth (per cent) as its own error says. `None` where there are fewer than
/// four times as many samples as in one draw: draws would be much the same.
pub fn holds(samples: &[bool], truth: f64, seed: u64) -> Option<usize> {
    if samples.len() < 4 * DRAW {
        return None;
    }
    let (mut samples, mut random) = (samples.to_vec(), Random(seed | 1));
    let mut holds = 0;
    for _ in 0..DRAWS {
        for at in 0..DRAW {
            let other = at + random.below((samples.len() - at) as u64) as usize;
            samples.swap(at, other);
        }
        let part = samples[..DRAW].iter().filter(|first| **first).count();
        let (share, error) = wilson_farther(part as f64, DRAW as f64)?;
        holds += usize::from((share - truth).abs() <= error);
    }
    Some(holds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_of_a_true_sample_hold_the_truth_and_those_of_another_do_not() {
        let samples: Vec<bool> = (0..3000).map(|at| at % 10 < 3).collect();
        let held = holds(&samples, 30.0, 7).unwrap();
        assert!((90..=100).contains(&held), "{held}");
        assert!(holds(&samples, 50.0, 7).unwrap() < 5);
        assert_eq!(holds(&samples[..799], 30.0, 7), None);
    }
}
