//! Time, memory and size of a report, by the number of nodes and the length of the recording.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use numatop_ng::model::sample::Comm;
use numatop_ng::record::aggregate::Keep;
use numatop_ng::record::recorder::{RecordOptions, Recorder};
use numatop_ng::source::synthetic::Machine;

use crate::Plan;
use crate::findings::wide;
use crate::process::{pinned, resident};
use crate::record::Scratch;
use crate::report::{Cell, Report, Table};

/// Nodes of the machine.
const NODES: [u32; 4] = [1, 4, 16, 64];

/// Processes of the machine: each runs, and has memory, on all nodes.
const PROCESSES: u32 = 40;

/// A stretch: its name, its intervals, and the length of one in s.
const STRETCHES: [(&str, usize, u64); 3] = [("1 min", 60, 1), ("1 h", 720, 5), ("24 h", 17_280, 5)];

/// The most that a page of a day may have, bytes: up to 8 nodes, and above.
const LIMITS: [f64; 2] = [1e6, 1.5e6];

/// Threads of the machine whose report is timed, and tasks of a hundred that run in an interval.
const THREADS: [u32; 2] = [500, 5_000];
const ACTIVE: u64 = 16;
/// Threads of a process.
const TEAM: u32 = 5;
/// The most time that the report of a day of the first of [`THREADS`] may take, s: on one CPU, and on two.
const SECONDS: [f64; 2] = [6.0, 3.5];
/// The most memory that a report may take, MB, whatever its length.
const MEMORY: f64 = 150.0;

/// Numbers that look random and are the same every time (xorshift64, Marsaglia 2003).
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    /// From 0.5 to 1.5.
    fn around_one(&mut self) -> f64 {
        0.5 + self.below(1_000_000) as f64 / 1e6
    }
}

/// A machine whose numbers vary, as those of real ones do: constant curves would make small pages. Each
/// process has a separate name, but of `threads` threads only some run in an interval.
fn machine(nodes: u32, processes: u32, threads: Option<u32>) -> Machine {
    let mut machine = wide(nodes, threads.unwrap_or(processes));
    for (actor, at) in machine.actors.iter_mut().zip(0..) {
        actor.comm = Comm::new(&format!("worker-{}", at % processes));
        if threads.is_some() {
            actor.pid = 1_000_000 + at - at % TEAM;
            actor.runs = vec![(at % nodes, 20.0)];
        }
    }
    machine
}

/// Chooses what the machine does next.
fn wander(machine: &mut Machine, dice: &mut Dice, only_some: bool) {
    for actor in &mut machine.actors {
        actor.asleep = only_some && dice.below(100) >= ACTIVE;
        if actor.asleep {
            continue;
        }
        actor.ipc = dice.around_one();
        actor.wait_pct = dice.around_one();
        actor.node_moves = dice.below(400);
        actor.switches = dice.below(500);
    }
    machine.busy = 0.6 * dice.around_one();
}

fn record(path: &Path, machine: &mut Machine, intervals: usize, seconds: u64, only_some: bool) -> Result<()> {
    let options = RecordOptions {
        interval: Duration::from_secs(seconds),
        max_bytes: 64 << 30,
        max_age: None,
        keep: Keep::default(),
        lines: None,
    };
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    let mut recorder = Recorder::open(path, options)?;
    for _ in 0..=intervals {
        wander(machine, &mut dice, only_some);
        let sample = machine.step(seconds * 1_000_000_000);
        recorder.record(&machine.host, &sample)?;
    }
    recorder.finish()
}

/// The cost of a report.
struct Cost {
    took: Duration,
    /// Resident memory at its highest, bytes.
    peak: u64,
    /// Size of the page, bytes.
    page: u64,
}

/// Makes a report with `command`, which has the path of the binary.
fn make(mut command: Command, from: &Path, to: &Path) -> Result<Cost> {
    let begin = Instant::now();
    let mut child = command.arg("report").arg(from).arg("-o").arg(to).spawn().context("starting a report")?;
    let mut peak = 0;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        peak = peak.max(resident(child.id()).map_or(0, |(_, highest)| highest));
        std::thread::sleep(Duration::from_millis(2));
    };
    let took = begin.elapsed();
    if !status.success() {
        bail!("the report of {} failed: {status}", from.display());
    }
    Ok(Cost { took, peak, page: fs::metadata(to)?.len() })
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// Measures pages of made-up machines.
///
/// # Errors
/// A recording or a page cannot be written.
pub fn run(plan: &Plan) -> Result<Report> {
    let mut report = Report::begin("pages");
    if plan.threads.is_none() {
        sizes(plan, &mut report)?;
    }
    times(plan, &mut report)?;
    Ok(report)
}

