//! Made-up machines for findings, and the results of an engine for them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use numatop_ng::container::group::describe;
use numatop_ng::container::names::ContainerNames;
use numatop_ng::finding::{Change, Check, Command, Engine, Finding, Options, Subject, When};
use numatop_ng::metric::cpu_set::CPU_SET_METRICS;
use numatop_ng::metric::host::HOST_METRICS;
use numatop_ng::metric::{Value, container, node, task};
use numatop_ng::model::access::{AccessSource, MemoryUse, MemoryUses, RestUse};
use numatop_ng::model::event::{Event, Role};
use numatop_ng::model::process::{ProcFields, Texts};
use numatop_ng::model::sample::{GroupRaw, HostFacts, Names, Reading, Sample};
use numatop_ng::model::topology::{Cpu, Division, Llc, Node, NumaSupport, Topology};
use numatop_ng::model::units::{CpuId, NodeId};
use numatop_ng::snapshot::{RowKind, SetKind, Snapshot, derive};
pub use numatop_ng::source::synthetic::{Actor, BOOT_NS, Machine};

pub const GIB: u64 = 1 << 30;
pub const S: u64 = 1_000_000_000;

/// Cgroups of every world: a service, a container of docker, one of a pod, and another cgroup.
pub const SERVICE: u64 = 11;
pub const DOCKER: u64 = 12;
pub const OTHER_DOCKER: u64 = 13;
pub const PLAIN: u64 = 14;
const CGROUPS: [(u64, &str); 7] = [
    (1, "/init.scope"),
    (10, "/"),
    (SERVICE, "/system.slice/mysql.service"),
    (DOCKER, "/docker/3c0f6a4c2b9f1e8d7a6b5c4d3e2f1a0b9c8d7e6f5a4b3c2d1e0f9a8b7c6d5e4f"),
    (OTHER_DOCKER, "/docker/9f8e7d6c5b4a39281706f5e4d3c2b1a09f8e7d6c5b4a39281706f5e4d3c2b1a0"),
    (PLAIN, "/jobs"),
    (15, "/docker"),
];

/// Nodes of equal size, each with this many cores of this many threads.
#[derive(Clone, Copy)]
pub struct Shape {
    pub nodes: u32,
    pub cores: u32,
    pub threads: u32,
    pub sockets: u32,
    pub distance: u32,
    pub memory: u64,
}

/// Two sockets of 26 cores with 2 threads that the firmware shows as one node.
pub const HIDDEN: Shape =
    Shape { nodes: 1, cores: 52, threads: 2, sockets: 2, distance: 20, memory: 384 * GIB };

/// Two nodes of 8 cores with 2 threads, 64 GiB each.
pub const TWO: Shape = Shape { nodes: 2, cores: 8, threads: 2, sockets: 2, distance: 20, memory: 64 * GIB };

fn topology(shape: Shape) -> Topology {
    let all_cores = shape.nodes * shape.cores;
    let node_of = |cpu: u32| cpu % all_cores / shape.cores;
    let socket_of = |cpu: u32| cpu % all_cores * shape.sockets / all_cores.max(1);
    // Each node and each socket has its own last-level cache.
    let caches = shape.nodes.max(shape.sockets);
    let llc_of = |cpu: u32| if shape.sockets > shape.nodes { socket_of(cpu) } else { node_of(cpu) };
    let cpus = all_cores * shape.threads;
    let all_of = |of: &dyn Fn(u32) -> u32, id: u32| -> Vec<CpuId> {
        (0..cpus).filter(|cpu| of(*cpu) == id).map(CpuId).collect()
    };
    let cpus_of = |node: u32| all_of(&node_of, node);
    let cpu = |id: u32| Cpu {
        id: CpuId(id),
        online: true,
        node: Some(NodeId(node_of(id))),
        socket: Some(socket_of(id) as i32),
        core_id: Some((id % all_cores) as i32),
        core: id % all_cores,
        llc: llc_of(id),
        siblings: (0..shape.threads).map(|thread| CpuId(id % all_cores + thread * all_cores)).collect(),
    };
    let node = |id: u32| Node {
        id: NodeId(id),
        cpus: cpus_of(id),
        distances: (0..shape.nodes)
            .map(|to| (NodeId(to), if to == id { 10 } else { shape.distance }))
            .collect(),
        mem_total_bytes: shape.memory,
        measured: Vec::new(),
        mem_free_bytes: shape.memory / 2,
        devices: vec![],
    };
    let llc = |id: u32| Llc { cpus: all_of(&llc_of, id), level: Some(3), size_bytes: Some(32 << 20) };
    let mut topology = Topology {
        nodes: (0..shape.nodes).map(node).collect(),
        cpus: (0..cpus).map(cpu).collect(),
        llcs: (0..caches).map(llc).collect(),
        cores: all_cores,
        sockets: shape.sockets,
        possible_cpus: cpus,
        possible_nodes: shape.nodes,
        offline_nodes: vec![],
        numa: NumaSupport::On,
        unplaced_devices: vec![],
        calibration: None,
        contradictions: Vec::new(),
        places: Vec::new(),
    };
    topology.divide(Division::Usual).unwrap();
    topology
}

