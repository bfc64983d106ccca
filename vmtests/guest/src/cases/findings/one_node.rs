//! A process whose threads keep both nodes busy, with all of its memory on node 0: `memory-on-one-node`.

use std::time::Duration;

use vmtests_protocol::Plan;

use super::super::{Case, Stop, all_cpus};
use super::watch::finding;
use super::{LIVES, Loop, SLACK, memory_is_on, unbalanced};
use crate::report::Report;
use crate::work::Work;

pub const CASE: Case = Case {
    name: "findings_one_node",
    about: "a process works on two nodes and all of its memory is on node 0: the finding comes, and after a start with interleaved \
            memory, as it says, does not come again",
    run,
};

const ID: &str = "memory-on-one-node";
/// The time that the rule's condition must hold.
const HELD: Duration = Duration::from_secs(60);
const MIB: &str = "96";

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    let (_balancing, mut watch) = unbalanced(plan)?;
    let threads = format!("free:{}", all_cpus(plan).len());
    let work = Work::start_now("numa_truth", &[&threads, "100,0", MIB, "touched", "uniform"])?;
    let pid = work.pid();
    let found = Loop { held: HELD, ..Loop::of(ID) }.comes(report, &mut watch, LIVES + 2 * HELD + SLACK)?;
    memory_is_on(0, report, pid, "by the first touch")?;
    let lines = found["commands"].as_array().into_iter().flatten();
    let says: Vec<&str> = lines.filter_map(|command| command["words"].as_str()).collect();
    let start = says.iter().any(|words| words.starts_with("numactl --interleave=0-1"));
    report.check(start, "words for the next start", "numactl --interleave=0-1", format_args!("{says:?}"));
    work.stop()?;

    let work = Work::start_now("numa_truth", &[&threads, "50,50", MIB, "interleaved", "uniform"])?;
    watch.follow(LIVES + HELD + SLACK)?;
    let row = watch.process(work.pid());
    report.say(format_args!(
        "interleaved it ran by node {}, remote {}",
        row["run_pct_by_node"], row["remote_pct"]
    ));
    report.equal(
        "the finding after a start with interleaved memory",
        true,
        finding(watch.last(), ID).is_none(),
    );
    watch.stop()?;
    work.stop()?;
    Ok(())
}
