//! The places of a machine: nodes, CPUs, cores, last-level caches, distances and devices; and properties that make its NUMA
//! numbers misleading, with advice for its owner.

mod cpulist;
mod places;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::units::{CpuId, NodeId};

pub use self::cpulist::{CpuListError, MAX_ID, format_cpulist, parse_cpulist, parse_cpumask};
pub use self::places::{Division, Place, TABLE_MAX as PLACES_MAX, TooManyPlaces};

/// The machine. Recordings embed it, so a field may be added but not change its meaning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// Online nodes, ascending by id, including those with memory only (CXL, persistent memory) or CPUs only.
    /// Never empty: without NUMA in the kernel, node 0 has all CPUs and all memory.
    pub nodes: Vec<Node>,
    /// Present CPUs, online or not, ascending by id.
    pub cpus: Vec<Cpu>,
    /// Last-level-cache domains of online CPUs; [`Cpu::llc`] is the index here.
    pub llcs: Vec<Llc>,
    /// Physical cores with at least one online CPU; [`Cpu::core`] of an online CPU is below this.
    pub cores: u32,
    /// Distinct `physical_package_id` of online CPUs; 0 when sysfs names none (some arm64 and virtual
    /// machines).
    pub sockets: u32,
    /// Highest possible CPU id + 1 (`cpu/possible`): the length of a table over CPU ids.
    pub possible_cpus: u32,
    /// Highest possible node id + 1 (`node/possible`): the length of a table over node ids.
    pub possible_nodes: u32,
    /// Nodes in `node/possible` but not in `node/online`. The kernel makes no `nodeN` directory for them,
    /// so nothing else is known: they may be hot-pluggable memory, or only room that the firmware reserved.
    pub offline_nodes: Vec<NodeId>,
    /// Whether the kernel looks for nodes at all.
    pub numa: NumaSupport,
    /// Devices on no online node: the firmware did not say (`numa_node` is -1), or it named a node that is
    /// not online.
    pub unplaced_devices: Vec<Device>,
    /// The measurement that [`Node::measured`] is from; `None` without one, and in recordings from before it was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Calibration>,
    /// Lists of the kernel that contradict each other, in words, with the choice made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contradictions: Vec<String>,
    /// Sets of CPUs by which time of tasks is kept, by number; empty where they are the nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<Place>,
}

/// The measurement of a machine by `calibrate`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calibration {
    /// Its end, RFC 3339; from a file, and not clean.
    pub time: String,
    /// CPUs of this virtual machine move: its times say nothing, and their ratios do.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only_ratios: bool,
    /// The reason why no node has its costs despite a measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unused: Option<String>,
    /// Work of both threads of a core together, in the loads with the least and the most gain, in thousandths
    /// of the work of one. 1000 is no gain. `None` if it was not measured, or may not be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smt_work: Option<(u32, u32)>,
}

impl Calibration {
    /// The day of the measurement, `2026-11-22`.
    pub fn day(&self) -> &str {
        self.time.split('T').next().unwrap_or_default()
    }
}

/// Whether the kernel can show more than one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NumaSupport {
    /// Built in and not switched off: the nodes are what the firmware describes.
    On,
    /// `numa=off` on the kernel command line: one node whatever the firmware describes.
    SwitchedOff,
    /// No `/sys/devices/system/node`: a kernel without CONFIG_NUMA.
    NotBuilt,
}

/// The measured cost of a node's memory on CPUs of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// The node of the memory.
    pub node: NodeId,
    /// A load that waits for it, picoseconds; above 0.
    pub latency_ps: Option<u64>,
    /// Reads by all cores, bytes a second.
    pub read_bytes_per_s: Option<u64>,
    /// Half the range of the middle rounds of latency, picoseconds; `None` where there was one round, and in recordings from
    /// before it was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_error_ps: Option<u64>,
    /// The same of reads, bytes a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_error_bytes_per_s: Option<u64>,
}

