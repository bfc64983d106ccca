//! Whether the topology of each fixture machine reads as its own tools described it. The expected values
//! are typed from those listings (lscpu, numactl --hardware), not computed.

use std::fs;
use std::path::{Path, PathBuf};

use numatop_ng::list::topology::{render_json, render_text};
use numatop_ng::model::topology::{DeviceClass, NumaSupport, Topology, parse_cpulist};
use numatop_ng::model::units::{CpuId, NodeId};

fn fixture(name: &str) -> PathBuf {
    crate::fixture::tree(&format!("hosts/{name}"))
}

fn host(name: &str) -> Topology {
    numatop_ng::host::topology::read(&fixture(name)).unwrap()
}

fn cpus(list: &str) -> Vec<CpuId> {
    parse_cpulist(list).unwrap().into_iter().map(CpuId).collect()
}

fn nids<const N: usize>(ids: [u32; N]) -> Vec<NodeId> {
    ids.into_iter().map(NodeId).collect()
}

/// Checks the nodes' ids and CPU lists, and that each of those CPUs names that node.
fn assert_nodes(topology: &Topology, expected: &[(u32, &str)]) {
    let found: Vec<_> = topology.nodes.iter().map(|node| (node.id, node.cpus.clone())).collect();
    let expected: Vec<_> = expected.iter().map(|&(id, list)| (NodeId(id), cpus(list))).collect();
    assert_eq!(found, expected);
    for (id, members) in expected {
        for cpu in members {
            assert_eq!(topology.cpu(cpu).unwrap().node, Some(id), "CPU {cpu}");
        }
    }
}

fn assert_distances(topology: &Topology, rows: &[&[u32]]) {
    for (from, row) in topology.nodes.iter().zip(rows) {
        let found: Vec<u32> = from.distances.iter().map(|(_, distance)| *distance).collect();
        assert_eq!(found, *row, "from node {}", from.id);
        for (to, distance) in topology.nodes.iter().zip(*row) {
            assert_eq!(topology.distance(from.id, to.id), Some(*distance));
        }
    }
    assert_eq!(topology.nodes.len(), rows.len());
}

fn assert_llcs(topology: &Topology, level: u32, kib: u64, expected: &[&str]) {
    let found: Vec<_> = topology.llcs.iter().map(|llc| llc.cpus.clone()).collect();
    let expected: Vec<_> = expected.iter().map(|list| cpus(list)).collect();
    assert_eq!(found, expected);
    for (index, llc) in topology.llcs.iter().enumerate() {
        assert_eq!((llc.level, llc.size_bytes), (Some(level), Some(kib * 1024)));
        for cpu in &llc.cpus {
            assert_eq!(topology.cpu(*cpu).unwrap().llc as usize, index, "CPU {cpu}");
        }
    }
}

#[test]
fn intel_e5_2682v4() {
    let topology = host("intel-e5-2682v4");
    assert_eq!((topology.sockets, topology.cores, topology.cpus.len()), (2, 32, 64));
    assert_eq!((topology.possible_cpus, topology.possible_nodes), (64, 2));
    assert_nodes(&topology, &[(0, "0-15,32-47"), (1, "16-31,48-63")]);
    assert_distances(&topology, &[&[10, 21], &[21, 10]]);
    assert_llcs(&topology, 3, 40960, &["0-15,32-47", "16-31,48-63"]);
    assert!(topology.smt());
    let cpu = topology.cpu(CpuId(49)).unwrap();
    assert_eq!((cpu.socket, cpu.core, &cpu.siblings), (Some(1), 17, &cpus("17,49")));
    assert_eq!(topology.nodes[1].mem_total_bytes, 128 << 30);
    assert_eq!(topology.nodes[1].mem_free_bytes, 33 << 20);
    assert_eq!(topology.warnings(), [""; 0]);
    assert_eq!(topology.numa, NumaSupport::On);
}

