//! A process that may run everywhere, runs on node 0, and has its memory on node 1: `memory-on-other-node`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use vmtests_protocol::Plan;

use super::super::{Case, Stop, all_cpus};
use super::{LIVES, Loop, SLACK, memory_is_on, shell, unbalanced, undo};
use crate::procfs;
use crate::report::Report;
use crate::sysfs;
use crate::work::Work;

pub const CASE: Case = Case {
    name: "findings_other_node",
    about: "a process without limits runs on node 0 and its memory is on node 1: the finding comes, its command brings the memory, \
            the finding ends, and the way back takes the memory away again",
    run,
};

/// The time that the rule's condition must hold.
const HELD: Duration = Duration::from_secs(60);
const MIB: &str = "96";

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    let (_balancing, mut watch) = unbalanced(plan)?;
    let work = Work::start_now("numa_truth", &["free:1", "0,100", MIB, "touched", "uniform"])?;
    let pid = work.pid();
    let stays = Stays::on_node(0, pid, all_cpus(plan))?;
    let finding = Loop { held: HELD, ..Loop::of("memory-on-other-node") }.close(
        report,
        &mut watch,
        LIVES + HELD + SLACK,
    );
    let row = watch.process(pid);
    report.say(format_args!(
        "at the end it ran by node {}, remote {}",
        row["run_pct_by_node"], row["remote_pct"]
    ));
    let finding = finding?;
    memory_is_on(0, report, pid, "after the command")?;
    undo(report, &finding)?;
    memory_is_on(1, report, pid, "after the way back")?;
    stays.stop()?;
    watch.stop()?;
    work.stop()?;
    Ok(())
}

/// A process that stays on a node although it may run everywhere. It is sent back whenever the scheduler
/// moved it, as 6.1 does with a thread that is alone on its CPU.
pub(super) struct Stays {
    end: Arc<AtomicBool>,
    thread: JoinHandle<Result<(), String>>,
}

impl Stays {
    pub(super) fn on_node(node: u32, pid: i32, all: Vec<u32>) -> Result<Stays, Stop> {
        Stays::following(&[node], Duration::MAX, pid, Some(all))
    }

    /// Bound to one node after the other, each for this time: a thread that may run everywhere goes back to its memory.
    pub(super) fn by_turns(nodes: &[u32], turn: Duration, pid: i32) -> Result<Stays, Stop> {
        Stays::following(nodes, turn, pid, None)
    }

    fn following(nodes: &[u32], turn: Duration, pid: i32, all: Option<Vec<u32>>) -> Result<Stays, Stop> {
        let homes = nodes.iter().map(|node| sysfs::node_cpus(*node)).collect::<Result<Vec<_>, _>>()?;
        let began = Instant::now();
        let end = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let end = Arc::clone(&end);
            move || {
                while !end.load(Relaxed) {
                    let turns = began.elapsed().as_millis() / turn.as_millis();
                    let home = &homes[turns as usize % homes.len()];
                    if procfs::running_on(pid)?.iter().any(|cpu| !home.contains(cpu)) {
                        shell::pin_all(pid, home)?;
                        if let Some(all) = &all {
                            shell::pin_all(pid, all)?;
                        }
                    }
                    thread::sleep(Duration::from_millis(200));
                }
                Ok(())
            }
        });
        Ok(Stays { end, thread })
    }

    pub(super) fn stop(self) -> Result<(), Stop> {
        self.end.store(true, Relaxed);
        let done = self.thread.join();
        Ok(done.map_err(|_| "the thread that keeps the process on its node panicked".to_owned())??)
    }
}
