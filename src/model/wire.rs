//! The structures that cross from the kernel programs to user space: the Rust twin of `bpf/numatop.h`.

use std::mem::size_of;

use crate::model::counters::{NR_KEPT, NR_LIFETIME};
use bytemuck::{Pod, Zeroable};

/// Perf counters that are read at a context switch (`NT_SLOTS`).
pub const SLOTS: usize = 8;

/// Why something could not be counted, in the order of `enum nt_loss`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(usize)]
pub enum Loss {
    Storage,
    Exit,
    Counter,
    Backwards,
    Smt,
    Switch,
    Page,
}

impl Loss {
    pub const ALL: [Loss; 7] =
        [Loss::Storage, Loss::Exit, Loss::Counter, Loss::Backwards, Loss::Smt, Loss::Switch, Loss::Page];

    /// The key under `lost` in JSON.
    pub fn id(self) -> &'static str {
        match self {
            Loss::Storage => "tasks_without_record",
            Loss::Exit => "exits_not_itemised",
            Loss::Counter => "counter_reads",
            Loss::Backwards => "counter_backwards",
            Loss::Smt => "smt_transitions",
            Loss::Switch => "counters_of_unseen_switches",
            Loss::Page => "pages_of_no_known_node",
        }
    }
}

/// Threads per element of the marks table (`NT_MARKS`).
pub const MARKS: u32 = 4096;

pub const LOSSES_MAX: usize = 8;

/// Why a row was sent (`enum nt_row_flags`).
pub const ROW_LEFT: u32 = 1 << 1;
pub const ROW_KTHREAD: u32 = 1 << 2;
pub const ROW_NO_NUMA: u32 = 1 << 3;
pub const ROW_BY_SIBLING: u32 = 1 << 4;

/// Elements of what is counted by what the SMT siblings did: idle, busy (`NT_SIBLINGS`).
pub const SIBLINGS: usize = 2;

/// `enum nt_scope_kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ScopeKind {
    Pid,
    Tid,
    Uid,
    Cgroup,
    /// Tasks below these cgroups are not wanted.
    Outside,
}

/// `enum nt_scoped`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Scoped {
    /// Every task is wanted.
    Not,
    Scoped,
    /// Only cgroups decide: a task cannot come into the scope by itself.
    ByCgroup,
}

/// A plain structure of integers without padding, which any bytes of its size are a valid value of.
pub trait Wire: Pod {
    /// The value at the start of `bytes`, or `None` when they are too few.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.get(..size_of::<Self>()).map(bytemuck::pod_read_unaligned)
    }

    /// The bytes of the value.
    fn as_bytes(&self) -> &[u8] {
        bytemuck::bytes_of(self)
    }
}

impl<T: Pod> Wire for T {}

/// `struct nt_scope_key`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct ScopeKey {
    pub kind: u32,
    pub pad: u32,
    pub id: u64,
}

/// `struct nt_reclaim`: what reclaim did on one node.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct Reclaim {
    pub kswapd_pages: u64,
    pub direct_pages: u64,
    pub node_reclaims: u64,
    pub reserved: u64,
}

/// `struct nt_cpu_hints`: NUMA hinting faults on one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct CpuHints {
    pub faults: u64,
    pub remote: u64,
}

/// `struct nt_place`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct Place {
    pub node: u32,
    pub llc: u32,
    pub core: u32,
    pub slots: u32,
    pub opened: u32,
    pub pad: u32,
}

/// `struct nt_cpu`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct CpuState {
    pub busy_ns: u64,
    pub switches: u64,
    pub in_exec_ns: u64,
    pub in_smt_ns: u64,
    pub state: u32,
    pub in_busy: u32,
    pub slots_valid: u32,
    pub in_pid: u32,
    pub lost: [u64; LOSSES_MAX],
    pub slot_last: [u64; SLOTS],
    pub slot_last_enabled: [u64; SLOTS],
    pub slot_last_running: [u64; SLOTS],
    pub slot_total: [u64; SLOTS],
    pub slot_enabled_ns: [u64; SLOTS],
    pub slot_running_ns: [u64; SLOTS],
    pub opened: u32,
    pub pad: u32,
    pub in_ns: u64,
    pub reserved: [u64; 2],
}

