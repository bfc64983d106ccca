//! The judgement whether clock samples fall behind the slow instruction on this CPU.

#![warn(missing_docs)]

use super::sample::Attribution;
use crate::model::sample::Missing;

/// Share of samples that must fall on one instruction.
const ENOUGH: f64 = 0.6;
/// Fewer samples than this give no result.
const SAMPLES_MIN: usize = 50;

/// Addresses of the two instructions that matter in the loop of the self-check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Landmarks {
    /// The slow load.
    pub load: u64,
    /// The instruction behind it.
    pub behind: u64,
}

/// The result of the samples of the loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict {
    /// Where to look for the instruction that held up the CPU.
    pub attribution: Attribution,
    /// Share of samples there, in per cent.
    pub pct: f64,
    /// Samples in user mode.
    pub samples: usize,
    /// False where the check refused and was overruled, by a test.
    pub is_checked: bool,
}

/// Judges the addresses at which a thread was interrupted in the loop.
///
/// # Errors
/// * [`Missing::NotCollected`]: samples are too few, or are divided between the two instructions. A busy
///   machine can be the cause, and another try may succeed.
/// * [`Missing::Unsupported`]: samples fall on other instructions.
pub fn judge(interrupted: &[u64], landmarks: Landmarks) -> Result<Verdict, Missing> {
    let samples = interrupted.len();
    if samples < SAMPLES_MIN {
        return Err(Missing::NotCollected(format!(
            "the self-check of the sampler got {samples} samples, but needs {SAMPLES_MIN}"
        )));
    }
    let share = |at: u64| interrupted.iter().filter(|ip| **ip == at).count() as f64 / samples as f64;
    let (behind, at) = (share(landmarks.behind), share(landmarks.load));
    let (attribution, share) =
        if behind >= ENOUGH { (Attribution::Behind, behind) } else { (Attribution::At, at) };
    if share < ENOUGH && behind + at >= ENOUGH {
        return Err(Missing::NotCollected(format!(
            "clock samples hit the instruction after a slow one ({:.0} %) and the slow one itself ({:.0} %): \
             one must reach {:.0} %; retry when the machine is less busy",
            100.0 * behind,
            100.0 * at,
            100.0 * ENOUGH
        )));
    }
    if share < ENOUGH {
        return Err(Missing::Unsupported(format!(
            "clock samples do not hit the instruction after a slow one on this CPU ({:.0} %)",
            100.0 * behind
        )));
    }
    Ok(Verdict { attribution, pct: 100.0 * share, samples, is_checked: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LANDMARKS: Landmarks = Landmarks { load: 10, behind: 14 };

    fn of(load: usize, behind: usize, other: usize) -> Result<Verdict, Missing> {
        let at = |ip: u64, count: usize| std::iter::repeat_n(ip, count);
        let interrupted: Vec<u64> = at(10, load).chain(at(14, behind)).chain(at(99, other)).collect();
        judge(&interrupted, LANDMARKS)
    }

    #[test]
    fn most_samples_decide() {
        assert_eq!(of(1, 90, 9).unwrap().attribution, Attribution::Behind);
        assert_eq!(of(90, 1, 9).unwrap().attribution, Attribution::At);
        assert_eq!(of(0, 60, 40).unwrap().pct, 60.0);
    }

    #[test]
    fn an_emulator_is_refused() {
        let why = of(0, 0, 2862).unwrap_err();
        assert!(why.to_string().contains("(0 %)"), "{why}");
    }

    #[test]
    fn divided_samples_are_worth_another_try() {
        let why = of(52, 46, 2).unwrap_err();
        assert!(matches!(why, Missing::NotCollected(_)), "{why}");
        assert!(why.to_string().contains("(46 %) and the slow one itself (52 %)"), "{why}");
        assert!(of(50, 50, 0).is_err());
        assert!(matches!(of(20, 30, 50), Err(Missing::Unsupported(_))));
    }

    #[test]
    fn few_samples_say_nothing() {
        assert!(matches!(of(0, 49, 0), Err(Missing::NotCollected(_))));
    }
}
