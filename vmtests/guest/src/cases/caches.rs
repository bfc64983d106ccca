//! On-CPU time and moves by socket and by last-level cache, where a hypervisor shows one node.

use std::collections::BTreeMap;

use serde_json::Value;
use vmtests_protocol::Plan;

use super::{Case, Stop, all_cpus};
use crate::intervals::number;
use crate::report::Report;
use crate::sysfs::show_list;
use crate::tool::Batch;
use crate::work::Work;

pub const CASE: Case = Case {
    name: "caches",
    about: "CPU time of pinned threads is all on their L3 domain and socket, that of their process has the parts that the \
            threads say, and moves of a thread are counted where it comes in and goes out",
    run,
};

/// Kinds of sets: the column of shares, the column of the set with the most, the rows of these sets.
const KINDS: [(&str, &str, &str); 2] =
    [("run_pct_by_llc", "home_llc", "llcs"), ("run_pct_by_socket", "home_socket", "sockets")];
/// Intervals in which the threads run.
const INTERVALS: usize = 6;

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    let cpus = all_cpus(plan);
    if plan.machine.nodes.len() != 1 || plan.machine.sockets != 2 || cpus.len() != 4 {
        return Err(Stop::skip("needs one node of two sockets with two CPUs each"));
    }
    threads(report, &cpus)?;
    process(report, &cpus[1..])?;
    moves(report)
}

/// The number of the socket and of the L3 domain of a CPU: they have its two CPUs in common.
fn set_of(cpu: u32) -> u64 {
    u64::from(cpu / 2)
}

fn threads(report: &mut Report, cpus: &[u32]) -> Result<(), Stop> {
    let mut batch = Batch::start(&["--threads", "-d", "0.5"])?;
    let mut work = Work::start("spin", &[&show_list(cpus)])?;
    batch.next()?;
    work.go();
    batch.next()?;
    let interval = batch.next()?;
    let done = work.stop()?;
    batch.stop()?;
    let rows = interval["tasks"].as_array().into_iter().flatten();
    let rows: BTreeMap<u64, &Value> = rows.filter_map(|row| Some((row["tid"].as_u64()?, row))).collect();
    for thread in done.truth["threads"].as_array().into_iter().flatten() {
        let (tid, cpu) = (thread["tid"].as_u64().unwrap_or(0), thread["cpu"].as_u64().unwrap_or(0) as u32);
        let row = rows.get(&tid).ok_or_else(|| Stop::fail(format!("thread {tid} has no row")))?;
        for (shares, home, _) in KINDS {
            let set = set_of(cpu);
            report.equal(
                format_args!("{home} of the thread on CPU {cpu}"),
                set,
                row[home].as_u64().unwrap_or(99),
            );
            let share = row[shares][set.to_string()].as_f64().unwrap_or(0.0);
            report.close(format_args!("{shares} of the thread on CPU {cpu}"), 100.0, share, 0.01);
        }
    }
    for (_, _, sets) in KINDS {
        let rows = interval[sets].as_array().into_iter().flatten();
        let tasks: u64 = rows.filter_map(|set| set["tasks"].as_u64()).sum();
        report.check(
            tasks >= cpus.len() as u64,
            format_args!("tasks of all {sets}"),
            format_args!("{} or more", cpus.len()),
            tasks,
        );
    }
    Ok(())
}

/// One thread on the first of the sets, and two on the second.
fn process(report: &mut Report, cpus: &[u32]) -> Result<(), Stop> {
    let mut batch = Batch::start(&["-d", "0.5"])?;
    let mut work = Work::start("spin", &[&show_list(cpus)])?;
    let pid = work.pid() as u64;
    batch.next()?;
    work.go();
    let mut ran = [BTreeMap::<u64, f64>::new(), BTreeMap::new()];
    for _ in 0..INTERVALS {
        add(&batch.next()?, pid, &mut ran);
    }
    let done = work.stop()?;
    // The rest of its time is in the interval in which it ended.
    for _ in 0..2 {
        add(&batch.next()?, pid, &mut ran);
    }
    batch.stop()?;
    let mut truth = BTreeMap::<u64, f64>::new();
    for thread in done.truth["threads"].as_array().into_iter().flatten() {
        *truth.entry(set_of(thread["cpu"].as_u64().unwrap_or(0) as u32)).or_default() +=
            number(thread, "cpu_ns")?;
    }
    let part = |of: &BTreeMap<u64, f64>, set| {
        of.get(&set).copied().unwrap_or(0.0) / of.values().sum::<f64>().max(f64::MIN_POSITIVE)
    };
    for ((shares, ..), ran) in KINDS.iter().zip(&ran) {
        for set in [0, 1] {
            report.close(
                format_args!("part of the process's time on set {set}, by {shares}"),
                part(&truth, set),
                part(ran, set),
                0.03,
            );
        }
    }
    Ok(())
}

