//! The metrics of a node.

use super::over::{Better, Over, Quotient};
use super::{Group, Metric, Order, Stands, Traits, Unit, Value, pages};
use crate::metric::host::{NO_STEAL, no_irq};
use crate::metric::{
    balancing, cache_use, counters, dram, free_blocks, hardware, interrupts, on_cpus, placement, since_boot,
    tiers,
};
use crate::model::event::Role;
use crate::model::facility::Facility;
use crate::model::sample::{FilePages, Missing, NodeRaw, Reading};
use crate::snapshot::{Node, Snapshot};

/// All metrics of a node, in the order in which help and JSON list them.
pub static NODE_METRICS: &[Metric<Node>] = &[
    NODE,
    CPUS,
    CPU_PCT,
    IRQ_PCT,
    STEAL_PCT,
    IPC,
    LMA_PER_S,
    RMA_PER_S,
    on_cpus::CPI,
    on_cpus::GHZ,
    on_cpus::STALL_FRONTEND_PCT,
    on_cpus::STALL_BACKEND_PCT,
    on_cpus::LLC_MPKI,
    on_cpus::DTLB_MPKI,
    on_cpus::ITLB_MPKI,
    on_cpus::BRANCH_MPKI,
    on_cpus::RMA_LMA,
    on_cpus::LPI,
    on_cpus::RPI,
    on_cpus::COUNTERS_RUNNING_PCT,
    placement::NODE_REMOTE_PCT,
    placement::NODE_REMOTE_SOURCE,
    placement::NODE_REMOTE_ERROR_POINTS,
    placement::NODE_REMOTE_LOW_PCT,
    placement::NODE_REMOTE_HIGH_PCT,
    placement::NODE_REMOTE_BEST_PCT,
    MEM_TOTAL_BYTES,
    MEM_FREE_BYTES,
    WATERMARK_DISTANCE_PCT,
    MEM_FILE_BYTES,
    MEM_INACTIVE_FILE_BYTES,
    MEM_SHMEM_BYTES,
    MEM_DIRTY_BYTES,
    MEM_ANON_BYTES,
    MEM_SLAB_BYTES,
    HUGE_TOTAL,
    HUGE_FREE,
    free_blocks::FREE_BLOCKS_BY_ORDER,
    free_blocks::HUGE_FREE_PCT,
    NUMA_HIT_PER_S,
    NUMA_MISS_PER_S,
    NUMA_FOREIGN_PER_S,
    INTERLEAVE_HIT_PER_S,
    LOCAL_NODE_PER_S,
    OTHER_NODE_PER_S,
    KSWAPD_PAGES_PER_S,
    DIRECT_RECLAIM_PAGES_PER_S,
    NODE_RECLAIM_PER_S,
    since_boot::NUMA_HIT,
    since_boot::NUMA_MISS,
    since_boot::NUMA_FOREIGN,
    since_boot::INTERLEAVE_HIT,
    since_boot::LOCAL_NODE,
    since_boot::OTHER_NODE,
    balancing::NODE_HINT_FAULTS,
    balancing::NODE_HINT_REMOTE_PCT,
    pages::PAGES_IN,
    pages::PAGES_OUT,
    tiers::TIER,
    tiers::PROMOTED,
    tiers::DEMOTED,
    tiers::CANDIDATES,
    cache_use::NODE_OCCUPANCY,
    cache_use::NODE_MBM,
    cache_use::NODE_MBM_LOCAL,
    hardware::DISTANCE,
    hardware::LATENCY,
    hardware::BANDWIDTH,
    tiers::FIRMWARE_LATENCY,
    tiers::FIRMWARE_BANDWIDTH,
    dram::READ,
    dram::WRITE,
    dram::BUSY,
    hardware::DEVICES,
    interrupts::IRQS_PER_S,
    interrupts::DEVICE_IRQS_PER_S,
    interrupts::DEVICE_IRQS_AWAY_PCT,
];

pub const NODE: Metric<Node> =
    node("node", "NODE", 4, Unit::Id, "Node id.", |node, _| Ok(Value::U64(node.raw.id.into())))
        .with(Traits::NONE.stands(Stands::Plain));

pub const CPUS: Metric<Node> =
    node("cpus", "CPUS", 5, Unit::Count, "Number of the node's online CPUs.", |node, _| {
        Ok(Value::U64(node.cpus.into()))
    });

