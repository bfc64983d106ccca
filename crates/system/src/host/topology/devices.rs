//! Network cards, disks, GPUs and accelerators, and the node of each.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::Root;
use crate::model::topology::{Cpu, Device, DeviceClass, Node, Topology, parse_cpulist};
use crate::model::units::{CpuId, NodeId};
use crate::text::natural;

/// Every device, ordered by class and name.
pub(super) fn read(root: &Root, cpus: &[Cpu]) -> Result<Vec<Device>> {
    let mut devices = Vec::new();
    of_class(root, "net", DeviceClass::Net, &mut devices)?;
    of_class(root, "nvme", DeviceClass::Nvme, &mut devices)?;
    of_pci(root, &mut devices)?;
    for device in &mut devices {
        device.irq_nodes = irq_nodes(root, device, cpus)?;
    }
    devices.sort_by(|a, b| a.class.cmp(&b.class).then_with(|| natural(&a.name).cmp(&natural(&b.name))));
    Ok(devices)
}

/// Moves each device to its node; returns devices whose node is not in `nodes`.
pub(super) fn place(devices: Vec<Device>, nodes: &mut [Node]) -> Vec<Device> {
    let mut unplaced = Vec::new();
    for device in devices {
        match nodes.iter_mut().find(|node| Some(node.id) == device.node) {
            Some(node) => node.devices.push(device),
            None => unplaced.push(device),
        }
    }
    unplaced
}

/// Devices of /sys/class/`class` that stand on hardware. Bridges, bonds, veths and NVMe over fabrics have
/// no `device` link or lead to devices/virtual: they are on no node of their own.
fn of_class(root: &Root, class: &str, kind: DeviceClass, devices: &mut Vec<Device>) -> Result<()> {
    let Ok(top) = fs::canonicalize(root.path("sys/devices")) else { return Ok(()) };
    for name in root.entries(&format!("sys/class/{class}"))? {
        let Ok(hardware) = fs::canonicalize(root.path(&format!("sys/class/{class}/{name}/device"))) else {
            continue;
        };
        if !hardware.starts_with(top.join("virtual")) {
            let node = node_of(root, &top, &hardware)?;
            devices.push(Device {
                name,
                class: kind,
                pci: pci_address(&hardware),
                node,
                irq_nodes: Vec::new(),
            });
        }
    }
    Ok(())
}

/// PCI functions that have no class directory we read, by their class code
/// (the kernel's include/linux/pci_ids.h: base class, sub-class, programming interface).
fn of_pci(root: &Root, devices: &mut Vec<Device>) -> Result<()> {
    for address in root.entries("sys/bus/pci/devices")? {
        let function = format!("sys/bus/pci/devices/{address}");
        let code = root.value(&format!("{function}/class"), "a PCI class code like 0x030200", |text| {
            u32::from_str_radix(text.trim_start_matches("0x"), 16)
        })?;
        let class = match code.map(|code| (code >> 16, code >> 8)) {
            Some((0x03, _)) => DeviceClass::Gpu,
            Some((0x12, _)) => DeviceClass::Accelerator,
            Some((_, 0x0100 | 0x0104 | 0x0107 | 0x0180)) => DeviceClass::Storage,
            _ => continue,
        };
        let node = numa_node(root, &format!("{function}/numa_node"))?.flatten();
        devices.push(Device {
            name: address.clone(),
            class,
            pci: Some(address),
            node,
            irq_nodes: Vec::new(),
        });
    }
    Ok(())
}

/// The node of the nearest ancestor with one. A virtio or USB device has no `numa_node`; its parent PCI
/// function has.
fn node_of(root: &Root, top: &Path, hardware: &Path) -> Result<Option<NodeId>> {
    for directory in hardware.ancestors().take_while(|directory| directory.starts_with(top)) {
        // An absolute path replaces the root when joined: `hardware` is already below it.
        if let Some(node) = numa_node(root, &directory.join("numa_node").to_string_lossy())? {
            return Ok(node);
        }
    }
    Ok(None)
}

/// The nodes whose CPUs handle the message-signalled interrupts of a PCI function
/// (the kernel's Documentation/ABI/testing/sysfs-bus-pci and core-api/irq/irq-affinity.rst).
pub(super) fn irq_nodes(root: &Root, device: &Device, cpus: &[Cpu]) -> Result<Vec<NodeId>> {
    let Some(address) = &device.pci else { return Ok(Vec::new()) };
    let mut nodes = BTreeSet::new();
    for irq in root.entries(&format!("sys/bus/pci/devices/{address}/msi_irqs"))? {
        // An interrupt that is not requested yet has no directory, or an empty list.
        let file = format!("proc/irq/{irq}/effective_affinity_list");
        let handled_by = root.value(&file, "a list of CPUs", parse_cpulist)?.unwrap_or_default();
        let node = |id: u32| cpus.iter().find(|cpu| cpu.id == CpuId(id)).and_then(|cpu| cpu.node);
        nodes.extend(handled_by.into_iter().filter_map(node));
    }
    Ok(nodes.into_iter().collect())
}

/// Interrupts by their number and by node, since boot and modulo 2^32: the kernel counts so for each CPU.
pub type IrqCounts = BTreeMap<u32, BTreeMap<NodeId, u32>>;

