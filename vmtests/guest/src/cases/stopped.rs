//! Processes that are kept from running, compared with the kernel's account of them.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use vmtests_protocol::Plan;

use super::{Case, Stop, no_losses};
use crate::intervals::Totals;
use crate::report::Report;
use crate::tool::Batch;
use crate::work::Work;
use crate::{procfs, sysfs};

pub const CASE: Case = Case {
    name: "stopped",
    about: "a process that is stopped, traced, frozen (cgroup v1 and v2) or in an uninterruptible sleep has its state, its \
            memory by node and no CPU time; and all of its CPU time when it goes on",
    run,
};

/// A limit for hangs.
const PATIENCE: Duration = Duration::from_secs(60);
/// Intervals in which nothing may run.
const STILL: usize = 3;
const MIB: &str = "16";

/// The way a process is kept from running, and the letter of its state.
const WAYS: [(Way, char); 5] =
    [(Way::Stop, 'T'), (Way::Trace, 't'), (Way::FreezeV2, 'S'), (Way::FreezeV1, 'D'), (Way::Wait, 'D')];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Stop,
    /// Stopped by a debugger.
    Trace,
    FreezeV2,
    FreezeV1,
    /// For a child, as vfork(2) does.
    Wait,
}

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    for (way, letter) in WAYS {
        kept(report, plan, way, letter)?;
    }
    Ok(())
}

fn kept(report: &mut Report, plan: &Plan, way: Way, letter: char) -> Result<(), Stop> {
    let mut shares = vec!["50", "50"];
    shares.resize(plan.machine.nodes.len().max(2), "0");
    let shares = if plan.machine.nodes.len() == 1 { "100".to_owned() } else { shares.join(",") };
    let arguments = ["0", &shares, MIB, "mixed", "uniform"];
    let mut work = match way {
        Way::Wait => Work::start("waits", &[MIB])?,
        _ => Work::start("numa_truth", &arguments)?,
    };
    let pid = work.pid();
    work.go();
    let kept = Kept::begin(way, pid)?;
    let mut batch = Batch::start(&["-d", "0.5", "-p", &pid.to_string(), "--placement-budget", "500"])?;
    let mut totals = Totals::default();
    batch.follow(&mut totals, 1)?;
    let before = procfs::process_run_ns(pid)?;
    let truth_before = procfs::bytes_by_node(pid)?;
    batch.follow(&mut totals, STILL)?;
    let truth_after = procfs::bytes_by_node(pid)?;
    report.equal(
        format_args!("{way:?}: ns on a CPU by the kernel's account"),
        before,
        procfs::process_run_ns(pid)?,
    );
    let row = totals.process(pid)?;
    report.equal(format_args!("{way:?}: ns on a CPU"), 0.0, row.cpu_ns);
    let state = row.last["state"].as_str().unwrap_or("none").to_owned();
    report.say(format_args!(
        "{way:?}: {} in /proc; bytes by node {truth_before:?}, then {truth_after:?}; resident by /proc {}, shown {}",
        procfs::state(pid)?,
        procfs::resident_bytes(pid)?,
        row.last["rss_bytes"]
    ));
    report.equal(format_args!("{way:?}: state"), letter.to_string(), state);
    // A page that is being moved is on no node, and a huge one is missing during its move. The move need not
    // end because the process is stopped, so either end is true.
    let nodes: BTreeSet<u32> = truth_before.keys().chain(truth_after.keys()).copied().collect();
    for node in nodes {
        let ends = [&truth_before, &truth_after].map(|truth| truth.get(&node).copied().unwrap_or(0.0));
        let (low, high) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
        let shown = row.last["mem_bytes_by_node"][node.to_string()].as_f64().unwrap_or(0.0);
        let error = row.last["mem_error_points"].as_f64().unwrap_or(f64::NAN) / 100.0 * 2.5;
        let all = row.last["rss_bytes"].as_f64().unwrap_or(f64::NAN);
        // The resident size lags by some pages for each CPU.
        let slack = error * all + 0.02 * high + 256.0 * 1024.0;
        report.check(
            (low - slack..=high + slack).contains(&shown),
            format_args!("{way:?}: bytes on node {node}"),
            format_args!("{low} to {high} ± {slack:.0}"),
            shown,
        );
    }
    drop(kept);
    if way != Way::Wait {
        batch.follow(&mut totals, STILL)?;
    }
    let done = work.stop()?;
    batch.follow_to_end(&mut totals, pid)?;
    batch.stop()?;
    let after = done.cpu.as_secs_f64() - before as f64 / 1e9;
    report.cpu_seconds(
        format_args!("{way:?}: CPU seconds after it"),
        after,
        totals.process(pid)?.cpu_ns / 1e9,
    );
    no_losses(report, &totals);
    Ok(())
}

/// A process that does not run until this is dropped.
struct Kept {
    way: Way,
    pid: i32,
    threads: Vec<i32>,
}

