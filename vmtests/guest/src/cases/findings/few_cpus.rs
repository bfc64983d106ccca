//! A cgroup with one CPU, a quota of three and two busy threads, while other CPUs idle: `cpus-too-few`.

use std::time::Duration;

use vmtests_protocol::Plan;

use super::super::{Case, Stop, all_cpus};
use super::watch::Watch;
use super::{LIVES, Loop, SLACK, shell, two_nodes, undo};
use crate::affinity;
use crate::groups::{self, Groups};
use crate::report::Report;
use crate::sysfs::{self, show_list};
use crate::work::Work;

pub const CASE: Case = Case {
    name: "findings_few_cpus",
    about: "a cgroup has one CPU, a quota of three and two busy threads: the finding comes, its commands give it all CPUs of its \
            node, the finding ends, and the way back takes them away again",
    run,
};

const GROUP: &str = "/few";
/// The time that the rule's condition must hold.
const HELD: Duration = Duration::from_secs(60);

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    two_nodes(plan)?;
    let home = sysfs::node_cpus(0)?;
    let (one, all) = (home[0].to_string(), show_list(&home));
    let _groups = Groups::make(&["cpu", "cpuset"], &[GROUP])?;
    groups::write(GROUP, "cpuset.cpus", &one)?;
    groups::write(GROUP, "cpu.max", "300000 100000")?;
    // Node 0 is left to the two threads of the workload, which have to share one of its CPUs.
    let away = sysfs::node_cpus(1)?;
    affinity::pin(&away).map_err(|error| format!("staying on CPUs {}: {error}", show_list(&away)))?;
    let mut watch = Watch::start()?;
    let mut work = Work::start("numa_truth", &["free:2", "100,0", "16", "touched", "uniform"])?;
    let pid = work.pid();
    shell::pin_all(pid, &all_cpus(plan))?;
    groups::write(GROUP, "cgroup.procs", &pid.to_string())?;
    work.go();
    let expected = Loop { held: HELD, ..Loop::of("cpus-too-few") };
    let finding = expected.close(report, &mut watch, LIVES + HELD + SLACK)?;
    report.equal("CPUs after the commands", all, groups::read(GROUP, "cpuset.cpus")?);
    undo(report, &finding)?;
    report.equal("CPUs after the way back", one, groups::read(GROUP, "cpuset.cpus")?);
    watch.stop()?;
    work.stop()?;
    Ok(())
}
