//! Accesses that a PMU sampled, and the places that answered them.

#![warn(missing_docs)]

use std::collections::BTreeMap;

use super::class::AccessClass;
use super::latency::Latencies;
use crate::model::coded::{Count, Counted, coded};

/// Accesses of a process or a mapping. Their shares are those of sampled accesses: never of time, and never those of a
/// clock.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answers {
    /// Accesses by the place that answered.
    pub classes: BTreeMap<AccessClass, u64>,
    /// Accesses that memory of the own node answered, not a cache.
    pub local: MemoryAnswers,
    /// Accesses answered by memory of another node.
    pub remote: MemoryAnswers,
}

/// Accesses that memory answered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemoryAnswers {
    /// All of them.
    pub accesses: u64,
    /// Latencies of the accesses that have one.
    pub latencies: Latencies,
}

coded!(Answers { classes: Counted, local, remote });
coded!(MemoryAnswers { accesses: Count, latencies });

impl MemoryAnswers {
    fn add_all(&mut self, more: &MemoryAnswers) {
        self.accesses = self.accesses.saturating_add(more.accesses);
        self.latencies.add_all(&more.latencies);
    }
}

impl Answers {
    /// Adds an access that took `cycles`. `elsewhere`: whether its address is on another node than the CPU,
    /// if known. Where it contradicts the class, the address wins: the page has moved, or the class is
    /// coarse.
    pub fn add(&mut self, class: AccessClass, elsewhere: Option<bool>, cycles: Option<u32>) {
        *self.classes.entry(class).or_default() += 1;
        let Some(of_class) = class.memory_is_remote() else { return };
        let memory = if elsewhere.unwrap_or(of_class) { &mut self.remote } else { &mut self.local };
        memory.accesses += 1;
        // 0 is that of drivers that know none.
        cycles.filter(|cycles| *cycles > 0).into_iter().for_each(|cycles| memory.latencies.add(cycles));
    }

    /// Adds all accesses of `more`.
    pub fn add_all(&mut self, more: &Answers) {
        for (class, accesses) in &more.classes {
            let sum = self.classes.entry(*class).or_default();
            *sum = sum.saturating_add(*accesses);
        }
        self.local.add_all(&more.local);
        self.remote.add_all(&more.remote);
    }

    /// Accesses answered by memory of another node, and by any memory.
    pub fn memory(&self) -> (u64, u64) {
        (self.remote.accesses, self.remote.accesses.saturating_add(self.local.accesses))
    }

    /// Sampled accesses.
    pub fn accesses(&self) -> u64 {
        self.classes.values().fold(0, |sum, accesses| sum.saturating_add(*accesses))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_says_what_is_remote_and_the_class_where_it_does_not() {
        let mut answers = Answers::default();
        let near = AccessClass::Dram { remote: false };
        let far = AccessClass::Dram { remote: true };
        answers.add(near, Some(true), Some(400));
        answers.add(near, None, Some(200));
        answers.add(far, None, Some(0));
        answers.add(far, Some(false), None);
        answers.add(AccessClass::LocalCache { modified: false }, Some(true), Some(30));
        assert_eq!((answers.memory(), answers.accesses()), ((2, 4), 5));
        assert_eq!((answers.remote.latencies.loads(), answers.local.latencies.loads()), (1, 1));
        let mut twice = answers.clone();
        twice.add_all(&answers);
        assert_eq!((twice.memory(), twice.accesses()), ((4, 8), 10));
    }
}
