//! Free blocks of nodes by order: /proc/buddyinfo.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::{Now, Part};
use crate::collect::host_state::KeptFile;
use crate::collect::machine;
use crate::model::sample::Missing;
use crate::model::turns::FreeBlocks;
use crate::model::units::NodeId;

/// The file, and the size of a huge page, once they are read.
#[derive(Default)]
pub(super) struct Buddies(Option<(KeptFile, Option<u64>)>);

impl Part for Buddies {
    fn read(&mut self, now: Now<'_>) -> Result<(), Missing> {
        let open = || (KeptFile::new(now.root.join("proc/buddyinfo")), huge_bytes(now.root));
        let (file, huge_bytes) = self.0.get_or_insert_with(open);
        let text =
            file.read().map_err(|why| Missing::Unsupported(format!("reading /proc/buddyinfo: {why}")))?;
        let page_bytes = machine::page_size();
        let node =
            |(node, by_order)| (node, Arc::new(FreeBlocks { by_order, page_bytes, huge_bytes: *huge_bytes }));
        now.inputs.free_blocks = Arc::new(parse(text).into_iter().map(node).collect());
        Ok(())
    }
}

/// Size of a transparent huge page; `None` where the kernel has none.
fn huge_bytes(root: &Path) -> Option<u64> {
    let path = root.join("sys/kernel/mm/transparent_hugepage/hpage_pmd_size");
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Sums over the zones of each node of lines like `Node 0, zone   Normal   12   3   1`. A node with a line that is something else
/// is left out: a sum without one of its zones is no number of the node.
fn parse(text: &str) -> BTreeMap<NodeId, Vec<u64>> {
    let mut orders = None;
    let mut nodes: BTreeMap<NodeId, Option<Vec<u64>>> = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let node = words.next().filter(|word| *word == "Node").and_then(|_| words.next());
        let node = node.and_then(|word| word.strip_suffix(',')?.parse().ok());
        let Some(node) = node.map(NodeId) else { continue };
        let blocks = zone(words).filter(|blocks| *orders.get_or_insert(blocks.len()) == blocks.len());
        match (nodes.get_mut(&node), blocks) {
            (None, blocks) => drop(nodes.insert(node, blocks)),
            (Some(sum), blocks) => *sum = sum.take().zip(blocks).and_then(|(sum, more)| added(sum, &more)),
        }
    }
    nodes.into_iter().filter_map(|(node, blocks)| Some((node, blocks?))).collect()
}

/// Blocks by order of `zone Normal 12 3 1`.
fn zone<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<Vec<u64>> {
    words.next().filter(|word| *word == "zone")?;
    words.next()?;
    let blocks: Vec<u64> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
    (!blocks.is_empty()).then_some(blocks)
}

fn added(mut sum: Vec<u64>, more: &[u64]) -> Option<Vec<u64>> {
    for (sum, more) in sum.iter_mut().zip(more) {
        *sum = sum.checked_add(*more)?;
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::turns::tests::read;
    use crate::tree::Tree;

    #[test]
    fn zones_of_a_node_are_added_up() {
        let tree = Tree::new("buddyinfo");
        tree.write(
            "proc/buddyinfo",
            "Node 0, zone      DMA      1      0      2\nNode 0, zone   Normal     10     20     30\n\
             Node 2, zone  Movable      0      0      7\n",
        );
        tree.write("sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "2097152\n");
        let (inputs, _) = read(&mut Buddies::default(), &tree).unwrap();
        tree.clear();
        let missing = read(&mut Buddies::default(), &tree).unwrap_err().to_string();
        let blocks: Vec<_> =
            inputs.free_blocks.iter().map(|(node, free)| (node.0, free.by_order.clone())).collect();
        assert_eq!(blocks, [(0, vec![11, 20, 32]), (2, vec![0, 0, 7])]);
        assert!(inputs.free_blocks.values().all(|free| free.huge_bytes == Some(2 << 20)));
        assert!(missing.contains("/proc/buddyinfo"), "{missing}");
    }

    #[test]
    fn a_line_that_is_something_else_takes_its_node_out() {
        const OTHER: &str = "Node 1, zone Normal 4 5 6\n";
        for odd in [
            "Node 0, zone Normal 1 2",
            "Node 0, zone Normal 1 2 -3",
            "Node 0, zone Normal 1 2 99999999999999999999",
            "Node 0, zone Normal 1 2 x",
            "Node 0, zone Normal",
            "Node 0, zone",
            "Node 0,",
            "Node 0, zone Normal 1 2 3\nNode 0, zone Movable 18446744073709551615 0 0",
        ] {
            let nodes = parse(&format!("{OTHER}{odd}\n"));
            assert_eq!(nodes, BTreeMap::from([(NodeId(1), vec![4, 5, 6])]), "{odd}");
        }
        for no_node in ["", "Node -1, zone Normal 1 2 3", "Node 4294967296, zone Normal 1", "Node", "x"] {
            assert_eq!(parse(no_node), BTreeMap::new(), "{no_node}");
        }
    }
}
