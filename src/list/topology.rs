//! The output of `numatop-ng topology`: text for people, JSON for programs. Memory tiers are a part of it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::metric::since_boot;
use crate::model::inputs::Inputs;
use crate::model::sample::NodeRaw;
use crate::model::topology::{Device, Llc, Node, Topology, format_cpulist};
use crate::model::turns::{AUTO_WEIGHTS, DEMOTION, NodeTier, PROMOTE_LIMIT};
use crate::model::units::{CpuId, NodeId};
use crate::text::{hanging, plural, words};

/// The machine as text of at most `width` columns, in ASCII. Only a single word longer than that, such as a
/// device name, makes a line longer.
pub fn render_text(topology: &Topology, width: usize) -> String {
    let mut sections = vec![summary(topology, width), nodes(topology, width)];
    sections.push(siblings(topology, width));
    sections.push(caches(topology, width));
    if topology.nodes.len() > 1 {
        sections.push(distances(topology, width));
    }
    sections.extend(devices(topology, width));
    let warnings = topology.warnings();
    if !warnings.is_empty() {
        sections.push(warnings.iter().map(|text| hanging("warning: ", words(text), width)).collect());
    }
    sections.join("\n")
}

/// The machine as JSON. `schema` changes only when a key changes its meaning or goes; keys may be added.
///
/// `distance` of a node is in the order of `nodes`. A fact that sysfs lacks is `null`: the socket if the
/// firmware gives none, `core` and `llc` of offline CPUs, the `level` of a cache domain that is only assumed.
pub fn render_json(topology: &Topology) -> Value {
    json!({
        "schema": 1,
        "numa": topology.numa,
        "sockets": (topology.sockets > 0).then_some(topology.sockets),
        "cores": topology.cores,
        "smt": topology.smt(),
        "possible_cpus": topology.possible_cpus,
        "possible_nodes": topology.possible_nodes,
        "offline_nodes": topology.offline_nodes,
        "nodes": topology.nodes.iter().map(|node| json!({
            "node": node.id,
            "cpus": node.cpus,
            "mem_total_bytes": node.mem_total_bytes,
            "mem_free_bytes": node.mem_free_bytes,
            "distance": node.distances.iter().map(|(_, distance)| distance).collect::<Vec<_>>(),
            "devices": node.devices,
        })).collect::<Vec<_>>(),
        "cpus": topology.cpus.iter().map(|cpu| json!({
            "cpu": cpu.id,
            "online": cpu.online,
            "node": cpu.node,
            "socket": cpu.socket,
            "core": cpu.online.then_some(cpu.core),
            "core_id": cpu.core_id,
            "llc": cpu.online.then_some(cpu.llc),
            "siblings": cpu.siblings,
        })).collect::<Vec<_>>(),
        "llcs": topology.llcs,
        "unplaced_devices": topology.unplaced_devices,
        "warnings": topology.warnings(),
    })
}

/// Adds pages since boot, as numastat(8) has them, to the nodes of [`render_json`]; a node that is not in `nodes` has none.
pub fn add_pages(object: &mut Value, nodes: &[NodeRaw]) {
    for node in object["nodes"].as_array_mut().into_iter().flatten() {
        let raw = nodes.iter().find(|raw| node["node"] == raw.id);
        for (id, pages) in since_boot::of(raw) {
            node[id] = json!(pages);
        }
    }
}

/// "2 nodes, 2 sockets, 32 cores, 64 CPUs", and the offline ones.
fn summary(topology: &Topology, width: usize) -> String {
    let sockets = match topology.sockets {
        0 => "unknown sockets".to_owned(),
        sockets => count(sockets as usize, "socket"),
    };
    let online = topology.online_cpus().count();
    let mut text = hanging(
        "",
        words(&format!(
            "{}, {sockets}, {}, {}",
            count(topology.nodes.len(), "node"),
            count(topology.cores as usize, "core"),
            count(online, "CPU")
        )),
        width,
    );
    let offline_cpus = format_cpulist(topology.offline_cpus().map(|cpu| cpu.id.0));
    if !offline_cpus.is_empty() {
        text += &hanging("offline CPUs: ", list(&offline_cpus), width);
    }
    let offline_nodes = format_cpulist(topology.offline_nodes.iter().map(|node| node.0));
    if !offline_nodes.is_empty() {
        text += &hanging("offline nodes: ", list(&offline_nodes), width);
    }
    text
}

