//! The metrics of L3 occupancy and memory bandwidth, from the monitors of the CPU (resctrl).

use super::over::Over;
use super::{Group, Metric, Order, Traits, Unit, Value, no};
use crate::model::facility::Facility;
use crate::model::sample::Reading;
use crate::model::turns::{CacheId, CacheUse};
use crate::model::units::{CpuId, NodeId};
use crate::snapshot::{CpuSet, Node, SetKind, Snapshot};

/// Reads a value of a domain.
type Of = fn(&CacheUse) -> &Reading<u64>;

const TOTAL: Of = |domain| &domain.total_bytes_per_s;
const LOCAL: Of = |domain| &domain.local_bytes_per_s;

const MBM_HELP: &str = "Bytes per second transferred between its L3 caches and all memory, as monitored by \
                        the CPU (MBM total of resctrl). Not verified on hardware.";
const LOCAL_HELP: &str = "Bytes per second transferred between its L3 caches and the memory of their node, \
                          as monitored by the CPU (MBM local of resctrl). Not verified on hardware.";

const OCCUPANCY_HELP: &str =
    "Bytes in its L3 caches, as the CPU monitors them (CMT of resctrl). Not verified on hardware.";

const fn metric<R>(
    id: &'static str,
    title: &'static str,
    unit: Unit,
    help: &'static str,
    value: fn(&R, &Snapshot) -> Reading<Value>,
) -> Metric<R> {
    let traits = Traits::NONE.needs(&[Facility::CacheUse]);
    let metric = Metric::new(id, (title, 8), (Group::Node, unit, Order::Descending), help, value);
    Metric { over: Over::Level, traits, ..metric }
}

pub const OCCUPANCY: Metric<CpuSet> =
    metric("llc_occupancy_bytes", "L3 USED", Unit::Bytes, OCCUPANCY_HELP, |set, snapshot| match set.kind {
        SetKind::Llc => of_llcs(&set.cpus, snapshot, |domain| &domain.occupancy_bytes).map(Value::U64),
        SetKind::Socket => Err(no("a socket can have several L3 caches")),
    });

pub const MBM: Metric<CpuSet> =
    metric("mbm_bytes_per_s", "MBM B/s", Unit::PerSecond, MBM_HELP, |set, snapshot| {
        of_llcs(&set.cpus, snapshot, TOTAL).map(rate)
    });

pub const MBM_LOCAL: Metric<CpuSet> =
    metric("mbm_local_bytes_per_s", "MBM LOC", Unit::PerSecond, LOCAL_HELP, |set, snapshot| {
        of_llcs(&set.cpus, snapshot, LOCAL).map(rate)
    });

pub const NODE_OCCUPANCY: Metric<Node> =
    metric(OCCUPANCY.id, OCCUPANCY.title, Unit::Bytes, OCCUPANCY_HELP, |node, snapshot| {
        of_node(node, snapshot, |domain| &domain.occupancy_bytes).map(Value::U64)
    });

pub const NODE_MBM: Metric<Node> = metric(MBM.id, MBM.title, Unit::PerSecond, MBM_HELP, |node, snapshot| {
    of_node(node, snapshot, TOTAL).map(rate)
});

pub const NODE_MBM_LOCAL: Metric<Node> =
    metric(MBM_LOCAL.id, MBM_LOCAL.title, Unit::PerSecond, LOCAL_HELP, |node, snapshot| {
        of_node(node, snapshot, LOCAL).map(rate)
    });

fn rate(bytes: u64) -> Value {
    Value::F64(bytes as f64)
}

/// The sum over the L3 domains of these CPUs.
fn of_llcs(cpus: &[u32], snapshot: &Snapshot, of: Of) -> Reading<u64> {
    let here = |cpu: &CpuId| cpus.contains(&cpu.0);
    let llcs = snapshot.host.topology.llcs.iter().filter(|llc| llc.cpus.iter().any(here));
    let mut sum = None;
    for llc in llcs {
        if !llc.cpus.iter().all(here) {
            return Err(no("an L3 domain also has CPUs of other rows"));
        }
        let first = llc.cpus.first().map_or(u32::MAX, |cpu| cpu.0);
        let domain = snapshot.inputs.cache_use.get(&CacheId { cpu: first, node: None });
        let domain =
            domain.ok_or_else(|| no("resctrl has no files of this L3 domain, or its CPUs are isolated"))?;
        sum = Some(sum.unwrap_or(0u64).saturating_add(of(domain).clone()?));
    }
    sum.ok_or_else(|| no("no L3 domain is here"))
}

/// The sum over the L3 domains of a node, or over the parts of domains that are the node's (sub-NUMA clustering).
fn of_node(node: &Node, snapshot: &Snapshot, of: Of) -> Reading<u64> {
    let id = NodeId(node.raw.id);
    let parts: Vec<Reading<u64>> = snapshot
        .inputs
        .cache_use
        .iter()
        .filter(|(part, _)| part.node == Some(id))
        .map(|(_, part)| of(part).clone())
        .collect();
    if !parts.is_empty() {
        return parts.into_iter().try_fold(0u64, |sum, part| Ok(sum.saturating_add(part?)));
    }
    let cpus = snapshot.host.topology.node(id).map_or(&[][..], |node| &node.cpus);
    if cpus.is_empty() {
        return Err(no("the node has no CPUs"));
    }
    of_llcs(&cpus.iter().map(|cpu| cpu.0).collect::<Vec<_>>(), snapshot, of)
}
