//! Metrics of the demo machine after changes of its counts and devices.

use std::collections::BTreeMap;
use std::sync::Arc;

use numatop_ng::analysis::summary::{Summary, SummaryRow};
use numatop_ng::metric::allowed::POLICY;
use numatop_ng::metric::disks::{self, WRITEBACK_BYTES_PER_S};
use numatop_ng::metric::dram;
use numatop_ng::metric::held_devices::devices;
use numatop_ng::metric::interrupts::{DEVICE_IRQS_AWAY_PCT, DEVICE_IRQS_PER_S, IRQS_PER_S};
use numatop_ng::metric::since_boot::NUMA_HIT;
use numatop_ng::metric::{Metric, Value, node};
use numatop_ng::model::accelerators::Accelerator;
use numatop_ng::model::demo;
use numatop_ng::model::disks::{DiskRoute, DiskSender, DiskTraffic, DiskUse};
use numatop_ng::model::sample::{MemPolicy, Missing, Reading, TaskRaw};
use numatop_ng::model::topology::Device;
use numatop_ng::model::turns::DramTraffic;
use numatop_ng::model::units::NodeId;
use numatop_ng::snapshot::{CpuSet, Node, RowKind, SetKind, Snapshot, Task, derive};
use numatop_ng::source::synthetic::{Machine, demo_machine};

/// The second interval of the demo machine after a change of its devices.
fn demo(change: impl Fn(&mut Machine)) -> Snapshot {
    let mut machine = demo_machine();
    change(&mut machine);
    let (first, second) = (machine.tick(), machine.tick());
    derive(&machine.host, Some(&first), &second, RowKind::Processes)
}

fn of(snapshot: &Snapshot, node: usize, metric: &Metric<Node>) -> Reading<f64> {
    metric.read(&snapshot.nodes[node], snapshot).map(|value| value.number().unwrap())
}

#[test]
fn rates_are_of_the_node_that_handles_and_of_the_devices_on_it() {
    let snapshot = demo(|_| ());
    let all = |metric| (0..4).map(|node| of(&snapshot, node, metric).ok()).collect::<Vec<_>>();
    assert_eq!(all(&IRQS_PER_S), [Some(11_400.0), Some(600.0), Some(3_100.0), Some(0.0)]);
    assert_eq!(all(&DEVICE_IRQS_PER_S), [Some(12_000.0), Some(0.0), Some(3_100.0), None]);
    assert_eq!(all(&DEVICE_IRQS_AWAY_PCT), [Some(5.0), None, Some(0.0), None]);
}

#[test]
fn two_ports_of_one_function_are_counted_once() {
    let snapshot = demo(|machine| {
        let devices = &mut Arc::make_mut(&mut machine.host).topology.nodes[0].devices;
        devices.push(Device { name: "eth1".into(), ..devices[0].clone() });
    });
    assert_eq!(of(&snapshot, 0, &DEVICE_IRQS_PER_S), Ok(12_000.0));
    assert_eq!(of(&snapshot, 0, &IRQS_PER_S), Ok(11_400.0));
}

#[test]
fn a_sum_without_one_of_its_devices_is_no_number() {
    let snapshot = demo(|machine| {
        let devices = &mut Arc::make_mut(&mut machine.host).topology.nodes[0].devices;
        devices.push(Device { name: "eth1".into(), pci: Some("0000:41:00.1".into()), ..devices[0].clone() });
    });
    for metric in [&IRQS_PER_S, &DEVICE_IRQS_PER_S, &DEVICE_IRQS_AWAY_PCT] {
        assert!(of(&snapshot, 0, metric).unwrap_err().to_string().contains("eth1"), "{}", metric.id);
    }
    assert_eq!(of(&snapshot, 2, &DEVICE_IRQS_PER_S), Ok(3_100.0), "another node has all of its own");
}

#[test]
fn weights_stand_behind_the_policy_that_uses_them() {
    let mut machine = demo_machine();
    machine.tiers.get_mut(&NodeId(0)).unwrap().weight = Some(3);
    machine.tiers.get_mut(&NodeId(3)).unwrap().weight = None;
    let sample = machine.tick();
    let snapshot = derive(&machine.host, None, &sample, RowKind::Processes);
    let policy = |mode, nodes| {
        let mempolicy = MemPolicy { mode, flags: 0, nodes };
        let task = Task::new(Arc::new(TaskRaw { pid: 7, tid: 7, mempolicy, ..TaskRaw::default() }));
        (POLICY.value)(&task, &snapshot)
    };
    let text = |words: &str| Ok(Value::Text(words.into()));
    assert_eq!(policy(6, 0b101), text("weighted interleave:0,2 (0=3 2=1)"));
    assert_eq!(policy(3, 0b101), text("interleave:0,2"));
    assert_eq!(policy(6, 0b1000), text("weighted interleave:3"), "no weight is known");
    assert_eq!(policy(6, u64::MAX >> 60), text("weighted interleave:0-3 (0=3 1=1 2=1)"));
}

