//! The numbers of a task that only count up, and counts of perf counters of a row. Most rows of most machines have none of the
//! latter: those take no room.

use std::fmt;
use std::ops::{AddAssign, Deref, DerefMut, Index, IndexMut, SubAssign};

use super::wire::SLOTS;
use crate::model::counters::{Counter, Scalars};
use crate::model::wire::{NodeCounts, SIBLINGS};

/// Everything about a task that only counts up. Sums of tasks are sums of these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// On-CPU time by node id, since numatop-ng first saw the task.
    pub run_ns: Vec<u64>,
    /// The same by place ([`crate::model::topology::Place`]); empty where places are the nodes.
    pub by_place: Vec<u64>,
    /// One number for each [`Counter`].
    pub scalars: Scalars,
    /// Perf counters, by slot; events are in [`crate::model::sample::HostFacts::events`].
    pub slots: Slots,
    /// Cycles and instructions by node id, as counted; empty with one node or without such counters.
    pub by_node: Vec<NodeCounts>,
    /// Pages it was given for user space, by node of the page; empty where they are not counted.
    pub pages: Vec<u64>,
    /// Cycles and instructions of stretches in which the SMT siblings were idle, and in which one was busy; all 0
    /// without SMT.
    pub by_sibling: [NodeCounts; SIBLINGS],
}

impl Counts {
    /// On-CPU time on all nodes, in ns.
    pub fn cpu_ns(&self) -> u64 {
        self.run_ns.iter().fold(0, |sum, ns| sum.wrapping_add(*ns))
    }

    /// Drops the counts from before the first sample, for a task that is older than it.
    pub fn without_lifetime(&self) -> Counts {
        Counts { scalars: self.scalars.without_lifetime(), ..self.clone() }
    }

    /// Counts of the kernel since the task was born, whether we looked or not: the rest of
    /// [`Counts::without_lifetime`].
    pub fn lifetime(&self) -> Counts {
        let mut lifetime = self.clone();
        lifetime -= &self.without_lifetime();
        lifetime
    }

    /// The counts that `each` makes of these; it makes zero of zero.
    pub fn map(&self, each: impl Fn(u64) -> u64) -> Counts {
        let mut mapped = self.clone();
        mapped.zip(self, |mine, theirs| *mine = each(theirs));
        mapped
    }

    /// Applies `op` to each number and that of `other`; the shorter of two lists is extended with zeros.
    fn zip(&mut self, other: &Counts, op: impl Fn(&mut u64, u64)) {
        // All fields by name: one that is added and forgotten here does not compile.
        let Counts { run_ns, by_place, scalars, slots, by_node, pages, by_sibling } = other;
        zip_lists(&mut self.run_ns, run_ns, |mine, theirs| op(mine, *theirs));
        zip_lists(&mut self.by_place, by_place, |mine, theirs| op(mine, *theirs));
        zip_lists(&mut self.pages, pages, |mine, theirs| op(mine, *theirs));
        let both = |mine: &mut NodeCounts, theirs: &NodeCounts| {
            op(&mut mine.cycles, theirs.cycles);
            op(&mut mine.instructions, theirs.instructions);
        };
        zip_lists(&mut self.by_node, by_node, both);
        for (mine, theirs) in self.by_sibling.iter_mut().zip(by_sibling) {
            both(mine, theirs);
        }
        // An operation on two zeros gives zero.
        if !self.slots.is_empty() || !slots.is_empty() {
            for (mine, theirs) in self.slots.iter_mut().zip(&slots[..]) {
                op(&mut mine.count, theirs.count);
                op(&mut mine.enabled_ns, theirs.enabled_ns);
                op(&mut mine.running_ns, theirs.running_ns);
            }
        }
        for (mine, theirs) in self.scalars.values_mut().iter_mut().zip(scalars.values()) {
            op(mine, *theirs);
        }
    }

    /// Turns what went below zero in wrapping arithmetic into zero: a row never shows a negative rate.
    pub fn clamp(&mut self) {
        self.change_all(|number| {
            if *number > i64::MAX as u64 {
                *number = 0;
            }
        });
    }

    /// Lengths of the lists.
    fn lengths(&self) -> [usize; 4] {
        [self.run_ns.len(), self.by_place.len(), self.pages.len(), self.by_node.len()]
    }

