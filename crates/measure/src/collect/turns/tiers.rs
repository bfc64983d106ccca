//! Memory tiers of nodes, the firmware's description of their memory (HMAT), switches, and pages that move between tiers.
//!
//! Sources: Documentation/ABI/testing/sysfs-kernel-mm-memory-tiers, Documentation/ABI/stable/sysfs-devices-node,
//! Documentation/ABI/testing/sysfs-kernel-mm-numa and sysfs-kernel-mm-mempolicy-weighted-interleave of the kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use super::{Now, Part};
use crate::collect::host_state::KeptFile;
use crate::model::inputs::Inputs;
use crate::model::sample::Missing;
use crate::model::topology::{Topology, parse_cpulist};
use crate::model::turns::{AUTO_WEIGHTS, DEMOTION, NodeTier, PROMOTE_LIMIT, TierPages};
use crate::model::units::NodeId;

/// Tiers and switches are looked at again after this time, ns.
const FACTS_NS: u64 = 5_000_000_000;

/// Time of the last look at tiers and switches, and the files of nodes.
#[derive(Default)]
pub(super) struct Tiers {
    looked_ns: Option<u64>,
    vmstat: BTreeMap<NodeId, KeptFile>,
}

impl Part for Tiers {
    fn read(&mut self, now: Now<'_>) -> Result<(), Missing> {
        if self.looked_ns.is_none_or(|looked| now.mono_ns.saturating_sub(looked) >= FACTS_NS) {
            look(now.root, &now.host.topology, now.inputs)?;
            self.looked_ns = Some(now.mono_ns);
        }
        // Without two tiers nothing is promoted or demoted: no file of a node is opened.
        let tiers: BTreeSet<u32> = now.inputs.tiers.values().filter_map(|node| node.tier).collect();
        if tiers.len() < 2 {
            self.vmstat.clear();
            if !now.inputs.tier_pages.is_empty() {
                now.inputs.tier_pages = Arc::default();
            }
            return Ok(());
        }
        let mut pages = BTreeMap::new();
        for node in now.inputs.tiers.keys() {
            let path = now.root.join(format!("sys/devices/system/node/node{node}/vmstat"));
            let file = self.vmstat.entry(*node).or_insert_with(|| KeptFile::new(path));
            if let Ok(text) = file.read() {
                pages.insert(*node, Arc::new(TierPages::parse(text)));
            }
        }
        now.inputs.tier_pages = Arc::new(pages);
        Ok(())
    }

    fn begin_again(&mut self) {
        *self = Tiers::default();
    }
}

/// Reads tiers, the firmware's description and switches below `root`, once.
///
/// # Errors
/// The kernel has no memory tiers.
pub fn look(root: &Path, topology: &Topology, inputs: &mut Inputs) -> Result<(), Missing> {
    let tier_of = tiers(root)?;
    let weights = "sys/kernel/mm/mempolicy/weighted_interleave";
    let nodes = topology.nodes.iter().map(|node| {
        let initiators = format!("sys/devices/system/node/node{}/access0/initiators", node.id);
        // The kernel writes 0 where the firmware has no number.
        let firmware =
            |file: &str| number(root, &format!("{initiators}/{file}")).filter(|number| *number > 0);
        let described = NodeTier {
            tier: tier_of.get(&node.id.0).copied(),
            read_latency_ns: firmware("read_latency"),
            write_latency_ns: firmware("write_latency"),
            read_mbs: firmware("read_bandwidth"),
            write_mbs: firmware("write_bandwidth"),
            weight: number(root, &format!("{weights}/node{}", node.id)),
        };
        (node.id, Arc::new(described))
    });
    let nodes: BTreeMap<NodeId, Arc<NodeTier>> = nodes.collect();
    let switches = [
        (DEMOTION, switch(root, "sys/kernel/mm/numa/demotion_enabled")),
        (PROMOTE_LIMIT, number(root, "proc/sys/kernel/numa_balancing_promote_rate_limit_MBps")),
        // Linux 6.18 makes a file of this other name: `auto` is a macro there.
        (
            AUTO_WEIGHTS,
            ["auto", "__auto_type"].iter().find_map(|file| switch(root, &format!("{weights}/{file}"))),
        ),
    ];
    let known = switches.into_iter().filter_map(|(name, value)| Some((name.to_owned(), Arc::new(value?))));
    (inputs.tiers, inputs.tier_switches) = (Arc::new(nodes), Arc::new(known.collect()));
    Ok(())
}

