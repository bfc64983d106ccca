//! The selected node, in the lines below the table of nodes: its activity and its parts.
//!
//! The first of them are what has no room in the table of a narrow screen.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::metric::format::short;
use crate::metric::host::{self, HostMetric};
use crate::metric::node;
use crate::metric::{Metric, Unit, Value};
use crate::model::topology::{self, Device, Topology, format_cpulist};
use crate::model::units::NodeId;
use crate::snapshot::{Node, Snapshot};
use crate::text::clean_str;
use crate::text::quantity::bytes;
use crate::tui::theme::{Role, Theme};
use crate::tui::widgets::pen::Pen;

/// A label in a line, and its metric.
type Named = (&'static str, &'static Metric<Node>);

const MEMORY: [Named; 5] = [
    ("file", &node::MEM_FILE_BYTES),
    ("anon", &node::MEM_ANON_BYTES),
    ("slab", &node::MEM_SLAB_BYTES),
    ("huge pages", &node::HUGE_TOTAL),
    ("free of them", &node::HUGE_FREE),
];
/// As numastat(8) names them.
const PAGES: [Named; 6] = [
    ("hit", &node::NUMA_HIT_PER_S),
    ("miss", &node::NUMA_MISS_PER_S),
    ("foreign", &node::NUMA_FOREIGN_PER_S),
    ("interleave", &node::INTERLEAVE_HIT_PER_S),
    ("local", &node::LOCAL_NODE_PER_S),
    ("other", &node::OTHER_NODE_PER_S),
];
const ACCESSES: [Named; 2] = [("local", &node::LMA_PER_S), ("remote", &node::RMA_PER_S)];
const RECLAIM: [Named; 3] = [
    ("pages by kswapd", &node::KSWAPD_PAGES_PER_S),
    ("by others", &node::DIRECT_RECLAIM_PAGES_PER_S),
    ("node reclaims", &node::NODE_RECLAIM_PER_S),
];

/// As many lines as there is room for. The machine may have changed since: then less is known.
pub(super) fn render(snapshot: &Snapshot, node: &Node, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let (topology, id) = (&snapshot.host.topology, NodeId(node.raw.id));
    let Some(facts) = topology.node(id) else { return };
    let lines = [
        ("CPUs", cpus(facts)),
        ("memory", values(&MEMORY, node, snapshot)),
        ("pages/s", values(&PAGES, node, snapshot)),
        ("access/s", values(&ACCESSES, node, snapshot)),
        ("reclaim/s", values(&RECLAIM, node, snapshot)),
        ("when full", when_full(snapshot, node)),
        ("swap", swap(snapshot)),
        ("devices", devices(&facts.devices)),
        ("distance", distances(facts)),
        ("measured", measured(facts)),
        ("caches", caches(topology, facts)),
        ("unplaced", devices(&topology.unplaced_devices)),
        ("offline", offline(topology)),
    ];
    let title = format!("Node {id}");
    Pen::new(buf, area, 1, theme.glyphs.ellipsis).gap(1).write(&title, theme.style(Role::Title));
    for (row, (label, text)) in (2..).zip(lines.iter().filter(|(_, text)| !text.is_empty())) {
        let mut pen = Pen::new(buf, area, row, theme.glyphs.ellipsis);
        pen.gap(1)
            .write(&format!("{label:9} "), theme.style(Role::Dim))
            .write(text, theme.style(Role::Plain));
    }
}

/// `hit 20k, miss 300`; where one has no value, a reason follows.
fn values(named: &[Named], node: &Node, snapshot: &Snapshot) -> String {
    let mut reason = None;
    let words: Vec<String> = named
        .iter()
        .map(|(name, metric)| match metric.read(node, snapshot) {
            Ok(value) => format!("{name} {}", short(&value, metric.unit)),
            Err(why) => {
                reason.get_or_insert(why);
                format!("{name} -")
            }
        })
        .collect();
    let words = words.join(", ");
    reason.map_or(words.clone(), |why| format!("{words}: {}", clean_str(&why.to_string())))
}

fn cpus(node: &topology::Node) -> String {
    match format_cpulist(node.cpus.iter().map(|cpu| cpu.0)) {
        list if list.is_empty() && node.memory_only() => {
            "none: memory only (CXL, persistent memory, or all its CPUs are offline)".into()
        }
        list if list.is_empty() => "none".into(),
        list => list,
    }
}

