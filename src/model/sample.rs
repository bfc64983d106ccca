//! Everything measured at one moment: raw and cumulative, nothing derived. Recordings keep this.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::{AddAssign, Index, IndexMut, SubAssign};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::access::MemoryUses;
use crate::model::counters::{Counter, Scalars};
use crate::model::disks::DisksUsed;
use crate::model::event::TableInUse;
use crate::model::event::{Event, Role};
use crate::model::group::Group;
pub use crate::model::machine::{CgroupFacts, CgroupMode, MachineRaw, Managers, Pressure};
pub use crate::model::memory::{FilePages, HugeNode, HugePages, Resident};
use crate::model::process::ProcFieldsOf;
pub use crate::model::slots::{Slot, Slots};
use crate::model::stacks::StackBatch;
use crate::model::topology::Topology;
use crate::model::units::{CpuId, NodeId};
pub use crate::model::wire::NodeCounts;
use crate::model::wire::{SIBLINGS, SLOTS};

/// Why there is no value. There is no default: zero means measured zero.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "why", rename_all = "snake_case")]
pub enum Missing {
    /// A rate needs two samples.
    FirstInterval,
    /// The hardware, hypervisor or kernel configuration does not have it.
    Unsupported(String),
    /// It exists, but not for us; says which capability or setting is missing.
    NotPermitted(String),
    /// The kernel has it only from a later version on.
    KernelTooOld(String),
    /// Not asked for, or not for this row.
    NotCollected(String),
    /// It was measured and lost; says to what.
    Lost(String),
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Missing::FirstInterval => f.write_str("needs a full interval"),
            Missing::Unsupported(why)
            | Missing::NotPermitted(why)
            | Missing::KernelTooOld(why)
            | Missing::NotCollected(why)
            | Missing::Lost(why) => f.write_str(why),
        }
    }
}

/// A value or the reason why there is none.
pub type Reading<T> = Result<T, Missing>;

/// The pid of no task that is listed: the idle tasks have it.
pub const OTHERS_PID: u32 = 0;

/// A task's name as the kernel keeps it: up to 15 bytes that anybody may choose, so never print
/// them as they are (see [`crate::text::clean`]).
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

/// Everything about a task that only counts up. Sums of tasks are sums of these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// On-CPU time by node id, since numatop-ng first saw the task.
    pub run_ns: Vec<u64>,
    /// One number for each [`Counter`].
    pub scalars: Scalars,
    /// Perf counters, by slot; events are in [`HostFacts::events`].
    pub slots: Slots,
    /// Cycles and instructions by node id, as counted; empty where there is one node or no such counters.
    pub by_node: Vec<NodeCounts>,
    /// Pages it was given for user space, by node of the page; empty where they are not counted.
    pub pages: Vec<u64>,
    /// Cycles and instructions of stretches in which the SMT siblings were idle, and in which one was busy; all 0
    /// without SMT.
    pub by_sibling: [NodeCounts; SIBLINGS],
}

impl Counts {
    /// On-CPU time on all nodes, in ns.
    pub fn cpu_ns(&self) -> u64 {
        self.run_ns.iter().fold(0, |sum, ns| sum.wrapping_add(*ns))
    }

    /// Forgets what the kernel counted before we looked: for a task that is older than our first sight of it.
    pub fn without_lifetime(&self) -> Counts {
        Counts { scalars: self.scalars.without_lifetime(), ..self.clone() }
    }

    /// Counts of the kernel since the task was born, whether we looked or not: the rest of
    /// [`Counts::without_lifetime`].
    pub fn lifetime(&self) -> Counts {
        let mut lifetime = self.clone();
        lifetime -= &self.without_lifetime();
        lifetime
    }

    /// The counts that `each` makes of these; it makes zero of zero.
    pub fn map(&self, each: impl Fn(u64) -> u64) -> Counts {
        let mut mapped = self.clone();
        mapped.zip(self, |mine, theirs| *mine = each(theirs));
        mapped
    }

