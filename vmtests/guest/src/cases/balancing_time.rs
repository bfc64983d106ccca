//! How much time NUMA balancing takes, compared with the kernel's own stop-watch: the function graph tracer.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use vmtests_protocol::Plan;

use super::{Case, Stop};
use crate::intervals::Totals;
use crate::report::Report;
use crate::tool::Batch;
use crate::work::Work;

pub const CASE: Case = Case {
    name: "balancing_time",
    about: "balancing_pct is the time between the same functions by the function graph tracer",
    run,
};

const BALANCING: &str = "/proc/sys/kernel/numa_balancing";
const TRACEFS: &str = "/sys/kernel/tracing";
/// Relative: each looks at the other's work too, because both are called at the same places.
const CLOSE: f64 = 0.15;

fn set(file: &str, value: &str) -> Result<(), String> {
    let path = Path::new(TRACEFS).join(file);
    fs::write(&path, value).map_err(|error| format!("writing {value:?} to {}: {error}", path.display()))
}

/// The tracer, off again when dropped.
struct Tracer;

impl Tracer {
    fn start() -> Result<Tracer, Stop> {
        if !Path::new(TRACEFS).join("trace").exists() {
            let from = std::ffi::CString::new(TRACEFS).expect("no NUL in it");
            // SAFETY: all are strings that end; the file system needs no data.
            unsafe {
                libc::mount(c"tracefs".as_ptr(), from.as_ptr(), c"tracefs".as_ptr(), 0, std::ptr::null())
            };
        }
        let tracers = fs::read_to_string(Path::new(TRACEFS).join("available_tracers"));
        let tracers = tracers.map_err(|error| Stop::skip(format!("no tracefs in {TRACEFS}: {error}")))?;
        if !tracers.split_whitespace().any(|tracer| tracer == "function_graph") {
            return Err(Stop::skip("the kernel has no function graph tracer"));
        }
        set("tracing_on", "0")?;
        set("set_ftrace_filter", "task_numa_work\nmpol_misplaced\ntask_numa_fault\n")?;
        for option in ["funcgraph-abstime", "funcgraph-proc", "funcgraph-tail"] {
            set(&format!("options/{option}"), "1").or_else(|_| set("trace_options", option))?;
        }
        set("buffer_size_kb", "16384")?;
        set("current_tracer", "function_graph")?;
        set("tracing_on", "1")?;
        Ok(Tracer)
    }

    /// What was traced. The tracer rests from then on.
    fn text(&self) -> Result<String, String> {
        set("tracing_on", "0")?;
        fs::read_to_string(Path::new(TRACEFS).join("trace"))
            .map_err(|error| format!("reading the trace: {error}"))
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        let _ = set("current_tracer", "nop");
        let _ = set("set_ftrace_filter", "");
    }
}

/// Time of scans and of hinting faults in a trace, in microseconds. A line is
/// `TIME | CPU) COMM-PID | DURATION us | FUNCTION();`, or has the begin and the end of the function in a line each.
fn times(trace: &str) -> (f64, f64) {
    let (mut scans, mut faults) = (0.0, 0.0);
    // When each task was asked whether its page is in the right place.
    let mut asked: HashMap<&str, f64> = HashMap::new();
    for line in trace.lines().filter(|line| !line.starts_with('#')) {
        let parts: Vec<&str> = line.split('|').map(str::trim).collect();
        let [time, task, duration, function] = parts[..] else { continue };
        let Ok(at) = time.parse::<f64>().map(|seconds| seconds * 1e6) else { continue };
        let Some(task) = task.split_whitespace().nth(1) else { continue };
        let mut words = duration.split_whitespace().rev().skip_while(|word| *word != "us").skip(1);
        let took = words.next().and_then(|number| number.parse::<f64>().ok());
        let begins = function.ends_with('{') || function.ends_with("();");
        if function.contains("mpol_misplaced") && begins {
            asked.insert(task, at);
        }
        // The line of an end has the time of the end, that of a whole call the time of its begin.
        let Some(took) = took else { continue };
        if function.contains("task_numa_work") {
            scans += took;
        }
        if function.contains("task_numa_fault")
            && let Some(from) = asked.remove(task)
        {
            faults += if function.starts_with('}') { at - from } else { at + took - from };
        }
    }
    (scans, faults)
}

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    if plan.machine.cpu_nodes().count() < 2 {
        return Err(Stop::skip("there is one node with CPUs only"));
    }
    let switch = fs::read_to_string(BALANCING).unwrap_or_default();
    fs::write(BALANCING, "1").map_err(|error| format!("writing {BALANCING}: {error}"))?;
    let mut batch = Batch::start(&["-d", "0.5"])?;
    let mut totals = Totals::default();
    let mut work = Work::start("numa_truth", &["0", "0,100", "64", "touched", "uniform"])?;
    batch.next()?;
    batch.follow(&mut totals, 1)?;
    let tracer = Tracer::start()?;
    work.go();
    batch.follow(&mut totals, 12)?;
    work.stop()?;
    let trace = tracer.text()?;
    drop(tracer);
    let last = batch.follow(&mut totals, 1)?;
    batch.stop()?;
    let _ = fs::write(BALANCING, switch);
    if let Some(why) = last["missing"]["balancing_pct"].as_object() {
        return Err(Stop::fail(format!("balancing_pct is missing: {why:?}")));
    }

    let (scans, faults) = times(&trace);
    let shown: f64 = totals
        .intervals
        .iter()
        .flat_map(|interval| {
            let us = interval["interval_ns"].as_f64().unwrap_or(0.0) / 1e3;
            let tasks = interval["tasks"].as_array().into_iter().flatten();
            tasks.map(move |task| {
                let pct = |id: &str| task[id].as_f64().unwrap_or(0.0) / 100.0;
                pct("balancing_pct") * pct("cpu_pct") * us
            })
        })
        .sum();
    let truth = scans + faults;
    report.say(format_args!("traced: scans {scans:.0} us, faults {faults:.0} us; shown {shown:.0} us"));
    report.check(
        scans > 0.0 && faults > 0.0,
        "balancing was at work",
        "scans and faults",
        format_args!("{truth:.0} us"),
    );
    let near = (shown - truth).abs() <= CLOSE * truth;
    report.check(
        near,
        "time that balancing took, us",
        format_args!("{truth:.0} ± 15 %"),
        format_args!("{shown:.0}"),
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_calls_and_calls_in_two_lines_are_added() {
        let trace = "\
# TIME        CPU  TASK/PID         DURATION                  FUNCTION CALLS
   10.000000 |   1)   work-12    |   5.000 us    |  mpol_misplaced();
   10.000100 |   0)   tool-7     | ! 200.000 us  |  task_numa_work();
   10.000050 |   1)   work-12    |   2.500 us    |  task_numa_fault();
   11.000000 |   1)   work-12    |               |  mpol_misplaced() {
   11.000004 |   1)   work-12    |   4.000 us    |  } /* mpol_misplaced */
   11.000010 |   1)   work-12    |               |  task_numa_fault() {
   11.000030 |   0)   work-12    | + 20.000 us   |  } /* task_numa_fault */
";
        let (scans, faults) = times(trace);
        assert_eq!(scans, 200.0);
        assert!((faults - 52.5 - 30.0).abs() < 0.01, "{faults}");
    }
}
