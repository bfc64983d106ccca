//! A process that runs now on this node and now on the other, with its memory on both: `spread-over-nodes`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use vmtests_protocol::Plan;

use super::super::{Case, Stop, all_cpus};
use super::{LIVES, Loop, SLACK, shell, unbalanced, undo};
use crate::procfs;
use crate::report::Report;
use crate::sysfs::{self, show_list};
use crate::work::Work;

pub const CASE: Case = Case {
    name: "findings_spread",
    about: "a process runs on both nodes in turns and has its memory on both: the finding comes, its commands bring all of it to one, \
            the finding ends, and the way back lets it run everywhere",
    run,
};

/// The time that the rule's condition must hold.
const HELD: Duration = Duration::from_secs(30);
const TURN: Duration = Duration::from_millis(500);
const MIB: &str = "96";

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    let (_balancing, mut watch) = unbalanced(plan)?;
    let work = Work::start_now("numa_truth", &["free:1", "50,50", MIB, "touched", "uniform"])?;
    let (pid, all) = (work.pid(), all_cpus(plan));
    let end = Arc::new(AtomicBool::new(false));
    // As a scheduler that sends it to and fro, but only as long as it may run everywhere.
    let moves = thread::spawn({
        let (end, all) = (Arc::clone(&end), all.clone());
        let nodes = [sysfs::node_cpus(0)?, sysfs::node_cpus(1)?];
        move || -> Result<(), String> {
            for cpus in nodes.iter().cycle().take_while(|_| !end.load(Relaxed)) {
                if procfs::cpus_allowed(pid)? == all {
                    shell::pin_all(pid, cpus)?;
                    shell::pin_all(pid, &all)?;
                }
                thread::sleep(TURN);
            }
            Ok(())
        }
    });
    let expected = Loop { held: HELD, ..Loop::of("spread-over-nodes") };
    let closed = expected.close(report, &mut watch, LIVES + HELD + SLACK + SLACK);
    let row = watch.process(pid);
    report.say(format_args!(
        "at the end it ran by node {}, remote {}",
        row["run_pct_by_node"], row["remote_pct"]
    ));
    let finding = closed?;
    let moved = procfs::cpus_allowed(pid)?;
    let homes = [sysfs::node_cpus(0)?, sysfs::node_cpus(1)?];
    let home = homes.iter().position(|cpus| *cpus == moved);
    report.check(home.is_some(), "CPUs after the commands", "those of one node", show_list(&moved));
    if let Some(home) = home {
        super::memory_is_on(home as u32, report, pid, "after the commands")?;
    }
    undo(report, &finding)?;
    report.equal("CPUs after the way back", show_list(&all), show_list(&procfs::cpus_allowed(pid)?));
    end.store(true, Relaxed);
    moves.join().map_err(|_| "the thread that moves the process panicked".to_owned())??;
    watch.stop()?;
    work.stop()?;
    Ok(())
}