    /// Applies `op` to each number and that of `other`; the shorter of two lists goes on with zeros.
    fn zip(&mut self, other: &Counts, op: impl Fn(&mut u64, u64)) {
        // All fields by name: one that is added and forgotten here does not compile.
        let Counts { run_ns, scalars, slots, by_node, pages, by_sibling } = other;
        zip_lists(&mut self.run_ns, run_ns, |mine, theirs| op(mine, *theirs));
        zip_lists(&mut self.pages, pages, |mine, theirs| op(mine, *theirs));
        let both = |mine: &mut NodeCounts, theirs: &NodeCounts| {
            op(&mut mine.cycles, theirs.cycles);
            op(&mut mine.instructions, theirs.instructions);
        };
        zip_lists(&mut self.by_node, by_node, both);
        for (mine, theirs) in self.by_sibling.iter_mut().zip(by_sibling) {
            both(mine, theirs);
        }
        // An operation on two zeros gives zero.
        if !self.slots.is_empty() || !slots.is_empty() {
            for (mine, theirs) in self.slots.iter_mut().zip(&slots[..]) {
                op(&mut mine.count, theirs.count);
                op(&mut mine.enabled_ns, theirs.enabled_ns);
                op(&mut mine.running_ns, theirs.running_ns);
            }
        }
        for (mine, theirs) in self.scalars.values_mut().iter_mut().zip(scalars.values()) {
            op(mine, *theirs);
        }
    }

    /// Turns what went below zero in wrapping arithmetic into zero: a row never shows a negative rate.
    pub fn clamp(&mut self) {
        let zero = Counts {
            run_ns: vec![0; self.run_ns.len()],
            by_node: vec![NodeCounts::default(); self.by_node.len()],
            pages: vec![0; self.pages.len()],
            ..Counts::default()
        };
        self.zip(&zero, |mine, _| {
            if *mine > i64::MAX as u64 {
                *mine = 0;
            }
        });
    }
}

fn zip_lists<T: Clone + Default>(mine: &mut Vec<T>, theirs: &[T], op: impl Fn(&mut T, &T)) {
    if mine.len() < theirs.len() {
        mine.resize(theirs.len(), T::default());
    }
    for (mine, theirs) in mine.iter_mut().zip(theirs) {
        op(mine, theirs);
    }
}

impl Index<Counter> for Counts {
    type Output = u64;

    fn index(&self, counter: Counter) -> &u64 {
        &self.scalars[counter]
    }
}

impl IndexMut<Counter> for Counts {
    fn index_mut(&mut self, counter: Counter) -> &mut u64 {
        &mut self.scalars[counter]
    }
}

impl<const N: usize> From<[(Counter, u64); N]> for Counts {
    /// The numbers of these counters; all others are zero.
    fn from(numbers: [(Counter, u64); N]) -> Counts {
        Counts { scalars: numbers.into(), ..Counts::default() }
    }
}

impl Counts {
    /// The same with these numbers in place of those of their counters.
    #[must_use]
    pub fn with<const N: usize>(mut self, numbers: [(Counter, u64); N]) -> Counts {
        for (counter, number) in numbers {
            self[counter] = number;
        }
        self
    }
}

impl AddAssign<&Counts> for Counts {
    /// Wrapping, so that sums of differences come out right whatever their order.
    fn add_assign(&mut self, other: &Counts) {
        self.zip(other, |mine, theirs| *mine = mine.wrapping_add(theirs));
    }
}

impl SubAssign<&Counts> for Counts {
    /// Wrapping: see [`Counts::clamp`].
    fn sub_assign(&mut self, other: &Counts) {
        self.zip(other, |mine, theirs| *mine = mine.wrapping_sub(theirs));
    }
}

/// A task's memory policy, as set_mempolicy(2) takes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemPolicy {
    /// `MPOL_*` of the kernel's include/uapi/linux/mempolicy.h; 0: the default.
    pub mode: u16,
    /// `MPOL_F_*` of the same file.
    pub flags: u16,
    /// Bit i: node i is in it. Nodes above 63 are not told.
    pub nodes: u64,
}