pub const CPU_PCT: Metric<Node> = node(
    "cpu_pct",
    "CPU%",
    6,
    Unit::Percent,
    "Busy time of the node's CPUs in the interval; 100 means that all are busy.",
    |node, snapshot| {
        if node.cpus == 0 {
            return Err(Missing::NotCollected("the node has no CPUs".into()));
        }
        snapshot.share(node.on_cpus.busy_ns).map(|pct| Value::F64(pct / f64::from(node.cpus)))
    },
);

pub const IRQ_PCT: Metric<Node> = node(
    "irq_pct",
    "IRQ%",
    5,
    Unit::Percent,
    "Time of the node's CPUs in hard and soft interrupts; 100 means all CPUs. From /proc/stat, in steps of \
     10 ms per CPU.",
    |node, snapshot| {
        if node.cpus == 0 {
            return Err(Missing::NotCollected("the node has no CPUs".into()));
        }
        snapshot.rate(0)?;
        let ns = node.on_cpus.irq_ns.get().ok_or_else(|| no_irq(snapshot, |cpu| cpu.node == node.raw.id))?;
        snapshot.share(ns).map(|pct| Value::F64(pct / f64::from(node.cpus)))
    },
)
.with(Traits::NONE.needs(&[Facility::Irq]).better(Better::Low));

pub const STEAL_PCT: Metric<Node> = node(
    "steal_pct",
    "STEAL%",
    6,
    Unit::Percent,
    "Time in which the hypervisor ran other guests although the node's CPUs had work (steal); 100 means all CPUs. \
     From /proc/stat, in steps of 10 ms per CPU.",
    |node, snapshot| {
        if node.cpus == 0 {
            return Err(Missing::NotCollected("the node has no CPUs".into()));
        }
        snapshot.rate(0)?;
        let ns = node.on_cpus.steal_ns.get().ok_or_else(|| Missing::Unsupported(NO_STEAL.into()))?;
        snapshot.share(ns).map(|pct| Value::F64(pct / f64::from(node.cpus)))
    },
)
.with(Traits::NONE.needs(&[Facility::Steal]).better(Better::Low));

pub const IPC: Metric<Node> = node(
    "ipc",
    "IPC",
    5,
    Unit::Ratio,
    "Instructions per cycle of everything that ran on the node's CPUs.",
    |node, snapshot| ipc(node, snapshot).map(Quotient::value).map(Value::F64),
)
.over(Over::Quotient(ipc))
.with(
    Traits::NONE
        .needs(&[Facility::CYCLES, Facility::INSTRUCTIONS])
        .stands(Stands::Harm(|ipc| ipc < 0.5))
        .better(Better::High),
);

pub const LMA_PER_S: Metric<Node> = node(
    "lma_per_s",
    "LMA/s",
    7,
    Unit::PerSecond,
    "Accesses by the node's CPUs served by the node's own memory.",
    |node, snapshot| {
        counters::lma(&node.on_cpus.slots, snapshot)
            .and_then(|count| snapshot.rate_f64(count))
            .map(Value::F64)
    },
)
.with(Traits::NONE.needs(&[Facility::Counter(Role::Lma)]));

pub const RMA_PER_S: Metric<Node> = node(
    "rma_per_s",
    "RMA/s",
    7,
    Unit::PerSecond,
    "Accesses by the node's CPUs served by another node's memory.",
    |node, snapshot| {
        counters::rma(&node.on_cpus.slots, snapshot)
            .and_then(|count| snapshot.rate_f64(count))
            .map(Value::F64)
    },
)
.with(Traits::NONE.needs(&[Facility::Counter(Role::Rma)]));

pub const MEM_TOTAL_BYTES: Metric<Node> =
    node("mem_total_bytes", "TOTAL", 7, Unit::Bytes, "Total memory of the node.", |node, _| {
        Ok(Value::U64(node.raw.mem_total_bytes))
    })
    .with(Traits::NONE.needs(&[Facility::NodeMemory]));

pub const MEM_FREE_BYTES: Metric<Node> =
    node("mem_free_bytes", "FREE", 7, Unit::Bytes, "Free memory of the node.", |node, _| {
        Ok(Value::U64(node.raw.mem_free_bytes))
    })
    .with(Traits::NONE.needs(&[Facility::NodeMemory]));

pub const WATERMARK_DISTANCE_PCT: Metric<Node> = node(
    "watermark_distance_pct",
    "WMARK%",
    6,
    Unit::Percent,
    "Free memory above the low watermark, in % of the memory that the node can allocate. At 0, new pages go \
     to other nodes. If other nodes are also full, kswapd frees pages up to the high watermark. So a node \
     short of memory usually shows a value just above 0.",
    |node, _| watermark_distance(&node.raw).map(Value::F64),
)
.over(Over::Level)
.with(Traits::NONE.needs(&[Facility::Watermarks]).stands(Stands::Harm(|pct| pct < 0.0)));

