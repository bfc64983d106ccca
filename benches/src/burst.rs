//! Memory that comes back: the live view before, during and a minute after bursts of threads and of processes.

use std::fs;
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::Plan;
use crate::process::{Process, resident};
use crate::refresh::{Limits, start_load};
use crate::report::{Cell, Report, Table};
use crate::screen::Screen;
use crate::work::{self, wait_until_ready};

/// Threads of a burst, in processes of 500.
const THREADS: usize = 20_000;

/// Processes of the last burst, of one thread each.
const PROCESSES: usize = 5_000;

/// Resident memory a minute after a burst, at most; MB.
const LIMIT_MB: f64 = 20.0;

/// Tables are filled, the first looks are over.
const WARM_UP: Duration = Duration::from_secs(15);

/// A burst lasts for some refreshes, so that samples of the history have it.
const BURST: Duration = Duration::from_secs(8);

/// Time after which memory must be back.
const AFTER: Duration = Duration::from_secs(60);

/// One of the tasks of a burst.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Threads,
    Processes,
}

impl Kind {
    fn name(self) -> String {
        match self {
            Kind::Threads => format!("{THREADS} threads"),
            Kind::Processes => format!("{PROCESSES} processes"),
        }
    }

    fn start(self) -> Result<Process> {
        match self {
            Kind::Threads => start_load(THREADS),
            Kind::Processes => {
                let processes = PROCESSES.to_string();
                let mut load = Process::start(
                    work::command(&["family", "--processes", &processes])?.stdout(Stdio::piped()),
                )?;
                wait_until_ready(load.child())?;
                Ok(load)
            }
        }
    }
}

/// Things of a process that must not become more.
struct Held {
    /// Resident memory in MB: all of it, and that which is no part of a file. Pages of the program are resident as the
    /// page cache of the machine sees fit.
    rss: f64,
    anonymous: f64,
    descriptors: usize,
    mappings: usize,
}

fn held(pid: u32) -> Result<Held> {
    let fds = format!("/proc/{pid}/fd");
    let maps = format!("/proc/{pid}/maps");
    let status = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&status).with_context(|| format!("reading {status}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let anonymous = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    Ok(Held {
        rss: resident(pid)?.0 as f64 / 1e6,
        anonymous: anonymous.with_context(|| format!("no RssAnon in {status}"))? * 1024.0 / 1e6,
        descriptors: fs::read_dir(&fds).with_context(|| format!("reading {fds}"))?.count(),
        mappings: fs::read_to_string(&maps).with_context(|| format!("reading {maps}"))?.lines().count(),
    })
}

/// # Errors
/// numatop-ng or a load did not start.
pub fn run(plan: &Plan) -> Result<Report> {
    let mut report = Report::begin("Burst: memory that comes back");
    let limits = Limits::raise(THREADS)?;
    let bursts: &[Kind] = match plan.quick {
        true => &[Kind::Threads],
        false => &[Kind::Threads, Kind::Threads, Kind::Threads, Kind::Processes],
    };
    let mut table = Table::new(
        format!(
            "Live view, one refresh a second. A burst lasts {} s; after it the same screen is left alone for {} s.",
            BURST.as_secs(),
            AFTER.as_secs()
        ),
        &["moment", "RSS MB", "of it not of files, MB", "descriptors", "mappings"],
    );
    let mut screen = Screen::start(&plan.binary.to_string_lossy(), &["-H", "-d", "1"], &[])?;
    screen.wait_for(|text| text.contains("PID"), WARM_UP)?;
    sleep(WARM_UP);
    let mut row = |moment: String, held: &Held| {
        table.rows.push(vec![
            Cell::text(moment),
            Cell::Number(held.rss, 1),
            Cell::Number(held.anonymous, 1),
            Cell::Number(held.descriptors as f64, 0),
            Cell::Number(held.mappings as f64, 0),
        ]);
    };
    let before = held(screen.pid())?;
    row("before".into(), &before);
    let (mut worst, mut last) = (0.0f64, None);
    for kind in bursts {
        let load = kind.start()?;
        sleep(BURST);
        row(format!("{}, at their end", kind.name()), &held(screen.pid())?);
        drop(load);
        sleep(AFTER);
        let after = held(screen.pid())?;
        row(format!("{} s later", AFTER.as_secs()), &after);
        worst = worst.max(after.rss);
        last = Some(after);
    }
    drop(limits);
    report.at_most("MB a minute after a burst, the worst", LIMIT_MB, worst, 1);
    if let Some(last) = last {
        let more = |now: usize, before: usize| now as f64 - before as f64;
        report.at_most("descriptors that came", 0.0, more(last.descriptors, before.descriptors), 0);
        report.at_most("mappings that came", 8.0, more(last.mappings, before.mappings), 0);
    }
    report.tables.push(table);
    Ok(report)
}