/// One thread; or what the ended threads of a process left behind (`tid` 0); or an ended process.
///
/// Fields stay in this order: an interval goes through all rows, most of which rest, and the first ones lie beside the
/// reference count that it touches anyway.
#[derive(Clone, Debug, PartialEq, Eq)]
#[repr(C)]
#[cfg_attr(test, derive(Default))]
pub struct TaskRaw {
    /// Identifies the kernel's task structure for as long as we watch: survives exec, never reused.
    pub serial: u64,
    /// Process id; [`OTHERS_PID`] for the row of all that a recording left out.
    pub pid: u32,
    /// Thread id; 0 for what ended threads left behind.
    pub tid: u32,
    /// Parent's process id.
    pub ppid: u32,
    /// Real user id.
    pub uid: u32,
    /// CLOCK_BOOTTIME, ns.
    pub start_ns: u64,
    /// Start of the thread group's leader: (`pid`, `leader_start_ns`) identifies a process for ever.
    pub leader_start_ns: u64,
    /// Id of its cgroup: see [`Names::cgroups`].
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
    /// Bit i: it may use a CPU of node i. `None` where that is not known, as of ended tasks; nodes above 63 are not
    /// told, and no bit at all is `None`.
    pub cpu_nodes: Option<u64>,
    /// Bit i: it may take memory from node i, as its cpuset says. See `cpu_nodes`.
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

impl TaskRaw {
    /// The process of the row.
    pub fn process(&self) -> (u32, u64) {
        (self.pid, self.leader_start_ns)
    }
}

/// NUMA hinting faults, and those that found their page on another node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// All of them.
    pub faults: u64,
    /// Of these, the ones that found their page on another node.
    pub remote: u64,
}

impl Hints {
    /// The difference since `before`.
    pub fn since(self, before: Hints) -> Hints {
        Hints {
            faults: self.faults.saturating_sub(before.faults),
            remote: self.remote.saturating_sub(before.remote),
        }
    }
}

/// One CPU, cumulative since start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuRaw {
    /// CPU id.
    pub id: u32,
    /// Node id; 0 where sysfs names none.
    pub node: u32,
    /// False for a CPU that is present and offline.
    pub online: bool,
    /// On-CPU time of everything but idle, scoped or not.
    pub busy_ns: u64,
    /// Context switches.
    pub switches: u64,
    /// In hard and soft interrupts since boot, in steps of 10 ms.
    pub irq_ns: u64,
    /// In which a hypervisor ran something else, since boot, in steps of 10 ms; `None` where /proc/stat does not say.
    pub steal_ns: Option<u64>,
    /// Of whatever ran on it; `None` where no function of the kernel can be hooked.
    pub hints: Option<Hints>,
    /// Counted while a task was running; enabled and running cover the whole life of the event.
    pub slots: [Slot; SLOTS],
}

/// One node: gauges from `meminfo`, cumulative pages from `numastat`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeRaw {
    /// Node id.
    pub id: u32,
    /// `MemTotal`.
    pub mem_total_bytes: u64,
    /// `MemFree`.
    pub mem_free_bytes: u64,
    /// `FilePages`: the page cache.
    pub mem_file_bytes: u64,
    /// A part of `mem_file_bytes` by kind; `None` where meminfo does not say, and in recordings from before it was kept.
    pub file_pages: Option<FilePages>,
    /// `AnonPages`.
    pub mem_anon_bytes: u64,
    /// `Slab`.
    pub mem_slab_bytes: u64,
    /// `HugePages_Total`, pages of the default huge page size.
    pub huge_total: u64,
    /// `HugePages_Free`.
    pub huge_free: u64,
    /// Pages taken here as wanted, since boot.
    pub numa_hit: u64,
    /// Pages taken here although another node was wanted.
    pub numa_miss: u64,
    /// Pages wanted here and taken from another node.
    pub numa_foreign: u64,
    /// Interleaved pages that were taken here as wanted.
    pub interleave_hit: u64,
    /// Pages taken here by tasks on this node.
    pub local_node: u64,
    /// Pages taken here by tasks on other nodes.
    pub other_node: u64,
    /// Free memory below which an allocation wakes kswapd, and the memory that can be allocated at all:
    /// the `low` watermark and `managed` of its zones; both zero where the kernel does not say.
    pub low_watermark_bytes: u64,
    /// See `low_watermark_bytes`.
    pub managed_bytes: u64,
    /// Pages freed by kswapd and by everyone else, and how often an allocation cleaned up this node before
    /// it went to another, since start.
    pub kswapd_pages: u64,
    /// See `kswapd_pages`.
    pub direct_pages: u64,
    /// See `kswapd_pages`.
    pub node_reclaims: u64,
}

