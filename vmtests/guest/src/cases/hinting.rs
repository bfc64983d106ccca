//! Hinting faults and pages that NUMA balancing moves, of all tasks, of all nodes and of the host, compared with
//! /proc/vmstat.

use serde_json::Value;
use vmtests_protocol::Plan;

use super::{Case, Stop};
use crate::intervals::Totals;
use crate::procfs::vmstat;
use crate::report::Report;
use crate::rest::Balancing;
use crate::setting::Setting;
use crate::tool::Batch;
use crate::work::Work;

pub const CASE: Case = Case {
    name: "hinting",
    about: "hinting faults, local and remote, and pages that balancing moved are those of /proc/vmstat",
    run: |report, plan| run(report, plan, true),
};

pub const WITHOUT_HOOKS: Case = Case {
    name: "hinting_unhooked",
    about: "the same where no function of the kernel can be hooked: from the task structure, and never too many",
    run: |report, plan| run(report, plan, false),
};

/// Without it neither trampolines nor breakpoints can be set at the entry of functions (amd64).
const FTRACE: &str = "/proc/sys/kernel/ftrace_enabled";
/// The task structure counts pages where vmstat counts faults: with small pages that is the same.
const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
/// The part of the faults that the task structure shows at least, in percent. Faults between the last look at
/// it and the end of a scan are missed.
const SEEN_PCT: u64 = 70;

fn counters() -> Result<[u64; 3], String> {
    Ok([vmstat("numa_hint_faults")?, vmstat("numa_hint_faults_local")?, vmstat("numa_pages_migrated")?])
}

/// Hinting faults, local ones, and pages moved: of some rows, over all intervals.
fn shown<'a>(totals: &'a Totals, rows: impl Fn(&'a Value) -> Vec<&'a Value>) -> [u64; 3] {
    let mut sum = [0.0; 3];
    for interval in &totals.intervals {
        let seconds = interval["interval_ns"].as_f64().unwrap_or(0.0) / 1e9;
        for row in rows(interval) {
            let number = |id: &str| row[id].as_f64().unwrap_or(0.0);
            let faults = number("hint_faults_per_s") * seconds;
            sum[0] += faults;
            sum[1] += faults * (1.0 - number("hint_remote_pct") / 100.0);
            sum[2] += number("pages_migrated_per_s") * seconds;
        }
    }
    sum.map(|sum: f64| sum.round() as u64)
}

fn all<'a>(interval: &'a Value, what: &str) -> Vec<&'a Value> {
    interval[what].as_array().into_iter().flatten().collect()
}

/// Reports the cost of the balancing programs in the interval in which they ran most.
fn costs(report: &mut Report, totals: &Totals) {
    let programs = |interval: &Value| interval["self"]["programs"].clone();
    let runs =
        |interval: &&Value| programs(interval)["on_hint_fault"]["probe_runs_per_s"].as_f64().unwrap_or(0.0);
    let Some(busy) = totals.intervals.iter().max_by(|a, b| runs(a).total_cmp(&runs(b))) else { return };
    for (name, cost) in programs(busy).as_object().into_iter().flatten() {
        report.say(format_args!(
            "{name}: {} ns a run, {} runs a second",
            cost["probe_ns"], cost["probe_runs_per_s"]
        ));
    }
}

/// A user who reads that balancing is off may switch it on, and sees it at work without a new start.
fn switched_on_later(report: &mut Report) -> Result<(), Stop> {
    let balancing = Balancing::off()?;
    let mut batch = Batch::start(&["-d", "0.5"])?;
    let why = |interval: &Value| interval["missing"]["hint_faults_per_s"].as_str().unwrap_or("").to_owned();
    let while_off = why(&batch.next()?);
    report.check(
        while_off.contains("numa_balancing is 0"),
        "why there are none while it is off",
        "it is off",
        &while_off,
    );
    balancing.set(true)?;
    // The sample that is being taken may have looked before.
    let once_on = batch.follow(&mut Totals::default(), 2)?;
    report.equal("why there are none once it is on", String::new(), why(&once_on));
    batch.stop()
}

fn run(report: &mut Report, plan: &Plan, hooks: bool) -> Result<(), Stop> {
    if plan.machine.cpu_nodes().count() < 2 {
        return Err(Stop::skip("there is one node with CPUs only"));
    }
    if hooks {
        switched_on_later(report)?;
    }
    let balancing = Balancing::on()?;
    let mut settings = Vec::new();
    if !hooks {
        settings.push(Setting::begin(FTRACE, "0").map_err(Stop::skip)?);
        settings.push(Setting::begin(HUGE_PAGES, "never")?);
    }
    let batch = Batch::start(&["-d", "0.5", "--overhead"])?;
    let work = Work::start("numa_truth", &["0", "0,100", "64", "touched", "uniform"])?;
    // Without hooks nodes have none, and say so.
    let (truth, totals) = balancing.work_on(work, batch, hooks.then_some("hint_faults_per_s"), counters)?;
    costs(report, &totals);

    let tasks = shown(&totals, |interval| all(interval, "tasks"));
    report.equal("pages moved, of all tasks", truth[2], tasks[2]);
    report.check(truth[0] > 0, "balancing was at work", "more than 0 hinting faults", truth[0]);
    if !hooks {
        let last = totals.intervals.last();
        let why = last.and_then(|last| last["missing"]["balancing_pct"].as_str()).unwrap_or("nothing");
        report.check(why.contains("ftrace_enabled"), "why there is no balancing_pct", "ftrace_enabled", why);
        for (what, truth, found) in
            [("hinting faults", truth[0], tasks[0]), ("local ones", truth[1], tasks[1])]
        {
            let near = (truth * SEEN_PCT / 100..=truth).contains(&found);
            report.check(near, what, format_args!("{SEEN_PCT} to 100 % of {truth}"), found);
        }
        return Ok(());
    }
    let nodes = shown(&totals, |interval| all(interval, "nodes"));
    let host = shown(&totals, |interval| vec![&interval["host"]]);
    for (rows, found) in [("all tasks", tasks), ("all nodes", nodes), ("the host", host)] {
        report.equal(format!("hinting faults of {rows}"), truth[0], found[0]);
        report.equal(format!("local ones of {rows}"), truth[1], found[1]);
    }
    Ok(())
}
