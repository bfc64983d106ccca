//! Hinting faults and pages that NUMA balancing moves, all tasks together, compared with /proc/vmstat.

use std::fs;

use serde_json::Value;
use vmtests_protocol::Plan;

use super::{Case, Stop};
use crate::intervals::Totals;
use crate::report::Report;
use crate::sysfs;
use crate::tool::Batch;
use crate::work::Work;

pub const CASE: Case = Case {
    name: "hinting",
    about: "hinting faults, local and remote, and pages that balancing moved are those of /proc/vmstat",
    run,
};

const BALANCING: &str = "/proc/sys/kernel/numa_balancing";
/// The tool and vmstat are not read at the same moment, and the tool itself is balanced too.
const STRAY: f64 = 64.0;

/// A counter of /proc/vmstat.
fn vmstat(name: &str) -> Result<f64, String> {
    let text = sysfs::read("/proc/vmstat")?;
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
    value.ok_or_else(|| format!("/proc/vmstat has no {name}"))
}

fn counters() -> Result<[f64; 3], String> {
    Ok([vmstat("numa_hint_faults")?, vmstat("numa_hint_faults_local")?, vmstat("numa_pages_migrated")?])
}

/// Hinting faults, local ones, and pages moved, over all rows and intervals.
fn shown(totals: &Totals) -> [f64; 3] {
    let mut sum = [0.0; 3];
    for interval in &totals.intervals {
        let seconds = interval["interval_ns"].as_f64().unwrap_or(0.0) / 1e9;
        for task in interval["tasks"].as_array().into_iter().flatten() {
            let number = |id: &str| task[id].as_f64().unwrap_or(0.0);
            let faults = number("hint_faults_per_s") * seconds;
            sum[0] += faults;
            sum[1] += faults * (1.0 - number("hint_remote_pct") / 100.0);
            sum[2] += number("pages_migrated_per_s") * seconds;
        }
    }
    sum
}

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    if plan.machine.cpu_nodes().count() < 2 {
        return Err(Stop::skip("there is one node with CPUs only"));
    }
    let before = fs::read_to_string(BALANCING).unwrap_or_default();
    fs::write(BALANCING, "1").map_err(|error| format!("writing {BALANCING}: {error}"))?;
    let mut batch = Batch::start(&["-d", "0.5"])?;
    let mut totals = Totals::default();
    let mut work = Work::start("numa_truth", &["0", "0,100", "64", "touched", "uniform"])?;
    batch.next()?;
    let first = batch.follow(&mut totals, 1)?;
    if let Some(why) = first["missing"]["hint_faults_per_s"].as_object() {
        return Err(Stop::fail(format!("no hinting faults: {}", Value::from(why.clone()))));
    }
    let start = counters()?;
    work.go();
    batch.follow(&mut totals, 16)?;
    work.stop()?;
    batch.follow(&mut totals, 2)?;
    let end = counters()?;
    batch.stop()?;
    let _ = fs::write(BALANCING, before);

    let names = ["hinting faults", "of these local", "pages moved"];
    for (at, (what, found)) in names.into_iter().zip(shown(&totals)).enumerate() {
        let truth = end[at] - start[at];
        let near = (found - truth).abs() <= STRAY;
        report.check(near, what, format_args!("{truth} ± {STRAY}"), format_args!("{found:.0}"));
    }
    report.check(end[0] > start[0], "balancing was at work", "more than 0 hinting faults", end[0] - start[0]);
    Ok(())
}
