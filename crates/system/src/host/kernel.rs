//! Facts about this kernel. No decisions.

use std::fs;
use std::path::Path;

use serde::Serialize;

use super::btf::BtfFacts;
use super::fact::{self, Fact};
use super::types::Types;
use crate::model::sample::GroupReclaim;
use crate::model::units::NodeId;

/// The pid_max of a machine with 32 CPUs and fewer.
const PID_MAX_DEFAULT: u32 = 32768;

/// Kernel lockdown, see kernel_lockdown(7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Lockdown {
    None,
    /// User space may not change the kernel. Probes are not affected.
    Integrity,
    /// User space may not read the kernel's memory either: no BPF program may.
    Confidentiality,
}

/// Facts that decide which probes this kernel takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KernelFacts {
    /// `uname -r`. To be shown; what the kernel can do is in `btf`.
    pub release: Fact<String>,
    /// As Rust names it: x86_64, aarch64, …
    pub arch: &'static str,
    pub btf: BtfFacts,
    pub lockdown: Fact<Lockdown>,
    /// Sysctls of the same name, see Documentation/admin-guide/sysctl/kernel.rst.
    pub perf_event_paranoid: Fact<i64>,
    pub unprivileged_bpf_disabled: Fact<i64>,
    /// 1: holds one hardware counter of every CPU (x86).
    pub nmi_watchdog: Fact<i64>,
    /// 0: off, 1: on, 2: for memory tiers only.
    pub numa_balancing: Fact<i64>,
}

impl KernelFacts {
    /// Reads `proc` and `sys` below `root`; the kernel's types only where they are not at hand.
    pub fn read(root: &Path, types: Option<&Types>) -> KernelFacts {
        let sysctl = |name: &str| fact::value(root, &format!("proc/sys/kernel/{name}"));
        KernelFacts {
            release: fact::text(root, "proc/sys/kernel/osrelease").into(),
            arch: std::env::consts::ARCH,
            btf: BtfFacts::read(root, types),
            lockdown: lockdown_of(root).into(),
            perf_event_paranoid: sysctl("perf_event_paranoid"),
            unprivileged_bpf_disabled: sysctl("unprivileged_bpf_disabled"),
            nmi_watchdog: sysctl("nmi_watchdog"),
            numa_balancing: numa_balancing(root),
        }
    }
}

/// See [`KernelFacts::numa_balancing`]; below `root`.
pub fn numa_balancing(root: &Path) -> Fact<i64> {
    fact::value(root, "proc/sys/kernel/numa_balancing")
}

/// The kernel's answer, or where its file is not to be seen (securityfs is seldom mounted in containers) what it was
/// booted with. It may have been raised since, so that nothing is known without the parameter.
fn lockdown_of(root: &Path) -> Result<Lockdown, String> {
    let said = fact::text(root, "sys/kernel/security/lockdown").and_then(|text| lockdown(&text));
    said.or_else(|why| {
        let line = fact::text(root, "proc/cmdline").unwrap_or_default();
        match line.split_whitespace().rev().find_map(|word| word.strip_prefix("lockdown=")) {
            Some("confidentiality") => Ok(Lockdown::Confidentiality),
            _ => Err(why),
        }
    })
}

/// The file lists all levels and marks the one in force: `none [integrity] confidentiality`.
fn lockdown(text: &str) -> Result<Lockdown, String> {
    match text.split_whitespace().find(|word| word.starts_with('[')) {
        Some("[none]") => Ok(Lockdown::None),
        Some("[integrity]") => Ok(Lockdown::Integrity),
        Some("[confidentiality]") => Ok(Lockdown::Confidentiality),
        _ => Err(format!("/sys/kernel/security/lockdown: cannot parse {text:?}")),
    }
}

/// The content of a one-line file, or an empty string.
pub fn read_trimmed(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).map(|text| text.trim().to_string()).unwrap_or_default()
}

/// Functions are not traced (kernel.ftrace_enabled is 0). A trampoline can still be attached but is never
/// called. Neither is a breakpoint at the entry of a function on x86, which uses ftrace. Observed on Linux
/// 6.12.
pub fn ftrace_is_off() -> bool {
    read_trimmed("/proc/sys/kernel/ftrace_enabled") == "0"
}