#[test]
fn intel_e5_2682v4_devices() {
    let topology = host("intel-e5-2682v4");
    let shown = |node: usize| -> Vec<_> {
        topology.nodes[node].devices.iter().map(|device| (device.class, device.name.as_str())).collect()
    };
    assert_eq!(
        shown(0),
        [(DeviceClass::Net, "eth0"), (DeviceClass::Net, "eth1"), (DeviceClass::Storage, "0000:03:00.0")]
    );
    assert_eq!(
        shown(1),
        [
            (DeviceClass::Nvme, "nvme0"),
            (DeviceClass::Nvme, "nvme1"),
            (DeviceClass::Gpu, "0000:84:00.0"),
            (DeviceClass::Accelerator, "0000:85:00.0"),
        ]
    );
    assert_eq!(topology.nodes[0].devices[1].pci.as_deref(), Some("0000:02:00.1"));
    // Two queues of eth0 are handled on the other node; eth1 has no interrupts itself.
    assert_eq!(topology.nodes[0].devices[0].irq_nodes, [NodeId(0), NodeId(1)]);
    assert_eq!(topology.nodes[0].devices[1].irq_nodes, []);
    // numa_node is -1: under no node rather than under node 0.
    let unplaced: Vec<_> = topology.unplaced_devices.iter().map(|device| device.name.as_str()).collect();
    assert_eq!(unplaced, ["0000:08:00.0"]);
}

#[test]
fn intel_96cpu() {
    let topology = host("intel-96cpu");
    assert_eq!((topology.sockets, topology.cores), (2, 48));
    assert_nodes(&topology, &[(0, "0-23,48-71"), (1, "24-47,72-95")]);
    let mib: Vec<_> =
        topology.nodes.iter().map(|node| (node.mem_total_bytes >> 20, node.mem_free_bytes >> 20)).collect();
    assert_eq!(mib, [(96920, 2951), (98304, 33)]);
}

#[test]
fn intel_8269cy_hidden() {
    let topology = host("intel-8269cy-hidden");
    assert_eq!((topology.sockets, topology.cores, topology.cpus.len()), (2, 52, 104));
    assert_nodes(&topology, &[(0, "0-103")]);
    assert_llcs(&topology, 3, 36608, &["0-25,52-77", "26-51,78-103"]);
    let warnings = topology.warnings();
    assert_eq!(warnings.len(), 1);
    assert!(
        warnings[0].starts_with("2 sockets but 1 node: the firmware (or the hypervisor"),
        "{}",
        warnings[0]
    );
    assert!(warnings[0].contains("switch 'node interleaving' off"), "{}", warnings[0]);
}

#[test]
fn hygon_c86_5280() {
    let topology = host("hygon-c86-5280");
    assert_eq!((topology.sockets, topology.cores, topology.cpus.len()), (2, 32, 64));
    assert_nodes(&topology, &[(0, "0-7,32-39"), (1, "8-15,40-47"), (2, "16-23,48-55"), (3, "24-31,56-63")]);
    assert_distances(
        &topology,
        &[&[10, 16, 28, 22], &[16, 10, 22, 28], &[28, 22, 10, 16], &[22, 28, 16, 10]],
    );
    assert_llcs(
        &topology,
        3,
        8192,
        &[
            "0-3,32-35",
            "4-7,36-39",
            "8-11,40-43",
            "12-15,44-47",
            "16-19,48-51",
            "20-23,52-55",
            "24-27,56-59",
            "28-31,60-63",
        ],
    );
    assert_eq!(topology.cpu(CpuId(63)).unwrap().siblings, cpus("31,63"));
    assert_eq!(topology.warnings(), [""; 0]);
}

#[test]
fn kunpeng_920_4826() {
    let topology = host("kunpeng-920-4826");
    assert_eq!((topology.sockets, topology.cores, topology.cpus.len()), (2, 96, 96));
    assert_nodes(&topology, &[(0, "0-23"), (1, "24-47"), (2, "48-71"), (3, "72-95")]);
    assert_distances(
        &topology,
        &[&[10, 12, 20, 22], &[12, 10, 22, 24], &[20, 22, 10, 12], &[22, 24, 12, 10]],
    );
    assert_llcs(&topology, 3, 49152, &["0-47", "48-95"]);
    assert!(!topology.smt());
}

