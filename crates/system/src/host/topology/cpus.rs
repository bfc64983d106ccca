//! CPUs, with the core, socket and last-level cache that each is a part of.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};

use super::nodes::NodeMap;
use super::{Root, numbered};
use crate::model::topology::{Cpu, Llc, format_cpulist, parse_cpulist, parse_cpumask};
use crate::model::units::{CpuId, NodeId};

const CPU_LIST: &str = "a list of CPUs like 0-7,32-39";

pub(super) struct Cpus {
    pub cpus: Vec<Cpu>,
    pub llcs: Vec<Llc>,
    pub cores: u32,
    pub sockets: u32,
    /// Highest possible id + 1.
    pub possible: u32,
    /// CPUs that are online, although the list of online CPUs leaves them out.
    pub hidden: BTreeSet<u32>,
}

/// The files of one online CPU, before indices are dense.
struct Online {
    id: u32,
    node: Option<NodeId>,
    socket: Option<i32>,
    core_id: Option<i32>,
    /// Lowest CPU of its core.
    core_of: u32,
    cache: Option<Cache>,
}

/// The highest cache level of one CPU that holds data.
struct Cache {
    level: u32,
    /// Lowest CPU that shares it: names the cache among those of its level.
    first_cpu: u32,
    size_bytes: Option<u64>,
}

/// The common property of two CPUs of one last-level-cache domain.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum LlcKey {
    Cache { level: u32, first_cpu: u32 },
    SocketAndNode(Option<i32>, Option<NodeId>),
}

pub(super) fn read(root: &Root, nodes: &NodeMap) -> Result<Cpus> {
    let list = |name: &str| root.required(&format!("sys/devices/system/cpu/{name}"), CPU_LIST, parse_cpulist);
    let mut online_ids: BTreeSet<u32> = list("online")?.into_iter().collect();
    if online_ids.is_empty() {
        bail!(
            "reading {}: expected at least one online CPU",
            root.path("sys/devices/system/cpu/online").display()
        );
    }
    // A CPU may come online between two reads; an online CPU is present.
    let present: BTreeSet<u32> = list("present")?.into_iter().chain(online_ids.iter().copied()).collect();
    // Containers of LXC show a list of their own (lxcfs). All else in the directory is the kernel's.
    let mut hidden = BTreeSet::new();
    for &id in present.difference(&online_ids) {
        if is_online(root, id)? {
            hidden.insert(id);
        }
    }
    online_ids.extend(&hidden);
    let highest = list("possible")?.into_iter().chain(present.iter().copied()).max();

    let online = online_ids.iter().map(|&id| Online::read(root, id, nodes)).collect::<Result<Vec<_>>>()?;
    let (core_index, cores) = partition(&online, |cpu| cpu.core_of);
    let (llc_index, domains) = partition(&online, Online::llc_key);

    let mut cpus: Vec<Cpu> = Vec::with_capacity(present.len());
    for ((cpu, &core), &llc) in online.iter().zip(&core_index).zip(&llc_index) {
        cpus.push(Cpu {
            id: CpuId(cpu.id),
            online: true,
            node: cpu.node,
            socket: cpu.socket,
            core_id: cpu.core_id,
            core: core as u32,
            llc: llc as u32,
            siblings: cores[core].iter().map(|member| CpuId(member.id)).collect(),
        });
    }
    for (extra, &id) in present.difference(&online_ids).enumerate() {
        cpus.push(Cpu {
            id: CpuId(id),
            online: false,
            node: linked_node(root, id)?,
            socket: None,
            core_id: None,
            core: (cores.len() + extra) as u32,
            llc: (domains.len() + extra) as u32,
            siblings: vec![CpuId(id)],
        });
    }
    cpus.sort_by_key(|cpu| cpu.id);

    let llcs = domains
        .iter()
        .map(|members| Llc {
            cpus: members.iter().map(|member| CpuId(member.id)).collect(),
            level: members[0].cache.as_ref().map(|cache| cache.level),
            size_bytes: members[0].cache.as_ref().and_then(|cache| cache.size_bytes),
        })
        .collect();
    let sockets: BTreeSet<i32> = online.iter().filter_map(|cpu| cpu.socket).collect();
    Ok(Cpus {
        cpus,
        llcs,
        cores: cores.len() as u32,
        sockets: sockets.len() as u32,
        possible: highest.map_or(0, |id| id + 1),
        hidden,
    })
}

/// Whether the kernel reports a CPU as online. `cpuN/online` has this; the first CPU may lack it, and then
/// `cpuN/topology` exists only while it is online.
pub(super) fn is_online(root: &Root, id: u32) -> Result<bool> {
    let dir = format!("sys/devices/system/cpu/cpu{id}");
    match root.value(&format!("{dir}/online"), "0 or 1", str::parse::<u32>)? {
        Some(online) => Ok(online == 1),
        None => Ok(!root.entries(&format!("{dir}/topology"))?.is_empty()),
    }
}

/// The CPUs that the list of online CPUs leaves out, in words.
pub(super) fn hidden_from_us(hidden: &BTreeSet<u32>) -> Option<String> {
    (!hidden.is_empty()).then(|| {
        format!(
            "CPUs {} run but are missing from the list of online CPUs (perhaps a container's, from lxcfs): \
             numatop-ng includes them",
            format_cpulist(hidden.iter().copied())
        )
    })
}

