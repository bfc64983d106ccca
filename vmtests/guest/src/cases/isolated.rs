//! Isolated CPUs are left alone: interrupts on one are counted with the tool and without it. Interrupts on an idle
//! CPU are told and not checked: wake-ups of the kernel's own threads are among them.

use std::thread::sleep;
use std::time::{Duration, Instant};

use vmtests_protocol::Plan;

use super::{Case, Stop, no_losses};
use crate::affinity;
use crate::intervals::{Row, Totals};
use crate::procfs;
use crate::report::Report;
use crate::sysfs;
use crate::tool::Batch;
use crate::work::Work;

pub const CASE: Case = Case {
    name: "isolated",
    about: "an isolated CPU gets no interrupt from the tool, and the time of its task is right",
    run,
};

/// Intervals of the tool in each stretch in which interrupts are counted, and their length.
const INTERVALS: usize = 20;
const DELAY: &str = "0.5";
/// Calls for each interval that the kernel may make for reasons of its own, such as code that it patches and memory that it
/// unmaps. A flush would be one.
const OWN_CALLS: f64 = 0.5;
/// The scheduler brings the time of a lone task without a tick up to date once a second, by a worker that a busy host keeps
/// waiting: late by that much at the begin and at the end, and by a tenth.
const LATE: f64 = 2.2;

/// Calls of functions on a CPU that others asked for, since boot.
fn calls(cpu: u32) -> Result<u64, String> {
    let text = sysfs::read("/proc/interrupts")?;
    let row = text.lines().find(|line| line.trim_start().starts_with("CAL:"));
    let count = row.and_then(|row| row.split_whitespace().nth(1 + cpu as usize));
    count
        .and_then(|count| count.parse().ok())
        .ok_or_else(|| format!("/proc/interrupts has no calls of CPU {cpu}"))
}

/// Calls on these CPUs meanwhile.
fn calls_in(cpus: [u32; 2], mut meanwhile: impl FnMut() -> Result<(), Stop>) -> Result<[u64; 2], Stop> {
    let before = [calls(cpus[0])?, calls(cpus[1])?];
    meanwhile()?;
    Ok([calls(cpus[0])? - before[0], calls(cpus[1])? - before[1]])
}

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    let isolated = sysfs::list("/sys/devices/system/cpu/isolated")?;
    let &[quiet] = isolated.as_slice() else { return Err(Stop::skip("not one isolated CPU")) };
    // Nothing is pinned to it, and the guest has nothing to do.
    let idle = quiet - 1;
    // A task that wakes on an idle CPU is such a call, too: we and the tool stay where we are.
    affinity::pin(&[0]).map_err(|error| format!("binding to CPU 0: {error}"))?;
    let work = Work::start_now("spin", &[&quiet.to_string()])?;
    sleep(Duration::from_secs(2));
    let [alone, idle_alone] = calls_in([quiet, idle], || {
        sleep(Duration::from_secs_f64(INTERVALS as f64 * 0.5));
        Ok(())
    })?;
    work.stop()?;

    let mut batch = Batch::start(&["-d", DELAY])?;
    let mut totals = Totals::default();
    let mut work = Work::start("spin", &[&quiet.to_string()])?;
    let pid = work.pid();
    let first = batch.next()?;
    batch.follow(&mut totals, 1)?;
    let before = procfs::process_run_ns(pid)? as f64 / 1e9;
    work.go();
    batch.follow(&mut totals, 2)?;
    let (began, told_before) = (Instant::now(), totals.process(pid)?.clone());
    let [beside, idle_beside] = calls_in([quiet, idle], || batch.follow(&mut totals, INTERVALS).map(|_| ()))?;
    let wall = began.elapsed().as_secs_f64();
    let counted = totals.process(pid)?.clone();
    let told = (counted.cpu_ns - told_before.cpu_ns) / 1e9;
    let done = work.stop()?;
    batch.follow_to_end(&mut totals, pid)?;
    batch.stop()?;

    report.say(format_args!(
        "function calls in {wall:.1} s: isolated CPU {alone} without the tool, {beside} with it; idle CPU {idle_alone} and {idle_beside}"
    ));
    // A busy host keeps the case from reading: the tool has made more intervals meanwhile.
    let intervals = wall / 0.5;
    let most = (alone as f64 * intervals / INTERVALS as f64 + OWN_CALLS * intervals) as u64;
    report.check(
        beside < most,
        format_args!("calls on the isolated CPU in {intervals:.0} intervals"),
        format_args!("fewer than {most} (without the tool: {alone} in 10 s)"),
        beside,
    );
    report.check(
        (told - wall).abs() <= LATE + wall / 10.0,
        "CPU seconds of the lone task while it never switched",
        format_args!("{wall:.2} ± {LATE} and a tenth"),
        format_args!("{told:.2}"),
    );
    report.cpu_seconds(
        "CPU seconds of it when it has ended",
        done.cpu.as_secs_f64() - before,
        totals.process(pid)?.cpu_ns / 1e9,
    );
    let node = plan.machine.node_of_cpu(quiet).unwrap_or(usize::MAX);
    // Over all intervals: the scheduler's time goes on once a second, so that some have none.
    let ran_there = |row: &Row| row.cpu_ns_by_node.get(&(node as u32)).copied().unwrap_or(0.0);
    let here = (ran_there(&counted) - ran_there(&told_before)) / (told * 1e9) * 100.0;
    report.close(format_args!("its share on node {node}"), 100.0, here, 0.001);
    let notes = first["notes"].to_string();
    let says = notes.contains(&format!("({quiet})")) && notes.contains("--flush-isolated");
    report.check(says, "a note says which CPU is left alone", "CPU and flag", notes);
    no_losses(report, &totals);

    // The same count with the interrupts asked for: the check above could fail.
    let work = Work::start_now("spin", &[&quiet.to_string()])?;
    let mut batch = Batch::start(&["-d", DELAY, "--flush-isolated"])?;
    let mut totals = Totals::default();
    batch.follow(&mut totals, 3)?;
    let began = Instant::now();
    let [asked, _] = calls_in([quiet, idle], || batch.follow(&mut totals, INTERVALS).map(|_| ()))?;
    let asked_wall = began.elapsed().as_secs_f64();
    work.stop()?;
    batch.stop()?;
    let expected = (beside as f64 * asked_wall / wall) as u64;
    report.check(
        asked >= expected + INTERVALS as u64 / 2,
        format_args!("calls on the isolated CPU in {asked_wall:.1} s with --flush-isolated"),
        format_args!("at least {} more than {expected}, as many as without it in that time", INTERVALS / 2),
        asked,
    );
    Ok(())
}
