//! Free parts of our heap, and when they are given back: after a burst of tasks the C library would keep its size for good.

use std::time::{Duration, Instant};

use crate::sys;

/// Time between two looks. Memory that is given back and taken again costs a page fault for each page, so that a program
/// whose size goes up and down all the time loses less than a hundredth of its time.
const EVERY: Duration = Duration::from_secs(20);

/// Memory that nothing uses is worth giving back from this size on, bytes.
const WORTH_BYTES: u64 = 2 << 20;

/// Looks at our memory now and then.
///
/// Free parts of the heap say too little: each has memory behind it, or was given back before. A burst between two looks takes
/// and frees the same parts again, and leaves as much free as was there.
#[derive(Debug, Default)]
pub struct Slack {
    due: Option<Instant>,
    /// The least memory that nothing used, bytes: stacks, and what giving back could not reach.
    least: Option<u64>,
}

impl Slack {
    /// Gives free parts of the heap back to the kernel where that is due and worth it. `resident` has our memory without that of
    /// files, bytes.
    pub fn give_back(&mut self, now: Instant, resident: impl Fn() -> Option<u64>) {
        if self.due.is_some_and(|due| now < due) {
            return;
        }
        self.due = Some(now + EVERY);
        let unused = || Some(resident()?.saturating_sub(sys::heap_in_use()?));
        if unused().is_some_and(|unused| self.is_worth_it(unused)) {
            sys::trim_heap();
            self.least = unused();
        }
    }

    fn is_worth_it(&mut self, unused: u64) -> bool {
        let least = self.least.map_or(unused, |least| least.min(unused));
        self.least = Some(least);
        unused - least >= WORTH_BYTES
    }
}

/// Whether what has room for `capacity` things and holds `len` should give some of it back. Room for `least` always stays, so that
/// what grows and shrinks is not made anew over and over.
pub fn is_roomy(capacity: usize, len: usize, least: usize) -> bool {
    capacity > least && capacity / 8 > len
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_worth_giving_back_where_more_is_unused_than_ever_was() {
        let mut slack = Slack::default();
        let mut look = |unused: u64| slack.is_worth_it(unused << 20);
        assert!(!look(2) && !look(3));
        assert!(look(50));
        // Less is a better measure of what stays.
        assert!(!look(1));
        assert!(look(3));
    }

    #[test]
    fn what_giving_back_cannot_reach_is_not_tried_again() {
        let mut slack = Slack::default();
        let (began, used) = (Instant::now(), sys::heap_in_use().unwrap_or(0));
        // Sizes that the heap of this test does not reach.
        let looks = [(0, 0), (1, 1 << 40), (2, 1 << 40)];
        let least: Vec<u64> = looks
            .into_iter()
            .map(|(at, more)| {
                slack.give_back(began + EVERY * at, || Some(used + more));
                slack.least.unwrap_or(0)
            })
            .collect();
        assert!(least[0] < 1 << 30 && least[1] >= 1 << 39 && least[2] >= 1 << 39, "{least:?}");
    }

    #[test]
    fn nothing_is_looked_at_before_it_is_due() {
        let mut slack = Slack::default();
        let began = Instant::now();
        slack.give_back(began, || None);
        let due = slack.due;
        slack.give_back(began + EVERY / 2, || unreachable!("it is not due"));
        assert_eq!(slack.due, due);
        slack.give_back(began + EVERY, || None);
        assert!(slack.due > due);
    }
}
