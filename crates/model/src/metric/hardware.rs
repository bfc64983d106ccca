//! Distances of a node to the others, and the devices attached to it.

use super::over::Over;
use super::{Group, Metric, Order, Traits, Unit, Value};
use crate::model::profile::SURE;
use crate::model::sample::{Missing, Reading};
use crate::model::topology::{Calibration, Cost, Device, Node as Facts, Topology};
use crate::model::units::NodeId;
use crate::snapshot::{Node, Snapshot};
use crate::text::clean_str;

pub const DISTANCE: Metric<Node> = Metric {
    id: "distance",
    title: "DISTANCE",
    width: 11,
    group: Group::Node,
    unit: Unit::Id,
    order: Order::Descending,
    help: "Distance to each node according to the firmware (ACPI SLIT): 10 is the node itself, 20 twice as far. \
           Not a measurement.",
    value: |node, snapshot| {
        let to = |(node, distance): &(NodeId, u32)| (*node, f64::from(*distance));
        Ok(Value::ByNode(facts(node, snapshot)?.distances.iter().map(to).collect()))
    },
    over: Over::Newest,
    traits: Traits::NONE,
};

pub const LATENCY: Metric<Node> = Metric {
    id: "latency_ns",
    title: "LATENCY",
    width: 13,
    group: Group::Node,
    unit: Unit::Nanoseconds,
    order: Order::Descending,
    help: "Latency of a load from memory of each node on CPUs of this node, in ns, measured by numatop-ng \
           calibrate on the idle machine. Not the current latency.",
    value: |node, snapshot| by_node(node, snapshot, latency_ns),
    over: Over::Newest,
    traits: Traits::NONE,
};

pub const BANDWIDTH: Metric<Node> = Metric {
    id: "bandwidth_gbs",
    title: "BANDWIDTH",
    width: 13,
    group: Group::Node,
    unit: Unit::GigabytesPerSecond,
    order: Order::Descending,
    help: "Maximum bandwidth of reads by all cores of this node from memory of each node, in GB/s (10^9 bytes), \
           measured by numatop-ng calibrate on the idle machine. Not the current traffic.",
    value: |node, snapshot| by_node(node, snapshot, bandwidth_gbs),
    over: Over::Newest,
    traits: Traits::NONE,
};

pub const DEVICES: Metric<Node> = Metric {
    id: "devices",
    title: "DEVICES",
    width: 16,
    group: Group::Node,
    unit: Unit::Text,
    order: Order::Ascending,
    help: "Network cards, disk controllers, GPUs and accelerators on the node. irq:N means that CPUs of node \
           N handle the interrupts of the device.",
    value: |node, snapshot| {
        let devices: Vec<String> = facts(node, snapshot)?.devices.iter().map(device).collect();
        Ok(Value::Text(devices.join(" ")))
    },
    over: Over::Newest,
    traits: Traits::NONE,
};

fn facts<'a>(node: &Node, snapshot: &'a Snapshot) -> Reading<&'a Facts> {
    let facts = snapshot.host.topology.node(NodeId(node.raw.id));
    facts.ok_or_else(|| Missing::NotCollected("the node is offline now".into()))
}

const NOT_MEASURED: &str = "this pair of nodes was not measured";

/// The cost of memory of one node on CPUs of another, from the measurement.
type CostOf = fn(&Topology, NodeId, NodeId) -> Reading<Measured>;

/// A measured number, and half the range of its rounds where there were several.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    pub value: f64,
    pub error: Option<f64>,
}

impl Measured {
    /// Whether its rounds agree.
    pub fn is_sure(self) -> bool {
        self.error.is_none_or(|error| error <= SURE * self.value)
    }
}

/// Latency of memory of `to` on CPUs of `from`, ns.
pub(super) fn latency_ns(topology: &Topology, from: NodeId, to: NodeId) -> Reading<Measured> {
    let cost = cost(topology, from, to)?;
    measured(cost.latency_ps, cost.latency_error_ps, 1e3)
}

/// Reads by the cores of `from` from memory of `to`, GB/s.
pub(super) fn bandwidth_gbs(topology: &Topology, from: NodeId, to: NodeId) -> Reading<Measured> {
    let cost = cost(topology, from, to)?;
    measured(cost.read_bytes_per_s, cost.read_error_bytes_per_s, 1e9)
}

fn measured(value: Option<u64>, error: Option<u64>, factor: f64) -> Reading<Measured> {
    let value = value.ok_or_else(|| Missing::NotCollected(NOT_MEASURED.into()))?;
    Ok(Measured { value: value as f64 / factor, error: error.map(|error| error as f64 / factor) })
}

fn cost(topology: &Topology, from: NodeId, to: NodeId) -> Reading<&Cost> {
    let cost = topology.measured(from, to).ok_or_else(|| match &topology.calibration {
        None => Missing::NotCollected("not measured on this machine: run numatop-ng calibrate".into()),
        Some(Calibration { unused: Some(why), .. }) => {
            Missing::NotCollected(format!("the stored measurement is not used: {}", clean_str(why)))
        }
        Some(_) => Missing::NotCollected(NOT_MEASURED.into()),
    });
    match &topology.calibration {
        Some(calibration) if calibration.only_ratios => Err(Missing::Unsupported(
            "the hypervisor moves the CPUs of this machine: only ratios between nodes are known".into(),
        )),
        _ => cost,
    }
}

/// Costs of all nodes; the reason of the node itself where none has one.
fn by_node(node: &Node, snapshot: &Snapshot, of: CostOf) -> Reading<Value> {
    let (from, topology) = (facts(node, snapshot)?.id, &snapshot.host.topology);
    let to = topology.nodes.iter().map(|to| (to.id, of(topology, from, to.id)));
    let values: Vec<(NodeId, f64)> = to.filter_map(|(to, cost)| Some((to, cost.ok()?.value))).collect();
    if values.is_empty() {
        of(topology, from, from)?;
    }
    Ok(Value::ByNode(values))
}

/// `eth0`, or `eth0,irq:1` where its interrupts go to CPUs of node 1.
fn device(device: &Device) -> String {
    let nodes = device.irq_nodes.iter().map(|node| format!(",irq:{node}"));
    std::iter::once(clean_str(&device.name)).chain(nodes).collect()
}
