//! Memory that is given back: the live view at the start, during and a minute after bursts of threads and of
//! processes.

use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;

use crate::Plan;
use crate::held::Held;
use crate::process::Process;
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
    let before = Held::read(screen.pid())?;
    row("before".into(), &before);
    let (mut worst, mut last) = (0.0f64, None);
    for kind in bursts {
        let load = kind.start()?;
        sleep(BURST);
        row(format!("{}, at their end", kind.name()), &Held::read(screen.pid())?);
        drop(load);
        sleep(AFTER);
        let after = Held::read(screen.pid())?;
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
