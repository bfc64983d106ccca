//! The structures that cross from the kernel programs to user space: the Rust twin of `bpf/numatop.h`.

pub mod samples;

use std::mem::size_of;

use crate::model::counters::{NR_KEPT, NR_LIFETIME};
use bytemuck::{Pod, Zeroable};

/// Perf counters that are read at a context switch (`NT_SLOTS`).
pub const SLOTS: usize = 8;

/// Causes of a count that is missing, in the order of `enum nt_loss`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(usize)]
pub enum Loss {
    /// No memory for the record of a new task.
    Storage,
    /// The exit ring was full: the final totals are only in `exit_lost_ns`.
    Exit,
    /// A counter that should be readable was not.
    Counter,
    /// A counter went backwards: the interval is skipped.
    Backwards,
    /// A transition of a core's busy threads, lost to contention.
    Smt,
    /// A task came in unseen: its counts up to the next switch are dropped.
    Switch,
    /// A page of a node, or on a CPU, that is not known.
    Page,
}

impl Loss {
    /// All causes, in the order of their numbers.
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

/// Words of the table of members of trees (`NT_TREE_WORDS`).
pub const TREE_WORDS: u32 = 65_536;

/// Threads per element of the marks table (`NT_MARKS`).
pub const MARKS: u32 = 4096;

/// Elements of the marks table at most (`NT_MARKS_MAX`).
pub const MARKS_MAX: usize = 1024;

/// Threads that a short walk lists at a time (`NT_LIST_MAX`).
pub const LIST_MAX: usize = 256;

/// Each task is visited in one of this many walks, whatever it does (`NT_LOOK_EVERY`).
pub const LOOK_EVERY: u32 = 8;

/// Room for causes in [`CpuState::lost`] (`NT_LOSSES_MAX`).
pub const LOSSES_MAX: usize = 7;

/// The task left the scope: no row follows until it returns. This and the next are bits of [`TaskRow::flags`]
/// (`enum nt_row_flags`).
pub const ROW_LEFT: u32 = 1 << 1;
/// It is a kernel thread.
pub const ROW_KTHREAD: u32 = 1 << 2;
/// The kernel lacks CONFIG_NUMA_BALANCING: the `numa_*` fields mean nothing.
pub const ROW_NO_NUMA: u32 = 1 << 3;
/// The record ends with counts by the state of the SMT siblings.
pub const ROW_BY_SIBLING: u32 = 1 << 4;

/// The task was moved out of the scope, or out and back, in the stretch that runs: a bit of [`Rec::in_scope`]
/// (`enum nt_in_scope`).
pub const REC_CROSSED: u32 = 1 << 1;

/// [`CpuState::state`] before the first switch or flush of a CPU (`NT_CPU_UNSEEN`).
pub const CPU_UNSEEN: u32 = 0;

/// Elements of counts by the state of the SMT siblings: idle, busy (`NT_SIBLINGS`).
pub const SIBLINGS: usize = 2;

/// `enum nt_scope_kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ScopeKind {
    /// A process id.
    Pid,
    /// A thread id.
    Tid,
    /// A user id.
    Uid,
    /// The id of a cgroup: tasks in it and below it.
    Cgroup,
    /// Tasks below these cgroups are not wanted.
    Outside,
    /// The id of a process: it and all descendants since.
    Tree,
}

/// `enum nt_scoped`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Scoped {
    /// Every task is wanted.
    Not,
    /// Only tasks that fit the scope are wanted.
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
    /// A [`ScopeKind`].
    pub kind: u32,
    /// Padding, 0.
    pub pad: u32,
    /// A process, thread or user id, or the id of a cgroup.
    pub id: u64,
}

/// `struct nt_disk_key`: a sender of requests, a disk, and the node in between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct DiskKey {
    /// Start of the process, ns since boot; of a cgroup its id.
    pub id: u64,
    /// 0: a kernel thread, for a cgroup.
    pub pid: u32,
    /// Device number of the disk: 12 bits of the driver, 20 of the disk.
    pub disk: u32,
    /// Node of the CPU.
    pub node: u32,
    /// 0.
    pub pad: u32,
}

/// `struct nt_disk_use`: traffic since start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct DiskSent {
    /// Bytes read and written.
    pub bytes: u64,
    /// Requests of all kinds.
    pub requests: u64,
}