/// One online node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Node id.
    pub id: NodeId,
    /// Its online CPUs, ascending; empty on a memory-only node and where all its CPUs are offline.
    pub cpus: Vec<CpuId>,
    /// Distance to each online node including itself, ascending by node: the row of the ACPI SLIT or its
    /// device-tree twin. 10 is local, 20 is "twice as far" according to the firmware, 255 unreachable. Not a
    /// measurement.
    pub distances: Vec<(NodeId, u32)>,
    /// The costs of memory of each node on its CPUs, ascending by node, as measured by `calibrate`. Empty if
    /// no profile of the machine applies, and in older recordings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub measured: Vec<Cost>,
    /// Bytes of memory the kernel manages on it (`MemTotal`); 0 on a node with CPUs only.
    pub mem_total_bytes: u64,
    /// Bytes unused at the time of reading (`MemFree`); page cache counts as used.
    pub mem_free_bytes: u64,
    /// Network cards, NVMe disks, storage controllers, GPUs and accelerators attached to it.
    pub devices: Vec<Device>,
}

/// One present CPU (a hardware thread).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    /// CPU id.
    pub id: CpuId,
    /// False for a CPU that is present and switched off.
    pub online: bool,
    /// Its node; of an online CPU always one of [`Topology::nodes`]. For an offline CPU the one it last
    /// belonged to, by the `cpuN/nodeM` link that stays in sysfs. `None` only where sysfs does not say.
    pub node: Option<NodeId>,
    /// `physical_package_id`: any number the firmware chose, not always 0, 1, …; `None` when offline or
    /// unknown (-1).
    pub socket: Option<i32>,
    /// `core_id` as the firmware numbers cores: sparse (0, 1, 9, 10) and unique only within a socket or
    /// die. To tell cores apart use [`Cpu::core`].
    pub core_id: Option<i32>,
    /// Dense index of the physical core, in the order of each core's lowest CPU. An offline CPU has no
    /// topology files; it counts as a separate core, with an index after those of the online CPUs.
    pub core: u32,
    /// Dense index of the last-level-cache domain, in the order of each domain's lowest CPU: the index into
    /// [`Topology::llcs`]. An offline CPU counts as a separate domain, after those of the online CPUs.
    pub llc: u32,
    /// Online CPUs of the same physical core including itself, ascending. Only itself without SMT or when
    /// offline.
    pub siblings: Vec<CpuId>,
}

/// Online CPUs that share a last-level cache: the highest cache level that holds data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Llc {
    /// Its online CPUs, ascending. They may be part of a node (AMD and Hygon core complexes) or span
    /// several (FT-2500).
    pub cpus: Vec<CpuId>,
    /// Cache level, 1..; `None` when sysfs describes no cache and the domain is assumed to be socket ∩
    /// node.
    pub level: Option<u32>,
    /// Size in bytes of this cache, where sysfs has it.
    pub size_bytes: Option<u64>,
}

/// A device whose distance to the CPU matters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// As the user knows it: `eth0`, `nvme0`; the PCI address where nothing better exists.
    pub name: String,
    /// The kind of device.
    pub class: DeviceClass,
    /// `domain:bus:device.function` of the nearest PCI function; `None` for a device on another bus.
    pub pci: Option<String>,
    /// `numa_node` as the kernel shows it; `None` for -1 (the firmware did not say).
    pub node: Option<NodeId>,
    /// Nodes of the CPUs that handle its interrupts, ascending; empty if it has none itself (MSI) or they are
    /// unknown.
    #[serde(default)]
    pub irq_nodes: Vec<NodeId>,
}

/// The kind of a device, from /sys/class or the PCI class code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceClass {
    /// Network cards.
    Net,
    /// NVMe disks.
    Nvme,
    /// SCSI, RAID and SAS controllers and virtio disks (PCI 0100xx, 0104xx, 0107xx, 0180xx).
    Storage,
    /// Display and 3D controllers (PCI 03xxxx).
    Gpu,
    /// Processing accelerators (PCI 12xxxx).
    Accelerator,
}

