//! Samples of memory use and of stacks, as `bpf/access.bpf.c` and `bpf/hot.bpf.c` hand them over.

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

/// Frames of a stack at most (`NT_HOT_FRAMES`).
pub const HOT_FRAMES: usize = 64;

/// Causes for which a sample of a stack is missing or not whole (`enum nt_hot_loss`), as they are called
/// in JSON.
pub const HOT_LOSSES: [&str; 3] = ["stacks_ring_full", "stacks_ring_busy", "stacks_unreadable"];

/// `struct nt_hot`: followed by the addresses of kernel frames and by [`UserFrame`]s.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct HotHead {
    /// Process id (thread group).
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// Start of the leader, ns since boot: identifies the process together with `pid`.
    pub leader_start_ns: u64,
    /// Id of the cgroup.
    pub cgroup_id: u64,
    /// Name of the thread group's leader, ended by NUL.
    pub comm: [u8; 16],
    /// Bytes of kernel addresses behind this, 8 each.
    pub kernel_bytes: u32,
    /// Bytes of user frames behind those.
    pub user_bytes: u32,
}

/// `struct bpf_stack_build_id` of include/uapi/linux/bpf.h.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct UserFrame {
    /// `FRAME_HAS_BUILD_ID` or `FRAME_HAS_ADDRESS`; anything else: an empty frame.
    pub status: i32,
    /// Build id of the file, shorter ones filled with zeros.
    pub build_id: [u8; 20],
    /// Offset into the file with that build id, or the address without one.
    pub offset_or_ip: u64,
}

/// `BPF_STACK_BUILD_ID_VALID`: the frame has a build id.
pub const FRAME_HAS_BUILD_ID: i32 = 1;

/// `BPF_STACK_BUILD_ID_IP`: it has its address only.
pub const FRAME_HAS_ADDRESS: i32 = 2;

const _: () = assert!(size_of::<HotHead>() == 48);

const _: () = assert!(size_of::<UserFrame>() == 32);
