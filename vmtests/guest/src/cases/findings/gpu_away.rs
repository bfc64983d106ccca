//! A process that holds a device of the other node open: `gpu-away`. The device is the NVMe controller, under the name of a
//! driver that passes devices to virtual machines.

use std::ffi::CStr;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::Duration;

use serde_json::Value;
use vmtests_protocol::Plan;

use super::super::{Case, Stop};
use super::watch::{self, Watch};
use super::{LIVES, Loop, SLACK, shell, two_nodes, undo};
use crate::affinity;
use crate::disk::Disk;
use crate::drivers;
use crate::report::Report;
use crate::sysfs;
use crate::work::Work;

pub const CASE: Case = Case {
    name: "findings_gpu_away",
    about: "a process holds a device of the other node: the finding comes, its command sends it to that node, the finding ends",
    run,
};

/// The controller's own file.
const DEVICE: &CStr = c"/dev/nvme0";
/// The time that the rule's condition must hold.
const HELD: Duration = Duration::from_secs(60);

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    two_nodes(plan)?;
    let disk = Disk::find(plan)?;
    drivers::rename("nvme", "vfio-dev")?;
    let away = 1 - disk.node;
    let far = sysfs::node_cpus(away)?;
    // The tool leaves the node of the device empty, so that it has room.
    affinity::pin(&far[1..]).map_err(|error| format!("staying on a CPU of node {away}: {error}"))?;
    let shares = if away == 0 { "100,0" } else { "0,100" };
    let held = open().map_err(|error| format!("opening {DEVICE:?}: {error}"))?;
    let mut work = Work::start("numa_truth", &["free:1", shares, "16", "touched", "uniform"])?;
    drop(held);
    let pid = work.pid();
    shell::pin_all(pid, &far[..1])?;
    let mut watch = Watch::every("2")?;
    work.go();
    let expected = Loop { held: HELD, severity: "info", ..Loop::of("gpu-away") };
    let came = expected.comes(report, &mut watch, LIVES + HELD + SLACK + SLACK);
    let row = watch::process(watch.last(), pid).clone();
    report.equal("accelerators that it holds", r#""nvme0""#.to_owned(), row["accelerators"].to_string());
    report.equal("their nodes", format!("\"{}\"", disk.node), row["accelerator_nodes"].to_string());
    report.check(
        row["accelerator_far_pct"].as_f64().is_some_and(|pct| pct > 99.0),
        "share of its time on the other node",
        "100",
        &row["accelerator_far_pct"],
    );
    let tasks = watch.last()["tasks"].as_array().into_iter().flatten();
    let others = tasks.filter(|task| task["pid"] != pid && task["accelerators"] != Value::Null);
    report.equal("other processes that hold any", 0, others.count());
    came?;
    let finding = expected.close(report, &mut watch, SLACK)?;
    undo(report, &finding)?;
    watch.stop()?;
    work.stop()?;
    Ok(())
}

/// A descriptor that children inherit.
fn open() -> io::Result<OwnedFd> {
    // SAFETY: the path ends in a zero, and no other code has the descriptor.
    unsafe {
        match libc::open(DEVICE.as_ptr(), libc::O_RDONLY) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}
