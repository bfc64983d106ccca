//! Samples of stacks as `bpf/hot.bpf.c` hands them over.

use std::mem::size_of;

use bytemuck::{Pod, Zeroable};

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
