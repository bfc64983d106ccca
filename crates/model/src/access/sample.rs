//! A raw sample: registers, code around the interrupted instruction, and the top of the stack; and the answer that it gives: an
//! address, or the reason why it has none. A raw sample never leaves the process, and has no text form (no `Debug`), so that no
//! log or error can show it.

#![warn(missing_docs)]

use super::{decode_a64, decode_x86};
use crate::model::process::ProcessId;
use crate::model::units::CpuId;

/// Bytes of code around the interrupted instruction.
#[derive(Clone, Copy)]
pub struct Code<'a> {
    /// Bytes that end at the instruction; empty where they could not be read.
    pub before: &'a [u8],
    /// Bytes from the instruction on.
    pub from: &'a [u8],
}

/// The top of the stack at the moment of the sample: read later it would be that of another call.
#[derive(Clone, Default)]
pub struct Stack {
    /// Address of its first byte.
    pub start: u64,
    /// Its bytes; empty where they could not be read.
    pub bytes: Box<[u8]>,
}

impl Stack {
    /// The byte at an address, if the sample contains it.
    pub fn get(&self, address: u64) -> Option<u8> {
        let place = usize::try_from(address.wrapping_sub(self.start)).ok()?;
        self.bytes.get(place).copied()
    }
}

/// Registers of an interrupted thread.
pub enum Registers {
    /// x86, 64 or 32 bits.
    X86(decode_x86::Registers),
    /// arm64.
    A64(decode_a64::Registers),
}

/// An access that an event sampled, as far as the event describes it. It has no text form either.
#[derive(Default)]
pub struct EventAccess {
    /// Virtual address.
    pub address: Option<u64>,
    /// Physical address.
    pub physical: Option<u64>,
    /// The place that answered, in perf's own word (`crate::pmu::data_src`).
    pub source: Option<u64>,
    /// Cycles that it took.
    pub cycles: Option<u32>,
    /// Address of the instruction; 0: not known.
    pub code: u64,
}

/// A page that a thread touched for the first time, or that NUMA balancing asked about. It has no text form either.
pub struct Touch {
    /// The address that it touched.
    pub address: u64,
    /// Addresses of its stack as far as frame pointers reach, innermost first.
    pub stack: Vec<u64>,
    /// The address behind the call of the innermost function, if that has no frame and has put nothing on the stack.
    pub caller: Option<u64>,
    /// A number that changes with each hint fault of the thread; 0 without any. If it equals that of its
    /// previous touch, this touch is not a hint fault.
    pub hint_faults: u64,
    /// Faults of the thread so far, with this one: those since its touch before were not sampled.
    pub faults: u64,
}

/// One interruption of a thread.
pub struct RawSample {
    /// The process: its id, and the time its leader started in ns since boot.
    pub process: ProcessId,
    /// Thread id.
    pub tid: u32,
    /// The CPU that it ran on.
    pub cpu: CpuId,
    /// `None`: it was in the kernel, or it is a sample of an event or a first touch.
    pub user: Option<UserState>,
    /// Of an event.
    pub event: Option<EventAccess>,
    /// A first touch.
    pub touch: Option<Touch>,
}

/// The user side of an interrupted thread.
pub struct UserState {
    /// Its registers.
    pub registers: Registers,
    /// Code in front of the instruction, then from it on.
    pub code: Box<[u8]>,
    /// Bytes of `code` in front of the instruction.
    pub before: usize,
    /// The top of its stack; empty on arm64, where no program is followed.
    pub stack: Stack,
}

impl UserState {
    /// The code around the interrupted instruction.
    pub fn code(&self) -> Code<'_> {
        let (before, from) = self.code.split_at_checked(self.before).unwrap_or((&[], &[]));
        Code { before, from }
    }
}

/// Decoders of every kind of sample.
#[derive(Default)]
pub struct Decoders {
    x86: decode_x86::Decoder,
}

impl Decoders {
    /// The address that a thread was held up by.
    pub fn outcome(&mut self, state: &UserState, attribution: Attribution) -> Outcome {
        match &state.registers {
            Registers::X86(registers) => self.x86.outcome(registers, state.code(), attribution),
            Registers::A64(registers) => decode_a64::outcome(registers, state.code(), attribution),
        }
    }

    /// The address of the instruction itself, where its next runs can be looked for: on x86, not while it repeats itself.
    pub fn target(&self, state: &UserState, attribution: Attribution) -> Option<u64> {
        match &state.registers {
            Registers::X86(registers) => decode_x86::target(registers, state.code(), attribution),
            Registers::A64(_) => None,
        }
    }
}

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