/// One row for each node; the list of CPUs comes last because it may wrap.
fn nodes(topology: &Topology, width: usize) -> String {
    let mut text = format!("{:>4}  {:>10}  {:>10}  {:>5}  CPUs\n", "node", "memory", "free", "cores");
    for node in &topology.nodes {
        let prefix = format!(
            "{:>4}  {:>10}  {:>10}  {:>5}  ",
            node.id.0,
            memory(node.mem_total_bytes),
            memory(node.mem_free_bytes),
            cores(topology, node)
        );
        let offline = topology.offline_cpus().filter(|cpu| cpu.node == Some(node.id)).count();
        text += &if node.cpus.is_empty() && offline > 0 {
            hanging(&prefix, words(&format!("none, {} offline", plural(offline, "CPU"))), width)
        } else if node.memory_only() {
            hanging(&prefix, words("none, memory only"), width)
        } else if node.cpus.is_empty() {
            hanging(&prefix, words("none"), width)
        } else {
            hanging(&prefix, list(&cpu_list(&node.cpus)), width)
        };
    }
    text
}

fn cores(topology: &Topology, node: &Node) -> usize {
    let mut cores: Vec<u32> =
        node.cpus.iter().filter_map(|id| topology.cpu(*id)).map(|cpu| cpu.core).collect();
    cores.sort_unstable();
    cores.dedup();
    cores.len()
}

/// The CPUs that share a core, as a rule: "n, n+32 for n = 0-31".
fn siblings(topology: &Topology, width: usize) -> String {
    if !topology.smt() {
        return "SMT: every core has at most one CPU online\n".to_owned();
    }
    // Offsets from the core's lowest CPU → the lowest CPUs of the cores built so.
    let mut rules: BTreeMap<Vec<u32>, Vec<u32>> = BTreeMap::new();
    for cpu in topology.online_cpus().filter(|cpu| cpu.siblings.first() == Some(&cpu.id)) {
        // Saturating, because a damaged recording may name siblings in any order.
        let offsets = cpu.siblings.iter().map(|sibling| sibling.0.saturating_sub(cpu.id.0)).collect();
        rules.entry(offsets).or_default().push(cpu.id.0);
    }
    let mut text = "SMT: the CPUs of each core\n".to_owned();
    for (offsets, firsts) in rules.iter().rev() {
        let members: Vec<String> = offsets
            .iter()
            .map(|offset| if *offset == 0 { "n".to_owned() } else { format!("n+{offset}") })
            .collect();
        let alone = if members.len() == 1 { " alone" } else { "" };
        let prefix = format!("  {}{alone} for n = ", members.join(", "));
        text += &hanging(&prefix, list(&format_cpulist(firsts.iter().copied())), width);
    }
    text
}

/// One row for each last-level cache.
fn caches(topology: &Topology, width: usize) -> String {
    let rows: Vec<(String, String, &Llc)> =
        topology.llcs.iter().map(|llc| (cache(llc), nodes_of(topology, llc), llc)).collect();
    let cache_width = rows.iter().map(|row| row.0.len()).max().unwrap_or(0);
    let node_width = rows.iter().map(|row| row.1.len()).max().unwrap_or(0);
    let mut text = "last-level caches\n".to_owned();
    for (cache, nodes, llc) in &rows {
        let prefix = format!("  {cache:<cache_width$}  {nodes:<node_width$}  CPUs ");
        text += &hanging(&prefix, list(&cpu_list(&llc.cpus)), width);
    }
    text
}

fn nodes_of(topology: &Topology, llc: &Llc) -> String {
    let nodes = llc.nodes(topology);
    let noun = match nodes.len() {
        0 => return "no node".to_owned(),
        1 => "node",
        _ => "nodes",
    };
    format!("{noun} {}", format_cpulist(nodes.iter().map(|node| node.0)))
}

fn cache(llc: &Llc) -> String {
    match (llc.level, llc.size_bytes) {
        (None, _) => "assumed".to_owned(),
        (Some(level), None) => format!("L{level}"),
        // Exact: a 36608 KiB cache is not 35.8 MiB.
        (Some(level), Some(bytes)) if bytes % (1 << 20) == 0 => format!("L{level} {} MiB", bytes >> 20),
        (Some(level), Some(bytes)) => format!("L{level} {} KiB", bytes >> 10),
    }
}

/// The SLIT as a matrix, in blocks of as many columns as fit.
fn distances(topology: &Topology, width: usize) -> String {
    let ids: Vec<NodeId> = topology.nodes.iter().map(|node| node.id).collect();
    let all = topology.nodes.iter().flat_map(|node| &node.distances);
    let digits = all.flat_map(|(id, distance)| [id.0, *distance]).map(|number| number.to_string().len());
    let digits = digits.max().unwrap_or(1);
    const LABEL: usize = 9;
    let roomy = LABEL + ids.len() * (digits + 2) <= width;
    let column = if roomy { digits + 2 } else { digits + 1 };
    let per_block = (width.saturating_sub(LABEL) / column).max(1);

    let title = "distances according to the firmware (SLIT), 10 = local; row = from, column = to";
    let mut text = hanging("", words(title), width);
    for block in ids.chunks(per_block) {
        text += &format!("{:>LABEL$}", "node");
        block.iter().for_each(|to| text += &format!("{:>column$}", to.0));
        text.push('\n');
        for from in &ids {
            text += &format!("{:>LABEL$}", from.0);
            for to in block {
                let distance =
                    topology.distance(*from, *to).map_or("-".to_owned(), |value| value.to_string());
                text += &format!("{distance:>column$}");
            }
            text.push('\n');
        }
    }
    text
}

