//! The move of memory of a process, or of processes that share it: its gain, its commands, and their undo.

use super::fit::remote_cost;
use super::gain::{self, Gain};
use super::guards::{self, Elsewhere, Placed};
use super::view::{SubjectRef, View, process};
use super::{Command, Scope, Subject, When, env, text};
use crate::metric::task::STALL_BACKEND_PCT;
use crate::model::units::NodeId;
use crate::snapshot::{ProcessGroup, Task};

/// The share of shared memory that the lines must reach, and the maximum number of lines. migratepages moves
/// the pages in the page tables of the named process.
const REACHED: f64 = 0.95;
const LINES_MAX: usize = 8;

/// Members of a group by the shared memory in their page tables, the largest first, until they reach nearly
/// all shared memory.
fn owners<'a>(view: &View<'a>, group: &ProcessGroup) -> Vec<&'a Task> {
    let shared = |task: &Task| task.resident.map_or(0, |resident| resident.shmem_bytes);
    let mut members: Vec<&Task> = group.members.iter().map(|at| &view.snapshot.tasks[*at]).collect();
    members.sort_by_key(|task| (std::cmp::Reverse(shared(task)), task.raw.pid));
    let most = members.first().map_or(0, |task| shared(task));
    let reaches = most as f64 >= REACHED * group.object_bytes() as f64;
    members.truncate(if reaches { 1 } else { LINES_MAX });
    members
}

/// Memory placed elsewhere by its policy from which on a line cannot move everything, in percent.
const STAYS_PCT: f64 = 5.0;

/// The gain of bringing the mean cost of its accesses from `now` to `then`, in local ones.
pub fn gain_by_cost(view: &View<'_>, of: &SubjectRef<'_>, now: f64, then: f64) -> Gain {
    gain::placement(view.cpus(of), now, then, waits(view, of), gain::distances(view.topology()))
}

/// The gain of bringing its memory to one node, if its accesses are known: the part `stays` of the remote
/// ones, 0 to 1, stays remote.
pub fn gain_by_accesses(view: &View<'_>, of: &SubjectRef<'_>, placed: &Placed, stays: f64) -> Option<Gain> {
    let (remote, _) = guards::remote_accesses(view, of)?;
    let (far, costs) = (remote_cost(view, placed), gain::distances(view.topology()));
    Some(gain::accesses(view.cpus(of), far, (remote / 100.0, stays), waits(view, of), costs))
}

/// The counted share of time that waits, 0 to 1.
fn waits(view: &View<'_>, of: &SubjectRef<'_>) -> Option<f64> {
    view.number(&STALL_BACKEND_PCT, of).ok().map(|pct| pct / 100.0)
}

/// Commands that move memory of the subject between nodes, and commands that undo the move. Both are empty where policies keep
/// 5 % or more of the memory in place.
pub fn all(
    view: &View<'_>,
    of: &SubjectRef<'_>,
    placed: &Placed,
    (from, to): (&[NodeId], &[NodeId]),
    elsewhere: Option<Elsewhere>,
    words: &str,
) -> (Vec<Command>, Vec<Command>) {
    if elsewhere.is_some_and(|elsewhere| elsewhere.meant >= STAYS_PCT) {
        return (Vec::new(), Vec::new());
    }
    (there(view, of, from, to, words), back(view, of, placed, to, from))
}

/// Lines that move memory of the subject from nodes to others; `words` say how much moves.
pub fn there(
    view: &View<'_>,
    of: &SubjectRef<'_>,
    from: &[NodeId],
    to: &[NodeId],
    words: &str,
) -> Vec<Command> {
    let pids = match of {
        SubjectRef::Process(task) => vec![task.raw.pid],
        SubjectRef::Group(_, group) => owners(view, group).iter().map(|task| task.raw.pid).collect(),
        _ => Vec::new(),
    };
    let line = |(at, pid): (usize, u32)| {
        let words = match (at, of) {
            (0, SubjectRef::Group(..)) => {
                format!("{words}; run as root: otherwise pages that other processes also map do not move")
            }
            (0, _) => words.to_owned(),
            _ => "moves only memory that is not shared".to_owned(),
        };
        env::move_memory(pid, from, to, words)
    };
    pids.into_iter().enumerate().filter_map(line).collect()
}

/// Commands that undo [`there`].
fn back(
    view: &View<'_>,
    of: &SubjectRef<'_>,
    placed: &Placed,
    to: &[NodeId],
    from: &[NodeId],
) -> Vec<Command> {
    match of {
        SubjectRef::Process(task) => vec![env::move_back(task.raw.pid, placed, to, from)],
        SubjectRef::Group(_, group) => {
            let pids = owners(view, group).into_iter().map(|task| task.raw.pid);
            let mut undo: Vec<Command> =
                pids.map(|pid| env::move_back_shared(pid, placed, to, from)).collect();
            // Without lines one sentence is enough.
            undo.dedup();
            undo
        }
        _ => Vec::new(),
    }
}

/// The subject at the beginning of a sentence with its verb, and whose its memory is: `postgres runs`, `its`.
pub fn who_runs(view: &View<'_>, of: &SubjectRef<'_>) -> (String, &'static str) {
    match of {
        SubjectRef::Process(task) => (format!("{} runs", text::comm(task.raw.comm)), "its"),
        _ => (format!("{}, run", view.identity(of).label), "their"),
    }
}

/// The process whose share of remote accesses shows whether the memory came: itself, or the busiest of the
/// group.
pub fn witness<'a>(view: &View<'a>, of: &SubjectRef<'a>) -> Option<(Subject, &'a Task)> {
    let task = match of {
        SubjectRef::Process(task) => task,
        SubjectRef::Group(_, group) => {
            let members = group.members.iter().map(|at| &view.snapshot.tasks[*at]);
            members.max_by_key(|task| (task.run_ns(), std::cmp::Reverse(task.raw.pid)))?
        }
        _ => return None,
    };
    Some((process(&task.raw), task))
}

/// A sentence if further processes use the shared memory of a group, too.
pub fn other_users(of: &SubjectRef<'_>) -> Option<String> {
    let SubjectRef::Group(_, group) = of else { return None };
    let words =
        "Other processes also map this memory and may use it on its present node; they were not examined.";
    group.has_unknown_users.then(|| words.to_owned())
}

/// Words for the next start, so that it does not come to this again.
pub fn next_start(to: &[NodeId]) -> Command {
    let words = format!("numactl --cpunodebind={} {}", super::command::node_list(to), env::preferred(to));
    Command::words(When::NextStart, Scope::Process, words)
}
