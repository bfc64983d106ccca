//! Subjects that are bound to one node wait for its CPUs while another node idles.

use std::collections::BTreeMap;
use std::iter;

use super::super::fit::{cpu_room, fits};
use super::super::rule::{Condition, Group, Hold, Limit, Rule, Seen, Unmet};
use super::super::text::{bytes, pct, sentence};
use super::super::view::{SubjectRef, View, cpus_of_files, mems_of_files, need, process};
use super::super::{
    Advice, Check, Command, Confidence, Kind, Note, Scope, Severity, Subject, When, env, gain, guards,
};
use super::remote_after_pin::RISK_OF_MOVE;
use super::waiting;
use crate::metric::node::CPU_PCT;
use crate::metric::task::RUNQ_WAIT_PCT;
use crate::model::counters::Counter;
use crate::model::group::Kind as GroupKind;
use crate::model::sample::CgroupMode;
use crate::model::units::NodeId;
use crate::snapshot::Task;

/// CPUs from which on a subject counts as one that is bound: the threshold of significance of all rules (S2).
const MATTERS_CPUS: f64 = 0.5;

pub(super) static RULE: Rule = Rule {
    id: "lopsided-nodes",
    title: "A node is full, another one idles",
    about: "A node is full and tasks wait for its CPUs while another node idles. Several processes or containers are \
            bound to the full node, and one of them fits on the other.",
    not_when: &[
        ("isolated", "the CPUs of the other node are isolated"),
        ("reserved", "half of the other node's CPUs belong to a cpuset that has none of the full node"),
        ("unbound", "nothing is bound to the full node: the scheduler could move it"),
        ("one-subject", "only one process or container is bound to it"),
        (
            "no-smt-room",
            "none of them fits on the other node (a second thread of a core counts as 0.2 of a core)",
        ),
        ("throttled", "quotas explain the waits"),
    ],
    of: &[Kind::Node],
    group: Group::Neighbours,
    gravest: Severity::Warning,
    needs: &[RUNQ_WAIT_PCT.id],
    hold: Hold::s(60.0),
    limits: &[
        Limit::until("busy", 85.0, 75.0, "[S2]: numad fills nodes to 85 %"),
        Limit::until("idle", 30.0, 40.0, "reasoned: leaves room for the process that moves"),
        Limit::least("wait", 10.0, "reasoned: a tenth of the node's busy time"),
    ],
    idle_too: true,
    judge: &Condition { look, advise },
};

/// A process, or the container that it is in, that is bound to a node.
#[derive(Default)]
struct Bound<'a> {
    cpus: f64,
    /// The process, where it is in no container.
    task: Option<&'a Task>,
}

