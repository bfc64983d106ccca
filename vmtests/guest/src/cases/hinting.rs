//! Hinting faults and pages that NUMA balancing moves, of all tasks, of all nodes and of the host, compared with
//! /proc/vmstat.

use std::fs;

use serde_json::Value;
use vmtests_protocol::Plan;

use super::{Case, Stop};
use crate::intervals::Totals;
use crate::procfs;
use crate::report::Report;
use crate::tool::Batch;
use crate::work::Work;

pub const CASE: Case = Case {
    name: "hinting",
    about: "hinting faults, local and remote, and pages that balancing moved are those of /proc/vmstat",
    run,
};

const BALANCING: &str = "/proc/sys/kernel/numa_balancing";
/// Faults, local faults, pages moved.
const COUNTERS: [&str; 3] = ["numa_hint_faults", "numa_hint_faults_local", "numa_pages_migrated"];

fn counters() -> Result<[u64; 3], String> {
    let [faults, local, moved] = COUNTERS.map(procfs::vmstat);
    Ok([faults?, local?, moved?])
}

/// The counters before and after the tool takes a sample. The first interval that is waited for may end with a sample
/// that was taken already, and is only on its way.
fn around(batch: &mut Batch, totals: &mut Totals) -> Result<[[u64; 3]; 2], Stop> {
    let before = counters()?;
    if totals.marked() {
        batch.follow(totals, 1)?;
    } else {
        batch.next()?;
    }
    batch.follow(totals, 1)?;
    Ok([before, counters()?])
}

/// Hinting faults and local ones of some rows, over all intervals.
fn faults<'a>(totals: &'a Totals, rows: impl Fn(&'a Value) -> Vec<&'a Value>) -> [f64; 2] {
    let mut sum = [0.0; 2];
    for interval in &totals.intervals {
        let seconds = interval["interval_ns"].as_f64().unwrap_or(0.0) / 1e9;
        for row in rows(interval) {
            let faults = row["hint_faults_per_s"].as_f64().unwrap_or(0.0) * seconds;
            sum[0] += faults;
            sum[1] += faults * (1.0 - row["hint_remote_pct"].as_f64().unwrap_or(0.0) / 100.0);
        }
    }
    sum
}

fn all<'a>(interval: &'a Value, what: &str) -> Vec<&'a Value> {
    interval[what].as_array().into_iter().flatten().collect()
}

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    if plan.machine.cpu_nodes().count() < 2 {
        return Err(Stop::skip("there is one node with CPUs only"));
    }
    let switch = fs::read_to_string(BALANCING).unwrap_or_default();
    fs::write(BALANCING, "1").map_err(|error| format!("writing {BALANCING}: {error}"))?;
    let mut batch = Batch::start(&["-d", "0.5"])?;
    let mut work = Work::start("numa_truth", &["0", "0,100", "64", "touched", "uniform"])?;
    let mut totals = Totals::default();
    let first = batch.next()?;
    if let Some(why) = first["missing"]["hint_faults_per_s"].as_object() {
        return Err(Stop::fail(format!("no hinting faults: {}", Value::from(why.clone()))));
    }
    let start = around(&mut batch, &mut totals)?;
    work.go();
    batch.follow(&mut totals, 16)?;
    work.stop()?;
    let end = around(&mut batch, &mut totals)?;
    batch.stop()?;
    let _ = fs::write(BALANCING, switch);

    // Next to nothing happens while the first and the last sample are taken: these are close to each other.
    let (least, most) =
        ([0, 1, 2].map(|at| end[0][at] - start[1][at]), [0, 1, 2].map(|at| end[1][at] - start[0][at]));
    let moved = totals.intervals.iter().map(|interval| {
        let seconds = interval["interval_ns"].as_f64().unwrap_or(0.0) / 1e9;
        all(interval, "tasks").iter().filter_map(|task| task["pages_migrated_per_s"].as_f64()).sum::<f64>()
            * seconds
    });
    let moved = moved.sum::<f64>();
    let [tasks, nodes, host] = [
        faults(&totals, |interval| all(interval, "tasks")),
        faults(&totals, |interval| all(interval, "nodes")),
        faults(&totals, |interval| vec![&interval["host"]]),
    ];
    for (what, at, found) in [
        ("hinting faults of all tasks", 0, tasks[0]),
        ("of these local", 1, tasks[1]),
        ("hinting faults of all nodes", 0, nodes[0]),
        ("of these local", 1, nodes[1]),
        ("hinting faults of the host", 0, host[0]),
        ("of these local", 1, host[1]),
        ("pages moved for all tasks", 2, moved),
    ] {
        // Rates are printed with six decimals.
        let near = (least[at] as f64 - 0.5..=most[at] as f64 + 0.5).contains(&found);
        report.check(near, what, format_args!("{} to {}", least[at], most[at]), format_args!("{found:.2}"));
    }
    report.check(least[0] > 0, "balancing was at work", "more than 0 hinting faults", least[0]);
    Ok(())
}
