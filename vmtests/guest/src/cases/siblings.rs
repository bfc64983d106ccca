//! The time for which the other thread of a core was busy while a task ran, against the CPU time of the tasks
//! there.

use std::time::Instant;

use serde_json::Value;
use vmtests_protocol::Plan;

use super::{Case, Stop, all_cpus, no_losses};
use crate::cpuacct::Cpuacct;
use crate::intervals::{Totals, number};
use crate::procfs::process_run_ns;
use crate::report::Report;
use crate::tool::Batch;
use crate::work::Work;
use crate::{affinity, sysfs};

pub const CASE: Case = Case {
    name: "siblings",
    about: "smt_busy_pct of a task while its sibling idles, while another core computes, and while its sibling computes",
    run,
};

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    let siblings =
        |cpu: u32| sysfs::list(format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"));
    let core = siblings(0)?;
    let [first, second] = core[..] else {
        return Err(Stop::skip("the cores of this machine do not have two threads"));
    };
    let others: Vec<u32> = all_cpus(plan).into_iter().filter(|cpu| !core.contains(cpu)).collect();
    let (&elsewhere, rest) = others.split_first().ok_or_else(|| Stop::skip("there is one core only"))?;
    // The tool too stays away from the two cores.
    let partner = siblings(elsewhere)?;
    let rest: Vec<u32> = rest.iter().copied().filter(|cpu| !partner.contains(cpu)).collect();
    affinity::pin(&rest).map_err(|error| format!("staying on CPUs {rest:?}: {error}"))?;
    let mut batch = Batch::start(&["-d", "0.5"])?;
    let cpuacct = Cpuacct::mount(&mut batch)?;
    let mut totals = Totals::default();
    batch.follow(&mut totals, 1)?;

    let spin = |cpu: u32| Work::start_now("spin", &[&cpu.to_string()]);
    // The last of three intervals, and the time that tasks ran on the sibling during all three. Three of
    // them, because an emulator may take a CPU away for long.
    let mut look = |totals: &mut Totals| -> Result<(Value, f64), Stop> {
        let before = cpuacct.on_cpu_ns(second)?;
        let interval = batch.follow(totals, 3)?;
        Ok((interval, (cpuacct.on_cpu_ns(second)? - before) as f64 / 1e9))
    };
    let watched = spin(first)?;
    let pid = watched.pid();
    let (alone, ran_alone) = look(&mut totals)?;
    // Before its first row and after its end the sibling runs beside nothing, and an emulator makes little of the kernel's long.
    let (began, first_interval) = (cpuacct.on_cpu_ns(second)?, totals.intervals.len());
    let on_another_core = spin(elsewhere)?;
    let (beside, ran_beside) = look(&mut totals)?;
    let (since, ran_before) = (Instant::now(), process_run_ns(pid)?);
    let sibling = spin(second)?;
    let (shared, _) = look(&mut totals)?;
    sibling.stop()?;
    // All else on the first CPU (kernel threads, interrupts) was beside a busy sibling, too, and does not
    // belong to the task.
    let watched_ran = process_run_ns(pid)? - ran_before;
    let not_watched = (since.elapsed().as_secs_f64() - watched_ran as f64 / 1e9).max(0.0);
    look(&mut totals)?;
    let ran = (cpuacct.on_cpu_ns(second)? - began) as f64 / 1e9;
    let intervals = first_interval..totals.intervals.len();
    on_another_core.stop()?;
    watched.stop()?;
    batch.follow_to_end(&mut totals, pid)?;
    batch.stop()?;

    for (when, interval, ran) in
        [("the sibling idles", &alone, ran_alone), ("another core computes", &beside, ran_beside)]
    {
        let shown = beside_s(interval, pid)?;
        let most = ran + 0.05 * number(interval, "interval_ns")? / 1e9;
        let want = format_args!("at most {most:.3}");
        report.check(shown <= most, format_args!("seconds beside a busy sibling while {when}"), want, shown);
    }
    let pct = task(&shared, pid).and_then(|task| task["smt_busy_pct"].as_f64()).unwrap_or(0.0);
    report.check(pct >= 95.0, "smt_busy_pct while the sibling computes", "at least 95", pct);
    let (mut seconds, mut capped) = (0.0, 0.0);
    for interval in &totals.intervals[intervals] {
        seconds += beside_s(interval, pid)?;
        capped += capped_s(interval, pid)?;
    }
    report.data("not_watched_s", not_watched);
    report.data("capped_s", capped);
    let both = (ran - not_watched - capped, ran);
    report.cpu_seconds_between("seconds beside a busy sibling, for what ran there", both, seconds);
    no_losses(report, &totals);
    Ok(())
}

/// Seconds of an interval in which a process ran while the sibling was busy.
fn beside_s(interval: &Value, pid: i32) -> Result<f64, Stop> {
    let task = task(interval, pid).ok_or_else(|| Stop::fail(format!("process {pid} has no row")))?;
    let share = number(task, "smt_busy_pct")? / 100.0;
    Ok(number(task, "cpu_pct")? / 100.0 * share * number(interval, "interval_ns")? / 1e9)
}

/// Seconds of an interval beside a busy sibling that may be missing in its share. The scheduler's account of
/// a running task is as of the last tick, which is late on an emulator. The rest is in the next interval, and
/// a share is 100 % at most.
fn capped_s(interval: &Value, pid: i32) -> Result<f64, Stop> {
    let task = task(interval, pid).ok_or_else(|| Stop::fail(format!("process {pid} has no row")))?;
    if number(task, "smt_busy_pct")? < 100.0 {
        return Ok(0.0);
    }
    let idle = (100.0 - number(task, "cpu_pct")?).max(0.0) / 100.0;
    Ok(idle * number(interval, "interval_ns")? / 1e9)
}

fn task(interval: &Value, pid: i32) -> Option<&Value> {
    interval["tasks"].as_array()?.iter().find(|task| task["pid"] == pid)
}