/// A machine of this shape with these actors. It counts cycles and instructions, but no memory accesses.
pub fn machine(shape: Shape, actors: Vec<Actor>) -> Machine {
    let event = |name: &str, role| Event { name: name.into(), role, ..Event::default() };
    let host = HostFacts {
        hostname: "made-up".into(),
        kernel: "6.12.0".into(),
        arch: "x86_64".into(),
        cpu_model: "made-up CPU".into(),
        boot_id: "findings".into(),
        events: vec![event("cycles", Role::Cycles), event("instructions", Role::Instructions)],
        swap_on_zram: Some(false),
        ..HostFacts::of(topology(shape))
    };
    let cgroups: BTreeMap<u64, String> = CGROUPS.map(|(id, path)| (id, path.into())).into();
    let names = Names {
        groups: describe(&cgroups, &BTreeMap::new(), &mut ContainerNames::new(Path::new("/nonexistent"))),
        cgroups,
        users: BTreeMap::new(),
    };
    Machine::new(host, names, actors)
}

/// Changes `machine` before each of its seconds.
pub fn each_second(machine: &mut Machine, plan: impl FnMut(&mut Machine, u64) + Send + 'static) {
    machine.plan = Some(Box::new(plan));
}

/// Files of a group with these CPUs and nodes, without limits.
pub fn files(cpus: &str, mems: &str) -> GroupRaw {
    GroupRaw {
        cpus: Ok(cpus.into()),
        mems: Ok(mems.into()),
        cpu_quota_milli: Ok(None),
        throttled_ns: Ok(0),
        mem_limit_bytes: Ok(None),
        mem_bytes: Ok(GIB),
        mem_bytes_by_node: Ok([(0, GIB)].into()),
        ..GroupRaw::default()
    }
}

/// Samples of a machine, one after the other, at one interval.
pub fn samples(mut machine: Machine, seconds: u64, step_ms: u64) -> (Arc<HostFacts>, Vec<Sample>) {
    let step = step_ms * 1_000_000;
    let samples = (0..=seconds * S / step).map(|_| machine.step(step)).collect();
    (Arc::clone(&machine.host), samples)
}

/// The engine after these samples, and all changes.
pub fn fold(host: &Arc<HostFacts>, samples: &[Sample]) -> (Engine, Vec<Change>) {
    let mut engine = Engine::new(Options::default());
    let mut changes = Vec::new();
    for pair in samples.windows(2) {
        let snapshot = derive(host, Some(&pair[0]), &pair[1], RowKind::Processes);
        changes.extend(engine.take(&snapshot));
        for finding in engine.findings() {
            checks_are_numbers(finding, &snapshot);
            has_a_way_back(finding);
        }
    }
    (engine, changes)
}

