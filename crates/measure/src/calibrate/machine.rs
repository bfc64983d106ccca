//! Facts of this machine that decide the measurements, and that match a profile to it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::known::idle::{self, Usage};
use crate::model::profile::{CacheKey, MachineKey, NodeKey};
use crate::model::topology::{Topology, format_cpulist, parse_cpulist};
use crate::model::units::CpuId;
use crate::pmu::facts::CpuKind;

/// All facts.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Nodes, CPUs and caches.
    pub topology: Topology,
    /// The facts that a profile is compared by.
    pub key: MachineKey,
    /// Bytes of L2 and larger caches of the CPUs of each node.
    pub cache_bytes: BTreeMap<u32, u64>,
    /// CPUs that this process may run on.
    pub cpus: BTreeSet<u32>,
    /// Nodes whose memory it may use; `None` where the kernel does not say.
    pub nodes: Option<BTreeSet<u32>>,
    /// Free memory and watermarks.
    pub usage: Usage,
    /// Interrupts of each CPU since boot.
    pub interrupts: BTreeMap<u32, u64>,
    /// Bytes that the own cgroup may still use; `None` without a limit.
    pub cgroup_bytes: Option<u64>,
    /// Bytes of a page.
    pub page_bytes: u64,
}

impl Facts {
    /// Reads `sys/` and `proc/` below `root`.
    ///
    /// # Errors
    /// The topology cannot be read.
    pub fn read(root: &Path) -> Result<Facts> {
        let topology = crate::host::topology::read(root)?;
        let status = fs::read_to_string(root.join("proc/self/status")).unwrap_or_default();
        let online: BTreeSet<u32> = topology.online_cpus().map(|cpu| cpu.id.0).collect();
        let allowed = list_of(&status, "Cpus_allowed_list:").unwrap_or_else(|| online.clone());
        let caches = caches(root, &online);
        let interrupts = fs::read_to_string(root.join("proc/interrupts")).unwrap_or_default();
        Ok(Facts {
            key: key(root, &topology),
            cache_bytes: by_node(&topology, &caches),
            cpus: allowed.intersection(&online).copied().collect(),
            nodes: list_of(&status, "Mems_allowed_list:"),
            usage: Usage::read(root, &[]),
            interrupts: interrupts_by_cpu(&interrupts),
            cgroup_bytes: idle::cgroup_room(root),
            page_bytes: rustix::param::page_size() as u64,
            topology,
        })
    }
}

/// The facts of the machine below `root` that a profile is compared by.
pub fn key(root: &Path, topology: &Topology) -> MachineKey {
    let first = topology.online_cpus().next().map_or(CpuId(0), |cpu| cpu.id);
    let cpu = match CpuKind::read(root, first) {
        Ok(CpuKind::X86 { vendor, family, model, stepping }) => {
            format!("{vendor} {family}/{model}/{stepping}")
        }
        Ok(CpuKind::Arm { implementer, part }) => format!("Arm {implementer:#x}/{part:#x}"),
        Err(_) => String::new(),
    };
    let lines = root.join(format!("sys/devices/system/cpu/cpu{first}/cache/index0/coherency_line_size"));
    let line_bytes = fs::read_to_string(lines).ok().and_then(|text| text.trim().parse().ok());
    MachineKey {
        cpu,
        hypervisor: hypervisor(&fs::read_to_string(root.join("proc/cpuinfo")).unwrap_or_default()),
        cores: topology.cores,
        threads: topology.online_cpus().map(|cpu| cpu.siblings.len() as u32).max().unwrap_or(1),
        line_bytes: line_bytes
            .filter(|bytes: &u32| bytes.is_power_of_two() && (16..=1024).contains(bytes))
            .unwrap_or(64),
        nodes: topology
            .nodes
            .iter()
            .map(|node| NodeKey {
                node: node.id.0,
                cpus: format_cpulist(node.cpus.iter().map(|cpu| cpu.0)),
                slit: node.distances.iter().map(|(_, distance)| *distance).collect(),
            })
            .collect(),
        caches: topology
            .llcs
            .iter()
            .map(|llc| CacheKey {
                level: llc.level,
                bytes: llc.size_bytes,
                cpus: format_cpulist(llc.cpus.iter().map(|cpu| cpu.0)),
            })
            .collect(),
    }
}

/// Whether CPUID reports a hypervisor; `None` on architectures without such a bit.
fn hypervisor(cpuinfo: &str) -> Option<bool> {
    let flags =
        cpuinfo.lines().find_map(|line| line.strip_prefix("flags")?.trim_start().strip_prefix(':'))?;
    Some(flags.split_whitespace().any(|flag| flag == "hypervisor"))
}

