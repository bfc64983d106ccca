//! The share of CPU time that has a row, of a thousand fork+exec+exit a second.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::Said;
use super::machine::Cgroup;
use crate::Plan;
use crate::frames::{Frames, any_line};
use crate::process::Process;
use crate::report::{Cell, Report, Table};
use crate::work;

const PER_SECOND: u64 = 1000;
const PATIENCE: Duration = Duration::from_secs(30);

pub fn run(plan: &Plan, report: &mut Report) -> Result<()> {
    let seconds: u64 = if plan.quick { 3 } else { 20 };
    let mut tool = Command::new(&plan.binary);
    tool.args(["-b", "-d", "1", "--format", "json"]);
    let mut tool = Frames::start(&mut tool, any_line, |_| ())?;
    tool.next(PATIENCE)?;

    let cgroup = Cgroup::create()?;
    let (rate, time) = (PER_SECOND.to_string(), seconds.to_string());
    let procs = cgroup.procs();
    let procs = procs.to_str().context("the path of a cgroup is text")?;
    let args = ["storm", "--per-second", &rate, "--seconds", &time, "--cgroup", procs];
    let mut storm = Process::start(work::command(&args)?.stdout(Stdio::piped()))?;
    let pid = u64::from(storm.pid());
    let mut out = storm.child().stdout.take().context("standard output was asked for as a pipe")?;

    let mut said = Said::default();
    for _ in 0..seconds {
        said.hear(&tool.next(PATIENCE)?.line)?;
    }
    let mut text = String::new();
    out.read_to_string(&mut text)?;
    ensure!(storm.wait()?.success(), "the storm ended with an error");
    // One for what is under way, one for the last exits.
    for _ in 0..2 {
        said.hear(&tool.next(PATIENCE)?.line)?;
    }
    let mut words = text.split_whitespace().map(str::parse::<u64>);
    let (Some(Ok(children)), Some(Ok(children_ns)), Some(Ok(outside_ns))) =
        (words.next(), words.next(), words.next())
    else {
        anyhow::bail!("the storm said: {text}");
    };
    let whole_ns = cgroup.cpu_ns()? + outside_ns;
    let family = |row: &&super::Row| row.ppid == pid;
    let rows: Vec<super::Row> = said.ended.values().filter(family).copied().collect();
    let rows_ns: u64 = rows.iter().map(|row| row.ns).sum();
    let forker_ns = said.of(pid as u32).context("the storm itself has no row")?;
    let mut table = Table::new(
        format!("{PER_SECOND} fork+exec+exit of /bin/true a second, {seconds} s: {children} children."),
        &["CPU time, s", "numatop-ng", "kernel", "accounted, %"],
    );
    let row = |what: &str, said: u64, truth: u64| {
        let seconds = |ns: u64| Cell::Number(ns as f64 / 1e9, 4);
        vec![
            Cell::text(what),
            seconds(said),
            seconds(truth),
            Cell::Number(said as f64 * 100.0 / truth as f64, 3),
        ]
    };
    table.rows.push(row("children (kernel: RUSAGE_CHILDREN when reaped)", rows_ns, children_ns));
    table.rows.push(row(
        "children and parent (kernel: their cgroup, and the parent before it joined)",
        rows_ns + forker_ns,
        whole_ns,
    ));
    report.tables.push(table);
    let share = |part: u64, whole: u64| part as f64 * 100.0 / whole as f64;
    report.at_least(
        format!("{:.0} exits a second: % of CPU time accounted", children as f64 / seconds as f64),
        99.9,
        share(rows_ns + forker_ns + said.lost_ns, whole_ns),
        3,
    );
    report.at_least("children with a row of their own, %", 100.0, share(rows.len() as u64, children), 3);
    Ok(())
}
