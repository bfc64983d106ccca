//! Accesses that a PMU sampled, and the places that answered them.

#![warn(missing_docs)]

use std::collections::BTreeMap;

use super::latency::Latencies;
use crate::model::coded::varint::Malformed;
use crate::model::coded::{Coded, Count, Counted, In, Out, coded};

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

/// The place that answered an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AccessClass {
    /// The sampled instruction accessed no memory.
    NoAccess,
    /// A device.
    Device,
    /// A cache of the own node; `modified`: the line was dirty there.
    LocalCache {
        /// The line was dirty in that cache.
        modified: bool,
    },
    /// A cache of another node.
    RemoteCache {
        /// The line was dirty in that cache.
        modified: bool,
    },
    /// DRAM or persistent memory.
    Dram {
        /// It is that of another node.
        remote: bool,
    },
    /// Memory behind CXL.
    Cxl {
        /// It is that of another node.
        remote: bool,
    },
    /// Another node, cache or memory.
    Remote,
    /// A cache was missed; the place beyond is not known.
    LevelUnknown,
    /// Nothing is known.
    Unknown,
}

/// Its number among all; a later version may know more of them.
impl Coded for AccessClass {
    fn put<'v>(&'v self, out: &mut Out<'v>) {
        out.number(AccessClass::ALL.iter().position(|one| one == self).unwrap_or(0) as u64);
    }

    fn get(input: &mut In<'_, '_>) -> Result<AccessClass, Malformed> {
        let class = AccessClass::ALL.get(input.count(u32::MAX as usize)?);
        Ok(class.copied().unwrap_or(AccessClass::Unknown))
    }
}

impl AccessClass {
    /// All of them; recordings number them by their place here.
    pub const ALL: [AccessClass; 13] = [
        AccessClass::NoAccess,
        AccessClass::Device,
        AccessClass::LocalCache { modified: false },
        AccessClass::LocalCache { modified: true },
        AccessClass::RemoteCache { modified: false },
        AccessClass::RemoteCache { modified: true },
        AccessClass::Dram { remote: false },
        AccessClass::Dram { remote: true },
        AccessClass::Cxl { remote: false },
        AccessClass::Cxl { remote: true },
        AccessClass::Remote,
        AccessClass::LevelUnknown,
        AccessClass::Unknown,
    ];

    /// Its name in JSON.
    pub fn id(self) -> &'static str {
        match self {
            AccessClass::NoAccess => "no_access",
            AccessClass::Device => "device",
            AccessClass::LocalCache { modified: false } => "local_cache",
            AccessClass::LocalCache { modified: true } => "local_cache_modified",
            AccessClass::RemoteCache { modified: false } => "remote_cache",
            AccessClass::RemoteCache { modified: true } => "remote_cache_modified",
            AccessClass::Dram { remote: false } => "local_dram",
            AccessClass::Dram { remote: true } => "remote_dram",
            AccessClass::Cxl { remote: false } => "local_cxl",
            AccessClass::Cxl { remote: true } => "remote_cxl",
            AccessClass::Remote => "remote",
            AccessClass::LevelUnknown => "level_unknown",
            AccessClass::Unknown => "unknown",
        }
    }

    /// Memory, not a cache: whether it is that of another node. `None` for all else.
    pub fn memory_is_remote(self) -> Option<bool> {
        match self {
            AccessClass::Dram { remote } | AccessClass::Cxl { remote } => Some(remote),
            _ => None,
        }
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