/// A thread that goes round two CPUs of the first set and one of the second: one of three moves stays in its set.
fn moves(report: &mut Report) -> Result<(), Stop> {
    let mut batch = Batch::start(&["--threads", "-d", "0.5"])?;
    let mut work = Work::start("wander", &["0,1,2", "20"])?;
    batch.next()?;
    // Moves by set, in and out, of L3 domains and of sockets; those between L3 domains of all tasks.
    let mut moved = [BTreeMap::<u64, [f64; 2]>::new(), BTreeMap::new()];
    let mut of_rows = 0.0;
    let mut follow = |interval: &Value| {
        let seconds = interval["interval_ns"].as_f64().unwrap_or(0.0) / 1e9;
        for ((_, _, sets), moved) in KINDS.iter().zip(&mut moved) {
            for set in interval[*sets].as_array().into_iter().flatten() {
                let id = set[sets.trim_end_matches('s')].as_u64().unwrap_or(99);
                let sums = moved.entry(id).or_default();
                for (sum, key) in sums.iter_mut().zip(["moves_in_per_s", "moves_out_per_s"]) {
                    *sum += set[key].as_f64().unwrap_or(f64::NAN) * seconds;
                }
            }
        }
        let tasks = interval["tasks"].as_array().into_iter().flatten();
        of_rows += tasks.filter_map(|row| row["llc_migrations_per_s"].as_f64()).sum::<f64>() * seconds;
    };
    follow(&batch.next()?);
    work.go();
    for _ in 0..INTERVALS {
        follow(&batch.next()?);
    }
    let done = work.stop()?;
    for _ in 0..2 {
        follow(&batch.next()?);
    }
    batch.stop()?;
    let moves = number(&done.truth, "moves")?;
    let there = ((moves + 1.0) / 3.0).floor();
    let back = (moves / 3.0).floor();
    report.say(format_args!("{there} moves from set 0 to set 1, {back} back, {of_rows:.0} of all tasks"));
    // Other tasks move, too, but rarely. The maps and the rows are not read at the same moment.
    let others = of_rows - there - back;
    let unsure = 4.0 + others.max(0.0);
    for ((_, _, sets), moved) in KINDS.iter().zip(&moved) {
        for (set, [into, out]) in moved {
            let truth = if *set == 0 { [back, there] } else { [there, back] };
            for (what, truth, found) in [("into", truth[0], into), ("out of", truth[1], out)] {
                report.check(
                    *found >= truth - 1.0 && *found <= truth + unsure,
                    format_args!("moves {what} {set} of {sets}"),
                    format_args!("{truth} to {:.0}", truth + unsure),
                    format_args!("{found:.1}"),
                );
            }
        }
    }
    let sum: f64 = moved[0].values().map(|[into, _]| into).sum();
    report.check(
        (sum - of_rows).abs() <= 4.0 + of_rows * 0.02,
        "moves into all L3 domains",
        format_args!("{of_rows:.0} of rows"),
        format_args!("{sum:.1}"),
    );
    Ok(())
}

/// Adds the CPU time of a process in an interval by set, in parts of a CPU and of the interval.
fn add(interval: &Value, pid: u64, ran: &mut [BTreeMap<u64, f64>; 2]) {
    let seconds = interval["interval_ns"].as_f64().unwrap_or(0.0) / 1e9;
    let tasks = interval["tasks"].as_array().into_iter().flatten();
    for row in tasks.filter(|row| row["pid"].as_u64() == Some(pid)) {
        let cpu_s = row["cpu_pct"].as_f64().unwrap_or(0.0) / 100.0 * seconds;
        for ((shares, ..), ran) in KINDS.iter().zip(&mut *ran) {
            for (set, share) in row[*shares].as_object().into_iter().flatten() {
                let (set, share) = (set.parse().unwrap_or(99), share.as_f64().unwrap_or(0.0) / 100.0);
                *ran.entry(set).or_default() += cpu_s * share;
            }
        }
    }
}
