//! Memory tiers: the firmware's description, and pages that the kernel promotes and demotes.

use serde_json::Value;
use vmtests_protocol::Plan;

use super::{Case, Stop, no_losses};
use crate::groups::{self, Groups};
use crate::intervals::Totals;
use crate::report::Report;
use crate::rest::come_to_rest;
use crate::sysfs;
use crate::tiers::{self, BALANCING, Tiers};
use crate::tool::{self, Batch};
use crate::work::Work;

pub const CASE: Case = Case {
    name: "tiers",
    about: "tier, latency and bandwidth of a slow node are those of the firmware; pages of a process that come from it, and pages that \
            leave for it, are as many as the kernel counts by node; nothing is promoted while NUMA balancing is off",
    run,
};

/// Small pages that are used on the slow node.
const MIB: &str = "32";
const PAGES: u64 = 32 << 20 >> 12;
/// More than the first node has.
const TOO_MUCH: &str = "400";
/// A group whose memory is asked back, and how much of it.
const GROUP: &str = "/tiered";
const RECLAIMED: &str = "2000K";
/// Intervals of use.
const INTERVALS: usize = 6;

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    let machine = Tiers::of(plan)?;
    described(report, &machine)?;
    let _settings = tiers::fast("0")?;
    promoted(report, &machine)?;
    demoted(report)?;
    asked(report)
}

fn described(report: &mut Report, machine: &Tiers) -> Result<(), Stop> {
    let topology = tool::json(&["topology", "--format", "json"])?;
    let node =
        |id: u32| topology["nodes"].as_array().into_iter().flatten().find(|node| node["node"] == id).cloned();
    let slow = node(machine.slow).unwrap_or_default();
    let gbs = machine.mbs as f64 / 1000.0;
    report.equal("tier of the first node", "1".to_owned(), node(0).unwrap_or_default()["tier"].to_string());
    report.equal("tier of the slow node", "2".to_owned(), slow["tier"].to_string());
    report.equal("firmware_latency_ns", machine.ns.to_string(), slow["firmware_latency_ns"].to_string());
    report.equal("firmware_bandwidth_gbs", gbs.to_string(), slow["firmware_bandwidth_gbs"].to_string());
    let mut batch = Batch::start(&["-d", "0.5"])?;
    let interval = batch.next()?;
    batch.stop()?;
    let mut rows = interval["nodes"].as_array().into_iter().flatten();
    let row = rows.find(|row| row["node"] == machine.slow).cloned().unwrap_or_default();
    report.equal("tier of its row", "2".to_owned(), row["tier"].to_string());
    report.equal("firmware_latency_ns of its row", machine.ns as f64, of(&row, "firmware_latency_ns"));
    report.equal("firmware_bandwidth_gbs of its row", gbs, of(&row, "firmware_bandwidth_gbs"));
    Ok(())
}

fn of(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap_or(f64::NAN)
}

/// Memory on the slow node, used by a CPU of the first one: without NUMA balancing, and in its tiering mode.
fn promoted(report: &mut Report, machine: &Tiers) -> Result<(), Stop> {
    let mut work = Work::start_now("sweeps", &["0", MIB, &machine.slow.to_string()])?;
    let pid = work.pid();
    work.said()?;
    let mut batch = Batch::start(&["-d", "0.5"])?;
    let read = || tiers::pages(0);
    let before = come_to_rest(&mut batch, &mut Totals::default(), read)?;
    let mut totals = Totals::default();
    batch.follow(&mut totals, 1)?;
    work.go();
    batch.follow(&mut totals, INTERVALS)?;
    report.equal("pages promoted while balancing is off, by the kernel", 0, read()?[0] - before[0]);
    report.equal("pages promoted while balancing is off", 0, of_node(&totals, 0, "promoted_pages_per_s"));
    sysfs::write(BALANCING, "2")?;
    batch.follow(&mut totals, INTERVALS)?;
    let after = come_to_rest(&mut batch, &mut totals, read)?;
    batch.stop()?;
    let truth = after[0] - before[0];
    report.check(truth >= PAGES, "pages that the kernel promotes", PAGES, truth);
    report.equal("pages promoted to the node", truth, of_node(&totals, 0, "promoted_pages_per_s"));
    // Its stack and its program are on the first node.
    report.equal("pages promoted for the process", PAGES, of_process(&totals, pid, "promoted_pages_per_s"));
    let others = truth - of_process(&totals, pid, "promoted_pages_per_s").min(truth);
    report.equal("pages promoted for others", others, of_others(&totals, pid, "promoted_pages_per_s"));
    no_losses(report, &totals);
    work.stop()?;
    Ok(())
}

