//! The use of resources when nothing happens: CPU share at one refresh a second.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::Plan;
use crate::process::{Process, cpu_time, resident};
use crate::report::{Cell, Report, Table};
use crate::screen::Screen;
use crate::work::{self, wait_until_ready};

/// Threads on the machine, ours included.
const TASKS: usize = 300;

/// Start-up is over after this long.
const WARM_UP: Duration = Duration::from_secs(3);

/// # Errors
/// numatop-ng or the load did not start.
pub fn run(plan: &Plan) -> Result<Report> {
    let mut report = Report::begin("Rest: CPU share with nothing to show");
    let missing = TASKS.saturating_sub(tasks()).max(1).to_string();
    let args = ["threads", "--processes", &missing, "--threads", "1", "--active", "0"];
    let mut load = Process::start(work::command(&args)?.stdout(Stdio::piped()))?;
    wait_until_ready(load.child())?;
    let time = Duration::from_secs(if plan.quick { 5 } else { 30 });
    let mut table = Table::new(
        format!("{} tasks, one refresh a second, {} s.", tasks(), time.as_secs()),
        &["program", "% of one CPU", "RSS MB"],
    );
    let binary = plan.binary.to_string_lossy();
    let mut row = |report: &mut Report, name: &str, pid: u32| -> Result<()> {
        std::thread::sleep(WARM_UP);
        let (from, began) = (cpu_time(pid)?, Instant::now());
        std::thread::sleep(time);
        let share = (cpu_time(pid)? - from).as_secs_f64() * 100.0 / began.elapsed().as_secs_f64();
        let rss = resident(pid)?.0 as f64 / 1e6;
        table.rows.push(vec![Cell::text(name), Cell::Number(share, 3), Cell::Number(rss, 1)]);
        report.at_most(format!("{name}: % of one CPU at rest"), 0.5, share, 3);
        Ok(())
    };
    let mut batch = Command::new(&*binary);
    batch.args(["-b", "-d", "1", "--format", "json"]).stdout(Stdio::null());
    let batch = Process::start(&mut batch)?;
    row(&mut report, "batch, all rows as JSON", batch.pid())?;
    drop(batch);
    let mut screen = Screen::start(&binary, &["-d", "1"], &[])?;
    match screen.wait_for(|text| text.contains("PID"), Duration::from_secs(5)) {
        Ok(_) => row(&mut report, "live view", screen.pid())?,
        Err(error) => report.note(format!("The live view was not measured: {error:#}")),
    }
    report.tables.push(table);
    Ok(report)
}

/// Threads on the machine: the second part of the fourth field of loadavg(5).
pub fn tasks() -> usize {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let field = text.split(' ').nth(3).and_then(|field| field.split_once('/'));
    field.and_then(|(_, all)| all.parse().ok()).context("reading /proc/loadavg").unwrap_or(0)
}