    /// Adds the difference between two counts of one task, in one pass over their numbers. Wrapping, as both additions are.
    pub fn add_difference(&mut self, now: &Counts, before: &Counts) {
        // A list that is longer in one of them is rare, and so is a counter that only one of them has.
        if now.lengths() != before.lengths() || now.slots.is_empty() != before.slots.is_empty() {
            *self += now;
            *self -= before;
            return;
        }
        // All fields by name: one that is added and forgotten here does not compile.
        let Counts { run_ns, by_place, scalars, slots, by_node, pages, by_sibling } = self;
        let op = |mine: &mut u64, now: u64, before: u64| {
            *mine = mine.wrapping_add(now.wrapping_sub(before));
        };
        let both = |mine: &mut NodeCounts, now: &NodeCounts, before: &NodeCounts| {
            op(&mut mine.cycles, now.cycles, before.cycles);
            op(&mut mine.instructions, now.instructions, before.instructions);
        };
        zip_differences(run_ns, &now.run_ns, &before.run_ns, |mine, now, before| op(mine, *now, *before));
        zip_differences(by_place, &now.by_place, &before.by_place, |mine, now, before| {
            op(mine, *now, *before);
        });
        zip_differences(pages, &now.pages, &before.pages, |mine, now, before| op(mine, *now, *before));
        zip_differences(by_node, &now.by_node, &before.by_node, both);
        for ((mine, now), before) in by_sibling.iter_mut().zip(&now.by_sibling).zip(&before.by_sibling) {
            both(mine, now, before);
        }
        if !now.slots.is_empty() {
            for ((mine, now), before) in slots.iter_mut().zip(&now.slots[..]).zip(&before.slots[..]) {
                op(&mut mine.count, now.count, before.count);
                op(&mut mine.enabled_ns, now.enabled_ns, before.enabled_ns);
                op(&mut mine.running_ns, now.running_ns, before.running_ns);
            }
        }
        let scalars = scalars.values_mut().iter_mut();
        for ((mine, now), before) in scalars.zip(now.scalars.values()).zip(before.scalars.values()) {
            op(mine, *now, *before);
        }
    }

    /// The difference between two counts of one task: what [`Counts::add_difference`] makes of zeros, in one pass.
    pub fn difference(now: &Counts, before: &Counts) -> Counts {
        if now.lengths() != before.lengths() || now.slots.is_empty() != before.slots.is_empty() {
            let mut counts = now.clone();
            counts -= before;
            return counts;
        }
        let numbers = |now: &[u64], before: &[u64]| -> Vec<u64> {
            now.iter().zip(before).map(|(now, before)| now.wrapping_sub(*before)).collect()
        };
        let both = |now: &NodeCounts, before: &NodeCounts| NodeCounts {
            cycles: now.cycles.wrapping_sub(before.cycles),
            instructions: now.instructions.wrapping_sub(before.instructions),
        };
        let (mut scalars, mut slots) = (now.scalars, now.slots.clone());
        for (mine, before) in scalars.values_mut().iter_mut().zip(before.scalars.values()) {
            *mine = mine.wrapping_sub(*before);
        }
        if !slots.is_empty() {
            for (mine, before) in slots.iter_mut().zip(&before.slots[..]) {
                mine.count = mine.count.wrapping_sub(before.count);
                mine.enabled_ns = mine.enabled_ns.wrapping_sub(before.enabled_ns);
                mine.running_ns = mine.running_ns.wrapping_sub(before.running_ns);
            }
        }
        // All fields by name: one that is added and forgotten here does not compile.
        Counts {
            run_ns: numbers(&now.run_ns, &before.run_ns),
            by_place: numbers(&now.by_place, &before.by_place),
            scalars,
            slots,
            by_node: now.by_node.iter().zip(&before.by_node).map(|(now, before)| both(now, before)).collect(),
            pages: numbers(&now.pages, &before.pages),
            by_sibling: std::array::from_fn(|at| both(&now.by_sibling[at], &before.by_sibling[at])),
        }
    }

    /// Applies `change` to each number except zero.
    fn change_all(&mut self, change: impl Fn(&mut u64)) {
        let Counts { run_ns, by_place, scalars, slots, by_node, pages, by_sibling } = self;
        run_ns.iter_mut().chain(by_place).chain(pages).chain(scalars.values_mut()).for_each(&change);
        for node in by_node.iter_mut().chain(by_sibling) {
            change(&mut node.cycles);
            change(&mut node.instructions);
        }
        if !slots.is_empty() {
            for slot in slots.iter_mut() {
                change(&mut slot.count);
                change(&mut slot.enabled_ns);
                change(&mut slot.running_ns);
            }
        }
    }
}