/// More memory than the first node has, all of it in use: pages go to slow memory and come back.
fn demoted(report: &mut Report) -> Result<(), Stop> {
    let mut batch = Batch::start(&["-d", "1"])?;
    let read = || Ok([tiers::pages(0)?, tiers::pages(1)?]);
    let before = come_to_rest(&mut batch, &mut Totals::default(), read)?;
    let mut totals = Totals::default();
    batch.follow(&mut totals, 1)?;
    let mut work = Work::start_now("sweeps", &["0", TOO_MUCH, "0"])?;
    work.said()?;
    work.go();
    batch.follow(&mut totals, INTERVALS)?;
    work.stop()?;
    let after = come_to_rest(&mut batch, &mut totals, read)?;
    batch.stop()?;
    for node in 0..2 {
        for (at, id) in ["promoted_pages_per_s", "demoted_pages_per_s"].into_iter().enumerate() {
            let truth = after[node][at] - before[node][at];
            report.equal(format_args!("{id} of node {node}"), truth, of_node(&totals, node, id));
            report.check(truth > 0 || node > 0, format_args!("pages of node {node}"), "more than 0", truth);
        }
    }
    no_losses(report, &totals);
    Ok(())
}

/// Memory of a group that is asked back goes to slow memory.
fn asked(report: &mut Report) -> Result<(), Stop> {
    let _groups = Groups::make(&["memory"], &[GROUP])?;
    if !groups::read(GROUP, "memory.stat")?.contains("pgdemote_") {
        return Err(Stop::skip("memory.stat counts no demotion"));
    }
    let mut work = Work::start("sweeps", &["0", MIB, "0"])?;
    groups::write(GROUP, "cgroup.procs", &work.pid().to_string())?;
    work.go();
    work.said()?;
    let mut batch = Batch::start(&["-d", "1"])?;
    batch.next()?;
    batch.next()?;
    // Less than asked for is an error, and what was found is gone.
    let _ = groups::write(GROUP, "memory.reclaim", RECLAIMED);
    let text = groups::read(GROUP, "memory.stat")?;
    let counts = text.lines().filter(|line| line.starts_with("pgdemote_"));
    let truth: u64 = counts.filter_map(|line| line.split_once(' ')?.1.parse::<u64>().ok()).sum();
    report.check(truth > 0, "pages that the kernel demotes for the group", "more than 0", truth);
    let mut shown = 0.0;
    for _ in 0..INTERVALS {
        let interval = batch.next()?;
        let mut rows = interval["containers"].as_array().into_iter().flatten();
        let row = rows.find(|row| row["cgroup"] == GROUP);
        shown = row.and_then(|row| row["demoted_pages_per_s"].as_f64()).unwrap_or(0.0);
        if shown > 0.0 {
            break;
        }
    }
    batch.stop()?;
    // Its files are read once in five seconds at least.
    report.check(
        shown >= truth as f64 / 6.0 && shown <= truth as f64 * 2.0,
        "demoted_pages_per_s of the group",
        format_args!("{truth} pages in the time between two readings"),
        format_args!("{shown:.1}"),
    );
    work.stop()?;
    Ok(())
}

fn of_node(totals: &Totals, node: usize, id: &str) -> u64 {
    sum(totals, "nodes", id, |row| row["node"] == node)
}

fn of_process(totals: &Totals, pid: i32, id: &str) -> u64 {
    sum(totals, "tasks", id, |row| row["pid"] == pid)
}

fn of_others(totals: &Totals, pid: i32, id: &str) -> u64 {
    sum(totals, "tasks", id, |row| row["pid"] != pid)
}

fn sum(totals: &Totals, rows: &str, id: &str, is: impl Fn(&Value) -> bool) -> u64 {
    totals.sum_of_rates(|interval| {
        let rows = interval[rows].as_array().into_iter().flatten();
        rows.filter(|row| is(row)).filter_map(|row| row[id].as_f64()).sum()
    })
}