fn caches(topology: &Topology, node: &topology::Node) -> String {
    let here = topology.llcs.iter().filter(|llc| llc.cpus.iter().any(|cpu| node.cpus.contains(cpu)));
    let caches: Vec<String> = here
        .map(|llc| {
            let size = llc.size_bytes.map_or("size unknown".into(), |size| bytes(size as f64));
            let list = format_cpulist(llc.cpus.iter().map(|cpu| cpu.0));
            format!("L{} {size} of {list}", llc.level.map_or("?".into(), |level| level.to_string()))
        })
        .collect();
    caches.join(", ")
}

fn distances(node: &topology::Node) -> String {
    let mut near: Vec<_> = node.distances.iter().filter(|(other, _)| *other != node.id).collect();
    near.sort_by_key(|(other, distance)| (*distance, *other));
    let near: Vec<String> = near.iter().map(|(other, distance)| format!("{other}:{distance}")).collect();
    if near.is_empty() { String::new() } else { format!("to node:  {}", near.join("  ")) }
}

/// `1:139 ns 58 GB/s`, as calibrate measured it; the node itself first.
fn measured(node: &topology::Node) -> String {
    let mut costs: Vec<_> = node.measured.iter().collect();
    costs.sort_by_key(|cost| (cost.node != node.id, cost.latency_ps, cost.node));
    let words = costs.iter().map(|cost| {
        let ns = cost.latency_ps.map(|ps| format!("{:.0} ns", ps as f64 / 1e3));
        let gbs = cost.read_bytes_per_s.map(|bytes| format!("{:.0} GB/s", bytes as f64 / 1e9));
        let numbers: Vec<String> = ns.into_iter().chain(gbs).collect();
        format!("{}:{}", cost.node, numbers.join(" "))
    });
    words.collect::<Vec<_>>().join("  ")
}

/// When the node begins to reclaim, and whether an allocation waits for that or goes to another node.
fn when_full(snapshot: &Snapshot, node: &Node) -> String {
    let mut parts = Vec::new();
    if node.raw.managed_bytes > 0 {
        parts.push(format!("kswapd below {} free", bytes(node.raw.low_watermark_bytes as f64)));
    }
    parts.push(match host::ZONE_RECLAIM_MODE.read(snapshot) {
        Ok(Value::U64(0)) => "zone_reclaim_mode 0: others are asked first".into(),
        Ok(mode) => format!("zone_reclaim_mode {}: reclaimed first", short(&mode, Unit::Id)),
        Err(why) => format!("zone_reclaim_mode -: {}", clean_str(&why.to_string())),
    });
    parts.join("; ")
}

/// The kernel does not count swap by node.
fn swap(snapshot: &Snapshot) -> String {
    let rate = |metric: &HostMetric| metric.read(snapshot).map(|pages| short(&pages, Unit::PerSecond));
    match (rate(&host::SWAP_IN), rate(&host::SWAP_OUT)) {
        (Ok(pages_in), Ok(pages_out)) => {
            format!("in {pages_in}, out {pages_out} pages/s, of the whole machine")
        }
        (Err(why), _) | (_, Err(why)) => format!("-: {}", clean_str(&why.to_string())),
    }
}

fn devices(devices: &[Device]) -> String {
    let device = |device: &Device| {
        let nodes = format_cpulist(device.irq_nodes.iter().map(|node| node.0));
        let interrupts =
            if nodes.is_empty() { String::new() } else { format!(", interrupts on node {nodes}") };
        format!("{} ({}{interrupts})", clean_str(&device.name), device.class.name())
    };
    devices.iter().map(device).collect::<Vec<_>>().join(", ")
}

/// Nodes that could come, for instance when memory is plugged in.
fn offline(topology: &Topology) -> String {
    match format_cpulist(topology.offline_nodes.iter().map(|node| node.0)) {
        list if list.is_empty() => list,
        list => format!("nodes {list} are possible but not there"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::topology::Cost;

    #[test]
    fn measured_costs_begin_with_those_of_the_node() {
        let cost = |node, ns: u64, gbs: Option<u64>| Cost {
            node: NodeId(node),
            latency_ps: Some(ns * 1000),
            read_bytes_per_s: gbs.map(|gbs| gbs * 1_000_000_000),
        };
        let node = topology::Node {
            id: NodeId(1),
            cpus: Vec::new(),
            distances: Vec::new(),
            measured: vec![cost(0, 139, Some(58)), cost(1, 82, Some(172)), cost(2, 100, None)],
            mem_total_bytes: 0,
            mem_free_bytes: 0,
            devices: Vec::new(),
        };
        assert_eq!(measured(&node), "1:82 ns 172 GB/s  2:100 ns  0:139 ns 58 GB/s");
        assert_eq!(measured(&topology::Node { measured: Vec::new(), ..node }), "");
    }
}