/// Counts of the message-signalled interrupts of a PCI function, from /sys/kernel/irq/N/per_cpu_count
/// (the kernel's Documentation/ABI/testing/sysfs-kernel-irq): a number for each possible CPU, in their order.
pub(super) fn irq_counts(root: &Root, address: &str, topology: &Topology) -> Result<IrqCounts> {
    let mut counts = IrqCounts::new();
    for name in root.entries(&format!("sys/bus/pci/devices/{address}/msi_irqs"))? {
        let Ok(irq) = name.parse() else { continue };
        let file = format!("sys/kernel/irq/{irq}/per_cpu_count");
        let Some(text) = root.text(&file)? else { continue };
        let by_cpu = counts_by_cpu(&text, topology.possible_cpus as usize)
            .with_context(|| format!("reading {}", root.path(&file).display()))?;
        let by_node: &mut BTreeMap<NodeId, u32> = counts.entry(irq).or_default();
        for cpu in &topology.cpus {
            if let (Some(node), Some(count)) = (cpu.node, by_cpu.get(cpu.id.0 as usize)) {
                let sum = by_node.entry(node).or_default();
                *sum = sum.wrapping_add(*count);
            }
        }
    }
    Ok(counts)
}

/// `0,15\n`: a number for each possible CPU.
///
/// # Errors
/// The list is something else, or was cut.
fn counts_by_cpu(text: &str, possible: usize) -> Result<Vec<u32>> {
    // The kernel cuts a list of more than a page, maybe inside a number, and then its end is missing.
    let list = text.strip_suffix('\n').context("the kernel cut the list of counts off at one page")?;
    let counts: Vec<u32> =
        list.split(',').map(str::parse).collect::<Result<_, _>>().context("not a list of counts")?;
    ensure!(counts.len() == possible, "counts of {} CPUs, but {possible} CPUs are possible", counts.len());
    Ok(counts)
}

/// The outer `None` means no such file, the inner one -1: the firmware did not say.
fn numa_node(root: &Root, path: &str) -> Result<Option<Option<NodeId>>> {
    root.value(path, "a node number or -1", |text| {
        text.parse::<i32>().map(|node| u32::try_from(node).ok().map(NodeId))
    })
}

/// The last part of the path that is a PCI address, such as `0000:3b:00.0`.
pub fn pci_address(hardware: &Path) -> Option<String> {
    hardware.components().rev().find_map(|part| {
        let part = part.as_os_str().to_str()?;
        is_pci_address(part).then(|| part.to_owned())
    })
}

fn is_pci_address(text: &str) -> bool {
    let hex =
        |part: &str, digits: usize| part.len() >= digits && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let parts: Vec<&str> = text.split([':', '.']).collect();
    // A domain may have more than four digits (Intel VMD: 10000:e1:00.0).
    matches!(parts[..], [domain, bus, device, function]
        if hex(domain, 4) && hex(bus, 2) && hex(device, 2) && hex(function, 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;

    #[test]
    fn pci_addresses() {
        assert_eq!(
            pci_address(Path::new("/sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.1/virtio2")),
            Some("0000:3b:00.1".to_owned())
        );
        assert_eq!(
            pci_address(Path::new("/sys/devices/pci10000:e0/10000:e1:00.0")),
            Some("10000:e1:00.0".to_owned())
        );
        assert_eq!(pci_address(Path::new("/sys/devices/platform/ahb/28200000.ethernet")), None);
    }

    #[test]
    fn counts_are_of_all_possible_cpus_or_none() {
        assert_eq!(counts_by_cpu("0,15\n", 2).unwrap(), [0, 15]);
        assert_eq!(counts_by_cpu("4294967295\n", 1).unwrap(), [u32::MAX]);
        for (text, possible) in
            [("0,15", 2), ("0,15\n", 3), ("0,1\n", 1), ("", 1), ("0,\n", 2), ("0,-1\n", 2)]
        {
            assert!(counts_by_cpu(text, possible).is_err(), "{text:?} of {possible}");
        }
    }

    #[test]
    fn counts_are_summed_by_the_nodes_of_cpus() {
        let tree = Tree::new("irq-counts");
        let mut topology = crate::model::demo::facts().topology;
        // CPUs 0 and 16 are one core of node 0; CPU 4 is offline, CPU 5 is on no node, CPU 31 is possible and not there.
        topology.cpus[4].online = false;
        topology.cpus[5].node = None;
        topology.cpus.retain(|cpu| cpu.id != CpuId(31));
        let mut by_cpu = [0u32; 32];
        for (cpu, count) in [(0, u32::MAX), (16, 3), (4, 10), (5, 100), (20, 1), (31, 1000)] {
            by_cpu[cpu] = count;
        }
        let list = by_cpu.map(|count| count.to_string()).join(",");
        tree.write("sys/kernel/irq/40/per_cpu_count", &format!("{list}\n"));
        for irq in ["40", "41"] {
            tree.write(&format!("sys/bus/pci/devices/0000:41:00.0/msi_irqs/{irq}"), "msix\n");
        }
        let counts = irq_counts(&Root(tree.root()), "0000:41:00.0", &topology).unwrap();
        assert_eq!(counts.keys().collect::<Vec<_>>(), [&40], "one has gone between two looks");
        let of: Vec<(u32, u32)> = counts[&40].iter().map(|(node, count)| (node.0, *count)).collect();
        assert_eq!(of, [(0, 2), (1, 11), (2, 0), (3, 0)], "sums are modulo 2^32, as the kernel's");
    }

    #[test]
    fn names_sort_by_number() {
        let mut names = ["nvme10", "nvme2", "eth0"];
        names.sort_by_key(|name| natural(name));
        assert_eq!(names, ["eth0", "nvme2", "nvme10"]);
    }
}
