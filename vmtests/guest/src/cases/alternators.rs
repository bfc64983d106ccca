//! Two tasks that take turns of a millisecond on one CPU, hundreds of times in an interval. Each is charged
//! only for its own instructions, which it counts itself with perf_event_open(2), and has the IPC of the
//! machine.

use vmtests_protocol::{Plan, Pmu};

use super::{Case, Stop, no_losses};
use crate::intervals::{Totals, number};
use crate::report::Report;
use crate::tool::Batch;
use crate::work::Work;

pub const CASE: Case = Case {
    name: "alternators",
    about: "instructions and IPC of two tasks in turns of 1 ms, against their loops and perf_event_open",
    run,
};

/// Cycles of a turn, the parent's and the child's: at one gigahertz 1.0 and 0.6 ms. Different, so that mixing them up
/// shows; the kernel's work for a turn comes on top.
const TURN: (u64, u64) = (1_000_000, 600_000);

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    let Pmu::Icount { shift } = plan.machine.pmu else {
        return Err(Stop::skip("this guest has no counter of instructions"));
    };
    let ipc = 0.5_f64.powi(shift as i32);
    let turn = (TURN.0 >> shift, TURN.1 >> shift);
    let mut batch = Batch::start(&["-d", "0.5"])?;
    let mut totals = Totals::default();
    batch.follow(&mut totals, 1)?;
    let mut work = Work::start("alternate", &["0", &turn.0.to_string(), &turn.1.to_string()])?;
    work.go();
    let pids = (work.pid(), work.facts["child"].as_i64().unwrap_or(0) as i32);
    // Of these the last is one in which both took turns all the time.
    let middle = batch.follow(&mut totals, 4)?;
    let truth = work.stop()?.truth;
    batch.follow_to_end(&mut totals, pids.0)?;
    batch.stop()?;
    no_losses(report, &totals);
    let turns = number(&truth, "turns")?;
    report.check(turns >= 200.0, "turns", "200 and more", turns);
    for (who, pid, executed, counted) in [
        ("the parent", pids.0, "instructions", "counted"),
        ("the child", pids.1, "child_instructions", "child_counted"),
    ] {
        let row = &totals.process(pid)?.last;
        let found = number(row, "instructions_total")?;
        let (executed, own) = (number(&truth, executed)?, number(&truth, counted)?);
        report.close(format_args!("instructions of {who}, for those it counted itself"), own, found, 0.015);
        report.check(
            found >= executed,
            format_args!("instructions of {who}, its loop's and the kernel's"),
            format_args!("{executed} and more"),
            found,
        );
        let cycles = number(row, "cycles_total")?;
        report.close(format_args!("cycles of {who}, for its instructions"), found / ipc, cycles, 0.001);
        let tasks = middle["tasks"].as_array().into_iter().flatten();
        let mut rows = tasks.filter(|task| task["pid"] == pid);
        let row = rows.next().ok_or_else(|| Stop::fail(format!("{who} has no row")))?;
        report.close(format_args!("IPC of {who}"), ipc, number(row, "ipc")?, 0.01);
    }
    Ok(())
}
