//! Two cgroups throttled by their quota, one after the other: one by bursts, below it on average, and one
//! that uses all of its quota: `quota-throttled`.

use std::time::Duration;

use vmtests_protocol::Plan;

use super::super::{Case, Stop};
use super::watch::Watch;
use super::{LIVES, Loop, SLACK, undo};
use crate::groups::{self, Groups};
use crate::report::Report;
use crate::work::Work;

pub const CASE: Case = Case {
    name: "findings_quota",
    about: "a cgroup that uses all of its quota is an info; one that its quota stops in bursts is a warning, its command gives it more, \
            the finding ends, and the way back restores the quota",
    run,
};

const SHELF: &str = "/quotas.slice";
const BURSTS: &str = "/quotas.slice/bursts";
const CONSTANT: &str = "/quotas.slice/constant";
/// Three threads with 350 ms of work in each second use seven tenths of this quota, so half of the bursts may
/// be lost to late turns. Rules ignore a container that uses less than half a CPU.
const BURSTS_MAX: &str = "150000 100000";
/// A refill that comes late, as it does where CPUs are emulated in turns, is lost time of a period. Two threads use all of this
/// quota in a third of its period, so that no refill is late for them.
const CONSTANT_MAX: &str = "700000 1000000";
/// The time that the rule's condition must hold.
const HELD: Duration = Duration::from_secs(60);

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    if plan.machine.cpus() != 4 {
        return Err(Stop::skip("needs four CPUs"));
    }
    let _groups = Groups::make(&["cpu"], &[SHELF, BURSTS, CONSTANT])?;
    groups::write(BURSTS, "cpu.max", BURSTS_MAX)?;
    groups::write(CONSTANT, "cpu.max", CONSTANT_MAX)?;
    // The tool must leave a CPU idle: else a quota protects others. Emulated, it uses two in intervals of two seconds.
    let mut watch = Watch::every("4")?;
    // One after the other: both leave no CPU idle where the tool is slow, and then a quota protects others.
    let constant = work(CONSTANT, "spin", &["0-1"])?;
    let expected = Loop { of: Some(CONSTANT), severity: "info", ..Loop::of("quota-throttled") };
    let info = expected.comes(report, &mut watch, LIVES + HELD + SLACK + SLACK);
    say_rows(report, &watch);
    constant.stop()?;
    info?;
    // One CPU on average, and three at a time, while the quota gives one and a half.
    let bursts = work(BURSTS, "bursts", &["3", "350", "1000"])?;
    let expected = Loop { of: Some(BURSTS), held: HELD, ..Loop::of("quota-throttled") };
    let closed = expected.close(report, &mut watch, LIVES + HELD + SLACK + SLACK);
    say_rows(report, &watch);
    let finding = closed?;
    let after = groups::read(BURSTS, "cpu.max")?;
    let more = after.split(' ').next().and_then(|us| us.parse::<u32>().ok()).unwrap_or(0);
    report.check(more > 150_000, "cpu.max after the command", "more than 150000", &after);
    undo(report, &finding)?;
    report.equal("cpu.max after the way back", BURSTS_MAX.to_owned(), groups::read(BURSTS, "cpu.max")?);
    watch.stop()?;
    bursts.stop()?;
    Ok(())
}

/// A workload in a cgroup.
fn work(group: &str, name: &str, arguments: &[&str]) -> Result<Work, Stop> {
    let mut work = Work::start(name, arguments)?;
    groups::write(group, "cgroup.procs", &work.pid().to_string())?;
    work.go();
    Ok(work)
}

/// The numbers that the rule looks at, of the last interval.
fn say_rows(report: &Report, watch: &Watch) {
    for row in watch.last()["containers"].as_array().into_iter().flatten() {
        let part = |key: &str| format!("{key} {}", row[key]);
        let parts = ["cgroup", "cpu_pct", "cpu_quota_pct", "throttled_pct"].map(part);
        report.say(parts.join(", "));
    }
}
