//! Counts of perf counters of a row. Most rows of most machines have none: those take no room.

use std::fmt;
use std::ops::{Deref, DerefMut};

use super::wire::SLOTS;

/// One perf counter of a row: raw count, and for how much of the time it could count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// Raw count, unscaled.
    pub count: u64,
    /// Time the event was wanted and time it was on the PMU, in ns of this row's on-CPU time. Both
    /// stay zero while nothing multiplexes.
    pub enabled_ns: u64,
    /// See `enabled_ns`.
    pub running_ns: u64,
}

/// Reads as a slice of [`SLOTS`] slots; becomes one on the heap when it is written to.
#[derive(Default)]
pub struct Slots(Option<Box<[Slot; SLOTS]>>);

static ZERO: [Slot; SLOTS] = [Slot { count: 0, enabled_ns: 0, running_ns: 0 }; SLOTS];

/// Adds each slot of `more` to that of `sum`. Values from a recording never overflow the sum.
pub fn add_slots(sum: &mut [Slot], more: &[Slot]) {
    for (sum, more) in sum.iter_mut().zip(more) {
        sum.count = sum.count.saturating_add(more.count);
        sum.enabled_ns = sum.enabled_ns.saturating_add(more.enabled_ns);
        sum.running_ns = sum.running_ns.saturating_add(more.running_ns);
    }
}

impl Slots {
    /// Bytes on the heap once something was written.
    pub const HEAP_BYTES: usize = size_of::<[Slot; SLOTS]>();

    /// Nothing was written, so that all are zero.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        if self.is_empty() { 0 } else { Slots::HEAP_BYTES }
    }

    /// Sets a value of a slot through `value`. Returns the bytes that this took from the heap.
    pub fn set(&mut self, at: usize, value: impl Fn(&mut Slot) -> &mut u64, to: u64) -> usize {
        let before = self.heap_bytes();
        if !self.is_empty() || to != 0 {
            *value(&mut self[at]) = to;
        }
        self.heap_bytes() - before
    }
}

impl Clone for Slots {
    fn clone(&self) -> Slots {
        Slots(self.0.clone())
    }

    /// Without a new allocation where both have one.
    fn clone_from(&mut self, other: &Slots) {
        self.0.clone_from(&other.0);
    }
}

impl Deref for Slots {
    type Target = [Slot];

    fn deref(&self) -> &[Slot] {
        self.0.as_deref().unwrap_or(&ZERO)
    }
}

impl DerefMut for Slots {
    fn deref_mut(&mut self) -> &mut [Slot] {
        &mut self.0.get_or_insert_with(|| Box::new(ZERO))[..]
    }
}

impl From<[Slot; SLOTS]> for Slots {
    fn from(slots: [Slot; SLOTS]) -> Slots {
        Slots((slots != ZERO).then(|| Box::new(slots)))
    }
}

impl PartialEq for Slots {
    fn eq(&self, other: &Slots) -> bool {
        self[..] == other[..]
    }
}

impl Eq for Slots {}

impl fmt::Debug for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_that_nothing_was_written_to_are_zero_and_take_no_room() {
        let empty = Slots::default();
        assert_eq!((empty.len(), empty.heap_bytes()), (SLOTS, 0));
        assert!(Slots::from(ZERO).is_empty());
        let mut written = empty.clone();
        written[1].count = 0;
        assert!(!written.is_empty());
        assert_eq!(written, empty);
        written[1].count = 7;
        assert_ne!(written, empty);
        assert_eq!(Slots::from(ZERO.map(|_| written[1]))[SLOTS - 1].count, 7);
    }

    #[test]
    fn zeros_of_a_recording_take_no_room_and_others_say_how_much() {
        let mut slots = Slots::default();
        assert_eq!(slots.set(2, |slot| &mut slot.count, 0), 0);
        assert!(slots.is_empty());
        assert_eq!(slots.set(2, |slot| &mut slot.count, 5), Slots::HEAP_BYTES);
        assert_eq!(slots.set(2, |slot| &mut slot.running_ns, 6), 0);
        assert_eq!(slots.set(2, |slot| &mut slot.count, 0), 0);
        assert_eq!(slots[2], Slot { count: 0, enabled_ns: 0, running_ns: 6 });
    }
}
