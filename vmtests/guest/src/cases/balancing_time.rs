//! The time that NUMA balancing takes, compared with the kernel's own stop-watch: the function graph tracer.
//! It uses huge pages for two reasons. One function covers the whole of such a fault, and moving two
//! megabytes is long compared with the cost of both stop-watches.

use std::fs;
use std::thread;
use std::time::Duration;

use vmtests_protocol::Plan;

use super::{Case, Stop};
use crate::intervals::Totals;
use crate::report::Report;
use crate::rest::Balancing;
use crate::tool::Batch;
use crate::tracefs::{self, set};
use crate::work::Work;

pub const CASE: Case = Case {
    name: "balancing_time",
    about: "balancing_pct is the time between the same functions by the function graph tracer",
    run,
};

/// The work of balancing with this workload: it scans, and it moves huge pages at hinting faults.
const FUNCTIONS: [&str; 2] = ["task_numa_work", "do_huge_pmd_numa_page"];
/// Relative.
const CLOSE: f64 = 0.1;

/// The tracer, off again when dropped.
struct Tracer;

impl Tracer {
    fn start() -> Result<Tracer, Stop> {
        tracefs::mount()?;
        if !tracefs::read("available_tracers")?.split_whitespace().any(|tracer| tracer == "function_graph") {
            return Err(Stop::skip("the kernel has no function graph tracer"));
        }
        set("tracing_on", "0")?;
        set("set_ftrace_filter", &FUNCTIONS.join("\n"))?;
        set("buffer_size_kb", "16384")?;
        set("current_tracer", "function_graph")?;
        // These exist once the tracer does. Time in which a task was not on its CPU is left out.
        for (option, value) in [("funcgraph-proc", "1"), ("funcgraph-tail", "1"), ("sleep-time", "0")] {
            set(&format!("options/{option}"), value)?;
        }
        set("tracing_on", "1")?;
        Ok(Tracer)
    }

    /// The trace. The tracer rests from then on.
    fn text(&self) -> Result<String, String> {
        set("tracing_on", "0")?;
        tracefs::read("trace")
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        let _ = set("current_tracer", "nop");
        let _ = set("set_ftrace_filter", "");
    }
}

/// Calls that ended in a trace, of these threads, and how long they took together, in microseconds. A line is
/// `CPU) COMM-TID | DURATION us | FUNCTION();`, or has the begin and the end of the function in a line each.
fn took(trace: &str, function: &str, tids: &[u32]) -> (u32, f64) {
    let (mut calls, mut sum) = (0, 0.0);
    for line in trace.lines().filter(|line| !line.starts_with('#')) {
        let parts: Vec<&str> = line.split('|').map(str::trim).collect();
        let [task, duration, name] = parts[..] else { continue };
        let tid = task.rsplit('-').next().and_then(|tid| tid.trim().parse().ok());
        if !name.contains(function) || !tid.is_some_and(|tid| tids.contains(&tid)) {
            continue;
        }
        let mut words = duration.split_whitespace().rev().skip_while(|word| *word != "us").skip(1);
        if let Some(us) = words.next().and_then(|number| number.parse::<f64>().ok()) {
            calls += 1;
            sum += us;
        }
    }
    (calls, sum)
}

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    if plan.machine.cpu_nodes().count() < 2 {
        return Err(Stop::skip("there is one node with CPUs only"));
    }
    let _balancing = Balancing::on()?;
    // All in one interval: an emulated fault may take a second, and counts when it ends.
    let mut batch = Batch::start(&["-d", "8"])?;
    let mut totals = Totals::default();
    let mut work = Work::start("numa_truth", &["0", "0,100", "96", "touched_huge", "uniform"])?;
    batch.next()?;
    let tracer = Tracer::start()?;
    batch.follow(&mut totals, 1)?;
    work.go();
    thread::sleep(Duration::from_secs(5));
    let tids = threads(work.pid());
    let pid = work.pid();
    work.stop()?;
    let trace = tracer.text()?;
    drop(tracer);
    let last = batch.follow(&mut totals, 1)?;
    batch.stop()?;
    // On a busy host the trace is read for seconds, and the interval that has its row is not the last.
    if !totals.tasks().any(|task| task["pid"] == pid && task["balancing_pct"].is_number()) {
        let why = &last["missing"]["balancing_pct"];
        return Err(Stop::fail(format!("process {pid} has no balancing_pct: {why}")));
    }

    let [(scans, scans_us), (faults, faults_us)] = FUNCTIONS.map(|function| took(&trace, function, &tids));
    let shown: f64 = totals
        .intervals
        .iter()
        .map(|interval| {
            let us = interval["interval_ns"].as_f64().unwrap_or(0.0) / 1e3;
            let mut tasks = interval["tasks"].as_array().into_iter().flatten();
            let task = tasks.find(|task| task["pid"].as_i64() == Some(pid.into()));
            let pct = |id: &str| task.and_then(|task| task[id].as_f64()).unwrap_or(0.0) / 100.0;
            pct("balancing_pct") * pct("cpu_pct") * us
        })
        .sum();
    let truth = scans_us + faults_us;
    report.say(format_args!(
        "traced: {scans} scans {scans_us:.0} us, {faults} faults {faults_us:.0} us; shown {shown:.0} us"
    ));
    report.check(
        scans > 0 && faults > 0,
        "balancing was at work",
        "scans and faults",
        format_args!("{scans}, {faults}"),
    );
    let near = (shown - truth).abs() <= CLOSE * truth;
    report.check(
        near,
        "time that balancing took, us",
        format_args!("{truth:.0} ± 10 %"),
        format_args!("{shown:.0}"),
    );
    Ok(())
}

fn threads(pid: i32) -> Vec<u32> {
    let names = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    names.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_calls_and_calls_in_two_lines_are_added() {
        let trace = "\
# CPU  TASK/PID         DURATION                  FUNCTION CALLS
 1)   work-12    |   5.000 us    |  do_huge_pmd_numa_page();
 0)   tool-7     | ! 200.000 us  |  do_huge_pmd_numa_page();
 1)   work-12    |               |  do_huge_pmd_numa_page() {
 0)   a-name-13  | + 20.000 us   |  } /* do_huge_pmd_numa_page */
 1)   work-12    | * 4000.5 us   |  task_numa_work();
";
        assert_eq!(took(trace, "do_huge_pmd_numa_page", &[12, 13]), (2, 25.0));
        assert_eq!(took(trace, "task_numa_work", &[12]), (1, 4000.5));
    }
}
