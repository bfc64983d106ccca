//! The cases: each compares the tool, or the laboratory itself, with a truth.

mod alternators;
mod balancing_time;
mod boot;
mod caches;
mod calibrate;
mod cgroup;
mod counters;
mod degraded;
mod disk_paths;
mod disk_writeback;
mod exits;
mod findings;
mod fresh;
mod hinting;
mod hotplug;
mod instructions;
mod isolated;
mod load;
mod memory_use;
mod moving;
mod nodes;
mod page_moves;
mod pinned;
mod placement;
mod places;
mod remote;
mod scope;
mod selftest;
mod sent;
mod siblings;
mod stopped;
mod storm;
mod switches;
mod tiers;
mod topology;
mod tui;

use std::collections::BTreeSet;
use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;
use std::time::Instant;

use serde_json::Value;
use vmtests_protocol::{Event, Outcome, Plan};

use crate::init;
use crate::intervals::{Totals, number};
use crate::report::{Channel, Report};
use crate::work::Done;

pub struct Case {
    name: &'static str,
    /// One line: the comparison and its truth.
    about: &'static str,
    run: fn(&mut Report, &Plan) -> Result<(), Stop>,
}

const CASES: &[Case] = &[
    boot::CASE,
    nodes::CASE,
    topology::CASE,
    load::CASE,
    pinned::CASE,
    caches::CASE,
    moving::CASE,
    storm::CASE,
    exits::CASE,
    sent::CASE,
    memory_use::CASE,
    memory_use::KNOWN,
    siblings::CASE,
    switches::CASE,
    counters::CASE,
    instructions::CASE,
    alternators::CASE,
    hotplug::CASE,
    isolated::CASE,
    scope::CASE,
    cgroup::CASE,
    disk_paths::CASE,
    tiers::CASE,
    disk_writeback::CASE,
    degraded::CASE,
    degraded::TOO_OLD,
    fresh::CASE,
    placement::CASE,
    placement::OTHERS,
    places::CASE,
    places::CORES,
    placement::RESERVED,
    stopped::CASE,
    remote::CASE,
    remote::BALANCED,
    hinting::CASE,
    hinting::WITHOUT_HOOKS,
    balancing_time::CASE,
    page_moves::CASE,
    findings::PINNED,
    findings::RECLAIM,
    findings::HEALTHY,
    findings::OTHER_NODE,
    findings::SEGMENT,
    findings::SEGMENT_QUIET,
    findings::ONE_NODE,
    findings::APART,
    findings::SIBLINGS,
    findings::QUOTA,
    findings::FEW_CPUS,
    findings::SHARED,
    findings::LOPSIDED,
    findings::HIDDEN,
    findings::INTERLEAVED,
    findings::SPREAD,
    findings::HUGETLB,
    findings::BALANCING_OFF,
    findings::BALANCING_COST,
    findings::PING_PONG,
    findings::INTERRUPTS,
    findings::FAR_DEVICE,
    findings::GPU_AWAY,
    findings::BOUND,
    findings::SWAPS,
    findings::TIERS,
    findings::SHORT,
    findings::CACHE,
    selftest::CASE,
    calibrate::CASE,
    tui::CASE,
];

/// Why a case ended before its time.
#[derive(Debug)]
pub enum Stop {
    /// It cannot run here, for this reason in one sentence.
    Skip(String),
    Fail(String),
}

impl Stop {
    pub fn skip(reason: impl Into<String>) -> Self {
        Stop::Skip(reason.into())
    }

    pub fn fail(reason: impl Into<String>) -> Self {
        Stop::Fail(reason.into())
    }
}

impl From<String> for Stop {
    fn from(reason: String) -> Self {
        Stop::Fail(reason)
    }
}

/// Every CPU of the machine.
fn all_cpus(plan: &Plan) -> Vec<u32> {
    (0..plan.machine.cpus()).collect()
}

/// The tool counts its own losses; here none is excused.
fn no_losses(report: &mut Report, totals: &Totals) {
    let lost: Vec<String> = totals
        .lost
        .iter()
        .filter(|(_, count)| **count > 0.0)
        .map(|(cause, count)| format!("{cause} {count}"))
        .collect();
    let found = if lost.is_empty() { "none".to_owned() } else { lost.join(", ") };
    report.equal("losses", "none".to_owned(), found);
}

