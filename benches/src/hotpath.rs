//! The cost of a context switch while a tool watches: ns in its BPF programs, and wall-clock time.

use std::ops::Range;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::Plan;
use crate::empty::{Does, Program};
use crate::numbers::{Spread, median};
use crate::process::{Process, children_cpu_time, pinned};
use crate::progs::{self, PerSwitch, RunTime};
use crate::report::{Cell, Report, Table};

/// The CPU that the load runs on; everything else is kept off it if the machine has another one.
const LOAD_CPU: usize = 0;

/// Programs are attached this long after the last of them was loaded.
const SETTLE: Duration = Duration::from_millis(500);

/// Before each run of the load, with a watcher or without. The kernel compensates other tasks for the time
/// that a real-time task took from them, and the run after the next would pay for it.
const PAUSE: Duration = Duration::from_secs(1);

/// The tool that watches the load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Watcher {
    /// A program that does nothing, or only a part of what ours does.
    Part(&'static str, Does),
    /// numatop-ng with a list of events; of everything, or of a process that is not the load.
    Ours(&'static str, &'static str),
    OutOfScope(&'static str, &'static str),
    /// A tool of libbpf-tools.
    Peer(&'static str),
    /// perf stat with a list of events, on the whole machine: no program at the switch.
    PerfMachine(&'static str, &'static str),
    /// perf stat of the load: the kernel takes the events off and on at every switch.
    PerfTask(&'static str, &'static str),
    /// `numatop-ng run` of the load, with a list of events.
    Run(&'static str, &'static str),
}

/// The program that all others are compared with.
pub const EMPTY: Watcher = Watcher::Part("empty program", Does::Nothing);

/// Two counters that every machine has.
pub const TWO: &str = "cpu-clock,page-faults";

const WATCHERS: [Watcher; 15] = [
    EMPTY,
    Watcher::Ours("numatop-ng, no counters", ""),
    Watcher::Ours("numatop-ng, 2 counters", TWO),
    Watcher::Ours("numatop-ng, 4 counters", "cpu-clock,page-faults,task-clock,cpu-migrations"),
    Watcher::Ours(
        "numatop-ng, 8 counters",
        "cpu-clock,page-faults,task-clock,cpu-migrations,context-switches,minor-faults,major-faults,alignment-faults",
    ),
    Watcher::OutOfScope("numatop-ng, 2 counters, load out of scope", TWO),
    Watcher::Peer("runqslower"),
    Watcher::Peer("cpudist"),
    Watcher::Peer("runqlat"),
    Watcher::Part("only the record of the task", Does::FindRecord),
    Watcher::Part("only that and 2 counters", Does::ReadCounters),
    Watcher::PerfMachine("perf stat -a, 2 counters", TWO),
    Watcher::PerfTask(PERF_STAT, TWO),
    Watcher::Run("numatop-ng run of the load, no counters", ""),
    Watcher::Run(RUN, TWO),
];

const PERF_STAT: &str = "perf stat of the load, 2 counters";
const RUN: &str = "numatop-ng run of the load, 2 counters";

/// A watcher at work. It is detached when this goes away.
enum Watching {
    Own {
        _program: Program,
    },
    Program(Process),
    /// perf, which counts without a program, or a tool that runs the load itself.
    Beside(Option<Process>),
}

impl Watcher {
    pub fn name(self) -> &'static str {
        match self {
            Watcher::Part(name, _)
            | Watcher::Ours(name, _)
            | Watcher::OutOfScope(name, _)
            | Watcher::Peer(name)
            | Watcher::PerfMachine(name, _)
            | Watcher::PerfTask(name, _)
            | Watcher::Run(name, _) => name,
        }
    }

    /// Whether there are BPF programs to measure while it only watches.
    fn has_programs(self) -> bool {
        !matches!(self, Watcher::PerfMachine(..) | Watcher::PerfTask(..) | Watcher::Run(..))
    }

    /// The program that runs the load, with its arguments.
    fn runner(self, plan: &Plan) -> Vec<String> {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        match self {
            Watcher::PerfTask(_, events) => words(&["perf", "stat", "-o", "/dev/null", "-e", events]),
            // The tool itself is where all watchers are: beside the load, and without its priority.
            Watcher::Run(_, events) => {
                let (ours, binary) = (beside().to_string(), plan.binary.to_string_lossy());
                let load = LOAD_CPU.to_string();
                let tool =
                    ["chrt", "--other", "0", "taskset", "-c", &ours, &binary, "run", "--events", events];
                words(&[&tool[..], &["--", "taskset", "-c", &load, "chrt", "--fifo", "1"]].concat())
            }
            _ => Vec::new(),
        }
    }

    /// `delay`: seconds between two refreshes of numatop-ng. `scope`: flags that say what it watches.
    fn start(self, plan: &Plan, delay: &str, scope: &[&str]) -> Result<Watching> {
        let mut command = match self {
            Watcher::Part(_, does) => return Ok(Watching::Own { _program: Program::attach(does)? }),
            Watcher::Peer(tool) => pinned(beside(), tool),
            Watcher::Ours(_, events) | Watcher::OutOfScope(_, events) => {
                let mut command = pinned(beside(), &plan.binary.to_string_lossy());
                command.args(["-b", "-d", delay, "--format", "json", "--top", "50", "--events", events]);
                if matches!(self, Watcher::OutOfScope(..)) {
                    command.args(["--pid", "1"]);
                }
                command.args(scope);
                command
            }
            Watcher::PerfMachine(_, events) => {
                let mut command = pinned(beside(), "perf");
                command.args(["stat", "-a", "-e", events, "sleep", "3600"]);
                let perf = Process::start(command.stdout(Stdio::null()).stderr(Stdio::null()))?;
                thread::sleep(SETTLE);
                return Ok(Watching::Beside(Some(perf)));
            }
            Watcher::PerfTask(..) | Watcher::Run(..) => return Ok(Watching::Beside(None)),
        };
        let mut process = Process::start(command.stdout(Stdio::null()).stderr(Stdio::null()))?;
        let began = Instant::now();
        let mut loaded = 0;
        let mut since = Instant::now();
        while loaded == 0 || since.elapsed() < SETTLE {
            process.check().with_context(|| format!("starting {}", self.name()))?;
            if began.elapsed() > Duration::from_secs(20) {
                bail!("{} has loaded no BPF program in 20 s", self.name());
            }
            thread::sleep(Duration::from_millis(50));
            let now = progs::of_process(process.pid())?.len();
            if now != loaded {
                (loaded, since) = (now, Instant::now());
            }
        }
        Ok(Watching::Program(process))
    }
}

