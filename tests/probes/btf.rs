//! Kernel structures that `bpf/core_compat.bpf.h` looks into, beside those of this kernel.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result, ensure};
use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{Composite, Struct};

#[path = "../common/core_compat.rs"]
mod core_compat;

/// Structures that only some kernels have, in a flavour of their own.
fn is_flavour(name: &str) -> bool {
    name.contains("___")
}

/// Fields that a kernel may be built without; the programs ask before they read them.
const OPTIONAL: [&str; 8] = [
    "numa_preferred_nid",
    "numa_scan_period",
    "numa_faults_locality",
    "numa_pages_migrated",
    "numa_group",
    "numa_scan_seq",
    "mempolicy",
    "mems_allowed",
];

/// The field names of a struct or union, those of its unnamed members included.
fn members(btf: &Btf<'_>, composite: &Composite<'_>, names: &mut BTreeSet<String>) {
    for member in composite.iter() {
        match member.name {
            Some(name) => {
                names.insert(name.to_string_lossy().into_owned());
            }
            None => {
                if let Some(inner) = btf.type_by_id::<Composite<'_>>(member.ty) {
                    members(btf, &inner, names);
                }
            }
        }
    }
}

pub fn every_relocated_field_is_in_this_kernel() -> Result<()> {
    let header = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/bpf/core_compat.bpf.h"))?;
    let ours = core_compat::parse(&header);
    ensure!(ours.len() > 10, "only {} structures found in core_compat.bpf.h", ours.len());
    let kernel = Btf::from_vmlinux().context("reading the kernel's BTF")?;
    for (name, fields) in ours.iter().filter(|(name, _)| !is_flavour(name)) {
        let Some(known) = kernel.type_by_name::<Struct<'_>>(name) else {
            // rss_stat of 6.1 is a struct that later kernels lack.
            ensure!(name == "mm_rss_stat", "the kernel has no struct {name}");
            continue;
        };
        let composite: Composite<'_> =
            kernel.type_by_id(known.type_id()).context("a struct is a composite")?;
        let mut names = BTreeSet::new();
        members(&kernel, &composite, &mut names);
        for field in fields {
            ensure!(
                names.contains(field) || OPTIONAL.contains(&field.as_str()),
                "struct {name} has no field {field}"
            );
        }
    }
    Ok(())
}
