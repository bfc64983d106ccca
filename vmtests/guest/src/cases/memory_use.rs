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
            share as remote_pct, near or far (the emulator is interrupted behind its loads)",
    run: known,
};

/// Leaves the self-check out: an emulator has no slow instructions, and interrupts this program alone behind its loads.
const UNCHECKED: (&str, &str) = ("NUMATOP_NG_ACCESS_CHECK", "off");
/// The part of memory that is used much, on the first node, and the other one, on the last.
const HOT_MIB: &str = "10";
const COLD_MIB: &str = "82";
const HOT_PCT: &str = "95";
/// Percentage points.
const CLOSE: f64 = 5.0;
/// Samples are followed for ten milliseconds of each interval, in which an emulator follows three or four: many intervals a second.
const DELAY_S: &str = "0.1";
/// Intervals within which there are enough samples, of ten seconds each.
const PATIENCE: usize = 1200;
/// With so many an error of five points is more than three standard deviations.
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
    let (Some((near, first)), Some((far, last))) = (nodes.first(), nodes.last()) else {
        return Err(Stop::skip("needs two nodes"));
    };
    if near == far {
        return Err(Stop::skip("needs two nodes"));
    }
    for (node, cpu) in [(*near, first.cpus[0]), (*far, last.cpus[0])] {
        let cpu = cpu.to_string();
        let work = Work::start_now("loads", &[&cpu, HOT_PCT, HOT_MIB, "0", COLD_MIB, &far.to_string()])?;
        let shown = sampled(work.pid())?;
        let truth = work.stop()?.truth;
        let [hot, cold] = ["first", "second"].map(|part| truth[part].as_f64().unwrap_or(0.0));
        let remote = if node == *near { cold } else { hot };
        judge(report, (node, 100.0 * remote / (hot + cold)), &shown);
    }
    Ok(())
}

/// The row of the process once there are enough samples, or the last one.
fn sampled(pid: i32) -> Result<Value, Stop> {
    let mut batch = Batch::start_with(&["-d", DELAY_S, "--access"], &[UNCHECKED])?;
    let mut row = Value::Null;
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

/// Compares a process on this node with the truth: the node of each part of its memory, and the share of remote loads in per
/// cent. Time at memory is another matter: an emulator, too, takes longer for pages that are seldom used.
fn judge(report: &mut Report, (node, truth): (usize, f64), row: &Value) {
    let on = format!("of a process on node {node}");
    report.say(format_args!("samples {on}: {}", row["access"]));
    let mappings = row["access"]["mappings"].as_array().cloned().unwrap_or_default();
    for (mib, is_remote) in [(HOT_MIB, node != 0), (COLD_MIB, node == 0)] {
        let bytes = mib.parse::<u64>().unwrap_or(0) << 20;
        let part = mappings.iter().find(|mapping| mapping["bytes"] == bytes).unwrap_or(&Value::Null);
        let want = if is_remote { 100.0 } else { 0.0 };
        let what = format!("remote samples of its {mib} MiB, {on}, in per cent");
        report.check(part["remote_pct"] == want, what, want, &part["remote_pct"]);
    }
    if !IS_COUNTED {
        report.equal(
            format!("remote_source {on}"),
            "placement",
            row["remote_source"].as_str().unwrap_or("none"),
        );
        return;
    }
    report.equal(format!("remote_source {on}"), "sampled", row["remote_source"].as_str().unwrap_or("none"));
    let number = |id: &str| row[id].as_f64().unwrap_or(f64::NAN);
    let (pct, error) = (number("remote_pct"), number("remote_error_points"));
    // By where its memory is, it is 60 points and more off.
    let near = (pct - truth).abs() <= CLOSE;
    report.check(
        near,
        format!("remote_pct {on}"),
        format_args!("{truth:.1} ± {CLOSE}"),
        format_args!("{pct:.1} ± {error:.1}"),
    );
}
