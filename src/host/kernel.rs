//! What this kernel is and has: facts only, no decisions.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Enum;

/// The kernel's own type information.
pub const BTF_PATH: &str = "/sys/kernel/btf/vmlinux";

/// The content of a one-line file, or an empty string.
pub fn read_trimmed(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).map(|text| text.trim().to_string()).unwrap_or_default()
}

/// The name of the CPU from /proc/cpuinfo (x86) or its implementer and part (arm64).
pub fn cpu_model(root: &Path) -> String {
    let text = fs::read_to_string(root.join("proc/cpuinfo")).unwrap_or_default();
    let field = |name: &str| {
        text.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.trim().to_string())
        })
    };
    if let Some(model) = field("model name") {
        return model;
    }
    match (field("CPU implementer"), field("CPU part")) {
        (Some(implementer), Some(part)) => format!("implementer {implementer} part {part}"),
        _ => "unknown".into(),
    }
}

/// The index of a v1 controller in `css_set.subsys[]`: it differs between kernels.
///
/// # Errors
/// No BTF, or a kernel without that controller.
pub fn cgroup_subsys_index(controller: &str) -> Result<u32> {
    let btf = Btf::from_vmlinux().context("reading the kernel's BTF")?;
    let ids: Enum<'_> =
        btf.type_by_name("cgroup_subsys_id").context("the kernel has no cgroup controllers")?;
    let wanted = format!("{controller}_cgrp_id");
    ids.iter()
        .find(|member| member.name.is_some_and(|name| name.to_string_lossy() == wanted))
        .map(|member| member.value as u32)
        .with_context(|| format!("the kernel has no cgroup controller '{controller}'"))
}
