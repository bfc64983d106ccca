//! Tasks that NUMA balancing sends to another node, compared with the kernel's trace events of the same names.

use vmtests_protocol::Plan;

use super::{Case, Stop, no_losses};
use crate::report::Report;
use crate::rest::Balancing;
use crate::tool::Batch;
use crate::tracefs;
use crate::work::Work;

pub const CASE: Case = Case {
    name: "sent",
    about: "moves and swaps of tasks that balancing tried, and those that came to nothing, are those that the kernel traced",
    run,
};

/// Trace events, and the metrics that count them.
const EVENTS: [(&str, &str); 3] = [
    ("sched_move_numa", "numa_moves_per_s"),
    ("sched_swap_numa", "numa_swaps_per_s"),
    ("sched_stick_numa", "numa_stuck_per_s"),
];

/// The events, traced until this is dropped.
struct Traced;

impl Traced {
    fn begin() -> Result<Traced, Stop> {
        tracefs::mount()?;
        for (event, _) in EVENTS {
            tracefs::set(&enable(event), "1")?;
        }
        tracefs::set("tracing_on", "1")?;
        Ok(Traced)
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        for (event, _) in EVENTS {
            let _ = tracefs::set(&enable(event), "0");
        }
    }
}

fn enable(event: &str) -> String {
    format!("events/sched/{event}/enable")
}

/// The number of times each event named a thread of this process. A swap names two, and both were swapped. A
/// task that stays names its intended swap partner, which was not tried.
fn events(trace: &str, pid: i32) -> [u64; 3] {
    EVENTS.map(|(event, _)| {
        let lines = trace.lines().filter_map(|line| line.split_once(&format!("{event}: ")));
        let of_process = |(_, fields): (&str, &str)| {
            let named = |name: &str| {
                let value = fields.split_whitespace().find_map(|field| field.strip_prefix(name));
                u64::from(value == Some(pid.to_string().as_str()))
            };
            match event {
                "sched_move_numa" => named("tgid="),
                "sched_swap_numa" => named("src_tgid=") + named("dst_tgid="),
                // Until 5.8 its fields are those of a move.
                _ => named("src_tgid=").max(named("tgid=")),
            }
        };
        lines.map(of_process).sum()
    })
}

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    if plan.machine.cpu_nodes().count() < 2 {
        return Err(Stop::skip("there is one node with CPUs only"));
    }
    let balancing = Balancing::on()?;
    let _traced = Traced::begin()?;
    let batch = Batch::start(&["-d", "0.5"])?;
    // More threads than the node has CPUs that has all of their memory.
    let work = Work::start("numa_truth", &["free:4", "0,100", "64", "touched", "uniform"])?;
    let pid = work.pid();
    let read = || Ok(events(&tracefs::read("trace")?, pid));
    let (truth, totals) = balancing.work_on(work, batch, Some("numa_moves_per_s"), read)?;
    report.check(
        truth.iter().sum::<u64>() > 0,
        "balancing was at work",
        "more than 0 events",
        format_args!("{truth:?}"),
    );
    for ((event, metric), truth) in EVENTS.into_iter().zip(truth) {
        let shown = totals.sum_of_rates(|interval| {
            let tasks = interval["tasks"].as_array().into_iter().flatten();
            tasks.filter(|task| task["pid"] == pid).filter_map(|task| task[metric].as_f64()).sum()
        });
        report.equal(event, truth, shown);
        if truth == 0 {
            report.say(format_args!("{event} did not happen: what it counts is not compared in this run"));
        }
    }
    no_losses(report, &totals);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_those_of_threads_of_the_process() {
        let trace = "\
# tracer: nop
 a-7 [000] d..2. 1.0: sched_move_numa: pid=12 tgid=10 ngid=10 src_cpu=0 src_nid=0 dst_cpu=2 dst_nid=1
 a-7 [000] d..2. 1.1: sched_move_numa: pid=10 tgid=100 ngid=10 src_cpu=0 src_nid=0 dst_cpu=2 dst_nid=1
 a-7 [000] d..2. 1.2: sched_swap_numa: src_pid=12 src_tgid=10 src_ngid=1 src_cpu=0 src_nid=0 dst_pid=13 dst_tgid=10 dst_ngid=1
 a-7 [000] d..2. 1.3: sched_swap_numa: src_pid=9 src_tgid=9 src_ngid=1 src_cpu=0 src_nid=0 dst_pid=13 dst_tgid=10 dst_ngid=1
 a-7 [000] d..2. 1.4: sched_stick_numa: src_pid=9 src_tgid=9 src_ngid=1 src_cpu=0 src_nid=0 dst_pid=13 dst_tgid=10 dst_ngid=1
 a-7 [000] d..2. 1.5: sched_stick_numa: src_pid=11 src_tgid=10 src_ngid=1 src_cpu=0 src_nid=0 dst_pid=-1 dst_tgid=-1
";
        assert_eq!(events(trace, 10), [1, 3, 1]);
    }
}
