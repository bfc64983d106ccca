//! A container or a process may run on some nodes, and take memory from others only.

use std::collections::BTreeSet;

use super::super::fit::memory_room;
use super::super::guards;
use super::super::rule::{Condition, Group, Hold, Rule, Seen, Unmet};
use super::super::text::{nodes, sentence};
use super::super::view::{SubjectRef, View, cpus_of_files, mems_of_files};
use super::super::{Advice, Command, Confidence, Note, Scope, Severity, SubjectKind, When, env};
use super::remote_after_pin::{RISK_OF_MOVE, gain_of_memory};
use crate::model::sample::CgroupMode;
use crate::model::units::NodeId;
use crate::snapshot::Task;

pub(super) static RULE: Rule = Rule {
    id: "cpus-and-memory-apart",
    title: "CPUs of one node, memory of another",
    about: "The allowed CPUs and the allowed memory of a process have no node in common: every access is \
            remote.",
    not_when: &[
        ("memory-only", "the allowed memory is on nodes without CPUs, which is deliberate"),
        ("no-memory", "the allowed CPUs are on nodes without memory"),
        ("prefer", "the node is only preferred: memory can come from other nodes"),
        ("small", "the process has little memory"),
    ],
    of: &[SubjectKind::Process, SubjectKind::Container],
    group: Group::Placement,
    gravest: Severity::Warning,
    needs: &[],
    hold: Hold::s(10.0),
    limits: &[],
    idle_too: false,
    judge: &Condition { look, advise },
};

/// Nodes of CPUs and of memory that a subject may use, where both are known.
fn allowed(view: &View<'_>, of: &SubjectRef<'_>) -> Option<(Vec<NodeId>, Vec<NodeId>)> {
    match of {
        SubjectRef::Container(row) => {
            let files = row.raw.as_deref()?;
            let cpus = view.nodes_of_cpus(&cpus_of_files(files)?);
            Some((cpus.into_iter().collect(), mems_of_files(files)?))
        }
        SubjectRef::Process(task) => {
            // A process of a group that is apart is the group's finding. Nodes above 63 are in no mask.
            if !view.masks_hold_all() {
                return None;
            }
            let cpus = guards::nodes_of(task.cpu_nodes?);
            let mut mems = guards::nodes_of(task.mem_nodes?);
            let policy = task.raw.mempolicy;
            if policy.mode == guards::POLICY_BIND {
                mems.retain(|node| node.0 < 64 && policy.nodes >> node.0 & 1 == 1);
            }
            Some((cpus, mems))
        }
        _ => None,
    }
}

/// Nodes of its CPUs and of its memory.
struct Facts {
    /// Nodes that it may run on.
    cpus: Vec<NodeId>,
    /// Nodes that it may take memory from.
    mems: Vec<NodeId>,
}

fn look(view: &View<'_>, of: &SubjectRef<'_>) -> Result<Seen<Facts>, Unmet> {
    let Some((cpus, mems)) = allowed(view, of) else { return Err(Unmet::Quiet) };
    if cpus.is_empty() || mems.is_empty() || cpus.iter().any(|node| mems.contains(node)) {
        return Err(Unmet::Quiet);
    }
    // Its container has the same finding for everything in it.
    if let SubjectRef::Process(_) = of
        && let Some(row) = view.container_of(of)
        && allowed(view, &SubjectRef::Container(row)).is_some_and(|(cpus, mems)| {
            !cpus.is_empty() && !mems.is_empty() && !cpus.iter().any(|node| mems.contains(node))
        })
    {
        return Err(Unmet::Quiet);
    }
    let whole: BTreeSet<NodeId> = view.whole_nodes().into_iter().collect();
    if !mems.iter().any(|node| whole.contains(node)) || !cpus.iter().any(|node| whole.contains(node)) {
        return Err(Unmet::Quiet);
    }
    let placed = guards::placed(view, of)?;
    if !guards::is_large(view, &placed) {
        return Err(Unmet::Quiet);
    }
    let subject = of.subject();
    let on = placed.memory_pct(&mems);
    Ok(Seen {
        severity: Severity::Warning,
        confidence: Confidence::Measured,
        evidence: vec![
            view.evidence("mem_pct_by_node", subject.clone(), on)
                .error(placed.error)
                .on(mems[0])
                .over_nodes(&mems)
                .note(Note::Placement),
            view.evidence("run_pct_by_node", subject, placed.run_pct(&cpus)).on(cpus[0]).over_nodes(&cpus),
        ],
        facts: Facts { cpus, mems },
    })
}

