//! Time that the diagnosis engine takes for an interval, by the number of processes, threads and nodes.

use std::time::Instant;

use anyhow::Result;
use numatop_ng::finding::Engine;
use numatop_ng::model::sample::{HostFacts, Names};
use numatop_ng::model::topology::{Cpu, Llc, Node};
use numatop_ng::model::units::{CpuId, NodeId};
use numatop_ng::snapshot::{RowKind, derive, derive_tasks};
use numatop_ng::source::synthetic::{Actor, Machine, demo_machine};
use numatop_ng::tui::history::{History, Want};

use crate::Plan;
use crate::numbers::Spread;
use crate::report::{Cell, Report, Table};

/// Processes of the machine.
const PROCESSES: [u32; 4] = [0, 500, 10_000, 100_000];

/// The number of processes with a limit, and the most that an interval may take then, ms.
const LIMITED: u32 = 10_000;
const LIMIT_MS: f64 = 1.0;

/// Intervals that are measured; the engine remembers a minute of them.
const INTERVALS: usize = 70;

/// The demo machine with `processes` more processes; a tenth of them work.
fn machine(processes: u32) -> Machine {
    let mut machine = demo_machine();
    let nodes = machine.nodes.len() as u32;
    let new = (0..processes).map(|at| {
        let actor =
            Actor { memory: vec![256; nodes as usize], rss: 1 << 30, ..Actor::new(1_000_000 + at, "worker") };
        let pct = if at % 10 == 0 { 2000.0 / f64::from(processes) } else { 0.0 };
        Actor { asleep: at % 10 != 0, ..actor }.runs(&[(at % nodes, pct)])
    });
    machine.actors.extend(new);
    machine
}

/// The demo machine with `threads` more threads, in processes of 500 each; one in a hundred works.
fn threaded(threads: u32) -> Machine {
    let mut machine = demo_machine();
    let new = (0..threads).map(|at| {
        let tid = 1_000_000 + at;
        let actor = Actor { pid: tid - at % 500, rss: 1 << 30, ..Actor::new(tid, "worker") };
        let pct = if at % 100 == 0 { 2.0 } else { 0.0 };
        Actor { asleep: at % 100 != 0, ..actor }.runs(&[(0, pct)])
    });
    machine.actors.extend(new);
    machine
}

/// A machine of `nodes` nodes, and `processes` processes whose threads and memory are on all of them.
pub(crate) fn wide(nodes: u32, processes: u32) -> Machine {
    wide_of(nodes, 8, processes)
}

/// The same with `cpus` CPUs on each node.
pub(crate) fn wide_of(nodes: u32, cpus: u32, processes: u32) -> Machine {
    let demo = demo_machine();
    let mut host = HostFacts::clone(&demo.host);
    let first = host.topology.nodes[0].clone();
    let topology = &mut host.topology;
    topology.nodes = (0..nodes)
        .map(|id| Node {
            id: NodeId(id),
            cpus: (id * cpus..(id + 1) * cpus).map(CpuId).collect(),
            distances: (0..nodes).map(|to| (NodeId(to), if to == id { 10 } else { 20 + to % 4 })).collect(),
            measured: Vec::new(),
            devices: Vec::new(),
            ..first.clone()
        })
        .collect();
    topology.cpus = (0..nodes * cpus)
        .map(|id| Cpu {
            id: CpuId(id),
            online: true,
            node: Some(NodeId(id / cpus)),
            socket: Some((id / cpus) as i32),
            core_id: Some(id as i32),
            core: id,
            llc: id / cpus,
            siblings: vec![CpuId(id)],
        })
        .collect();
    topology.llcs = (0..nodes)
        .map(|id| Llc {
            cpus: topology.nodes[id as usize].cpus.clone(),
            level: Some(3),
            size_bytes: Some(32 << 20),
        })
        .collect();
    (topology.cores, topology.sockets) = (nodes * cpus, nodes);
    (topology.possible_cpus, topology.possible_nodes) = (nodes * cpus, nodes);
    let runs: Vec<(u32, f64)> = (0..nodes).map(|node| (node, 400.0 / f64::from(processes))).collect();
    let actors = (0..processes).map(|at| {
        let actor = Actor {
            memory: vec![64; nodes as usize],
            rss: 16 << 30,
            node_moves: 400,
            ..Actor::new(1_000_000 + at, "worker")
        };
        actor.runs(&runs)
    });
    Machine::new(host, Names::clone(&demo.names), actors.collect())
}

