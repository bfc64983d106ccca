//! The selected node, in the lines below the table of nodes: its activity and its parts.
//!
//! The first of them do not fit into the table of a narrow screen.

use std::collections::BTreeMap;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::metric::accelerators::held_by;
use crate::metric::format::short;
use crate::metric::host::{self, HostMetric};
use crate::metric::{
    Metric, Unit, Value, cache_use, disks, dram, free_blocks, matrix, node, since_boot, tiers,
};
use crate::model::topology::{self, Device, Topology, format_cpulist};
use crate::model::turns::DeviceInterrupts;
use crate::model::units::{CpuId, NodeId};
use crate::snapshot::{CpuDelta, Node, Snapshot};
use crate::text::clean_str;
use crate::text::quantity::{bytes, count};
use crate::tui::theme::{Role, Theme};
use crate::tui::widgets::pen::{Pen, level};

/// A label in a line, and its metric.
type Named = (&'static str, &'static Metric<Node>);

const MEMORY: [Named; 3] =
    [("file", &node::MEM_FILE_BYTES), ("anon", &node::MEM_ANON_BYTES), ("slab", &node::MEM_SLAB_BYTES)];
/// As numastat(8) names them.
const PAGES: [Named; 6] = [
    ("hit", &node::NUMA_HIT_PER_S),
    ("miss", &node::NUMA_MISS_PER_S),
    ("foreign", &node::NUMA_FOREIGN_PER_S),
    ("interleave", &node::INTERLEAVE_HIT_PER_S),
    ("local", &node::LOCAL_NODE_PER_S),
    ("other", &node::OTHER_NODE_PER_S),
];
const SINCE_BOOT: [Named; 6] = [
    ("hit", &since_boot::NUMA_HIT),
    ("miss", &since_boot::NUMA_MISS),
    ("foreign", &since_boot::NUMA_FOREIGN),
    ("interleave", &since_boot::INTERLEAVE_HIT),
    ("local", &since_boot::LOCAL_NODE),
    ("other", &since_boot::OTHER_NODE),
];
const TIER: [Named; 4] = [
    ("rank", &tiers::TIER),
    ("promoted/s", &tiers::PROMOTED),
    ("demoted/s", &tiers::DEMOTED),
    ("candidates/s", &tiers::CANDIDATES),
];
const MONITORED: [Named; 3] = [
    ("all", &cache_use::NODE_MBM),
    ("local", &cache_use::NODE_MBM_LOCAL),
    ("bytes in L3", &cache_use::NODE_OCCUPANCY),
];
const DRAM: [Named; 3] = [("read", &dram::READ), ("write", &dram::WRITE), ("busy", &dram::BUSY)];
const ACCESSES: [Named; 2] = [("local", &node::LMA_PER_S), ("remote", &node::RMA_PER_S)];
const RECLAIM: [Named; 3] = [
    ("kswapd", &node::KSWAPD_PAGES_PER_S),
    ("direct", &node::DIRECT_RECLAIM_PAGES_PER_S),
    ("node reclaims", &node::NODE_RECLAIM_PER_S),
];

