//! Isolated CPUs are left alone. Interrupts on one are counted with the tool and without it. From 6.3 on the
//! kernel's trace shows the task and the function behind each of them. Interrupts on an idle CPU are reported
//! and not checked: wake-ups of the kernel's own threads are among them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
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
use crate::tracefs;
use crate::work::Work;

pub const CASE: Case = Case {
    name: "isolated",
    about: "an isolated CPU gets no interrupt from the tool, and the time of its task is right",
    run,
};

/// Intervals of the tool in each stretch in which interrupts are counted, and their length.
const INTERVALS: usize = 20;
const DELAY: &str = "0.5";
/// Calls in each interval that the kernel may make for other reasons, such as code that it patches and memory
/// that it unmaps. A flush would be one.
const OWN_CALLS: f64 = 0.5;
/// The scheduler updates the time of a lone task without a tick once a second, by a worker that a busy host
/// delays, by up to ten seconds. Then the time in its own file is as late; it may advance between our look
/// and the tool's.
const LATE: f64 = 2.2;

/// Function calls on a CPU that tasks of others asked for, traced until this is dropped.
struct Asked;

const CALL: &str = "events/csd/csd_queue_cpu";

impl Asked {
    /// Nothing where the kernel has no event of them (before 6.3).
    fn on(cpu: u32) -> Result<Option<Asked>, Stop> {
        tracefs::mount()?;
        if !Path::new("/sys/kernel/tracing").join(CALL).exists() {
            return Ok(None);
        }
        tracefs::set(&format!("{CALL}/filter"), &format!("cpu=={cpu}"))?;
        tracefs::set(&format!("{CALL}/enable"), "1")?;
        tracefs::set("tracing_on", "1")?;
        Ok(Some(Asked))
    }

    /// Since the call before.
    fn take(&self) -> Result<BTreeMap<Call, usize>, Stop> {
        let calls = parse(&tracefs::read("trace")?);
        tracefs::set("trace", "")?;
        Ok(calls)
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let _ = tracefs::set(&format!("{CALL}/enable"), "0");
        let _ = tracefs::set(&format!("{CALL}/filter"), "0");
    }
}

/// A function that was called, and the thread that asked for it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Call {
    comm: String,
    tid: i32,
    function: String,
}

/// The calls of a trace and how often each was.
fn parse(trace: &str) -> BTreeMap<Call, usize> {
    let mut calls = BTreeMap::new();
    for line in trace.lines() {
        let Some((head, fields)) = line.split_once(" csd_queue_cpu: ") else { continue };
        let Some((comm, tid)) = head.split_once(" [").and_then(|(task, _)| task.trim().rsplit_once('-'))
        else {
            continue;
        };
        let function = fields.split_whitespace().find_map(|field| field.strip_prefix("func=")).unwrap_or("?");
        let call =
            Call { comm: comm.to_owned(), tid: tid.parse().unwrap_or(-1), function: function.to_owned() };
        *calls.entry(call).or_insert(0) += 1;
    }
    calls
}

/// The threads of a process.
fn threads(pid: i32) -> Result<BTreeSet<i32>, String> {
    let path = format!("/proc/{pid}/task");
    let names = fs::read_dir(&path).map_err(|error| format!("reading {path}: {error}"))?;
    Ok(names.flatten().filter_map(|name| name.file_name().to_str()?.parse().ok()).collect())
}

