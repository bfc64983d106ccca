//! On-CPU time and moves of a thread that changes its node by itself.

use std::collections::BTreeMap;

use vmtests_protocol::Plan;

use super::{Case, Stop, no_losses};
use crate::intervals::{Totals, number};
use crate::procfs;
use crate::report::Report;
use crate::sysfs::show_list;
use crate::tool::Batch;
use crate::work::Work;

pub const CASE: Case = Case {
    name: "moving",
    about: "a thread that goes from node to node has its CPU time split by node and its moves counted",
    run,
};

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    // The first CPU of every node: each move crosses nodes.
    let cpus: Vec<u32> = plan.machine.cpu_nodes().map(|(_, node)| node.cpus[0]).collect();
    if cpus.len() < 2 {
        return Err(Stop::skip("there is one node with CPUs only"));
    }
    let mut batch = Batch::start(&["-d", "0.5"])?;
    let mut totals = Totals::default();
    let list: Vec<String> = cpus.iter().map(u32::to_string).collect();
    let mut work = Work::start("wander", &[&list.join(","), "70"])?;
    let pid = work.pid();
    // The mark is set when the threads are where they belong and wait.
    batch.next()?;
    batch.follow(&mut totals, 1)?;
    let before = procfs::process_run_ns(pid)? as f64 / 1e9;
    work.go();
    report.say(format_args!("process {pid} goes round CPUs {} every 70 ms", show_list(&cpus)));
    batch.follow(&mut totals, 5)?;
    let done = work.stop()?;
    batch.follow_to_end(&mut totals, pid)?;
    batch.stop()?;
    let row = totals.process(pid)?;
    report.cpu_seconds("CPU seconds of the process", done.cpu.as_secs_f64() - before, row.cpu_ns / 1e9);

    let mut truth: BTreeMap<u32, f64> = BTreeMap::new();
    for place in done.truth["places"].as_array().into_iter().flatten() {
        let cpu = number(place, "cpu")? as u32;
        let node = plan.machine.node_of_cpu(cpu).unwrap_or(usize::MAX) as u32;
        *truth.entry(node).or_default() += number(place, "cpu_ns")?;
    }
    let all: f64 = truth.values().sum();
    // The share of a move on each side is not known, and an emulated CPU may be taken away between two clocks.
    let unsure = 2.0 + number(&done.truth, "moving_ns")? / all * 100.0;
    for (node, ns) in truth {
        let share = row.cpu_ns_by_node.get(&node).copied().unwrap_or(0.0) / row.cpu_ns * 100.0;
        let want = ns / all * 100.0;
        // Points, not percent of a share that may be small.
        report.check(
            (share - want).abs() <= unsure,
            format_args!("share on node {node}"),
            format_args!("{want:.2} ± {unsure:.2} points"),
            format_args!("{share:.2}"),
        );
    }
    for (what, truth, found) in [
        ("moves between nodes", "moves", row.node_moves),
        ("moves between CPUs", "moves", row.cpu_moves),
        ("the same by the kernel's count", "kernel_moves", row.cpu_moves),
    ] {
        report.equal(what, number(&done.truth, truth)? as u64, found.round() as u64);
    }
    let nodes: Vec<usize> = plan.machine.cpu_nodes().map(|(id, _)| id).collect();
    from_node_to_node(report, &totals, &nodes, number(&done.truth, "moves")? as u64)?;
    no_losses(report, &totals);
    Ok(())
}

/// This many moves go round these nodes, from the first on. Other tasks move too, but rarely, and their rows
/// show it.
fn from_node_to_node(report: &mut Report, totals: &Totals, nodes: &[usize], moves: u64) -> Result<(), Stop> {
    for (at, from) in nodes.iter().enumerate() {
        let (to, round) = (nodes[(at + 1) % nodes.len()], nodes.len() as u64);
        let truth = moves / round + u64::from((at as u64) < moves % round);
        let found = totals.between("task_migrations_per_s", *from, to);
        report.check(
            found >= truth,
            format_args!("moves from node {from} to node {to}"),
            format_args!("{truth} and those of others"),
            found,
        );
    }
    let pairs = nodes.iter().flat_map(|from| nodes.iter().map(move |to| (*from, *to)));
    let all: u64 = pairs.map(|(from, to)| totals.between("task_migrations_per_s", from, to)).sum();
    let rows: f64 = totals.rows.values().map(|row| row.node_moves).sum();
    let unsure = between_reads(totals, rows - moves as f64)?;
    report.check(
        (all as f64 - rows).abs() <= unsure,
        "moves from node to node of all tasks",
        format_args!("{rows:.0} of rows ± {unsure:.1}"),
        all,
    );
    Ok(())
}

/// The number of moves of other tasks, which are not synchronised with the test, that may be in the rows and
/// not in the matrix or the reverse. The two are read one after the other, in the first sample and in the
/// last. It is the number expected in the time of a sample, plus four standard deviations of such a count
/// (Poisson).
fn between_reads(totals: &Totals, others: f64) -> Result<f64, Stop> {
    let mut longest: f64 = 0.0;
    for interval in &totals.intervals {
        longest = longest.max(number(&interval["self"], "sample_ms")? / 1e3);
    }
    let expected = others.max(0.0) / totals.seconds * 2.0 * longest;
    Ok(expected + 4.0 * expected.sqrt() + 2.0)
}
