//! A scope of a cgroup and all below it, compared with the kernel's charge to that cgroup.

use std::path::Path;

use vmtests_protocol::Plan;

use super::{Case, Stop, all_cpus, no_losses};
use crate::groups::{self, Groups};
use crate::intervals::Totals;
use crate::procfs;
use crate::report::Report;
use crate::span;
use crate::sysfs::{self, show_list};
use crate::tool::Batch;
use crate::work::Work;

pub const CASE: Case = Case {
    name: "cgroup",
    about: "--cgroup shows what is in it and below, with the time of cpu.stat and the memory of memory.numa_stat, while \
            tasks are born, end, and are moved in and out",
    run,
};

const SHELF: &str = "/shelf.slice";
const BOX: &str = "/shelf.slice/box";
const INNER: &str = "/shelf.slice/box/inner";

/// MiB of a process that rests in the cgroup, and its shares by node.
const REST: (&str, &str) = ("48", "75,25");

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    // Without the memory controller memory.numa_stat is missing.
    let cgroups = Groups::make(&["memory"], &[SHELF, BOX, INNER])?;
    let cpus: Vec<String> = (0..plan.machine.cpus().min(2)).map(|cpu| cpu.to_string()).collect();
    let (first, last) = (cpus[0].as_str(), cpus[cpus.len() - 1].as_str());
    let mut storm = Work::start("storm", &[first])?;
    let mut deep = Work::start("spin", &[last])?;
    // All threads of these go at once; on kernels that tell of the first thread only, the first does the work.
    let all = show_list(&all_cpus(plan));
    let (workload, arguments) = if tells_of_all_threads()? {
        ("spin", vec![all.as_str()])
    } else {
        report.say("threads but the first are found by the next walk here (Linux 6.7 has an iterator): none does the work");
        ("wander", vec![all.as_str(), "70"])
    };
    let mut leaves = Work::start(workload, &arguments)?;
    let mut comes = Work::start(workload, &arguments)?;
    let mut stays_out = Work::start("spin", &[last])?;
    for (work, path) in [(&storm, BOX), (&deep, INNER), (&leaves, BOX)] {
        put(work.pid(), path)?;
    }
    let rests = match plan.machine.nodes.len() {
        1 => None,
        nodes => {
            let shares = format!("{}{}", REST.1, ",0".repeat(nodes - 2));
            // Born inside: memory stays with the cgroup in which it was touched.
            put(std::process::id() as i32, BOX)?;
            let rests = Work::start("numa_truth", &["0", &shares, REST.0, "small", "uniform"])?;
            put(std::process::id() as i32, "/")?;
            Some(rests)
        }
    };
    let mut batch = Batch::start(&["-d", "0.5", "--cgroup", BOX])?;
    let mut totals = Totals::default();
    // The tool knows the tree.
    batch.next()?;
    let begin = span::around(&mut batch, &mut totals, usage_ns)?;
    // Their time to get here is in no interval.
    let (deep_before, leaves_before) = (ran(&deep)?, ran(&leaves)?);
    for work in [&mut storm, &mut deep, &mut leaves, &mut comes, &mut stays_out] {
        work.go();
    }
    batch.follow(&mut totals, 2)?;
    let left = moved(&leaves, "/")?;
    let came = moved(&comes, BOX)?;
    batch.follow(&mut totals, 2)?;
    let (storm_pid, deep_pid, leaves_pid, comes_pid) = (storm.pid(), deep.pid(), leaves.pid(), comes.pid());
    let outside = stays_out.pid();
    let children = storm.stop()?.truth["children"].as_u64().unwrap_or(0);
    let deep_ran = deep.stop()?.cpu.as_secs_f64();
    let (leaves_ran, comes_ran) = (leaves.stop()?.cpu.as_secs_f64(), comes.stop()?.cpu.as_secs_f64());
    stays_out.stop()?;
    batch.follow(&mut totals, 1)?;
    let end = span::around(&mut batch, &mut totals, usage_ns)?;
    let numa_stat = groups::read(BOX, "memory.numa_stat");

    report.cpu_seconds_between(
        "rows add up to cpu.stat of the cgroup",
        begin.until(end),
        totals.cpu_ns() / 1e9,
    );
    let shown = |pid: i32| totals.process(pid).map_or(0.0, |row| row.cpu_ns / 1e9);
    report.cpu_seconds("CPU seconds of the process below", deep_ran - deep_before, shown(deep_pid));
    report.cpu_seconds_between(
        "CPU seconds of the process that left, inside",
        (left.0 - leaves_before, left.1 - leaves_before),
        shown(leaves_pid),
    );
    report.cpu_seconds_between(
        "CPU seconds of the process that came, inside",
        (comes_ran - came.1, comes_ran - came.0),
        shown(comes_pid),
    );
    report.check(
        shown(leaves_pid) < leaves_ran * 0.9,
        "the process that left is not shown with what it did outside",
        format_args!("less than {leaves_ran:.3} s"),
        format_args!("{:.3} s", shown(leaves_pid)),
    );
    let strangers = totals.tasks().filter(|task| task["pid"] == outside).count();
    report.equal("rows of a process that was never inside", 0, strangers);
    let (ended, _) = totals.ended_children(storm_pid);
    report.equal("children of the storm that are shown as ended", children, ended.len() as u64);
    if let Some(rests) = rests {
        let text = numa_stat.map_err(Stop::fail)?;
        memory(report, &totals, &text)?;
        rests.stop()?;
    }
    drop(cgroups);
    let left = [SHELF, BOX, INNER].iter().filter(|path| Path::new(&groups::file(path, "")).exists()).count();
    report.equal("cgroups that are left", 0, left);
    let last = batch.follow(&mut totals, 2)?;
    batch.stop()?;
    let rows = last["containers"].as_array().into_iter().flatten();
    let ghosts =
        rows.filter(|row| row["cgroup"].as_str().is_some_and(|path| path.starts_with(SHELF))).count();
    report.equal("rows of them after that", 0, ghosts);
    no_losses(report, &totals);
    Ok(())
}

