//! The numbers of a task that only count up.

use std::ops::{AddAssign, Index, IndexMut, SubAssign};

use crate::model::counters::{Counter, Scalars};
use crate::model::slots::Slots;
use crate::model::wire::{NodeCounts, SIBLINGS};

/// Everything about a task that only counts up. Sums of tasks are sums of these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// On-CPU time by node id, since numatop-ng first saw the task.
    pub run_ns: Vec<u64>,
    /// One number for each [`Counter`].
    pub scalars: Scalars,
    /// Perf counters, by slot; events are in [`crate::model::sample::HostFacts::events`].
    pub slots: Slots,
    /// Cycles and instructions by node id, as counted; empty where there is one node or no such counters.
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

    /// Forgets what the kernel counted before we looked: for a task that is older than our first sight of it.
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

    /// Applies `op` to each number and that of `other`; the shorter of two lists goes on with zeros.
    fn zip(&mut self, other: &Counts, op: impl Fn(&mut u64, u64)) {
        // All fields by name: one that is added and forgotten here does not compile.
        let Counts { run_ns, scalars, slots, by_node, pages, by_sibling } = other;
        zip_lists(&mut self.run_ns, run_ns, |mine, theirs| op(mine, *theirs));
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
        let zero = Counts {
            run_ns: vec![0; self.run_ns.len()],
            by_node: vec![NodeCounts::default(); self.by_node.len()],
            pages: vec![0; self.pages.len()],
            ..Counts::default()
        };
        self.zip(&zero, |mine, _| {
            if *mine > i64::MAX as u64 {
                *mine = 0;
            }
        });
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
