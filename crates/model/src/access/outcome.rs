//! The answer that a sample gives: an address, or the reason why it has none.

#![warn(missing_docs)]

/// The address that the sampled instruction accessed, or why it is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A virtual address of the process.
    Address(u64),
    /// Both sides of a string instruction that copies or compares: half a sample each.
    Pair(u64, u64),
    /// The instruction accesses no memory.
    Plain,
    /// The instruction has overwritten its own address, or has more than one (gather).
    Gone,
    /// The instruction that ran before is not the one in front: a call, a return or a jump came in between.
    Nowhere,
    /// The code could not be read or decoded.
    Unknown,
}

impl Outcome {
    /// Whether the instruction accesses memory, as far as is known.
    pub fn is_memory(self) -> bool {
        matches!(self, Outcome::Address(_) | Outcome::Pair(..) | Outcome::Gone)
    }

    /// The addresses, with the part of the sample that each has.
    pub fn addresses(self) -> impl Iterator<Item = (u64, f64)> {
        let (first, second, share) = match self {
            Outcome::Address(address) => (Some(address), None, 1.0),
            Outcome::Pair(one, other) => (Some(one), Some(other), 0.5),
            _ => (None, None, 0.0),
        };
        first.into_iter().chain(second).map(move |address| (address, share))
    }
}

/// Place of the instruction that held up the CPU, relative to the interrupted one. The self-check finds it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attribution {
    /// Before the interrupted one: registers are as the instruction left them.
    Behind,
    /// The interrupted one itself: registers are as it finds them.
    At,
}

/// The state of registers at which an address is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The instruction has not run yet.
    Before,
    /// The instruction has run.
    After,
}
