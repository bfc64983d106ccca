//! The metrics of interrupts of devices, by node.

use std::collections::BTreeMap;

use super::over::{Better, Over};
use super::{Group, Metric, Order, Stands, Traits, Unit, Value, no};
use crate::model::facility::Facility;
use crate::model::interrupts::DeviceInterrupts;
use crate::model::sample::{Missing, Reading};
use crate::model::units::NodeId;
use crate::snapshot::{Node, Snapshot};
use crate::text::clean_str;

pub const IRQS_PER_S: Metric<Node> = metric(
    "irqs_per_s",
    "IRQ/s",
    Unit::PerSecond,
    "Message-signalled interrupts of devices (network cards, disks, GPUs) that CPUs of the node handled, per second, whatever node the \
     devices are on. One device after the other is read, at most one in a second: a rate is between its last two readings.",
    |node, snapshot| {
        let here = NodeId(node.raw.id);
        let mut all = snapshot.interrupts.values().peekable();
        all.peek().ok_or_else(|| no("no device was read twice yet"))?;
        Ok(Value::F64(all.map(|device| device.per_second(|of| of == here)).sum()))
    },
);

pub const DEVICE_IRQS_PER_S: Metric<Node> = metric(
    "device_irqs_per_s",
    "DEVIRQ/s",
    Unit::PerSecond,
    "Interrupts of the devices on the node, per second, whatever node handles them.",
    |node, snapshot| {
        let devices = of_node(node, snapshot)?;
        Ok(Value::F64(devices.iter().map(|device| device.per_second(|_| true)).sum()))
    },
);

pub const DEVICE_IRQS_AWAY_PCT: Metric<Node> = Metric {
    unit: Unit::Percent,
    over: Over::Level,
    traits: Traits::NONE
        .needs(&[Facility::DeviceIrqs])
        .stands(Stands::Remote(|pct| pct > 0.0))
        .better(Better::Low),
    ..metric(
        "device_irqs_away_pct",
        "IRQAWAY%",
        Unit::Percent,
        "Share of these interrupts that CPUs of other nodes handled: data of the device is then first touched far from it.",
        |node, snapshot| {
            let (devices, home) = (of_node(node, snapshot)?, NodeId(node.raw.id));
            let sum =
                |of: &dyn Fn(NodeId) -> bool| devices.iter().map(|device| device.per_second(of)).sum::<f64>();
            let all = sum(&|_| true);
            if all > 0.0 {
                Ok(Value::F64(sum(&|of| of != home) * 100.0 / all))
            } else {
                Err(no("they had none"))
            }
        },
    )
};

/// Interrupts of devices on the node that have any.
///
/// # Errors
/// It has no such device, or not all of them were counted.
fn of_node<'a>(node: &Node, snapshot: &'a Snapshot) -> Reading<Vec<&'a DeviceInterrupts>> {
    let gone = || Missing::NotCollected("the node is not online any more".into());
    let facts = snapshot.host.topology.node(NodeId(node.raw.id)).ok_or_else(gone)?;
    // Two ports of a card may be one function.
    let mut found = BTreeMap::new();
    for device in &facts.devices {
        match device.pci.as_ref().and_then(|address| snapshot.interrupts.get_key_value(address)) {
            Some((address, counted)) => _ = found.insert(address, counted),
            // It has no interrupts of its own.
            None if device.irq_nodes.is_empty() => {}
            None => {
                let name = clean_str(&device.name);
                let why = format!("the interrupts of {name} are not counted, or were not counted twice yet");
                return Err(Missing::NotCollected(why));
            }
        }
    }
    match found.is_empty() {
        true => Err(no("no device with interrupts of its own is on the node")),
        false => Ok(found.into_values().collect()),
    }
}

const fn metric(
    id: &'static str,
    title: &'static str,
    unit: Unit,
    help: &'static str,
    value: fn(&Node, &Snapshot) -> Reading<Value>,
) -> Metric<Node> {
    let (group, width, order, over) = (Group::Node, 8, Order::Descending, Over::Level);
    let traits = Traits::NONE.needs(&[Facility::DeviceIrqs]);
    Metric { id, title, width, group, unit, order, help, value, over, traits }
}
