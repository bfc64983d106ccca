//! A thread at one moment.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use crate::model::counts::Counts;
use crate::model::memory::Resident;
use crate::model::units::NodeId;

/// The pid of no task that is listed: the idle tasks have it.
pub const OTHERS_PID: u32 = 0;

/// A task's name as the kernel keeps it: up to 15 bytes that anyone may choose, so never print them unescaped
/// (see [`crate::text::clean`]).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Comm(pub [u8; 16]);

impl Comm {
    /// The bytes up to the first NUL.
    pub fn bytes(&self) -> &[u8] {
        let len = self.0.iter().position(|byte| *byte == 0).unwrap_or(self.0.len());
        &self.0[..len]
    }

    /// A name for tests; longer text is cut as the kernel cuts it.
    pub fn new(text: &str) -> Comm {
        let mut bytes = [0; 16];
        let len = text.len().min(15);
        bytes[..len].copy_from_slice(&text.as_bytes()[..len]);
        Comm(bytes)
    }
}

impl fmt::Debug for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Comm({:?})", String::from_utf8_lossy(self.bytes()))
    }
}

/// A task's memory policy, as set_mempolicy(2) takes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemPolicy {
    /// `MPOL_*` of the kernel's include/uapi/linux/mempolicy.h; 0: the default.
    pub mode: u16,
    /// `MPOL_F_*` of the same file.
    pub flags: u16,
    /// Bit i: node i is in it. Nodes above 63 are left out.
    pub nodes: u64,
}

impl MemPolicy {
    /// The mode of a task or a mapping without a policy.
    pub const DEFAULT: u16 = 0;
    /// Prefers one node.
    pub const PREFERRED: u16 = 1;
    /// The mode that prefers the node of the CPU, as the default does.
    pub const LOCAL: u16 = 4;

    /// Whether the kernel chooses the node.
    pub fn is_default(self) -> bool {
        matches!(self.mode, MemPolicy::DEFAULT | MemPolicy::LOCAL)
    }
}

/// One thread; or what the ended threads of a process left behind (`tid` 0); or an ended process.
///
/// Fields stay in this order. An interval visits all rows, most of which are idle, and the first fields share
/// a cache line with the reference count that it touches anyway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct TaskRaw {
    /// Identifies the kernel's task structure for as long as we watch: survives exec, never reused.
    pub serial: u64,
    /// Process id; [`OTHERS_PID`] for the row of all tasks that a recording left out.
    pub pid: u32,
    /// Thread id; 0 for the sum of ended threads.
    pub tid: u32,
    /// Parent's process id.
    pub ppid: u32,
    /// Real user id.
    pub uid: u32,
    /// CLOCK_BOOTTIME, ns.
    pub start_ns: u64,
    /// Start of the thread group's leader: (`pid`, `leader_start_ns`) identifies a process for ever.
    pub leader_start_ns: u64,
    /// Id of its cgroup: see [`crate::model::sample::Names::cgroups`].
    pub cgroup_id: u64,
    /// Its name, which any program may choose.
    pub comm: Comm,
    /// `task->__state` and `task->exit_state`.
    pub state: u32,
    /// See `state`.
    pub exit_state: u32,
    /// `SCHED_*` of sched(7).
    pub policy: u32,
    /// -20..=19.
    pub nice: i32,
    /// CPU that it runs on or ran on last.
    pub cpu: u32,
    /// Number of CPUs that it may use.
    pub cpus_allowed: u32,
    /// Bit i: it may use a CPU of node i. `None` where that is not known, as of ended tasks; nodes above 63 are not shown, and no bit at all is `None`.
    pub cpu_nodes: Option<u64>,
    /// Bit i: its cpuset lets it take memory from node i. See `cpu_nodes`.
    pub mem_nodes: Option<u64>,
    /// It is a kernel thread.
    pub kthread: bool,
    /// Resident memory of its process, bytes.
    pub rss_bytes: u64,
    /// The same by kind; `None` in recordings from before it was kept.
    pub resident: Option<Resident>,
    /// `se.sum_exec_runtime`: on-CPU ns since birth, what /proc/PID/schedstat shows.
    pub exec_ns: u64,
    /// The kernel's choice; `None` without CONFIG_NUMA_BALANCING or while it has made none.
    pub preferred_node: Option<NodeId>,
    /// Period of scans by NUMA balancing, ms; 0: it does not scan.
    pub scan_period_ms: u32,
    /// The group in which NUMA balancing places it; 0: none.
    pub numa_group: u32,
    /// Where it asks for new memory.
    pub mempolicy: MemPolicy,
    /// Everything that only counts up.
    pub counts: Counts,
}

/// Rows of tasks in a sample. Samples and values derived from them share the list: copying it costs as much
/// as copying an `Arc`, until one of the copies is changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskRows(Arc<Vec<Arc<TaskRaw>>>);

impl Deref for TaskRows {
    type Target = Vec<Arc<TaskRaw>>;

    fn deref(&self) -> &Vec<Arc<TaskRaw>> {
        &self.0
    }
}

impl DerefMut for TaskRows {
    fn deref_mut(&mut self) -> &mut Vec<Arc<TaskRaw>> {
        Arc::make_mut(&mut self.0)
    }
}

impl From<Vec<Arc<TaskRaw>>> for TaskRows {
    fn from(rows: Vec<Arc<TaskRaw>>) -> TaskRows {
        TaskRows(Arc::new(rows))
    }
}

impl FromIterator<Arc<TaskRaw>> for TaskRows {
    fn from_iter<I: IntoIterator<Item = Arc<TaskRaw>>>(rows: I) -> TaskRows {
        Vec::from_iter(rows).into()
    }
}

impl<'a> IntoIterator for &'a TaskRows {
    type Item = &'a Arc<TaskRaw>;
    type IntoIter = std::slice::Iter<'a, Arc<TaskRaw>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a> IntoIterator for &'a mut TaskRows {
    type Item = &'a mut Arc<TaskRaw>;
    type IntoIter = std::slice::IterMut<'a, Arc<TaskRaw>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

impl TaskRaw {
    /// The process of the row.
    pub fn process(&self) -> (u32, u64) {
        (self.pid, self.leader_start_ns)
    }
}