/// Whether all swap is in compressed memory (zram), where nothing is written to a disk; `None` where /proc/swaps cannot be read.
pub fn swap_on_zram(root: &Path) -> Option<bool> {
    let text = fs::read_to_string(root.join("proc/swaps")).ok()?;
    // Below a line of titles.
    let areas: Vec<&str> = text.lines().skip(1).collect();
    Some(!areas.is_empty() && areas.iter().all(|area| area.starts_with("/dev/zram")))
}

/// Whether a node has a file `reclaim`, by which its memory can be reclaimed (Linux 6.17), below `root`; `None` where sysfs
/// does not show the node.
pub fn node_reclaim_file(root: &Path, node: NodeId) -> Option<bool> {
    let folder = root.join(format!("sys/devices/system/node/node{node}"));
    folder.exists().then(|| folder.join("reclaim").exists())
}

/// Input that `memory.reclaim` of a cgroup takes, from the types of the kernel. Commit 68cd9050d871 gave it `swappiness=`.
pub fn group_reclaim(types: &Types) -> GroupReclaim {
    if types.of_function("memory_reclaim").is_none() {
        return GroupReclaim::Absent;
    }
    match types.has_parameter("try_to_free_mem_cgroup_pages", "swappiness") {
        Some(true) => GroupReclaim::Swappiness,
        _ => GroupReclaim::Amount,
    }
}

/// Above every thread id until an administrator raises it; see pid_max in proc(5).
pub fn pid_max() -> u32 {
    read_trimmed("/proc/sys/kernel/pid_max").parse().unwrap_or(PID_MAX_DEFAULT)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_in_brackets_is_in_force() {
        assert_eq!(lockdown("none [integrity] confidentiality"), Ok(Lockdown::Integrity));
        assert_eq!(lockdown("[none] integrity confidentiality"), Ok(Lockdown::None));
        assert!(lockdown("none integrity").unwrap_err().contains("cannot parse"));
    }

    #[test]
    fn a_parameter_tells_what_the_file_would() {
        let root = std::env::temp_dir().join(format!("numatop-ng-lockdown-{}", std::process::id()));
        std::fs::create_dir_all(root.join("proc")).unwrap();
        let booted = |line: &str| {
            std::fs::write(root.join("proc/cmdline"), line).unwrap();
            lockdown_of(&root)
        };
        assert_eq!(booted("ro lockdown=confidentiality quiet"), Ok(Lockdown::Confidentiality));
        assert!(booted("ro quiet").unwrap_err().contains("lockdown"));
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn swap_is_compressed_where_no_area_is_on_a_disk() {
        let tree = crate::tree::Tree::new("swaps");
        assert_eq!(swap_on_zram(tree.root()), None);
        let titles = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n";
        let zram = "/dev/zram0                              partition\t4194300\t\t0\t\t100\n";
        let disk = "/dev/nvme0n1                            partition\t4194300\t\t0\t\t-2\n";
        for (areas, all) in [("", false), (zram, true), (&[zram, disk].concat(), false)] {
            tree.write("proc/swaps", &format!("{titles}{areas}"));
            assert_eq!(swap_on_zram(tree.root()), Some(all), "{areas}");
        }
    }

    #[test]
    fn a_node_that_is_not_shown_may_have_any_file() {
        let root = std::env::temp_dir().join(format!("numatop-ng-reclaim-{}", std::process::id()));
        let folder = root.join("sys/devices/system/node/node1");
        std::fs::create_dir_all(&folder).unwrap();
        assert_eq!(node_reclaim_file(&root, NodeId(1)), Some(false));
        std::fs::write(folder.join("reclaim"), "").unwrap();
        assert_eq!([1, 0].map(|node| node_reclaim_file(&root, NodeId(node))), [Some(true), None]);
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_kernel_that_shows_nothing_is_all_unknown() {
        let facts = KernelFacts::read(Path::new("/nonexistent"), None);
        assert!(facts.release.known().is_none() && facts.lockdown.known().is_none());
        assert!(matches!(facts.btf, BtfFacts::Absent(_)));
    }
}
