//! Regularity of samples: the times of samples once a second beside the grid of seconds, on an idle machine
//! and on a busy one.

use std::process::{Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::Plan;
use crate::frames::{Frames, any_line};
use crate::numbers::median;
use crate::process::Process;
use crate::report::{Cell, Report, Table};
use crate::work;

/// Milliseconds that a sample of ours may be off its second, of 99 in 100.
const LIMIT_MS: f64 = 20.0;

/// Programs that compute without pause, for each CPU.
const HOGS: usize = 2;

/// The first samples are not looked at: programs start together.
const WARM_UP: usize = 3;

/// A program that shows something once a second.
struct Watcher {
    name: &'static str,
    command: Command,
    /// A line with which a refresh begins.
    begins: fn(&str) -> bool,
    /// The line has the time of the measurement, in the length of its interval, `interval_ns`.
    tells: bool,
}

fn watchers(plan: &Plan) -> Vec<Watcher> {
    let ours = |prefix: &[&str]| {
        let mut words: Vec<String> = prefix.iter().map(ToString::to_string).collect();
        words.push(plan.binary.to_string_lossy().into_owned());
        words.extend(["-b", "-d", "1", "--top", "5", "--format", "json"].map(String::from));
        words
    };
    let of = |words: Vec<String>| {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).env("TERM", "dumb");
        command
    };
    let json =
        |name, prefix: &[&str]| Watcher { name, command: of(ours(prefix)), begins: any_line, tells: true };
    let peer = |name: &'static str, begins| {
        let words = name.split(' ').map(String::from).collect();
        Watcher { name, command: of(words), begins, tells: false }
    };
    vec![
        json("numatop-ng -b -d 1", &[]),
        json("nice -n 19 numatop-ng -b -d 1", &["nice", "-n", "19"]),
        json("chrt -i 0 numatop-ng -b -d 1", &["chrt", "-i", "0"]),
        peer("top -b -d 1", |line| line.starts_with("top - ")),
        peer("vmstat -n 1", |line| line.trim_start().starts_with(|first: char| first.is_ascii_digit())),
    ]
}

/// Moments of refreshes, ns since some moment.
struct Moments {
    /// When they were read. This program is one of many on a busy machine, too, and may be late.
    came: Vec<f64>,
    /// Times of the measurements, if the watcher reports them.
    measured: Option<Vec<f64>>,
}

/// Times of `count` refreshes from the moment at which the machine became busy. Signals when the watcher has
/// started: at the lowest priority a start beside work takes minutes, and a pace is about running programs.
fn moments(
    mut watcher: Watcher,
    count: usize,
    ready: &Sender<()>,
    busy: &OnceLock<Instant>,
) -> Result<Moments> {
    let mut frames = Frames::start(&mut watcher.command, watcher.begins, |_| ())?;
    let began = Instant::now();
    let (mut came, mut measured, mut told, mut seen) = (Vec::new(), Vec::new(), 0.0, 0);
    while came.len() < count {
        let frame = frames.next(Duration::from_secs(60))?;
        if watcher.tells {
            let line: Value = serde_json::from_str(&frame.line).context("reading a line of JSON")?;
            told += line["interval_ns"].as_f64().context("a line without interval_ns")?;
        }
        seen += 1;
        if seen == WARM_UP {
            // The receiver is gone if another watcher failed.
            let _ = ready.send(());
        }
        if busy.get().is_some_and(|since| frame.at > *since) {
            came.push((frame.at - began).as_nanos() as f64);
            measured.push(told);
        }
    }
    Ok(Moments { came, measured: watcher.tells.then_some(measured) })
}

/// Distance of each time from a grid of seconds centred on them, ms. A tool that waits a second between the
/// end of a refresh and the next one drifts away from it; lengths of intervals would not show that.
fn off_grid_ms(moments: &[f64]) -> Vec<f64> {
    let late: Vec<f64> = moments.iter().enumerate().map(|(at, ns)| ns / 1e6 - 1e3 * at as f64).collect();
    let middle = median(&late);
    let mut off: Vec<f64> = late.iter().map(|ms| (ms - middle).abs()).collect();
    off.sort_by(f64::total_cmp);
    off
}

