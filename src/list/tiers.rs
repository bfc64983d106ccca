//! Memory tiers in the output of `numatop-ng topology`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::model::inputs::Inputs;
use crate::model::tiers::{AUTO_WEIGHTS, DEMOTION, NodeTier, PROMOTE_LIMIT};
use crate::text::{hanging, words};

/// Nodes by tier, with the firmware's description of their memory and weights; nothing if they are equal for
/// all nodes.
pub fn render_text(inputs: &Inputs, width: usize) -> String {
    let nodes = &inputs.tiers;
    let kinds: BTreeSet<Option<u32>> = nodes.values().map(|node| node.tier).collect();
    let is_described = |node: &NodeTier| node.read_latency_ns.is_some() || node.read_mbs.is_some();
    let weighted: BTreeSet<Option<u32>> = nodes.values().map(|node| node.weight).collect();
    if kinds.len() < 2 && weighted.len() < 2 && !nodes.values().any(|node| is_described(node)) {
        return String::new();
    }
    let title = "memory tiers, 1 = fastest; latency and bandwidth by the firmware (HMAT), from the nearest CPUs; weight of weighted \
                 interleaving";
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
        switch(PROMOTE_LIMIT).map(|mbs| format!("promotion at most {mbs} MB/s to each node")),
        switch(AUTO_WEIGHTS).map(|value| format!("automatic weights {}", on(value))),
    ];
    let facts: Vec<String> = facts.into_iter().flatten().collect();
    if !facts.is_empty() {
        text += &hanging("", words(&facts.join(", ")), width);
    }
    text
}

/// Adds tiers to the nodes of [`super::topology::render_json`], and `tier_switches`. An unknown fact is `null`.
pub fn add_json(object: &mut Value, inputs: &Inputs) {
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
        let text = render_text(&guest(), 80);
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        let row =
            |node: &str| text.lines().find(|line| line.trim_start().starts_with(node)).unwrap().to_owned();
        let cells = |node: &str| row(node).split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(cells("0 "), ["0", "1", "-", "-", "-", "-", "3"]);
        assert_eq!(cells("2 "), ["2", "2", "350", "ns", "-", "5.1", "GB/s", "-", "1"]);
        assert!(text.ends_with("demotion on, promotion at most 65536 MB/s to each node\n"), "{text}");
        assert_eq!(render_text(&Inputs::default(), 80), "", "a kernel without tiers");
    }

    #[test]
    fn unknown_facts_are_null() {
        let mut object = json!({ "nodes": [{ "node": 0 }, { "node": 1 }, { "node": 2 }] });
        add_json(&mut object, &guest());
        assert_eq!(object["nodes"][2]["firmware_latency_ns"], 350);
        assert_eq!(object["nodes"][0]["firmware_latency_ns"], Value::Null);
        assert_eq!((&object["nodes"][0]["tier"], &object["nodes"][1]["tier"]), (&json!(1), &Value::Null));
        assert_eq!(object["tier_switches"], json!({ DEMOTION: 1, PROMOTE_LIMIT: 65_536 }));
    }
}