/// Tasks or pages that went from one node to another, since start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Node that they left.
    pub from: NodeId,
    /// Node that they went to.
    pub to: NodeId,
    /// Tasks or pages.
    pub count: u64,
}

/// Counters of the whole machine, in pages since boot, and a switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VmStat {
    /// `pswpin`.
    pub swapped_in: u64,
    /// `pswpout`.
    pub swapped_out: u64,
    /// Freed by kswapd, and by everyone else.
    pub kswapd_pages: u64,
    /// See `kswapd_pages`.
    pub direct_pages: u64,
    /// `vm.zone_reclaim_mode`, bits as in the kernel's Documentation/admin-guide/sysctl/vm.rst; `None` where
    /// the kernel has no such switch.
    pub zone_reclaim_mode: Option<u32>,
    /// `None` without CONFIG_NUMA_BALANCING, and in recordings from before it was kept.
    pub hints: Option<Hints>,
}

impl VmStat {
    /// Pages that reclaim freed, whoever did it.
    pub fn reclaimed(&self) -> u64 {
        self.kswapd_pages.saturating_add(self.direct_pages)
    }
}

/// Resources that numatop-ng itself used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelfUsage {
    /// User and system time of this process, ns since its start.
    pub cpu_ns: u64,
    /// Resident memory of this process and its readers, bytes.
    pub rss_bytes: u64,
    /// Time it took to take this sample.
    pub sample_ns: u64,
}

/// The limits of a cgroup, and the memory it charged to it. Read in turns when there are many.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupRaw {
    /// CLOCK_MONOTONIC when it was read.
    pub read_ns: u64,
    /// CPUs and nodes that its tasks may use, as lists.
    pub cpus: Reading<String>,
    /// See `cpus`.
    pub mems: Reading<String>,
    /// CPU time it may use, in thousandths of a CPU; `None` without a limit.
    pub cpu_quota_milli: Reading<Option<u64>>,
    /// Time in which it was not let run because of the quota, ns, cumulative over its CPUs.
    pub throttled_ns: Reading<u64>,
    /// The same at the reading before, and when that was.
    pub throttled_before: Option<(u64, u64)>,
    /// `None` without a limit.
    pub mem_limit_bytes: Reading<Option<u64>>,
    /// Memory charged to it and all below.
    pub mem_bytes: Reading<u64>,
    /// Of that, by node (memory.numa_stat).
    pub mem_bytes_by_node: Reading<BTreeMap<u32, u64>>,
    /// Periods of its CPU quota in which it had something to run, cumulative (`nr_periods` of cpu.stat).
    #[serde(default = "not_kept", skip_serializing_if = "is_not_kept")]
    pub periods: Reading<u64>,
    /// Of these, periods in which the quota was used up (`nr_throttled`).
    #[serde(default = "not_kept", skip_serializing_if = "is_not_kept")]
    pub throttled_periods: Reading<u64>,
    /// Time in which its tasks were held up (cpu.pressure and memory.pressure of cgroup v2).
    #[serde(default = "not_kept", skip_serializing_if = "is_not_kept")]
    pub pressure: Reading<Pressure>,
    /// Times it was at its memory limit, it and all below, cumulative (`max` of memory.events, `failcnt` of cgroup v1).
    #[serde(default = "not_kept", skip_serializing_if = "is_not_kept")]
    pub memory_max_events: Reading<u64>,
    /// Times an allocation failed at that limit, cumulative (`oom` of memory.events).
    #[serde(default = "not_kept", skip_serializing_if = "is_not_kept")]
    pub oom_events: Reading<u64>,
    /// The counters of the reading before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counters_before: Option<GroupCounters>,
    /// Its use of disks, it and all below (io.stat of cgroup v2).
    #[serde(default = "not_kept", skip_serializing_if = "is_not_kept")]
    pub disks: Reading<DisksUsed>,
    /// The same at the reading before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disks_before: Option<DisksUsed>,
}

