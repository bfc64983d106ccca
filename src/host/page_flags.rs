//! How many bits of `page->flags` hold the node of a page?
//!
//! The kernel writes NODES_SHIFT nowhere, but two arrays are as long as it makes them: a zonelist has a reference
//! for each zone of each node and one at its end (`MAX_ZONES_PER_ZONELIST` in include/linux/mmzone.h), a node has so
//! many zones.

use std::ffi::OsStr;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{Array, Struct};

/// `NODES_SHIFT` of the kernel whose type information is below `root`: 0..=10.
///
/// # Errors
/// The type information cannot be read, or the arrays are not what is expected.
pub fn nodes_shift(root: &Path) -> Result<u32> {
    let path = root.join("sys/kernel/btf/vmlinux");
    let btf = Btf::from_path(&path).with_context(|| format!("reading {}", path.display()))?;
    let references = capacity(&btf, "zonelist", "_zonerefs")?;
    let zones = capacity(&btf, "pglist_data", "node_zones")?;
    shift(references, zones)
}

fn capacity(btf: &Btf<'_>, name: &str, field: &str) -> Result<usize> {
    let of =
        btf.type_by_name::<Struct<'_>>(name).with_context(|| format!("the kernel has no struct {name}"))?;
    let member = of.iter().find(|member| member.name == Some(OsStr::new(field)));
    let member = member.with_context(|| format!("struct {name} has no {field}"))?;
    let array =
        btf.type_by_id::<Array<'_>>(member.ty).with_context(|| format!("{name}.{field} is no array"))?;
    Ok(array.capacity())
}

/// From the lengths of the arrays.
fn shift(references: usize, zones: usize) -> Result<u32> {
    let nodes = references.saturating_sub(1).checked_div(zones).unwrap_or(0);
    ensure!(
        nodes.is_power_of_two() && nodes <= 1024 && nodes * zones + 1 == references,
        "a zonelist of {references} references to {zones} zones a node: how many nodes are possible cannot be told"
    );
    Ok(nodes.ilog2())
}

#[cfg(test)]
mod tests {
    use super::*;

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
