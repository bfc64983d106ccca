//! Time that the diagnosis engine takes for an interval, by the number of processes.

use std::time::Instant;

use anyhow::Result;
use numatop_ng::finding::Engine;
use numatop_ng::snapshot::{RowKind, derive};
use numatop_ng::source::synthetic::{Actor, Machine, demo_machine};

use crate::Plan;
use crate::numbers::Spread;
use crate::report::{Cell, Report, Table};

/// Processes of the machine.
const PROCESSES: [u32; 3] = [500, 10_000, 100_000];

/// The most that an interval of the second of these may take, ms.
const LIMIT_MS: f64 = 1.0;

/// Intervals that are measured; the engine remembers a minute of them.
const INTERVALS: usize = 70;

/// The demo machine with so many more processes, a tenth of which work.
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

/// Time of each interval in microseconds.
fn measure(processes: u32, intervals: usize) -> Vec<f64> {
    let mut machine = machine(processes);
    let host = machine.host.clone();
    let mut engine = Engine::default();
    let mut previous = machine.tick();
    let mut times = Vec::new();
    for _ in 0..intervals {
        let current = machine.tick();
        let snapshot = derive(&host, Some(&previous), &current, RowKind::Processes);
        let begin = Instant::now();
        engine.take(&snapshot);
        times.push(begin.elapsed().as_secs_f64() * 1e6);
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
    let mut table = Table::new("An interval of the diagnosis engine, µs", &["processes", "µs"]);
    for processes in PROCESSES {
        let intervals = if plan.quick || processes > 50_000 { INTERVALS / 3 } else { INTERVALS };
        let times = measure(processes, intervals);
        let spread = Spread::of(&times);
        table.rows.push(vec![Cell::text(processes.to_string()), Cell::spread(spread, 0)]);
        if processes == PROCESSES[1] {
            report.at_most("an interval of 10,000 processes, ms", LIMIT_MS, spread.median / 1000.0, 2);
        }
    }
    report.tables.push(table);
    Ok(report)
}