/// The row of the cgroup has the memory that the kernel charged to it, by node.
fn memory(report: &mut Report, totals: &Totals, numa_stat: &str) -> Result<(), Stop> {
    let interval = totals.intervals.last().ok_or_else(|| Stop::fail("there was no interval"))?;
    let rows = interval["containers"].as_array().into_iter().flatten();
    let row = rows.into_iter().find(|row| row["cgroup"] == BOX);
    let row = row.ok_or_else(|| Stop::fail(format!("no row of {BOX} in {}", interval["containers"])))?;
    let shown = |node: u64| row["mem_bytes_by_node"][node.to_string()].as_f64().unwrap_or(0.0);
    for node in [0, 1] {
        let of_kind = |kind: &str| -> u64 {
            let line = numa_stat.lines().find_map(|line| line.strip_prefix(kind)).unwrap_or_default();
            let key = format!("N{node}=");
            line.split_whitespace().find_map(|word| word.strip_prefix(&key)?.parse().ok()).unwrap_or(0)
        };
        let truth = (of_kind("anon ") + of_kind("file ")) as f64;
        report.check(
            truth > 1e7,
            format_args!("bytes charged to it on node {node}"),
            "more than 10 MB",
            truth,
        );
        report.close(format_args!("its bytes on node {node}"), truth, shown(node), 0.05);
    }
    Ok(())
}

/// From 6.7 on a program can go through the threads of a moved process; on older kernels the next walk finds
/// all except the first.
fn tells_of_all_threads() -> Result<bool, Stop> {
    let release = sysfs::read("/proc/sys/kernel/osrelease")?;
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) => Ok((major, minor) >= (6, 7)),
        _ => Err(Stop::fail(format!("the release {release:?} does not begin with two numbers"))),
    }
}

/// CPU seconds of a workload until now.
fn ran(work: &Work) -> Result<f64, String> {
    Ok(procfs::process_run_ns(work.pid())? as f64 / 1e9)
}

/// The kernel's charges to the cgroup and all below it.
fn usage_ns() -> Result<u64, String> {
    let text = groups::read(BOX, "cpu.stat")?;
    let usage = text.lines().find_map(|line| line.strip_prefix("usage_usec ")?.parse::<u64>().ok());
    usage.map(|us| us * 1000).ok_or_else(|| format!("cpu.stat of {BOX} has no usage_usec"))
}

/// Moves a running workload; returns its CPU time before the move and after.
fn moved(work: &Work, path: &str) -> Result<(f64, f64), String> {
    let before = ran(work)?;
    put(work.pid(), path)?;
    Ok((before, ran(work)?))
}

fn put(pid: i32, path: &str) -> Result<(), String> {
    groups::write(path, "cgroup.procs", &pid.to_string())
}
