//! A process that interleaves its memory over both nodes and runs on one: `interleaved-on-one-node`.

use std::time::Duration;

use vmtests_protocol::Plan;

use super::super::{Case, Stop};
use super::{LIVES, Loop, SLACK, memory_is_on, unbalanced, undo};
use crate::report::Report;
use crate::sysfs;
use crate::work::Work;

pub const CASE: Case = Case {
    name: "findings_interleaved",
    about: "a process interleaves its memory over two nodes and runs on node 0: the finding comes, its command brings the memory, \
            the finding ends, and the way back takes all of it away",
    run,
};

/// The time that the rule's condition must hold.
const HELD: Duration = Duration::from_secs(60);
const MIB: &str = "96";

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    let (_balancing, mut watch) = unbalanced(plan)?;
    let cpu = sysfs::node_cpus(0)?[0].to_string();
    let work = Work::start_now("numa_truth", &[&cpu, "50,50", MIB, "interleaved", "uniform"])?;
    let pid = work.pid();
    let expected = Loop { held: HELD, severity: "info", ..Loop::of("interleaved-on-one-node") };
    let finding = expected.close(report, &mut watch, LIVES + HELD + SLACK)?;
    memory_is_on(0, report, pid, "after the command")?;
    undo(report, &finding)?;
    memory_is_on(1, report, pid, "after the way back")?;
    watch.stop()?;
    work.stop()?;
    Ok(())
}