const FREEZER: &str = "/run/freezer";
const BOX_V2: &str = "/sys/fs/cgroup/frozen";

impl Kept {
    fn begin(way: Way, pid: i32) -> Result<Kept, Stop> {
        let mut kept = Kept { way, pid, threads: Vec::new() };
        match way {
            Way::Stop => {
                signal(pid, libc::SIGSTOP);
                until(|| Ok(procfs::state(pid)? == 'T'))?;
            }
            // One that is not stopped yet may start another.
            Way::Trace => loop {
                let mut new = threads(pid)?;
                new.retain(|thread| !kept.threads.contains(thread));
                if new.is_empty() {
                    break;
                }
                for thread in new {
                    kept.trace(thread)?;
                }
            },
            Way::FreezeV2 => {
                fs::create_dir_all(BOX_V2).map_err(|error| format!("creating {BOX_V2}: {error}"))?;
                sysfs::write(format!("{BOX_V2}/cgroup.procs"), &pid.to_string())?;
                sysfs::write(format!("{BOX_V2}/cgroup.freeze"), "1")?;
                until(|| Ok(sysfs::read(format!("{BOX_V2}/cgroup.events"))?.contains("frozen 1")))?;
            }
            Way::FreezeV1 => {
                mount_freezer()?;
                let group = format!("{FREEZER}/frozen");
                fs::create_dir_all(&group).map_err(|error| format!("creating {group}: {error}"))?;
                sysfs::write(format!("{group}/cgroup.procs"), &pid.to_string())?;
                sysfs::write(format!("{group}/freezer.state"), "FROZEN")?;
                until(|| Ok(sysfs::read(format!("{group}/freezer.state"))? == "FROZEN"))?;
            }
            Way::Wait => until(|| Ok(procfs::state(pid)? == 'D'))?,
        }
        Ok(kept)
    }

    /// Becomes the debugger of a thread, and stops it.
    fn trace(&mut self, thread: i32) -> Result<(), Stop> {
        let failed = |what: &str| Stop::fail(format!("{what} {thread}: {}", std::io::Error::last_os_error()));
        // SAFETY: these requests take no pointers, and a status may be left out.
        unsafe {
            if libc::ptrace(libc::PTRACE_SEIZE, thread, 0, 0) != 0 {
                return Err(failed("tracing thread"));
            }
            self.threads.push(thread);
            if libc::ptrace(libc::PTRACE_INTERRUPT, thread, 0, 0) != 0 {
                return Err(failed("stopping thread"));
            }
            if libc::waitpid(thread, std::ptr::null_mut(), libc::__WALL) != thread {
                return Err(failed("waiting for thread"));
            }
        }
        Ok(())
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        match self.way {
            Way::Stop => signal(self.pid, libc::SIGCONT),
            Way::Trace => {
                for thread in &self.threads {
                    // SAFETY: takes no pointers.
                    unsafe { libc::ptrace(libc::PTRACE_DETACH, *thread, 0, 0) };
                }
            }
            Way::FreezeV2 => {
                let _ = sysfs::write(format!("{BOX_V2}/cgroup.freeze"), "0");
            }
            Way::FreezeV1 => {
                let _ = sysfs::write(format!("{FREEZER}/frozen/freezer.state"), "THAWED");
            }
            Way::Wait => {}
        }
    }
}

/// The freezer of cgroup v1 can be mounted beside cgroup v2: there it is no controller.
fn mount_freezer() -> Result<(), Stop> {
    fs::create_dir_all(FREEZER).map_err(|error| format!("creating {FREEZER}: {error}"))?;
    if fs::exists(format!("{FREEZER}/cgroup.procs")).unwrap_or(false) {
        return Ok(());
    }
    let target = CString::new(FREEZER).expect("no zero is in it");
    // SAFETY: all strings live through the call.
    match unsafe {
        libc::mount(c"freezer".as_ptr(), target.as_ptr(), c"cgroup".as_ptr(), 0, c"freezer".as_ptr().cast())
    } {
        0 => Ok(()),
        _ => {
            Err(Stop::fail(format!("mounting the freezer of cgroup v1: {}", std::io::Error::last_os_error())))
        }
    }
}

fn threads(pid: i32) -> Result<Vec<i32>, String> {
    let path = format!("/proc/{pid}/task");
    let entries = fs::read_dir(&path).map_err(|error| format!("reading {path}: {error}"))?;
    Ok(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

fn signal(pid: i32, signal: i32) {
    // SAFETY: the process is ours and was not waited for.
    unsafe { libc::kill(pid, signal) };
}

fn until(is: impl Fn() -> Result<bool, String>) -> Result<(), Stop> {
    let end = Instant::now() + PATIENCE;
    while !is()? {
        if Instant::now() > end {
            return Err(Stop::fail("a process could not be kept from running"));
        }
        sleep(Duration::from_millis(10));
    }
    Ok(())
}
