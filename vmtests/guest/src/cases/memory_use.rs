//! Samples of the memory that a process uses: an emulated CPU is no CPU that they say something about.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use vmtests_protocol::Plan;

use super::{Case, Stop};
use crate::intervals::Totals;
use crate::report::Report;
use crate::tool::{Batch, seen_at};
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
/// Minimum part of the use that is in memory whose first touch is known: one function touches nearly all
/// memory.
const KNOWN_PCT: f64 = 80.0;
/// Percentage points.
const CLOSE: f64 = 5.0;
/// Samples are followed for ten milliseconds of each interval, in which an emulator follows three or four: many intervals a second.
const DELAY_S: &str = "0.1";
/// Samples of this time are shown, and up to this much of it may be of an interval that began earlier.
const WINDOW: SignedDuration = SignedDuration::from_millis(10_500);
/// Time in which there are enough samples.
const PATIENCE: SignedDuration = SignedDuration::from_secs(150);
/// Five points are more than four standard deviations of a share of this many samples. A window has two
/// hundred, or half that if the guest is slow.
const ENOUGH: u64 = 400;
/// Pairs of next runs from which on a window is by count.
const PAIRS_MIN: u64 = 100;
/// Samples are followed to the next run of their instruction, and so counted, on this architecture alone.
const IS_COUNTED: bool = cfg!(target_arch = "x86_64");

/// The messages of the self-check for two CPUs: one whose samples do not fall after the instruction that it
/// waited for, and one that is too slow for enough samples in its time.
const REFUSALS: [&str; 2] = [
    "clock samples do not hit the instruction after a slow one on this CPU",
    "the self-check of the sampler got",
];
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
        judge_touches(report, &on, &node.to_string(), &shown.row);
    }
    Ok(())
}

/// Windows of a process that follow each other.
#[derive(Default)]
struct Shown {
    /// Its row at the end of the last window.
    row: Value,
    /// Samples whose accesses are counted; all samples where none are.
    samples: u64,
    /// `remote_pct` of each window times its samples.
    remote: f64,
}

impl Shown {
    /// Takes a window if it has enough samples to be conclusive. Before the first, a row is kept as the
    /// reason.
    fn add(&mut self, row: &Value) -> bool {
        let used = &row["access"];
        let samples = if IS_COUNTED { &used["followed"]["resolved"] } else { &used["samples"] };
        let samples = samples.as_u64().unwrap_or(0);
        let is_thin = samples == 0 || IS_COUNTED && used["followed"]["pairs"].as_u64() < Some(PAIRS_MIN);
        if !is_thin || self.samples == 0 {
            self.row = row.clone();
        }
        if is_thin {
            return false;
        }
        self.samples += samples;
        self.remote += row["remote_pct"].as_f64().unwrap_or(f64::NAN) * samples as f64;
        true
    }

    /// Whether there are enough samples, or a window that is not by count, which is wrong.
    fn is_done(&self) -> bool {
        self.samples >= ENOUGH || self.samples > 0 && IS_COUNTED && self.row["remote_source"] != "sampled"
    }
}

/// Windows of the process until there are enough samples, or patience ends. It touches its memory while it is sampled, and
/// the windows are of the time behind that.
fn sampled(work: &mut Work) -> Result<Shown, Stop> {
    let pid = work.pid();
    let mut batch = Batch::start_with(&["-d", DELAY_S, "--access"], &[UNCHECKED])?;
    let mut shown = Shown::default();
    // The sampler is loaded with the first interval.
    batch.next()?;
    work.go();
    work.said()?;
    let touched = Timestamp::now();
    let (mut at, mut next) = (touched, touched + WINDOW);
    while !shown.is_done() && at < touched + PATIENCE {
        // Intervals are not kept: this many would not fit into a node of some guests.
        let interval = batch.next()?;
        at = seen_at(&interval)?;
        if at < next {
            continue;
        }
        let mut rows = interval["tasks"].as_array().into_iter().flatten();
        if rows.find(|row| row["pid"] == pid).is_some_and(|row| shown.add(row)) {
            next = at + WINDOW;
        }
    }
    batch.stop()?;
    Ok(shown)
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
fn judge(report: &mut Report, on: &str, (is_near, truth): (bool, f64), shown: &Shown) {
    let row = &shown.row;
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
    let pct = shown.remote / shown.samples as f64;
    // By where its memory is, it is 60 points and more off.
    report.check(
        (pct - truth).abs() <= CLOSE,
        format!("remote_pct {on}"),
        format_args!("{truth:.1} ± {CLOSE}"),
        format_args!("{pct:.1} of {} samples", shown.samples),
    );
}