fn zip_lists<T: Clone + Default>(mine: &mut Vec<T>, theirs: &[T], op: impl Fn(&mut T, &T)) {
    if mine.len() < theirs.len() {
        mine.resize(theirs.len(), T::default());
    }
    for (mine, theirs) in mine.iter_mut().zip(theirs) {
        op(mine, theirs);
    }
}

fn zip_differences<T: Clone + Default>(
    mine: &mut Vec<T>,
    now: &[T],
    before: &[T],
    op: impl Fn(&mut T, &T, &T),
) {
    if mine.len() < now.len() {
        mine.resize(now.len(), T::default());
    }
    for ((mine, now), before) in mine.iter_mut().zip(now).zip(before) {
        op(mine, now, before);
    }
}

impl Index<Counter> for Counts {
    type Output = u64;

    fn index(&self, counter: Counter) -> &u64 {
        &self.scalars[counter]
    }
}

impl IndexMut<Counter> for Counts {
    fn index_mut(&mut self, counter: Counter) -> &mut u64 {
        &mut self.scalars[counter]
    }
}

impl<const N: usize> From<[(Counter, u64); N]> for Counts {
    /// The numbers of these counters; all others are zero.
    fn from(numbers: [(Counter, u64); N]) -> Counts {
        Counts { scalars: numbers.into(), ..Counts::default() }
    }
}

impl Counts {
    /// The same with these numbers in place of those of their counters.
    #[must_use]
    pub fn with<const N: usize>(mut self, numbers: [(Counter, u64); N]) -> Counts {
        for (counter, number) in numbers {
            self[counter] = number;
        }
        self
    }
}

impl AddAssign<&Counts> for Counts {
    /// Wrapping, so that sums of differences come out right whatever their order.
    fn add_assign(&mut self, other: &Counts) {
        self.zip(other, |mine, theirs| *mine = mine.wrapping_add(theirs));
    }
}

impl SubAssign<&Counts> for Counts {
    /// Wrapping: see [`Counts::clamp`].
    fn sub_assign(&mut self, other: &Counts) {
        self.zip(other, |mine, theirs| *mine = mine.wrapping_sub(theirs));
    }
}

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
    use crate::model::sample::Slot;

    fn counts(lists: usize, has_slots: bool, mut number: u64) -> Counts {
        let mut next = || {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            number
        };
        let mut counts = Counts {
            run_ns: (0..lists).map(|_| next()).collect(),
            by_place: (0..lists).map(|_| next()).collect(),
            pages: (0..lists).map(|_| next()).collect(),
            by_node: (0..lists).map(|_| NodeCounts { cycles: next(), instructions: next() }).collect(),
            by_sibling: [NodeCounts { cycles: next(), instructions: next() }; SIBLINGS],
            ..Counts::default()
        };
        counts.scalars.values_mut().iter_mut().for_each(|value| *value = next());
        if has_slots {
            counts.slots[1] = Slot { count: next(), enabled_ns: next(), running_ns: next() };
        }
        counts
    }

    #[test]
    fn a_difference_is_one_sum_and_one_difference() {
        for (mine, now, before) in [(0, 3, 3), (3, 3, 3), (5, 3, 3), (2, 3, 1), (2, 1, 3)] {
            for slots in
                [[false; 3], [true; 3], [false, true, true], [false, true, false], [true, false, true]]
            {
                let sum = counts(mine, slots[0], 7);
                let (now, before) = (counts(now, slots[1], 8), counts(before, slots[2], 9));
                let mut at_once = sum.clone();
                at_once.add_difference(&now, &before);
                let mut by_turns = sum;
                by_turns += &now;
                by_turns -= &before;
                let mut of_zeros = Counts::default();
                of_zeros.add_difference(&now, &before);
                assert_eq!(Counts::difference(&now, &before), of_zeros);
                assert_eq!(at_once, by_turns);
                at_once.clamp();
                let clamped = by_turns.map(|number| if number > i64::MAX as u64 { 0 } else { number });
                assert_eq!(at_once, clamped);
            }
        }
    }

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
