//! The metrics of memory tiers: nodes by speed, and pages that the kernel moves between them.

use std::collections::BTreeSet;

use super::host::HostMetric;
use super::over::{Better, Over};
use super::{Group, Metric, Order, Traits, Unit, Value, container, no};
use crate::model::counters::Counter;
use crate::model::facility::Facility;
use crate::model::sample::{Missing, Reading};
use crate::model::turns::{DEMOTION, NodeTier, PROMOTE_LIMIT, TierPages};
use crate::model::units::NodeId;
use crate::snapshot::{Container, Node, Snapshot, Task};

/// The bit of kernel.numa_balancing that promotes pages from slower tiers.
pub const TIERING: u32 = 2;

pub const TIER: Metric<Node> = node(
    "tier",
    "TIER",
    Unit::Id,
    "Rank of the node's memory tier: 1 is the fastest. From /sys/devices/virtual/memory_tiering.",
    |node, snapshot| {
        let tier =
            described(node, snapshot)?.tier.ok_or_else(|| no("the kernel assigns no tier to the node"))?;
        let all: BTreeSet<u32> = snapshot.inputs.tiers.values().filter_map(|node| node.tier).collect();
        Ok(Value::U64(1 + all.range(..tier).count() as u64))
    },
);

pub const FIRMWARE_LATENCY: Metric<Node> = node(
    "firmware_latency_ns",
    "FWNS",
    Unit::Nanoseconds,
    "Latency of a read of the node's memory from the nearest CPUs, according to the firmware (HMAT). For a \
     measured value, see latency_ns.",
    |node, snapshot| Ok(Value::U64(described(node, snapshot)?.read_latency_ns.ok_or_else(no_hmat)?)),
);

pub const FIRMWARE_BANDWIDTH: Metric<Node> = node(
    "firmware_bandwidth_gbs",
    "FWGB/s",
    Unit::GigabytesPerSecond,
    "Bandwidth of reads of the node's memory from the nearest CPUs, according to the firmware (HMAT). For a \
     measured value, see bandwidth_gbs.",
    |node, snapshot| Ok(Value::F64(described(node, snapshot)?.read_mbs.ok_or_else(no_hmat)? as f64 / 1000.0)),
);

pub const PROMOTED: Metric<Node> = rate(
    "promoted_pages_per_s",
    "PROM/s",
    "Pages that NUMA balancing promoted to the node from a slower tier, because they are in use \
     (pgpromote_success).",
    |node, snapshot| pages(node, snapshot, |pages| pages.promoted),
);

pub const DEMOTED: Metric<Node> = rate(
    "demoted_pages_per_s",
    "DEMOTE/s",
    "Pages of the node that reclaim demoted to a slower tier (pgdemote_kswapd, _direct, _khugepaged and \
     _proactive).",
    |node, snapshot| pages(node, snapshot, |pages| pages.demoted),
);

pub const CANDIDATES: Metric<Node> = rate(
    "promote_candidates_per_s",
    "CAND/s",
    "Pages on slower tiers found in use: candidates for promotion to this node, before the rate limit applies \
     (pgpromote_candidate).",
    |node, snapshot| pages(node, snapshot, |pages| pages.candidates),
);

pub const CONTAINER_PROMOTED: Metric<Container> = of_container(
    PROMOTED.id,
    PROMOTED.title,
    "Pages that NUMA balancing promoted to a faster tier, in this cgroup and those below it, between the last two \
     readings of memory.stat.",
    promoted,
);

pub const CONTAINER_DEMOTED: Metric<Container> = of_container(
    DEMOTED.id,
    DEMOTED.title,
    "Pages that reclaim demoted to a slower tier, in this cgroup and those below it, between the last two readings \
     of memory.stat.",
    demoted,
);

pub const TASK_PROMOTED: Metric<Task> = Metric::memory_rate(
    PROMOTED.id,
    PROMOTED.title,
    8,
    "Its pages that NUMA balancing moved to a faster tier because the task uses them. Unknown if \
     kernel.numa_balancing is 3, because pages then also move within a tier.",
    |task, snapshot| {
        if snapshot.inputs.tier_pages.is_empty() {
            return Err(no("the machine has only one memory tier"));
        }
        match snapshot.machine.and_then(|machine| machine.numa_balancing) {
            Some(TIERING) => snapshot.rate(task.delta[Counter::BalancedPages]).map(Value::F64),
            // Without this mode the kernel promotes nothing.
            Some(mode) if mode & TIERING == 0 => snapshot.rate(0).map(Value::F64),
            Some(_) => Err(no("kernel.numa_balancing is 3: pages move between nodes of a tier, too")),
            None => Err(no("kernel.numa_balancing cannot be read")),
        }
    },
)
.with(
    Traits::NONE
        .needs(&[Facility::MemoryTiers, Facility::MovedPages, Facility::MoveReasons])
        .missing_as("process_promoted_pages_per_s"),
);