impl Watching {
    fn pid(&self) -> u32 {
        match self {
            Watching::Own { .. } => std::process::id(),
            Watching::Program(process) => process.pid(),
            Watching::Beside(process) => process.as_ref().map_or(0, Process::pid),
        }
    }
}

/// A CPU other than the load's, if the machine has one.
fn beside() -> usize {
    thread::available_parallelism().map_or(1, |cpus| cpus.get()) - 1
}

/// The time of an operation (two context switches) of `perf bench sched pipe`, in µs.
#[derive(Clone, Copy)]
pub struct Pipe {
    wall: f64,
    /// Of both tasks: does not grow when others want the CPU too.
    cpu: f64,
}

impl Pipe {
    fn mean(self, other: Pipe) -> Pipe {
        Pipe { wall: (self.wall + other.wall) / 2.0, cpu: (self.cpu + other.cpu) / 2.0 }
    }
}

/// Runs the load on its CPU, ahead of everything else on the machine. It has a real-time priority: otherwise
/// tasks would take turns with it, and its wall-clock time would include theirs. `runner` is the command that
/// runs the load, if any.
pub fn pipe(loops: u64, runner: &[String]) -> Result<Pipe> {
    pipe_on(LOAD_CPU, loops, runner)
}

/// The same on any CPU.
///
/// # Errors
/// As there.
pub fn pipe_on(cpu: usize, loops: u64, runner: &[String]) -> Result<Pipe> {
    let before = children_cpu_time();
    let output = pinned(cpu, "chrt")
        .args(["--fifo", "1"])
        .args(runner)
        .args(["perf", "bench", "sched", "pipe", "-l", &loops.to_string()])
        .stdin(Stdio::null())
        .output()
        .context("running perf bench sched pipe")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let per_op = text.lines().find_map(|line| line.trim().strip_suffix("usecs/op")?.trim().parse().ok());
    let wall = per_op.with_context(|| {
        format!("perf bench sched pipe said: {text}{}", String::from_utf8_lossy(&output.stderr))
    })?;
    let cpu = (children_cpu_time() - before).as_secs_f64() * 1e6 / loops as f64;
    Ok(Pipe { wall, cpu })
}