/// Devices by node; `None` on a machine without any.
fn devices(topology: &Topology, width: usize) -> Option<String> {
    let placed = topology.nodes.iter().map(|node| (format!("node {}", node.id.0), &node.devices));
    let groups = placed.chain([("unknown node".to_owned(), &topology.unplaced_devices)]);
    let groups: Vec<_> = groups.filter(|(_, devices)| !devices.is_empty()).collect();
    let label_width = groups.iter().map(|(label, _)| label.len()).max()?;
    let mut text = "devices\n".to_owned();
    for (label, devices) in groups {
        let mut label = label.as_str();
        for of_class in devices.chunk_by(|a, b| a.class == b.class) {
            let prefix = format!("  {label:<label_width$}  {:<11}  ", of_class[0].class.name());
            let last = of_class.len() - 1;
            let pieces = of_class.iter().enumerate().flat_map(|(index, device)| {
                let comma = if index == last { "" } else { ", " };
                [device_name(device), interrupts(device) + comma]
            });
            text += &hanging(&prefix, pieces, width);
            // Further classes of the same node stand below the first.
            label = "";
        }
    }
    Some(text)
}

/// An example is "eth0 (0000:3b:00.0)". Names are chosen by the administrator, or come from a recording: they
/// must not control the terminal.
fn device_name(device: &Device) -> String {
    let name = device.name.escape_default();
    match &device.pci {
        Some(pci) if *pci != device.name => format!("{name} ({})", pci.escape_default()),
        _ => name.to_string(),
    }
}

/// " interrupts on node 0-1", if the device itself has interrupts.
fn interrupts(device: &Device) -> String {
    match format_cpulist(device.irq_nodes.iter().map(|node| node.0)) {
        nodes if nodes.is_empty() => nodes,
        nodes => format!(" interrupts on node {nodes}"),
    }
}

fn cpu_list(cpus: &[CpuId]) -> String {
    format_cpulist(cpus.iter().map(|cpu| cpu.0))
}

/// Memory sizes: one decimal of GiB, whole MiB below 1 GiB. The installed size less what the firmware and
/// the kernel kept is rarely round, so more digits would be noise.
fn memory(bytes: u64) -> String {
    const GIB: u64 = 1 << 30;
    if bytes == 0 || bytes >= GIB {
        format!("{:.1} GiB", bytes as f64 / GIB as f64)
    } else {
        format!("{} MiB", bytes >> 20)
    }
}

fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// The places where a CPU list may wrap: after each comma.
fn list(text: &str) -> impl Iterator<Item = String> {
    text.split_inclusive(',').map(str::to_owned)
}

/// Nodes by tier, with the firmware's description of their memory and weights; nothing if they are equal for
/// all nodes.
pub fn tiers_as_text(inputs: &Inputs, width: usize) -> String {
    let nodes = &inputs.tiers;
    let kinds: BTreeSet<Option<u32>> = nodes.values().map(|node| node.tier).collect();
    let is_described = |node: &NodeTier| node.read_latency_ns.is_some() || node.read_mbs.is_some();
    let weighted: BTreeSet<Option<u32>> = nodes.values().map(|node| node.weight).collect();
    if kinds.len() < 2 && weighted.len() < 2 && !nodes.values().any(|node| is_described(node)) {
        return String::new();
    }
    let title = "memory tiers, 1 = fastest; latency and bandwidth according to the firmware (HMAT), from the \
                 nearest CPUs; weight of weighted interleaving";
    let mut text = hanging("", words(title), width);
    text += &format!(
        "{:>9}  {:>4}  {:>9}  {:>9}  {:>10}  {:>10}  {:>6}\n",
        "node", "tier", "read", "write", "read", "write", "weight"
    );
    for (node, described) in nodes.iter() {
        let rank = rank(inputs, described).map_or("-".into(), |rank| rank.to_string());
        let ns = |ns: Option<u64>| ns.map_or("-".into(), |ns| format!("{ns} ns"));
        let gbs = |mbs: Option<u64>| mbs.map_or("-".into(), |mbs| format!("{:.1} GB/s", mbs as f64 / 1000.0));
        let weight = described.weight.map_or("-".into(), |weight| weight.to_string());
        text += &format!(
            "{node:>9}  {rank:>4}  {:>9}  {:>9}  {:>10}  {:>10}  {weight:>6}\n",
            ns(described.read_latency_ns),
            ns(described.write_latency_ns),
            gbs(described.read_mbs),
            gbs(described.write_mbs),
        );
    }
    let switch = |name: &str| inputs.tier_switches.get(name).map(|value| **value);
    let on = |value: u64| if value == 0 { "off" } else { "on" };
    let facts = [
        switch(DEMOTION).map(|value| format!("demotion {}", on(value))),
        switch(PROMOTE_LIMIT).map(|mbs| format!("promotion limited to {mbs} MB/s for each node")),
        switch(AUTO_WEIGHTS).map(|value| format!("automatic weights {}", on(value))),
    ];
    let facts: Vec<String> = facts.into_iter().flatten().collect();
    if !facts.is_empty() {
        text += &hanging("", words(&facts.join(", ")), width);
    }
    text
}

