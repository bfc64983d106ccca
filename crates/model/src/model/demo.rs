//! The hardware of the demo machine: two sockets of two nodes each, as some servers with chiplets have them.

use super::sample::{CgroupFacts, CgroupMode, GroupReclaim, HostFacts, Managers};
use super::topology::{
    Calibration, Cost, Cpu, Device, DeviceClass, Division, Llc, Node, NumaSupport, Topology,
};
use super::units::{CpuId, NodeId};

/// Nodes.
pub const NODES: u32 = 4;
/// Cores of a node. Each has two hardware threads: CPU n and CPU n + 16.
const CORES: u32 = 4;
/// Cores that share a last-level cache: half of a node.
const LLC_CORES: u32 = 2;
const ALL_CORES: u32 = NODES * CORES;
/// The function of the network card.
pub const ETH0: &str = "0000:41:00.0";
/// The function of the disk.
pub const NVME0: &str = "0000:a1:00.0";
/// The function of the GPU.
pub const GPU0: &str = "0000:61:00.0";
/// The node of the GPU.
pub const GPU_NODE: u32 = 1;
/// Bytes of memory of a node.
pub const MEMORY: u64 = 64 << 30;
/// Between nodes of one socket, between twins in both, and between all others, as the firmware counts.
const DISTANCES: [[u32; 4]; 4] = [[10, 12, 20, 22], [12, 10, 22, 20], [20, 22, 10, 12], [22, 20, 12, 10]];

/// The demo machine. It has no counters: the demo chooses them.
pub fn facts() -> HostFacts {
    HostFacts {
        hostname: "demo".into(),
        kernel: "6.12.0".into(),
        arch: "x86_64".into(),
        cpu_model: "simulated CPU (--demo)".into(),
        boot_id: "00000000-0000-0000-0000-000000000de0".into(),
        cgroups: Some(CgroupFacts {
            mode: CgroupMode::V2,
            memory_migrate: None,
            memory_spread_page: None,
            memory_spread_slab: None,
        }),
        node_reclaim_file: Some(false),
        group_reclaim: Some(GroupReclaim::Swappiness),
        managers: Some(Managers { systemd: true, kubelet: true }),
        ..HostFacts::of(topology())
    }
}

/// The costs that calibrate would measure: 84 ns and 160 GB/s at home, and by distance elsewhere.
fn cost((node, distance): (NodeId, u32)) -> Cost {
    Cost {
        node,
        latency_ps: Some(8_400 * u64::from(distance)),
        read_bytes_per_s: Some(1_600_000_000_000 / u64::from(distance)),
        latency_error_ps: Some(400),
        read_error_bytes_per_s: Some(1_200_000_000),
    }
}

fn topology() -> Topology {
    let node_of = |cpu: u32| cpu % ALL_CORES / CORES;
    let cpus_of = |node: u32| (0..2 * ALL_CORES).filter(|cpu| node_of(*cpu) == node).map(CpuId).collect();
    let is_in_llc = |cpu: &u32, llc| cpu % ALL_CORES / LLC_CORES == llc;
    let cpus_of_llc = |llc: u32| (0..2 * ALL_CORES).filter(|cpu| is_in_llc(cpu, llc)).map(CpuId).collect();
    let cpu = |id: u32| {
        let core = id % ALL_CORES;
        Cpu {
            id: CpuId(id),
            online: true,
            node: Some(NodeId(node_of(id))),
            socket: Some((node_of(id) / 2) as i32),
            core_id: Some((core % (2 * CORES)) as i32),
            core,
            llc: core / LLC_CORES,
            siblings: vec![CpuId(core), CpuId(core + ALL_CORES)],
        }
    };
    let node = |id: u32| Node {
        id: NodeId(id),
        cpus: cpus_of(id),
        distances: (0..).map(NodeId).zip(DISTANCES[id as usize]).collect(),
        measured: (0..).map(NodeId).zip(DISTANCES[id as usize]).map(cost).collect(),
        mem_total_bytes: MEMORY,
        mem_free_bytes: MEMORY / 2,
        devices: devices(id),
    };
    let mut topology = Topology {
        nodes: (0..NODES).map(node).collect(),
        cpus: (0..2 * ALL_CORES).map(cpu).collect(),
        llcs: (0..ALL_CORES / LLC_CORES)
            .map(|llc| Llc { cpus: cpus_of_llc(llc), level: Some(3), size_bytes: Some(32 << 20) })
            .collect(),
        cores: ALL_CORES,
        sockets: 2,
        possible_cpus: 2 * ALL_CORES,
        possible_nodes: NODES,
        offline_nodes: vec![],
        numa: NumaSupport::On,
        unplaced_devices: vec![],
        calibration: Some(Calibration { time: "2026-01-01T10:00:00Z".into(), ..Calibration::default() }),
        contradictions: Vec::new(),
        places: Vec::new(),
    };
    // It has as many places as caches, which are few.
    let divided = topology.divide(Division::Usual);
    debug_assert!(divided.is_ok());
    topology
}

fn devices(node: u32) -> Vec<Device> {
    let device = |name: &str, class, pci: &str| Device {
        name: name.into(),
        class,
        pci: Some(pci.into()),
        node: Some(NodeId(node)),
        irq_nodes: vec![NodeId(node)],
    };
    match node {
        0 => vec![device("eth0", DeviceClass::Net, ETH0)],
        GPU_NODE => vec![device(GPU0, DeviceClass::Gpu, GPU0)],
        2 => vec![device("nvme0", DeviceClass::Nvme, NVME0)],
        _ => vec![],
    }
}
