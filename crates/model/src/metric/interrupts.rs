//! The metrics of interrupts of devices, by node.

use std::collections::BTreeMap;

use super::over::{Better, Over, Quotient};
use super::{Group, Metric, Order, Stands, Traits, Unit, Value, no};
use crate::model::facility::Facility;
use crate::model::interrupts::DeviceInterrupts;
use crate::model::sample::{Missing, Reading};
use crate::model::topology::Device;
use crate::model::units::NodeId;
use crate::snapshot::{Node, Snapshot};
use crate::text::clean_str;

pub const IRQS_PER_S: Metric<Node> = metric(
    "irqs_per_s",
    "IRQ/s",
    Unit::PerSecond,
    "Message-signalled interrupts of devices (network cards, disks, GPUs) handled by the node's CPUs, per \
     second, wherever the devices are; devices of an unknown node are left out. Devices are read in turns, \
     at most one per second: a rate is between the last two readings.",
    |node, snapshot| {
        let here = NodeId(node.raw.id);
        let devices = counted(snapshot.host.topology.placed_devices(), snapshot)?;
        if devices.is_empty() {
            return Err(no("no device with its own interrupts has a known node"));
        }
        Ok(Value::F64(devices.iter().map(|device| device.per_second_on(here)).sum()))
    },
);

pub const DEVICE_IRQS_PER_S: Metric<Node> = metric(
    "device_irqs_per_s",
    "DEVIRQ/s",
    Unit::PerSecond,
    "Interrupts of the devices on the node, per second, whichever node handles them.",
    |node, snapshot| {
        let devices = of_node(node, snapshot)?;
        Ok(Value::F64(devices.iter().map(|device| device.all_per_second()).sum()))
    },
);

pub const DEVICE_IRQS_AWAY_PCT: Metric<Node> = Metric {
    over: Over::Quotient(away),
    traits: Traits::NONE
        .needs(&[Facility::DeviceIrqs])
        .stands(Stands::Remote(|pct| pct > 0.0))
        .better(Better::Low),
    ..metric(
        "device_irqs_away_pct",
        "IRQAWAY%",
        Unit::Percent,
        "Share of the interrupts of its devices that CPUs of other nodes handled: data of the device is then first touched far from it.",
        |node, snapshot| away(node, snapshot).map(Quotient::value).map(Value::F64),
    )
};

/// Interrupts in the interval that other nodes handled, of all of the node's devices.
fn away(node: &Node, snapshot: &Snapshot) -> Reading<Quotient> {
    let (devices, home) = (of_node(node, snapshot)?, NodeId(node.raw.id));
    let seconds = snapshot.interval_ns.filter(|ns| *ns > 0).ok_or(Missing::FirstInterval)? as f64 / 1e9;
    let all: f64 = devices.iter().map(|device| device.all_per_second()).sum();
    let away: f64 = devices.iter().map(|device| device.per_second(|of| of != home)).sum();
    if all > 0.0 { Ok(Quotient::pct(away * seconds, all * seconds)) } else { Err(no("they had none")) }
}

/// Interrupts of devices on the node that have any.
///
/// # Errors
/// It has no such device, or not all of them were counted.
fn of_node<'a>(node: &Node, snapshot: &'a Snapshot) -> Reading<Vec<&'a DeviceInterrupts>> {
    let gone = || Missing::NotCollected("the node is offline now".into());
    let facts = snapshot.host.topology.node(NodeId(node.raw.id)).ok_or_else(gone)?;
    let found = counted(facts.devices.iter(), snapshot)?;
    if found.is_empty() { Err(no("no device with interrupts of its own is on the node")) } else { Ok(found) }
}

/// Interrupts of those of these devices that have any, each function once.
///
/// # Errors
/// Not all of them were counted.
fn counted<'a>(
    devices: impl Iterator<Item = &'a Device>,
    snapshot: &'a Snapshot,
) -> Reading<Vec<&'a DeviceInterrupts>> {
    let mut found = BTreeMap::new();
    for device in devices {
        match snapshot.interrupts_of(device) {
            Some(counted) => _ = found.insert(&device.pci, counted),
            // It has no interrupts itself.
            None if device.irq_nodes.is_empty() => {}
            None => {
                let name = clean_str(&device.name);
                let why =
                    format!("the interrupts of {name} are not counted, or were counted only once so far");
                return Err(Missing::NotCollected(why));
            }
        }
    }
    Ok(found.into_values().collect())
}

const fn metric(
    id: &'static str,
    title: &'static str,
    unit: Unit,
    help: &'static str,
    value: fn(&Node, &Snapshot) -> Reading<Value>,
) -> Metric<Node> {
    let kind = (Group::Node, unit, Order::Descending);
    Metric::new(id, (title, 8), kind, help, value).with(Traits::NONE.needs(&[Facility::DeviceIrqs]))
}
