//! A container on one node that reads a disk of the other one: `far-device`.

use std::time::Duration;

use serde_json::Value;
use vmtests_protocol::Plan;

use super::super::{Case, Stop, all_cpus};
use super::watch::{self, Watch};
use super::{LIVES, Loop, SLACK, shell, two_nodes, undo};
use crate::affinity;
use crate::disk::Disk;
use crate::groups::{self, Groups};
use crate::procfs;
use crate::report::Report;
use crate::sysfs::{self, show_list};
use crate::work::Work;

pub const CASE: Case = Case {
    name: "findings_far_device",
    about: "a container reads a disk of the other node: the finding comes, its command sends it to the node of the disk, the finding \
            ends, and the way back lets it run everywhere it could",
    run,
};

/// Paths as docker has them.
const ABOVE: &str = "/docker";
const GROUP: &str = "/docker/3c0f6a4c2b9f1e8d7a6b5c4d3e2f1a0b9c8d7e6f5a4b3c2d1e0f9a8b7c6d5e4f";
/// The time that the rule's condition must hold.
const HELD: Duration = Duration::from_secs(60);
/// Intervals in which bytes are counted, by the tool and by the kernel.
const COUNTED: usize = 15;

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    two_nodes(plan)?;
    let disk = Disk::find(plan)?;
    let (near, far) = (sysfs::node_cpus(disk.node)?, sysfs::node_cpus(1 - disk.node)?);
    let _groups = Groups::make(&["cpuset", "io", "memory"], &[ABOVE, GROUP])?;
    groups::write(GROUP, "cpuset.cpus", &show_list(&far))?;
    groups::write(GROUP, "cpuset.mems", "0-1")?;
    // The tool leaves the node of the disk empty, so that it has room.
    affinity::pin(&far[1..])
        .map_err(|error| format!("staying on a CPU of node {}: {error}", 1 - disk.node))?;
    let mut watch = Watch::every("2")?;
    let mut work = Work::start("reads", &[&show_list(&all_cpus(plan)), "256", "1"])?;
    shell::pin_all(work.pid(), &all_cpus(plan))?;
    groups::write(GROUP, "cgroup.procs", &work.pid().to_string())?;
    work.go();
    let expected = Loop { held: HELD, severity: "info", ..Loop::of("far-device") };
    let came = expected.comes(report, &mut watch, LIVES + HELD + SLACK + SLACK);
    say_rows(report, &watch);
    came?;
    counted(report, &mut watch, work.pid())?;
    let finding = expected.close(report, &mut watch, SLACK)?;
    report.equal("CPUs after the command", show_list(&near), groups::read(GROUP, "cpuset.cpus")?);
    undo(report, &finding)?;
    report.equal("CPUs after the way back", show_list(&far), groups::read(GROUP, "cpuset.cpus")?);
    report.equal("nodes after the way back", "0-1".to_owned(), groups::read(GROUP, "cpuset.mems")?);
    watch.stop()?;
    work.stop()?;
    Ok(())
}

/// Compares the bytes of some intervals with the kernel's counts for the process before and after them.
fn counted(report: &mut Report, watch: &mut Watch, pid: i32) -> Result<(), Stop> {
    watch.next_interval()?;
    let before = procfs::read_bytes(pid)?;
    let (mut shown, mut of_process, mut far, mut after) = (0.0, 0.0, Vec::new(), before);
    for _ in 0..COUNTED {
        let interval = watch.next_interval()?;
        let row = watch::container(interval, GROUP).unwrap_or(&Value::Null);
        let seconds = interval["interval_ns"].as_f64().unwrap_or(f64::NAN) / 1e9;
        shown += row["disk_bytes_per_s"].as_f64().unwrap_or(f64::NAN) * seconds;
        let process = watch::process(interval, pid);
        of_process += process["disk_bytes_per_s"].as_f64().unwrap_or(f64::NAN) * seconds;
        far.extend(process["disk_far_pct"].as_f64());
        after = procfs::read_bytes(pid)?;
    }
    report.close(
        format_args!("bytes that it read in {COUNTED} intervals"),
        (after - before) as f64,
        shown,
        0.05,
    );
    report.close(
        format_args!("the same, counted as the process submits them"),
        (after - before) as f64,
        of_process,
        0.05,
    );
    let all_far = far.len() == COUNTED && far.iter().all(|pct| *pct == 100.0);
    report.check(
        all_far,
        "share of these bytes that it submits on the other node",
        "100 in each interval",
        format_args!("{far:?}"),
    );
    Ok(())
}

/// The numbers that the rule looks at, of the last interval.
fn say_rows(report: &Report, watch: &Watch) {
    for row in watch.last()["containers"].as_array().into_iter().flatten() {
        let part = |key: &str| format!("{key} {}", row[key]);
        let parts = ["cgroup", "disk_bytes_per_s", "disk_requests_per_s", "disk_far_pct", "run_pct_by_node"]
            .map(part);
        report.say(parts.join(", "));
    }
}
