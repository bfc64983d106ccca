//! Hardware counters: charged to the task that ran, of known IPC, and never a zero that was not counted.

use serde_json::Value;
use vmtests_protocol::{Plan, Pmu};

use super::{Case, Stop, no_losses};
use crate::intervals::{Totals, number};
use crate::report::Report;
use crate::tool::Batch;
use crate::work::Work;

pub const CASE: Case = Case {
    name: "counters",
    about: "IPC, cycles and instructions of two tasks that take turns; without counters a reason and no number",
    run: |report, plan| {
        run(report, plan)?;
        stalls(report, plan)
    },
};

/// Instructions a turn: the parent's and the child's. Different, so that mixing them up shows.
const TURN: (f64, f64) = (3e6, 1e6);

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    let mut batch = Batch::start(&["-d", "0.3"])?;
    let mut totals = Totals::default();
    batch.follow(&mut totals, 1)?;
    let mut work = Work::start("alternate", &["0", &TURN.0.to_string(), &TURN.1.to_string()])?;
    work.go();
    let pids = (work.pid(), work.facts["child"].as_i64().unwrap_or(0) as i32);
    // Of these the last is one in which both took turns all the time.
    let middle = batch.follow(&mut totals, 3)?;
    let done = work.stop()?;
    batch.follow_to_end(&mut totals, pids.0)?;
    batch.stop()?;
    no_losses(report, &totals);
    match plan.machine.pmu {
        Pmu::Absent => {
            report.equal("host.pmu", Value::Null, middle["host"]["pmu"].clone());
            for id in ["ipc", "cpi", "ghz", "cycles_total", "instructions_total"] {
                absent_with_reason(report, id, &totals);
            }
        }
        Pmu::CyclesOnly => {
            for id in ["ipc", "cpi", "instructions_total"] {
                absent_with_reason(report, id, &totals);
            }
            // The PMU of this guest counts virtual nanoseconds: one gigahertz. If the host stops a CPU of the
            // guest at a switch, between the scheduler's clock and the counters, a moment goes to the wrong
            // side.
            let (mut all_cycles, mut all_ns) = (0.0, 0.0);
            for pid in [pids.0, pids.1] {
                let process = totals.process(pid)?;
                let cycles = number(&process.last, "cycles_total")?;
                report.close(format_args!("GHz of process {pid}"), 1.0, cycles / process.cpu_ns, 0.2);
                all_cycles += cycles;
                all_ns += process.cpu_ns;
            }
            report.close("GHz of both", 1.0, all_cycles / all_ns, 0.05);
        }
        Pmu::Icount { shift } => {
            let ipc = 0.5_f64.powi(shift as i32);
            // The middle of the run, when both took turns for the whole interval.
            for pid in [pids.0, pids.1] {
                report.close(format_args!("IPC of process {pid}"), ipc, reading(&middle, pid, "ipc")?, 0.01);
            }
            let truths = (number(&done.truth, "instructions")?, number(&done.truth, "child_instructions")?);
            let rows = (totals.process(pids.0)?, totals.process(pids.1)?);
            let found =
                (number(&rows.0.last, "instructions_total")?, number(&rows.1.last, "instructions_total")?);
            // User space executed the truth; the kernel's share of each turn comes on top.
            for (who, want, got) in [
                ("instructions of the parent", truths.0, found.0),
                ("instructions of the child", truths.1, found.1),
            ] {
                let fits = (want..want * 1.05).contains(&got);
                report.check(fits, who, format_args!("{want} and up to 5 % more"), got);
            }
            report.close(
                "parent's instructions for each of the child's",
                TURN.0 / TURN.1,
                found.0 / found.1,
                0.02,
            );
            let cycles = (number(&rows.0.last, "cycles_total")?, number(&rows.1.last, "cycles_total")?);
            report.close("cycles of the parent, for its instructions", found.0 / ipc, cycles.0, 0.001);
            report.close("cycles of the child, for its instructions", found.1 / ipc, cycles.1, 0.001);
        }
    }
    Ok(())
}

/// Stalls are on the list of the emulated PMU, can be opened, and stay at zero; other PMUs lack them. In
/// either case a reason replaces the number, and no counter of a task is 0.
fn stalls(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    let mut batch = Batch::start(&["-d", "0.3", "--events", "stalls"])?;
    let mut totals = Totals::default();
    batch.follow(&mut totals, 1)?;
    let work = Work::start_now("spin", &["0"])?;
    batch.follow(&mut totals, 3)?;
    work.stop()?;
    batch.stop()?;
    for id in ["stall_frontend_pct", "stall_backend_pct"] {
        absent_with_reason(report, id, &totals);
        if plan.machine.pmu != Pmu::Absent {
            let why = reason(&totals, id);
            let told = why.contains("can be opened but does not count");
            report.check(told, format_args!("why there is no {id}"), "can be opened but does not count", why);
        }
    }
    let stalled = |task: &&Value| {
        task["counters"]
            .as_object()
            .into_iter()
            .flatten()
            .any(|(name, _)| name.to_lowercase().contains("stall"))
    };
    report.equal("rows with a counter of stalls", 0, totals.tasks().filter(stalled).count());
    Ok(())
}

/// A metric that cannot be measured is null everywhere, and the reason is given.
fn absent_with_reason(report: &mut Report, id: &str, totals: &Totals) {
    let with_number = totals.tasks().filter(|task| !task[id].is_null()).count();
    report.equal(format_args!("rows with a number for {id}"), 0, with_number);
    let reason = reason(totals, id);
    report.check(
        !reason.is_empty(),
        format_args!("the reason for no {id}"),
        "a sentence",
        format_args!("{reason:?}"),
    );
}

/// Why the last interval has no such number.
fn reason<'a>(totals: &'a Totals, id: &str) -> &'a str {
    totals.intervals.last().and_then(|interval| interval["missing"][id].as_str()).unwrap_or_default()
}

/// A number of a process's row, or the tool's reason for having none.
fn reading(interval: &Value, pid: i32, id: &str) -> Result<f64, Stop> {
    let task = task(interval, pid)?;
    task[id].as_f64().ok_or_else(|| {
        let why = interval["missing"][id].as_str().unwrap_or("no reason given");
        Stop::fail(format!("process {pid} ({} % CPU) has no {id}: {why}", task["cpu_pct"]))
    })
}

fn task(interval: &Value, pid: i32) -> Result<&Value, Stop> {
    let mut tasks = interval["tasks"].as_array().into_iter().flatten();
    tasks.find(|task| task["pid"] == pid).ok_or_else(|| Stop::fail(format!("process {pid} has no row")))
}
