//! The node of a page. For a physical address: memory blocks of nodes (Documentation/ABI/stable/sysfs-devices-node), or the spans of
//! zones (/proc/zoneinfo) on kernels without memory hotplug. For a `struct page`: bits of `page->flags`; and the bit of
//! `gfp_t` that asks for one node only.
//!
//! The kernel exports NODES_SHIFT nowhere, but two array lengths depend on it. A zonelist has a reference for
//! each zone of each node and one at its end (`MAX_ZONES_PER_ZONELIST` in include/linux/mmzone.h), and a node
//! has the array of its zones.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use libbpf_rs::btf::types::{Array, Enum, Struct};
use libbpf_rs::btf::{Btf, BtfKind, BtfType, TypeId};

use super::fact;
use super::types::Types;
use crate::model::units::NodeId;

/// Physical memory of the machine, by its nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemoryBlocks {
    /// First address of a stretch → the address behind it, and its node. Stretches do not overlap where blocks are known.
    stretches: BTreeMap<u64, (u64, NodeId)>,
}

impl MemoryBlocks {
    /// Reads `sys/` and `proc/` below `root`; empty if neither has blocks. Read once: memory added later has
    /// no known node. Pages have `page_size` bytes.
    pub fn read(root: &Path, page_size: u64) -> MemoryBlocks {
        let found = blocks(root).filter(|found| !found.stretches.is_empty());
        found.unwrap_or_else(|| {
            fact::text(root, "proc/zoneinfo").map(|text| zones(&text, page_size)).unwrap_or_default()
        })
    }

    /// The node whose memory is at this physical address; `None` where none is known.
    pub fn node(&self, physical: u64) -> Option<NodeId> {
        let (_, (end, node)) = self.stretches.range(..=physical).next_back()?;
        (physical < *end).then_some(*node)
    }

    /// Neighbours of one node become one stretch: a terabyte has thousands of blocks.
    fn of(mut stretches: Vec<(u64, u64, NodeId)>) -> MemoryBlocks {
        stretches.sort_unstable();
        let mut joined: Vec<(u64, u64, NodeId)> = Vec::new();
        for (from, to, node) in stretches {
            match joined.last_mut() {
                Some(last) if last.1 == from && last.2 == node => last.1 = to,
                _ => joined.push((from, to, node)),
            }
        }
        MemoryBlocks { stretches: joined.into_iter().map(|(from, to, node)| (from, (to, node))).collect() }
    }
}

fn blocks(root: &Path) -> Option<MemoryBlocks> {
    let bytes = fact::text(root, "sys/devices/system/memory/block_size_bytes").ok()?;
    let bytes = u64::from_str_radix(bytes.trim(), 16).ok().filter(|bytes| *bytes > 0)?;
    let mut stretches = Vec::new();
    for entry in fs::read_dir(root.join("sys/devices/system/node")).ok()?.flatten() {
        let Some(node) = numbered(&entry.file_name().to_string_lossy(), "node") else { continue };
        let node = NodeId(u32::try_from(node).ok()?);
        for block in fs::read_dir(entry.path()).ok()?.flatten() {
            let number = numbered(&block.file_name().to_string_lossy(), "memory");
            let from = number.and_then(|number| number.checked_mul(bytes));
            if let Some((from, to)) = from.and_then(|from| Some((from, from.checked_add(bytes)?))) {
                stretches.push((from, to, node));
            }
        }
    }
    Some(MemoryBlocks::of(stretches))
}

fn numbered(name: &str, kind: &str) -> Option<u64> {
    name.strip_prefix(kind)?.parse().ok()
}

/// Spans of zones: `Node 0, zone   Normal`, below it `spanned` and `start_pfn` in pages.
fn zones(text: &str, page_size: u64) -> MemoryBlocks {
    let mut stretches = Vec::new();
    let (mut node, mut spanned) = (None, 0);
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("Node ") {
            (node, spanned) = (rest.split(',').next().and_then(|id| id.trim().parse().ok()).map(NodeId), 0);
            continue;
        }
        let line = line.trim();
        if let Some(pages) = line.strip_prefix("spanned ").and_then(|pages| pages.trim().parse().ok()) {
            spanned = pages;
        }
        let start = line.strip_prefix("start_pfn:").and_then(|pages| pages.trim().parse::<u64>().ok());
        if let (Some(start), Some(node)) = (start, node)
            && let Some(from) = start.checked_mul(page_size)
            && let Some(to) = start.checked_add(spanned).and_then(|end| end.checked_mul(page_size))
            && from < to
        {
            stretches.push((from, to, node));
        }
    }
    MemoryBlocks::of(stretches)
}

/// `___GFP_THISNODE` as a macro, which type information does not have (include/linux/gfp_types.h, 5.2 to 6.9).
const THIS_NODE_BIT: u32 = 21;

/// Facts of this kernel that the page probe must know beforehand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageFacts {
    /// `NODES_SHIFT`, 0..=10: the number of bits at the top of `page->flags` that hold the node.
    pub nodes_shift: u32,
    /// `__GFP_THISNODE`.
    pub gfp_this_node: u32,
}

impl PageFacts {
    /// Looks them up in the type information of a kernel.
    ///
    /// # Errors
    /// The arrays are not as expected.
    pub fn of(Types(btf): &Types) -> Result<PageFacts> {
        let references = capacity(btf, "zonelist", "_zonerefs")?;
        let zones = capacity(btf, "pglist_data", "node_zones")?;
        let bit = gfp_bit(btf, "___GFP_THISNODE_BIT").unwrap_or(THIS_NODE_BIT);
        Ok(PageFacts { nodes_shift: shift(references, zones)?, gfp_this_node: 1 << bit })
    }