/// # Errors
/// A tool is missing or did not start; a program is not permitted.
pub fn run(plan: &Plan) -> Result<Report> {
    let mut report = Report::begin("Hot path: what a context switch costs");
    let perf = Command::new("perf").arg("--version").output().context("running perf (package linux-perf)")?;
    let perf = String::from_utf8_lossy(&perf.stdout).trim().to_string();
    let (rounds, loops) = if plan.quick { (3, 50_000) } else { (9, 100_000) };
    run_time(plan, &mut report, rounds, loops)?;
    let (rounds, loops) = if plan.quick { (3, 50_000) } else { (13, 100_000) };
    wall_clock(plan, &mut report, rounds, loops)?;
    report.note(format!(
        "Load: `taskset -c {LOAD_CPU} perf bench sched pipe`, two tasks that do nothing but wake each other ({perf}), with real-time priority 1; \
         the watching tool is held to CPU {}.",
        beside()
    ));
    Ok(report)
}

/// The cost of a switch of `load` for each of `watchers`, by BPF run-time statistics: all in turn, so that a
/// slow moment of the machine affects all alike. `scope` are flags of numatop-ng; the number of a round
/// decides which of them is first.
///
/// # Errors
/// A watcher did not start, or the load failed.
pub fn run_time_of(
    plan: &Plan,
    watchers: &[Watcher],
    scope: &[&str],
    rounds: Range<usize>,
    load: impl Fn() -> Result<()>,
) -> Result<Vec<Vec<PerSwitch>>> {
    let mut costs: Vec<Vec<PerSwitch>> = vec![Vec::new(); watchers.len()];
    for round in rounds {
        for turn in 0..watchers.len() {
            let at = (round + turn) % watchers.len();
            // No refresh in between: this is about the switch.
            let watching = watchers[at].start(plan, "60", scope)?;
            let _measured = RunTime::measure()?;
            let before = progs::of_process(watching.pid())?;
            load()?;
            let after = progs::of_process(watching.pid())?;
            let cost = progs::per_switch(&before, &after).with_context(|| watchers[at].name().to_string())?;
            costs[at].push(cost);
        }
    }
    Ok(costs)
}

fn run_time(plan: &Plan, report: &mut Report, rounds: usize, loops: u64) -> Result<()> {
    // Watchers without programs are the last.
    let watchers = WATCHERS.iter().filter(|watcher| watcher.has_programs()).count();
    let costs = run_time_of(plan, &WATCHERS[..watchers], &[], 0..rounds, || pipe(loops, &[]).map(drop))?;
    let above = |at: usize| -> Vec<f64> {
        costs[at]
            .iter()
            .zip(&costs[0])
            .map(|(cost, empty)| cost.all_programs - empty.switch_program)
            .collect()
    };
    let mut table = Table::new(
        format!(
            "ns by BPF run-time statistics, median (quartiles) of {rounds} interleaved rounds of about {} switches. \
             *Above empty* is the difference to the empty program of the same round, over all programs of the tool.",
            2 * loops
        ),
        &["watcher", "program at sched_switch", "all programs, per switch", "above empty"],
    );
    for (at, watcher) in WATCHERS[..watchers].iter().enumerate() {
        let column =
            |read: fn(&PerSwitch) -> f64| Spread::of(&costs[at].iter().map(read).collect::<Vec<_>>());
        table.rows.push(vec![
            Cell::text(watcher.name()),
            Cell::spread(column(|cost| cost.switch_program), 0),
            Cell::spread(column(|cost| cost.all_programs), 0),
            if at == 0 { Cell::Nothing } else { Cell::spread(Spread::of(&above(at)), 0) },
        ]);
    }
    report.tables.push(table);
    let (none, two) = (median(&above(1)), median(&above(2)));
    report.at_most("ns above the empty program, no counters", 60.0, none, 1);
    report.at_most("ns above the empty program, 2 software counters", 270.0, two, 1);
    for (at, watcher) in
        WATCHERS.iter().enumerate().filter(|(_, watcher)| matches!(watcher, Watcher::Peer(_)))
    {
        let peer = median(&above(at));
        report.at_most(format!("no counters, ns above empty: below {}", watcher.name()), peer, none, 1);
        report.at_most(format!("2 counters, ns above empty: below {}", watcher.name()), peer, two, 1);
    }
    Ok(())
}

