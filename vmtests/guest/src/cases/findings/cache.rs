//! A process whose node is full of page cache, so that half of its memory is on the other one: `page-cache-fills-node`.

use std::time::Duration;

use vmtests_protocol::Plan;

use super::super::{Case, Stop};
use super::watch::Watch;
use super::{LIVES, Loop, SLACK, memory_is_on, say_nodes, two_nodes, undo};
use crate::affinity;
use crate::disk::Disk;
use crate::groups::{self, Groups};
use crate::report::Report;
use crate::rest::Balancing;
use crate::sysfs::{self, show_list};
use crate::work::Work;

pub const CASE: Case = Case {
    name: "findings_cache",
    about: "node 0 is full of page cache that one of two groups has read, and half of the memory of a process that runs there is on \
            node 1: the finding names the group, its commands reclaim that group's cache and bring the memory, the other group \
            keeps its own, and the finding ends; the way back sends memory to node 1",
    run,
};

/// The time that the rule's condition must hold.
const HELD: Duration = Duration::from_secs(30);
const MIB: &str = "96";
/// Groups that read the disk: the second one little and first, which it is then charged for.
const TOP: &str = "/disk";
const READER: &str = "/disk/reader";
const KEEPER: &str = "/disk/keeper";
const KEPT_MIB: &str = "24";

/// Reads so much of the disk in a group.
fn reads(group: &str, cpu: u32, mib: &str) -> Result<Work, Stop> {
    let mut work = Work::start("caches", &[&cpu.to_string(), mib])?;
    groups::write(group, "cgroup.procs", &work.pid().to_string())?;
    work.go();
    work.said()?;
    Ok(work)
}

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
    let _groups = Groups::make(&["memory"], &[TOP, READER, KEEPER])?;
    let kept = reads(KEEPER, home[1], KEPT_MIB)?;
    let cache_of = |path: &str| -> Result<u64, Stop> {
        let text = groups::read(path, "memory.stat")?;
        let bytes = text.lines().find_map(|line| line.strip_prefix("file ")?.parse().ok());
        Ok(bytes.ok_or_else(|| format!("memory.stat of {path} has no file"))?)
    };
    let kept_bytes = cache_of(KEEPER)?;
    // More than fits: the last part is on node 1.
    let cache = reads(READER, home[1], &(free + 64).to_string())?;
    let expected = Loop { held: HELD, ..Loop::of("page-cache-fills-node") };
    let finding = expected.close(report, &mut watch, LIVES + HELD + SLACK);
    say_nodes(report, &watch);
    let finding = finding?;
    let sentence = finding["sentence"].as_str().unwrap_or_default();
    report.check(sentence.contains("% reader)"), "the sentence", "names the group", sentence);
    let line = finding["commands"][0]["line"].as_str().unwrap_or_default();
    report.check(line.ends_with("/disk/reader/memory.reclaim"), "the first command", "for that group", line);
    let keeps = cache_of(KEEPER)?;
    report.check(
        keeps * 10 >= kept_bytes * 9 && kept_bytes > 0,
        "page cache of the other group",
        format_args!("nearly {kept_bytes}"),
        keeps,
    );
    memory_is_on(0, report, work.pid(), "after the commands")?;
    undo(report, &finding)?;
    memory_is_on(1, report, work.pid(), "after the way back")?;
    watch.stop()?;
    cache.stop()?;
    kept.stop()?;
    work.stop()?;
    Ok(())
}
