//! The cost of a context switch while the other CPU computes, and while it switches as well: CPUs that write to the same cache
//! line wait for each other.

use std::process::Stdio;
use std::thread;

use anyhow::{Context, Result, ensure};

use crate::Plan;
use crate::hotpath::{EMPTY, TWO, Watcher, pipe_on, run_time_of};
use crate::numbers::{Spread, median};
use crate::process::{Process, pinned};
use crate::report::{Cell, Report, Table};

/// The most that a switch may cost more while the other CPU switches, times what the empty program does.
const LIMIT: f64 = 1.1;

const WATCHERS: [Watcher; 3] =
    [EMPTY, Watcher::Ours("numatop-ng, no counters", ""), Watcher::Ours("numatop-ng, 2 counters", TWO)];

/// The load of the second CPU.
#[derive(Clone, Copy)]
enum Neighbour {
    Computes,
    Switches,
}

/// Two CPUs beside each other; not the first one where there are more, whose state shared no line with the next by its place alone.
fn cpus() -> Result<[usize; 2]> {
    let all = thread::available_parallelism().context("counting CPUs")?.get();
    ensure!(all > 1, "needs two CPUs");
    Ok(if all > 2 { [1, 2] } else { [0, 1] })
}

/// The load on the first of the CPUs, and that of its neighbour.
fn load([cpu, beside]: [usize; 2], neighbour: Neighbour, loops: u64) -> Result<()> {
    match neighbour {
        Neighbour::Computes => {
            let own = std::env::current_exe().context("finding our own program")?;
            let mut hog = pinned(beside, &own.to_string_lossy());
            let hog = Process::start(hog.args(["work", "hog"]).stdout(Stdio::null()))?;
            let done = pipe_on(cpu, loops, &[]);
            drop(hog);
            done.map(drop)
        }
        Neighbour::Switches => thread::scope(|scope| {
            let other = scope.spawn(|| pipe_on(beside, loops, &[]));
            pipe_on(cpu, loops, &[])?;
            other.join().expect("running a load does not panic").map(drop)
        }),
    }
}

/// # Errors
/// A watcher did not start, a load failed, or the machine has only one CPU.
pub fn run(plan: &Plan) -> Result<Report> {
    let mut report = Report::begin("Contention: a context switch beside those of another CPU");
    let (rounds, loops) = if plan.quick { (3, 50_000) } else { (9, 100_000) };
    let cpus = cpus()?;
    // By neighbour and watcher, the program's ns in each round.
    let mut costs: [[Vec<f64>; WATCHERS.len()]; 2] = [const { [const { Vec::new() }; WATCHERS.len()] }; 2];
    for round in 0..rounds {
        let mut neighbours = [(0, Neighbour::Computes), (1, Neighbour::Switches)];
        neighbours.rotate_left(round % 2);
        for (place, neighbour) in neighbours {
            let found = run_time_of(plan, &WATCHERS, &[], round..round + 1, || load(cpus, neighbour, loops))
                .context("measuring beside a neighbour")?;
            for (costs, found) in costs[place].iter_mut().zip(&found) {
                costs.extend(found.iter().map(|cost| cost.switch_program));
            }
        }
    }
    let ratios = |at: usize| -> Vec<f64> {
        costs[1][at].iter().zip(&costs[0][at]).map(|(switches, computes)| switches / computes).collect()
    };
    let title = format!(
        "ns a switch on CPU {} beside CPU {} by BPF run-time statistics, median (quartiles) of {rounds} rounds of {} switches on a CPU.",
        cpus[0],
        cpus[1],
        2 * loops
    );
    let columns = ["watcher", "beside a CPU that computes", "beside one that switches, too", "times"];
    let mut table = Table::new(title, &columns);
    for (at, watcher) in WATCHERS.iter().enumerate() {
        table.rows.push(vec![
            Cell::text(watcher.name()),
            Cell::spread(Spread::of(&costs[0][at]), 0),
            Cell::spread(Spread::of(&costs[1][at]), 0),
            Cell::spread(Spread::of(&ratios(at)), 3),
        ]);
        if at > 0 {
            let what = format!("{}: times beside switches, by that of the empty program", watcher.name());
            report.at_most(what, LIMIT, median(&ratios(at)) / median(&ratios(0)), 3);
        }
    }
    report.tables.push(table);
    Ok(report)
}
