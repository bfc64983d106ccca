//! Two containers whose cpusets name the same core, while cores of no cpuset idle: `shared-cores`.

use std::time::Duration;

use vmtests_protocol::Plan;

use super::super::{Case, Stop, all_cpus};
use super::watch::Watch;
use super::{LIVES, Loop, SLACK, shell, two_nodes, undo};
use crate::affinity;
use crate::groups::{self, Groups};
use crate::report::Report;
use crate::work::Work;

pub const CASE: Case = Case {
    name: "findings_shared",
    about: "a container has a core that another one has, too: the finding comes, its command gives it a core that idles, the finding \
            ends, and the way back gives it the shared one again",
    run,
};

/// Paths as docker has them.
const ABOVE: &str = "/docker";
const SMALL: &str = "/docker/3c0f6a4c2b9f1e8d7a6b5c4d3e2f1a0b9c8d7e6f5a4b3c2d1e0f9a8b7c6d5e4f";
const LARGE: &str = "/docker/9f8e7d6c5b4a39281706f5e4d3c2b1a09f8e7d6c5b4a39281706f5e4d3c2b1a0";
/// The time that the rule's condition must hold.
const HELD: Duration = Duration::from_secs(60);

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    two_nodes(plan)?;
    if plan.machine.cpus() != 4 {
        return Err(Stop::skip("needs two nodes of two CPUs"));
    }
    let _groups = Groups::make(&["cpuset"], &[ABOVE, SMALL, LARGE])?;
    groups::write(SMALL, "cpuset.cpus", "0")?;
    groups::write(LARGE, "cpuset.cpus", "0-1")?;
    // Core 2 is for the tool, so that core 3 idles.
    affinity::pin(&[2]).map_err(|error| format!("staying on CPU 2: {error}"))?;
    let mut watch = Watch::start()?;
    let mut works = Vec::new();
    for (group, threads) in [(SMALL, "free:1"), (LARGE, "free:2")] {
        let mut work = Work::start("numa_truth", &[threads, "100,0", "16", "touched", "uniform"])?;
        shell::pin_all(work.pid(), &all_cpus(plan))?;
        groups::write(group, "cgroup.procs", &work.pid().to_string())?;
        work.go();
        works.push(work);
    }
    let expected = Loop { held: HELD, ..Loop::of("shared-cores") };
    let finding = expected.close(report, &mut watch, LIVES + HELD + SLACK)?;
    report.equal("CPUs after the command", "3".to_owned(), groups::read(SMALL, "cpuset.cpus")?);
    undo(report, &finding)?;
    report.equal("CPUs after the way back", "0".to_owned(), groups::read(SMALL, "cpuset.cpus")?);
    watch.stop()?;
    for work in works {
        work.stop()?;
    }
    Ok(())
}