#[test]
fn a_count_that_went_back_is_missing_for_an_interval() {
    let mut machine = demo_machine();
    let samples: Vec<_> = (0..4)
        .map(|second| {
            machine.nodes[1].numa_hit += 1000;
            if second == 2 {
                machine.nodes[1].numa_hit = 7;
            }
            machine.tick()
        })
        .collect();
    let hit = |at: usize, node: usize| {
        let snapshot = derive(&machine.host, Some(&samples[at - 1]), &samples[at], RowKind::Processes);
        NUMA_HIT.read(&snapshot.nodes[node], &snapshot)
    };
    let known = |at: usize, node: usize| Ok(Value::U64(samples[at].nodes[node].numa_hit));
    assert_eq!(hit(1, 1), known(1, 1));
    assert!(matches!(hit(2, 1), Err(Missing::Lost(_))), "{:?}", hit(2, 1));
    assert_eq!(hit(2, 0), known(2, 0), "other nodes are not concerned");
    assert_eq!(hit(3, 1), known(3, 1));
}

#[test]
fn cpu_time_of_the_machine_and_of_its_nodes_have_one_scale() {
    let mut machine = demo_machine();
    let (first, second) = (machine.tick(), machine.tick());
    let mut summary = Summary::default();
    summary.take(&derive(&machine.host, Some(&first), &second, RowKind::Processes));
    let cpu: Vec<SummaryRow> =
        summary.rows().into_iter().filter(|row| row.title == node::CPU_PCT.title).collect();
    let nodes = cpu.iter().filter(|row| row.node.is_some()).map(|row| row.median);
    let mean = nodes.clone().sum::<f64>() / nodes.count() as f64;
    assert!(cpu[0].node.is_none() && (cpu[0].median - mean).abs() < 0.5, "{} and {mean}", cpu[0].median);
}

#[test]
fn write_back_belongs_to_the_container_of_its_cgroup_and_to_all_above() {
    let mut machine = demo_machine();
    let (first, mut second) = (machine.tick(), machine.tick());
    let route = DiskRoute { disk: demo::NVME0.into(), from: NodeId(0) };
    let wrote = |bytes| Arc::new(DiskTraffic::from([(route.clone(), DiskUse { bytes, requests: 1 })]));
    let snapshot = derive(&machine.host, Some(&first), &second, RowKind::Processes);
    let child = snapshot.containers.iter().find(|row| row.parent.is_some()).unwrap();
    let parent = &snapshot.containers[child.parent.unwrap()];
    let groups = [(child.id, 4_096), (parent.id, 1_000), (u64::MAX, 7)];
    let traffic = groups.map(|(id, bytes)| (DiskSender { pid: 0, id }, wrote(bytes)));
    let all = second.inputs.disk_traffic.iter().map(|(sender, traffic)| (*sender, Arc::clone(traffic)));
    second.inputs.disk_traffic = Arc::new(all.chain(traffic).collect());

    let snapshot = derive(&machine.host, Some(&first), &second, RowKind::Processes);

    let of = |id| {
        let row = snapshot.containers.iter().find(|row| row.id == id).unwrap();
        WRITEBACK_BYTES_PER_S.read(row, &snapshot).unwrap().number().unwrap()
    };
    assert_eq!(
        (of(child.id), of(parent.id)),
        (4_096.0, 5_096.0),
        "a cgroup without tasks is in no container"
    );
    let of_disk = disks::written_back(&snapshot).unwrap();
    assert_eq!(of_disk, BTreeMap::from([(demo::NVME0, 5_103)]), "all of them wrote to this disk");
}

#[test]
fn accelerators_are_listed_with_their_holders_and_what_is_held_beside_them() {
    let mut machine = demo_machine();
    let (first, mut second) = (machine.tick(), machine.tick());
    let mut all = (*second.inputs.accelerators).clone();
    let (process, held) = all.iter().next().map(|(process, held)| (*process, (**held).clone())).unwrap();
    let group = Accelerator {
        name: "vfio/12".into(),
        functions: vec!["0000:f1:00.0".into(), "0000:f2:00.0".into()],
        nodes: vec![NodeId(0), NodeId(1)],
        is_nodeless: false,
    };
    let kfd = Accelerator { name: "kfd".into(), is_nodeless: true, ..Accelerator::default() };
    all.insert(process, Arc::new(held.into_iter().chain([group, kfd]).collect()));
    second.inputs.accelerators = Arc::new(all);

    let snapshot = derive(&machine.host, Some(&first), &second, RowKind::Processes);

    let rows = devices(&snapshot);
    let row = |name: &str| rows.iter().find(|row| row.name == name).unwrap();
    let gpu = rows.iter().find(|row| row.pci.as_deref() == Some(demo::GPU0)).unwrap();
    assert_eq!(gpu.node, Ok(NodeId(demo::GPU_NODE)));
    for one in [gpu, row("vfio/12"), row("kfd")] {
        let holders = one.held_by.as_ref().unwrap();
        assert!(holders.starts_with(&format!("{} ", process.0)), "{holders}");
    }
    let why = |name: &str| row(name).node.as_ref().unwrap_err().to_string();
    assert!(why("vfio/12").contains("several nodes"), "{}", why("vfio/12"));
    assert!(why("kfd").contains("not known"), "{}", why("kfd"));
}