/// Entries of the map of disks (`NT_DISKS_MAX`).
pub const DISKS_MAX: usize = 4096;

/// Entries of the map of traffic (`NT_DISK_USES_MAX`).
pub const DISK_USES_MAX: usize = 16_384;
/// On top of other disks, which are counted. This and the next are kinds of disks (`enum nt_disk_kind`).
pub const DISK_UPPER: u32 = 0;
/// A separate piece of hardware.
pub const DISK_LEAF: u32 = 1;
/// One of several ways to an NVMe disk.
pub const DISK_PATH: u32 = 2;

/// `struct nt_socket_key`: a process, and the nodes of its packets and of its reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct SocketKey {
    /// Start of the process, ns since boot.
    pub start: u64,
    /// Its id.
    pub pid: u32,
    /// Node of the CPU that processed the last packet, or [`NO_NODE`].
    pub from: u32,
    /// Node of the CPU that read or sent.
    pub to: u32,
    /// 0.
    pub pad: u32,
}

/// The node of a CPU that is not known (`NT_NO_NODE`).
pub const NO_NODE: u32 = u32::MAX;

/// `struct nt_socket_use`: traffic since start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct SocketMoved {
    /// Bytes received.
    pub received: u64,
    /// Calls that received some.
    pub reads: u64,
    /// Bytes sent.
    pub sent: u64,
}

/// Entries of the map of socket traffic (`NT_SOCKET_USES_MAX`).
pub const SOCKET_USES_MAX: usize = 16_384;

/// `struct nt_majors`: a bit for each driver of character devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Majors {
    /// 4,096 bits.
    pub words: [u64; 64],
}

/// `struct nt_open_file`: a device file that a process has open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct OpenFile {
    /// Start of the process, ns since boot.
    pub start_ns: u64,
    /// Its id.
    pub pid: u32,
    /// Device number: 12 bits of the driver, 20 of the device.
    pub device: u32,
}

/// `struct nt_reclaim`: what reclaim did on one node.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct Reclaim {
    /// Pages freed by kswapd, since start.
    pub kswapd_pages: u64,
    /// Pages freed by any other task, since start.
    pub direct_pages: u64,
    /// Times an allocation cleaned up its own node first, since start.
    pub node_reclaims: u64,
    /// Room for later, 0.
    pub reserved: u64,
}

/// No row follows. This and the next are kinds of a [`PolicyRow`] (`enum nt_policy_kind`).
pub const POLICY_END: u16 = 0;
/// A mapping.
pub const POLICY_MAPPING: u16 = 1;
/// The object of the mapping before.
pub const POLICY_OBJECT: u16 = 2;
/// The policy of a part of the object before.
pub const POLICY_ENTRY: u16 = 3;

/// A policy names a node above 63. This and the next are bits of [`PolicyRow::marks`] (`enum nt_policy_mark`).
pub const POLICY_FAR: u16 = 1 << 0;
/// Others see writes to it.
pub const POLICY_SHARED: u16 = 1 << 1;
/// Memory of tmpfs, a memfd, a SysV segment, or shared anonymous memory.
pub const POLICY_SHMEM: u16 = 1 << 2;
/// Memory of hugetlbfs.
pub const POLICY_HUGETLB: u16 = 1 << 3;
/// The object of the mapping has more policies than the row holds.
pub const POLICY_CUT: u16 = 1 << 4;

/// `struct nt_policy_row`: a mapping, the object behind it, or the policy of a part of that object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct PolicyRow {
    /// First address. Object: its device, and the generation of its inode in the low half. Entry: first page of the file.
    pub start: u64,
    /// Address behind the last. Object: its inode. Entry: page of the file behind the last.
    pub end: u64,
    /// Nodes of the policy up to 63. Object: shared writable mappings by all processes; negative: not known.
    pub nodes: u64,
    /// Page of the file at the start. Object: its size in bytes.
    pub pgoff: u64,
    /// Object: its pages in memory.
    pub pages: u64,
    /// Mode of the policy (`MPOL_`).
    pub mode: u16,
    /// Flags of the policy.
    pub flags: u16,
    /// [`POLICY_END`] or one of those behind it.
    pub kind: u16,
    /// Bits from [`POLICY_FAR`] on.
    pub marks: u16,
}