/// The value that `share` of the sorted ones do not exceed.
fn at_share(sorted: &[f64], share: f64) -> f64 {
    let place = (share * sorted.len() as f64).ceil() as usize;
    sorted[place.clamp(1, sorted.len()) - 1]
}

/// # Errors
/// A program did not start, or stopped.
pub fn run(plan: &Plan) -> Result<Report> {
    let mut report = Report::begin("Pace: how regular samples are");
    let count = if plan.quick { 10 } else { 120 };
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    for hogs in [0, HOGS * cpus] {
        let words = match hogs {
            0 => "nothing else of ours runs".to_string(),
            hogs => format!("{hogs} programs compute without pause on {cpus} CPUs"),
        };
        let mut table = Table::new(
            format!(
                "Milliseconds off the grid of seconds, {count} refreshes, all programs at once; {words}."
            ),
            &["program", "half of them within", "99 in 100", "the worst"],
        );
        let busy = Arc::new(OnceLock::new());
        let (ready, begun) = channel();
        let threads: Vec<_> = watchers(plan)
            .into_iter()
            .map(|watcher| {
                let (ready, busy) = (ready.clone(), Arc::clone(&busy));
                let name = (watcher.name, watcher.tells);
                let wait = move || {
                    let found = moments(watcher, count, &ready, &busy);
                    // One that failed is not waited for. No one listens where it did not.
                    let _ = ready.send(());
                    found
                };
                (name, thread::spawn(wait))
            })
            .collect();
        drop(ready);
        begun.iter().take(threads.len()).for_each(drop);
        let load: Vec<Process> = (0..hogs)
            .map(|_| Process::start(work::command(&["hog"])?.stdout(Stdio::null())))
            .collect::<Result<_>>()?;
        busy.get_or_init(Instant::now);
        for ((name, is_ours), thread) in threads {
            let found = thread.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?;
            let moments = match found {
                Ok(moments) => moments,
                Err(error) if is_ours => return Err(error),
                Err(error) => {
                    report.note(format!("{name} was not measured: {error:#}"));
                    continue;
                }
            };
            let mut row = |name: String, moments: &[f64]| {
                let off = off_grid_ms(moments);
                let [half, most, worst] = [0.5, 0.99, 1.0].map(|share| at_share(&off, share));
                let cells = [half, most, worst].map(|ms| Cell::Number(ms, 2));
                table.rows.push([Cell::text(name)].into_iter().chain(cells).collect());
                most
            };
            row(format!("{name}: its lines"), &moments.came);
            if let Some(measured) = &moments.measured {
                let most = row(format!("{name}: its samples, as they say"), measured);
                let when = if hogs == 0 { "at rest" } else { "busy" };
                if !name.starts_with("chrt") {
                    report.at_most(format!("{name}, {when}: ms off in 99 of 100 samples"), LIMIT_MS, most, 2);
                }
            }
        }
        drop(load);
        report.tables.push(table);
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drift_is_off_the_grid_although_its_intervals_are_alike() {
        let mut regular: Vec<f64> = (0..11).map(|at| 5e9 + f64::from(at) * 1e9).collect();
        regular[0] += 15e6;
        let off = off_grid_ms(&regular);
        assert!(at_share(&off, 0.9) < 1e-6 && (at_share(&off, 1.0) - 15.0).abs() < 1e-6, "{off:?}");
        let drifting: Vec<f64> = (0..11).map(|at| f64::from(at) * 1.01e9).collect();
        let off = off_grid_ms(&drifting);
        assert!(
            (at_share(&off, 1.0) - 50.0).abs() < 1e-6 && (at_share(&off, 0.5) - 30.0).abs() < 1e-6,
            "{off:?}"
        );
    }
}
