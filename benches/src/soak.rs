//! A month in a few hours: three watchers that sample ten times as often as usual, while the machine under them changes all
//! the time. Memory, descriptors and maps must come back, and sums must stay those of the kernel.

mod churn;
mod storm;

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::Plan;
use crate::held::Held;
use crate::numbers::median;
use crate::process::Process;
use crate::refresh::Limits;
use crate::report::{Cell, Report, Table};
use crate::screen::Screen;

use churn::{Disk, Place};
use storm::Sums;

/// Time that everything is left alone for before a look.
const REST: Duration = Duration::from_secs(60);

/// Caches and histories fill in this time, hours.
const WARM_UP_H: f64 = 10.0 / 60.0;

/// Growth of the memory that is no part of a file after that, MB an hour.
const LIMIT_MB_H: f64 = 0.5;

/// A look at the watchers.
struct Look {
    /// Time since the beginning, hours.
    at: f64,
    held: Vec<Held>,
}

/// The programs that are watched.
struct Watchers {
    screen: Screen,
    recorder: Process,
    sums: Sums,
}

/// Their names, in the order of [`Watchers::look`].
const NAMES: [&str; 3] = ["live view, threads", "recorder", "batch, JSON"];

impl Watchers {
    fn start(plan: &Plan, disk: &Disk) -> Result<Watchers> {
        let mut recorder = Command::new(&plan.binary);
        recorder.arg("record").arg(disk.recording()).args(["-d", "0.1", "--record-max-size", "32MiB"]);
        recorder.stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Watchers {
            screen: Screen::start(&plan.binary.to_string_lossy(), &["-H", "-d", "0.1"], &[])?,
            recorder: Process::start(&mut recorder)?,
            sums: Sums::start(plan)?,
        })
    }

    fn look(&mut self) -> Result<Vec<Held>> {
        self.recorder.check()?;
        [self.screen.pid(), self.recorder.pid(), self.sums.pid()].into_iter().map(Held::read).collect()
    }
}

/// # Errors
/// A watcher ended, a load did not start, or the machine cannot be changed.
pub fn run(plan: &Plan) -> Result<Report> {
    let mut report =
        Report::begin("Soak: memory, descriptors and sums while the machine changes all the time");
    let length = Duration::from_secs(60 * plan.minutes.unwrap_or(if plan.quick { 12 } else { 120 }));
    let limits = Limits::raise(churn::THREADS)?;
    let disk = Disk::mount()?;
    let mut watchers = Watchers::start(plan, &disk)?;
    let place = Place { disk: &disk, quick: plan.quick };
    let (mut looks, mut deeds, mut left_out) = (Vec::new(), 0, Vec::new());
    let rest = if plan.quick { REST / 6 } else { REST };
    let began = Instant::now();
    while began.elapsed() < length {
        watchers.sums.storm(if plan.quick { 5 } else { 30 })?;
        for deed in churn::DEEDS {
            // The recorder begins another file.
            watchers.recorder.signal(libc::SIGUSR1)?;
            match (deed.act)(&place).with_context(|| deed.name.to_string()) {
                Ok(()) => deeds += 1,
                Err(error) if deed.may_fail => left_out.push(format!("left out: {error:#}")),
                Err(error) => return Err(error),
            }
        }
        watchers.sums.rest(rest)?;
        let held = watchers.look()?;
        looks.push(Look { at: began.elapsed().as_secs_f64() / 3600.0, held });
    }
    left_out.sort();
    left_out.dedup();
    left_out.into_iter().for_each(|words| report.note(words));
    report.note(format!("{} cycles with {deeds} changes of the machine in all.", looks.len()));
    judge(&mut report, &looks, rest);
    watchers.sums.judge(&mut report);
    let Watchers { screen, recorder, sums } = watchers;
    drop((screen, sums));
    finish(plan, &mut report, recorder, &disk)?;
    drop((disk, limits));
    Ok(report)
}

fn judge(report: &mut Report, looks: &[Look], rest: Duration) {
    let columns =
        ["watcher", "min", "RSS MB", "of it not of files, MB", "descriptors", "mappings", "BPF maps, kB"];
    let title = format!("At rest after each cycle; the machine was left alone for {} s.", rest.as_secs());
    let mut table = Table::new(title, &columns);
    for (at, name) in NAMES.iter().enumerate() {
        for look in looks {
            let held = look.held[at];
            table.rows.push(vec![
                Cell::text(*name),
                Cell::Number(look.at * 60.0, 0),
                Cell::Number(held.rss, 1),
                Cell::Number(held.anonymous, 1),
                Cell::Number(held.descriptors as f64, 0),
                Cell::Number(held.mappings as f64, 0),
                Cell::Number(held.bpf_maps, 0),
            ]);
        }
        let late: Vec<(f64, f64)> = looks
            .iter()
            .filter(|look| look.at > WARM_UP_H)
            .map(|look| (look.at, look.held[at].anonymous))
            .collect();
        match slope(&late) {
            Some(slope) => report.at_most(format!("{name}: MB more in an hour"), LIMIT_MB_H, slope, 2),
            None => report.note(format!("{name}: too short for a slope")),
        }
        let (Some(first), Some(last)) = (looks.first(), looks.last()) else { continue };
        let (first, last) = (first.held[at], last.held[at]);
        let more = |now: usize, before: usize| now as f64 - before as f64;
        report.at_most(
            format!("{name}: descriptors that came"),
            0.0,
            more(last.descriptors, first.descriptors),
            0,
        );
        report.at_most(format!("{name}: mappings that came"), 8.0, more(last.mappings, first.mappings), 0);
        report.at_most(format!("{name}: kB of BPF maps that came"), 16.0, last.bpf_maps - first.bpf_maps, 0);
    }
    report.tables.push(table);
}

/// The median of the slopes of all pairs of points (Theil 1950, Sen 1968); `None` for less than three.
fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let pairs =
        points.iter().enumerate().flat_map(|(at, from)| points[at + 1..].iter().map(move |to| (from, to)));
    let slopes: Vec<f64> = pairs.map(|(from, to)| (to.1 - from.1) / (to.0 - from.0)).collect();
    (points.len() > 2).then(|| median(&slopes))
}

/// Ends the recorder, and looks at what it left.
fn finish(plan: &Plan, report: &mut Report, mut recorder: Process, disk: &Disk) -> Result<()> {
    recorder.signal(libc::SIGTERM)?;
    let status = recorder.child().wait().context("waiting for the recorder")?;
    if !status.success() {
        bail!("the recorder ended with an error: {status}");
    }
    let files = fs::read_dir(disk.recording()).context("reading the folder of the recording")?.count();
    let output = Command::new(&plan.binary).arg("verify").arg(disk.recording()).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let whole = text.lines().filter(|line| line.ends_with(": intact")).count();
    report.at_most("files of the recording that are not intact", 0.0, files as f64 - whole as f64, 0);
    report.note(format!("The ring had {files} files at the end."));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wild_point_does_not_tilt_the_slope() {
        let points = [(0.0, 10.0), (0.5, 10.1), (1.0, 55.0), (1.5, 10.3), (2.0, 10.4)];
        assert!((slope(&points).unwrap() - 0.2).abs() < 0.01);
        assert_eq!(slope(&points[..2]), None);
    }
}
