//! Properties of a machine that make its NUMA numbers misleading, with advice for its owner.

use std::collections::BTreeSet;

use super::{NumaSupport, Topology, format_cpulist};

pub(super) fn of(topology: &Topology) -> Vec<String> {
    [
        hidden_nodes(topology),
        cpus_without_node(topology),
        nodes_without_memory(topology),
        unknown_caches(topology),
        mixed_caches(topology),
    ]
    .into_iter()
    .flatten()
    .chain(topology.contradictions.iter().cloned())
    .collect()
}

/// More sockets than nodes: memory of another socket looks local.
fn hidden_nodes(topology: &Topology) -> Option<String> {
    let nodes = topology.nodes.iter().filter(|node| !node.cpus.is_empty()).count();
    // Without any CPU on a node, the next warning describes the problem.
    if nodes == 0 || topology.sockets as usize <= nodes {
        return None;
    }
    let cause = match topology.numa {
        NumaSupport::On => {
            "the firmware hides NUMA (or the hypervisor, on a virtual machine): every access counts as local \
             though it may cross sockets. To see the nodes, switch 'node interleaving' off, or 'NUMA' on, in \
             the firmware set-up"
        }
        NumaSupport::SwitchedOff => {
            "numa=off on the kernel command line hides NUMA: every access counts as local though it may \
             cross sockets. To see the nodes, remove numa=off and reboot"
        }
        NumaSupport::NotBuilt => {
            "this kernel has no NUMA support: every access counts as local though it may cross sockets. To \
             see the nodes, boot a kernel built with CONFIG_NUMA"
        }
    };
    let plural = if nodes == 1 { "" } else { "s" };
    Some(format!("{} sockets but {nodes} node{plural}: {cause}", topology.sockets))
}

fn cpus_without_node(topology: &Topology) -> Option<String> {
    let lost = format_cpulist(topology.online_cpus().filter(|cpu| cpu.node.is_none()).map(|cpu| cpu.id.0));
    (!lost.is_empty()).then(|| {
        format!("online CPUs {lost} are on no online node: their work is missing from the numbers of nodes")
    })
}

fn nodes_without_memory(topology: &Topology) -> Option<String> {
    let bare = topology.nodes.iter().filter(|node| !node.cpus.is_empty() && node.mem_total_bytes == 0);
    let bare = format_cpulist(bare.map(|node| node.id.0));
    (!bare.is_empty()).then(|| {
        format!(
            "no memory on node {bare}: all memory accesses of its CPUs are remote. Check which memory slots \
             are filled"
        )
    })
}

fn unknown_caches(topology: &Topology) -> Option<String> {
    let guessed = topology.llcs.iter().filter(|llc| llc.level.is_none()).flat_map(|llc| &llc.cpus);
    let mut guessed: Vec<u32> = guessed.map(|cpu| cpu.0).collect();
    guessed.sort_unstable();
    (!guessed.is_empty()).then(|| {
        format!(
            "sysfs describes no shared cache for CPUs {}: CPUs of one socket and node are taken to share \
             their last-level cache, so the llc numbers are a guess",
            format_cpulist(guessed)
        )
    })
}

/// Caches of different levels: a move between two of them is a different thing on each part of the machine.
fn mixed_caches(topology: &Topology) -> Option<String> {
    let of = |level: u32| {
        let cpus = topology.llcs.iter().filter(move |llc| llc.level == Some(level)).flat_map(|llc| &llc.cpus);
        let mut cpus: Vec<u32> = cpus.map(|cpu| cpu.0).collect();
        cpus.sort_unstable();
        format!("L{level} for CPUs {}", format_cpulist(cpus))
    };
    let levels: BTreeSet<u32> = topology.llcs.iter().filter_map(|llc| llc.level).collect();
    (levels.len() > 1).then(|| {
        let each: Vec<String> = levels.into_iter().map(of).collect();
        format!(
            "the last-level caches are of different levels ({}): migrations between them are not comparable",
            each.join(", ")
        )
    })
}
