//! Free parts of our heap, and when they are given back: after a burst of tasks the C library would keep its size for good.

use std::time::{Duration, Instant};

use crate::sys::{self, HeapUse};

/// Time between two looks. Memory that is given back and taken again costs a page fault for each page, so that a program
/// whose size goes up and down all the time loses less than a hundredth of its time.
const EVERY: Duration = Duration::from_secs(20);

/// Free memory that came since the last look is worth giving back from this size on, bytes.
const WORTH_BYTES: u64 = 2 << 20;

/// Looks at the heap now and then.
#[derive(Debug, Default)]
pub struct Slack {
    due: Option<Instant>,
    /// The least that was free since something was given back; what was given back counts as free.
    least_free: Option<u64>,
}

impl Slack {
    /// Gives free parts of the heap back to the kernel where that is due and worth it.
    pub fn give_back(&mut self, now: Instant) {
        if self.due.is_some_and(|due| now < due) {
            return;
        }
        self.due = Some(now + EVERY);
        if sys::heap_use().is_some_and(|heap| self.is_worth_it(heap)) {
            sys::trim_heap();
        }
    }

    fn is_worth_it(&mut self, heap: HeapUse) -> bool {
        let least = self.least_free.map_or(heap.free, |least| least.min(heap.free));
        let is_worth_it = heap.free - least >= WORTH_BYTES;
        self.least_free = Some(if is_worth_it { heap.free } else { least });
        is_worth_it
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_once_after_each_burst() {
        let mut slack = Slack::default();
        let mut look =
            |in_use: u64, free: u64| slack.is_worth_it(HeapUse { in_use: in_use << 20, free: free << 20 });
        assert!(!look(5, 1));
        // The burst takes it all, and leaves it free.
        assert!(!look(60, 1));
        assert!(look(6, 55));
        // It was given back, and is still counted as free.
        assert!(!look(6, 55) && !look(6, 56));
        assert!(!look(58, 3));
        assert!(look(6, 55));
    }

    #[test]
    fn nothing_is_looked_at_before_it_is_due() {
        let mut slack = Slack::default();
        let began = Instant::now();
        slack.give_back(began);
        let due = slack.due;
        slack.give_back(began + EVERY / 2);
        assert_eq!(slack.due, due);
        slack.give_back(began + EVERY);
        assert!(slack.due > due);
    }
}