/// `struct nt_cpu_hints`: NUMA hinting faults on one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct CpuHints {
    /// Hinting faults since start.
    pub faults: u64,
    /// Of these, the ones that found their page on another node.
    pub remote: u64,
}

/// `struct nt_alloc_pace`: the choice of the page allocations of a CPU that are counted.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct AllocPace {
    /// Allocations of user pages since start, including those that will be left out next.
    pub allocs: u64,
    /// State of the random numbers.
    pub dice: u64,
    /// Allocations to leave out next.
    pub skip: u64,
    /// Padding to a cache line, 0.
    pub pad: [u64; 5],
}

/// `struct nt_cpu_topo`: where a CPU is, and its counters.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct CpuTopo {
    /// Node id.
    pub node: u32,
    /// Dense index of the last-level cache.
    pub llc: u32,
    /// Dense index of the physical core.
    pub core: u32,
    /// Bit i: counter slot i is open on this CPU.
    pub slots: u32,
    /// Changes whenever the counters are reopened: they start from zero.
    pub opened: u32,
    /// Bit i: counter slot i is wanted on this CPU, and is not open because it is the turn of others.
    pub waits: u32,
    /// Number of its place; its node where places are the nodes.
    pub place: u32,
    /// `physical_package_id`; `u32::MAX` where it is not known.
    pub socket: u32,
}

/// Kinds of sets of CPUs between which moves are counted: L3 domains and sockets (`NT_SET_KINDS`).
pub const SET_KINDS: usize = 2;

/// `struct nt_moves`: of a CPU those in, of a place those out.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Moves {
    /// Dispatches of tasks that last ran on another L3 domain, and on another socket.
    pub of: [u64; SET_KINDS],
    /// Padding, 0.
    pub pad: [u64; 6],
}

/// `struct nt_cpu`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct CpuState {
    /// On-CPU time of everything but the idle task, ns since start.
    pub busy_ns: u64,
    /// Context switches since start.
    pub switches: u64,
    /// `sum_exec_runtime` of the running task when it was switched in, ns.
    pub in_exec_ns: u64,
    /// The core's clock of time with several busy threads at that moment, ns.
    pub in_smt_ns: u64,
    /// `enum nt_cpu_state`: how far the stretch that runs now is known.
    pub state: u32,
    /// 1: this CPU is counted as busy in its core's word.
    pub in_busy: u32,
    /// Bit i: `slot_last[i]` is a reading of the event that is open now.
    pub slots_valid: u32,
    /// Thread id of the running task; 0 for the idle task.
    pub in_pid: u32,
    /// CLOCK_MONOTONIC at the start of the stretch that is counted now, ns; only where counts are kept by sibling.
    pub in_ns: u64,
    /// [`CpuTopo::opened`] of the counters that `slot_last` belongs to.
    pub opened: u32,
    /// Padding, 0.
    pub pad: u32,
    /// Losses since start, by [`Loss`].
    pub lost: [u64; LOSSES_MAX],
    /// On-CPU time of tasks in the scope, ns since start; 0 without a scope.
    pub scope_ns: u64,
    /// Counts at the last switch.
    pub slot_last: [u64; SLOTS],
    /// Times the events were enabled at the last switch, ns.
    pub slot_last_enabled: [u64; SLOTS],
    /// Times the events were on the PMU at the last switch, ns.
    pub slot_last_running: [u64; SLOTS],
    /// Counts while a task, not the idle one, was running.
    pub slot_total: [u64; SLOTS],
    /// Enabled time over the whole life of the event on this CPU, ns; read at each flush.
    pub slot_enabled_ns: [u64; SLOTS],
    /// Time on the PMU over that life, ns.
    pub slot_running_ns: [u64; SLOTS],
}