/// The number of its tier by node id. A node that is in two lists, or in one that cannot be understood, is in none.
fn tiers(root: &Path) -> Result<BTreeMap<u32, u32>, Missing> {
    let dir = root.join("sys/devices/virtual/memory_tiering");
    let entries = std::fs::read_dir(dir).map_err(|_| {
        Missing::Unsupported("the kernel has no memory tiers (CONFIG_NUMA, from Linux 6.1 on)".into())
    })?;
    let mut found: BTreeMap<u32, Option<u32>> = BTreeMap::new();
    for entry in entries.flatten() {
        let name = entry.file_name();
        let tier = name.to_str().and_then(|name| name.strip_prefix("memory_tier")?.parse::<u32>().ok());
        let Some(tier) = tier else { continue };
        let nodes = std::fs::read_to_string(entry.path().join("nodelist")).unwrap_or_default();
        for node in parse_cpulist(&nodes).unwrap_or_default() {
            found.entry(node).and_modify(|known| *known = None).or_insert(Some(tier));
        }
    }
    Ok(found.into_iter().filter_map(|(node, tier)| Some((node, tier?))).collect())
}

fn number<T: FromStr>(root: &Path, path: &str) -> Option<T> {
    std::fs::read_to_string(root.join(path)).ok()?.trim().parse().ok()
}

