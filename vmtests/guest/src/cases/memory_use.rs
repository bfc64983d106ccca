//! Samples of the memory that a process uses: an emulated CPU is no CPU that they say something about.

use serde_json::Value;
use vmtests_protocol::Plan;

use super::{Case, Stop};
use crate::intervals::Totals;
use crate::report::Report;
use crate::tool::Batch;
use crate::work::Work;

pub const CASE: Case = Case {
    name: "memory_use",
    about: "the emulator interrupts between any two instructions: the self-check refuses the samples with that reason, no \
            number is made of them, and remote_pct goes on from placement",
    run,
};

pub const KNOWN: Case = Case {
    name: "memory_use_known",
    about: "samples have the node of their page: a process that makes 95 % of its loads from a tenth of its memory has that \
            share as remote_pct, near or far, and its memory the program and the node that touched it first (the emulator is interrupted \
            behind its loads)",
    run: known,
};

/// Overrules the self-check, which refuses an emulator: of all programs it interrupts this one behind its loads.
const UNCHECKED: (&str, &str) = ("NUMATOP_NG_ACCESS_CHECK", "off");
/// The part of memory that is used much, on the first node, and the other one, on the last.
const HOT_MIB: u64 = 10;
const COLD_MIB: u64 = 82;
const HOT_PCT: &str = "95";
/// Part of the use that is in memory whose first touch is known, at least: nearly all of it is touched by one function.
const KNOWN_PCT: f64 = 80.0;
/// Percentage points.
const CLOSE: f64 = 5.0;
/// Samples are followed for ten milliseconds of each interval, in which an emulator follows three or four: many intervals a second.
const DELAY_S: &str = "0.1";
/// Intervals within which a window of ten seconds has enough samples.
const PATIENCE: usize = 1200;
/// Five points are more than three standard deviations of a share of so many.
const ENOUGH: u64 = 200;
/// Samples are followed to the next run of their instruction, and so counted, on this architecture alone.
const IS_COUNTED: bool = cfg!(target_arch = "x86_64");

/// The words of the self-check for a CPU whose samples do not fall behind the instruction that it waited for, and for one
/// that is too slow for enough samples in its time.
const REFUSALS: [&str; 2] =
    ["clock samples do not fall behind slow instructions on this CPU", "the self-check of the sampler got"];
const MIB: &str = "32";
/// Metrics that are made of samples.
const OF_SAMPLES: [&str; 4] =
    ["mem_time_pct", "mem_time_remote_pct", "mem_time_error_points", "mem_time_pct_by_node"];

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    let nodes = plan.machine.nodes.len();
    let mut shares = vec!["0"; nodes];
    shares[nodes - 1] = "100";
    let mut work = Work::start("numa_truth", &["0", &shares.join(","), MIB, "touched", "uniform"])?;
    work.go();
    let pid = work.pid();
    let mut batch = Batch::start(&["-d", "0.5", "--access"])?;
    let mut totals = Totals::default();
    let interval = batch.follow(&mut totals, 4)?;
    let row = totals.process(pid)?.last.clone();
    for id in OF_SAMPLES {
        let why = interval["missing"][id].as_str().unwrap_or("no reason");
        let refused = REFUSALS.iter().any(|refusal| why.contains(refusal));
        report.check(refused, format_args!("reason why there is no {id}"), REFUSALS[0], why);
        report.check(row[id].is_null(), format_args!("{id} of the process"), "none", &row[id]);
    }
    report.check(row["access"].is_null(), "samples of the process", "none", &row["access"]);
    if nodes > 1 {
        let source = row["remote_source"].as_str().unwrap_or("none");
        report.equal("remote_source", "placement", source);
    }
    drop(work);
    batch.stop()
}

