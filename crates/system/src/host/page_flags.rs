//! Bits of `page->flags` that hold the node of a page, and the bit of `gfp_t` that asks for one node only.
//!
//! The kernel exports NODES_SHIFT nowhere, but two array lengths depend on it. A zonelist has a reference for
//! each zone of each node and one at its end (`MAX_ZONES_PER_ZONELIST` in include/linux/mmzone.h), and a node
//! has the array of its zones.

use std::ffi::OsStr;

use anyhow::{Context, Result, ensure};
use libbpf_rs::btf::types::{Array, Enum, Struct};
use libbpf_rs::btf::{Btf, BtfKind, BtfType, TypeId};

use super::types::Types;

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
            "the kernel is built for one node: its pages do not say where they are"
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
        "a zonelist of {references} references to {zones} zones a node: the number of possible nodes is unknown"
    );
    Ok(nodes.ilog2())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

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