/// `struct nt_rec` without its arrays: `run_ns[]`, and on request `struct nt_node_counts[]`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Rec {
    /// `sum_exec_runtime` up to which time has been charged, ns.
    pub exec_seen_ns: u64,
    /// CPU of the last charge; `u32::MAX` until the task ran.
    pub last_cpu: u32,
    /// `enum nt_in_scope`.
    pub in_scope: u32,
    /// Signature of the row that was sent last.
    pub sent: u64,
    /// `enum nt_final`: the reason why no further row has this record.
    pub final_row: u32,
    /// Parent process as last seen alive.
    pub ppid: u32,
    /// Start of the thread group's leader, ns since boot.
    pub leader_start_ns: u64,
    /// Unique for the life of the probe; survives exec.
    pub serial: u64,
    /// Kept counters, by `enum nt_counter`.
    pub counters: [u64; NR_KEPT],
    /// `sum_exec_runtime` when the task left the scope, ns; 0: inside.
    pub scope_end_ns: u64,
    /// Time outside before it came back that is not left out yet, ns.
    pub scope_gap_ns: u64,
    /// Local faults of the window that are added already.
    pub hint_seen_local: u64,
    /// Remote faults of the window that are added already.
    pub hint_seen_remote: u64,
    /// The window of `numa_faults_locality` that these are of.
    pub hint_window: u32,
    /// Switches of the task when a stretch of NUMA balancing began.
    pub balancing_from_switches: u32,
    /// CLOCK_MONOTONIC at that moment, ns; 0: in no stretch.
    pub balancing_from_ns: u64,
    /// `sum_exec_runtime` at that moment, ns.
    pub balancing_from_exec: u64,
    /// Node that balancing moves a page from, counted from 1; 0: not known.
    pub moves_from: u16,
    /// Node that it moves the page to, counted from 1; 0: not known.
    pub moves_to: u16,
    /// 1: the task has left `hint_window`.
    pub hint_changed: u32,
    /// Counts by slot, since the record was made.
    pub slot: [u64; SLOTS],
    /// Enabled times by slot, ns; they stand still unless scaled reads are on.
    pub slot_enabled_ns: [u64; SLOTS],
    /// Times on the PMU by slot, ns; they stand still unless scaled reads are on.
    pub slot_running_ns: [u64; SLOTS],
}

/// `struct nt_task`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct TaskRow {
    /// Bytes of this row, with the record and its arrays.
    pub size: u32,
    /// `ROW_*`.
    pub flags: u32,
    /// Thread id.
    pub tid: u32,
    /// Process id (thread group).
    pub pid: u32,
    /// Parent's process id.
    pub ppid: u32,
    /// Real user id.
    pub uid: u32,
    /// Start of the task, CLOCK_BOOTTIME, ns.
    pub start_ns: u64,
    /// Start of the leader: identifies the process together with `pid`.
    pub leader_start_ns: u64,
    /// Id of its cgroup.
    pub cgroup_id: u64,
    /// Name, ended by NUL.
    pub comm: [u8; 16],
    /// `se.sum_exec_runtime`: on-CPU time since birth, ns.
    pub exec_ns: u64,
    /// The kernel's counters since birth, by `enum nt_lifetime`.
    pub lifetime: [u64; NR_LIFETIME],
    /// Pages of the process: of files, anonymous, in swap, shared (`MM_FILEPAGES` and so on).
    pub mm_pages: [u64; 4],
    /// Local hinting faults of the current scan window.
    pub numa_faults_local: u64,
    /// Remote hinting faults of the current scan window.
    pub numa_faults_remote: u64,
    /// `task->__state`.
    pub state: u32,
    /// `task->exit_state`.
    pub exit_state: u32,
    /// `SCHED_*` of sched(7).
    pub policy: u32,
    /// -20..=19.
    pub nice: i32,
    /// CPU that it runs on or ran on last.
    pub cpu: u32,
    /// Number of CPUs that it may use.
    pub cpus_allowed: u32,
    /// Node that NUMA balancing prefers; -1: none.
    pub preferred_nid: i32,
    /// Period of scans by NUMA balancing, ms; 0: none.
    pub scan_period_ms: u32,
    /// Threads of its process that have not begun to exit.
    pub group_live: u32,
    /// Elements of each list by node behind the record.
    pub nodes: u16,
    /// Elements of `run_ns` there: by place.
    pub places: u16,
    /// Group in which NUMA balancing places it; 0: none.
    pub numa_group: u32,
    /// `MPOL_*` of new memory, with its flags in the upper half; 0: the default.
    pub mempolicy: u32,
    /// Bit i: node i is in the policy. Nodes above 63 are left out.
    pub mempolicy_nodes: u64,
    /// Bit i: it may use a CPU of node i, as above. 0: not known.
    pub cpu_nodes: u64,
    /// Bit i: it may take memory from node i, as above. 0: not known.
    pub mem_nodes: u64,
}

