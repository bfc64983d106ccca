//! A container that may take memory from node 0 only, and needs more than that node has:
//! `bound-to-full-node`.

use std::time::Duration;

use vmtests_protocol::Plan;

use super::super::{Case, Stop, all_cpus};
use super::watch::Watch;
use super::{LIVES, Loop, SLACK, say_nodes, shell, two_nodes, undo};
use crate::affinity;
use crate::disk::{Disk, Swap};
use crate::groups::{self, Groups};
use crate::report::Report;
use crate::sysfs::{self, show_list};
use crate::work::Work;

pub const CASE: Case = Case {
    name: "findings_bound",
    about: "a container may take memory from node 0 only, and swaps while node 1 is free: the finding comes and is the only cause, its \
            command gives it both nodes, the finding ends, and the way back restores the list",
    run,
};

/// Paths as docker has them.
const ABOVE: &str = "/docker";
const GROUP: &str = "/docker/5e1f0c9b8a7d6e5f4c3b2a190817263544536271809f8e7d6c5b4a392817f6e5";
/// The time that the rule's condition must hold.
const HELD: Duration = Duration::from_secs(20);
/// Bytes that do not fit.
const OVER_MIB: u64 = 64;

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    two_nodes(plan)?;
    Disk::find(plan)?;
    let _swap = Swap::on()?;
    let all = show_list(&all_cpus(plan));
    let _groups = Groups::make(&["cpuset", "memory"], &[ABOVE, GROUP])?;
    groups::write(GROUP, "cpuset.cpus", &all)?;
    groups::write(GROUP, "cpuset.mems", "0")?;
    let away = sysfs::node_cpus(1)?;
    affinity::pin(&away).map_err(|error| format!("staying on CPUs {}: {error}", show_list(&away)))?;
    let mut watch = Watch::start()?;
    let free = sysfs::node_memory_kib(0, "MemFree")? / 1024;
    report.say(format_args!("{free} MiB are free on node 0, and the program uses {OVER_MIB} more"));
    let mut work = Work::start("cycles", &[&(free + OVER_MIB).to_string()])?;
    shell::pin_all(work.pid(), &all_cpus(plan))?;
    groups::write(GROUP, "cgroup.procs", &work.pid().to_string())?;
    work.go();
    // The container is not judged for a minute; until that time, only swapping can be reported.
    let swaps = Loop { severity: "critical", ..Loop::of("swap-while-memory-free") };
    swaps.comes(report, &mut watch, HELD + SLACK)?;
    let beside = &[swaps.id][..];
    let expected = Loop { severity: "critical", beside, ..Loop::of("bound-to-full-node") };
    expected.comes(report, &mut watch, LIVES + HELD + SLACK)?;
    let below = swaps.find(watch.last()).map(|swaps| swaps["because_of"].to_string());
    report.check(
        below.as_ref().is_some_and(|cause| cause.contains(expected.id)),
        format_args!("the cause of {}", swaps.id),
        expected.id,
        below.as_deref().unwrap_or("no such finding"),
    );
    let finding = expected.close(report, &mut watch, SLACK);
    say_nodes(report, &watch);
    let finding = finding?;
    report.equal("nodes after the command", "0-1".to_owned(), groups::read(GROUP, "cpuset.mems")?);
    undo(report, &finding)?;
    report.equal("nodes after the way back", "0".to_owned(), groups::read(GROUP, "cpuset.mems")?);
    report.equal("CPUs after the way back", all, groups::read(GROUP, "cpuset.cpus")?);
    watch.stop()?;
    work.stop()?;
    Ok(())
}