impl Topology {
    /// The reason why CPUs cannot be grouped by last-level cache; `None` where they can.
    pub fn no_llcs(&self) -> Option<&'static str> {
        if self.llcs.is_empty() || self.llcs.iter().any(|llc| llc.level.is_none()) {
            return Some("the kernel shows no caches of the CPUs");
        }
        (self.llcs.len() < 2).then_some("the machine has one last-level cache")
    }

    /// The present CPU of this id.
    pub fn cpu(&self, id: CpuId) -> Option<&Cpu> {
        self.cpus.binary_search_by_key(&id, |cpu| cpu.id).ok().map(|index| &self.cpus[index])
    }

    /// All devices: those of nodes, then those whose node is not known.
    pub fn devices(&self) -> impl Iterator<Item = &Device> {
        self.nodes.iter().flat_map(|node| &node.devices).chain(&self.unplaced_devices)
    }

    /// The online node of this id.
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.binary_search_by_key(&id, |node| node.id).ok().map(|index| &self.nodes[index])
    }

    /// Devices whose node is known, by node.
    pub fn placed_devices(&self) -> impl Iterator<Item = &Device> {
        self.nodes.iter().flat_map(|node| &node.devices)
    }

    /// The SLIT distance; `None` unless both nodes are online. It need not be the same in both directions.
    pub fn distance(&self, from: NodeId, to: NodeId) -> Option<u32> {
        let row = &self.node(from)?.distances;
        row.binary_search_by_key(&to, |(node, _)| *node).ok().map(|index| row[index].1)
    }

    /// The measured costs of memory of `to` on CPUs of `from`.
    pub fn measured(&self, from: NodeId, to: NodeId) -> Option<&Cost> {
        self.node(from)?.measured.iter().find(|cost| cost.node == to)
    }

    /// The measured latency of memory of `to` on CPUs of `from`, in parts of that of `from`'s own.
    pub fn measured_ratio(&self, from: NodeId, to: NodeId) -> Option<f64> {
        let latency = |to: NodeId| self.measured(from, to)?.latency_ps.filter(|ps| *ps > 0);
        Some(latency(to)? as f64 / latency(from)? as f64)
    }

    /// Whether any core has more than one thread online.
    pub fn smt(&self) -> bool {
        self.online_cpus().any(|cpu| cpu.siblings.len() > 1)
    }

    /// Present CPUs that are online, ascending by id.
    pub fn online_cpus(&self) -> impl Iterator<Item = &Cpu> {
        self.cpus.iter().filter(|cpu| cpu.online)
    }

    /// Present CPUs that are offline, ascending by id.
    pub fn offline_cpus(&self) -> impl Iterator<Item = &Cpu> {
        self.cpus.iter().filter(|cpu| !cpu.online)
    }

    /// Whether a node is a tier of memory, as CXL and persistent memory are: it has memory and no CPU, not even an offline one.
    pub fn is_tier(&self, node: &Node) -> bool {
        node.memory_only() && !self.offline_cpus().any(|cpu| cpu.node == Some(node.id))
    }

    /// Properties of this machine that make numbers misleading, one sentence each, with the remedy.
    pub fn warnings(&self) -> Vec<String> {
        of(self)
    }
}

impl Node {
    /// Whether it has memory but no online CPU: CXL or persistent memory, or a node whose CPUs are all
    /// offline.
    pub fn memory_only(&self) -> bool {
        self.cpus.is_empty() && self.mem_total_bytes > 0
    }
}

impl Llc {
    /// The nodes of its CPUs, ascending.
    pub fn nodes(&self, topology: &Topology) -> BTreeSet<NodeId> {
        self.cpus.iter().filter_map(|id| topology.cpu(*id)?.node).collect()
    }
}

impl DeviceClass {
    /// The word users see, also the one in JSON.
    pub fn name(self) -> &'static str {
        match self {
            DeviceClass::Net => "net",
            DeviceClass::Nvme => "nvme",
            DeviceClass::Storage => "storage",
            DeviceClass::Gpu => "gpu",
            DeviceClass::Accelerator => "accelerator",
        }
    }
}

