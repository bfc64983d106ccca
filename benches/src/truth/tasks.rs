//! Tasks of four kinds, one by one and all together.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use super::Said;
use super::machine::Stat;
use crate::Plan;
use crate::frames::{Frames, any_line};
use crate::numbers::median;
use crate::process::{Process, schedstat};
use crate::report::{Cell, Report, Table};
use crate::work;

/// Over how many seconds CPU times are compared.
const SECONDS: usize = 5;
const PATIENCE: Duration = Duration::from_secs(30);

/// A task of known kind.
struct Subject {
    kind: &'static str,
    pid: u32,
}

/// The loads of one scenario.
struct Loads {
    subjects: Vec<Subject>,
    /// The output of the load of short-lived children: pid and ns of each.
    children: Receiver<(u32, u64)>,
    /// Ended with the scenario.
    _running: Vec<Process>,
}

impl Loads {
    fn start(hogs: usize) -> Result<Loads> {
        let (mut subjects, mut running) = (Vec::new(), Vec::new());
        let mut begin = |kind: &'static str, args: &[&str]| -> Result<Process> {
            let process = Process::start(work::command(args)?.stdout(Stdio::piped()))?;
            subjects.push(Subject { kind, pid: process.pid() });
            Ok(process)
        };
        for _ in 0..hogs {
            running.push(begin("CPU hog", &["hog"])?);
        }
        for _ in 0..4 {
            running.push(begin("sleeper", &["nap"])?);
        }
        let mut first = begin("1 ms alternator", &["alternate"])?;
        let mut line = String::new();
        let out = first.child().stdout.take().context("standard output was asked for as a pipe")?;
        BufReader::new(out).read_line(&mut line)?;
        subjects.push(Subject { kind: "1 ms alternator", pid: line.trim().parse()? });
        for subject in subjects.iter().filter(|subject| subject.kind == "1 ms alternator") {
            hold_to_cpu_0(subject.pid)?;
        }
        running.push(first);
        let mut parent = Process::start(work::command(&["children"])?.stdout(Stdio::piped()))?;
        let out = parent.child().stdout.take().context("standard output was asked for as a pipe")?;
        running.push(parent);
        let (send, children) = channel();
        thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let parsed =
                    line.split_once(' ').and_then(|(pid, ns)| Some((pid.parse().ok()?, ns.parse().ok()?)));
                if parsed.is_none_or(|child| send.send(child).is_err()) {
                    return;
                }
            }
        });
        Ok(Loads { subjects, children, _running: running })
    }
}

fn hold_to_cpu_0(pid: u32) -> Result<()> {
    let status = Command::new("taskset").args(["-cp", "0", &pid.to_string()]).stdout(Stdio::null()).status();
    status.context("running taskset (package util-linux)").map(|_| ())
}

