//! A container whose processes share memory, as the subject of remote-after-pin: pages that are moved for one are moved for all.

use super::super::fit::memory_room;
use super::super::guards::{self, Placed, UseElsewhere};
use super::super::rule::{Seen, Unmet};
use super::super::text::{bytes, nodes, pct_with_error, sentence};
use super::super::view::{SubjectRef, View, cpus_of_files, mems_of_files};
use super::super::{Advice, Check, Command, Confidence, Severity, Subject, cores, env};
use super::remote_after_pin::{Facts, RISK_OF_MOVE, gain_of_memory, stayed_behind};
use crate::metric::placement::CONTAINER_REMOTE_PCT;
use crate::model::sample::CgroupMode;
use crate::model::units::NodeId;
use crate::snapshot::{Container, Task};

/// Maximum lines for processes; each moves its own part.
const LINES: usize = 8;

/// Share of its memory that a process must share so that its container is the subject, in percent.
const SHARED_PCT: f64 = 20.0;

/// Nodes of its assigned CPUs, if these are not all of the machine, and its allowed memory nodes.
fn pinned_to(view: &View<'_>, row: &Container) -> Option<(Vec<NodeId>, Vec<NodeId>)> {
    let files = row.raw.as_deref()?;
    let home: Vec<NodeId> = view.nodes_of_cpus(&cpus_of_files(files)?).into_iter().collect();
    let whole = view.whole_nodes();
    let some = !home.is_empty() && home.iter().all(|node| whole.contains(node)) && home.len() < whole.len();
    some.then_some((home, mems_of_files(files)?))
}

/// Whether the container that a group is in is the subject in its place.
pub(super) fn speaks_for(view: &View<'_>, of: &SubjectRef<'_>) -> bool {
    let row = view.container_of(of).filter(|_| matches!(of, SubjectRef::Group(..)));
    row.is_some_and(|row| cores::is_container(&SubjectRef::Container(row)) && pinned_to(view, row).is_some())
}

/// Memory of the container: that of its processes counts shared pages once for each, its own files count them once.
fn memory(row: &Container, placed: &Placed) -> Option<f64> {
    let charged = *row.raw.as_deref()?.mem_bytes.as_ref().ok()? as f64;
    Some(placed.memory().min(charged))
}

pub(super) fn look(view: &View<'_>, of: &SubjectRef<'_>, row: &Container) -> Result<Seen<Facts>, Unmet> {
    if !cores::is_container(of) {
        return Err(Unmet::Quiet);
    }
    let Some((home, mems)) = pinned_to(view, row) else { return Err(Unmet::Quiet) };
    let members = view.members(row.id);
    // Processes with memory of their own are subjects themselves.
    let shares = |task: &&Task| guards::shared_pct(task).is_some_and(|pct| pct >= SHARED_PCT);
    if members.iter().filter(|task| shares(task)).count() < 2 || !home.iter().any(|node| mems.contains(node))
    {
        return Err(Unmet::Quiet);
    }
    let placed = guards::placed(view, of)?;
    let whole = view.whole_nodes();
    let from: Vec<NodeId> = placed.sources(&home).into_iter().filter(|node| whole.contains(node)).collect();
    let behind = placed.memory_pct(&from);
    if placed.run_pct(&home) < view.limit("home")
        || behind < view.limit("outside")
        || !guards::is_large(view, &placed)
        || members.iter().any(|task| !task.raw.mempolicy.is_default())
    {
        return Err(Unmet::Quiet);
    }
    let Some(memory) = memory(row, &placed) else { return Err(Unmet::Quiet) };
    let away = memory * behind / 100.0;
    let room = memory_room(view, &home);
    if away > room || guards::is_moving(view, of, &placed) {
        return Err(Unmet::Quiet);
    }
    let scans: Vec<UseElsewhere> =
        members.iter().map(|task| guards::use_elsewhere(view, &SubjectRef::Process(task), &placed)).collect();
    if scans.contains(&UseElsewhere::Cold) && !scans.contains(&UseElsewhere::NotCold) {
        return Err(guards::cold());
    }
    let sure = behind - placed.error >= view.limit("outside") && scans.contains(&UseElsewhere::NotCold);
    Ok(Seen {
        severity: Severity::Warning,
        confidence: if sure { Confidence::Estimated } else { Confidence::Suspected },
        evidence: stayed_behind(view, of, &placed, &home, (&from, behind), (room, away)),
        facts: Facts { to: home, from, bytes: away, behind },
    })
}

pub(super) fn advise(view: &View<'_>, of: &SubjectRef<'_>, row: &Container, seen: &Seen<Facts>) -> Advice {
    let Ok(placed) = guards::placed(view, of) else { return Advice::default() };
    let Facts { to, from, behind, .. } = &seen.facts;
    let lists = row.raw.as_deref().and_then(|files| Some((cpus_of_files(files)?, mems_of_files(files)?)));
    let unified = view.snapshot.host.cgroups.map(|cgroups| cgroups.mode == CgroupMode::V2);
    let (environment, pid) = (view.env(of), cores::pid(view, of));
    let words = format!("moves {} to {} in total", bytes(seen.facts.bytes), nodes(to));
    let follows = env::memory_follows(&environment, unified);
    let mut commands: Vec<Command> = Vec::new();
    let mut undo: Vec<Command> = Vec::new();
    if let Some((cpus, mems)) = lists.as_ref().filter(|_| follows) {
        commands = env::bind(&environment, cpus, to, pid, unified);
        undo = env::at_once(env::bind(&environment, cpus, mems, pid, unified));
    } else {
        let each = view.members(row.id).into_iter().take(LINES);
        commands
            .extend(each.clone().filter_map(|task| env::move_memory(task.raw.pid, from, to, words.clone())));
        let back = "also moves memory that was on these nodes before; not strictly needed";
        undo.extend(each.filter_map(|task| env::move_memory(task.raw.pid, to, from, back)));
    }
    let remote = CONTAINER_REMOTE_PCT.read(row, view.window).ok().and_then(|value| value.number());
    Advice {
        sentence: sentence(format!(
            "{} can run only on {}, but {} of the memory of its processes is on {}.",
            view.identity(of).label,
            nodes(to),
            pct_with_error(*behind, placed.error),
            nodes(from)
        )),
        gain: gain_of_memory(view, of, &placed, to),
        commands,
        undo,
        check: remote
            .map(|from| Check {
                metric: CONTAINER_REMOTE_PCT.id,
                of: of.subject(),
                from,
                to: (2.0 * placed.error).max(5.0),
                below: true,
                within_s: 60.0,
            })
            .into_iter()
            .collect(),
        stop: super::watermark_stop(view, &Subject::Node(to[0])),
        risk: format!("The group stalls while its memory moves. {RISK_OF_MOVE}"),
        or_else: vec![
            "If other groups also use that memory, mem_bytes_by_node shows little of it for them: shared \
             memory is charged to the group that touched it first."
                .to_owned(),
        ],
    }
}
