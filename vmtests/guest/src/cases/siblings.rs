//! How long the other thread of a core was busy while a task ran, against the CPU time of what ran there.

use serde_json::Value;
use vmtests_protocol::Plan;

use super::{Case, Stop, all_cpus, no_losses};
use crate::intervals::{Totals, number};
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
    let mut totals = Totals::default();
    batch.follow(&mut totals, 1)?;

    let spin = |cpu: u32| Work::start_now("spin", &[&cpu.to_string()]);
    let watched = spin(first)?;
    let pid = watched.pid();
    batch.follow(&mut totals, 2)?;
    let alone = busy(&batch.follow(&mut totals, 1)?, pid)?;
    let on_another_core = spin(elsewhere)?;
    batch.follow(&mut totals, 2)?;
    let beside = busy(&batch.follow(&mut totals, 1)?, pid)?;
    let sibling = spin(second)?;
    batch.follow(&mut totals, 2)?;
    let shared = busy(&batch.follow(&mut totals, 1)?, pid)?;
    let sibling = sibling.stop()?;
    // The first of these may have been waiting to be read.
    batch.follow(&mut totals, 2)?;
    on_another_core.stop()?;
    watched.stop()?;
    batch.stop()?;

    report.check(alone <= 5.0, "smt_busy_pct while the sibling idles", "at most 5", alone);
    report.check(beside <= 5.0, "smt_busy_pct while another core computes", "at most 5", beside);
    report.check(shared >= 95.0, "smt_busy_pct while the sibling computes", "at least 95", shared);
    let mut seconds = 0.0;
    for interval in &totals.intervals {
        // In its first moments and after its end it may have no row.
        if let (Some(task), Ok(ns)) = (task(interval, pid), number(interval, "interval_ns")) {
            let busy = task["smt_busy_pct"].as_f64().unwrap_or(0.0);
            seconds += number(task, "cpu_pct")? / 100.0 * busy / 100.0 * ns / 1e9;
        }
    }
    // Of the thread that is bound there: its process was started somewhere else.
    let ran = number(&sibling.truth["threads"][0], "cpu_ns")? / 1e9;
    report.close("seconds beside a busy sibling, for its CPU time", ran, seconds, 0.05);
    no_losses(report, &totals);
    Ok(())
}

fn busy(interval: &Value, pid: i32) -> Result<f64, Stop> {
    let task = task(interval, pid).ok_or_else(|| Stop::fail(format!("process {pid} has no row")))?;
    number(task, "smt_busy_pct")
}

fn task(interval: &Value, pid: i32) -> Option<&Value> {
    interval["tasks"].as_array()?.iter().find(|task| task["pid"] == pid)
}