/// Time of the load with each watcher, against the mean of the runs without one before and after.
fn wall_clock(plan: &Plan, report: &mut Report, rounds: usize, loops: u64) -> Result<()> {
    let mut pairs: Vec<Vec<(Pipe, Pipe)>> = vec![Vec::new(); WATCHERS.len()];
    thread::sleep(PAUSE);
    let mut before = pipe(loops, &[])?;
    for round in 0..rounds {
        for turn in 0..WATCHERS.len() {
            let at = (round + turn) % WATCHERS.len();
            let began = Instant::now();
            let watching = WATCHERS[at].start(plan, "1", &[])?;
            thread::sleep(PAUSE.saturating_sub(began.elapsed()));
            let with = pipe(loops, &WATCHERS[at].runner(plan))?;
            drop(watching);
            thread::sleep(PAUSE);
            let after = pipe(loops, &[])?;
            pairs[at].push((with, before.mean(after)));
            before = after;
        }
    }
    let base = Spread::of(&pairs.iter().flatten().map(|(_, without)| without.wall).collect::<Vec<_>>());
    let spread = |at: usize, read: fn(&(Pipe, Pipe)) -> f64| {
        Spread::of(&pairs[at].iter().map(read).collect::<Vec<_>>())
    };
    let mut table = Table::new(
        format!(
            "The same load, BPF statistics off, each run between two runs without a watcher; median (quartiles) of \
             {rounds} interleaved rounds. numatop-ng refreshes once a second meanwhile. Without a watcher an \
             operation of two switches takes {:.2} µs ({:.2}–{:.2}). CPU time includes what a tool that runs the load takes \
             itself, its start as well.",
            base.median, base.low, base.high
        ),
        &["watcher", "wall-clock ratio", "CPU time ratio", "CPU ns added per switch"],
    );
    for (at, watcher) in WATCHERS.iter().enumerate() {
        table.rows.push(vec![
            Cell::text(watcher.name()),
            Cell::spread(spread(at, |(with, without)| with.wall / without.wall), 3),
            Cell::spread(spread(at, |(with, without)| with.cpu / without.cpu), 3),
            Cell::spread(spread(at, |(with, without)| (with.cpu - without.cpu) * 500.0), 0),
        ]);
    }
    report.tables.push(table);
    let ratio = |at| spread(at, |(with, without)| with.wall / without.wall).median;
    report.at_most("wall-clock ratio, no counters", 1.06, ratio(1), 3);
    report.at_most("wall-clock ratio, 2 software counters", 1.18, ratio(2), 3);
    let of = |name: &str| ratio(WATCHERS.iter().position(|watcher| watcher.name() == name).unwrap_or(0));
    report.at_most("wall-clock ratio, run with 2 counters: below perf stat", of(PERF_STAT), of(RUN), 3);
    let cpu = |at| spread(at, |(with, without)| with.cpu / without.cpu).median;
    report.at_most("CPU time ratio, 2 software counters", 1.25, cpu(2), 3);
    report.at_most("CPU time ratio, load out of scope", 1.05, cpu(5), 3);
    Ok(())
}
