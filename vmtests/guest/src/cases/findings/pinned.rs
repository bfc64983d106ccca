//! A process that is pinned after its memory has come to another node: `remote-after-pin`.

use std::time::Duration;

use vmtests_protocol::Plan;

use super::super::{Case, Stop};
use super::{LIVES, Loop, SLACK, memory_is_on, shell, unbalanced};
use crate::report::Report;
use crate::sysfs;
use crate::work::Work;

pub const CASE: Case = Case {
    name: "findings",
    about: "a process is pinned to node 0 and its memory is on node 1: the finding comes, its command, executed as printed, \
            moves the memory, the check comes true in its time, and the finding ends",
    run,
};

/// The time that the rule's condition must hold.
const HELD: Duration = Duration::from_secs(30);
const MIB: &str = "96";

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    let (_balancing, mut watch) = unbalanced(plan)?;
    let work = Work::start_now("numa_truth", &["free:2", "0,100", MIB, "touched", "uniform"])?;
    let pid = work.pid();
    shell::pin_all(pid, &sysfs::node_cpus(0)?)?;
    let finding = Loop::of("remote-after-pin").close(report, &mut watch, LIVES + HELD + SLACK);
    let row = watch.process(pid);
    report.say(format_args!("at the end remote {} by {}", row["remote_pct"], row["remote_source"]));
    let finding = finding?;
    report.equal(
        "the process that it is about",
        i64::from(pid),
        finding["subject"]["pid"].as_i64().unwrap_or(0),
    );
    memory_is_on(0, report, pid, "after the command")?;
    watch.stop()?;
    work.stop()?;
    Ok(())
}
