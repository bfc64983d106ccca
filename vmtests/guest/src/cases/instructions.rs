//! Instructions and IPC of tasks that compute all the time: one alone, and threads of one process in turns.
//! They are compared with the number of instructions in their loops, and with counters that they open
//! themselves.

use serde_json::Value;
use vmtests_protocol::{Plan, Pmu};

use super::{Case, Stop, no_losses};
use crate::intervals::{Totals, number};
use crate::report::Report;
use crate::tool::Batch;
use crate::work::Work;

pub const CASE: Case = Case {
    name: "instructions",
    about: "instructions and IPC of a task alone and of threads in turns, against their loops and perf_event_open",
    run,
};

/// Millions of instructions of each thread. All different, so that mixing them up shows.
const WORK: [&[&str]; 2] = [&["400"], &["300", "200", "100"]];

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    let Pmu::Icount { shift } = plan.machine.pmu else {
        return Err(Stop::skip("this guest has no counter of instructions"));
    };
    let ipc = 0.5_f64.powi(shift as i32);
    for shares in WORK {
        let mut batch = Batch::start(&["-d", "0.3", "--threads"])?;
        let mut totals = Totals::default();
        let mut work = Work::start("count", &[&["0"], shares].concat())?;
        // The cost of their start is not what they compute.
        batch.follow(&mut totals, 2)?;
        let tids = work.facts["tids"].as_array().cloned().unwrap_or_default();
        let before = instructions(&totals, &tids)?;
        work.go();
        // Two samples fall within the work, so in between the tasks did nothing else.
        batch.follow(&mut totals, 1)?;
        let middle = batch.follow(&mut totals, 1)?;
        let said = work.said()?;
        batch.follow(&mut totals, 2)?;
        let after = instructions(&totals, &tids)?;
        work.stop()?;
        batch.stop()?;
        no_losses(report, &totals);
        let counted = said["threads"].as_array().map(Vec::as_slice).unwrap_or_default();
        report.equal("threads that counted", shares.len(), counted.len());
        for thread in counted {
            let at = tids.iter().position(|tid| *tid == thread["tid"]);
            let at = at.ok_or_else(|| Stop::fail(format!("nobody knows thread {}", thread["tid"])))?;
            let found = after[at] - before[at];
            let executed = number(thread, "executed")?;
            let who = format!("of thread {} of {}", at + 1, tids.len());
            report.close(format_args!("instructions {who}, for its loop's"), executed, found, 0.015);
            let (own, user) = (number(thread, "instructions")?, number(thread, "user_instructions")?);
            report.close(format_args!("instructions {who}, for those it counted itself"), own, found, 0.01);
            report.close(format_args!("user instructions {who}, counted by itself"), executed, user, 0.002);
            report.close(format_args!("IPC {who}"), ipc, number(row(&middle, &tids[at])?, "ipc")?, 0.01);
        }
    }
    Ok(())
}

/// Instructions of each thread since the tool first saw it.
fn instructions(totals: &Totals, tids: &[Value]) -> Result<Vec<f64>, Stop> {
    let of = |tid: &Value| number(&totals.thread(tid.as_i64().unwrap_or(0))?.last, "instructions_total");
    tids.iter().map(of).collect()
}

fn row<'a>(interval: &'a Value, tid: &Value) -> Result<&'a Value, Stop> {
    let mut tasks = interval["tasks"].as_array().into_iter().flatten();
    tasks.find(|task| task["tid"] == *tid).ok_or_else(|| Stop::fail(format!("thread {tid} has no row")))
}