/// Reports who asked for which calls; returns the number asked for by threads of this process.
fn say_asked(report: &mut Report, when: &str, calls: &BTreeMap<Call, usize>, of: &BTreeSet<i32>) -> usize {
    let mut by_function: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for (call, count) in calls {
        *by_function.entry((&call.comm, &call.function)).or_insert(0) += count;
    }
    let said: Vec<String> = by_function
        .iter()
        .map(|((comm, function), count)| format!("{function} by {comm} {count} times"))
        .collect();
    let said = if said.is_empty() { "none".to_owned() } else { said.join(", ") };
    report.say(format_args!("calls that tasks asked for on the isolated CPU {when}: {said}"));
    calls.iter().filter(|(call, _)| of.contains(&call.tid)).map(|(_, count)| count).sum()
}

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
    let scheduled_before = procfs::process_run_ns(pid)?;
    let asked = Asked::on(quiet)?;
    asked.as_ref().map(Asked::take).transpose()?;
    let [beside, idle_beside] = calls_in([quiet, idle], || batch.follow(&mut totals, INTERVALS).map(|_| ()))?;
    let by_tasks = asked.as_ref().map(Asked::take).transpose()?;
    let wall = began.elapsed().as_secs_f64();
    let tool = threads(batch.pid())?;
    let counted = totals.process(pid)?.clone();
    let scheduled = (procfs::process_run_ns(pid)? - scheduled_before) as f64 / 1e9;
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
    if let Some(by_tasks) = &by_tasks {
        let by_tool = say_asked(report, "beside the tool", by_tasks, &tool);
        report.equal("calls there that the tool asked for", 0, by_tool);
    }
    report.check(
        (told - scheduled).abs() <= LATE + wall / 10.0,
        "CPU seconds of the lone task while it never switched, beside those of /proc/PID/schedstat",
        format_args!("{scheduled:.2} ± {LATE} and a tenth; {wall:.2} s of wall clock"),
        format_args!("{told:.2}"),
    );
    report.cpu_seconds(
        "CPU seconds of it when it has ended",
        done.cpu.as_secs_f64() - before,
        totals.process(pid)?.cpu_ns / 1e9,
    );
    let node = plan.machine.node_of_cpu(quiet).unwrap_or(usize::MAX);
    // Over all intervals: the scheduler's time advances once a second, so some have none.
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
    let tracer = asked;
    tracer.as_ref().map(Asked::take).transpose()?;
    let began = Instant::now();
    let [asked, _] = calls_in([quiet, idle], || batch.follow(&mut totals, INTERVALS).map(|_| ()))?;
    let asked_wall = began.elapsed().as_secs_f64();
    let by_tasks = tracer.as_ref().map(Asked::take).transpose()?;
    let tool = threads(batch.pid())?;
    work.stop()?;
    batch.stop()?;
    if let Some(by_tasks) = &by_tasks {
        let by_tool = say_asked(report, "with --flush-isolated", by_tasks, &tool);
        report.check(
            by_tool >= INTERVALS / 2,
            "calls there that the tool asked for with --flush-isolated",
            format_args!("at least {}", INTERVALS / 2),
            by_tool,
        );
    }
    let expected = (beside as f64 * asked_wall / wall) as u64;
    report.check(
        asked >= expected + INTERVALS as u64 / 2,
        format_args!("calls on the isolated CPU in {asked_wall:.1} s with --flush-isolated"),
        format_args!("at least {} more than {expected}, as many as without it in that time", INTERVALS / 2),
        asked,
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_by_thread_and_function() {
        let trace = "\
# tracer: nop
      numatop-ng-123     [000] d..1.    12.345678: csd_queue_cpu: cpu=3 callsite=on_each_cpu_cond_mask+0x20/0x60 func=do_sync_core csd=0000000000000001
      numatop-ng-123     [000] d..1.    12.345679: csd_queue_cpu: cpu=3 callsite=on_each_cpu_cond_mask+0x20/0x60 func=do_sync_core csd=0000000000000001
  my-own worker-77      [001] d..1.    12.445678: csd_queue_cpu: cpu=3 callsite=generic_exec_single+0x36/0x150 func=flush_tlb_func csd=0000000000000002
";
        let call =
            |comm: &str, tid, function: &str| Call { comm: comm.into(), tid, function: function.into() };
        let expected =
            [(call("my-own worker", 77, "flush_tlb_func"), 1), (call("numatop-ng", 123, "do_sync_core"), 2)];
        assert_eq!(parse(trace), BTreeMap::from(expected));
    }
}