    /// The lowest bit of the node in `page->flags` (include/linux/page-flags-layout.h, SPARSEMEM_VMEMMAP: the node is at
    /// the top).
    ///
    /// # Errors
    /// The kernel is built for one node.
    pub fn node_shift(&self) -> Result<u32> {
        ensure!(
            self.nodes_shift > 0,
            "the kernel is built for one node: its page structures contain no node"
        );
        Ok(u64::BITS - self.nodes_shift)
    }
}

/// A bit of `gfp_t`: since 6.10 they are an enum, which has no name, so that all such enums are looked at.
fn gfp_bit(btf: &Btf<'_>, name: &str) -> Option<u32> {
    (1..btf.len() as u32).find_map(|id| {
        let ty = btf.type_by_id::<BtfType<'_>>(TypeId::from(id))?;
        if ty.kind() != BtfKind::Enum || ty.name().is_some_and(|name| !name.is_empty()) {
            return None;
        }
        let bits = Enum::try_from(ty).ok()?;
        let bit = bits.iter().find(|member| member.name == Some(OsStr::new(name)))?;
        u32::try_from(bit.value).ok().filter(|bit| *bit < u32::BITS)
    })
}

fn capacity(btf: &Btf<'_>, name: &str, field: &str) -> Result<usize> {
    let of =
        btf.type_by_name::<Struct<'_>>(name).with_context(|| format!("the kernel has no struct {name}"))?;
    let member = of.iter().find(|member| member.name == Some(OsStr::new(field)));
    let member = member.with_context(|| format!("struct {name} has no {field}"))?;
    let array =
        btf.type_by_id::<Array<'_>>(member.ty).with_context(|| format!("{name}.{field} is not an array"))?;
    Ok(array.capacity())
}

/// From the lengths of the arrays.
fn shift(references: usize, zones: usize) -> Result<u32> {
    let nodes = references.saturating_sub(1).checked_div(zones).unwrap_or(0);
    ensure!(
        nodes.is_power_of_two() && nodes <= 1024 && nodes * zones + 1 == references,
        "a zonelist has {references} references, with {zones} zones per node: the number of possible nodes is unknown"
    );
    Ok(nodes.ilog2())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Two nodes with a hole between them, as sysfs and as /proc/zoneinfo have it.
    const ZONES: &str = "Node 0, zone      DMA\n  pages free     3\n        spanned  4095\n  start_pfn:           1\n\
        Node 0, zone   Normal\n        spanned  28672\n  start_pfn:           4096\n\
        Node 0, zone  Movable\n        spanned  0\n  start_pfn:           0\n\
        Node 1, zone   Normal\n        spanned  32768\n  start_pfn:           65536\n";

    fn check(found: &MemoryBlocks) {
        const MIB: u64 = 1 << 20;
        for (address, node) in [(MIB, Some(0)), (127 * MIB, Some(0)), (128 * MIB, None), (255 * MIB, None)] {
            assert_eq!(found.node(address), node.map(NodeId), "{address:#x}");
        }
        assert_eq!(found.node(256 * MIB), Some(NodeId(1)));
        assert_eq!(found.node(384 * MIB - 1), Some(NodeId(1)));
        assert_eq!((found.node(384 * MIB), found.node(u64::MAX)), (None, None));
    }

    #[test]
    fn addresses_are_on_the_node_of_their_block() {
        let root = std::env::temp_dir().join(format!("numatop-blocks-{}", std::process::id()));
        for (node, block) in [(0, 0), (1, 2)] {
            fs::create_dir_all(root.join(format!("sys/devices/system/node/node{node}/memory{block}")))
                .unwrap();
        }
        fs::create_dir_all(root.join("sys/devices/system/memory")).unwrap();
        fs::write(root.join("sys/devices/system/memory/block_size_bytes"), "8000000\n").unwrap();
        let found = MemoryBlocks::read(&root, 4096);
        fs::remove_dir_all(&root).unwrap();
        check(&found);
        assert_eq!(found.stretches.len(), 2);
    }

    #[test]
    fn without_blocks_zones_say_it() {
        check(&zones(ZONES, 4096));
        assert_eq!(zones("", 4096), MemoryBlocks::default());
        assert_eq!(
            zones("Node 0, zone x\n spanned 18446744073709551615\n start_pfn: 9\n", 4096),
            MemoryBlocks::default()
        );
    }

    #[test]
    fn this_kernel_says_what_the_page_probe_must_know() {
        let root = Path::new("/");
        if !root.join("sys/kernel/btf/vmlinux").exists() {
            eprintln!("skipped: this kernel shows no type information");
            return;
        }
        let facts = PageFacts::of(&Types::read(root).unwrap()).unwrap();
        assert!(facts.nodes_shift <= 10 && facts.gfp_this_node.is_power_of_two(), "{facts:?}");
    }

    /// Lengths as in Debian's kernels; the shift is their CONFIG_NODES_SHIFT.
    #[test]
    fn the_shift_of_known_kernels() {
        for (references, zones, bits) in [(5121, 5, 10), (65, 4, 4), (81, 5, 4), (5, 4, 0)] {
            assert_eq!(shift(references, zones).unwrap(), bits, "{references} {zones}");
        }
        for (references, zones) in [(0, 0), (100, 5), (5122, 5)] {
            assert!(shift(references, zones).is_err(), "{references} {zones}");
        }
    }
}