fn of(topology: &Topology) -> Vec<String> {
    [
        hidden_nodes(topology),
        cpus_without_node(topology),
        nodes_without_memory(topology),
        unknown_caches(topology),
        mixed_caches(topology),
    ]
    .into_iter()
    .flatten()
    .chain(topology.contradictions.iter().cloned())
    .collect()
}

/// More sockets than nodes: memory of another socket looks local.
fn hidden_nodes(topology: &Topology) -> Option<String> {
    let nodes = topology.nodes.iter().filter(|node| !node.cpus.is_empty()).count();
    // Without any CPU on a node, the next warning describes the problem.
    if nodes == 0 || topology.sockets as usize <= nodes {
        return None;
    }
    let cause = match topology.numa {
        NumaSupport::On => {
            "the firmware (or the hypervisor, on a virtual machine) hides NUMA: every access counts as local, even \
             across sockets. To see the nodes, switch 'node interleaving' off, or 'NUMA' on, in the firmware setup"
        }
        NumaSupport::SwitchedOff => {
            "numa=off on the kernel command line hides NUMA: every access counts as local, even across sockets. To \
             see the nodes, remove numa=off and reboot"
        }
        NumaSupport::NotBuilt => {
            "this kernel has no NUMA support: every access counts as local, even across sockets. To see the nodes, \
             boot a kernel built with CONFIG_NUMA"
        }
    };
    let plural = if nodes == 1 { "" } else { "s" };
    Some(format!("{} sockets but {nodes} node{plural}: {cause}", topology.sockets))
}

fn cpus_without_node(topology: &Topology) -> Option<String> {
    let lost = format_cpulist(topology.online_cpus().filter(|cpu| cpu.node.is_none()).map(|cpu| cpu.id.0));
    (!lost.is_empty())
        .then(|| format!("online CPUs {lost} are on no online node: numbers by node exclude their work"))
}

fn nodes_without_memory(topology: &Topology) -> Option<String> {
    let bare = topology.nodes.iter().filter(|node| !node.cpus.is_empty() && node.mem_total_bytes == 0);
    let bare = format_cpulist(bare.map(|node| node.id.0));
    (!bare.is_empty()).then(|| {
        format!(
            "node {bare} has no memory: all memory accesses by its CPUs are remote. Check which memory slots are filled"
        )
    })
}

fn unknown_caches(topology: &Topology) -> Option<String> {
    let guessed = topology.llcs.iter().filter(|llc| llc.level.is_none()).flat_map(|llc| &llc.cpus);
    let mut guessed: Vec<u32> = guessed.map(|cpu| cpu.0).collect();
    guessed.sort_unstable();
    (!guessed.is_empty()).then(|| {
        format!(
            "sysfs describes no shared cache for CPUs {}. numatop-ng assumes that CPUs of one socket and node \
             share their last-level cache, so the llc numbers are a guess",
            format_cpulist(guessed)
        )
    })
}

/// Caches of different levels: a move between two of them is a different thing on each part of the machine.
fn mixed_caches(topology: &Topology) -> Option<String> {
    let of = |level: u32| {
        let cpus = topology.llcs.iter().filter(move |llc| llc.level == Some(level)).flat_map(|llc| &llc.cpus);
        let mut cpus: Vec<u32> = cpus.map(|cpu| cpu.0).collect();
        cpus.sort_unstable();
        format!("L{level} for CPUs {}", format_cpulist(cpus))
    };
    let levels: BTreeSet<u32> = topology.llcs.iter().filter_map(|llc| llc.level).collect();
    (levels.len() > 1).then(|| {
        let each: Vec<String> = levels.into_iter().map(of).collect();
        format!(
            "the last-level caches are of different levels ({}): migrations between these caches are not comparable",
            each.join(", ")
        )
    })
}
