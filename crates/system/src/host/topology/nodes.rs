//! Nodes that are online, with their CPUs, memory and distances.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};

use super::Root;
use super::cpus::linked_node;
use crate::model::topology::{Cpu, Node, NumaSupport, format_cpulist, parse_cpulist, parse_cpumask};
use crate::model::units::NodeId;

const NODE_LIST: &str = "a list of nodes like 0-1";
const DIR: &str = "sys/devices/system/node";

/// The node lists of sysfs and who is where by them.
pub(super) struct NodeMap {
    pub numa: NumaSupport,
    pub online: Vec<NodeId>,
    pub offline: Vec<NodeId>,
    /// Highest possible id + 1.
    pub possible: u32,
    /// CPU id → node; `None` without NUMA, when every CPU is on node 0.
    node_of_cpu: Option<BTreeMap<u32, NodeId>>,
    /// CPUs that are in the lists of several nodes.
    shared: BTreeSet<u32>,
}

impl NodeMap {
    pub(super) fn of_cpu(&self, cpu: u32) -> Option<NodeId> {
        match &self.node_of_cpu {
            Some(map) => map.get(&cpu).copied(),
            None => Some(NodeId(0)),
        }
    }
}

pub(super) fn read_map(root: &Root) -> Result<NodeMap> {
    let Some(online) = root.value(&format!("{DIR}/online"), NODE_LIST, parse_cpulist)? else {
        return Ok(NodeMap {
            numa: NumaSupport::NotBuilt,
            online: vec![NodeId(0)],
            offline: Vec::new(),
            possible: 1,
            node_of_cpu: None,
            shared: BTreeSet::new(),
        });
    };
    if online.is_empty() {
        bail!("reading {}: expected at least one online node", root.path(&format!("{DIR}/online")).display());
    }
    let possible = root.required(&format!("{DIR}/possible"), NODE_LIST, parse_cpulist)?;
    let (mut node_of_cpu, mut shared) = (BTreeMap::new(), BTreeSet::new());
    for &node in &online {
        // cpulist since 2.6.25; cpumap before.
        let list = format!("{DIR}/node{node}/cpulist");
        let cpus = match root.value(&list, "a list of CPUs like 0-7,32-39", parse_cpulist)? {
            Some(cpus) => cpus,
            None => {
                root.required(&format!("{DIR}/node{node}/cpumap"), "a hexadecimal CPU mask", parse_cpumask)?
            }
        };
        for cpu in cpus {
            // Emulated nodes (numa=fake) share CPUs. The link of the CPU shows on which one the kernel places
            // it.
            match node_of_cpu.entry(cpu) {
                Entry::Vacant(place) => _ = place.insert(NodeId(node)),
                Entry::Occupied(mut place) => {
                    shared.insert(cpu);
                    if linked_node(root, cpu)? == Some(NodeId(node)) {
                        place.insert(NodeId(node));
                    }
                }
            }
        }
    }
    Ok(NodeMap {
        numa: if switched_off(root)? { NumaSupport::SwitchedOff } else { NumaSupport::On },
        offline: possible.iter().filter(|id| !online.contains(id)).map(|&id| NodeId(id)).collect(),
        possible: possible.iter().chain(&online).max().map_or(0, |id| id + 1),
        online: online.into_iter().map(NodeId).collect(),
        node_of_cpu: Some(node_of_cpu),
        shared,
    })
}

/// The nodes of the lists that share CPUs, in words.
pub(super) fn emulated(map: &NodeMap) -> Option<String> {
    (!map.shared.is_empty()).then(|| {
        format!(
            "CPUs {} are in the lists of several nodes: nodes are emulated (numa=fake, or firmware that splits \
             memory). Each CPU counts on one node, according to the kernel, so remote shares do not describe the \
             hardware",
            format_cpulist(map.shared.iter().copied())
        )
    })
}

/// Whether the command line makes the kernel ignore the firmware's nodes (`numa=off`; x86, arm64, powerpc,
/// riscv).
fn switched_off(root: &Root) -> Result<bool> {
    let command_line = root.text("proc/cmdline")?.unwrap_or_default();
    Ok(command_line.split_whitespace().any(|word| word == "numa=off"))
}

/// The online nodes, without their devices. The CPUs of a node are the ones that name it, so that the two
/// always agree.
pub(super) fn read(root: &Root, map: &NodeMap, cpus: &[Cpu]) -> Result<Vec<Node>> {
    map.online
        .iter()
        .map(|&id| {
            let on_it = |cpu: &&Cpu| cpu.online && cpu.node == Some(id);
            let (mem_total_bytes, mem_free_bytes) = memory(root, map.numa, id)?;
            Ok(Node {
                id,
                cpus: cpus.iter().filter(on_it).map(|cpu| cpu.id).collect(),
                distances: distances(root, map, id)?,
                measured: Vec::new(),
                mem_total_bytes,
                mem_free_bytes,
                devices: Vec::new(),
            })
        })
        .collect()
}

/// The SLIT row; the kernel prints one number for each online node, ascending.
fn distances(root: &Root, map: &NodeMap, id: NodeId) -> Result<Vec<(NodeId, u32)>> {
    if map.numa == NumaSupport::NotBuilt {
        // LOCAL_DISTANCE of the kernel.
        return Ok(vec![(id, 10)]);
    }
    let count = map.online.len();
    let expected = format!("{count} distances, one for each online node");
    root.required(&format!("{DIR}/node{id}/distance"), &expected, |text| -> Result<_> {
        let row = text.split_whitespace().map(str::parse).collect::<Result<Vec<u32>, _>>()?;
        ensure!(row.len() == count, "{} distances", row.len());
        Ok(map.online.iter().copied().zip(row).collect())
    })
}

/// Total and free bytes of a node, from its own meminfo or, without NUMA, from that of the machine.
fn memory(root: &Root, numa: NumaSupport, id: NodeId) -> Result<(u64, u64)> {
    let path = match numa {
        NumaSupport::NotBuilt => "proc/meminfo".to_owned(),
        NumaSupport::On | NumaSupport::SwitchedOff => format!("{DIR}/node{id}/meminfo"),
    };
    root.required(&path, "lines like 'MemTotal: 1024 kB' and 'MemFree: 512 kB'", |text| -> Result<_> {
        Ok((meminfo(text, "MemTotal:")?, meminfo(text, "MemFree:")?))
    })
}

/// The value of `key` in bytes. Node files prefix each line with "Node N "; "kB" means KiB there.
fn meminfo(text: &str, key: &str) -> Result<u64> {
    let line = text.lines().find(|line| line.split_whitespace().any(|word| word == key));
    let line = line.with_context(|| format!("no line '{key}'"))?;
    let mut words = line.split_whitespace().skip_while(|word| *word != key).skip(1);
    let number = words.next().with_context(|| format!("no number after '{key}'"))?;
    let kib: u64 = number.parse().with_context(|| format!("'{number}' after '{key}'"))?;
    ensure!(words.next() == Some("kB"), "no unit kB after '{key}'");
    kib.checked_mul(1024).with_context(|| format!("'{key}' is larger than 16 EiB"))
}