/// Each child of a fork storm is shown as ended, in one row, with at least the CPU time from wait4(2). It may
/// have more: its time between that account and its last switch.
fn each_ended_once(report: &mut Report, totals: &Totals, parent: i32, done: &Done) -> Result<(), Stop> {
    let children = number(&done.truth, "children")? as usize;
    let (rows, processes) = totals.ended_children(parent);
    report.equal("children shown as ended", children, processes);
    report.equal("rows of ended children", children, rows.len());
    say_missing(report, totals, &rows, done);
    let too_little = |row: &&&Value| {
        let truth = done.truth["cpu_ns_by_child"][row["pid"].to_string()].as_f64();
        // Of one that the storm does not know, or without a number, nothing can be right.
        let (Some(truth), Some(shown)) = (truth, row["cpu_ns"].as_f64()) else { return true };
        shown < truth * 0.95
    };
    report.equal("of them with less than 95 % of their CPU time", 0, rows.iter().filter(too_little).count());
    Ok(())
}

/// The known facts of children that were not shown as ended.
fn say_missing(report: &Report, totals: &Totals, ended: &[&Value], done: &Done) {
    let shown: BTreeSet<u64> = ended.iter().filter_map(|row| row["pid"].as_u64()).collect();
    for (child, cpu_ns) in done.truth["cpu_ns_by_child"].as_object().into_iter().flatten() {
        let pid: u64 = child.parse().unwrap_or(0);
        if shown.contains(&pid) {
            continue;
        }
        let last = totals.tasks().filter(|row| row["pid"] == pid).last();
        report.say(format_args!(
            "child {child} is missing: {:.3} s by wait4; shown as ended were {} children born after it; its last row: {}",
            cpu_ns.as_f64().unwrap_or(0.0) / 1e9,
            shown.range(pid + 1..).count(),
            last.map_or("none".to_owned(), Value::to_string),
        ));
    }
}

/// Runs one case in this process; the exit code is for process 1.
pub fn run(name: &str) -> ExitCode {
    let plan = match init::read_plan() {
        Ok(plan) => plan,
        Err(why) => {
            eprintln!("guest: {why}; cases run in a guest only");
            return ExitCode::from(2);
        }
    };
    let channel = plan.results.as_deref().map_or_else(|| Ok(Channel::stdout()), Channel::open);
    let mut report = match channel {
        Ok(channel) => Report::new(name, channel),
        Err(why) => {
            eprintln!("guest: {why}");
            return ExitCode::from(2);
        }
    };
    let started = Instant::now();
    let (outcome, reason) = judge(name, &mut report, &plan);
    let seconds = started.elapsed().as_secs_f64();
    report.send(&Event::End { case: name.to_owned(), outcome, reason, seconds });
    ExitCode::from(code_of(outcome))
}

fn judge(name: &str, report: &mut Report, plan: &Plan) -> (Outcome, Option<String>) {
    let Some(case) = CASES.iter().find(|case| case.name == name) else {
        report.send(&Event::Begin { case: name.to_owned(), about: String::new() });
        return (Outcome::Failed, Some("the guest has no case of this name".to_owned()));
    };
    report.send(&Event::Begin { case: name.to_owned(), about: case.about.to_owned() });
    let result = panic::catch_unwind(AssertUnwindSafe(|| (case.run)(report, plan)));
    match result {
        Err(cause) => (Outcome::Failed, Some(format!("panicked: {}", message(&*cause)))),
        Ok(Err(Stop::Fail(reason))) => (Outcome::Failed, Some(reason)),
        Ok(_) if report.wrong > 0 => {
            (Outcome::Failed, Some(format!("{} of {} checks are wrong", report.wrong, report.checks)))
        }
        Ok(Err(Stop::Skip(reason))) => (Outcome::Skipped, Some(reason)),
        // A case that compared nothing has shown nothing.
        Ok(Ok(())) if report.checks == 0 => (Outcome::Failed, Some("nothing was checked".to_owned())),
        Ok(Ok(())) => (Outcome::Passed, None),
    }
}

fn message(cause: &(dyn std::any::Any + Send)) -> &str {
    cause
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| cause.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}

fn code_of(outcome: Outcome) -> u8 {
    match outcome {
        Outcome::Passed => 0,
        Outcome::Failed => 10,
        Outcome::Skipped => 11,
    }
}

/// The meaning of the exit code of a case process; `None` for one that did not get to its end.
pub fn outcome_of(code: Option<i32>) -> Option<Outcome> {
    [Outcome::Passed, Outcome::Failed, Outcome::Skipped]
        .into_iter()
        .find(|&outcome| code == Some(i32::from(code_of(outcome))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_or_a_signal_is_no_verdict() {
        assert_eq!(outcome_of(Some(0)), Some(Outcome::Passed));
        assert_eq!(outcome_of(Some(11)), Some(Outcome::Skipped));
        assert_eq!(outcome_of(Some(101)), None);
        assert_eq!(outcome_of(None), None);
    }

    #[test]
    fn names_are_unique_and_each_case_says_what_it_is_about() {
        for (index, case) in CASES.iter().enumerate() {
            assert!(!case.about.is_empty());
            assert!(CASES[..index].iter().all(|other| other.name != case.name));
        }
    }
}
