//! Four processes that share a segment on node 0 run on node 1: one finding about all of them, `memory-on-other-node`.

use std::time::Duration;

use vmtests_protocol::Plan;

use super::super::{Case, Stop, all_cpus};
use super::other_node::Stays;
use super::watch::Watch;
use super::{LIVES, Loop, SLACK, memory_is_on, two_nodes, undo};
use crate::report::Report;
use crate::rest::Balancing;
use crate::work::Work;

pub const CASE: Case = Case {
    name: "findings_segment",
    about: "four processes share memory on node 0 and run on node 1: one finding comes for all, its line brings the memory for all, \
            the finding ends, and the way back takes it away again",
    run,
};

/// The time that the rule's condition must hold.
const HELD: Duration = Duration::from_secs(60);

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    two_nodes(plan)?;
    let _balancing = Balancing::off()?;
    let mut watch = Watch::start()?;
    let work = Work::start_now("segment", &["96", "0", "3"])?;
    let pids: Vec<i32> =
        serde_json::from_value(work.facts["pids"].clone()).map_err(|error| error.to_string())?;
    let stay = |pid: &i32| Stays::on_node(1, *pid, all_cpus(plan));
    let stays = pids.iter().map(stay).collect::<Result<Vec<_>, _>>()?;
    let closed = Loop { held: HELD, ..Loop::of("memory-on-other-node") };
    let finding = closed.close(report, &mut watch, LIVES + HELD + SLACK)?;
    report.equal(
        "kind of its subject",
        "group".to_owned(),
        finding["subject"]["kind"].as_str().unwrap_or_default().to_owned(),
    );
    report.equal("processes", 4, finding["subject"]["processes"].as_u64().unwrap_or(0));
    let lines = finding["commands"].as_array().into_iter().flatten();
    report.equal("lines for now", 1, lines.filter(|command| command["when"] == "now").count());
    let alone = watch
        .seen()
        .iter()
        .filter(|other| other["id"] == finding["id"] && other["subject"]["kind"] == "process");
    report.equal("findings about one of them", 0, alone.count());
    for pid in &pids {
        memory_is_on(1, report, *pid, "after the command")?;
    }
    undo(report, &finding)?;
    memory_is_on(0, report, pids[0], "after the way back")?;
    for stays in stays {
        stays.stop()?;
    }
    watch.stop()?;
    work.stop()?;
    Ok(())
}
