//! Everything measured at one moment: raw and cumulative, nothing derived. Recordings keep this.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::access::MemoryUses;
use crate::model::coded::varint::Malformed;
use crate::model::coded::{MAX_FLOWS, Tail, coded};
use crate::model::event::{Event, Role, TableInUse};
use crate::model::group::{DEPTH_MAX, Group};
use crate::model::inputs::Inputs;
use crate::model::process::{CommandLines, ProcFieldsOf};
use crate::model::share::wilson_farther;
use crate::model::stacks::StackBatch;
use crate::model::sums::sums;
use crate::model::topology::Topology;
use crate::model::units::{CpuId, NodeId};
use crate::model::wire::SLOTS;

pub use super::counts::{Slot, Slots};
pub use super::group::{GroupCounters, GroupRaw, GroupReclaim, not_kept};
pub use crate::model::counts::Counts;
pub use crate::model::machine::{CgroupFacts, CgroupMode, MachineRaw, Managers, Pressure};
pub use crate::model::memory::{FilePages, HugeNode, HugePages, Resident};
pub use crate::model::task::{Comm, MemPolicy, OTHERS_PID, TaskRaw, TaskRows};
pub use crate::model::wire::NodeCounts;

/// The reason why a value is missing. No default exists: zero means measured zero.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "why", rename_all = "snake_case")]
pub enum Missing {
    /// A rate needs two samples.
    FirstInterval,
    /// The hardware, hypervisor or kernel configuration does not have it.
    Unsupported(String),
    /// It exists, but access is denied; names the missing capability or setting.
    NotPermitted(String),
    /// Only newer kernels provide it.
    KernelTooOld(String),
    /// Not asked for, or not for this row.
    NotCollected(String),
    /// It was measured and lost; names the cause.
    Lost(String),
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Missing::FirstInterval => f.write_str("a full interval is needed"),
            Missing::Unsupported(why)
            | Missing::NotPermitted(why)
            | Missing::KernelTooOld(why)
            | Missing::NotCollected(why)
            | Missing::Lost(why) => f.write_str(why),
        }
    }
}

/// A value or the reason why it is missing.
pub type Reading<T> = Result<T, Missing>;

/// NUMA hinting faults, and the part whose page was on another node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// All of them.
    pub faults: u64,
    /// Of these, the ones that found their page on another node.
    pub remote: u64,
}

coded!(Hints { faults, remote });
sums!(Hints { faults, remote });

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
    /// In hard and soft interrupts since boot, in steps of 10 ms; `None` where /proc/stat has no line of the CPU.
    pub irq_ns: Option<u64>,
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
    /// The `low` watermark (below it an allocation wakes kswapd) and the `managed` memory of its zones, which
    /// can be allocated. Both are zero where the kernel does not report them.
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

coded!(Flow { from, to, count }, most MAX_FLOWS, "pairs of nodes");

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

coded!(VmStat { swapped_in, swapped_out, kswapd_pages, direct_pages, zone_reclaim_mode, hints: Tail });

impl VmStat {
    /// Pages that reclaim freed, in whatever context.
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

coded!(SelfUsage { cpu_ns, rss_bytes, sample_ns });

/// Places of pages of a process, from addresses drawn at random.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PagesFound {
    /// Bytes of address space that pages were drawn from, holes included.
    pub space_bytes: u64,
    /// Addresses asked for; those not in `by_node` have no page.
    pub asked: u32,
    /// Pages found by node id.
    pub by_node: Vec<u32>,
    /// All shares together are this near the truth in 95 of 100 samples, in hundredths of a percentage point.
    pub error_hundredths: u32,
}

coded!(PagesFound { space_bytes, asked, error_hundredths, by_node });

/// Resident memory of a process, by the policy that places its pages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyBytes {
    /// All resident memory, in bytes.
    pub all_bytes: u64,
    /// Of that, in mappings that have a memory policy of their own, in bytes.
    pub own_bytes: u64,
    /// Of that, pages of hugetlbfs by size, the smallest first. Empty in recordings from before it was kept.
    pub huge: Vec<HugePages>,
}

// Pages of hugetlbfs have a section of their own.
coded!(PolicyBytes { all_bytes, own_bytes }, rest PolicyBytes::default());

