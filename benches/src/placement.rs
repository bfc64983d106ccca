//! The cost of locating a process's memory: a sample of pages beside walks over all of them, and the slowdown
//! of the sampled process.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context, Result, anyhow};

use crate::numbers::{Spread, median};
use crate::process::Process;
use crate::report::{Cell, Report, Table};
use crate::work::{self, wait_until_ready};
use crate::{Plan, policies};
use numatop_ng::collect::machine::page_size;
use numatop_ng::collect::placement::draw::Random;
use numatop_ng::collect::placement::once;
use numatop_ng::collect::proc_details::start_ns;
use numatop_ng::host::clock::thread_time;
use numatop_ng::model::process::ProcessId as Identity;

const ROUNDS: usize = 21;
/// Sampled in every second window of this length: as often as by a view that refreshes each second.
const WINDOW: Duration = Duration::from_secs(1);

/// # Errors
/// A load did not start, or a process could not be sampled.
pub fn run(plan: &Plan) -> Result<Report> {
    let mut report = Report::begin("Placement: where the memory of a process is");
    sizes(plan, &mut report)?;
    victim(plan, &mut report)?;
    policies::run(|most| if plan.quick { 3 } else { most }, &mut report)?;
    Ok(report)
}

fn sizes(plan: &Plan, report: &mut Report) -> Result<()> {
    let mut table = Table::new(
        "ms for one process, median (quartiles). Resident memory in pages of 4 KiB; 64 MiB of shared memory mapped over \
         and over, so that a walk has as many pages to look at and the machine need not have the memory.",
        &["resident", "mappings", "a sample of 1,024 pages", "cat numa_maps", "numastat -p"],
    );
    let rounds = if plan.quick { 3 } else { ROUNDS };
    for (gib, mappings) in [(1, 1), (4, 1), (16, 1), (1, 20_000)] {
        let (size, parts) = (gib.to_string(), mappings.to_string());
        let args = ["memory", "--gib", &size, "--mappings", &parts];
        let mut load = Process::start(work::command(&args)?.stdout(Stdio::piped()))?;
        wait_until_ready(load.child())?;
        let identity = identity(load.pid())?;
        let mut random = Random(u64::from(load.pid()));
        let sample = repeat(rounds, || sample(identity, gib << 30, &mut random))?.wall;
        let numa_maps = format!("/proc/{}/numa_maps", load.pid());
        let walk = repeat(rounds.min(7), || fs::read(&numa_maps).map(drop).map_err(Into::into))?.wall;
        let numastat = repeat(rounds.min(7), || {
            let pid = load.pid().to_string();
            let run = Command::new("numastat").args(["-p", &pid]).stdout(Stdio::null()).status();
            run.map(drop).context("running numastat: is numactl installed?")
        });
        if mappings < 2 {
            report.at_most(format!("ms for a sample of {gib} GiB"), 1.0, median(&sample), 2);
        }
        table.rows.push(vec![
            Cell::text(format!("{gib} GiB")),
            Cell::text(mappings.max(gib * 16).to_string()),
            Cell::spread(Spread::of(&sample), 2),
            Cell::spread(Spread::of(&walk), 1),
            numastat.map_or_else(|_| Cell::text("–"), |times| Cell::spread(Spread::of(&times.wall), 1)),
        ]);
    }
    report.tables.push(table);
    Ok(())
}

/// Times of rounds, ms: of the thread on its CPU, and by the clock.
pub struct Times {
    pub cpu: Vec<f64>,
    pub wall: Vec<f64>,
}

/// The times of `rounds` rounds.
///
/// # Errors
/// A round has failed.
pub fn repeat(rounds: usize, mut what: impl FnMut() -> Result<()>) -> Result<Times> {
    // The first one fills caches.
    what()?;
    let mut times = Times { cpu: Vec::new(), wall: Vec::new() };
    for _ in 0..rounds {
        let (began, ran) = (Instant::now(), thread_time());
        what()?;
        times.cpu.push((thread_time() - ran).as_secs_f64() * 1e3);
        times.wall.push(began.elapsed().as_secs_f64() * 1e3);
    }
    Ok(times)
}

fn sample(identity: Identity, rss: u64, random: &mut Random) -> Result<()> {
    let found = once(Path::new("/"), identity, rss, page_size(), random);
    found.map(drop).map_err(|missing| anyhow!("{missing}"))
}

/// Id and start of a process.
fn identity(pid: u32) -> Result<Identity> {
    Ok((pid, start_ns(pid).with_context(|| format!("reading when process {pid} started"))?))
}

/// A process that does nothing but map and unmap, in windows with and without a sample.
fn victim(plan: &Plan, report: &mut Report) -> Result<()> {
    let mut random = Random(1);
    let windows = if plan.quick { 3 } else { 30 };
    let Victim { bare, ratios } = victim_of(windows, |pid| sample(identity(pid)?, 64 << 20, &mut random))?;
    let mut table = Table::new(
        "Two threads that map 16 pages, touch one, and unmap them, without pause; sampled once in a second, between two \
         seconds in which they are not.",
        &["mappings made per second", "with samples, ratio"],
    );
    table.rows.push(vec![Cell::spread(Spread::of(&bare), 0), Cell::spread(Spread::of(&ratios), 3)]);
    report.at_least("mappings per second while sampled, ratio", 0.98, median(&ratios), 3);
    report.tables.push(table);
    Ok(())
}

/// Mappings that a process makes, per second alone, and as ratios in windows in which it is looked at once.
pub struct Victim {
    pub bare: Vec<f64>,
    pub ratios: Vec<f64>,
}

/// A process that only maps and unmaps, looked at in each of `windows` windows.
///
/// # Errors
/// It did not start, or a look failed.
pub fn victim_of(windows: usize, mut look: impl FnMut(u32) -> Result<()>) -> Result<Victim> {
    let mut load = Process::start(work::command(&["mmap", "--threads", "2"])?.stdout(Stdio::piped()))?;
    wait_until_ready(load.child())?;
    let pid = load.pid();
    let counter = format!("/proc/{pid}/stat");
    let faults = || -> Result<u64> {
        let stat = fs::read_to_string(&counter)?;
        let rest = stat.rsplit(')').next().context("no name in its stat")?;
        Ok(rest.split_whitespace().nth(7).context("no faults in its stat")?.parse()?)
    };
    let mut window = |is_looked_at: bool| -> Result<f64> {
        let (from, began) = (faults()?, Instant::now());
        if is_looked_at {
            look(pid)?;
        }
        thread::sleep(WINDOW.saturating_sub(began.elapsed()));
        Ok((faults()? - from) as f64 / began.elapsed().as_secs_f64())
    };
    let (mut bare, mut ratios) = (Vec::new(), Vec::new());
    for _ in 0..windows {
        // Between two windows without: what others do to the machine changes slowly.
        let (before, with, after) = (window(false)?, window(true)?, window(false)?);
        bare.push(before);
        ratios.push(with * 2.0 / (before + after));
    }
    Ok(Victim { bare, ratios })
}
