//! Four processes that share a segment on node 0 run everywhere: one finding about all of them, and none about one.

use std::time::Duration;

use serde_json::Value;
use vmtests_protocol::Plan;

use super::super::{Case, Stop, all_cpus};
use super::other_node::Stays;
use super::watch::{Watch, findings};
use super::{LIVES, SLACK, two_nodes};
use crate::report::Report;
use crate::rest::Balancing;
use crate::work::Work;

pub const CASE: Case = Case {
    name: "findings_segment",
    about: "four processes share memory on node 0 and run on both nodes: one finding comes for all of them, and none for one",
    run,
};

/// The time that the rule's condition must hold.
const HELD: Duration = Duration::from_secs(30);
const RULES: [&str; 2] = ["spread-over-nodes", "memory-on-other-node"];

fn is_of(finding: &Value, kind: &str) -> bool {
    RULES.iter().any(|id| finding["id"] == *id) && finding["subject"]["kind"] == kind
}

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    two_nodes(plan)?;
    let _balancing = Balancing::off()?;
    let mut watch = Watch::start()?;
    let work = Work::start_now("segment", &["96", "0", "3"])?;
    // Sent back whenever they leave node 1: they do move, which is what the rule wants to see.
    let pids: Vec<i32> =
        serde_json::from_value(work.facts["pids"].clone()).map_err(|error| error.to_string())?;
    let stay = |pid: &i32| Stays::on_node(1, *pid, all_cpus(plan));
    let stays = pids.iter().map(stay).collect::<Result<Vec<_>, _>>()?;
    let has_one = |interval: &Value| findings(interval).any(|finding| is_of(finding, "group"));
    let interval = watch.until(LIVES + 3 * HELD + SLACK, has_one)?;
    let Some(interval) = interval else {
        return Err(Stop::fail(format!("no finding about the group; {}", watch.why_not(RULES[0]))));
    };
    let finding = findings(&interval).find(|finding| is_of(finding, "group")).cloned().unwrap_or_default();
    report.say(finding["sentence"].as_str().unwrap_or_default());
    report.equal("severity", "warning", finding["severity"].as_str().unwrap_or_default());
    report.equal("processes", 4, finding["subject"]["processes"].as_u64().unwrap_or(0));
    let members = finding["subject"]["members"].as_array().into_iter().flatten();
    let known = members.filter(|member| pids.iter().any(|pid| member["pid"] == *pid)).count();
    report.equal("members that are processes of the segment", pids.len(), known);
    let bytes = finding["subject"]["objects"][0]["resident_bytes"].as_u64().unwrap_or(0);
    report.equal("bytes of the segment in memory", 96 << 20, bytes);
    let alone = watch.seen().iter().filter(|other| is_of(other, "process")).count();
    report.equal("findings about one of them", 0, alone);
    for stays in stays {
        stays.stop()?;
    }
    watch.stop()?;
    work.stop()?;
    Ok(())
}