/// Pages of a process by the policy that holds for them, found as those of [`PagesFound`] are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PagesByPolicy {
    /// CLOCK_MONOTONIC when policies and pages were looked at.
    pub read_ns: u64,
    /// Mappings of the process.
    pub mappings: u32,
    /// Pages found by node id. So are those below, which are parts of them.
    pub by_node: Vec<u32>,
    /// Pages whose policy is neither the default nor local.
    pub explicit: Vec<u32>,
    /// Pages on a node that their policy, which is one of those, names.
    pub meant: Vec<u32>,
    /// Pages of memory that other processes map, too.
    pub shared: Vec<u32>,
    /// Pages of hugetlbfs among all of them.
    pub huge: u32,
    /// Pages in no mapping, because the mappings changed meanwhile: not in `by_node`.
    pub unmatched: u32,
    /// Objects of shared memory with much in them, those with most first.
    pub objects: Vec<SharedObject>,
}

coded!(
    PagesByPolicy { read_ns, mappings, huge, unmatched, by_node, explicit, meant, shared, objects },
    check |pages: &PagesByPolicy| {
        [&pages.explicit, &pages.meant, &pages.shared].into_iter().try_for_each(|part| is_part(part, &pages.by_node))
    }
);

/// # Errors
/// A part has more pages than the whole.
pub(super) fn is_part(part: &[u32], all: &[u32]) -> Result<(), Malformed> {
    let fits = |(node, pages): (usize, &u32)| all.get(node).is_some_and(|all| pages <= all);
    let fits = part.iter().enumerate().all(fits);
    fits.then_some(()).ok_or(Malformed("part of a process's pages exceeds their total"))
}

impl PagesByPolicy {
    /// Share of pages whose policy is neither the default nor local, in percent, and half its 95 % confidence
    /// interval, in points.
    ///
    /// # Errors
    /// No page was found, or the mappings changed too much meanwhile.
    pub fn explicit_pct(&self) -> Reading<(f64, f64)> {
        let all = pages(&self.by_node);
        if f64::from(self.unmatched) > UNMATCHED_MAX * (all + f64::from(self.unmatched)) {
            return Err(Missing::Lost("its mappings changed while they were being read".into()));
        }
        wilson_farther(pages(&self.explicit), all)
            .ok_or_else(|| Missing::NotCollected("none of its pages was found".into()))
    }
}

impl PagesByPolicy {
    /// Share of pages that other processes map, too, in percent; `None` where no page was found.
    pub fn shared_pct(&self) -> Option<f64> {
        let all = pages(&self.by_node);
        (all > 0.0).then(|| pages(&self.shared) * 100.0 / all)
    }
}

/// Pages of all nodes.
pub fn pages(by_node: &[u32]) -> f64 {
    // The sum of no numbers would be -0.
    by_node.iter().fold(0.0, |sum, pages| sum + f64::from(*pages))
}

/// The share of pages in no mapping from which on policies are not known.
const UNMATCHED_MAX: f64 = 0.1;

/// Memory that several processes can map: a SysV segment, a memfd, a file of tmpfs, shared anonymous memory. Device, inode and
/// generation say which it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedObject {
    /// Device of its filesystem.
    pub device: u32,
    /// A SysV segment has its id here.
    pub inode: u64,
    /// Differs between objects that have the same inode one after the other.
    pub generation: u32,
    /// Size in bytes.
    pub bytes: u64,
    /// Of that, in memory.
    pub resident_bytes: u64,
    /// Shared writable mappings of this object by all processes; `None` where the kernel does not count them.
    pub mappings: Option<u32>,
    /// Of those, by this process.
    pub own_mappings: u32,
    /// Its pages that were found through this process, by node id. The fields below are parts of them.
    pub by_node: Vec<u32>,
    /// Pages on a node that their policy names.
    pub meant: Vec<u32>,
}

coded!(
    SharedObject { device, inode, generation, bytes, resident_bytes, own_mappings, mappings, by_node, meant },
    most 64, "objects of shared memory",
    check |object: &SharedObject| is_part(&object.meant, &object.by_node)
);

