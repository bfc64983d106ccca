//! New pages of another node, and moved pages, compared with a workload that knows how many it touched and moved.

use vmtests_protocol::Plan;

use super::{Case, Stop, no_losses};
use crate::intervals::{Totals, number};
use crate::report::Report;
use crate::tool::Batch;
use crate::work::Work;

pub const CASE: Case = Case {
    name: "fresh",
    about: "new pages of another node, pages that are moved, and pages that cannot be, are as many as were touched and tried",
    run,
};

/// Pages that are touched before and beside: the stack, and the heap that prints.
const SHARE: f64 = 0.01;

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    let Some((_, first)) = plan.machine.cpu_nodes().next() else {
        return Err(Stop::skip("no node has CPUs"));
    };
    if plan.machine.nodes.len() < 2 {
        return Err(Stop::skip("one node: no page is on another"));
    }
    let mut batch = Batch::start(&["-d", "0.5"])?;
    let mut work = Work::start("fresh", &[&first.cpus[0].to_string(), "24"])?;
    let pid = i64::from(work.pid());
    let mut totals = Totals::default();
    // The mark is set when it waits.
    batch.next()?;
    batch.follow(&mut totals, 1)?;
    work.go();
    let touched = number(&work.said()?, "touched_on_each")?;
    let said = work.said()?;
    let (moved, stuck) = (number(&said, "moved")?, number(&said, "stuck")?);
    batch.follow(&mut totals, 2)?;
    let (mut cross, mut migrated, mut failed, mut asked) = (0.0, 0.0, 0.0, 0.0);
    for interval in &totals.intervals {
        let seconds = number(interval, "interval_ns")? / 1e9;
        let tasks = interval["tasks"].as_array().into_iter().flatten();
        for task in tasks.filter(|task| task["pid"].as_i64() == Some(pid)) {
            for (id, sum) in [
                ("cross_node_faults_per_s", &mut cross),
                ("pages_migrated_per_s", &mut migrated),
                ("pages_migrate_failed_per_s", &mut failed),
                ("pages_migrated_asked_per_s", &mut asked),
            ] {
                *sum += number(task, id)? * seconds;
            }
        }
    }
    work.stop()?;
    batch.stop()?;
    // The new places of pages that were moved are on another node too, and no new pages.
    report.close("allocations from another node", touched, cross, SHARE);
    report.close("moved pages", moved, migrated, SHARE);
    report.equal("of these, asked for", moved as u64, asked.round() as u64);
    report.equal("pages that could not be moved", stuck as u64, failed.round() as u64);
    no_losses(report, &totals);
    Ok(())
}