/// CPUs of one node in one word of a CPU mask (`struct nt_mask_part`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaskPart {
    /// The word: CPUs from 64 times this number on.
    pub word: u32,
    /// Node id, 0..=63.
    pub node: u32,
    /// Bit i: the CPU i of the word is one of the node's.
    pub cpus: u64,
}

/// Parts of the first word of a CPU mask that the kernel programs know at most (`NT_MASK_FIRST`).
pub const MASK_FIRST: usize = 32;
/// Parts of all other words (`NT_MASK_OTHERS`).
pub const MASK_OTHERS: usize = 64;

const _: () = assert!(size_of::<ScopeKey>() == 16);
const _: () = assert!(size_of::<CpuHints>() == 16);
const _: () = assert!(size_of::<CpuTopo>() == 32);
/// Whole cache lines, whether they have 64, 128 or 256 bytes: neighbours are states of other CPUs.
const _: () = assert!(size_of::<CpuState>() == 64 + 64 + 6 * 64);
const _: () = assert!(size_of::<Moves>() == 64);
const _: () = assert!(size_of::<Rec>() == 48 + 64 + 8 * NR_KEPT + 3 * 64);
const _: () = assert!(size_of::<TaskRow>() == 192 + 8 * NR_LIFETIME);

/// `struct nt_node_counts`: cycles and instructions of a task on one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct NodeCounts {
    /// Cycles since the task was first seen.
    pub cycles: u64,
    /// Instructions since the task was first seen.
    pub instructions: u64,
}

const _: () = assert!(size_of::<NodeCounts>() == 16);

/// One row as the walk or the exit ring delivers it.
#[derive(Clone, Copy, Debug)]
pub struct WireRow<'a> {
    /// Values of the kernel's task structure.
    pub task: TaskRow,
    /// The fixed head of the record.
    pub rec: Rec,
    run_ns: &'a [u8],
    node_counts: &'a [u8],
    sibling_counts: &'a [u8],
    pages: &'a [u8],
}

impl<'a> WireRow<'a> {
    /// The row at the start of `bytes`, and the rest. `None` if `bytes` ends inside it.
    pub fn split(bytes: &'a [u8]) -> Option<(WireRow<'a>, &'a [u8])> {
        let head = size_of::<TaskRow>();
        let fixed = head + size_of::<Rec>();
        let task = TaskRow::from_bytes(bytes)?;
        let size = task.size as usize;
        if size < fixed || bytes.len() < size {
            return None;
        }
        let rec = Rec::from_bytes(&bytes[head..])?;
        let tail = &bytes[fixed..size];
        let words = |elements: u16| usize::from(elements) * size_of::<u64>();
        let (run_ns, rest) = tail.split_at_checked(words(task.places))?;
        let siblings = if task.flags & ROW_BY_SIBLING != 0 { SIBLINGS * size_of::<NodeCounts>() } else { 0 };
        // Two counts by node, one number by node, both or none of them stand around the siblings.
        let both = 2 * words(task.nodes);
        let counted = rest.len().checked_sub(siblings)? >= both && both > 0;
        let (node_counts, rest) = rest.split_at_checked(if counted { both } else { 0 })?;
        let (sibling_counts, pages) = rest.split_at_checked(siblings)?;
        Some((WireRow { task, rec, run_ns, node_counts, sibling_counts, pages }, &bytes[size..]))
    }

    /// On-CPU time by place, in ns.
    pub fn run_ns(&self) -> impl Iterator<Item = u64> + 'a {
        self.run_ns.chunks_exact(size_of::<u64>()).filter_map(u64::from_bytes)
    }

    /// Pages it was given for user space by node; none unless requested.
    pub fn pages(&self) -> impl Iterator<Item = u64> + 'a {
        self.pages.chunks_exact(size_of::<u64>()).filter_map(u64::from_bytes)
    }

    /// Counts by node; none unless requested.
    pub fn node_counts(&self) -> impl Iterator<Item = NodeCounts> + 'a {
        self.node_counts.chunks_exact(size_of::<NodeCounts>()).filter_map(NodeCounts::from_bytes)
    }
}