/// Where the memory of a process was when it was looked at last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacementRaw {
    /// Start of the process, ns since boot: identifies it together with its id.
    pub start_ns: u64,
    /// CLOCK_MONOTONIC when it was looked at.
    pub read_ns: u64,
    /// Its pages, or the reason why they were not looked at.
    pub found: Reading<PagesFound>,
    /// Policies of its mappings, and when they were read (CLOCK_MONOTONIC); `None` unless they were asked for, and in
    /// recordings from before they were kept.
    pub policies: Option<(u64, Reading<PolicyBytes>)>,
    /// Policies of its pages, where the kernel reports them without a walk; `None` in older recordings.
    pub by_policy: Option<Arc<PagesByPolicy>>,
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

impl Names {
    /// The cgroup at the top of the container that a cgroup is in; itself where it is in none.
    pub fn top(&self, cgroup: u64) -> u64 {
        self.groups.get(&cgroup).map_or(cgroup, |group| group.top)
    }

    /// A cgroup and those above it, the nearest first. There are at most [`DEPTH_MAX`], because groups of a hostile
    /// recording may be above each other.
    pub fn upwards(&self, cgroup: u64) -> impl Iterator<Item = u64> {
        let above = |id: &u64| self.groups.get(id).and_then(|group| group.parent);
        std::iter::successors(Some(cgroup), above).take(DEPTH_MAX)
    }
}

/// Everything measured at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// Wall clock, ns since 1970: a label only.
    pub wall_ns: i64,
    /// CLOCK_MONOTONIC: what rates are made of.
    pub mono_ns: u64,
    /// CLOCK_BOOTTIME: what start times are compared with.
    pub boot_ns: u64,
    /// Ascending by serial: live threads, and one row per process that lost threads (`tid` 0).
    pub tasks: TaskRows,
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
    /// Times a task in scope ran on a node after it ran on another. Ascending by `from` and `to`; pairs
    /// without any are left out.
    pub flows: Vec<Flow>,
    /// Pages that NUMA balancing moved for tasks in scope, in the same order.
    pub page_flows: Vec<Flow>,
    /// Parts of the machine that are read in turns.
    pub inputs: Inputs,
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
    /// By process id, for processes whose memory was read. Empty with one node.
    pub placement: Arc<BTreeMap<u64, Arc<PlacementRaw>>>,
    /// Fields of processes beside their counts, as far as asked for; recordings do not keep it.
    pub about: Arc<ProcFieldsOf>,
    /// Command lines in a recording that was asked to keep them.
    pub command_lines: Arc<CommandLines>,
    /// Memory that processes use, from samples of the last ten seconds; `None` while it is not sampled. Recordings
    /// keep the mappings that are used most.
    pub memory_use: Option<Arc<MemoryUses>>,
    /// Stacks sampled since the previous sample; `None` while nothing requests them.
    pub hot: Option<Arc<StackBatch>>,
    /// Hotplug and other events worth a word, since the sample before.
    pub notes: Vec<String>,
}

/// Facts about the host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostFacts {
    /// As reported by the kernel; not clean.
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
    /// Names of the events requested by name, in the order of the list, refused ones included.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked: Vec<String>,
    /// Slots of each group of events that is open in turns; empty where all are open at once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub event_turns: Vec<Vec<usize>>,
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
    /// Input that `memory.reclaim` of a cgroup takes; `None` where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_reclaim: Option<GroupReclaim>,
    /// All swap was in compressed memory (zram) when the run began; `None` where that is not known.
    #[serde(default)]
    pub swap_on_zram: Option<bool>,
    /// `None` where the processes of the host cannot be seen, and in recordings from before it was kept.
    #[serde(default)]
    pub managers: Option<Managers>,
}

impl HostFacts {
    /// A machine with a known topology; every other fact is unknown.
    pub fn of(topology: Topology) -> HostFacts {
        HostFacts {
            hostname: String::new(),
            kernel: String::new(),
            arch: String::new(),
            cpu_model: String::new(),
            boot_id: String::new(),
            topology,
            events: Vec::new(),
            asked: Vec::new(),
            event_turns: Vec::new(),
            tables: Vec::new(),
            missing: BTreeMap::new(),
            scope: String::new(),
            isolated_cpus: Vec::new(),
            nohz_full_cpus: Vec::new(),
            cgroups: None,
            node_reclaim_file: None,
            group_reclaim: None,
            swap_on_zram: None,
            managers: None,
        }
    }

    /// The slots that hold events of this role. A machine with several kinds of cores has one for each, so
    /// that their sum is the count. Of events that count on the same CPUs, only the first is returned.
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
