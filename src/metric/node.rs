//! The metrics of a node.

use super::{Group, Metric, Order, Traits, Unit, Value};
use crate::metric::{balancing, counters, hardware, moved, on_cpus, placement};
use crate::model::facility::Facility;
use crate::pmu::event::Role;
use crate::sample::{Missing, NodeRaw, Reading};
use crate::snapshot::{Node, Snapshot};

/// All metrics of a node, in the order in which help and JSON list them.
pub static NODE_METRICS: &[Metric<Node>] = &[
    node("node", "NODE", 4, Unit::Id, "Node id.", |node, _| Ok(Value::U64(node.raw.id.into()))),
    node("cpus", "CPUS", 5, Unit::Count, "CPUs of the node that are online.", |node, _| {
        Ok(Value::U64(node.cpus.into()))
    }),
    node(
        "cpu_pct",
        "CPU%",
        6,
        Unit::Percent,
        "Busy time of the node's CPUs in the interval; 100 is all of them.",
        |node, snapshot| {
            if node.cpus == 0 {
                return Err(Missing::NotCollected("the node has no CPUs".into()));
            }
            snapshot.share(node.busy_ns).map(|pct| Value::F64(pct / f64::from(node.cpus)))
        },
    ),
    node(
        "irq_pct",
        "IRQ%",
        5,
        Unit::Percent,
        "Time of the node's CPUs in hard and soft interrupts, whatever task they hit; 100 is all of them. From \
         /proc/stat, in steps of 10 ms per CPU.",
        |node, snapshot| {
            if node.cpus == 0 {
                return Err(Missing::NotCollected("the node has no CPUs".into()));
            }
            snapshot.share(node.irq_ns).map(|pct| Value::F64(pct / f64::from(node.cpus)))
        },
    ).needs(&[Facility::Irq]),
    node(
        "ipc",
        "IPC",
        5,
        Unit::Ratio,
        "Instructions per cycle of everything that ran on the node's CPUs.",
        |node, snapshot| counters::ipc(&node.slots, snapshot).map(Value::F64),
    ).needs(&[Facility::CYCLES, Facility::INSTRUCTIONS]),
    node(
        "lma_per_s",
        "LMA/s",
        7,
        Unit::PerSecond,
        "Accesses of what ran on the node's CPUs that the node's own memory answered.",
        |node, snapshot| {
            counters::lma(&node.slots, snapshot).and_then(|count| snapshot.rate_f64(count)).map(Value::F64)
        },
    ).needs(&[Facility::Counter(Role::Lma)]),
    node(
        "rma_per_s",
        "RMA/s",
        7,
        Unit::PerSecond,
        "Accesses of what ran on the node's CPUs that another node's memory answered.",
        |node, snapshot| {
            counters::rma(&node.slots, snapshot).and_then(|count| snapshot.rate_f64(count)).map(Value::F64)
        },
    ).needs(&[Facility::Counter(Role::Rma)]),
    on_cpus::CPI,
    on_cpus::GHZ,
    on_cpus::STALL_FRONTEND,
    on_cpus::STALL_BACKEND,
    on_cpus::LLC,
    on_cpus::DTLB,
    on_cpus::ITLB,
    on_cpus::BRANCH,
    on_cpus::RMA_LMA,
    on_cpus::LPI,
    on_cpus::RPI,
    on_cpus::RUNNING,
    placement::NODE_REMOTE_PCT,
    placement::NODE_REMOTE_SOURCE,
    placement::NODE_REMOTE_ERROR_POINTS,
    placement::NODE_REMOTE_BEST_PCT,
    node("mem_total_bytes", "TOTAL", 7, Unit::Bytes, "Memory of the node.", |node, _| {
        Ok(Value::U64(node.raw.mem_total_bytes))
    }).needs(&[Facility::NodeMemory]),
    node("mem_free_bytes", "FREE", 7, Unit::Bytes, "Memory that nothing uses.", |node, _| {
        Ok(Value::U64(node.raw.mem_free_bytes))
    }).needs(&[Facility::NodeMemory]),
    node(
        "watermark_distance_pct",
        "WMARK%",
        6,
        Unit::Percent,
        "Free memory above the low watermark, as a share of what the node can hand out. Below 0 kswapd works and \
         new pages are placed on other nodes.",
        |node, _| watermark_distance(&node.raw).map(Value::F64),
    ).needs(&[Facility::Watermarks]),
    node(
        "mem_file_bytes",
        "FILE",
        7,
        Unit::Bytes,
        "Page cache: file pages, tmpfs and shared memory included.",
        |node, _| Ok(Value::U64(node.raw.mem_file_bytes)),
    ).needs(&[Facility::NodeMemory]),
    node("mem_anon_bytes", "ANON", 7, Unit::Bytes, "Anonymous memory of processes.", |node, _| {
        Ok(Value::U64(node.raw.mem_anon_bytes))
    }).needs(&[Facility::NodeMemory]),
    node("mem_slab_bytes", "SLAB", 7, Unit::Bytes, "Kernel slab caches.", |node, _| {
        Ok(Value::U64(node.raw.mem_slab_bytes))
    }).needs(&[Facility::NodeMemory]),
    node(
        "huge_total",
        "HUGE",
        6,
        Unit::Count,
        "Huge pages of the default size in the node's hugetlb pool.",
        |node, _| Ok(Value::U64(node.raw.huge_total)),
    ).needs(&[Facility::NodeMemory]),
    node(
        "huge_free",
        "HFREE",
        6,
        Unit::Count,
        "Huge pages of the default size in the pool that are free.",
        |node, _| Ok(Value::U64(node.raw.huge_free)),
    ).needs(&[Facility::NodeMemory]),
    node("numa_hit_per_s", "HIT/s", 7, Unit::PerSecond, "Pages allocated here as intended.", |node, s| {
        rate(node.pages.numa_hit, s)
    }).needs(&[Facility::NodePages]),
    node(
        "numa_miss_per_s",
        "MISS/s",
        7,
        Unit::PerSecond,
        "Pages allocated here although another node was preferred.",
        |node, s| rate(node.pages.numa_miss, s),
    ).needs(&[Facility::NodePages]),
    node(
        "numa_foreign_per_s",
        "FORGN/s",
        7,
        Unit::PerSecond,
        "Pages wanted here but allocated on another node.",
        |node, s| rate(node.pages.numa_foreign, s),
    ).needs(&[Facility::NodePages]),
    node(
        "interleave_hit_per_s",
        "ILEAV/s",
        7,
        Unit::PerSecond,
        "Interleaved pages allocated here as intended.",
        |node, s| rate(node.pages.interleave_hit, s),
    ).needs(&[Facility::NodePages]),
    node(
        "local_node_per_s",
        "LOCAL/s",
        7,
        Unit::PerSecond,
        "Pages allocated here by a task running here.",
        |node, s| rate(node.pages.local_node, s),
    ).needs(&[Facility::NodePages]),
    node(
        "other_node_per_s",
        "OTHER/s",
        7,
        Unit::PerSecond,
        "Pages allocated here by a task running on another node.",
        |node, s| rate(node.pages.other_node, s),
    ).needs(&[Facility::NodePages]),
    node(
        "kswapd_pages_per_s",
        "KSWAPD/s",
        8,
        Unit::PerSecond,
        "Pages of the node that its kswapd freed: it runs when free memory falls below the low watermark.",
        |node, s| rate(node.kswapd_pages, s),
    ).needs(&[Facility::Reclaim]),
    node(
        "direct_reclaim_pages_per_s",
        "DIRECT/s",
        8,
        Unit::PerSecond,
        "Pages of the node that somebody else freed, most often a task whose allocation had to wait for it; \
         reclaim within a memory limit (cgroup) and node reclaim are included.",
        |node, s| rate(node.direct_pages, s),
    ).needs(&[Facility::Reclaim]),
    node(
        "node_reclaim_per_s",
        "NRECL/s",
        7,
        Unit::PerSecond,
        "Times an allocation cleaned up this node before it would take memory of another: only with \
         vm.zone_reclaim_mode set.",
        |node, s| rate(node.node_reclaims, s),
    ).needs(&[Facility::Reclaim]),
    balancing::NODE_HINT_FAULTS,
    balancing::NODE_HINT_REMOTE_PCT,
    moved::PAGES_IN,
    moved::PAGES_OUT,
    hardware::DISTANCE,
    hardware::DEVICES,
];

/// Free pages above the low watermark per hundred managed ones.
fn watermark_distance(node: &NodeRaw) -> Reading<f64> {
    if node.managed_bytes == 0 {
        return Err(Missing::NotCollected("the node has no memory to hand out".into()));
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
    Metric {
        id,
        title,
        width,
        group: Group::Node,
        unit,
        order: Order::Descending,
        help,
        value,
        traits: Traits::NONE,
    }
}

fn rate(pages: u64, snapshot: &Snapshot) -> Reading<Value> {
    snapshot.rate(pages).map(Value::F64)
}

/// The metric called `id`.
pub fn by_id(id: &str) -> Option<&'static Metric<Node>> {
    NODE_METRICS.iter().find(|metric| metric.id == id)
}