/// Adds tiers to the nodes of [`super::topology::render_json`], and `tier_switches`. An unknown fact is `null`.
pub fn add_tiers(object: &mut Value, inputs: &Inputs) {
    for node in object["nodes"].as_array_mut().into_iter().flatten() {
        let described = inputs.tiers.iter().find(|(id, _)| node["node"] == id.0).map(|(_, tier)| **tier);
        let described = described.unwrap_or_default();
        node["tier"] = json!(rank(inputs, &described));
        node["firmware_latency_ns"] = json!(described.read_latency_ns);
        node["firmware_write_latency_ns"] = json!(described.write_latency_ns);
        node["firmware_bandwidth_gbs"] = json!(described.read_mbs.map(|mbs| mbs as f64 / 1000.0));
        node["firmware_write_bandwidth_gbs"] = json!(described.write_mbs.map(|mbs| mbs as f64 / 1000.0));
        node["interleave_weight"] = json!(described.weight);
    }
    let known = inputs.tier_switches.iter().map(|(name, value)| (name.clone(), json!(**value)));
    object["tier_switches"] = Value::Object(known.collect());
}

fn rank(inputs: &Inputs, node: &NodeTier) -> Option<u64> {
    let tiers: BTreeSet<u32> = inputs.tiers.values().filter_map(|node| node.tier).collect();
    node.tier.map(|tier| 1 + tiers.range(..tier).count() as u64)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::units::NodeId;

    #[test]
    fn memory_keeps_small_amounts_visible() {
        assert_eq!(memory(96_920 << 20), "94.6 GiB");
        assert_eq!(memory(33 << 20), "33 MiB");
        assert_eq!(memory(0), "0.0 GiB");
    }

    fn guest() -> Inputs {
        let fast = NodeTier { tier: Some(4), weight: Some(3), ..NodeTier::default() };
        let slow = NodeTier {
            tier: Some(63),
            read_latency_ns: Some(350),
            read_mbs: Some(5120),
            weight: Some(1),
            ..NodeTier::default()
        };
        let nodes = [(NodeId(0), Arc::new(fast)), (NodeId(2), Arc::new(slow))];
        let switches = [(DEMOTION.to_owned(), Arc::new(1)), (PROMOTE_LIMIT.to_owned(), Arc::new(65_536))];
        Inputs {
            tiers: Arc::new(nodes.into()),
            tier_switches: Arc::new(switches.into()),
            ..Inputs::default()
        }
    }

    #[test]
    fn a_slow_node_is_shown_with_what_the_firmware_says() {
        let text = tiers_as_text(&guest(), 80);
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        let row =
            |node: &str| text.lines().find(|line| line.trim_start().starts_with(node)).unwrap().to_owned();
        let cells = |node: &str| row(node).split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(cells("0 "), ["0", "1", "-", "-", "-", "-", "3"]);
        assert_eq!(cells("2 "), ["2", "2", "350", "ns", "-", "5.1", "GB/s", "-", "1"]);
        assert!(text.ends_with("demotion on, promotion limited to 65536 MB/s for each node\n"), "{text}");
        assert_eq!(tiers_as_text(&Inputs::default(), 80), "", "a kernel without tiers");
    }

    #[test]
    fn unknown_facts_are_null() {
        let mut object = json!({ "nodes": [{ "node": 0 }, { "node": 1 }, { "node": 2 }] });
        add_tiers(&mut object, &guest());
        assert_eq!(object["nodes"][2]["firmware_latency_ns"], 350);
        assert_eq!(object["nodes"][0]["firmware_latency_ns"], Value::Null);
        assert_eq!((&object["nodes"][0]["tier"], &object["nodes"][1]["tier"]), (&json!(1), &Value::Null));
        assert_eq!(object["tier_switches"], json!({ DEMOTION: 1, PROMOTE_LIMIT: 65_536 }));
    }
}