/// Groups CPUs by `key`: the group of each CPU, and the members of each group (never empty). Groups are
/// numbered by their lowest CPU. Grouping by a key keeps "is in" and "shares with" consistent even if two
/// files disagree.
fn partition<K: Ord>(online: &[Online], key: impl Fn(&Online) -> K) -> (Vec<usize>, Vec<Vec<&Online>>) {
    let mut index_of = BTreeMap::new();
    let mut groups: Vec<Vec<&Online>> = Vec::new();
    let mut group_of = Vec::with_capacity(online.len());
    for cpu in online {
        let index = *index_of.entry(key(cpu)).or_insert(groups.len());
        if index == groups.len() {
            groups.push(Vec::new());
        }
        groups[index].push(cpu);
        group_of.push(index);
    }
    (group_of, groups)
}

impl Online {
    fn read(root: &Root, id: u32, nodes: &NodeMap) -> Result<Online> {
        let dir = format!("sys/devices/system/cpu/cpu{id}/topology");
        let number = |name: &str| {
            let value = root.value(&format!("{dir}/{name}"), "a number", str::parse::<i32>)?;
            // "-1 is the default value" where the architecture does not know (admin-guide/cputopology.rst).
            anyhow::Ok(value.filter(|&number| number >= 0))
        };
        // core_cpus is the name since 5.3; older kernels call the same set thread_siblings.
        let mut siblings = cpu_set(root, &format!("{dir}/core_cpus_list"), &format!("{dir}/core_cpus"))?;
        if siblings.is_none() {
            siblings =
                cpu_set(root, &format!("{dir}/thread_siblings_list"), &format!("{dir}/thread_siblings"))?;
        }
        Ok(Online {
            id,
            node: match nodes.of_cpu(id) {
                Some(node) => Some(node),
                None => linked_node(root, id)?.filter(|node| nodes.online.contains(node)),
            },
            socket: number("physical_package_id")?,
            core_id: number("core_id")?,
            core_of: lowest(siblings, id),
            cache: last_level_cache(root, id)?,
        })
    }

    fn llc_key(&self) -> LlcKey {
        match &self.cache {
            Some(cache) => LlcKey::Cache { level: cache.level, first_cpu: cache.first_cpu },
            None => LlcKey::SocketAndNode(self.socket, self.node),
        }
    }
}

/// The CPUs in the file `list`, or in the hexadecimal file `mask` on kernels too old for lists; `None`
/// without either.
fn cpu_set(root: &Root, list: &str, mask: &str) -> Result<Option<Vec<u32>>> {
    match root.value(list, CPU_LIST, parse_cpulist)? {
        Some(set) => Ok(Some(set)),
        None => root.value(mask, "a hexadecimal CPU mask like 00000000,0000ff0f", parse_cpumask),
    }
}

/// The lowest CPU of the set that `id` belongs to.
fn lowest(set: Option<Vec<u32>>, id: u32) -> u32 {
    set.and_then(|set| set.first().copied()).map_or(id, |first| first.min(id))
}

/// The highest cache level of type Data or Unified. `None` when sysfs describes no cache of this CPU, as in
/// many virtual machines and on arm64 firmware without a PPTT.
fn last_level_cache(root: &Root, id: u32) -> Result<Option<Cache>> {
    let dir = format!("sys/devices/system/cpu/cpu{id}/cache");
    let mut best: Option<Cache> = None;
    for name in root.entries(&dir)?.iter().filter(|name| numbered(name, "index").is_some()) {
        let index = format!("{dir}/{name}");
        let kind = root.value(&format!("{index}/type"), "Data, Instruction or Unified", cache_type)?;
        if kind != Some(CacheType::HoldsData) {
            continue;
        }
        let Some(level) = root.value(&format!("{index}/level"), "a cache level", str::parse::<u32>)? else {
            continue;
        };
        if best.as_ref().is_some_and(|best| best.level >= level) {
            continue;
        }
        let shared = cpu_set(root, &format!("{index}/shared_cpu_list"), &format!("{index}/shared_cpu_map"))?;
        // Without its sharing CPUs, a cache does not define a domain.
        if shared.is_none() {
            continue;
        }
        let size_bytes = root.value(&format!("{index}/size"), "a size like 8192K", cache_size)?;
        best = Some(Cache { level, first_cpu: lowest(shared, id), size_bytes });
    }
    Ok(best)
}

#[derive(PartialEq)]
enum CacheType {
    HoldsData,
    Instruction,
}

fn cache_type(text: &str) -> Result<CacheType> {
    match text {
        "Data" | "Unified" => Ok(CacheType::HoldsData),
        "Instruction" => Ok(CacheType::Instruction),
        _ => bail!("no such cache type"),
    }
}

/// `size` is printed by the kernel as KiB with a K (drivers/base/cacheinfo.c).
fn cache_size(text: &str) -> Result<u64> {
    let kib: u64 = text.strip_suffix('K').context("the final K is missing")?.parse()?;
    kib.checked_mul(1024).context("larger than 16 EiB")
}

/// The node of the `cpuN/nodeM` link, which an offline CPU keeps.
pub(super) fn linked_node(root: &Root, id: u32) -> Result<Option<NodeId>> {
    let names = root.entries(&format!("sys/devices/system/cpu/cpu{id}"))?;
    Ok(names.iter().find_map(|name| numbered(name, "node")).map(NodeId))
}
