//! The things that numatop-ng measures with.

use serde::Serialize;

use crate::model::event::Role;

/// A probe, a counter or a file. A host or a recording may lack it, and metrics need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Facility {
    /// CPU time by node, charged at each context switch.
    CpuTime,
    /// CPU time by socket and last-level cache.
    Places,
    /// Moves of tasks between sockets and last-level caches.
    PlaceMoves,
    /// The list of tasks, from the kernel's task iterator.
    TaskWalk,
    /// Births and final totals of tasks.
    Exits,
    /// Time with a busy SMT sibling.
    SmtTime,
    /// At least one of the wanted counters.
    Counters,
    /// The counter, or the counters, of this role.
    Counter(Role),
    /// Cycles and instructions by the state of the SMT siblings.
    CountersBySibling,
    /// Fields of the task structure that NUMA balancing keeps.
    NumaFields,
    /// Tasks that NUMA balancing places together.
    NumaGroup,
    /// NUMA hinting faults.
    HintFaults,
    /// Time that NUMA balancing takes.
    BalancingTime,
    /// Tasks that NUMA balancing sends to another node.
    SentTasks,
    /// Tasks that go from node to node.
    TaskFlows,
    /// Memory policies of tasks.
    MemPolicy,
    /// Nodes that tasks may run on and take memory from.
    AllowedNodes,
    /// Resident memory of processes by kind.
    ResidentKinds,
    /// Where the memory of processes is, from pages picked at random.
    Placement,
    /// The error and the age of that answer.
    PlacementError,
    /// Memory policies of mappings of processes.
    MappingPolicies,
    /// Pages of hugetlbfs of processes, and the pools of nodes that they come from.
    HugePools,
    /// Samples of the memory that processes use, from a clock.
    MemoryUse,
    /// Samples of accesses, from an event of a PMU.
    MemoryEvents,
    /// Pages that tasks are given, by node.
    NewPages,
    /// Pages that are moved for tasks.
    MovedPages,
    /// The reasons for which they are moved.
    MoveReasons,
    /// Nodes between which NUMA balancing moves pages.
    PageFlows,
    /// Time of CPUs in interrupts.
    Irq,
    /// Interrupts of devices, by the nodes that handle them.
    DeviceIrqs,
    /// Time that a hypervisor takes from CPUs.
    Steal,
    /// Memory of each node.
    NodeMemory,
    /// Free memory of each node by the size of blocks.
    FreeBlocks,
    /// Pages of files on each node by kind.
    FilePages,
    /// Allocations of each node, as numastat(8) shows them, and memory policies: both come with CONFIG_NUMA.
    NodePages,
    /// Memory tiers of nodes, and pages that move between them.
    MemoryTiers,
    /// Use of L3 caches and of memory bandwidth, as the CPU monitors them (resctrl).
    CacheUse,
    /// Bytes that memory controllers read and wrote.
    MemoryControllers,
    /// Pages freed on each node, and by whom.
    Reclaim,
    /// Watermarks of each node.
    Watermarks,
    /// Swap and node reclaim of the whole machine.
    HostMemory,
    /// Switches, free swap and pressure of the whole machine.
    HostState,
    /// Bytes and requests of disks, by the process that sends them.
    DiskTraffic,
    /// Bytes of IP sockets, by the process that reads and sends them.
    SocketTraffic,
    /// GPUs and other accelerators that processes hold.
    Accelerators,
    /// The sched_ext scheduler that is loaded.
    SchedExt,
    /// Names and kinds of containers and other cgroups.
    CgroupNames,
    /// Limits and memory of cgroups.
    CgroupLimits,
}

impl Facility {
    /// The counter of cycles.
    pub const CYCLES: Facility = Facility::Counter(Role::Cycles);
    /// The counter of instructions.
    pub const INSTRUCTIONS: Facility = Facility::Counter(Role::Instructions);

    /// A live view has all of these or does not start.
    pub const ESSENTIAL: [Facility; 3] = [Facility::CpuTime, Facility::TaskWalk, Facility::Exits];

    /// Facilities that rules know from facts about a host, beside probes that list their features.
    pub const JUDGED: [Facility; 22] = [
        Facility::CpuTime,
        Facility::TaskWalk,
        Facility::Exits,
        Facility::SmtTime,
        Facility::Counters,
        Facility::CYCLES,
        Facility::INSTRUCTIONS,
        Facility::Counter(Role::Lma),
        Facility::Counter(Role::Rma),
        Facility::Counter(Role::StallFrontend),
        Facility::Counter(Role::StallBackend),
        Facility::Counter(Role::Llc),
        Facility::Counter(Role::Dtlb),
        Facility::Counter(Role::Itlb),
        Facility::Counter(Role::Branch),
        Facility::NumaFields,
        Facility::DeviceIrqs,
        Facility::CacheUse,
        Facility::NodeMemory,
        Facility::NodePages,
        Facility::Watermarks,
        Facility::Placement,
    ];
}
