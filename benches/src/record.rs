//! The cost of recording: bytes and CPU time of a sample, how fast a day of them opens, and the output of
//! other recorders for the same machine.

#[path = "../../tests/recordings/machine.rs"]
#[allow(dead_code, reason = "the tests of recordings use more of it")]
mod machine;
mod peers;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use numatop_ng::model::sample::HostFacts;
use numatop_ng::record::aggregate::Keep;
use numatop_ng::record::recorder::{RecordOptions, Recorder};
use numatop_ng::source::Source;
use numatop_ng::source::live::{LiveOptions, LiveSource};
use numatop_ng::source::recording::Recording;

use crate::Plan;
use crate::numbers::Spread;
use crate::process::{Process, cpu_time};
use crate::report::{Cell, Report, Table};
use crate::rest::tasks;
use crate::work::{self, wait_until_ready};

/// Tasks on the machine, how many of them run in each interval, and bytes of a sample that are enough for them.
const SIZES: [(usize, usize, f64); 2] = [(500, 80, 4_000.0), (5_000, 750, 35_000.0)];

const SECOND: Duration = Duration::from_secs(1);

/// # Errors
/// numatop-ng or a load did not start, or the recordings do not fit on the disk.
pub fn run(plan: &Plan) -> Result<Report> {
    let mut report = Report::begin("Recordings: size, cost, and how fast a day opens");
    let scratch = Scratch::make()?;
    samples(plan, &mut report, &scratch)?;
    days(plan, &mut report, &scratch)?;
    let load = load(SIZES[0])?;
    peers::run(plan, &mut report, &scratch)?;
    drop(load);
    Ok(report)
}

/// A temporary directory, removed with its content.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn make() -> Result<Scratch> {
        let dir = std::env::temp_dir().join(format!("numatop-bench-record-{}", std::process::id()));
        fs::create_dir(&dir).with_context(|| format!("making {}", dir.display()))?;
        Ok(Scratch(dir))
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("removing {}: {error}", self.0.display());
        }
    }
}

/// Fills the machine up to `all` tasks; `active` of them compute a little every 20 ms.
fn load((all, active, _): (usize, usize, f64)) -> Result<Process> {
    let missing = all.saturating_sub(tasks()).max(active).to_string();
    let args = ["threads", "--processes", &missing, "--threads", "1", "--active", &active.to_string()];
    let mut load = Process::start(work::command(&args)?.stdout(Stdio::piped()))?;
    wait_until_ready(load.child())?;
    Ok(load)
}

fn options() -> RecordOptions {
    RecordOptions {
        interval: SECOND,
        max_bytes: RecordOptions::MAX_BYTES,
        max_age: None,
        keep: Keep::default(),
        lines: None,
    }
}

/// Samples of this machine: what the recorder makes of them.
fn samples(plan: &Plan, report: &mut Report, scratch: &Scratch) -> Result<()> {
    let count = if plan.quick { 10 } else { 120 };
    let mut table = Table::new(
        format!(
            "{count} samples of this machine, one a second: bytes of the file by their number, and CPU time of one \
             that was encoded, compressed and written; median (quartiles)."
        ),
        &["tasks", "of which run", "bytes per sample", "CPU ms per sample", "the longest, ms"],
    );
    for size in SIZES {
        let (all, active, enough) = size;
        let load = load(size)?;
        let path = scratch.join(&format!("samples-{all}"));
        let mut source = LiveSource::start(LiveOptions { group_limits: true, ..LiveOptions::default() })?;
        let mut recorder = Recorder::open(&path, options())?;
        source.next()?;
        let mut took = Vec::new();
        for _ in 0..count {
            thread::sleep(SECOND);
            let sample = source.next()?.context("the machine ended")?;
            let began = cpu_time(std::process::id())?;
            recorder.record(&source.host(), &sample)?;
            took.push((cpu_time(std::process::id())? - began).as_secs_f64() * 1e3);
        }
        recorder.finish()?;
        drop(load);
        let bytes = path.metadata()?.len() as f64 / f64::from(count);
        let spread = Spread::of(&took);
        table.rows.push(vec![
            Cell::Number(all as f64, 0),
            Cell::Number(active as f64, 0),
            Cell::Number(bytes, 0),
            Cell::spread(spread, 2),
            Cell::Number(took.iter().copied().fold(0.0, f64::max), 2),
        ]);
        report.at_most(format!("bytes per sample of {all} tasks"), enough, bytes, 0);
        if all == SIZES[1].0 {
            report.at_most(format!("CPU ms per sample of {all} tasks"), 1.0, spread.median, 2);
        }
    }
    report.tables.push(table);
    Ok(())
}