/// `struct nt_rec` without what follows it: `run_ns[]`, and `struct nt_node_counts[]` where asked for.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Rec {
    pub exec_seen_ns: u64,
    pub last_cpu: u32,
    pub in_scope: u32,
    pub sent: u64,
    pub final_row: u32,
    pub ppid: u32,
    pub leader_start_ns: u64,
    pub serial: u64,
    pub counters: [u64; NR_KEPT],
    pub scope_end_ns: u64,
    pub scope_gap_ns: u64,
    pub hint_seen_local: u64,
    pub hint_seen_remote: u64,
    pub hint_window: u32,
    pub balancing_from_switches: u32,
    pub balancing_from_ns: u64,
    pub balancing_from_exec: u64,
    pub moves_from: u16,
    pub moves_to: u16,
    pub hint_changed: u32,
    pub slot: [u64; SLOTS],
    pub slot_enabled_ns: [u64; SLOTS],
    pub slot_running_ns: [u64; SLOTS],
}

/// `struct nt_task`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct TaskRow {
    pub size: u32,
    pub flags: u32,
    pub tid: u32,
    pub pid: u32,
    pub ppid: u32,
    pub uid: u32,
    pub start_ns: u64,
    pub leader_start_ns: u64,
    pub cgroup_id: u64,
    pub comm: [u8; 16],
    pub exec_ns: u64,
    pub lifetime: [u64; NR_LIFETIME],
    pub rss_pages: u64,
    pub numa_faults_local: u64,
    pub numa_faults_remote: u64,
    pub state: u32,
    pub exit_state: u32,
    pub policy: u32,
    pub nice: i32,
    pub cpu: u32,
    pub cpus_allowed: u32,
    pub preferred_nid: i32,
    pub scan_period_ms: u32,
    pub group_live: u32,
    pub nodes: u32,
    pub numa_group: u32,
    pub mempolicy: u32,
    pub mempolicy_nodes: u64,
}

const _: () = assert!(size_of::<ScopeKey>() == 16);
const _: () = assert!(size_of::<CpuHints>() == 16);
const _: () = assert!(size_of::<Place>() == 24);
const _: () = assert!(size_of::<CpuState>() == 48 + 64 + 6 * 64 + 32);
const _: () = assert!(size_of::<Rec>() == 48 + 64 + 8 * NR_KEPT + 3 * 64);
const _: () = assert!(size_of::<TaskRow>() == 216);

/// `struct nt_node_counts`: cycles and instructions of a task on one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct NodeCounts {
    pub cycles: u64,
    pub instructions: u64,
}

const _: () = assert!(size_of::<NodeCounts>() == 16);

/// Frames of a stack at most (`NT_HOT_FRAMES`).
pub const HOT_FRAMES: usize = 64;

/// Causes for which a sample of a stack is missing or not whole (`enum nt_hot_loss`), as they are called
/// in JSON.
pub const HOT_LOSSES: [&str; 3] = ["stacks_ring_full", "stacks_ring_busy", "stacks_unreadable"];

/// `struct nt_hot`: followed by the addresses of kernel frames and by [`UserFrame`]s.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct HotHead {
    pub pid: u32,
    pub tid: u32,
    pub leader_start_ns: u64,
    pub cgroup_id: u64,
    pub comm: [u8; 16],
    pub kernel_bytes: u32,
    pub user_bytes: u32,
}

/// `struct bpf_stack_build_id` of include/uapi/linux/bpf.h.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct UserFrame {
    pub status: i32,
    pub build_id: [u8; 20],
    /// Offset into the file with that build id, or the address where there is none.
    pub offset_or_ip: u64,
}

/// `BPF_STACK_BUILD_ID_VALID`: the frame has a build id.
pub const FRAME_HAS_BUILD_ID: i32 = 1;
/// `BPF_STACK_BUILD_ID_IP`: it has its address only.
pub const FRAME_HAS_ADDRESS: i32 = 2;

const _: () = assert!(size_of::<HotHead>() == 48);
const _: () = assert!(size_of::<UserFrame>() == 32);

