//! Next runs of sampled instructions, added up by process: shares of accesses come from them, if anything.

use std::collections::{BTreeMap, BTreeSet};

/// Samples by the place of the next run of an instruction and that of the run after it.
pub type Pairs<T> = BTreeMap<(T, T), u64>;

/// The place of all mappings that are not listed: no mapping begins there.
const NOT_LISTED: u64 = 0;

/// Samples at memory accesses whose program was followed to the next run of the instruction.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NextRuns {
    /// Samples that were followed, however far.
    pub followed: u64,
    /// Samples of which the address of the next run is known.
    pub resolved: u64,
    /// Of the resolved ones: the instruction has overwritten its address, so that no other is known.
    pub gone_resolved: u64,
    /// Samples that were not followed, for want of time; chosen at random.
    pub left_out: u64,
    /// Whether the page is on another node than the CPU.
    pub by_remote: Pairs<bool>,
    /// The mapping, by its first address.
    pub by_mapping: Pairs<u64>,
}

impl NextRuns {
    /// Adds those of another interval.
    pub fn add(&mut self, more: &NextRuns) {
        self.followed += more.followed;
        self.resolved += more.resolved;
        self.gone_resolved += more.gone_resolved;
        self.left_out += more.left_out;
        more.by_remote.iter().for_each(|(pair, count)| *self.by_remote.entry(*pair).or_default() += count);
        more.by_mapping.iter().for_each(|(pair, count)| *self.by_mapping.entry(*pair).or_default() += count);
    }

    /// Makes one place of all mappings but those that begin at `listed` addresses.
    pub(super) fn list_only(&mut self, listed: &BTreeSet<u64>) {
        let place = |start: u64| if listed.contains(&start) { start } else { NOT_LISTED };
        for ((one, other), count) in std::mem::take(&mut self.by_mapping) {
            *self.by_mapping.entry((place(one), place(other))).or_default() += count;
        }
    }
}
