//! The share of CPU time that has a row, of a thousand fork+exec+exit a second.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::Said;
use super::family::Family;
use crate::Plan;
use crate::frames::{Frames, any_line};
use crate::report::{Cell, Report, Table};

const PER_SECOND: u64 = 1000;
const PATIENCE: Duration = Duration::from_secs(30);

pub fn run(plan: &Plan, report: &mut Report) -> Result<()> {
    let seconds: u64 = if plan.quick { 3 } else { 20 };
    let mut tool = Command::new(&plan.binary);
    tool.args(["-b", "-d", "1", "--json-full"]);
    let mut tool = Frames::start(&mut tool, any_line, |_| ())?;
    tool.next(PATIENCE)?;

    let family = Family::start(PER_SECOND, seconds)?;
    let pid = u64::from(family.pid());

    let mut said = Said::default();
    for _ in 0..seconds {
        said.hear(&tool.next(PATIENCE)?.line)?;
    }
    let counted = family.ended()?;
    // One for running intervals, one for the last exits.
    for _ in 0..2 {
        said.hear(&tool.next(PATIENCE)?.line)?;
    }
    let (children, children_ns, whole_ns) = (counted.children, counted.children_ns, counted.whole_ns()?);
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