pub const MEM_FILE_BYTES: Metric<Node> = node(
    "mem_file_bytes",
    "FILE",
    7,
    Unit::Bytes,
    "Page cache, including file pages, tmpfs and shared memory.",
    |node, _| Ok(Value::U64(node.raw.mem_file_bytes)),
)
.with(Traits::NONE.needs(&[Facility::NodeMemory]));

pub const MEM_INACTIVE_FILE_BYTES: Metric<Node> = node(
    "mem_inactive_file_bytes",
    "INACT",
    7,
    Unit::Bytes,
    "Page cache that was not used recently, which the kernel drops first. Excludes tmpfs and shared memory.",
    |node, _| file_pages(node, |pages| pages.inactive_bytes),
)
.with(Traits::NONE.needs(&[Facility::FilePages]));

pub const MEM_SHMEM_BYTES: Metric<Node> = node(
    "mem_shmem_bytes",
    "SHMEM",
    7,
    Unit::Bytes,
    "Part of the page cache that is tmpfs or shared memory: the kernel can swap it but not drop it.",
    |node, _| file_pages(node, |pages| pages.shmem_bytes),
)
.with(Traits::NONE.needs(&[Facility::FilePages]));

pub const MEM_DIRTY_BYTES: Metric<Node> = node(
    "mem_dirty_bytes",
    "DIRTY",
    7,
    Unit::Bytes,
    "Dirty page cache, which must be written before it can be dropped.",
    |node, _| file_pages(node, |pages| pages.dirty_bytes),
)
.with(Traits::NONE.needs(&[Facility::FilePages]));

pub const MEM_ANON_BYTES: Metric<Node> = node(
    "mem_anon_bytes",
    "ANON",
    7,
    Unit::Bytes,
    "Anonymous memory of processes on the node.",
    |node, _| Ok(Value::U64(node.raw.mem_anon_bytes)),
)
.with(Traits::NONE.needs(&[Facility::NodeMemory]));

pub const MEM_SLAB_BYTES: Metric<Node> =
    node("mem_slab_bytes", "SLAB", 7, Unit::Bytes, "Kernel slab caches on the node.", |node, _| {
        Ok(Value::U64(node.raw.mem_slab_bytes))
    })
    .with(Traits::NONE.needs(&[Facility::NodeMemory]));

pub const HUGE_TOTAL: Metric<Node> = node(
    "huge_total",
    "HUGE",
    6,
    Unit::Count,
    "Huge pages of the default size in the node's hugetlb pool.",
    |node, _| Ok(Value::U64(node.raw.huge_total)),
)
.with(Traits::NONE.needs(&[Facility::NodeMemory]));

pub const HUGE_FREE: Metric<Node> = node(
    "huge_free",
    "HFREE",
    6,
    Unit::Count,
    "Free huge pages of the default size in the node's hugetlb pool.",
    |node, _| Ok(Value::U64(node.raw.huge_free)),
)
.with(Traits::NONE.needs(&[Facility::NodeMemory]));

pub const NUMA_HIT_PER_S: Metric<Node> = node(
    "numa_hit_per_s",
    "HIT/s",
    7,
    Unit::PerSecond,
    "Pages allocated on this node as intended.",
    |node, s| rate(node.counts.pages.numa_hit, s),
)
.with(Traits::NONE.needs(&[Facility::NodePages]));

pub const NUMA_MISS_PER_S: Metric<Node> = node(
    "numa_miss_per_s",
    "MISS/s",
    7,
    Unit::PerSecond,
    "Pages allocated on this node although another node was preferred.",
    |node, s| rate(node.counts.pages.numa_miss, s),
)
.with(Traits::NONE.needs(&[Facility::NodePages]).stands(Stands::Harm(|rate| rate > 0.0)).better(Better::Low));

pub const NUMA_FOREIGN_PER_S: Metric<Node> = node(
    "numa_foreign_per_s",
    "FORGN/s",
    7,
    Unit::PerSecond,
    "Pages intended for this node but allocated on another.",
    |node, s| rate(node.counts.pages.numa_foreign, s),
)
.with(Traits::NONE.needs(&[Facility::NodePages]).stands(Stands::Harm(|rate| rate > 0.0)).better(Better::Low));

