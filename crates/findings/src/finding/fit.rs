//! Room on nodes for work and memory, and the least set of nodes that something fits on.

use std::collections::{BTreeMap, BTreeSet};

use super::cores::Region;
use super::gain::{self, Costs};
use super::guards::Placed;
use super::view::{SubjectRef, View, above_watermark};
use crate::model::topology::{Cpu, Topology};
use crate::model::units::NodeId;

/// The value of a second thread of a core, in cores: numad's, and that of the slower of two vendors (S1, S2).
const SECOND_THREAD: f64 = 0.2;

/// Target utilisation of numad (S2).
const TARGET: f64 = 0.85;

/// Sums of the same numbers in another order differ by less.
const ROUNDING: f64 = 1.0 + 1e-9;

/// Facts of the machine's nodes, which stay as they are: they take the cube of the number of nodes to find out.
#[derive(Debug, Default)]
pub struct NodeDistances {
    /// Capacity of each node in CPUs, without isolated ones.
    capacity: BTreeMap<NodeId, f64>,
    /// The same of each socket, by its `physical_package_id`.
    of_sockets: BTreeMap<u32, f64>,
    /// Nodes with CPUs and memory by their distance from each of them.
    orders: Vec<Order>,
    /// Costs of accesses between nodes.
    costs: Costs,
    /// Nodes of each last-level cache, and its bytes.
    caches: Vec<(BTreeSet<NodeId>, f64)>,
}

/// Nodes by their distance from the first.
#[derive(Debug)]
struct Order {
    nodes: Vec<NodeId>,
    /// Sum of the costs of accesses between all pairs of the first, of the first two, and so on.
    costs: Vec<f64>,
}

impl NodeDistances {
    /// From the topology, and the CPUs that the scheduler leaves alone.
    pub fn of(topology: &Topology, isolated: &[u32]) -> NodeDistances {
        let whole: Vec<NodeId> = whole_nodes(topology).collect();
        let costs = Costs::of(topology);
        let orders = whole.iter().map(|start| {
            let mut near = whole.clone();
            // The node itself is first, whatever the firmware's distances.
            near.sort_by_cached_key(|node| {
                (node != start, topology.distance(*start, *node).unwrap_or(u32::MAX), *node)
            });
            Order::of(&|from, to| costs.ratio(topology, from, to), near)
        });
        let caches =
            topology.llcs.iter().filter_map(|llc| Some((llc.nodes(topology), llc.size_bytes? as f64)));
        NodeDistances {
            orders: orders.collect(),
            capacity: capacity(topology, isolated, |cpu| cpu.node),
            of_sockets: capacity(topology, isolated, |cpu| u32::try_from(cpu.socket?).ok()),
            costs,
            caches: caches.collect(),
        }
    }

    /// Size of the last-level caches that CPUs of these nodes have, bytes.
    pub fn cache_bytes(&self, nodes: &[NodeId]) -> f64 {
        let of = |llc: &BTreeSet<NodeId>| llc.iter().any(|node| nodes.contains(node));
        self.caches.iter().filter(|(llc, _)| of(llc)).map(|(_, bytes)| *bytes).sum()
    }
}

/// CPUs in cores, by a key of theirs: a second thread counts less.
fn capacity<K: Ord>(
    topology: &Topology,
    isolated: &[u32],
    key: impl Fn(&Cpu) -> Option<K>,
) -> BTreeMap<K, f64> {
    let mut cpus: BTreeMap<K, (f64, BTreeSet<u32>)> = BTreeMap::new();
    for cpu in topology.online_cpus().filter(|cpu| !isolated.contains(&cpu.id.0)) {
        let Some(key) = key(cpu) else { continue };
        let (threads, cores) = cpus.entry(key).or_default();
        *threads += 1.0;
        cores.insert(cpu.core);
    }
    let worth = |(threads, cores): (f64, BTreeSet<u32>)| {
        let cores = cores.len() as f64;
        cores + SECOND_THREAD * (threads - cores)
    };
    cpus.into_iter().map(|(key, cpus)| (key, worth(cpus))).collect()
}

impl Order {
    fn of(ratio: &dyn Fn(NodeId, NodeId) -> f64, nodes: Vec<NodeId>) -> Order {
        let mut sum = 0.0;
        let costs = nodes.iter().enumerate().map(|(at, new)| {
            let both = |old: &NodeId| ratio(*old, *new) + ratio(*new, *old);
            sum += nodes[..at].iter().map(both).sum::<f64>() + 1.0;
            sum
        });
        let costs = costs.collect();
        Order { nodes, costs }
    }
}

/// Nodes with CPUs and memory.
pub fn whole_nodes(topology: &Topology) -> impl Iterator<Item = NodeId> {
    let whole = topology.nodes.iter().filter(|node| !node.cpus.is_empty() && node.mem_total_bytes > 0);
    whole.map(|node| node.id)
}

/// CPU time that a subject may use on these nodes beside all others, in cores.
pub fn cpu_room(view: &View<'_>, of: &SubjectRef<'_>, nodes: &[NodeId]) -> f64 {
    nodes.iter().map(|node| cpu_room_in(view, of, Region::Node(*node))).sum()
}

/// The same in one region.
pub fn cpu_room_in(view: &View<'_>, of: &SubjectRef<'_>, region: Region) -> f64 {
    let near = view.rows.near(view.snapshot);
    let capacity = match region {
        Region::Node(node) => near.capacity.get(&node),
        Region::Socket(socket) => near.of_sockets.get(&socket),
    };
    let own = of.task().and_then(|task| view.ran_in(&task.delta, region)).unwrap_or(0);
    let others = view.busy_in(region) - own as f64 / view.over_ns().max(1) as f64;
    (capacity.copied().unwrap_or(0.0) - others.max(0.0)).max(0.0)
}

