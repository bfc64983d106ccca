//! Two containers that are bound to one socket of a machine that hides its nodes: `lopsided-nodes` compares sockets.

use std::time::Duration;

use vmtests_protocol::Plan;

use super::super::{Case, Stop, all_cpus};
use super::watch::Watch;
use super::{LIVES, Loop, SLACK, shell, undo};
use crate::affinity;
use crate::groups::{self, Groups};
use crate::report::Report;
use crate::sysfs::show_list;
use crate::work::Work;

pub const CASE: Case = Case {
    name: "findings_hidden",
    about: "two containers are bound to one of two sockets, which are shown as one node: the finding names the socket, its command \
            binds CPUs only, the finding ends, and the way back undoes it",
    run,
};

/// Paths as docker has them.
const ABOVE: &str = "/docker";
const SMALL: &str = "/docker/3c0f6a4c2b9f1e8d7a6b5c4d3e2f1a0b9c8d7e6f5a4b3c2d1e0f9a8b7c6d5e4f";
const LARGE: &str = "/docker/9f8e7d6c5b4a39281706f5e4d3c2b1a09f8e7d6c5b4a39281706f5e4d3c2b1a0";
/// The time that the rule's condition must hold.
const HELD: Duration = Duration::from_secs(60);

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    let cpus = all_cpus(plan);
    if plan.machine.nodes.len() != 1 || plan.machine.sockets != 2 || cpus.len() != 4 {
        return Err(Stop::skip("needs one node of two sockets with two CPUs each"));
    }
    let (home, away) = cpus.split_at(2);
    let _groups = Groups::make(&["cpuset"], &[ABOVE, SMALL, LARGE])?;
    affinity::pin(away).map_err(|error| format!("staying on CPUs {}: {error}", show_list(away)))?;
    let mut watch = Watch::every("5")?;
    let mut works = Vec::new();
    // Nine tenths of the time of both CPUs wait for one, and without the small one a third of it is free.
    let large: (&str, &[&str]) = ("bursts", &["3", "450", "1000"]);
    let small: (&str, &[&str]) = ("numa_truth", &["free:1", "100", "16", "touched", "uniform"]);
    for (group, (name, arguments)) in [(LARGE, large), (SMALL, small)] {
        groups::write(group, "cpuset.cpus", &show_list(home))?;
        let mut work = Work::start(name, arguments)?;
        shell::pin_all(work.pid(), &cpus)?;
        groups::write(group, "cgroup.procs", &work.pid().to_string())?;
        work.go();
        works.push(work);
    }
    let expected = Loop { held: HELD, beside: &["nodes-hidden"], ..Loop::of("lopsided-nodes") };
    let closed = expected.close(report, &mut watch, LIVES + HELD + SLACK);
    for socket in watch.last()["sockets"].as_array().into_iter().flatten() {
        report.say(format_args!("socket {}: {} % busy", socket["socket"], socket["cpu_pct"]));
    }
    let finding = closed?;
    let sentence = finding["sentence"].as_str().unwrap_or_default();
    report.check(sentence.contains("socket 0"), "the sentence", "names socket 0", sentence);
    report.check(!sentence.contains("ode "), "the sentence", "names no node", sentence);
    report.equal("the subject", "0".to_owned(), finding["subject"]["socket"].to_string());
    for key in ["commands", "undo"] {
        let lines = finding[key].as_array().into_iter().flatten();
        let lines: Vec<&str> = lines.filter_map(|command| command["line"].as_str()).collect();
        let of_memory = ["mems", "migratepages", "membind", "memory.reclaim"];
        let binds_memory = lines.iter().any(|line| of_memory.iter().any(|word| line.contains(word)));
        report.check(
            !binds_memory && lines.iter().any(|line| line.contains("cpus")),
            format_args!("lines of {key}"),
            "CPUs only",
            lines.join("; "),
        );
    }
    let remote = watch.blind().find(|blind| blind["id"] == "remote-after-pin");
    let reason = remote.and_then(|blind| blind["reason"].as_str()).unwrap_or("none");
    report.equal("why rules about remote memory are silent", "hidden_nodes", reason);
    report.equal("CPUs after the command", show_list(away), groups::read(SMALL, "cpuset.cpus")?);
    undo(report, &finding)?;
    report.equal("CPUs after the way back", show_list(home), groups::read(SMALL, "cpuset.cpus")?);
    watch.stop()?;
    for work in works {
        work.stop()?;
    }
    Ok(())
}
