//! GPUs and other accelerators, and the processes that hold them.

use std::collections::{BTreeMap, BTreeSet};

use super::accelerators::{ACCELERATORS, holders, is_of};
use super::no;
use crate::model::accelerators::Accelerator;
use crate::model::sample::Reading;
use crate::model::topology::{Device, DeviceClass};
use crate::model::units::NodeId;
use crate::snapshot::Snapshot;

/// A device in an interval.
#[derive(Clone, Debug, PartialEq)]
pub struct HeldDevice {
    /// Unique.
    pub name: String,
    /// Address of its PCI function; `None` for a device on another bus, or one whose function is not known.
    pub pci: Option<String>,
    /// Its node.
    pub node: Reading<NodeId>,
    /// Processes that hold it, `2710 zstd, 3001 train`, the first five; empty without any.
    pub held_by: Reading<String>,
    /// The number of processes that hold it, those without a row included.
    pub processes: usize,
}

/// GPUs and accelerators of the machine, then other devices that a process holds as one (VFIO, RDMA).
pub fn devices(snapshot: &Snapshot) -> Vec<HeldDevice> {
    let topology = &snapshot.host.topology;
    let held = held(snapshot);
    let functions: BTreeSet<&String> = held.values().flat_map(|one| &one.functions).collect();
    let is_one = |device: &&Device| {
        matches!(device.class, DeviceClass::Gpu | DeviceClass::Accelerator)
            || device.pci.as_ref().is_some_and(|address| functions.contains(address))
    };
    let mut rows: Vec<HeldDevice> =
        topology.devices().filter(is_one).map(|device| of_machine(device, snapshot)).collect();
    let known: BTreeSet<String> = rows.iter().filter_map(|row| row.pci.clone()).collect();
    let others = held.values().filter(|one| !one.functions.iter().any(|address| known.contains(address)));
    rows.extend(others.map(|one| other(one, snapshot)));
    let mut names = BTreeSet::new();
    rows.retain(|row| names.insert(row.name.clone()));
    rows
}

/// All that any process holds, by name.
fn held(snapshot: &Snapshot) -> BTreeMap<&str, &Accelerator> {
    let all = snapshot.inputs.accelerators.values().flat_map(|held| held.iter());
    all.map(|one| (one.name.as_str(), one)).collect()
}

fn of_machine(device: &Device, snapshot: &Snapshot) -> HeldDevice {
    let node = device.node.ok_or_else(|| no("the firmware does not give its node"));
    let (held_by, processes) = held_as(snapshot, &is_of(device));
    HeldDevice { name: device.name.clone(), pci: device.pci.clone(), node, held_by, processes }
}

fn other(one: &Accelerator, snapshot: &Snapshot) -> HeldDevice {
    let node = match (&one.nodes[..], one.is_nodeless) {
        ([node], false) => Ok(*node),
        ([_, _, ..], _) => Err(no("its functions are on several nodes")),
        _ => Err(no("the node of a function is not known")),
    };
    let pci = one.functions.first().filter(|_| one.functions.len() == 1).cloned();
    let (held_by, processes) = held_as(snapshot, &|other| other.name == one.name);
    HeldDevice { name: one.name.clone(), pci, node, held_by, processes }
}

/// Processes with a row that hold such an accelerator, and the number of all that hold one.
fn held_as(snapshot: &Snapshot, is_it: &dyn Fn(&Accelerator) -> bool) -> (Reading<String>, usize) {
    let held_by = match snapshot.host_missing(ACCELERATORS.id) {
        Some(missing) => Err(missing.clone()),
        None => Ok(holders(snapshot, is_it)),
    };
    (held_by, snapshot.inputs.accelerators.values().filter(|held| held.iter().any(is_it)).count())
}
