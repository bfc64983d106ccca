//! The result of a run: its last lines and its exit status.

use std::time::Duration;

use crate::transcript::Tally;

const FAILED: u8 = 1;
/// All cases that ran passed, and something that was asked for did not run.
pub const PARTIAL: u8 = 3;

/// The results of all guests.
#[derive(Default)]
pub struct Sum {
    /// Guests that were run to their end, or not covered.
    pub ended: usize,
    /// Guests that died before their ready line and were started a second time.
    pub booted_twice: u32,
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
        if self.ended < guests {
            partial.push(format!("{} of {guests} guests were not seen to their end", guests - self.ended));
        }
        if !partial.is_empty() {
            lines.push(format!("PARTIAL: {}", partial.join(", ")));
        }
        if self.booted_twice > 0 {
            lines.push(format!(
                "started once more, as they died before their ready line: {} guests",
                self.booted_twice
            ));
        }
        lines.push(format!("{guests} guests in {:.0} s", took.as_secs_f64()));
        // The last line, and nothing else on it: other programs read it.
        lines.push(format!("{passed} passed, {} failed, {skipped} skipped", self.failed()));
        lines.iter().map(|line| format!("{line}\n")).collect()
    }

    /// The exit status. A case that was planned and skipped is a mistake in the plan or in the case. A run in
    /// which nothing passed proves nothing, whatever the reason.
    pub fn status(&self) -> u8 {
        if self.failed() > 0 || self.tally.skipped > 0 || self.tally.passed == 0 {
            FAILED
        } else if self.not_covered.is_empty() {
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
        assert_eq!(status(sum(5, 0, 1)), 1);
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
    fn a_run_that_was_broken_off_says_so_before_its_last_line() {
        let why = "6.12 amd64, topology 2: writing /tmp/initrd: No space left on device";
        let sum = Sum { ended: 2, broken: vec![why.into()], ..sum(14, 0, 0) };
        let text = sum.text(35, Duration::from_secs(60));
        assert!(text.contains("\nPARTIAL: 33 of 35 guests were not seen to their end\n"), "{text}");
        assert!(text.ends_with("\n14 passed, 1 failed, 0 skipped\n"), "{text}");
        assert_eq!(sum.status(), 1);
    }

    #[test]
    fn the_last_lines_say_what_is_missing_and_count_a_dead_guest() {
        let (broken, not_covered) = (vec!["a: died".into()], vec!["b: gone".into()]);
        let sum = Sum { ended: 3, booted_twice: 1, broken, not_covered, ..sum(5, 1, 2) };
        assert_eq!(
            sum.text(3, Duration::from_secs(90)),
            "guest failed: a: died\nnot covered: b: gone\n\
             PARTIAL: 1 of 3 guests were not covered, 2 cases were skipped\n\
             started once more, as they died before their ready line: 1 guests\n\
             3 guests in 90 s\n5 passed, 2 failed, 2 skipped\n"
        );
    }
}