#[test]
fn ft_2500() {
    let topology = host("ft-2500");
    assert_eq!((topology.sockets, topology.cores, topology.cpus.len()), (2, 128, 128));
    let ids: Vec<_> = topology.nodes.iter().map(|node| node.id.0).collect();
    assert_eq!(ids, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
    assert_eq!(topology.node(NodeId(0)).unwrap().cpus, cpus("0-7"));
    assert_eq!(topology.node(NodeId(10)).unwrap().cpus, cpus("80-87"));
    assert_eq!(topology.node(NodeId(15)).unwrap().cpus, cpus("120-127"));
    #[rustfmt::skip]
    assert_distances(&topology, &[
        &[ 10,  20,  40,  30,  20,  30,  50,  40, 100, 100, 100, 100, 100, 100, 100, 100],
        &[ 20,  10,  30,  40,  50,  20,  40,  50, 100, 100, 100, 100, 100, 100, 100, 100],
        &[ 40,  30,  10,  20,  40,  50,  20,  30, 100, 100, 100, 100, 100, 100, 100, 100],
        &[ 30,  40,  20,  10,  30,  20,  40,  50, 100, 100, 100, 100, 100, 100, 100, 100],
        &[ 20,  50,  40,  30,  10,  50,  30,  20, 100, 100, 100, 100, 100, 100, 100, 100],
        &[ 30,  20,  50,  20,  50,  10,  50,  40, 100, 100, 100, 100, 100, 100, 100, 100],
        &[ 50,  40,  20,  40,  30,  50,  10,  30, 100, 100, 100, 100, 100, 100, 100, 100],
        &[ 40,  50,  30,  50,  20,  40,  30,  10, 100, 100, 100, 100, 100, 100, 100, 100],
        &[100, 100, 100, 100, 100, 100, 100, 100,  10,  20,  40,  30,  20,  30,  50,  40],
        &[100, 100, 100, 100, 100, 100, 100, 100,  20,  10,  30,  40,  50,  20,  40,  50],
        &[100, 100, 100, 100, 100, 100, 100, 100,  40,  30,  10,  20,  40,  50,  20,  30],
        &[100, 100, 100, 100, 100, 100, 100, 100,  30,  40,  20,  10,  30,  20,  40,  50],
        &[100, 100, 100, 100, 100, 100, 100, 100,  20,  50,  40,  30,  10,  50,  30,  20],
        &[100, 100, 100, 100, 100, 100, 100, 100,  30,  20,  50,  20,  50,  10,  50,  40],
        &[100, 100, 100, 100, 100, 100, 100, 100,  50,  40,  20,  40,  30,  50,  10,  30],
        &[100, 100, 100, 100, 100, 100, 100, 100,  40,  50,  30,  50,  20,  40,  30,  10],
    ]);
    // One L3 for each socket, though 4 cores share an L2: the highest level decides.
    assert_llcs(&topology, 3, 65536, &["0-63", "64-127"]);
    assert_eq!(topology.llcs[1].nodes(&topology), nids([8, 9, 10, 11, 12, 13, 14, 15]).into_iter().collect());
    // On the platform bus: a node, but no PCI address.
    let card = &topology.node(NodeId(8)).unwrap().devices[0];
    assert_eq!((card.name.as_str(), card.pci.as_deref()), ("enp8", None));
    assert_eq!(topology.warnings(), [""; 0]);
}

#[test]
fn cxl() {
    let topology = host("cxl");
    assert_nodes(&topology, &[(0, "0-3"), (1, "4-7"), (2, "")]);
    let memory_only: Vec<_> = topology.nodes.iter().map(|node| node.memory_only()).collect();
    assert_eq!(memory_only, [false, false, true]);
    assert_eq!(topology.nodes[2].mem_total_bytes, 256 << 30);
    assert_distances(&topology, &[&[10, 21, 14], &[21, 10, 24], &[14, 24, 10]]);
    assert_eq!((topology.possible_nodes, &topology.offline_nodes), (4, &nids([3])));
    assert_eq!(topology.distance(NodeId(0), NodeId(3)), None);
    assert_eq!(topology.warnings(), [""; 0]);
}

#[test]
fn offline() {
    let topology = host("offline");
    assert_eq!((topology.cpus.len(), topology.cores, topology.possible_cpus), (8, 4, 16));
    assert_nodes(&topology, &[(0, "0-1,4"), (1, "2,6-7")]);
    assert_llcs(&topology, 3, 16384, &["0-1,4", "2,6-7"]);
    let online: Vec<_> = topology.online_cpus().map(|cpu| cpu.id).collect();
    assert_eq!(online, cpus("0-2,4,6-7"));

    // Nothing but the node is known of an offline CPU; it shares no core and no cache with any other.
    let three = topology.cpu(CpuId(3)).unwrap();
    assert_eq!((three.online, three.node, three.socket), (false, Some(NodeId(1)), None));
    assert_eq!((three.core, three.llc, &three.siblings), (4, 2, &cpus("3")));
    let five = topology.cpu(CpuId(5)).unwrap();
    assert_eq!((five.node, five.core, five.llc), (Some(NodeId(0)), 5, 3));
    // Its sibling is alone now; other cores still have two threads.
    assert_eq!(topology.cpu(CpuId(1)).unwrap().siblings, cpus("1"));
    assert!(topology.smt());
    assert_eq!(topology.cpu(CpuId(8)), None);
}

#[test]
fn old_maps() {
    let topology = host("old-maps");
    assert_eq!((topology.sockets, topology.cores), (2, 8));
    assert_nodes(&topology, &[(0, "0-3,8-11"), (1, "4-7,12-15")]);
    assert_llcs(&topology, 3, 12288, &["0-3,8-11", "4-7,12-15"]);
    let ids: Vec<_> = topology.cpus.iter().map(|cpu| (cpu.core_id.unwrap(), cpu.core)).collect();
    #[rustfmt::skip]
    assert_eq!(ids, [
        (0, 0), (1, 1), (9, 2), (10, 3), (0, 4), (1, 5), (9, 6), (10, 7),
        (0, 0), (1, 1), (9, 2), (10, 3), (0, 4), (1, 5), (9, 6), (10, 7),
    ]);
    assert_eq!(topology.cpu(CpuId(10)).unwrap().siblings, cpus("2,10"));
}

#[test]
fn sparse_nodes() {
    let topology = host("sparse-nodes");
    assert_nodes(&topology, &[(0, "0-3"), (8, "8-11"), (252, "")]);
    assert_eq!(topology.distance(NodeId(8), NodeId(252)), Some(80));
    assert_eq!(
        topology.node(NodeId(252)).unwrap().distances,
        [(NodeId(0), 80), (NodeId(8), 80), (NodeId(252), 10)]
    );
    assert_eq!((topology.possible_cpus, topology.possible_nodes), (16, 256));
    assert_eq!(topology.offline_nodes, nids([253, 254, 255]));
    assert_eq!(topology.sockets, 2);
    let cores: Vec<_> = topology.cpus.iter().map(|cpu| (cpu.id.0, cpu.core)).collect();
    assert_eq!(cores, [(0, 0), (1, 0), (2, 1), (3, 1), (8, 2), (9, 2), (10, 3), (11, 3)]);
}

#[test]
fn no_numa() {
    let topology = host("no-numa");
    assert_nodes(&topology, &[(0, "0-3")]);
    assert_distances(&topology, &[&[10]]);
    assert_eq!(topology.nodes[0].mem_total_bytes, 8_167_848 * 1024);
    assert_eq!(topology.nodes[0].mem_free_bytes, 1_409_696 * 1024);
    assert_eq!((topology.numa, topology.possible_nodes), (NumaSupport::NotBuilt, 1));
    // One socket: without NUMA nothing is hidden.
    assert_eq!(topology.warnings(), [""; 0]);
}

#[test]
fn no_cache() {
    let topology = host("no-cache");
    let domains: Vec<_> = topology.llcs.iter().map(|llc| (llc.level, llc.cpus.clone())).collect();
    assert_eq!(domains, [(None, cpus("0-1")), (None, cpus("2-3")), (None, cpus("4-5")), (None, cpus("6-7"))]);
    let warnings = topology.warnings();
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].starts_with("sysfs describes no shared cache for CPUs 0-7."), "{}", warnings[0]);
    // A virtio card is where the PCI function above it is.
    let card = &topology.nodes[1].devices[0];
    assert_eq!((card.name.as_str(), card.pci.as_deref()), ("eth0", Some("0000:00:03.0")));
}

