//! Next runs of sampled instructions, added up by process: shares of accesses come from them, if anything.

use std::collections::{BTreeMap, BTreeSet};

/// Samples by the place of the next run of an instruction and that of the run after it.
pub type Pairs<T> = BTreeMap<(T, T), u64>;

/// The place of all mappings that are not listed: no mapping begins there.
const NOT_LISTED: u64 = 0;

/// Why a program is not followed further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GaveUp {
    /// The way that a branch takes is not known.
    Branch,
    /// An instruction that repeats itself, or enters the kernel.
    Instruction,
    /// A return to an address that neither the sample nor a call on the way has: the current stack may be
    /// that of another call.
    Return,
    /// Code that cannot be read or decoded.
    Code,
    /// Too many steps.
    Steps,
    /// The instruction was reached, and its address is not known.
    Address,
}

impl GaveUp {
    /// All of them, in the order of recordings.
    pub const ALL: [GaveUp; 6] =
        [GaveUp::Branch, GaveUp::Instruction, GaveUp::Return, GaveUp::Code, GaveUp::Steps, GaveUp::Address];

    /// The key in JSON.
    pub fn id(self) -> &'static str {
        match self {
            GaveUp::Branch => "unknown_branch",
            GaveUp::Instruction => "instruction",
            GaveUp::Return => "unknown_return",
            GaveUp::Code => "unreadable_code",
            GaveUp::Steps => "steps",
            GaveUp::Address => "unknown_address",
        }
    }

    /// The words on the screen.
    pub fn words(self) -> &'static str {
        match self {
            GaveUp::Branch => "unknown branches",
            GaveUp::Instruction => "system calls and string instructions (rep)",
            GaveUp::Return => "returns to callers outside the sampled stack",
            GaveUp::Code => "code that cannot be read",
            GaveUp::Steps => "the limit on followed instructions",
            GaveUp::Address => "unknown addresses",
        }
    }
}

/// Samples at memory accesses whose program was followed to the next run of the instruction.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NextRuns {
    /// Samples that were followed, however far.
    pub followed: u64,
    /// Samples whose next run has a known address.
    pub resolved: u64,
    /// Of the resolved ones: the instruction has overwritten its address, so that no other is known.
    pub gone_resolved: u64,
    /// Samples that were not followed, for want of time; chosen at random.
    pub left_out: u64,
    /// Followed samples without an address, by reason.
    pub ends: BTreeMap<GaveUp, u64>,
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
        more.ends.iter().for_each(|(why, count)| *self.ends.entry(*why).or_default() += count);
        more.by_remote.iter().for_each(|(pair, count)| *self.by_remote.entry(*pair).or_default() += count);
        more.by_mapping.iter().for_each(|(pair, count)| *self.by_mapping.entry(*pair).or_default() += count);
    }

    /// Merges all mappings into one place, except those that begin at `listed` addresses.
    pub(super) fn list_only(&mut self, listed: &BTreeSet<u64>) {
        let place = |start: u64| if listed.contains(&start) { start } else { NOT_LISTED };
        for ((one, other), count) in std::mem::take(&mut self.by_mapping) {
            *self.by_mapping.entry((place(one), place(other))).or_default() += count;
        }
    }
}