/// Bytes of code in a sample of memory use (`NT_ACCESS_CODE`).
pub const ACCESS_CODE: usize = 128;
/// Bytes of it in front of the instruction, and from it on (`NT_ACCESS_BEFORE`, `NT_ACCESS_FROM`).
pub const ACCESS_BEFORE: usize = if cfg!(target_arch = "aarch64") { 32 } else { 48 };
/// See [`ACCESS_BEFORE`].
pub const ACCESS_FROM: usize = if cfg!(target_arch = "aarch64") { 64 } else { 80 };
/// Registers in it (`NT_ACCESS_WORDS_ARM64`, `NT_ACCESS_WORDS_X86`).
pub const ACCESS_WORDS: usize = if cfg!(target_arch = "aarch64") { 34 } else { 22 };
/// `NT_ACCESS_KERNEL`: the thread was in the kernel, nothing follows.
pub const ACCESS_KERNEL: u32 = 1;
/// `NT_ACCESS_AHEAD`: code from the instruction on could be read.
pub const ACCESS_AHEAD: u32 = 2;
/// `NT_ACCESS_BEHIND`: code in front of it, too.
pub const ACCESS_BEHIND: u32 = 4;

/// Causes for which a sample of memory use is missing (`enum nt_access_loss`), as they are called in JSON.
pub const ACCESS_LOSSES: [&str; 2] = ["ring_full", "ring_busy"];

/// `struct nt_access`: followed by code and by registers.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct AccessHead {
    pub pid: u32,
    pub tid: u32,
    pub leader_start_ns: u64,
    pub cpu: u32,
    pub flags: u32,
}

const _: () = assert!(size_of::<AccessHead>() == 24);

/// One row as the walk or the exit ring delivers it.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    pub task: TaskRow,
    pub rec: Rec,
    run_ns: &'a [u8],
    node_counts: &'a [u8],
    sibling_counts: &'a [u8],
    pages: &'a [u8],
}

impl<'a> Row<'a> {
    /// The row at the start of `bytes`, and what follows it. `None` when `bytes` ends inside it.
    pub fn split(bytes: &'a [u8]) -> Option<(Row<'a>, &'a [u8])> {
        let head = size_of::<TaskRow>();
        let fixed = head + size_of::<Rec>();
        let task = TaskRow::from_bytes(bytes)?;
        let size = task.size as usize;
        if size < fixed || bytes.len() < size {
            return None;
        }
        let rec = Rec::from_bytes(&bytes[head..])?;
        let tail = &bytes[fixed..size];
        let words = (task.nodes as usize).checked_mul(size_of::<u64>())?;
        let (run_ns, rest) = tail.split_at_checked(words)?;
        let siblings = if task.flags & ROW_BY_SIBLING != 0 { SIBLINGS * size_of::<NodeCounts>() } else { 0 };
        // Two counts by node, one number by node, both or none of them stand around the siblings.
        let both = words.checked_mul(2)?;
        let counted = rest.len().checked_sub(siblings)? >= both && both > 0;
        let (node_counts, rest) = rest.split_at_checked(if counted { both } else { 0 })?;
        let (sibling_counts, pages) = rest.split_at_checked(siblings)?;
        Some((Row { task, rec, run_ns, node_counts, sibling_counts, pages }, &bytes[size..]))
    }

    /// On-CPU time by node, in ns.
    pub fn run_ns(&self) -> impl Iterator<Item = u64> + 'a {
        self.run_ns.chunks_exact(size_of::<u64>()).filter_map(u64::from_bytes)
    }

    /// Pages it was given for user space by node; none when nobody asked for them.
    pub fn pages(&self) -> impl Iterator<Item = u64> + 'a {
        self.pages.chunks_exact(size_of::<u64>()).filter_map(u64::from_bytes)
    }

    /// Counts by node; none when nobody asked for them.
    pub fn node_counts(&self) -> impl Iterator<Item = NodeCounts> + 'a {
        self.node_counts.chunks_exact(size_of::<NodeCounts>()).filter_map(NodeCounts::from_bytes)
    }
}