/// The demo machine in a second in which controllers of node 1 and of its socket, 0, count these bytes.
fn with_dram(read: u64, write: u64, change: impl FnOnce(&mut Machine, &mut DramTraffic)) -> Snapshot {
    let mut machine = demo_machine();
    machine.tick();
    let (first, mut second) = (machine.tick(), machine.tick());
    let mut traffic = (*first.inputs.node_dram[&NodeId(1)]).clone();
    traffic.read.bytes += read;
    traffic.write.bytes += write;
    change(&mut machine, &mut traffic);
    Arc::make_mut(&mut second.inputs.node_dram).insert(NodeId(1), Arc::new(traffic));
    let mut socket = (*first.inputs.socket_dram[&0]).clone();
    socket.read.bytes += read;
    Arc::make_mut(&mut second.inputs.socket_dram).insert(0, Arc::new(socket));
    derive(&machine.host, Some(&first), &second, RowKind::Processes)
}

fn of_set(snapshot: &Snapshot, kind: SetKind, metric: &Metric<CpuSet>) -> Reading<f64> {
    let set = snapshot.cpu_sets.iter().find(|set| set.kind == kind).unwrap();
    metric.read(set, snapshot).map(|value| value.number().unwrap())
}

#[test]
fn controllers_are_busy_by_what_calibrate_has_measured() {
    // 160 GB/s at home; a socket has two such nodes.
    let snapshot = with_dram(120_000_000_000, 80_000_000_000, |_, _| ());
    assert_eq!(of(&snapshot, 1, &dram::READ), Ok(120e9));
    assert_eq!(of(&snapshot, 1, &dram::WRITE), Ok(80e9));
    assert_eq!(of(&snapshot, 1, &dram::BUSY), Ok(125.0), "above 100 is shown");
    assert_eq!(of_set(&snapshot, SetKind::Socket, &dram::SET_READ), Ok(120e9));
    assert_eq!(of_set(&snapshot, SetKind::Socket, &dram::SET_BUSY), Ok(37.5));
    let why = of_set(&snapshot, SetKind::Llc, &dram::SET_READ).unwrap_err();
    assert!(why.to_string().contains("not by cache"), "{why}");
}

#[test]
fn bytes_of_controllers_are_shown_without_a_profile() {
    let snapshot = with_dram(64, 0, |machine, _| {
        let topology = &mut Arc::make_mut(&mut machine.host).topology;
        topology.calibration = None;
        topology.nodes.iter_mut().for_each(|node| node.measured.clear());
    });
    assert_eq!((of(&snapshot, 1, &dram::READ), of(&snapshot, 1, &dram::WRITE)), (Ok(64.0), Ok(0.0)));
    for why in [of(&snapshot, 1, &dram::BUSY), of_set(&snapshot, SetKind::Socket, &dram::SET_BUSY)] {
        let why = why.unwrap_err().to_string();
        assert!(why.contains("numatop-ng calibrate"), "{why}");
    }
}

#[test]
fn a_failed_reading_of_a_controller_is_its_reason() {
    let why = Missing::Lost("uncore_imc_0 counted backwards".into());
    let snapshot = with_dram(64, 64, |_, traffic| traffic.read.why = Some(why.clone()));
    assert_eq!(of(&snapshot, 1, &dram::READ), Err(why.clone()));
    assert_eq!(of(&snapshot, 1, &dram::BUSY), Err(why));
    assert_eq!(of(&snapshot, 1, &dram::WRITE), Ok(64.0));
    let snapshot = with_dram(64, 64, |_, traffic| traffic.write.losses += 1);
    assert!(matches!(of(&snapshot, 1, &dram::WRITE), Err(Missing::Lost(_))));
    let snapshot = with_dram(0, 0, |_, traffic| *traffic = DramTraffic::default());
    assert!(of(&snapshot, 1, &dram::READ).is_err(), "it began again");
}

#[test]
fn nodes_without_controllers_and_first_intervals_have_none() {
    let mut machine = demo_machine();
    machine.dram_accesses = None;
    let (first, second) = (machine.tick(), machine.tick());
    let snapshot = derive(&machine.host, Some(&first), &second, RowKind::Processes);
    let why = of(&snapshot, 0, &dram::READ).unwrap_err().to_string();
    assert!(why.contains("no memory controller of the node"), "{why}");
    assert!(of_set(&snapshot, SetKind::Socket, &dram::SET_WRITE).is_err());
    let sample = demo_machine().tick();
    let snapshot = derive(&machine.host, None, &sample, RowKind::Processes);
    assert_eq!(of(&snapshot, 0, &dram::READ), Err(Missing::FirstInterval));
}