/// Time of each interval in microseconds: to derive rows of processes, and that of the engine; and the number of rows.
fn measure(mut machine: Machine, intervals: usize) -> ([Vec<f64>; 2], usize) {
    let host = machine.host.clone();
    let mut engine = Engine::default();
    let mut previous = machine.tick();
    let (mut times, mut rows) = ([Vec::new(), Vec::new()], 0);
    for _ in 0..intervals {
        let current = machine.tick();
        let begin = Instant::now();
        let snapshot = derive(&host, Some(&previous), &current, RowKind::Processes);
        let derived = Instant::now();
        engine.take(&snapshot);
        times[0].push((derived - begin).as_secs_f64() * 1e6);
        times[1].push(derived.elapsed().as_secs_f64() * 1e6);
        (previous, rows) = (current, snapshot.tasks.len());
    }
    (times, rows)
}

/// Time of each interval in microseconds: rows of threads alone, and everything that a live view of threads
/// derives, with findings.
fn measure_view(mut machine: Machine, intervals: usize) -> [Vec<f64>; 2] {
    let host = machine.host.clone();
    let mut history = History::new(Want { threads: true, ..Want::default() });
    let mut previous = machine.tick();
    history.sample(host.clone(), previous.clone(), 1);
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..intervals {
        let current = machine.tick();
        let kept = current.clone();
        let begin = Instant::now();
        let rows = derive_tasks(&host, Some(&previous), &current, RowKind::Threads);
        times[0].push(begin.elapsed().as_secs_f64() * 1e6);
        drop(rows);
        let begin = Instant::now();
        history.sample(host.clone(), kept, 1);
        let shown = history.show();
        history.tidy();
        times[1].push(begin.elapsed().as_secs_f64() * 1e6);
        drop(shown);
        previous = current;
    }
    times
}

/// Measures the fold of intervals of made-up machines.
///
/// # Errors
/// None: nothing of this machine is asked.
pub fn run(plan: &Plan) -> Result<Report> {
    let mut report = Report::begin("findings");
    let columns = ["machine", "rows of processes and containers", "engine", "engine, ns for each process"];
    let mut table = Table::new("An interval of the diagnosis engine, µs", &columns);
    let mut add = |name: String, machine: Machine, most: usize| {
        let (times, rows) = measure(machine, if plan.quick { most / 3 } else { most });
        let [derived, took] = times.map(|times| Spread::of(&times));
        let each = took.median * 1000.0 / rows.max(1) as f64;
        let cells = [Cell::spread(derived, 0), Cell::spread(took, 0), Cell::text(format!("{each:.0}"))];
        table.rows.push([Cell::text(name)].into_iter().chain(cells).collect());
        took.median / 1000.0
    };
    for processes in PROCESSES {
        let most = if processes > 50_000 { INTERVALS / 3 } else { INTERVALS };
        let name = match processes {
            0 => "the demo machine".to_string(),
            more => format!("{more} processes"),
        };
        let ms = add(name, machine(processes), most);
        if processes == LIMITED {
            report.at_most("an interval of 10,000 processes, ms", LIMIT_MS, ms, 2);
        }
    }
    add("10000 threads of 20 processes".into(), threaded(10_000), INTERVALS);
    add("64 nodes, 100 processes on all of them".into(), wide(64, 100), INTERVALS);
    report.tables.push(table);
    let columns = ["machine", "rows of threads alone", "with processes and findings"];
    let mut table = Table::new("An interval of a live view of threads, µs", &columns);
    for (name, machine) in [
        ("10000 threads of 20 processes", threaded(10_000)),
        ("10000 processes of one thread", machine(LIMITED)),
    ] {
        let intervals = if plan.quick { INTERVALS / 3 } else { INTERVALS };
        let [alone, all] = measure_view(machine, intervals).map(|times| Spread::of(&times));
        table.rows.push(vec![Cell::text(name), Cell::spread(alone, 0), Cell::spread(all, 0)]);
    }
    report.tables.push(table);
    Ok(report)
}
