//! What came of a run: its last lines and its exit status.

use std::time::Duration;

use crate::story::Tally;

const FAILED: u8 = 1;
/// What ran passed, and something that was asked for did not run.
pub const PARTIAL: u8 = 3;

/// What came of all guests.
#[derive(Default)]
pub struct Sum {
    pub tally: Tally,
    /// Guests that failed apart from their cases, and why.
    pub broken: Vec<String>,
    /// Guests that were not started, and why.
    pub not_covered: Vec<String>,
}

impl Sum {
    /// The end of a run of this many guests.
    pub fn text(&self, guests: usize, took: Duration) -> String {
        let mut lines = Vec::new();
        lines.extend(self.broken.iter().map(|why| format!("guest failed: {why}")));
        lines.extend(self.not_covered.iter().map(|why| format!("not covered: {why}")));
        let Tally { passed, skipped, .. } = self.tally;
        let mut partial = Vec::new();
        if !self.not_covered.is_empty() {
            partial.push(format!("{} of {guests} guests were not covered", self.not_covered.len()));
        }
        if skipped > 0 {
            partial.push(format!("{skipped} cases were skipped"));
        }
        if !partial.is_empty() {
            lines.push(format!("PARTIAL: {}", partial.join(", ")));
        }
        lines.push(format!("{guests} guests in {:.0} s", took.as_secs_f64()));
        // The last line, and nothing else on it: other programs read it.
        lines.push(format!("{passed} passed, {} failed, {skipped} skipped", self.failed()));
        lines.iter().map(|line| format!("{line}\n")).collect()
    }

    /// The exit status: a run in which nothing passed has shown nothing, whatever the reason.
    pub fn status(&self) -> u8 {
        if self.failed() > 0 || self.tally.passed == 0 {
            FAILED
        } else if self.not_covered.is_empty() && self.tally.skipped == 0 {
            0
        } else {
            PARTIAL
        }
    }

    /// A guest that ends badly fails like a case, or the sum would hide it.
    fn failed(&self) -> u32 {
        self.tally.failed + self.broken.len() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(passed: u32, failed: u32, skipped: u32) -> Sum {
        Sum { tally: Tally { passed, failed, skipped }, ..Sum::default() }
    }

    #[test]
    fn only_a_run_in_which_all_ran_and_passed_is_0() {
        let status = |sum: Sum| sum.status();
        let why = || vec!["6.12 amd64, topology 2: QEMU ended".to_owned()];
        assert_eq!(status(sum(5, 0, 0)), 0);
        assert_eq!(status(sum(5, 1, 0)), 1);
        assert_eq!(status(Sum { broken: why(), ..sum(5, 0, 1) }), 1);
        assert_eq!(status(sum(5, 0, 1)), 3);
        assert_eq!(status(Sum { not_covered: why(), ..sum(5, 0, 0) }), 3);
    }

    #[test]
    fn a_run_in_which_nothing_passed_failed() {
        let why = vec!["7.x amd64, topology 2: no suite forky".to_owned()];
        assert_eq!(sum(0, 0, 0).status(), 1);
        assert_eq!(sum(0, 0, 2).status(), 1);
        assert_eq!(Sum { not_covered: why, ..Sum::default() }.status(), 1);
    }

    #[test]
    fn the_last_lines_say_what_is_missing_and_count_a_dead_guest() {
        let sum = Sum { broken: vec!["a: died".into()], not_covered: vec!["b: gone".into()], ..sum(5, 1, 2) };
        assert_eq!(
            sum.text(3, Duration::from_secs(90)),
            "guest failed: a: died\nnot covered: b: gone\n\
             PARTIAL: 1 of 3 guests were not covered, 2 cases were skipped\n\
             3 guests in 90 s\n5 passed, 2 failed, 2 skipped\n"
        );
    }
}
