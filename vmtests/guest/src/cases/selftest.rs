//! The tool's test of itself: no number is wrong, and none is left untested that this machine could test.

use serde_json::Value;
use vmtests_protocol::Plan;

use super::{Case, Stop};
use crate::report::Report;
use crate::tool;

pub const CASE: Case = Case {
    name: "selftest",
    about: "numatop-ng selftest software finds nothing wrong, and tests all that the nodes and CPUs allow",
    run,
};

/// Checks that need memory on two nodes with CPUs.
const OF_TWO_NODES: [&str; 5] = ["node_moves", "other_node_pages", "moved_pages", "placement", "remote"];

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    let output = tool::run(&["selftest", "software", "--format", "json"])?;
    let said: Value = serde_json::from_str(&output.stdout)
        .map_err(|error| Stop::fail(format!("selftest printed no JSON: {error}; {}", output.brief())))?;
    report.equal("exit code", "0".to_owned(), output.code.map_or("none".to_owned(), |code| code.to_string()));
    let comparisons = said["comparisons"].as_array().cloned().unwrap_or_default();
    report.check(comparisons.len() >= 9, "checks", "9 or more", comparisons.len());
    let with_cpus = plan.machine.cpu_nodes().count();
    for comparison in &comparisons {
        let check = comparison["check"].as_str().unwrap_or("?").to_owned();
        let verdict = comparison["verdict"].as_str().unwrap_or("?").to_owned();
        let possible = match check.as_str() {
            "cpu_moves" => plan.machine.cpus() > 1,
            check if OF_TWO_NODES.contains(&check) => with_cpus > 1,
            _ => true,
        };
        let want = if possible { "ok" } else { "untested" };
        report.say(format_args!(
            "{check}: {} by the tool, {} in truth",
            comparison["tool"], comparison["truth"]
        ));
        if verdict != want {
            report.say(format_args!("{check}: {}", comparison["reason"]));
        }
        report.equal(check, want.to_owned(), verdict);
    }
    Ok(())
}