impl WireRow<'_> {
    /// Counts of stretches in which the SMT siblings were idle, and in which one was busy; `None` without
    /// SMT, or unless requested.
    pub fn sibling_counts(&self) -> Option<[NodeCounts; SIBLINGS]> {
        let (idle, busy) = self.sibling_counts.split_at_checked(size_of::<NodeCounts>())?;
        Some([NodeCounts::from_bytes(idle)?, NodeCounts::from_bytes(busy)?])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set_lengths(bytes: &mut [u8], nodes: u16, places: u16) {
        let fields =
            [(std::mem::offset_of!(TaskRow, nodes), nodes), (std::mem::offset_of!(TaskRow, places), places)];
        for (at, length) in fields {
            bytes[at..at + 2].copy_from_slice(&length.to_ne_bytes());
        }
    }

    fn row_bytes(nodes: &[u64]) -> Vec<u8> {
        let size = size_of::<TaskRow>() + size_of::<Rec>() + nodes.len() * 8;
        let mut bytes = vec![0u8; size];
        bytes[..4].copy_from_slice(&(size as u32).to_ne_bytes());
        set_lengths(&mut bytes, nodes.len() as u16, nodes.len() as u16);
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
        let (first, rest) = WireRow::split(&bytes).unwrap();
        let (second, rest) = WireRow::split(rest).unwrap();
        assert_eq!(first.run_ns().collect::<Vec<_>>(), [1, 2]);
        assert_eq!(second.run_ns().collect::<Vec<_>>(), [3, 4]);
        assert!(rest.is_empty());
    }

    #[test]
    fn a_cut_row_is_no_row() {
        let bytes = row_bytes(&[1]);
        for cut in 0..bytes.len() {
            assert!(WireRow::split(&bytes[..cut]).is_none(), "cut at {cut}");
        }
    }

    #[test]
    fn counts_by_node_follow_the_times() {
        let mut bytes = row_bytes(&[7, 8, 9, 10, 11, 12]);
        set_lengths(&mut bytes, 2, 2);
        let (row, _) = WireRow::split(&bytes).unwrap();
        assert_eq!(row.run_ns().collect::<Vec<_>>(), [7, 8]);
        let counts: Vec<NodeCounts> = row.node_counts().collect();
        assert_eq!(counts[1], NodeCounts { cycles: 11, instructions: 12 });
        set_lengths(&mut bytes, 2, u16::MAX);
        assert!(WireRow::split(&bytes).is_none(), "more places than bytes");
        // Three places on one node, with its counts.
        let mut bytes = row_bytes(&[7, 8, 9, 10, 11]);
        set_lengths(&mut bytes, 1, 3);
        let (row, _) = WireRow::split(&bytes).unwrap();
        assert_eq!(row.run_ns().collect::<Vec<_>>(), [7, 8, 9]);
        assert_eq!(row.node_counts().collect::<Vec<_>>(), [NodeCounts { cycles: 10, instructions: 11 }]);
    }

    #[test]
    fn counts_by_sibling_are_the_last() {
        let mut bytes = row_bytes(&[7, 9, 10, 11, 12, 13, 14]);
        let flags_at = std::mem::offset_of!(TaskRow, flags);
        set_lengths(&mut bytes, 1, 1);
        assert!(WireRow::split(&bytes).unwrap().0.sibling_counts().is_none());
        bytes[flags_at..flags_at + 4].copy_from_slice(&ROW_BY_SIBLING.to_ne_bytes());
        let (row, _) = WireRow::split(&bytes).unwrap();
        let on = |cycles, instructions| NodeCounts { cycles, instructions };
        assert_eq!(row.sibling_counts(), Some([on(11, 12), on(13, 14)]));
        assert_eq!(row.node_counts().collect::<Vec<_>>(), [on(9, 10)]);
        let mut short = row_bytes(&[7]);
        short[flags_at..flags_at + 4].copy_from_slice(&ROW_BY_SIBLING.to_ne_bytes());
        assert!(WireRow::split(&short).is_none(), "counts that are not there");
    }

    #[test]
    fn a_row_smaller_than_its_head_is_refused() {
        let mut bytes = row_bytes(&[1]);
        bytes[..4].copy_from_slice(&8u32.to_ne_bytes());
        assert!(WireRow::split(&bytes).is_none());
    }
}
