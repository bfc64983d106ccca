//! Room on nodes for work and memory, and the least set of nodes that something fits on.

use std::collections::BTreeMap;

use super::gain;
use super::guards::Placed;
use super::view::{Of, View, above_watermark};
use crate::model::units::NodeId;

/// The value of a second thread of a core, in cores: numad's, and that of the slower of two vendors (S1, S2).
const SECOND_THREAD: f64 = 0.2;

/// Target utilisation of numad (S2).
const TARGET: f64 = 0.85;

/// CPU time that a subject may use on these nodes beside all others, in cores.
pub fn cpu_room(view: &View<'_>, of: &Of<'_>, nodes: &[NodeId]) -> f64 {
    let length = view.over_ns().max(1) as f64;
    let mut room = 0.0;
    for node in nodes {
        let here = view.topology().online_cpus().filter(|cpu| cpu.node == Some(*node));
        let here: Vec<_> = here.filter(|cpu| !view.snapshot.host.isolated_cpus.contains(&cpu.id.0)).collect();
        let mut cores: Vec<u32> = here.iter().map(|cpu| cpu.core).collect();
        cores.sort_unstable();
        cores.dedup();
        let threads = here.len() as f64;
        let capacity = cores.len() as f64 + SECOND_THREAD * (threads - cores.len() as f64);
        let busy = view.node(*node).map_or(0.0, |row| row.busy_ns as f64 / length);
        let own = of.task().and_then(|task| task.delta.run_ns.get(node.index()).copied()).unwrap_or(0);
        room += (capacity - (busy - own as f64 / length).max(0.0)).max(0.0);
    }
    room
}

/// Memory that may come to these nodes, bytes.
pub fn memory_room(view: &View<'_>, nodes: &[NodeId]) -> f64 {
    let rows = nodes.iter().filter_map(|node| view.node(*node));
    let free: f64 = rows.clone().map(|row| above_watermark(&row.raw)).sum();
    let cache: f64 = rows.filter_map(|row| row.raw.file_pages).map(|pages| pages.inactive_bytes as f64).sum();
    TARGET * free + cache / 2.0
}

/// Whether the work and the memory of a subject fit on these nodes.
pub fn fits(view: &View<'_>, of: &Of<'_>, placed: &Placed, nodes: &[NodeId]) -> bool {
    let room = cpu_room(view, of, nodes);
    let quota = view.quota(of).is_some_and(|quota| quota <= room);
    (quota || view.need(of) <= TARGET * room) && placed.outside(nodes) <= memory_room(view, nodes)
}

/// The mean cost of its accesses with its time and memory even over these nodes, in local ones.
pub fn cost_on(view: &View<'_>, placed: &Placed, nodes: &[NodeId]) -> Option<f64> {
    let ran = placed.run.iter().sum();
    gain::mean_cost(view.topology(), &gain::evenly(nodes, ran), &gain::evenly(nodes, placed.memory()))
}

/// Nodes with CPUs and memory by their distance from each of them.
fn orders<'a>(view: &View<'a>) -> &'a [Vec<NodeId>] {
    view.rows.near.get_or_init(|| {
        let nodes = view.whole_nodes();
        let from = |start: &NodeId| {
            let mut near = nodes.clone();
            // The node itself is first, whatever the firmware says.
            near.sort_by_cached_key(|node| {
                (node != start, view.topology().distance(*start, *node).unwrap_or(u32::MAX), *node)
            });
            near
        };
        nodes.iter().map(from).collect()
    })
}

/// The smallest set of nodes that it fits on, fewer than it uses, of those that it may use; the one with the least mean cost.
pub fn best_set(
    view: &View<'_>,
    of: &Of<'_>,
    placed: &Placed,
    used: usize,
    may: &[NodeId],
) -> Option<Vec<NodeId>> {
    let nodes: Vec<NodeId> = view.whole_nodes().into_iter().filter(|node| may.contains(node)).collect();
    // Once for each node: the sets below are as many as the square of the nodes.
    let rooms: BTreeMap<NodeId, (f64, f64)> = nodes
        .iter()
        .map(|node| (*node, (cpu_room(view, of, &[*node]), memory_room(view, &[*node]))))
        .collect();
    let of_those = |order: &Vec<NodeId>| -> Vec<NodeId> {
        order.iter().copied().filter(|node| may.contains(node)).collect()
    };
    let orders: Vec<Vec<NodeId>> = orders(view)
        .iter()
        .filter(|order| order.first().is_some_and(|start| may.contains(start)))
        .map(of_those)
        .collect();
    let (need, quota) = (view.need(of), view.quota(of));
    for size in 1..used.min(nodes.len() + 1) {
        let mut best: Option<(f64, Vec<NodeId>)> = None;
        for order in &orders {
            let mut near = order[..size].to_vec();
            near.sort_unstable();
            let (cpus, memory) = near
                .iter()
                .filter_map(|node| rooms.get(node))
                .fold((0.0, 0.0), |(cpus, memory), (more_cpus, more)| (cpus + more_cpus, memory + more));
            let works = quota.is_some_and(|quota| quota <= cpus) || need <= TARGET * cpus;
            if !works || placed.outside(&near) > memory {
                continue;
            }
            // Of equal ones the one that leaves more of its memory where it is.
            let Some(cost) = cost_on(view, placed, &near) else { continue };
            let cost = cost + placed.outside(&near) / placed.memory().max(1.0) * 1e-3;
            if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                best = Some((cost, near));
            }
        }
        if let Some((_, set)) = best {
            return Some(set);
        }
    }
    None
}