pub const DEMOTION_ENABLED: HostMetric = HostMetric {
    id: "demotion_enabled",
    title: "DEMOTION",
    help: "mm/numa/demotion_enabled: with 1, reclaim demotes pages to a slower tier before it drops or swaps \
           them.",
    value: |snapshot| switch(snapshot, DEMOTION),
    share_of_time: None,
    needs: &[Facility::MemoryTiers],
};

pub const PROMOTE_RATE_LIMIT: HostMetric = HostMetric {
    id: "promote_rate_limit_mbs",
    title: "PROMLIMIT",
    help: "kernel.numa_balancing_promote_rate_limit_MBps: limit of promotion to each node, in MB/s.",
    value: |snapshot| switch(snapshot, PROMOTE_LIMIT),
    share_of_time: None,
    needs: &[Facility::MemoryTiers],
};

fn switch(snapshot: &Snapshot, name: &str) -> Reading<Value> {
    let value = snapshot.inputs.tier_switches.get(name).map(|value| Value::U64(**value));
    value.ok_or_else(|| Missing::Unsupported("the kernel has no such setting".into()))
}

fn no_hmat() -> Missing {
    Missing::Unsupported("the firmware has no HMAT".into())
}

fn described<'s>(node: &Node, snapshot: &'s Snapshot) -> Reading<&'s NodeTier> {
    let described = snapshot.inputs.tiers.get(&NodeId(node.raw.id));
    described.map(|tier| &**tier).ok_or_else(|| no("memory tiers were not read for this node"))
}

/// Pages per second of the interval.
fn pages(node: &Node, snapshot: &Snapshot, of: fn(&TierPages) -> Option<u64>) -> Reading<Value> {
    if snapshot.inputs.tier_pages.is_empty() {
        return Err(no("the machine has only one memory tier"));
    }
    let total = snapshot
        .inputs
        .tier_pages
        .get(&NodeId(node.raw.id))
        .ok_or_else(|| no("the vmstat file of the node cannot be read"))?;
    of(total).ok_or_else(|| Missing::KernelTooOld("the kernel does not count these pages by node".into()))?;
    snapshot.rate(0)?;
    let back = || Missing::Lost("this is the first reading, or the count decreased".into());
    snapshot.rate(node.counts.tier_pages.as_ref().and_then(of).ok_or_else(back)?).map(Value::F64)
}

const fn node(
    id: &'static str,
    title: &'static str,
    unit: Unit,
    help: &'static str,
    value: fn(&Node, &Snapshot) -> Reading<Value>,
) -> Metric<Node> {
    let traits = Traits::NONE.needs(&[Facility::MemoryTiers]);
    let metric = Metric::new(id, (title, 8), (Group::Node, unit, Order::Ascending), help, value);
    Metric { over: Over::Newest, traits, ..metric }
}

const fn rate(
    id: &'static str,
    title: &'static str,
    help: &'static str,
    value: fn(&Node, &Snapshot) -> Reading<Value>,
) -> Metric<Node> {
    let kind = (Group::Node, Unit::PerSecond, Order::Descending);
    let traits = Traits::NONE.needs(&[Facility::MemoryTiers]).better(Better::Low);
    Metric::new(id, (title, 8), kind, help, value).with(traits)
}

/// Makes a metric of a count of memory.stat.
macro_rules! of_group {
    ($name:ident, $field:ident) => {
        fn $name(row: &Container, _: &Snapshot) -> Reading<Value> {
            let delta = container::delta(row)?;
            let pages = delta.tier_pages.clone()?.$field;
            let count = pages
                .ok_or_else(|| Missing::KernelTooOld("memory.stat does not count these pages".into()))?;
            Ok(Value::F64(count as f64 * 1e9 / delta.interval_ns as f64))
        }
    };
}

of_group!(promoted, promoted);
of_group!(demoted, demoted);

const fn of_container(
    id: &'static str,
    title: &'static str,
    help: &'static str,
    value: fn(&Container, &Snapshot) -> Reading<Value>,
) -> Metric<Container> {
    let traits = Traits::NONE.needs(&[Facility::CgroupLimits, Facility::MemoryTiers]).better(Better::Low);
    let kind = (Group::Memory, Unit::PerSecond, Order::Descending);
    Metric::new(id, (title, 8), kind, help, value).with(traits)
}