/// A line that changes something at once can be undone.
fn has_a_way_back(finding: &Finding) {
    // Its line shows something and changes nothing.
    let shows = finding.key.id == "node-without-memory";
    let acts =
        finding.advice.commands.iter().any(|command| command.when == When::Now && command.line.is_some());
    assert!(shows || !acts || !finding.advice.undo.is_empty(), "{} cannot be undone", finding.key);
}

/// A check is of one number: a value for each node can be compared with nothing.
fn checks_are_numbers(finding: &Finding, snapshot: &Snapshot) {
    for check in finding.advice.check.iter().chain(&finding.advice.stop) {
        let is_number = |read: Reading<Value>| read.map_or(true, |value| value.number().is_some());
        let one = value_of(check, snapshot).map(is_number);
        assert_ne!(one, Some(false), "{}: {} of {} is not one number", finding.key, check.metric, check.of);
    }
}

/// The value of a check's metric; `None` where its subject has no row.
pub fn value_of(check: &Check, snapshot: &Snapshot) -> Option<Reading<Value>> {
    Some(match &check.of {
        Subject::Process(pid, _) => {
            let row = snapshot.tasks.iter().find(|row| row.raw.pid == *pid)?;
            task::by_id(check.metric).unwrap().read(row, snapshot)
        }
        Subject::Group(..) => return None,
        Subject::Container(id) => {
            let row = snapshot.containers.iter().find(|row| row.id == *id)?;
            container::by_id(check.metric).unwrap().read(row, snapshot)
        }
        Subject::Node(id) => {
            let row = snapshot.nodes.iter().find(|row| row.raw.id == id.0)?;
            node::by_id(check.metric).unwrap().read(row, snapshot)
        }
        Subject::Socket(id) => {
            let row = snapshot.cpu_sets.iter().find(|set| set.kind == SetKind::Socket && set.id == *id)?;
            CPU_SET_METRICS.iter().find(|metric| metric.id == check.metric).unwrap().read(row, snapshot)
        }
        Subject::Host => {
            let metric = HOST_METRICS.iter().find(|metric| metric.id == check.metric).unwrap();
            metric.read(snapshot)
        }
        Subject::Device(_) => return None,
    })
}

/// The engine after `seconds` seconds of a machine.
pub fn watch(machine: Machine, seconds: u64) -> Engine {
    let (host, samples) = samples(machine, seconds, 1000);
    fold(&host, &samples).0
}

/// `severity confidence key` of each finding.
pub fn lines(engine: &Engine) -> Vec<String> {
    let line = |finding: &Finding| {
        format!("{} {} {}", finding.severity.name(), finding.confidence.name(), finding.key)
    };
    engine.findings().iter().map(line).collect()
}

/// Findings of one rule after `seconds` seconds.
pub fn found(machine: Machine, seconds: u64, id: &str) -> Vec<Finding> {
    let engine = watch(machine, seconds);
    engine.findings().iter().filter(|finding| finding.key.id == id).cloned().collect()
}

/// Command lines of a finding.
pub fn commands(finding: &Finding) -> Vec<String> {
    lines_of(&finding.advice.commands)
}

/// Command lines that undo a finding's.
pub fn undo(finding: &Finding) -> Vec<String> {
    lines_of(&finding.advice.undo)
}

fn lines_of(commands: &[Command]) -> Vec<String> {
    commands.iter().filter_map(|command| Some(command.line.as_ref()?.to_string())).collect()
}

/// The reason why a rule could look at nothing.
pub fn blind(machine: Machine, seconds: u64, id: &str) -> Option<String> {
    let engine = watch(machine, seconds);
    assert!(engine.findings().iter().all(|finding| finding.key.id != id), "{:?}", lines(&engine));
    engine
        .blind()
        .iter()
        .find(|blind| blind.id == id)
        .map(|blind| format!("{}: {}", blind.reason.id(), blind.words))
}

/// Pages of a process on two nodes, with this share of them on the second, in percent.
pub fn pages(second: u32) -> Vec<u32> {
    let second = second * 1024 / 100;
    vec![1024 - second, second]
}