pub const INTERLEAVE_HIT_PER_S: Metric<Node> = node(
    "interleave_hit_per_s",
    "ILEAV/s",
    7,
    Unit::PerSecond,
    "Interleaved pages allocated on this node as intended.",
    |node, s| rate(node.counts.pages.interleave_hit, s),
)
.with(Traits::NONE.needs(&[Facility::NodePages]));

pub const LOCAL_NODE_PER_S: Metric<Node> = node(
    "local_node_per_s",
    "LOCAL/s",
    7,
    Unit::PerSecond,
    "Pages allocated on this node by a task that runs on it.",
    |node, s| rate(node.counts.pages.local_node, s),
)
.with(Traits::NONE.needs(&[Facility::NodePages]));

pub const OTHER_NODE_PER_S: Metric<Node> = node(
    "other_node_per_s",
    "OTHER/s",
    7,
    Unit::PerSecond,
    "Pages allocated on this node by a task that runs on another node.",
    |node, s| rate(node.counts.pages.other_node, s),
)
.with(
    Traits::NONE.needs(&[Facility::NodePages]).stands(Stands::Remote(|rate| rate > 0.0)).better(Better::Low),
);

pub const KSWAPD_PAGES_PER_S: Metric<Node> = node(
    "kswapd_pages_per_s",
    "KSWAPD/s",
    8,
    Unit::PerSecond,
    "Pages of the node freed by its kswapd, which runs when free memory falls below the low watermark.",
    |node, s| rate(node.counts.kswapd_pages, s),
)
.with(Traits::NONE.needs(&[Facility::Reclaim]).better(Better::Low));

pub const DIRECT_RECLAIM_PAGES_PER_S: Metric<Node> = node(
    "direct_reclaim_pages_per_s",
    "DIRECT/s",
    8,
    Unit::PerSecond,
    "Pages of the node freed by tasks other than kswapd, mostly by allocations that had to wait. Includes \
     reclaim within a memory limit (cgroup) and node reclaim.",
    |node, s| rate(node.counts.direct_pages, s),
)
.with(Traits::NONE.needs(&[Facility::Reclaim]).stands(Stands::Harm(|rate| rate > 0.0)).better(Better::Low));

pub const NODE_RECLAIM_PER_S: Metric<Node> = node(
    "node_reclaim_per_s",
    "NRECL/s",
    7,
    Unit::PerSecond,
    "Times per second that an allocation reclaimed pages of this node before using another node. Only with \
     vm.zone_reclaim_mode set.",
    |node, s| rate(node.counts.node_reclaims, s),
)
.with(Traits::NONE.needs(&[Facility::Reclaim]).stands(Stands::Harm(|rate| rate > 0.0)).better(Better::Low));

fn file_pages(node: &Node, kind: fn(&FilePages) -> u64) -> Reading<Value> {
    let pages = node.raw.file_pages.as_ref();
    let pages =
        pages.ok_or_else(|| Missing::Unsupported("the meminfo file of the node has no such line".into()))?;
    Ok(Value::U64(kind(pages)))
}

fn ipc(node: &Node, snapshot: &Snapshot) -> Reading<Quotient> {
    counters::ipc(&node.on_cpus.slots, node.on_cpus.busy_ns, snapshot)
}

/// Free pages above the low watermark per hundred managed ones.
///
/// # Errors
/// The node has no memory to hand out, or /proc/zoneinfo does not name it.
pub fn watermark_distance(node: &NodeRaw) -> Reading<f64> {
    if node.managed_bytes == 0 {
        return Err(match node.mem_total_bytes {
            0 => Missing::NotCollected("the node has no allocatable memory".into()),
            _ => Missing::Unsupported("/proc/zoneinfo does not list the node".into()),
        });
    }
    let above = node.mem_free_bytes as f64 - node.low_watermark_bytes as f64;
    Ok(above * 100.0 / node.managed_bytes as f64)
}

const fn node(
    id: &'static str,
    title: &'static str,
    width: u16,
    unit: Unit,
    help: &'static str,
    value: fn(&Node, &Snapshot) -> Reading<Value>,
) -> Metric<Node> {
    Metric::new(id, (title, width), (Group::Node, unit, Order::Descending), help, value)
}

fn rate(pages: u64, snapshot: &Snapshot) -> Reading<Value> {
    snapshot.rate(pages).map(Value::F64)
}

/// The metric called `id`.
pub fn by_id(id: &str) -> Option<&'static Metric<Node>> {
    NODE_METRICS.iter().find(|metric| metric.id == id)
}
