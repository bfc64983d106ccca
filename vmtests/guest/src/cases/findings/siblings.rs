//! Two busy threads on the two CPUs of one core, while other cores are idle: `sibling-contention`.

use std::time::Duration;

use vmtests_protocol::Plan;

use super::super::{Case, Stop};
use super::watch::Watch;
use super::{LIVES, Loop, SLACK, shell, undo};
use crate::report::Report;
use crate::sysfs::{self, show_list};
use crate::work::Work;
use crate::{affinity, procfs};

pub const CASE: Case = Case {
    name: "findings_siblings",
    about: "a process is pinned to the two CPUs of one core: the finding comes, its command gives it two cores, the finding ends, \
            and the way back gives it the one core again",
    run,
};

/// The time that the rule's condition must hold.
const HELD: Duration = Duration::from_secs(60);

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    let core = sysfs::siblings(0)?;
    if core.len() != 2 || plan.machine.cpus() < 8 {
        return Err(Stop::skip("needs four cores of two threads"));
    }
    // The other cores of the first node must idle: an emulated tool is work enough to keep one from that.
    let away = sysfs::node_cpus(1)?;
    affinity::pin(&away).map_err(|error| format!("staying on CPUs {}: {error}", show_list(&away)))?;
    let mut watch = Watch::start()?;
    let work = Work::start_now("spin", &[&show_list(&core)])?;
    let pid = work.pid();
    // Its main thread, too, so that the list is that of the process.
    shell::pin_all(pid, &core)?;
    let finding = Loop { held: HELD, ..Loop::of("sibling-contention") }.close(
        report,
        &mut watch,
        LIVES + HELD + SLACK,
    )?;
    let moved = procfs::cpus_allowed(pid)?;
    let mut cores: Vec<Vec<u32>> = moved.iter().map(|cpu| sysfs::siblings(*cpu)).collect::<Result<_, _>>()?;
    cores.sort();
    cores.dedup();
    report.check(
        cores.len() >= 2 && cores.len() == moved.len(),
        "cores of the CPUs that it may use after the command",
        "two or more, one CPU of each",
        show_list(&moved),
    );
    undo(report, &finding)?;
    report.equal("CPUs after the way back", show_list(&core), show_list(&procfs::cpus_allowed(pid)?));
    watch.stop()?;
    work.stop()?;
    Ok(())
}
