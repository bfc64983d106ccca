//! The cost of containers: a context switch of tasks that are out of scope, and a refresh with many cgroups.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::Plan;
use crate::cgroups::Groups;
use crate::hotpath::{EMPTY, TWO, Watcher, pipe, run_time_of};
use crate::numbers::{Spread, median};
use crate::process::Process;
use crate::refresh::{on_screen, stream};
use crate::report::{Cell, Report, Table};
use crate::screen::Screen;
use crate::work::{self, wait_until_ready};

/// Few cgroups, and many, with the same tasks in them.
const FEW: usize = 10;
const MANY: usize = 2000;

/// The first refreshes fill tables, and the first readings of limits are due.
const WARM_UP: usize = 3;

/// Runs of the load that are out of scope.
const LOOPS: u64 = 100_000;

/// # Errors
/// cgroups cannot be made here, or numatop-ng did not start.
pub fn run(plan: &Plan) -> Result<Report> {
    let mut report = Report::begin("Containers: what a scope and many cgroups cost");
    let mut load =
        Process::start(work::command(&["family", "--processes", &MANY.to_string()])?.stdout(Stdio::piped()))?;
    wait_until_ready(load.child())?;
    let pids = children(load.pid())?;
    let mut groups = Groups::create()?;
    let result = measure(plan, &mut report, &pids, &mut groups);
    // Before the groups, which cannot be removed while they have tasks.
    drop(load);
    std::thread::sleep(Duration::from_millis(500));
    drop(groups);
    result?;
    Ok(report)
}

fn measure(plan: &Plan, report: &mut Report, pids: &[u32], groups: &mut Groups) -> Result<()> {
    groups.spread(pids, FEW)?;
    scope(plan, report, groups)?;
    refresh(plan, report, pids, groups)
}

/// Process ids of the children of `pid`.
pub fn children(pid: u32) -> Result<Vec<u32>> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    text.split_whitespace().map(|word| word.parse().context("a process id")).collect()
}

/// The load of `hotpath`, in no container, while one container is watched.
fn scope(plan: &Plan, report: &mut Report, groups: &Groups) -> Result<()> {
    let rounds = if plan.quick { 3 } else { 9 };
    let one = groups.path(0).display().to_string();
    let watchers = [
        EMPTY,
        Watcher::Ours("numatop-ng, a scope of one container, no counters", ""),
        Watcher::Ours("the same, 2 counters", TWO),
    ];
    let costs = run_time_of(plan, &watchers, &["--cgroup", &one], 0..rounds, || pipe(LOOPS, &[]).map(drop))?;
    let mut table = Table::new(
        format!(
            "ns by BPF run-time statistics of the program at sched_switch while only one container is watched and \
             none of the tasks that switch is in it; median (quartiles) of {rounds} interleaved rounds of about {} switches.",
            2 * LOOPS
        ),
        &["watcher", "program at sched_switch", "all programs, per switch", "above empty"],
    );
    let mut above = Vec::new();
    for (at, watcher) in watchers.iter().enumerate() {
        let switch: Vec<f64> = costs[at].iter().map(|cost| cost.switch_program).collect();
        let all: Vec<f64> = costs[at].iter().map(|cost| cost.all_programs).collect();
        let more: Vec<f64> = costs[at]
            .iter()
            .zip(&costs[0])
            .map(|(cost, empty)| cost.switch_program - empty.switch_program)
            .collect();
        table.rows.push(vec![
            Cell::text(watcher.name()),
            Cell::spread(Spread::of(&switch), 0),
            Cell::spread(Spread::of(&all), 0),
            if at == 0 { Cell::Nothing } else { Cell::spread(Spread::of(&more), 0) },
        ]);
        above.push(median(&more));
    }
    report.tables.push(table);
    // A machine on which the empty program costs 65 ns should not see more than 90.
    report.at_most("ns above the empty program, tasks out of scope, no counters", 25.0, above[1], 1);
    report.at_most("ns above the empty program, tasks out of scope, 2 counters", 25.0, above[2], 1);
    Ok(())
}

/// The view that is refreshed.
#[derive(Clone, Copy)]
enum View {
    Tasks,
    Containers,
    Screen,
}

const VIEWS: [View; 3] = [View::Tasks, View::Containers, View::Screen];

impl View {
    fn name(self) -> &'static str {
        match self {
            View::Tasks => "numatop-ng -b --top 50",
            View::Containers => "numatop-ng -b --by-container --top 50",
            View::Screen => "numatop-ng, live view",
        }
    }

    /// CPU ms of one of `count` refreshes a second apart.
    fn measure(self, plan: &Plan, count: usize) -> Result<f64> {
        let mut command = Command::new(&plan.binary);
        command.args(["-b", "-d", "1", "--top", "50", "--events", ""]);
        match self {
            View::Tasks => {}
            View::Containers => drop(command.arg("--by-container")),
            View::Screen => {
                let binary = plan.binary.to_string_lossy();
                let mut screen = Screen::start(&binary, &["-d", "1", "--events", ""], &[])?;
                return Ok(on_screen(&mut screen, WARM_UP, count)?.cpu_ms);
            }
        }
        // The line of the machine begins each refresh.
        Ok(stream(&mut command, |line| line.contains(" · interval "), WARM_UP, count)?.cpu_ms)
    }
}

/// The same tasks in few cgroups and in many.
fn refresh(plan: &Plan, report: &mut Report, pids: &[u32], groups: &mut Groups) -> Result<()> {
    let (rounds, count) = if plan.quick { (2, 5) } else { (7, 10) };
    let mut costs = [const { [const { Vec::new() }; 2] }; VIEWS.len()];
    for round in 0..rounds {
        for turn in 0..2 {
            let which = (round + turn) % 2;
            groups.spread(pids, [FEW, MANY][which])?;
            for (at, view) in VIEWS.iter().enumerate() {
                costs[at][which].push(view.measure(plan, count).context(view.name())?);
            }
        }
    }
    let (few, many) = (format!("{FEW} cgroups, CPU ms"), format!("{MANY} cgroups, CPU ms"));
    let mut table = Table::new(
        format!(
            "CPU time of one refresh with {MANY} processes in few and in many cgroups; median (quartiles) of {rounds} interleaved rounds."
        ),
        &["program", &few, &many, "ratio"],
    );
    for (view, [few, many]) in VIEWS.iter().zip(&costs) {
        let ratios: Vec<f64> = many.iter().zip(few).map(|(many, few)| many / few).collect();
        table.rows.push(vec![
            Cell::text(view.name()),
            Cell::spread(Spread::of(few), 2),
            Cell::spread(Spread::of(many), 2),
            Cell::spread(Spread::of(&ratios), 3),
        ]);
        let what = format!("{}: times the CPU time with {FEW} cgroups", view.name());
        report.at_most(what, 1.1, median(&ratios), 2);
    }
    report.tables.push(table);
    report.note(format!(
        "Load of the refresh: {MANY} processes, each in a cgroup of the memory, cpu, cpuacct and cpuset controllers \
         (or of cgroup v2); every twentieth computes 20 µs every 20 ms, the others sleep."
    ));
    Ok(())
}
