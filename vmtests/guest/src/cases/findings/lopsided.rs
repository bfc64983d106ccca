//! Two containers that are bound to node 0 and wait there while node 1 idles: `lopsided-nodes`.

use std::time::Duration;

use vmtests_protocol::Plan;

use super::super::{Case, Stop, all_cpus};
use super::watch::Watch;
use super::{LIVES, Loop, SLACK, memory_is_on, shell, undo};
use crate::affinity;
use crate::groups::{self, Groups};
use crate::report::Report;
use crate::sysfs::{self, show_list};
use crate::work::Work;

pub const CASE: Case = Case {
    name: "findings_lopsided",
    about: "two containers are bound to node 0, which is full: the finding comes, its command sends the smaller one to node 1, the \
            finding ends, and the way back brings it and its memory back",
    run,
};

/// Paths as docker has them.
const ABOVE: &str = "/docker";
const SMALL: &str = "/docker/3c0f6a4c2b9f1e8d7a6b5c4d3e2f1a0b9c8d7e6f5a4b3c2d1e0f9a8b7c6d5e4f";
const LARGE: &str = "/docker/9f8e7d6c5b4a39281706f5e4d3c2b1a09f8e7d6c5b4a39281706f5e4d3c2b1a0";
/// The time that the rule's condition must hold.
const HELD: Duration = Duration::from_secs(60);

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    let (home, away) = (sysfs::node_cpus(0)?, sysfs::node_cpus(1)?);
    if plan.machine.nodes.len() != 2 || home.len() != 4 {
        return Err(Stop::skip("needs two nodes of four CPUs"));
    }
    let _groups = Groups::make(&["cpuset"], &[ABOVE, SMALL, LARGE])?;
    affinity::pin(&away).map_err(|error| format!("staying on CPUs {}: {error}", show_list(&away)))?;
    // An emulated tool that looks each second keeps half of that node busy.
    let mut watch = Watch::every("5")?;
    let mut works = Vec::new();
    // Four threads for seven tenths of a second each, beside one that never rests: without it a fourth of the node is free.
    let large: (&str, &[&str]) = ("bursts", &["4", "700", "1000"]);
    let small: (&str, &[&str]) = ("numa_truth", &["free:1", "100,0", "64", "touched", "uniform"]);
    for (group, (name, arguments)) in [(LARGE, large), (SMALL, small)] {
        groups::write(group, "cpuset.cpus", &show_list(&home))?;
        groups::write(group, "cpuset.mems", "0-1")?;
        let mut work = Work::start(name, arguments)?;
        shell::pin_all(work.pid(), &all_cpus(plan))?;
        groups::write(group, "cgroup.procs", &work.pid().to_string())?;
        work.go();
        works.push(work);
    }
    let pid = works[1].pid();
    let expected = Loop { held: HELD, ..Loop::of("lopsided-nodes") };
    let closed = expected.close(report, &mut watch, LIVES + HELD + SLACK);
    for node in watch.last()["nodes"].as_array().into_iter().flatten() {
        report.say(format_args!("node {}: {} % busy", node["node"], node["cpu_pct"]));
    }
    let finding = closed?;
    report.equal("CPUs after the command", show_list(&away), groups::read(SMALL, "cpuset.cpus")?);
    memory_is_on(1, report, pid, "after the command")?;
    undo(report, &finding)?;
    report.equal("CPUs after the way back", show_list(&home), groups::read(SMALL, "cpuset.cpus")?);
    report.equal("nodes after the way back", "0-1".to_owned(), groups::read(SMALL, "cpuset.mems")?);
    memory_is_on(0, report, pid, "after the way back")?;
    watch.stop()?;
    for work in works {
        work.stop()?;
    }
    Ok(())
}
