//! Distances of a node to the others, and the devices attached to it.

use super::over::Over;
use super::{Group, Metric, Order, Traits, Unit, Value};
use crate::model::sample::{Missing, Reading};
use crate::model::topology::{Device, Node as Facts};
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
    help: "Distance to each node by the firmware's word (ACPI SLIT): 10 is the node itself, 20 twice as far. Not a \
           measurement.",
    value: |node, snapshot| {
        let to = |(node, distance): &(NodeId, u32)| (*node, f64::from(*distance));
        Ok(Value::ByNode(facts(node, snapshot)?.distances.iter().map(to).collect()))
    },
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
    help: "Network cards, disk controllers, GPUs and accelerators on the node; irq: and a node where CPUs of that node \
           handle the interrupts of the device.",
    value: |node, snapshot| {
        let devices: Vec<String> = facts(node, snapshot)?.devices.iter().map(device).collect();
        Ok(Value::Text(devices.join(" ")))
    },
    over: Over::Newest,
    traits: Traits::NONE,
};

fn facts<'a>(node: &Node, snapshot: &'a Snapshot) -> Reading<&'a Facts> {
    let facts = snapshot.host.topology.node(NodeId(node.raw.id));
    facts.ok_or_else(|| Missing::NotCollected("the node is not online any more".into()))
}

/// `eth0`, or `eth0,irq:1` where its interrupts go to CPUs of node 1.
fn device(device: &Device) -> String {
    let nodes = device.irq_nodes.iter().map(|node| format!(",irq:{node}"));
    std::iter::once(clean_str(&device.name)).chain(nodes).collect()
}
