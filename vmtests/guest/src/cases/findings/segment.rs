//! Processes that share a segment on node 0 and run on node 1, as the backends of a database do: one finding
//! for all of them.

use std::time::Duration;

use serde_json::Value;
use vmtests_protocol::Plan;

use super::super::{Case, Stop};
use super::watch::{Watch, findings, holds};
use super::{LIVES, Loop, SLACK, execute_without_nice, memory_is_on, two_nodes, unbalanced, undo};
use crate::report::Report;
use crate::rest::Balancing;
use crate::work::Work;

pub const CASE: Case = Case {
    name: "findings_segment",
    about: "four processes share memory on node 0 and run on node 1: one finding about all of them comes, its line moves nothing \
            without CAP_SYS_NICE and all of it as root, the finding ends, and the way back restores it",
    run,
};

pub const QUIET: Case = Case {
    name: "findings_segment_quiet",
    about: "four of six processes of a segment in the scope are an info that names the others; a segment that a process interleaved \
            and left is quiet",
    run: run_quiet,
};

const ID: &str = "memory-on-other-node";
/// The time that the rule's condition must hold.
const HELD: Duration = Duration::from_secs(60);
const MIB: u64 = 96;

/// Starts processes that share a segment; gives their ids.
fn start(children: &str, policy: &str) -> Result<(Work, Vec<i32>), Stop> {
    let work = Work::start_now("segment", &[&MIB.to_string(), "0", children, policy])?;
    let pids = serde_json::from_value(work.facts["pids"].clone()).map_err(|error| error.to_string())?;
    Ok((work, pids))
}

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    let (_balancing, mut watch) = unbalanced(plan)?;
    let (work, pids) = start("3", "default")?;
    let group = Loop { held: HELD, ..Loop::of(ID) };
    let finding = group.comes(report, &mut watch, LIVES + 3 * HELD + SLACK)?;
    let subject = &finding["subject"];
    report.equal("kind of its subject", "group", subject["kind"].as_str().unwrap_or_default());
    report.equal("processes", 4, subject["processes"].as_u64().unwrap_or(0));
    let named = subject["members"].as_array().into_iter().flatten();
    let known = named.filter(|member| pids.iter().any(|pid| member["pid"] == *pid)).count();
    report.equal("members that are processes of the segment", pids.len(), known);
    let object = &subject["objects"][0];
    report.say(object);
    report.equal("bytes of the segment in memory", MIB << 20, object["resident_bytes"].as_u64().unwrap_or(0));
    let from = object["nodes_from"].as_str().unwrap_or_default();
    report.equal("nodes of the segment are those of", "page_cache", from);
    report.equal("percent of the segment on node 0", 100.0, object["node_pct"][0].as_f64().unwrap_or(0.0));

    let lines = finding["commands"].as_array().into_iter().flatten().filter(|line| line["when"] == "now");
    report.equal("lines that move memory", 1, lines.count());
    execute_without_nice(report, &finding["commands"])?;
    watch.follow(HELD)?;
    let check = &finding["check"][0];
    let open = holds(watch.last(), check) == Some(false);
    report.equal("the check stays open without CAP_SYS_NICE", true, open);
    let first = pids[0];
    memory_is_on(0, report, first, "after the command without CAP_SYS_NICE")?;

    let finding = group.close(report, &mut watch, SLACK)?;
    memory_is_on(1, report, first, "after the command")?;
    undo(report, &finding)?;
    memory_is_on(0, report, first, "after the way back")?;
    let alone = watch.seen().iter().filter(|other| other["id"] == ID && is_of_one(other)).count();
    report.equal("findings about one of them", 0, alone);
    work.stop()?;
    watch.stop()?;
    Ok(())
}

fn is_of_one(finding: &Value) -> bool {
    finding["subject"]["kind"] == "process"
}

fn run_quiet(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    two_nodes(plan)?;
    let _balancing = Balancing::off()?;
    let (work, pids) = start("5", "default")?;
    let scope: Vec<String> = pids[..4].iter().flat_map(|pid| ["-p".into(), pid.to_string()]).collect();
    let mut watch = Watch::of(&scope.iter().map(String::as_str).collect::<Vec<_>>())?;
    let group = Loop { held: HELD, severity: "info", ..Loop::of(ID) };
    let finding = group.comes(report, &mut watch, LIVES + 3 * HELD + SLACK)?;
    report.equal("processes in the scope", 4, finding["subject"]["processes"].as_u64().unwrap_or(0));
    report.say(&finding["subject"]["objects"]);
    let why = finding["else"][0].as_str().unwrap_or_default();
    report.check(
        why.starts_with("Other processes also map this memory"),
        "why it is an info",
        "the others",
        why,
    );
    watch.stop()?;
    work.stop()?;

    let (work, pids) = start("3", "interleave")?;
    let mut watch = Watch::start()?;
    watch.follow(LIVES + 2 * HELD)?;
    let row = watch.process(pids[0]);
    report.say(format_args!("it ran by node {}, remote {}", row["run_pct_by_node"], row["remote_pct"]));
    memory_is_on(0, report, pids[0], "with a policy that interleaves it")?;
    let found: Vec<_> = findings(watch.last()).filter(|finding| finding["id"] == ID).collect();
    report.equal("findings about a segment that is interleaved", 0, found.len());
    watch.stop()?;
    work.stop()?;
    Ok(())
}
