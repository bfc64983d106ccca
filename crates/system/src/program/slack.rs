//! Free parts of our heap, and when they are given back: after a burst of tasks the C library would keep its size for good.

use std::time::{Duration, Instant};

/// The shortest time between two. Memory that is given back and taken again costs a page fault for each page.
/// So a program whose size goes up and down all the time loses less than a hundredth of its time.
const EVERY: Duration = Duration::from_secs(20);

/// It takes at most this part of our time, as a divisor.
const PART: u32 = 1000;

/// Gives memory back now and then, however little it may be.
///
/// The yield is unknown in advance: the C library counts free parts that were given back with all others. A
/// threshold over the unused memory after the previous trim would keep more from burst to burst, because a
/// trim amid a burst leaves much.
#[derive(Debug, Default)]
pub struct Slack {
    due: Option<Instant>,
}

impl Slack {
    /// Calls `trim` where that is due: the first time [`EVERY`] after the first call.
    pub fn give_back(&mut self, now: Instant, trim: impl FnOnce()) {
        let Some(due) = self.due else {
            self.due = Some(now + EVERY);
            return;
        };
        if now >= due {
            let began = Instant::now();
            trim();
            self.due = Some(now + pause(began.elapsed()));
        }
    }
}

/// Time to the next trim after one that took this time.
fn pause(took: Duration) -> Duration {
    EVERY.max(took * PART)
}

/// Whether a container with room for `capacity` things and `len` of them should give some of it back. Room
/// for `least` always stays, so that sizes that go up and down do not cause repeated allocations.
pub fn is_roomy(capacity: usize, len: usize, least: usize) -> bool {
    capacity > least && capacity / 8 > len
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_little_is_free_it_is_given_back_when_it_is_due() {
        let (mut slack, began) = (Slack::default(), Instant::now());
        let mut given_back = |at: Duration| {
            let mut called = false;
            slack.give_back(began + at, || called = true);
            called
        };
        assert!(!given_back(Duration::ZERO) && !given_back(EVERY / 2));
        assert!(given_back(EVERY));
        assert!(!given_back(EVERY * 3 / 2));
        assert!(given_back(EVERY * 2));
    }

    #[test]
    fn giving_back_a_large_heap_comes_less_often() {
        assert_eq!(pause(Duration::from_millis(1)), EVERY);
        assert_eq!(pause(Duration::from_millis(100)), Duration::from_secs(100));
    }
}