fn known(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    let nodes: Vec<_> = plan.machine.cpu_nodes().collect();
    let [first, .., last] = &nodes[..] else { return Err(Stop::skip("needs two nodes")) };
    let [hot_node, cold_node] = [first, last].map(|(node, _)| node.to_string());
    let [hot_mib, cold_mib] = [HOT_MIB, COLD_MIB].map(|mib| mib.to_string());
    for (node, its) in [first, last] {
        let cpu = its.cpus[0].to_string();
        let mut work = Work::start("loads", &[&cpu, HOT_PCT, &hot_mib, &hot_node, &cold_mib, &cold_node])?;
        let shown = sampled(&mut work)?;
        let truth = work.stop()?.truth;
        let [hot, cold] = ["first", "second"].map(|part| truth[part].as_f64().unwrap_or(0.0));
        let is_near = *node == first.0;
        let remote = if is_near { cold } else { hot };
        let on = format!("of a process on node {node}");
        judge(report, &on, (is_near, 100.0 * remote / (hot + cold)), &shown);
        judge_touches(report, &on, &node.to_string(), &shown);
    }
    Ok(())
}

/// The row of the process once there are enough samples, or the last one. It touches its memory while it is sampled.
fn sampled(work: &mut Work) -> Result<Value, Stop> {
    let pid = work.pid();
    let mut batch = Batch::start_with(&["-d", DELAY_S, "--access"], &[UNCHECKED])?;
    let mut row = Value::Null;
    // The sampler is there with the first interval.
    batch.next()?;
    work.go();
    for _ in 0..PATIENCE {
        // Intervals are not kept: so many of them are more than a node of some guests has.
        let interval = batch.next()?;
        let mut rows = interval["tasks"].as_array().into_iter().flatten();
        row = rows.find(|row| row["pid"] == pid).cloned().unwrap_or_default();
        let samples =
            if IS_COUNTED { &row["access"]["followed"]["resolved"] } else { &row["access"]["samples"] };
        if samples.as_u64() >= Some(ENOUGH) {
            break;
        }
    }
    batch.stop()?;
    Ok(row)
}

/// Whether its memory was touched first by its own program, which has no names of functions here, on the node where that ran.
fn judge_touches(report: &mut Report, on: &str, node: &str, row: &Value) {
    let object = &row["access"]["objects"][0];
    let module = object["functions"][0]["module"].as_str().unwrap_or("none");
    report.equal(format!("first touch {on}"), "init", module);
    let touched_on = &object["first_touched_on"];
    report.check(touched_on[node] == 100.0, format_args!("its node {on}"), node, touched_on);
    let share = object["use_pct"].as_f64().or(object["accesses_pct"].as_f64()).unwrap_or(0.0);
    report.check(share >= KNOWN_PCT, format_args!("use in that memory {on}"), KNOWN_PCT, share);
}

/// Compares a process with the truth: whether each part of its memory is near or far, and the share of remote loads in per cent.
/// Time at memory is another matter: an emulator, too, takes longer for pages that are seldom used.
fn judge(report: &mut Report, on: &str, (is_near, truth): (bool, f64), row: &Value) {
    report.say(format_args!("samples {on}: {}", row["access"]));
    let mappings = row["access"]["mappings"].as_array().cloned().unwrap_or_default();
    for (mib, is_remote) in [(HOT_MIB, !is_near), (COLD_MIB, is_near)] {
        let part = mappings.iter().find(|mapping| mapping["bytes"] == mib << 20).unwrap_or(&Value::Null);
        let want = if is_remote { 100.0 } else { 0.0 };
        let what = format!("remote samples of its {mib} MiB, {on}, in per cent");
        report.check(part["remote_pct"] == want, what, want, &part["remote_pct"]);
    }
    let source = if IS_COUNTED { "sampled" } else { "placement" };
    report.equal(format!("remote_source {on}"), source, row["remote_source"].as_str().unwrap_or("none"));
    if !IS_COUNTED {
        return;
    }
    let number = |id: &str| row[id].as_f64().unwrap_or(f64::NAN);
    let (pct, error) = (number("remote_pct"), number("remote_error_points"));
    // By where its memory is, it is 60 points and more off.
    report.check(
        (pct - truth).abs() <= CLOSE,
        format!("remote_pct {on}"),
        format_args!("{truth:.1} ± {CLOSE}"),
        format_args!("{pct:.1} ± {error:.1}"),
    );
}