fn advise(view: &View<'_>, of: &SubjectRef<'_>, seen: &Seen<Facts>) -> Advice {
    let Ok(placed) = guards::placed(view, of) else { return Advice::default() };
    let Facts { cpus, mems } = &seen.facts;
    let label = view.identity(of).label;
    let unified = view.snapshot.host.cgroups.map(|cgroups| cgroups.mode == CgroupMode::V2);
    let pid = match of {
        SubjectRef::Process(task) => Some(task.raw.pid),
        _ => view.processes_of(of).first().map(|task| task.raw.pid),
    };
    let environment = view.env(of);
    // Memory to the CPUs where it fits, else the CPUs to the memory.
    let target = if placed.outside(cpus) <= memory_room(view, cpus) { cpus } else { mems };
    let old = match of {
        SubjectRef::Container(row) => {
            row.raw.as_deref().and_then(|files| Some((cpus_of_files(files)?, mems_of_files(files)?)))
        }
        _ => None,
    };
    // Its CPUs stay as they are where its memory comes to them. A group is not bound for one of its processes.
    let mut commands = match (of, &old) {
        (SubjectRef::Process(_), _) if target == cpus => Vec::new(),
        (SubjectRef::Process(_), _) => {
            env::bind(&env::Env::Session, &view.cpus_of_nodes(target), target, pid, unified)
        }
        (_, Some((its, _))) if target == cpus => env::bind(&environment, its, target, pid, unified),
        _ => env::bind(&environment, &view.cpus_of_nodes(target), target, pid, unified),
    };
    let alone = matches!(of, SubjectRef::Process(_)) || !env::memory_follows(&environment, unified);
    // Memory cannot leave a cpuset.
    let may = |task: &&Task| {
        matches!(of, SubjectRef::Container(_))
            || task
                .mem_nodes
                .is_some_and(|mask| cpus.iter().all(|node| node.0 < 64 && mask >> node.0 & 1 == 1))
    };
    let moved: Vec<u32> = match target == cpus && alone {
        true => view.processes_of(of).into_iter().filter(may).take(8).map(|task| task.raw.pid).collect(),
        false => Vec::new(),
    };
    let each = |from, to, words: &'static str| {
        moved.iter().filter_map(move |pid| env::move_memory(*pid, from, to, words))
    };
    commands.extend(each(mems, cpus, "moves memory that stayed behind"));
    if target == cpus && matches!(of, SubjectRef::Process(_)) {
        let start = format!(
            "start the program with numactl --cpunodebind={} {}",
            super::super::command::node_list(cpus),
            env::preferred(cpus)
        );
        commands.push(Command::words(When::NextStart, Scope::Process, start));
    }
    let mut undo = match old {
        Some((cpus, mems)) => env::at_once(env::bind(&environment, &cpus, &mems, pid, unified)),
        None if target == cpus => Vec::new(),
        None => vec![Command::words(
            When::Now,
            Scope::Process,
            "bind the process to its former CPUs (before the change, save the output of taskset -acp)",
        )],
    };
    undo.extend(each(cpus, mems, "moves all of its memory back"));
    let mut gain = gain_of_memory(view, of, &placed, cpus);
    if target == mems {
        gain.at_most = gain.at_most.filter(|_| false);
    }
    Advice {
        sentence: sentence(format!(
            "{label} is limited to CPUs of {} and to memory of {}: every access is remote.",
            nodes(cpus),
            nodes(mems)
        )),
        gain,
        commands,
        undo,
        check: super::remote_falls(of.subject(), view.remote_pct(of).ok(), 5.0),
        stop: Vec::new(),
        risk: format!("The group stalls while its memory moves. {RISK_OF_MOVE}"),
        or_else: vec![format!(
            "If the memory of {} is reserved for another group, these nodes are in mems_allowed of that \
             group. mems_allowed of {label} is {}.",
            nodes(cpus),
            super::super::command::node_list(mems)
        )],
    }
}
