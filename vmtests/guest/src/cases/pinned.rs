//! On-CPU time of threads that cannot leave their node.

use vmtests_protocol::Plan;

use super::{Case, Stop, all_cpus, no_losses};
use crate::intervals::{Totals, number};
use crate::procfs;
use crate::report::Report;
use crate::sysfs::show_list;
use crate::tool::Batch;
use crate::work::Work;

pub const CASE: Case = Case {
    name: "pinned",
    about: "CPU time of threads that are pinned, on all nodes or every second one, is all on their node, and the process has what the kernel says",
    run,
};

/// Threads at most: more than a few hogs for each real CPU make an emulated second last a minute. `moving` goes to every
/// node.
const MOST: usize = 8;

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    let mut batch = Batch::start(&["--threads", "-d", "0.5"])?;
    let mut totals = Totals::default();
    let cpus = all_cpus(plan);
    let some: Vec<u32> = cpus.iter().copied().step_by(cpus.len().div_ceil(MOST)).collect();
    let mut work = Work::start("spin", &[&show_list(&some)])?;
    let pid = work.pid();
    // The mark is set when the threads are where they belong and wait.
    batch.next()?;
    batch.follow(&mut totals, 1)?;
    let before = procfs::process_run_ns(pid)? as f64 / 1e9;
    work.go();
    batch.follow(&mut totals, 4)?;
    let done = work.stop()?;
    batch.follow_to_end(&mut totals, pid)?;
    batch.stop()?;
    for thread in done.truth["threads"].as_array().into_iter().flatten() {
        let (tid, cpu) = (thread["tid"].as_i64().unwrap_or(0), thread["cpu"].as_u64().unwrap_or(0) as u32);
        let node = plan.machine.node_of_cpu(cpu).unwrap_or(usize::MAX);
        let row = totals.thread(tid)?;
        let on_node = row.cpu_ns_by_node.get(&(node as u32)).copied().unwrap_or(0.0);
        report.close(
            format_args!("share of thread {tid} (CPU {cpu}) on node {node}"),
            1.0,
            on_node / row.cpu_ns,
            0.01,
        );
        report.equal(
            format_args!("its name, as the kernel has it, thread {tid}"),
            format!("spin-{cpu}"),
            row.comm.clone(),
        );
        // Its time after the last interval in which it lived is with the ended threads of its process.
        let most = number(thread, "cpu_ns")?;
        let fits = row.cpu_ns <= most * 1.01 && row.cpu_ns > most * 0.4;
        report.check(
            fits,
            format_args!("ns of thread {tid}"),
            format_args!("40 to 101 % of {most}"),
            row.cpu_ns,
        );
    }
    for ((_, tid, _), row) in totals.rows.iter().filter(|((row, ..), _)| *row == pid as u64) {
        let ended = if row.exited { ", ended" } else { "" };
        report.say(format_args!(
            "row {tid} of process {pid} ({}{ended}): {:.3} s",
            row.comm,
            row.cpu_ns / 1e9
        ));
    }
    let whole: f64 =
        totals.rows.iter().filter(|((row, ..), _)| *row == pid as u64).map(|(_, row)| row.cpu_ns).sum();
    report.cpu_seconds(
        "CPU seconds of the process, ended threads included",
        done.cpu.as_secs_f64() - before,
        whole / 1e9,
    );
    no_losses(report, &totals);
    Ok(())
}