/// Pages by the number of nodes and the length of the recording.
fn sizes(plan: &Plan, report: &mut Report) -> Result<()> {
    let columns = ["nodes", "recording", "recorded, MB", "report, s", "memory at most, MB", "page, kB"];
    let mut table = Table::new("A report of a made-up machine of 40 processes", &columns);
    for nodes in NODES {
        for (name, intervals, seconds) in STRETCHES {
            let is_day = intervals > 1000;
            if plan.quick && is_day {
                continue;
            }
            let scratch = Scratch::make()?;
            let (from, to) = (scratch.join("made-up.nrec"), scratch.join("page.html"));
            record(&from, &mut machine(nodes, PROCESSES, None), intervals, seconds, false)
                .context("recording a made-up machine")?;
            let cost = make(Command::new(&plan.binary), &from, &to)?;
            if is_day {
                let limit = LIMITS[usize::from(nodes > 8)];
                report.at_most(
                    format!("page of a day of {nodes} nodes, MB"),
                    limit / 1e6,
                    megabytes(cost.page),
                    2,
                );
                report.at_most(
                    format!("memory for a day of {nodes} nodes, MB"),
                    MEMORY,
                    megabytes(cost.peak),
                    0,
                );
            }
            table.rows.push(vec![
                Cell::Number(f64::from(nodes), 0),
                Cell::text(name),
                Cell::Number(megabytes(fs::metadata(&from)?.len()), 1),
                Cell::Number(cost.took.as_secs_f64(), 2),
                Cell::Number(megabytes(cost.peak), 0),
                Cell::Number(cost.page as f64 / 1e3, 0),
            ]);
        }
    }
    report.tables.push(table);
    Ok(())
}

/// A day of many threads, on one CPU and on two.
fn times(plan: &Plan, report: &mut Report) -> Result<()> {
    let (name, intervals, seconds) = STRETCHES[if plan.quick { 1 } else { 2 }];
    let columns =
        ["threads", "CPUs", "recorded, MB", "report, s", "ms an interval", "memory at most, MB", "page, kB"];
    let title = format!(
        "A report of {name} at {seconds} s (an hour where there are not {} threads) of a made-up machine of 4 nodes, {ACTIVE} of 100 threads \
         running in each interval",
        THREADS[0]
    );
    let mut table = Table::new(title, &columns);
    let wanted = plan.threads.map_or_else(|| THREADS.to_vec(), |only| vec![only as u32]);
    for threads in wanted {
        let scratch = Scratch::make()?;
        let from = scratch.join("made-up.nrec");
        // A day of thousands takes minutes to generate; an hour shows as much.
        let intervals = if threads == THREADS[0] { intervals } else { intervals.min(STRETCHES[1].1) };
        record(&from, &mut machine(4, PROCESSES, Some(threads)), intervals, seconds, true)
            .context("recording a made-up machine")?;
        let binary = plan.binary.to_str().context("the name of the binary is no text")?;
        let commands = [pinned(0, binary), Command::new(binary)];
        for ((command, cpus), limit) in commands.into_iter().zip(1..).zip(SECONDS) {
            let cost = make(command, &from, &scratch.join(&format!("page-{cpus}.html")))?;
            if threads == THREADS[0] && !plan.quick {
                let what = format!("report of a day of {threads} threads, {cpus} CPUs, s");
                report.at_most(what, limit, cost.took.as_secs_f64(), 2);
            }
            let what = format!("memory for {threads} threads, {cpus} CPUs, MB");
            report.at_most(what, MEMORY, megabytes(cost.peak), 0);
            table.rows.push(vec![
                Cell::Number(f64::from(threads), 0),
                Cell::Number(f64::from(cpus), 0),
                Cell::Number(megabytes(fs::metadata(&from)?.len()), 1),
                Cell::Number(cost.took.as_secs_f64(), 2),
                Cell::Number(cost.took.as_secs_f64() * 1e3 / intervals as f64, 2),
                Cell::Number(megabytes(cost.peak), 0),
                Cell::Number(cost.page as f64 / 1e3, 0),
            ]);
        }
    }
    report.note("With two CPUs: all that there are; a recording is read, derived, looked at for findings and added up on a thread each.");
    report.tables.push(table);
    Ok(())
}