#[test]
fn this_machine() {
    let topology = numatop_ng::host::topology::read(Path::new("/")).unwrap();
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    let found: Vec<_> = topology.online_cpus().map(|cpu| cpu.id).collect();
    assert_eq!(found, cpus(&online));
    let on_nodes: usize = topology.nodes.iter().map(|node| node.cpus.len()).sum();
    assert_eq!(on_nodes, found.len());
}

/// A writable copy of a fixture, removed at the end of the test.
struct Copy(PathBuf);

impl Copy {
    fn of(name: &str, purpose: &str) -> Copy {
        let copy = Copy(Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{purpose}")));
        let _ = fs::remove_dir_all(&copy.0);
        copy_tree(&fixture(name), &copy.0);
        copy
    }

    fn write(&self, path: &str, text: impl AsRef<[u8]>) -> &Copy {
        fs::write(self.0.join(path), text).unwrap();
        self
    }

    fn remove(&self, path: &str) -> &Copy {
        let path = self.0.join(path);
        if path.is_dir() {
            fs::remove_dir_all(path).unwrap();
        } else {
            fs::remove_file(path).unwrap();
        }
        self
    }

    fn read(&self) -> anyhow::Result<Topology> {
        numatop_ng::host::topology::read(&self.0)
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            copy_tree(&entry.path(), &target);
        } else if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(entry.path()).unwrap(), target).unwrap();
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn garbled_files_are_named_with_what_was_expected_and_read() {
    let cases = [
        ("cpu/online", "0-3,x", "a list of CPUs"),
        ("cpu/possible", "0-99999999", "contains an id above 65535"),
        ("cpu/present", "3-0", "in descending order"),
        ("cpu/online", "", "at least one online CPU"),
        ("node/online", "zero", "a list of nodes"),
        ("node/online", "", "at least one online node"),
        ("node/possible", "0-1-2", "a list of nodes"),
        ("node/node1/cpulist", "4-7,banana", "'banana' is neither"),
        ("node/node0/distance", "10 21", "3 distances, one for each online node"),
        ("node/node0/distance", "10 21 far", "3 distances"),
        ("node/node0/meminfo", "Node 0 MemTotal: lots kB", "'lots' after 'MemTotal:'"),
        ("node/node0/meminfo", "Node 0 MemTotal: 1 kB", "no line 'MemFree:'"),
        ("node/node0/meminfo", "Node 0 MemTotal: 99999999999999999 kB", "larger than 16 EiB"),
        ("node/node0/meminfo", "Node 0 MemTotal:", "no number after 'MemTotal:'"),
        ("cpu/cpu2/topology/core_id", "2.5", "a number"),
        ("cpu/cpu2/topology/physical_package_id", "", "a number"),
        ("cpu/cpu2/topology/core_cpus_list", "2,", "a list of CPUs"),
        ("cpu/cpu0/cache/index3/level", "L3", "a cache level"),
        ("cpu/cpu0/cache/index3/type", "Victim", "Data, Instruction or Unified"),
        ("cpu/cpu0/cache/index3/size", "16M", "a size like 8192K"),
        ("cpu/cpu0/cache/index3/size", "99999999999999999999K", "a size like 8192K"),
        ("cpu/cpu0/cache/index3/shared_cpu_list", "0x0f", "a list of CPUs"),
    ];
    let copy = Copy::of("cxl", "garbled");
    for (file, text, expected) in cases {
        let path = format!("sys/devices/system/{file}");
        let before = fs::read(copy.0.join(&path)).unwrap();
        let error = format!("{:#}", copy.write(&path, text).read().expect_err(file));
        assert!(error.contains(&format!("{}", copy.0.join(&path).display())), "{file} not named: {error}");
        assert!(error.contains(expected), "{file}: {expected:?} not in: {error}");
        copy.write(&path, before);
    }
    copy.read().expect("every file is restored");
}

#[test]
fn bytes_that_are_not_text_are_shown_not_fatal() {
    let copy = Copy::of("no-cache", "binary");
    let error = copy.write("sys/devices/system/cpu/online", [0xff, 0x00, 0x1b]).read().unwrap_err();
    assert!(format!("{error:#}").contains(r#"read "�\0\u{1b}""#), "{error:#}");
}

#[test]
fn garbled_masks_and_devices_are_named() {
    let copy = Copy::of("old-maps", "garbled");
    let path = "sys/devices/system/cpu/cpu3/topology/thread_siblings";
    let error = format!("{:#}", copy.write(path, "0000,zz").read().unwrap_err());
    assert!(error.contains(path) && error.contains("a hexadecimal CPU mask"), "{error}");

    let copy = Copy::of("no-cache", "garbled");
    let path = "sys/devices/pci0000:00/0000:00:03.0/numa_node";
    let error = format!("{:#}", copy.write(path, "one").read().unwrap_err());
    assert!(error.contains(path) && error.contains("a node number or -1"), "{error}");
    copy.write(path, "1").write("sys/devices/pci0000:00/0000:00:03.0/class", "display");
    let error = format!("{:#}", copy.read().unwrap_err());
    assert!(error.contains("0000:00:03.0/class") && error.contains("a PCI class code"), "{error}");
}

#[test]
fn a_missing_list_that_every_kernel_has_is_an_error() {
    for file in [
        "cpu/online",
        "cpu/present",
        "cpu/possible",
        "node/possible",
        "node/node0/distance",
        "node/node0/meminfo",
    ] {
        let copy = Copy::of("cxl", &file.replace('/', "-"));
        let error = copy.remove(&format!("sys/devices/system/{file}")).read().unwrap_err().to_string();
        assert!(error.contains(file) && error.contains("no such file"), "{error}");
    }
    let error = numatop_ng::host::topology::read(Path::new("/nonexistent")).unwrap_err().to_string();
    assert!(error.contains("/nonexistent/sys/devices/system/cpu/online"), "{error}");
}

#[test]
fn without_topology_files_each_cpu_is_a_core() {
    let copy = Copy::of("no-cache", "no-topology");
    for cpu in 0..8 {
        copy.remove(&format!("sys/devices/system/cpu/cpu{cpu}/topology"));
    }
    let topology = copy.read().unwrap();
    assert_eq!((topology.sockets, topology.cores), (0, 8));
    assert!(render_text(&topology, 80).starts_with("4 nodes, unknown sockets, 8 cores, 8 CPUs\n"));
    assert_eq!(render_json(&topology)["sockets"], serde_json::Value::Null);
}

#[test]
fn without_cache_files_sockets_of_one_node_share_no_cache() {
    let copy = Copy::of("intel-96cpu", "one-node");
    copy.remove("sys/devices/system/node").write("proc/meminfo", "MemTotal: 2 kB\nMemFree: 1 kB\n");
    let domains: Vec<_> = copy.read().unwrap().llcs.into_iter().map(|llc| llc.cpus).collect();
    assert_eq!(domains, [cpus("0-23,48-71"), cpus("24-47,72-95")]);
}

#[test]
fn a_cpu_that_no_node_lists_is_found_by_its_link() {
    let copy = Copy::of("no-cache", "node-link");
    copy.write("sys/devices/system/node/node3/cpulist", "6\n");
    let topology = copy.read().unwrap();
    assert_eq!(topology.cpu(CpuId(7)).unwrap().node, None);
    assert!(topology.warnings()[0].starts_with("online CPUs 7 are on no online node"));

    std::os::unix::fs::symlink("../../node/node3", copy.0.join("sys/devices/system/cpu/cpu7/node3")).unwrap();
    assert_nodes(&copy.read().unwrap(), &[(0, "0-1"), (1, "2-3"), (2, "4-5"), (3, "6-7")]);
}

#[test]
fn a_node_with_cpus_but_no_memory_is_warned_about() {
    let copy = Copy::of("no-cache", "memoryless");
    copy.write("sys/devices/system/node/node2/meminfo", "Node 2 MemTotal: 0 kB\nNode 2 MemFree: 0 kB\n");
    assert!(copy.read().unwrap().warnings()[0].starts_with("node 2 has no memory:"));
}

#[test]
fn hidden_nodes_are_blamed_on_who_hides_them() {
    let copy = Copy::of("intel-8269cy-hidden", "numa-off");
    let topology = copy.write("proc/cmdline", "ro numa=off quiet\n").read().unwrap();
    assert_eq!(topology.numa, NumaSupport::SwitchedOff);
    assert!(topology.warnings()[0].starts_with("2 sockets but 1 node: numa=off on the kernel command line"));

    copy.remove("sys/devices/system/node").write("proc/meminfo", "MemTotal: 2 kB\nMemFree: 1 kB\n");
    let topology = copy.read().unwrap();
    assert_eq!(topology.nodes[0].cpus, cpus("0-103"));
    assert!(topology.warnings()[0].starts_with("2 sockets but 1 node: this kernel has no NUMA support"));
}

const HOSTS: [&str; 12] = [
    "cxl",
    "ft-2500",
    "hygon-c86-5280",
    "intel-8269cy-hidden",
    "intel-96cpu",
    "intel-e5-2682v4",
    "kunpeng-920-4826",
    "no-cache",
    "no-numa",
    "offline",
    "old-maps",
    "sparse-nodes",
];

#[test]
fn every_host_survives_a_recording() {
    for name in HOSTS {
        let topology = host(name);
        let text = serde_json::to_string(&topology).unwrap();
        assert_eq!(serde_json::from_str::<Topology>(&text).unwrap(), topology, "{name}");
    }
}

#[test]
fn every_host_fits_its_terminal_without_utf_8() {
    for name in HOSTS {
        for width in [60, 80, 132] {
            let text = render_text(&host(name), width);
            for line in text.lines() {
                assert!(line.len() <= width && line.is_ascii(), "{name} at {width}: {line:?}");
                assert_eq!(line, line.trim_end(), "{name} at {width}");
            }
        }
        // Hopelessly narrow: long lines, but no panic and no empty column.
        assert!(render_text(&host(name), 1).contains("CPUs"), "{name}");
    }
}

#[test]
fn names_in_a_recording_cannot_steer_the_terminal() {
    let mut topology = host("ft-2500");
    let card = &mut topology.nodes[8].devices[0];
    card.name = "eth\u{1b}[2J".into();
    card.pci = Some("\u{7}".into());
    assert!(render_text(&topology, 80).ends_with("net          eth\\u{1b}[2J (\\u{7})\n"));
}

#[test]
fn text_intel_e5_2682v4() {
    insta::assert_snapshot!(render_text(&host("intel-e5-2682v4"), 80));
}

#[test]
fn text_intel_8269cy_hidden() {
    insta::assert_snapshot!(render_text(&host("intel-8269cy-hidden"), 80));
}

#[test]
fn text_hygon_c86_5280() {
    insta::assert_snapshot!(render_text(&host("hygon-c86-5280"), 80));
}

#[test]
fn text_ft_2500() {
    insta::assert_snapshot!(render_text(&host("ft-2500"), 80));
}

#[test]
fn text_offline() {
    insta::assert_snapshot!(render_text(&host("offline"), 80));
}

#[test]
fn text_cxl() {
    insta::assert_snapshot!(render_text(&host("cxl"), 80));
}

#[test]
fn json_names_what_scripts_look_up() {
    let json = render_json(&host("cxl"));
    assert_eq!(json["schema"], 1);
    assert_eq!(json["numa"], "on");
    assert_eq!((&json["sockets"], &json["cores"], &json["smt"]), (&2.into(), &8.into(), &false.into()));
    assert_eq!(json["offline_nodes"], serde_json::json!([3]));
    assert_eq!(json["nodes"][2]["node"], 2);
    assert_eq!(json["nodes"][2]["cpus"], serde_json::json!([]));
    assert_eq!(json["nodes"][2]["mem_total_bytes"], 256_u64 << 30);
    assert_eq!(json["nodes"][1]["distance"], serde_json::json!([21, 10, 24]));
    assert_eq!(
        json["cpus"][5],
        serde_json::json!({
            "cpu": 5, "online": true, "node": 1, "socket": 1, "core": 5, "core_id": 1, "llc": 1, "siblings": [5],
        })
    );
    assert_eq!(
        json["llcs"][1],
        serde_json::json!({ "cpus": [4, 5, 6, 7], "level": 3, "size_bytes": 16 << 20 })
    );
    assert_eq!(json["warnings"], serde_json::json!([]));
}

#[test]
fn json_devices_and_what_is_unknown() {
    let json = render_json(&host("intel-e5-2682v4"));
    assert_eq!(
        json["nodes"][1]["devices"][0],
        serde_json::json!({ "name": "nvme0", "class": "nvme", "pci": "0000:81:00.0", "node": 1, "irq_nodes": [] })
    );
    assert_eq!(
        json["unplaced_devices"],
        serde_json::json!([{ "name": "0000:08:00.0", "class": "gpu", "pci": "0000:08:00.0", "node": null, "irq_nodes": [] }])
    );
    let json = render_json(&host("offline"));
    assert_eq!(
        json["cpus"][3],
        serde_json::json!({
            "cpu": 3, "online": false, "node": 1, "socket": null, "core": null, "core_id": null, "llc": null,
            "siblings": [3],
        })
    );
}