/// Memory that may come to these nodes, bytes.
pub fn memory_room(view: &View<'_>, nodes: &[NodeId]) -> f64 {
    let rows = nodes.iter().filter_map(|node| view.node(*node));
    let free: f64 = rows.clone().map(|row| above_watermark(&row.raw)).sum();
    let cache: f64 = rows.filter_map(|row| row.raw.file_pages).map(|pages| pages.inactive_bytes as f64).sum();
    TARGET * free + cache / 2.0
}

/// Whether the work and the memory of a subject fit on these nodes.
pub fn fits(view: &View<'_>, of: &SubjectRef<'_>, placed: &Placed, nodes: &[NodeId]) -> bool {
    works(view, of, cpu_room(view, of, nodes)) && placed.outside(nodes) <= memory_room(view, nodes)
}

/// Whether the work of a subject fits in a region, wherever its memory is.
pub fn works_in(view: &View<'_>, of: &SubjectRef<'_>, region: Region) -> bool {
    works(view, of, cpu_room_in(view, of, region))
}

fn works(view: &View<'_>, of: &SubjectRef<'_>, room: f64) -> bool {
    view.quota(of).is_some_and(|quota| quota <= room) || view.need(of) <= TARGET * room
}

/// The mean cost of an access, in local ones, of something that ran and has its memory in these amounts by node id; `None`
/// where one of the two is nothing.
pub fn mean_cost(view: &View<'_>, run: &[f64], memory: &[f64]) -> Option<f64> {
    let costs = &view.rows.near(view.snapshot).costs;
    gain::mean_cost(|from, to| costs.ratio(view.topology(), from, to), run, memory)
}

/// The mean cost, in local accesses, of an access to a node other than the current one; 1 if all of its
/// memory is near.
pub fn remote_cost(view: &View<'_>, placed: &Placed) -> f64 {
    let (all, remote) = (mean_cost(view, &placed.run, &placed.bytes).unwrap_or(1.0), placed.remote_part());
    if remote > 0.0 { 1.0 + (all - 1.0) / remote } else { 1.0 }
}

/// The mean cost of its accesses with its time and memory even over these nodes, in local ones.
pub fn cost_on(view: &View<'_>, placed: &Placed, nodes: &[NodeId]) -> Option<f64> {
    let ran = placed.run.iter().sum();
    mean_cost(view, &gain::evenly(nodes, ran), &gain::evenly(nodes, placed.memory()))
}

/// As [`Placed::outside`], with the known total of its memory: the number of sets is the square of the number
/// of nodes.
fn outside(placed: &Placed, all: f64, nodes: &[NodeId]) -> f64 {
    let on: f64 = nodes.iter().filter_map(|node| placed.bytes.get(node.index())).sum();
    let pct = if all > 0.0 { on * 100.0 / all } else { 0.0 };
    all * (100.0 - pct) / 100.0
}

/// The smallest set of its allowed nodes that it fits on, with fewer nodes than it uses; of equal ones that
/// with the least mean cost.
pub fn best_set(
    view: &View<'_>,
    of: &SubjectRef<'_>,
    placed: &Placed,
    used: usize,
    may: &[NodeId],
) -> Option<Vec<NodeId>> {
    if placed.run.iter().sum::<f64>() <= 0.0 || placed.memory() <= 0.0 {
        return None;
    }
    let near = view.rows.near(view.snapshot);
    let all = near.orders.iter().all(|order| may.contains(&order.nodes[0]));
    let of_those = |order: &Order| {
        let nodes = order.nodes.iter().copied().filter(|node| may.contains(node)).collect();
        Order::of(&|from, to| near.costs.ratio(view.topology(), from, to), nodes)
    };
    let fewer: Vec<Order> = match all {
        true => Vec::new(),
        false => near.orders.iter().filter(|order| may.contains(&order.nodes[0])).map(of_those).collect(),
    };
    let orders: &[Order] = if all { &near.orders } else { &fewer };
    // Once for each node: the sets below are as many as the square of the nodes.
    let rooms: BTreeMap<NodeId, (f64, f64)> = orders
        .iter()
        .map(|order| order.nodes[0])
        .map(|node| (node, (cpu_room(view, of, &[node]), memory_room(view, &[node]))))
        .collect();
    let (need, quota) = (view.need(of), view.quota(of));
    let works = |cpus: f64| quota.is_some_and(|quota| quota <= cpus) || need <= TARGET * cpus;
    // Smaller sets have no room for its work, whichever they are.
    let mut largest: Vec<f64> = rooms.values().map(|(cpus, _)| *cpus).collect();
    largest.sort_by(|a, b| b.total_cmp(a));
    let mut room = 0.0;
    let too_small = largest.iter().take_while(|cpus| {
        room += **cpus;
        !works(room * ROUNDING)
    });
    let all = placed.memory();
    for size in too_small.count() + 1..used.min(orders.len() + 1) {
        let mut best: Option<(f64, Vec<NodeId>)> = None;
        for order in orders {
            let mut near = order.nodes[..size].to_vec();
            near.sort_unstable();
            let (cpus, memory) = near
                .iter()
                .filter_map(|node| rooms.get(node))
                .fold((0.0, 0.0), |(cpus, memory), (more_cpus, more)| (cpus + more_cpus, memory + more));
            if !works(cpus) {
                continue;
            }
            let outside = outside(placed, all, &near);
            if outside > memory {
                continue;
            }
            // Of equal ones, the set that leaves more of its memory in place.
            let cost = order.costs[size - 1] / (size * size) as f64;
            let cost = cost + outside / all.max(1.0) * 1e-3;
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
