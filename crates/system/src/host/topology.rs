//! The topology of this machine, as the kernel shows it.
//!
//! Sources: the kernel's Documentation/ABI/stable/sysfs-devices-node,
//! Documentation/ABI/stable/sysfs-devices-system-cpu, Documentation/ABI/testing/sysfs-devices-system-cpu
//! (caches) and Documentation/admin-guide/cputopology.rst. It is one reading at one time: CPUs and nodes
//! that come or go later are not seen until the next [`read`].

mod cpus;
mod devices;
mod nodes;
mod sysfs;

use std::path::Path;

use anyhow::Result;

pub use self::devices::IrqCounts;
pub use self::devices::pci_address;
use self::sysfs::Root;
use crate::model::topology::{Device, Topology, format_cpulist, parse_cpulist};
use crate::model::units::{CpuId, NodeId};

/// Reads `sys/` and `proc/` below `root`; `/` is the real machine.
///
/// Files that old kernels or virtual machines lack are done without.
///
/// # Errors
/// A malformed file: its name, the expected format, and the text.
pub fn read(root: &Path) -> Result<Topology> {
    let root = Root(root);
    let node_map = nodes::read_map(&root)?;
    let cpus::Cpus { cpus, llcs, cores, sockets, possible, hidden } = cpus::read(&root, &node_map)?;
    let mut nodes = nodes::read(&root, &node_map, &cpus)?;
    let contradictions = [nodes::emulated(&node_map), cpus::hidden_from_us(&hidden)];
    let unplaced_devices = devices::place(devices::read(&root, &cpus)?, &mut nodes);
    Ok(Topology {
        nodes,
        cpus,
        llcs,
        cores,
        sockets,
        possible_cpus: possible,
        possible_nodes: node_map.possible,
        offline_nodes: node_map.offline,
        numa: node_map.numa,
        unplaced_devices,
        calibration: None,
        contradictions: contradictions.into_iter().flatten().collect(),
        places: Vec::new(),
    })
}

/// Whether a CPU reports that it is online; false if it does not report.
pub fn is_online(root: &Path, cpu: CpuId) -> bool {
    cpus::is_online(&Root(root), cpu.0).unwrap_or(false)
}

/// The difference, in words, between online CPUs of `topology` and those of the running kernel; `None` where they are the same.
/// Files of another machine say nothing about tasks of this one.
pub fn differs_from_kernel(topology: &Topology) -> Option<String> {
    let own = Path::new("/");
    let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible").ok()?;
    let possible = parse_cpulist(possible.trim()).ok()?;
    let ours: Vec<u32> = possible.into_iter().filter(|cpu| is_online(own, CpuId(*cpu))).collect();
    let theirs: Vec<u32> = topology.online_cpus().map(|cpu| cpu.id.0).collect();
    (ours != theirs).then(|| {
        let list = |cpus: Vec<u32>| format_cpulist(cpus);
        format!("its CPUs are {}, those of this kernel {}", list(theirs), list(ours))
    })
}

/// The nodes whose CPUs handle the interrupts of a device now; see [`Device::irq_nodes`].
///
/// # Errors
/// A malformed file.
pub fn irq_nodes_now(topology: &Topology, root: &Path, device: &Device) -> Result<Vec<NodeId>> {
    devices::irq_nodes(&Root(root), device, &topology.cpus)
}

/// Counts of the interrupts of the PCI function of this address, by node.
///
/// # Errors
/// A malformed file; or a list of counts that the kernel truncated at the size of a page.
pub fn irq_counts_now(topology: &Topology, root: &Path, address: &str) -> Result<IrqCounts> {
    devices::irq_counts(&Root(root), address, topology)
}
