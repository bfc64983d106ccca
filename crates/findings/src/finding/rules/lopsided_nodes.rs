//! Subjects that are bound to one node, or to a socket where nodes are hidden, wait for its CPUs while another one idles.

use std::collections::BTreeMap;
use std::iter;

use super::super::fit::{cpu_room_in, fits, works_in};
use super::super::rule::{Condition, Group, Hold, Limit, Rule, Seen, Unmet};
use super::super::text::{bytes, pct, sentence};
use super::super::view::{SubjectRef, View, cpus_of_files, mems_of_files, need, process};
use super::super::{
    Advice, Check, Command, Confidence, Note, Scope, Severity, Subject, SubjectKind, When, env, gain, guards,
};
use super::remote_after_pin::RISK_OF_MOVE;
use super::waiting;
use crate::finding::cores::Region;
use crate::metric::cpu_set;
use crate::metric::node::CPU_PCT;
use crate::metric::task::RUNQ_WAIT_PCT;
use crate::model::counters::Counter;
use crate::model::group::GroupKind;
use crate::model::sample::CgroupMode;
use crate::model::units::NodeId;
use crate::snapshot::Task;

/// CPUs from which on a subject counts as one that is bound: the threshold of significance of all rules (S2).
const MATTERS_CPUS: f64 = 0.5;

pub(super) static RULE: Rule = Rule {
    id: "lopsided-nodes",
    title: "A node is full, another one is idle",
    about: "A node is full and tasks wait for its CPUs while another node is idle. Several processes or containers \
            are bound to the full node, and one of them fits on the other. Where nodes are hidden, sockets are \
            compared.",
    not_when: &[
        ("isolated", "the CPUs of the other node are isolated"),
        ("reserved", "half of the other node's CPUs belong to a cpuset that has no CPU of the full node"),
        ("unbound", "nothing is bound to the full node: the scheduler can move tasks"),
        ("one-subject", "only one process or container is bound to the full node"),
        (
            "no-smt-room",
            "none of the bound processes or containers fits on the other node (a second thread of a core \
             counts as 0.2 cores)",
        ),
        ("throttled", "CPU quotas explain the waits"),
    ],
    of: &[SubjectKind::Node, SubjectKind::Socket],
    group: Group::Neighbours,
    gravest: Severity::Warning,
    needs: &[RUNQ_WAIT_PCT.id],
    hold: Hold::s(60.0),
    limits: &[
        Limit::until("busy", 85.0, 75.0, "[S2]: numad fills nodes to 85 %"),
        Limit::until("idle", 30.0, 40.0, "estimate: leaves room for the process that moves"),
        Limit::least("wait", 10.0, "estimate: 10 % of the node's busy time"),
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

/// Subjects that are bound to a region.
#[derive(Default)]
struct Waits<'a> {
    /// Waits for CPUs in the last interval, in CPUs; waits due to quotas are excluded.
    cpus: f64,
    bound: BTreeMap<Subject, Bound<'a>>,
    /// Processes that use half a CPU or more and are restricted to CPUs whose list is not known.
    unknown: usize,
}

fn waits<'a>(view: &View<'a>, region: Region) -> Waits<'a> {
    let now = waiting::now(view);
    let length = now.over_ns().max(1) as f64;
    let mut waits = Waits::default();
    let (wait, bound) = (&mut waits.cpus, &mut waits.bound);
    for task in view.candidates() {
        match view.is_bound_to(task, region) {
            Some(true) => {}
            Some(false) => continue,
            None => {
                waits.unknown += usize::from(now.cpus(&SubjectRef::Process(task)) >= MATTERS_CPUS);
                continue;
            }
        }
        let of = SubjectRef::Process(task);
        *wait += task.delta[Counter::RunDelayNs] as f64 / length * (1.0 - task.waits.throttled);
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
    waits
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

/// The busy region, the idle one, and what could go there.
struct Facts {
    /// The busy one.
    full: Region,
    /// Its busy share, percent.
    busy: f64,
    /// The idle one.
    other: Region,
    /// The busy share of that, percent.
    load: f64,
    /// CPUs there that are free.
    cpus: Vec<u32>,
    /// The process or container to move.
    mover: Subject,
    /// Its memory that would move, bytes; 0 where nodes are hidden.
    bytes: f64,
}

fn look(view: &View<'_>, of: &SubjectRef<'_>) -> Result<Seen<Facts>, Unmet> {
    let Some(full) = Region::of(of).filter(|region| view.regions().contains(region)) else {
        return Err(Unmet::Quiet);
    };
    let (busy, cpus) = busy(view, of)?;
    // Cheap first: the idlest one is found from all CPUs.
    if busy < view.limit("busy") {
        return Err(Unmet::Quiet);
    }
    let Some((other, load, _)) = waiting::idlest(view, full) else { return Err(Unmet::Quiet) };
    if load > view.limit("idle") {
        return Err(Unmet::Quiet);
    }
    let Waits { cpus: wait, bound, unknown: unlisted } = waits(view, full);
    if bound.len() < 2 && unlisted > 0 {
        return Err(waiting::unknown("the CPUs to which processes are bound are not known"));
    }
    if bound.len() < 2 || wait * 100.0 < busy / 100.0 * cpus * view.limit("wait") {
        return Err(Unmet::Quiet);
    }
    let free = view.cpus_of(other);
    if is_reserved(view, &free, &view.cpus_of(full)) {
        return Err(Unmet::Quiet);
    }
    let now = waiting::now(view);
    // The option that moves the fewest bytes, among those that fit.
    let mut best: Option<(f64, Subject, f64)> = None;
    let mut unknown = 0;
    for (subject, bound) in &bound {
        let Some(of) = of_subject(view, subject, bound.task) else { continue };
        let Region::Node(node) = other else {
            // Memory of a hidden node stays where it is: the one with the least work.
            let used = now.cpus(&of);
            if works_in(&now, &of, other) && best.as_ref().is_none_or(|(.., least)| used < *least) {
                best = Some((0.0, subject.clone(), used));
            }
            continue;
        };
        let Ok(placed) = guards::placed(&now, &of) else {
            unknown += 1;
            continue;
        };
        let policy = now.processes_of(&of).iter().all(|task| task.raw.mempolicy.is_default());
        let moves = placed.outside(&[node]);
        if policy
            && fits(&now, &of, &placed, &[node])
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
            view.evidence(CPU_PCT.id, other.subject(), load).limit(view.limit("idle")).note(Note::AtMost),
            super::super::Evidence {
                over_ns: now.over_ns(),
                ..view
                    .evidence("cpu_pct", mover.clone(), uses * 100.0)
                    .limit(cpu_room_in(&now, &SubjectRef::Host, other) * 100.0)
                    .note(Note::Room)
            },
        ],
        facts: Facts { full, busy, other, load, cpus: free, mover, bytes: moves },
    })
}

