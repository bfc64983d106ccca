//! A process whose node is full of page cache, so that half of its memory is on the other one: `page-cache-fills-node`.

use std::time::Duration;

use vmtests_protocol::Plan;

use super::super::{Case, Stop};
use super::watch::Watch;
use super::{LIVES, Loop, SLACK, memory_is_on, say_nodes, two_nodes, undo};
use crate::affinity;
use crate::disk::Disk;
use crate::report::Report;
use crate::rest::Balancing;
use crate::sysfs::{self, show_list};
use crate::work::Work;

pub const CASE: Case = Case {
    name: "findings_cache",
    about: "node 0 is full of page cache, and half of the memory of a process that runs there is on node 1: the finding comes, its \
            commands empty the cache and bring the memory, and the finding ends; the way back sends memory to node 1",
    run,
};

/// The time that the rule's condition must hold.
const HELD: Duration = Duration::from_secs(30);
const MIB: &str = "96";

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    two_nodes(plan)?;
    Disk::find(plan)?;
    let _balancing = Balancing::off()?;
    let (home, away) = (sysfs::node_cpus(0)?, sysfs::node_cpus(1)?);
    affinity::pin(&away).map_err(|error| format!("staying on CPUs {}: {error}", show_list(&away)))?;
    let mut watch = Watch::start()?;
    let cpu = home[0].to_string();
    let work = Work::start_now("numa_truth", &[&cpu, "50,50", MIB, "touched", "uniform"])?;
    let free = sysfs::node_memory_kib(0, "MemFree")? / 1024;
    // More than fits: what comes last is on node 1.
    let mut cache = Work::start("caches", &[&home[1].to_string(), &(free + 64).to_string()])?;
    cache.go();
    cache.said()?;
    let expected = Loop { held: HELD, ..Loop::of("page-cache-fills-node") };
    let finding = expected.close(report, &mut watch, LIVES + HELD + SLACK);
    say_nodes(report, &watch);
    let finding = finding?;
    memory_is_on(0, report, work.pid(), "after the commands")?;
    undo(report, &finding)?;
    memory_is_on(1, report, work.pid(), "after the way back")?;
    watch.stop()?;
    cache.stop()?;
    work.stop()?;
    Ok(())
}
