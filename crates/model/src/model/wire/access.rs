//! Samples of memory use as `bpf/access.bpf.c` hands them over.

use std::mem::size_of;

use bytemuck::{Pod, Zeroable};

use crate::model::access::TOUCHES_LEFT_OUT;

/// Bytes of code in a sample of memory use (`NT_ACCESS_CODE`).
pub const ACCESS_CODE: usize = 128;
/// Bytes of code before the instruction, and from the instruction on (`NT_ACCESS_BEFORE`, `NT_ACCESS_FROM`).
pub const ACCESS_BEFORE: usize = if cfg!(target_arch = "aarch64") { 32 } else { 48 };
/// See [`ACCESS_BEFORE`].
pub const ACCESS_FROM: usize = if cfg!(target_arch = "aarch64") { 64 } else { 80 };
/// Registers in it (`NT_ACCESS_WORDS_ARM64`, `NT_ACCESS_WORDS_X86`).
pub const ACCESS_WORDS: usize = if cfg!(target_arch = "aarch64") { 34 } else { 22 };
/// Bytes of the stack in a sample, from the red zone below the stack pointer on (`NT_ACCESS_RED_ZONE`,
/// `NT_ACCESS_ABOVE`).
pub const ACCESS_STACK: usize = ACCESS_RED_ZONE + 896;
/// See [`ACCESS_STACK`].
pub const ACCESS_RED_ZONE: usize = 128;
/// `NT_ACCESS_STACK`: the top of the stack could be read.
pub const ACCESS_HAS_STACK: u32 = 256;
/// `NT_ACCESS_KERNEL`: the thread was in the kernel, nothing follows.
pub const ACCESS_KERNEL: u32 = 1;
/// `NT_ACCESS_AHEAD`: code from the instruction on could be read.
pub const ACCESS_AHEAD: u32 = 2;
/// `NT_ACCESS_BEHIND`: the code before the instruction is included.
pub const ACCESS_BEHIND: u32 = 4;
/// `NT_ACCESS_EVENT`: the sample is one of an event, which has an address.
pub const ACCESS_EVENT: u32 = 8;
/// `NT_ACCESS_ADDRESS`, and flags of the other words of such a sample in their order: physical address, source, weight.
pub const ACCESS_KNOWN: [u32; 4] = [16, 32, 64, 128];

/// `NT_ACCESS_TOUCH`: the sample is a first touch.
pub const ACCESS_TOUCH: u32 = 512;
/// Frames of the stack of a first touch at most (`NT_TOUCH_FRAMES`).
pub const TOUCH_FRAMES: usize = 16;

/// Causes for which a sample of memory use is missing (`enum nt_access_loss`), as they are called in JSON.
pub const ACCESS_LOSSES: [&str; 3] = ["ring_full", "ring_busy", TOUCHES_LEFT_OUT];

/// `struct nt_access`: followed by code, by registers, and by the top of the stack.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct AccessHead {
    /// The process, as the host numbers it.
    pub pid: u32,
    /// The thread, as the host numbers it.
    pub tid: u32,
    /// Start of the leader of the process, ns since boot.
    pub leader_start_ns: u64,
    /// The CPU that was interrupted.
    pub cpu: u32,
    /// `ACCESS_*`.
    pub flags: u32,
}

const _: () = assert!(size_of::<AccessHead>() == 24);

/// `struct nt_access_touch`: followed by addresses of the stack.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct TouchHead {
    /// Of all samples.
    pub head: AccessHead,
    /// The address that was touched.
    pub address: u64,
    /// The address that the innermost function returns to if it has put nothing on the stack; 0: not known.
    pub caller: u64,
    /// The 8 bytes of code in front of that.
    pub call: [u8; 8],
    /// Faults of the thread so far that read nothing from a disk, with this one.
    pub faults: u64,
    /// Another number after each hint fault of the thread; 0: none since the kernel last cleared their number.
    pub hint_faults: u64,
    /// Bytes of addresses behind this.
    pub stack_bytes: u32,
    /// Always 0.
    pub zero: u32,
}

const _: () = assert!(size_of::<TouchHead>() == 72);

/// Processes that are sampled at most where not all are (`NT_ACCESS_CHOSEN`).
pub const ACCESS_CHOSEN: usize = 64;

/// `struct nt_access_process`: a process that is sampled where not all are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct AccessProcess {
    /// The process, as the host numbers it.
    pub pid: u32,
    /// Always 0.
    pub zero: u32,
    /// Start of its leader, ns since boot.
    pub leader_start_ns: u64,
}

const _: () = assert!(size_of::<AccessProcess>() == 16);