/// Counters of a cgroup at one reading; see [`GroupRaw`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupCounters {
    /// CLOCK_MONOTONIC when they were read.
    pub read_ns: u64,
    /// `None`, here and below, where they could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub periods: Option<u64>,
    /// See [`GroupRaw::throttled_periods`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttled_periods: Option<u64>,
    /// See [`GroupRaw::pressure`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pressure: Option<Pressure>,
    /// See [`GroupRaw::memory_max_events`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_max_events: Option<u64>,
    /// See [`GroupRaw::oom_events`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oom_events: Option<u64>,
}

impl GroupRaw {
    /// The counters of this reading.
    pub fn counters(&self) -> GroupCounters {
        GroupCounters {
            read_ns: self.read_ns,
            periods: self.periods.clone().ok(),
            throttled_periods: self.throttled_periods.clone().ok(),
            pressure: self.pressure.clone().ok(),
            memory_max_events: self.memory_max_events.clone().ok(),
            oom_events: self.oom_events.clone().ok(),
        }
    }
}

/// The value of a field that a recording is older than.
///
/// # Errors
/// Always: it was not kept.
pub fn not_kept<T>() -> Reading<T> {
    Err(Missing::NotCollected("it was not kept".into()))
}

fn is_not_kept<T>(reading: &Reading<T>) -> bool {
    matches!(reading, Err(Missing::NotCollected(why)) if why == "it was not kept")
}

/// Where pages of a process were found, of those asked for at random.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PagesFound {
    /// Bytes of address space that pages were drawn from, holes included.
    pub space_bytes: u64,
    /// Addresses asked for; those that are not in `by_node` had no page.
    pub asked: u32,
    /// Pages found by node id.
    pub by_node: Vec<u32>,
    /// All shares together are this near the truth in 95 of 100 samples, in hundredths of a percentage point.
    pub error_hundredths: u32,
}

/// Resident memory of a process, by what says where its pages come from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyBytes {
    /// All of it, in bytes.
    pub all_bytes: u64,
    /// Of that, in mappings that have a memory policy of their own, in bytes.
    pub own_bytes: u64,
    /// Of that, pages of hugetlbfs by size, the smallest first. Empty in recordings from before it was kept.
    pub huge: Vec<HugePages>,
}

/// Where the memory of a process was when it was looked at last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacementRaw {
    /// Start of the process, ns since boot: with its id this says whose it is.
    pub start_ns: u64,
    /// CLOCK_MONOTONIC when it was looked at.
    pub read_ns: u64,
    /// Its pages, or the reason why they were not looked at.
    pub found: Reading<PagesFound>,
    /// Policies of its mappings, and when they were read (CLOCK_MONOTONIC); `None` where nobody asked for them, and in
    /// recordings from before they were kept.
    pub policies: Option<(u64, Reading<PolicyBytes>)>,
}

/// Names for numbers that a row carries. Shared between samples, replaced when something is added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Names of users, by user id.
    pub users: BTreeMap<u32, String>,
    /// Paths of cgroups, by cgroup id.
    pub cgroups: BTreeMap<u64, String>,
    /// Kinds and names of those cgroups.
    pub groups: BTreeMap<u64, Arc<Group>>,
}