/// Waits for CPUs of a node in the last interval, in CPUs, without those that quotas explain. Also the part
/// of subjects bound to this node alone, and these subjects.
fn waits<'a>(view: &View<'a>, node: NodeId) -> (f64, BTreeMap<Subject, Bound<'a>>) {
    let now = waiting::now(view);
    let length = now.over_ns().max(1) as f64;
    let (mut wait, mut bound) = (0.0, BTreeMap::<Subject, Bound<'_>>::new());
    for task in view.candidates().filter(|task| node.0 < 64 && task.cpu_nodes == Some(1 << node.0)) {
        let of = SubjectRef::Process(task);
        wait += task.delta[Counter::RunDelayNs] as f64 / length * (1.0 - task.waits.throttled);
        let container = now.group_of(&of).is_some_and(|group| group.kind != GroupKind::Group);
        let row = now.container_of(&of).filter(|_| container);
        let (subject, task) = match row {
            Some(row) => (Subject::Container(row.id), None),
            None => (process(&task.raw), Some(task)),
        };
        let entry = bound.entry(subject).or_default();
        entry.cpus += now.cpus(&of);
        entry.task = task;
    }
    bound.retain(|_, bound| bound.cpus >= MATTERS_CPUS);
    (wait, bound)
}

/// The subject in the last interval.
fn of_subject<'a>(view: &View<'a>, subject: &Subject, task: Option<&'a Task>) -> Option<SubjectRef<'a>> {
    match (subject, task) {
        (_, Some(task)) => Some(SubjectRef::Process(task)),
        (Subject::Container(id), _) => {
            Some(SubjectRef::Container(&view.snapshot.containers[*view.rows.containers.get(id)?]))
        }
        (Subject::Process(..), _) => {
            Some(SubjectRef::Process(&view.snapshot.tasks[*view.rows.processes.get(subject)?]))
        }
        _ => None,
    }
}

/// Whether half of these CPUs or more belong to a group that may use none of the others.
fn is_reserved(view: &View<'_>, cpus: &[u32], others: &[u32]) -> bool {
    let lists = view.snapshot.containers.iter().filter_map(|row| cpus_of_files(row.raw.as_deref()?));
    let exclusive = lists.filter(|list| !list.iter().any(|cpu| others.contains(cpu)));
    let taken: std::collections::BTreeSet<u32> =
        exclusive.flatten().filter(|cpu| cpus.contains(cpu)).collect();
    taken.len() * 2 >= cpus.len()
}

/// The busy node, the idle one, and what could go there.
struct Facts {
    /// The busy node.
    node: NodeId,
    /// Its busy share, percent.
    busy: f64,
    /// The idle node.
    other: NodeId,
    /// The busy share of that node, percent.
    load: f64,
    /// CPUs there that are free.
    cpus: Vec<u32>,
    /// The process or container to move.
    mover: Subject,
    /// Its memory that would move, bytes.
    bytes: f64,
}

fn look(view: &View<'_>, of: &SubjectRef<'_>) -> Result<Seen<Facts>, Unmet> {
    let SubjectRef::Node(row) = of else { return Err(Unmet::Quiet) };
    let node = NodeId(row.raw.id);
    if !view.whole_nodes().contains(&node) {
        return Err(Unmet::Quiet);
    }
    let busy = need(view.node_number(&CPU_PCT, row))?;
    // Cheap first: the idlest node is found from all CPUs.
    if busy < view.limit("busy") {
        return Err(Unmet::Quiet);
    }
    let Some((other, load, _)) = waiting::idlest_node(view, node) else { return Err(Unmet::Quiet) };
    if load > view.limit("idle") {
        return Err(Unmet::Quiet);
    }
    let (wait, bound) = waits(view, node);
    let cores = busy / 100.0 * f64::from(row.cpus);
    if bound.len() < 2 || wait * 100.0 < cores * view.limit("wait") {
        return Err(Unmet::Quiet);
    }
    if is_reserved(view, &waiting::free_cpus(view, other), &view.cpus_of_nodes(&[node])) {
        return Err(Unmet::Quiet);
    }
    let now = waiting::now(view);
    // The option that moves the fewest bytes, among those that fit.
    let mut best: Option<(f64, Subject, f64)> = None;
    let mut unknown = 0;
    for (subject, bound) in &bound {
        let Some(of) = of_subject(view, subject, bound.task) else { continue };
        let Ok(placed) = guards::placed(&now, &of) else {
            unknown += 1;
            continue;
        };
        let policy = now.processes_of(&of).iter().all(|task| task.raw.mempolicy.is_default());
        let moves = placed.outside(&[other]);
        if policy
            && fits(&now, &of, &placed, &[other])
            && best.as_ref().is_none_or(|(least, ..)| moves < *least)
        {
            best = Some((moves, subject.clone(), bound.cpus));
        }
    }
    let Some((moves, mover, uses)) = best else {
        return match unknown {
            0 => Err(Unmet::Quiet),
            _ => Err(waiting::unknown("the memory of processes bound to the node is not located")),
        };
    };
    Ok(Seen {
        severity: Severity::Warning,
        confidence: Confidence::Estimated,
        evidence: vec![
            view.evidence(CPU_PCT.id, of.subject(), busy).limit(view.limit("busy")),
            view.evidence(CPU_PCT.id, Subject::Node(other), load)
                .limit(view.limit("idle"))
                .note(Note::AtMost),
            super::super::Evidence {
                over_ns: now.over_ns(),
                ..view
                    .evidence("cpu_pct", mover.clone(), uses * 100.0)
                    .limit(cpu_room(&now, &SubjectRef::Host, &[other]) * 100.0)
                    .note(Note::Room)
            },
        ],
        facts: Facts { node, busy, other, load, cpus: waiting::free_cpus(view, other), mover, bytes: moves },
    })
}

fn advise(view: &View<'_>, of: &SubjectRef<'_>, seen: &Seen<Facts>) -> Advice {
    let SubjectRef::Node(row) = of else { return Advice::default() };
    let Facts { node, busy, other, load, cpus, mover, .. } = &seen.facts;
    let (node, busy, other, load) = (*node, *busy, *other, *load);
    let Some(moves) = of_subject(view, mover, None) else { return Advice::default() };
    let (wait, bound) = waits(view, node);
    let idle = waiting::busy(view, cpus).map_or(0.0, |(_, idle)| idle);
    let label = view.identity(&moves).label;
    let unified = view.snapshot.host.cgroups.map(|cgroups| cgroups.mode == CgroupMode::V2);
    let environment = view.env(&moves);
    let processes = view.processes_of(&moves);
    let pid = processes.first().map(|task| task.raw.pid);
    let mut commands: Vec<Command> = env::bind(&environment, cpus, &[other], pid, unified);
    // One line each, at most eight.
    let each = |from: NodeId, to: NodeId, words: String| {
        let lines = processes.iter().take(8);
        lines.filter_map(move |task| env::move_memory(task.raw.pid, &[from], &[to], &words))
    };
    if !env::memory_follows(&environment, unified) {
        commands.extend(each(node, other, format!("moves {} to node {other}", bytes(seen.facts.bytes))));
    }
    let lists = view.files_of(&moves).and_then(|files| cpus_of_files(files).zip(mems_of_files(files)));
    let mut undo = match lists {
        Some((cpus, mems)) => env::at_once(env::bind(&environment, &cpus, &mems, pid, unified)),
        // The list of CPUs of a process is not in samples.
        None => vec![Command::words(
            When::Now,
            Scope::Process,
            "bind it to its former CPUs: note the output of taskset -acp before",
        )],
    };
    // Its own nodes may hold both: memory comes back with neither list.
    undo.extend(each(other, node, format!("moves its memory back to node {node}")));
    let capacity = busy / 100.0 * f64::from(row.cpus);
    Advice {
        sentence: sentence(format!(
            "Node {node} is {} busy and tasks wait; node {other} is {} busy. {} subjects are bound to node {node}; {label} \
             fits on node {other}.",
            pct(busy),
            pct(load),
            bound.len()
        )),
        gain: gain::waiting(capacity, wait, idle),
        commands,
        undo,
        check: vec![Check {
            metric: CPU_PCT.id,
            of: of.subject(),
            from: busy,
            to: 85.0,
            below: true,
            within_s: 60.0,
        }],
        stop: super::watermark_stop(view, &Subject::Node(other)),
        risk: format!("Node {other} has less room for others. {RISK_OF_MOVE}"),
        or_else: iter::once(format!(
            "Node {other} is kept free for maintenance or for peaks: its cpu_pct is {} now.",
            pct(load)
        ))
        .chain(view.or_else_scheduler())
        .collect(),
    }
}