/// A day of an imagined machine: a real one would take a day.
fn days(plan: &Plan, report: &mut Report, scratch: &Scratch) -> Result<()> {
    let seconds = if plan.quick { 3_600 } else { 86_400 };
    let mut table = Table::new(
        format!(
            "{seconds} samples, one a second, of an imagined machine, 16 of 100 tasks running, 5 of 1000 replaced in each \
             interval; ms on the clock to open the file, with its last moment, and to show another moment: both samples of the \
             interval; the median (quartiles) of 31 random moments."
        ),
        &["tasks", "MB", "open, ms", "jump, ms", "slowest jump, ms"],
    );
    let host = LiveSource::start(LiveOptions::default())?.host();
    for (all, _, _) in SIZES {
        let path = scratch.join(&format!("day-{all}"));
        let times = imagine(&path, &host, all, seconds)?;
        let began = Instant::now();
        let mut recording = Recording::open(&path)?;
        let last = recording.span().context("there are samples")?.1;
        let opened = began.elapsed().as_secs_f64() * 1e3;
        ensure!(Some(&last) == times.last(), "the last sample is not the last one written");
        let mut jumps = Vec::new();
        for turn in 1..=31_usize {
            // A step that has no factor in common with their number.
            let at = times[turn * 27_277 % times.len()];
            let began = Instant::now();
            jump(&mut recording, at)?;
            jumps.push(began.elapsed().as_secs_f64() * 1e3);
        }
        let slowest = jumps.iter().copied().fold(0.0, f64::max);
        table.rows.push(vec![
            Cell::Number(all as f64, 0),
            Cell::Number(path.metadata()?.len() as f64 / 1e6, 0),
            Cell::Number(opened, 1),
            Cell::spread(Spread::of(&jumps), 1),
            Cell::Number(slowest, 1),
        ]);
        report.at_most(format!("ms to open a day of {all} tasks"), 100.0, opened, 1);
        report.at_most(format!("ms of the slowest jump in a day of {all} tasks"), 60.0, slowest, 1);
        fs::remove_file(&path)?;
    }
    report.tables.push(table);
    report.note("The files were just written, and so in the page cache when they were opened.");
    Ok(())
}

/// Writes one sample per second; returns the wall-clock time of each.
fn imagine(path: &Path, host: &Arc<HostFacts>, tasks: usize, seconds: usize) -> Result<Vec<i64>> {
    let mut machine = machine::Machine::new(tasks);
    machine.churn = 5;
    let mut recorder = Recorder::open(path, options())?;
    let mut times = Vec::with_capacity(seconds);
    for _ in 0..seconds {
        let sample = machine.tick();
        times.push(sample.wall_ns);
        recorder.record(host, &sample)?;
    }
    recorder.finish()?;
    Ok(times)
}

/// The work of the screen to show the interval that ends at `at`.
fn jump(recording: &mut Recording, at: i64) -> Result<()> {
    recording.seek(at)?;
    let (before, shown) = recording.next_interval()?.context("there is the sample")?;
    ensure!(shown.wall_ns == at && before.is_some(), "another interval than the one that was asked for");
    Ok(())
}
