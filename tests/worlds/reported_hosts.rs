//! Machines of bug reports whose lists contradict each other, made of files.

use std::fs;
use std::path::Path;

use numatop_ng::container::patterns::identify;
use numatop_ng::model::group::Engine;
use numatop_ng::model::units::{CpuId, NodeId};

use crate::scratch::Scratch;

fn put(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("{text}\n")).unwrap();
}

/// Nodes with these lists of CPUs, each with as many MiB as its id and one.
fn host(root: &Path, online: &str, present: &str, nodes: &[(u32, &str)]) {
    for (name, list) in [("online", online), ("present", present), ("possible", present)] {
        put(root, &format!("sys/devices/system/cpu/{name}"), list);
    }
    let ids: Vec<String> = nodes.iter().map(|(id, _)| id.to_string()).collect();
    for name in ["online", "possible"] {
        put(root, &format!("sys/devices/system/node/{name}"), &ids.join(","));
    }
    for (at, (id, cpus)) in nodes.iter().enumerate() {
        let dir = format!("sys/devices/system/node/node{id}");
        put(root, &format!("{dir}/cpulist"), cpus);
        let kib = (id + 1) * 1024;
        put(
            root,
            &format!("{dir}/meminfo"),
            &format!("Node {id} MemTotal: {kib} kB\nNode {id} MemFree: {kib} kB"),
        );
        let row: Vec<&str> = (0..nodes.len()).map(|other| if other == at { "10" } else { "20" }).collect();
        put(root, &format!("{dir}/distance"), &row.join(" "));
    }
}

fn cpu(root: &Path, id: u32, level: u32, shared: &str) {
    let dir = format!("sys/devices/system/cpu/cpu{id}");
    put(root, &format!("{dir}/topology/core_cpus_list"), &id.to_string());
    put(root, &format!("{dir}/topology/physical_package_id"), "0");
    for (name, value) in
        [("level", level.to_string().as_str()), ("type", "Unified"), ("shared_cpu_list", shared)]
    {
        put(root, &format!("{dir}/cache/index2/{name}"), value);
    }
}

#[test]
fn emulated_nodes_share_cpus_and_each_cpu_counts_on_the_kernels_own() {
    let root = Scratch::new();
    host(root.path(), "0-1", "0-1", &[(0, "0-1"), (1, "0-1"), (2, "0-1")]);
    (0..2).for_each(|id| cpu(root.path(), id, 3, "0-1"));
    fs::create_dir_all(root.path().join("sys/devices/system/cpu/cpu1/node2")).unwrap();
    let topology = numatop_ng::host::topology::read(root.path()).unwrap();
    assert_eq!(topology.nodes.len(), 3, "with their memory");
    let node = |id| topology.cpu(CpuId(id)).unwrap().node;
    assert_eq!((node(0), node(1)), (Some(NodeId(0)), Some(NodeId(2))));
    let warnings = topology.warnings().join("\n");
    assert!(warnings.contains("CPUs 0-1 are in the lists of several nodes"), "{warnings}");
}

#[test]
fn a_list_of_online_cpus_that_a_container_made_up_hides_none() {
    let root = Scratch::new();
    host(root.path(), "0", "0-2", &[(4, "0"), (7, "1")]);
    (0..2).for_each(|id| cpu(root.path(), id, 3, "0-1"));
    put(root.path(), "sys/devices/system/cpu/cpu1/online", "1");
    put(root.path(), "sys/devices/system/cpu/cpu2/online", "0");
    let topology = numatop_ng::host::topology::read(root.path()).unwrap();
    let online: Vec<u32> = topology.online_cpus().map(|cpu| cpu.id.0).collect();
    assert_eq!(online, [0, 1], "2 is offline");
    assert_eq!(topology.cpu(CpuId(1)).unwrap().node, Some(NodeId(7)));
    assert!(topology.warnings().join("\n").contains("CPUs 1 run but"), "{:?}", topology.warnings());
}

#[test]
fn lists_that_agree_have_no_warning() {
    let root = Scratch::new();
    host(root.path(), "0-1", "0-2", &[(4, "0"), (7, "1")]);
    (0..2).for_each(|id| cpu(root.path(), id, 3, "0-1"));
    put(root.path(), "sys/devices/system/cpu/cpu2/online", "0");
    let topology = numatop_ng::host::topology::read(root.path()).unwrap();
    assert!(topology.contradictions.is_empty(), "{:?}", topology.contradictions);
}

#[test]
fn caches_of_different_levels_are_said_to_be_so() {
    let root = Scratch::new();
    host(root.path(), "0-2", "0-2", &[(0, "0-2")]);
    cpu(root.path(), 0, 3, "0-1");
    cpu(root.path(), 1, 3, "0-1");
    cpu(root.path(), 2, 2, "2");
    let warnings = numatop_ng::host::topology::read(root.path()).unwrap().warnings().join("\n");
    assert!(warnings.contains("(L2 for CPUs 2, L3 for CPUs 0-1)"), "{warnings}");
}

#[test]
fn a_container_whose_groups_podman_splits_is_a_container_of_its_unit() {
    let id = "3c0f6a4c".repeat(8);
    let found = identify(&format!("/system.slice/web.service/libpod-payload-{id}"));
    let container = found.container.unwrap().what;
    assert_eq!((container.engine, container.id.as_str()), (Engine::Podman, id.as_str()));
    assert_eq!(found.unit.unwrap().what, "web.service");
    let monitor = identify(&format!("/system.slice/web.service/libpod-conmon-{id}"));
    assert!(monitor.container.is_none(), "the monitor is none");
}