/// Everything measured at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Wall clock, ns since 1970: a label only.
    pub wall_ns: i64,
    /// CLOCK_MONOTONIC: what rates are made of.
    pub mono_ns: u64,
    /// CLOCK_BOOTTIME: what start times are compared with.
    pub boot_ns: u64,
    /// Ascending by serial: live threads, and one row per process that lost threads (`tid` 0).
    pub tasks: Vec<Arc<TaskRaw>>,
    /// Processes that ended or left the scope since the sample before: final totals over all their threads.
    pub exited: Vec<Arc<TaskRaw>>,
    /// Present CPUs, ascending by id.
    pub cpus: Vec<CpuRaw>,
    /// Online nodes, ascending by id.
    pub nodes: Vec<NodeRaw>,
    /// `None` in recordings from before it was kept.
    pub vm: Option<VmStat>,
    /// `None` in recordings from before it was kept.
    pub machine: Option<MachineRaw>,
    /// Times a task in scope ran on a node after it had run on another. Ascending by `from` and `to`; pairs without any
    /// are left out.
    pub flows: Vec<Flow>,
    /// Pages that NUMA balancing moved for tasks in scope, in the same order.
    pub page_flows: Vec<Flow>,
    /// Cumulative, by cause (see [`crate::model::wire::Loss::id`]).
    pub lost: BTreeMap<String, u64>,
    /// CPU time of exited tasks that got no row, by node, ns.
    pub exit_lost_ns: Vec<u64>,
    /// The cost of this program.
    pub own: SelfUsage,
    /// Names for ids in the rows.
    pub names: Arc<Names>,
    /// By cgroup id, for the tops of containers and other groups that have tasks.
    pub groups: BTreeMap<u64, Arc<GroupRaw>>,
    /// By process id, for processes whose memory was looked at. Empty where there is one node.
    pub placement: Arc<BTreeMap<u64, Arc<PlacementRaw>>>,
    /// Fields of processes beside their counts, as far as asked for; recordings do not keep it.
    pub about: Arc<ProcFieldsOf>,
    /// Memory that processes use, from samples of the last ten seconds; `None` while it is not sampled. Recordings
    /// keep the mappings that are used most.
    pub memory_use: Option<Arc<MemoryUses>>,
    /// Stacks that were sampled since the sample before; `None` while nobody asks for them.
    pub hot: Option<Arc<StackBatch>>,
    /// Hotplug and other events worth a word, since the sample before.
    pub notes: Vec<String>,
}

/// Facts about the host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostFacts {
    /// As the kernel has it; not clean.
    pub hostname: String,
    /// `uname -r`.
    pub kernel: String,
    /// `uname -m`.
    pub arch: String,
    /// The name of the CPU; not clean.
    pub cpu_model: String,
    /// Changes with each boot.
    pub boot_id: String,
    /// Nodes, CPUs, caches and devices.
    pub topology: Topology,
    /// The events in the counter slots, in order.
    pub events: Vec<Event>,
    /// Where the meaning of the events is from: one table for each kind of core.
    #[serde(default)]
    pub tables: Vec<TableInUse>,
    /// Metric id or event name → why it cannot be measured on this host.
    pub missing: BTreeMap<String, Missing>,
    /// Human description of the scope; empty when everything is watched.
    pub scope: String,
    /// CPUs that the scheduler leaves alone, ascending: isolcpus, and isolated partitions of cpusets.
    #[serde(default)]
    pub isolated_cpus: Vec<u32>,
    /// CPUs on which the kernel stops the tick of a lone task (nohz_full), ascending.
    #[serde(default)]
    pub nohz_full_cpus: Vec<u32>,
    /// `None` without a mounted cgroup file system, and in recordings from before it was kept.
    #[serde(default)]
    pub cgroups: Option<CgroupFacts>,
    /// Nodes have a file `reclaim` (Linux 6.17); `None` where that is not known.
    #[serde(default)]
    pub node_reclaim_file: Option<bool>,
    /// `None` where the processes of the host cannot be seen, and in recordings from before it was kept.
    #[serde(default)]
    pub managers: Option<Managers>,
}

impl HostFacts {
    /// The slots that hold events of this role: on a machine with several kinds of cores one for each, so
    /// that their sum is the count. Of events that count on the same CPUs only the first.
    pub fn slots(&self, role: Role) -> impl Iterator<Item = usize> + '_ {
        self.events.iter().enumerate().filter_map(move |(slot, event)| {
            let mut earlier = self.events[..slot].iter().filter(|other| other.role == role);
            (event.role == role && !earlier.any(|other| other.shares_cpus_with(event))).then_some(slot)
        })
    }

    /// CPUs that their users keep free of interrupts: isolated, or without a tick.
    pub fn quiet_cpus(&self) -> BTreeSet<CpuId> {
        self.isolated_cpus.iter().chain(&self.nohz_full_cpus).copied().map(CpuId).collect()
    }

    /// The node of a CPU, as far as the topology knows it.
    pub fn node_of(&self, cpu: u32) -> Option<NodeId> {
        self.topology.cpu(CpuId(cpu)).and_then(|cpu| cpu.node)
    }
}