/// Facts of the machine below `root` that counts of events depend on, where the kernel reports them: the
/// version of the microcode, and the setting of transparent huge pages.
pub fn count_facts(root: &Path) -> (Option<String>, Option<String>) {
    let text = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    let cpuinfo = text("proc/cpuinfo");
    let microcode =
        cpuinfo.lines().find_map(|line| line.strip_prefix("microcode")?.trim_start().strip_prefix(':'));
    let huge = text("sys/kernel/mm/transparent_hugepage/enabled");
    (microcode.map(|text| text.trim().to_string()), huge.split(['[', ']']).nth(1).map(str::to_string))
}

fn list_of(status: &str, name: &str) -> Option<BTreeSet<u32>> {
    let list = status.lines().find_map(|line| line.strip_prefix(name))?;
    parse_cpulist(list.trim()).ok().map(|ids| ids.into_iter().collect())
}

/// Caches of level 2 and up that hold data: level and first CPU to bytes.
fn caches(root: &Path, online: &BTreeSet<u32>) -> BTreeMap<(u32, u32), u64> {
    let mut found = BTreeMap::new();
    for cpu in online {
        let folder = root.join(format!("sys/devices/system/cpu/cpu{cpu}/cache"));
        for index in 0..8 {
            let text = |name: &str| fs::read_to_string(folder.join(format!("index{index}/{name}"))).ok();
            let Some(kind) = text("type") else { break };
            let level = text("level").and_then(|level| level.trim().parse::<u32>().ok());
            let shared = text("shared_cpu_list").and_then(|list| parse_cpulist(list.trim()).ok());
            let kib = text("size").and_then(|size| size.trim().strip_suffix('K')?.parse::<u64>().ok());
            let (Some(level @ 2..), Some(shared), Some(kib)) = (level, shared, kib) else { continue };
            if kind.trim() != "Instruction" {
                found.insert((level, shared.first().copied().unwrap_or(*cpu)), kib * 1024);
            }
        }
    }
    found
}

/// A cache counts for the node of its first CPU.
fn by_node(topology: &Topology, caches: &BTreeMap<(u32, u32), u64>) -> BTreeMap<u32, u64> {
    let mut bytes = BTreeMap::new();
    for ((_, first), size) in caches {
        if let Some(node) = topology.cpu(CpuId(*first)).and_then(|cpu| cpu.node) {
            *bytes.entry(node.0).or_insert(0) += size;
        }
    }
    bytes
}

/// Sums of the columns of /proc/interrupts, whose first line names the CPUs.
fn interrupts_by_cpu(text: &str) -> BTreeMap<u32, u64> {
    let mut lines = text.lines();
    let cpus: Vec<u32> = lines
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|name| name.strip_prefix("CPU")?.parse().ok())
        .collect();
    let mut sums: BTreeMap<u32, u64> = cpus.iter().map(|cpu| (*cpu, 0)).collect();
    for line in lines {
        let counts = line.split_whitespace().skip(1).map_while(|word| word.parse::<u64>().ok());
        for (cpu, count) in cpus.iter().zip(counts) {
            *sums.entry(*cpu).or_insert(0) += count;
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hypervisor_is_a_flag_of_x86() {
        assert_eq!(hypervisor("processor: 0\nflags\t\t: fpu hypervisor lm\n"), Some(true));
        assert_eq!(hypervisor("flags\t: fpu lm\n"), Some(false));
        assert_eq!(hypervisor("Features\t: fp asimd\n"), None);
    }

    #[test]
    fn counts_depend_on_microcode_and_huge_pages() {
        let root = std::env::temp_dir().join(format!("numatop-counts-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            fs::write(root.join(path), text).unwrap();
        };
        assert_eq!(count_facts(&root), (None, None));
        write("proc/cpuinfo", "processor\t: 0\nmicrocode\t: 0x2b\n");
        write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
        assert_eq!(count_facts(&root), (Some("0x2b".into()), Some("madvise".into())));
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn interrupts_are_columns() {
        let text =
            "           CPU0       CPU2\n  0:  5  7  IO-APIC 2-edge timer\nLOC:  1  2 Local\nERR:  9\n";
        // ERR has one number for all, which counts for the first.
        assert_eq!(interrupts_by_cpu(text), [(0, 15), (2, 9)].into());
    }

    #[test]
    fn hosts_have_keys() {
        let root = crate::fixture::tree("hosts/intel-e5-2682v4");
        let topology = crate::host::topology::read(&root).unwrap();
        let key = key(&root, &topology);
        assert_eq!((key.nodes.len(), key.cores, key.threads), (2, 32, 2));
        assert_eq!(key.nodes[1].slit.len(), 2);
        assert!(key.caches.iter().all(|cache| cache.level == Some(3)));
    }

    #[test]
    fn this_machine_has_facts() {
        let facts = Facts::read(Path::new("/")).unwrap();
        assert!(!facts.cpus.is_empty() && facts.key.line_bytes >= 16);
        assert_eq!(facts.key.difference(&facts.key.clone()), None);
    }
}