/// Threads of one process, one bound to each of these CPUs, busy this share of the time.
pub fn bound_threads(
    pid: u32,
    comm: &str,
    cgroup: u64,
    cpus: std::ops::Range<u32>,
    node: u32,
    pct: f64,
) -> Vec<Actor> {
    let thread = |(at, cpu)| Actor {
        tid: pid + at,
        pinned: Some(cpu),
        cgroup,
        cpu_nodes: Some(1 << node),
        ..Actor::new(pid, comm).runs(&[(node, pct)])
    };
    (0..).zip(cpus).map(thread).collect()
}

/// Fields of a process that were read on demand: its CPUs as a list, and its share of huge pages in percent.
pub fn read_about(samples: &mut [Sample], pid: u32, cpus: &str, huge_pct: f64) {
    let texts =
        Texts { cmdline: Ok(String::new()), cpus_allowed: Ok(cpus.into()), mems_allowed: Ok("0-1".into()) };
    let about = Arc::new(ProcFields { texts: Ok(Arc::new(texts)), huge_pct: Ok(huge_pct) });
    for sample in samples {
        let process = (pid, u64::from(pid) * 1_000_000);
        Arc::make_mut(&mut sample.about).insert(process, Ok(Arc::clone(&about)));
    }
}

/// Samples of the use of memory of a process, in user mode: the total number; those at memory of node 0 and
/// of node 1 while it ran on node 0; and those at memory without an address.
pub fn sample_use(samples: &mut [Sample], pid: u32, all: u64, [here, there, gone]: [u64; 3]) {
    let on = |node: u32, count: u64| ((Some(NodeId(node)), Some(NodeId(0))), count as f64);
    let rest = RestUse { by_node: [on(0, here), on(1, there)].into(), ..RestUse::default() };
    let plain = all - here - there - gone;
    let found = MemoryUse {
        samples: all,
        with_address: here + there,
        gone,
        plain,
        of_all: all,
        rest,
        ..MemoryUse::default()
    };
    let processes = [((pid, u64::from(pid) * 1_000_000), Arc::new(found))].into();
    let uses = MemoryUses { source: AccessSource::Clock, event: None, window_s: 10.0, processes };
    let uses = Arc::new(uses);
    for sample in samples {
        sample.memory_use = Some(Arc::clone(&uses));
    }
}

/// Findings of one rule in these samples.
pub fn found_in(host: &Arc<HostFacts>, samples: &[Sample], id: &str) -> Vec<Finding> {
    fold(host, samples).0.findings().iter().filter(|finding| finding.key.id == id).cloned().collect()
}

/// A machine of three nodes; the last one has memory and no CPUs.
pub fn with_tier(actors: Vec<Actor>) -> Machine {
    let mut world = machine(Shape { nodes: 3, sockets: 1, ..TWO }, actors);
    let mut host = HostFacts::clone(&world.host);
    host.topology.nodes[2].cpus.clear();
    host.topology.cpus.retain(|cpu| cpu.node.is_none_or(|node| node.0 != 2));
    world.cpus.retain(|cpu| cpu.node != 2);
    world.host = Arc::new(host);
    world
}

/// Adds counters of these roles after the existing ones; returns the slot of the first.
pub fn count_also(machine: &mut Machine, roles: &[Role]) -> usize {
    let host = Arc::make_mut(&mut machine.host);
    let first = host.events.len();
    host.events.extend(roles.iter().map(|role| Event {
        name: format!("{role:?}"),
        role: *role,
        ..Event::default()
    }));
    first
}

/// Cgroups of `count` more containers of docker; their ids.
pub fn more_containers(machine: &mut Machine, count: u64) -> Vec<u64> {
    let mut cgroups: BTreeMap<u64, String> = CGROUPS.map(|(id, path)| (id, path.into())).into();
    let ids: Vec<u64> = (100..100 + count).collect();
    cgroups.extend(ids.iter().map(|id| (*id, format!("/docker/{id:064x}"))));
    let groups = describe(&cgroups, &BTreeMap::new(), &mut ContainerNames::new(Path::new("/nonexistent")));
    machine.names = Arc::new(Names { groups, cgroups, users: BTreeMap::new() });
    ids
}