/// Relative errors by kind, in percent.
#[derive(Default)]
struct Errors(Vec<(&'static str, f64)>);

impl Errors {
    fn add(&mut self, kind: &'static str, said: u64, truth: u64) {
        self.0.push((kind, (said as f64 - truth as f64).abs() * 100.0 / truth as f64));
    }

    fn of(&self, kind: &str) -> Vec<f64> {
        self.0.iter().filter(|(it, _)| *it == kind).map(|(_, error)| *error).collect()
    }
}

/// The sum over all rows and the machine's busy time, s, over one window.
struct Window {
    what: &'static str,
    said: f64,
    busy: f64,
    columns: f64,
    unseen: f64,
}

pub fn run(plan: &Plan, report: &mut Report) -> Result<()> {
    let windows = if plan.quick { 1 } else { 4 };
    let cpus = thread::available_parallelism()?.get();
    let (mut errors, mut sums) = (Errors::default(), Vec::new());
    scenario(plan, "every CPU busy", cpus, windows, &mut errors, &mut sums)?;
    scenario(plan, "partly idle", 0, windows, &mut errors, &mut sums)?;

    let mut table = Table::new(
        format!("Error of cpu_ns over {SECONDS} s against /proc/PID/schedstat, in % of it."),
        &["tasks", "comparisons", "median", "maximum"],
    );
    for kind in ["CPU hog", "1 ms alternator", "sleeper", "short-lived child"] {
        let of_kind = errors.of(kind);
        let most = of_kind.iter().copied().reduce(f64::max).with_context(|| format!("no {kind} was seen"))?;
        table.rows.push(vec![
            Cell::text(kind),
            Cell::Number(of_kind.len() as f64, 0),
            Cell::Number(median(&of_kind), 4),
            Cell::Number(most, 4),
        ]);
        report.at_most(format!("{kind}: largest error in %"), 1.0, most, 4);
    }
    report.tables.push(table);

    let mut table = Table::new(
        format!(
            "Sum over all rows, ended processes included, against the busy time of /proc/stat over {SECONDS} s. \
             Busy: {cpus} CPUs times the interval, less idle, iowait and steal; in brackets the sum of the busy \
             columns, which are samples of the timer tick."
        ),
        &["load", "rows, s", "/proc/stat, s", "error, %", "without a row, s"],
    );
    let error = |window: &Window| (window.said - window.busy).abs() * 100.0 / window.busy;
    for window in &sums {
        table.rows.push(vec![
            Cell::text(window.what),
            Cell::Number(window.said, 3),
            Cell::text(format!("{:.3} ({:.3})", window.busy, window.columns)),
            Cell::Number(error(window), 3),
            Cell::Number(window.unseen, 3),
        ]);
    }
    report.tables.push(table);
    report.note(
        "*Without a row* is the CPU time, by schedstat, of processes that /proc lists and numatop-ng does not: \
         those that the kernel hides from BPF.",
    );
    for what in ["every CPU busy", "partly idle"] {
        let of_load: Vec<f64> = sums.iter().filter(|window| window.what == what).map(error).collect();
        report.at_most(format!("sum over rows, {what}: median error in %"), 0.5, median(&of_load), 3);
    }
    Ok(())
}

/// CPU time in ns of processes that have no row.
fn without_row(said: &Said) -> HashMap<u32, u64> {
    let dirs = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = dirs.filter_map(|dir| dir.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| said.of(*pid).is_none())
        .map(|pid| {
            let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
            let tids = threads.filter_map(|dir| dir.file_name().to_str()?.parse().ok());
            (pid, tids.filter_map(schedstat).sum())
        })
        .collect()
}

fn scenario(
    plan: &Plan,
    what: &'static str,
    hogs: usize,
    windows: usize,
    errors: &mut Errors,
    sums: &mut Vec<Window>,
) -> Result<()> {
    let cpus = thread::available_parallelism()?.get();
    let loads = Loads::start(hogs)?;
    let pids: Vec<u32> = loads.subjects.iter().map(|subject| subject.pid).collect();
    let mut command = Command::new(&plan.binary);
    command.args(["-b", "-d", "1", "--json-full"]);
    // The kernel's side is read the moment a line arrives: as soon as can be after its sample.
    let mut tool = Frames::start(&mut command, any_line, move |_| {
        let stat = Stat::read();
        (stat, pids.iter().map(|pid| schedstat(*pid)).collect::<Vec<_>>())
    })?;
    let mut said = Said::default();
    tool.next(PATIENCE)?;
    let first = tool.next(PATIENCE)?;
    said.hear(&first.line)?;
    let (mut stat, mut truth) = (first.probed.0?, first.probed.1);
    let mut rows: Vec<Option<u64>> = loads.subjects.iter().map(|subject| said.of(subject.pid)).collect();
    let mut sum = said.sum_ns();
    let mut unseen = without_row(&said);
    // Children that ended before the first line are in no row.
    loads.children.try_iter().for_each(drop);
    for _ in 0..windows {
        let mut last = None;
        for _ in 0..SECONDS {
            let frame = tool.next(PATIENCE)?;
            said.hear(&frame.line)?;
            last = Some(frame.probed);
        }
        let (now_stat, now_truth) = last.context("a window has lines")?;
        let now_stat = now_stat?;
        let now_rows: Vec<Option<u64>> = loads.subjects.iter().map(|subject| said.of(subject.pid)).collect();
        for (at, subject) in loads.subjects.iter().enumerate() {
            let delta = |from: &[Option<u64>], to: &[Option<u64>]| Some(to[at]? - from[at]?);
            let missing = || format!("{} {} has no row or no schedstat", subject.kind, subject.pid);
            let said = delta(&rows, &now_rows).with_context(missing)?;
            errors.add(subject.kind, said, delta(&truth, &now_truth).with_context(missing)?);
        }
        let now_unseen = without_row(&said);
        let hidden = now_unseen.iter().filter_map(|(pid, ns)| Some(ns.saturating_sub(*unseen.get(pid)?)));
        sums.push(Window {
            what,
            unseen: hidden.sum::<u64>() as f64 / 1e9,
            said: (said.sum_ns() - sum) as f64 / 1e9,
            busy: now_stat.busy_since(&stat, cpus),
            columns: now_stat.columns_since(&stat),
        });
        (stat, truth, rows, sum, unseen) = (now_stat, now_truth, now_rows, said.sum_ns(), now_unseen);
    }
    // The youngest may have ended after the last line.
    let children: Vec<(u32, u64)> = loads.children.try_iter().collect();
    for (pid, ns) in children.iter().take(children.len().saturating_sub(50)) {
        let found = said.of(*pid).with_context(|| format!("short-lived child {pid} has no row"))?;
        errors.add("short-lived child", found, *ns);
    }
    Ok(())
}