/// The busy share of a node or a socket in percent, and the number of its CPUs.
fn busy(view: &View<'_>, of: &SubjectRef<'_>) -> Result<(f64, f64), Unmet> {
    match of {
        SubjectRef::Node(row) => Ok((need(view.node_number(&CPU_PCT, row))?, f64::from(row.cpus))),
        SubjectRef::Socket(set) => {
            Ok((need(view.set_number(&cpu_set::CPU_PCT, set))?, set.cpus.len() as f64))
        }
        _ => Err(Unmet::Quiet),
    }
}

fn advise(view: &View<'_>, of: &SubjectRef<'_>, seen: &Seen<Facts>) -> Advice {
    let Facts { full, busy: share, other, load, cpus, mover, .. } = &seen.facts;
    let (full, other, load) = (*full, *other, *load);
    let Ok((_, all)) = busy(view, of) else { return Advice::default() };
    let Some(moves) = of_subject(view, mover, None) else { return Advice::default() };
    let Waits { cpus: wait, bound, .. } = waits(view, full);
    let idle = waiting::busy(view, cpus).map_or(0.0, |(_, idle)| idle);
    let label = view.identity(&moves).label;
    let unified = view.snapshot.host.cgroups.map(|cgroups| cgroups.mode == CgroupMode::V2);
    let environment = view.env(&moves);
    let processes = view.processes_of(&moves);
    let pid = processes.first().map(|task| task.raw.pid);
    let bind = |cpus: &[u32], mems: &[NodeId]| match other {
        Region::Node(_) => env::bind(&environment, cpus, mems, pid, unified),
        Region::Socket(_) => env::bind_cpus(&environment, cpus, pid, unified),
    };
    let files = view.files_of(&moves);
    let lists = files.and_then(cpus_of_files).map(|cpus| (cpus, files.and_then(mems_of_files)));
    let mut undo = match lists {
        Some((cpus, Some(mems))) => env::at_once(bind(&cpus, &mems)),
        Some((cpus, None)) if matches!(other, Region::Socket(_)) => env::at_once(bind(&cpus, &[])),
        // The list of CPUs of a process is not in samples.
        _ => vec![Command::words(
            When::Now,
            Scope::Process,
            "bind the process to its former CPUs (before the change, save the output of taskset -acp)",
        )],
    };
    let mut commands: Vec<Command> = Vec::new();
    if let (Region::Node(from), Region::Node(to)) = (full, other) {
        // One line each, at most eight.
        let each = |from: NodeId, to: NodeId, words: String| {
            let lines = processes.iter().take(8);
            lines.filter_map(move |task| env::move_memory(task.raw.pid, &[from], &[to], &words))
        };
        commands.extend(bind(cpus, &[to]));
        if !env::memory_follows(&environment, unified) {
            commands.extend(each(from, to, format!("moves {} to node {to}", bytes(seen.facts.bytes))));
        }
        // Its own nodes may hold both: memory comes back with neither list.
        undo.extend(each(to, from, format!("moves its memory back to node {from}")));
    } else {
        commands.extend(bind(cpus, &[]));
    }
    let capacity = share / 100.0 * all;
    Advice {
        sentence: sentence(format!(
            "{} is {} busy and tasks wait; {other} is {} busy. {} processes or containers are bound to \
             {full}; {label} would fit on {other}.",
            full.title(),
            pct(*share),
            pct(load),
            bound.len()
        )),
        gain: gain::waiting(capacity, wait, idle),
        commands,
        undo,
        check: vec![Check {
            metric: CPU_PCT.id,
            of: of.subject(),
            from: *share,
            to: 85.0,
            below: true,
            within_s: 60.0,
        }],
        stop: super::watermark_stop(view, &other.subject()),
        risk: match other {
            Region::Node(_) => {
                format!("{} then has less room for other programs. {RISK_OF_MOVE}", other.title())
            }
            Region::Socket(_) => format!(
                "{} then has less room for other programs. The memory stays: accesses can cross sockets, but are \
                 not visible as remote on this machine.",
                other.title()
            ),
        },
        or_else: iter::once(format!(
            "If {} is kept free for maintenance or for peaks, this is intended: its cpu_pct is {} now.",
            other.title(),
            pct(load)
        ))
        .chain(view.or_else_scheduler())
        .collect(),
    }
}