/// As many lines as fit. The machine may have changed since: then less is known.
pub(super) fn render(snapshot: &Snapshot, node: &Node, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let (topology, id) = (&snapshot.host.topology, NodeId(node.raw.id));
    let Some(facts) = topology.node(id) else { return };
    let (inputs, written) = (&snapshot.inputs, disks::written_back(snapshot).unwrap_or_default());
    // Nothing where the machine counts none of them.
    let unless =
        |is_empty, named: &[Named]| if is_empty { String::new() } else { values(named, node, snapshot) };
    let lines = [
        ("CPUs", cpus(facts)),
        ("busy", busy(snapshot, facts, theme)),
        ("memory", format!("{}, {}", values(&MEMORY, node, snapshot), huge_pages(node, snapshot))),
        ("pages/s", values(&PAGES, node, snapshot)),
        ("access/s", values(&ACCESSES, node, snapshot)),
        ("reclaim/s", values(&RECLAIM, node, snapshot)),
        ("when full", when_full(snapshot, node)),
        ("swap", swap(snapshot)),
        ("devices", devices(snapshot, &facts.devices, &written)),
        ("distance", distances(facts)),
        ("measured", measured(topology, id)),
        ("caches", caches(topology, facts)),
        ("no node", devices(snapshot, &topology.unplaced_devices, &written)),
        ("offline", offline(topology)),
        ("L3 B/s", unless(inputs.cache_use.is_empty(), &MONITORED)),
        ("DRAM B/s", unless(inputs.node_dram.is_empty(), &DRAM)),
        ("tier", unless(inputs.tier_pages.is_empty(), &TIER)),
        ("free", free(node, snapshot)),
        ("pages", format!("since boot: {}", values(&SINCE_BOOT, node, snapshot))),
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

/// `huge pages 128 free of 512`.
fn huge_pages(node: &Node, snapshot: &Snapshot) -> String {
    let read = |metric: &Metric<Node>| {
        metric.read(node, snapshot).map_or("-".into(), |value| short(&value, metric.unit))
    };
    format!("huge pages {} free of {}", read(&node::HUGE_FREE), read(&node::HUGE_TOTAL))
}

/// `75.0 % in blocks of huge pages; by order 12 0 3`.
fn free(node: &Node, snapshot: &Snapshot) -> String {
    let orders = values(&[("by order", &free_blocks::FREE_BLOCKS_BY_ORDER)], node, snapshot);
    match free_blocks::HUGE_FREE_PCT.read(node, snapshot) {
        Ok(pct) => format!(
            "{} % in blocks of huge-page size; blocks {orders}",
            short(&pct, free_blocks::HUGE_FREE_PCT.unit)
        ),
        Err(_) => format!("blocks {orders}"),
    }
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

/// One level for each CPU, in the order of the list.
fn busy(snapshot: &Snapshot, node: &topology::Node, theme: &Theme) -> String {
    let of = |id: &CpuId| snapshot.cpus.iter().find(|cpu| cpu.id == id.0 && cpu.online);
    let share = |cpu: &CpuDelta| snapshot.share(cpu.busy_ns).ok().map(|pct| level(pct / 100.0, theme));
    node.cpus.iter().map(|id| of(id).and_then(share).unwrap_or('-')).collect()
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

/// `1:139 ns 58 GB/s`, as calibrate measured it, the node itself first, and the day; ratios only where CPUs wander.
fn measured(topology: &Topology, node: NodeId) -> String {
    let calibration = topology.calibration.as_ref();
    if let Some(why) = calibration.and_then(|calibration| calibration.unused.as_ref()) {
        return clean_str(&format!("not used: {why}"));
    }
    let words = matrix::costs(topology, node).into_iter().filter_map(|cost| {
        let times = || cost.times.map(|times| format!("{times:.2}x"));
        let latency = cost.latency.map(|ns| format!("{:.0} ns", ns.value)).or_else(times);
        let reads = cost.reads.map(|gbs| format!("{:.0} GB/s", gbs.value));
        let numbers: Vec<String> = latency.into_iter().chain(reads).collect();
        (!numbers.is_empty()).then(|| format!("{}:{}", cost.to, numbers.join(" ")))
    });
    let words: Vec<String> = words.collect();
    let day = calibration.filter(|_| !words.is_empty());
    let day = day.map_or(String::new(), |calibration| format!("  ({})", clean_str(calibration.day())));
    words.join("  ") + &day
}

/// When the node begins to reclaim, and whether an allocation waits for that or goes to another node.
fn when_full(snapshot: &Snapshot, node: &Node) -> String {
    let mut parts = Vec::new();
    if node.raw.managed_bytes > 0 {
        parts.push(format!("low watermark {}", bytes(node.raw.low_watermark_bytes as f64)));
    }
    parts.push(match host::ZONE_RECLAIM_MODE.read(snapshot) {
        Ok(Value::U64(0)) => "then other nodes are used (zone_reclaim_mode 0)".into(),
        Ok(mode) => {
            format!("then the node is reclaimed first (zone_reclaim_mode {})", short(&mode, Unit::Id))
        }
        Err(why) => format!("zone_reclaim_mode -: {}", clean_str(&why.to_string())),
    });
    parts.join("; ")
}

/// The kernel does not count swap by node.
fn swap(snapshot: &Snapshot) -> String {
    let rate = |metric: &HostMetric| metric.read(snapshot).map(|pages| short(&pages, Unit::PerSecond));
    match (rate(&host::SWAP_IN), rate(&host::SWAP_OUT)) {
        (Ok(pages_in), Ok(pages_out)) => {
            format!("in {pages_in}, out {pages_out} pages/s, whole machine")
        }
        (Err(why), _) | (_, Err(why)) => format!("-: {}", clean_str(&why.to_string())),
    }
}

/// Devices, with the bytes that were written back to `written`, by address.
fn devices(snapshot: &Snapshot, devices: &[Device], written: &BTreeMap<&str, u64>) -> String {
    let device = |device: &Device| {
        let nodes = format_cpulist(device.irq_nodes.iter().map(|node| node.0));
        let interrupts = match snapshot.interrupts_of(device) {
            Some(counted) => format!(", {}", handled(counted)),
            None if nodes.is_empty() => String::new(),
            None => format!(", interrupts on node {nodes}"),
        };
        let holders = match held_by(device, snapshot) {
            holders if holders.is_empty() => holders,
            holders => format!(", held by {holders}"),
        };
        let written = device.pci.as_deref().and_then(|address| snapshot.rate(*written.get(address)?).ok());
        let written = written.map_or_else(String::new, |rate| format!(", {}/s written back", bytes(rate)));
        format!("{} ({}{interrupts}{written}{holders})", clean_str(&device.name), device.class.name())
    };
    devices.iter().map(device).collect::<Vec<_>>().join(", ")
}

/// `12k interrupts/s on node 0`, with the share of each where there are several.
fn handled(counted: &DeviceInterrupts) -> String {
    let all = counted.all_per_second();
    let share = |node: &NodeId| counted.per_second_on(*node) * 100.0 / all;
    let nodes: Vec<&NodeId> = counted.by_node.keys().filter(|node| all > 0.0 && share(node) >= 1.0).collect();
    let place = match &nodes[..] {
        [] => String::new(),
        [node] => format!(" on node {node}"),
        nodes => {
            let part = |node: &&NodeId| format!("{:.0} % on node {node}", share(node));
            format!(": {}", nodes.iter().map(part).collect::<Vec<_>>().join(", "))
        }
    };
    format!("{} interrupts/s{place}", count(all))
}

/// Nodes that could come, for instance when memory is plugged in.
fn offline(topology: &Topology) -> String {
    match format_cpulist(topology.offline_nodes.iter().map(|node| node.0)) {
        list if list.is_empty() => list,
        list => format!("nodes {list} are possible but offline"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::topology::{Calibration, Cost};

    #[test]
    fn measured_costs_begin_with_those_of_the_node() {
        let root = crate::fixture::tree("hosts/intel-e5-2682v4");
        let mut topology = crate::host::topology::read(&root).unwrap();
        let (near, far) = (NodeId(1), NodeId(0));
        let cost = |node, ns: u64, gbs: u64| Cost {
            node,
            latency_ps: Some(ns * 1000),
            read_bytes_per_s: Some(gbs * 1_000_000_000),
            latency_error_ps: None,
            read_error_bytes_per_s: None,
        };
        topology.nodes[1].measured = vec![cost(far, 164, 58), cost(near, 82, 172)];
        let without_day = "1:82 ns 172 GB/s  0:164 ns 58 GB/s";
        assert_eq!(measured(&topology, near), without_day, "a recording from before the day was kept");
        let time = "2026-11-22T10:03:00Z".to_string();
        topology.calibration = Some(Calibration { time, ..Calibration::default() });
        assert_eq!(measured(&topology, near), format!("{without_day}  (2026-11-22)"));
        assert_eq!(measured(&topology, far), "", "nothing was measured from there");
        topology.calibration.as_mut().unwrap().only_ratios = true;
        assert_eq!(measured(&topology, near), "1:1.00x  0:2.00x  (2026-11-22)");
        topology.calibration.as_mut().unwrap().unused = Some("it has 4 nodes".into());
        assert_eq!(measured(&topology, near), "not used: it has 4 nodes");
    }
}