impl Row<'_> {
    /// Counts of stretches in which the SMT siblings were idle, and in which one was busy; `None` without SMT, or
    /// when nobody asked for them.
    pub fn sibling_counts(&self) -> Option<[NodeCounts; SIBLINGS]> {
        let (idle, busy) = self.sibling_counts.split_at_checked(size_of::<NodeCounts>())?;
        Some([NodeCounts::from_bytes(idle)?, NodeCounts::from_bytes(busy)?])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row_bytes(nodes: &[u64]) -> Vec<u8> {
        let size = size_of::<TaskRow>() + size_of::<Rec>() + nodes.len() * 8;
        let mut bytes = vec![0u8; size];
        let nodes_at = std::mem::offset_of!(TaskRow, nodes);
        bytes[..4].copy_from_slice(&(size as u32).to_ne_bytes());
        bytes[nodes_at..nodes_at + 4].copy_from_slice(&(nodes.len() as u32).to_ne_bytes());
        for (i, ns) in nodes.iter().enumerate() {
            let at = size - (nodes.len() - i) * 8;
            bytes[at..at + 8].copy_from_slice(&ns.to_ne_bytes());
        }
        bytes
    }

    #[test]
    fn rows_follow_each_other() {
        let mut bytes = row_bytes(&[1, 2]);
        bytes.extend(row_bytes(&[3, 4]));
        let (first, rest) = Row::split(&bytes).unwrap();
        let (second, rest) = Row::split(rest).unwrap();
        assert_eq!(first.run_ns().collect::<Vec<_>>(), [1, 2]);
        assert_eq!(second.run_ns().collect::<Vec<_>>(), [3, 4]);
        assert!(rest.is_empty());
    }

    #[test]
    fn a_cut_row_is_no_row() {
        let bytes = row_bytes(&[1]);
        for cut in 0..bytes.len() {
            assert!(Row::split(&bytes[..cut]).is_none(), "cut at {cut}");
        }
    }

    #[test]
    fn counts_by_node_follow_the_times() {
        let mut bytes = row_bytes(&[7, 8, 9, 10, 11, 12]);
        let nodes_at = std::mem::offset_of!(TaskRow, nodes);
        bytes[nodes_at..nodes_at + 4].copy_from_slice(&2u32.to_ne_bytes());
        let (row, _) = Row::split(&bytes).unwrap();
        assert_eq!(row.run_ns().collect::<Vec<_>>(), [7, 8]);
        let counts: Vec<NodeCounts> = row.node_counts().collect();
        assert_eq!(counts[1], NodeCounts { cycles: 11, instructions: 12 });
        bytes[nodes_at..nodes_at + 4].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert!(Row::split(&bytes).is_none(), "more nodes than bytes");
    }

    #[test]
    fn counts_by_sibling_are_the_last() {
        let mut bytes = row_bytes(&[7, 9, 10, 11, 12, 13, 14]);
        let flags_at = std::mem::offset_of!(TaskRow, flags);
        let nodes_at = std::mem::offset_of!(TaskRow, nodes);
        bytes[nodes_at..nodes_at + 4].copy_from_slice(&1u32.to_ne_bytes());
        assert!(Row::split(&bytes).unwrap().0.sibling_counts().is_none());
        bytes[flags_at..flags_at + 4].copy_from_slice(&ROW_BY_SIBLING.to_ne_bytes());
        let (row, _) = Row::split(&bytes).unwrap();
        let on = |cycles, instructions| NodeCounts { cycles, instructions };
        assert_eq!(row.sibling_counts(), Some([on(11, 12), on(13, 14)]));
        assert_eq!(row.node_counts().collect::<Vec<_>>(), [on(9, 10)]);
        let mut short = row_bytes(&[7]);
        short[flags_at..flags_at + 4].copy_from_slice(&ROW_BY_SIBLING.to_ne_bytes());
        assert!(Row::split(&short).is_none(), "counts that are not there");
    }

    #[test]
    fn a_row_smaller_than_its_head_is_refused() {
        let mut bytes = row_bytes(&[1]);
        bytes[..4].copy_from_slice(&8u32.to_ne_bytes());
        assert!(Row::split(&bytes).is_none());
    }
}