/// `true` or `false`, or 1 or 0.
fn switch(root: &Path, path: &str) -> Option<u64> {
    match std::fs::read_to_string(root.join(path)).ok()?.trim() {
        "true" | "1" | "Y" => Some(1),
        "false" | "0" | "N" => Some(0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::turns::tests::{read, read_at};
    use crate::model::demo;
    use crate::tree::Tree;

    const NODE: &str = "sys/devices/system/node";

    /// As in a guest with Linux 6.12, `hmat=on` and a node without CPUs; the demo machine has nodes 0 to 3.
    fn guest(name: &str) -> Tree {
        let tree = Tree::new(name);
        tree.write("sys/devices/virtual/memory_tiering/memory_tier4/nodelist", "0-1\n");
        tree.write("sys/devices/virtual/memory_tiering/memory_tier63/nodelist", "2\n");
        tree.write("sys/devices/virtual/memory_tiering/uevent", "");
        tree.write(&format!("{NODE}/node2/access0/initiators/read_latency"), "350\n");
        tree.write(&format!("{NODE}/node2/access0/initiators/read_bandwidth"), "5120\n");
        tree.write(&format!("{NODE}/node2/access0/initiators/write_latency"), "0\n");
        tree.write(&format!("{NODE}/node0/vmstat"), "pgpromote_success 8192\npgdemote_kswapd 5\n");
        tree.write(&format!("{NODE}/node2/vmstat"), "nr_free_pages 1\n");
        tree.write("sys/kernel/mm/numa/demotion_enabled", "true\n");
        tree.write("proc/sys/kernel/numa_balancing_promote_rate_limit_MBps", "65536\n");
        tree.write("sys/kernel/mm/mempolicy/weighted_interleave/node0", "3\n");
        tree.write("sys/kernel/mm/mempolicy/weighted_interleave/__auto_type", "true\n");
        tree
    }

    #[test]
    fn a_guest_with_a_slow_node() {
        let tree = guest("tiers");
        let inputs = read(&mut Tiers::default(), &tree).unwrap().0;
        let tier = |node: u32| *inputs.tiers[&NodeId(node)];
        assert_eq!(
            (tier(0).tier, tier(1).tier, tier(2).tier, tier(3).tier),
            (Some(4), Some(4), Some(63), None)
        );
        let slow = NodeTier {
            tier: Some(63),
            read_latency_ns: Some(350),
            read_mbs: Some(5120),
            ..NodeTier::default()
        };
        assert_eq!(tier(2), slow, "0 is no latency");
        assert_eq!(tier(0).weight, Some(3));
        let pages = &inputs.tier_pages;
        assert_eq!(pages.keys().collect::<Vec<_>>(), [&NodeId(0), &NodeId(2)], "others have no file");
        assert_eq!((pages[&NodeId(0)].promoted, pages[&NodeId(0)].demoted), (Some(8192), Some(5)));
        assert_eq!(*pages[&NodeId(2)], TierPages::default());
        let switches: Vec<_> =
            inputs.tier_switches.iter().map(|(name, value)| (name.as_str(), **value)).collect();
        assert_eq!(switches, [(DEMOTION, 1), (PROMOTE_LIMIT, 65_536), (AUTO_WEIGHTS, 1)]);
    }

    #[test]
    fn one_tier_opens_no_file_of_a_node() {
        let tree = guest("one-tier");
        tree.write("sys/devices/virtual/memory_tiering/memory_tier63/nodelist", "\n");
        let mut part = Tiers::default();
        let inputs = read(&mut part, &tree).unwrap().0;
        assert!(inputs.tier_pages.is_empty() && part.vmstat.is_empty());
        assert_eq!(inputs.tiers[&NodeId(2)].tier, None);
    }

    #[test]
    fn facts_are_looked_at_again_after_a_while() {
        let tree = guest("tiers-later");
        let (mut part, mut host) = (Tiers::default(), Arc::new(demo::facts()));
        read_at(&mut part, &tree, &mut host, 1).unwrap();
        tree.write("sys/kernel/mm/numa/demotion_enabled", "false\n");
        let soon = read_at(&mut part, &tree, &mut host, FACTS_NS).unwrap().0;
        let later = read_at(&mut part, &tree, &mut host, FACTS_NS + 1).unwrap().0;
        assert!(soon.tier_switches.is_empty(), "nothing was looked at");
        assert_eq!(*later.tier_switches[DEMOTION], 0);
    }

    #[test]
    fn odd_files_have_no_value() {
        let tree = guest("odd-tiers");
        let without = Tree::new("no-tiers");
        tree.write("sys/devices/virtual/memory_tiering/memory_tier5/nodelist", "1\n");
        tree.write("sys/devices/virtual/memory_tiering/memory_tier-1/nodelist", "3\n");
        tree.write("sys/devices/virtual/memory_tiering/memory_tier7/nodelist", "-3\n");
        tree.write("sys/devices/virtual/memory_tiering/memory_tier4294967296/nodelist", "3\n");
        tree.write(&format!("{NODE}/node2/access0/initiators/read_latency"), "18446744073709551616\n");
        tree.write(&format!("{NODE}/node2/access0/initiators/read_bandwidth"), "-1\n");
        tree.write("sys/kernel/mm/numa/demotion_enabled", "maybe\n");
        tree.write("proc/sys/kernel/numa_balancing_promote_rate_limit_MBps", "");
        let inputs = read(&mut Tiers::default(), &tree).unwrap().0;
        assert_eq!(inputs.tiers[&NodeId(1)].tier, None, "it is in two lists");
        assert_eq!(*inputs.tiers[&NodeId(3)], NodeTier::default());
        assert_eq!(*inputs.tiers[&NodeId(2)], NodeTier { tier: Some(63), ..NodeTier::default() });
        assert_eq!(inputs.tier_switches.keys().collect::<Vec<_>>(), [AUTO_WEIGHTS]);
        assert!(read(&mut Tiers::default(), &without).unwrap_err().to_string().contains("6.1"));
    }
}
