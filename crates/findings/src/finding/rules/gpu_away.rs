//! A process works on another node than the GPU that it holds, or has its memory there.

use super::super::command::{Command, Scope, When, cpu_list};
use super::super::rule::{Condition, Group, Hold, Limit, Rule, Seen, Unmet};
use super::super::text::{name, nodes, pct, pct_with_error, sentence};
use super::super::view::{SubjectRef, View, cpus_of_files, need};
use super::super::{Advice, Confidence, Note, Severity, SubjectKind, cores, guards};
use super::far_device::{check, move_to};
use crate::metric::accelerators::{ACCELERATOR_FAR_PCT, ACCELERATORS, held, name_list};
use crate::metric::placement::MEM_PCT_BY_NODE;
use crate::model::accelerators::nodes_of;
use crate::model::units::NodeId;

pub(super) static RULE: Rule = Rule {
    id: "gpu-away",
    title: "Its GPU is on another node",
    about: "A process holds a GPU or another accelerator of one node, and 80 % of its time or half of its memory \
            is on other nodes. The cost is not measured.",
    not_when: &[
        ("several", "its accelerators are on several nodes"),
        ("nodeless", "the firmware does not give the node of one of its accelerators"),
        ("no-cpus", "the node of its accelerators has no CPUs online"),
        (
            "bound-away",
            "its cpuset has no CPU of the accelerator's node: the finding names the cpuset and prints no \
             command",
        ),
        ("idle", "the process uses less than half a CPU"),
        ("display", "the process holds display devices only (/dev/dri/cardN)"),
        ("small", "the process runs near its accelerators, and little of its memory is elsewhere"),
    ],
    of: &[SubjectKind::Process],
    group: Group::Devices,
    gravest: Severity::Info,
    needs: &[ACCELERATORS.id],
    hold: Hold::s(60.0),
    limits: &[
        Limit::least("far", 80.0, "[S3]: as with memory, most of the time is spent elsewhere"),
        Limit::least("home", 50.0, "estimate: the home node is where the process spends most of its time"),
        Limit::least("memory", 50.0, "estimate: less is no reason to move a program"),
    ],
    idle_too: false,
    judge: &Condition { look, advise },
};

/// Part of a process that is elsewhere than its accelerators.
enum Away {
    /// Share of its time, percent.
    Time(f64),
    /// Nodes of its memory, its share there with its error, percent.
    Memory(Vec<NodeId>, f64, f64),
}

/// The accelerators and their node.
struct Facts {
    /// Their names.
    names: String,
    /// Their node.
    node: NodeId,
    /// The part of the process that is elsewhere.
    away: Away,
    /// CPUs of its cpuset, if none of them is on that node.
    bound_to: Option<String>,
}

fn look(view: &View<'_>, of: &SubjectRef<'_>) -> Result<Seen<Facts>, Unmet> {
    let SubjectRef::Process(task) = of else { return Err(Unmet::Quiet) };
    let Ok(held) = held(task, view.window) else { return Err(Unmet::Quiet) };
    let (found, is_nodeless) = nodes_of(held);
    let ([node], false, true) = (&found[..], is_nodeless, view.whole_nodes().len() >= 2) else {
        return Err(Unmet::Quiet);
    };
    let far = need(view.number(&ACCELERATOR_FAR_PCT, of))?;
    let subject = of.subject();
    let (away, evidence) = if far >= view.limit("far") {
        let evidence = view.evidence(ACCELERATOR_FAR_PCT.id, subject, far).limit(view.limit("far"));
        (Away::Time(far), vec![evidence.note(Note::Measured)])
    } else if 100.0 - far >= view.limit("home") {
        let placed = guards::placed(view, of)?;
        let elsewhere = 100.0 - placed.memory_pct(&[*node]);
        let from = placed.sources(&[*node]);
        if elsewhere < view.limit("memory") || from.is_empty() || !guards::is_large(view, &placed) {
            return Err(Unmet::Quiet);
        }
        let most = placed.most(&from).unwrap_or(from[0]);
        let of_memory = view.evidence(MEM_PCT_BY_NODE.id, subject.clone(), placed.memory_pct(&from));
        let of_time = view.evidence("run_pct_by_node", subject, 100.0 - far).on(*node);
        let evidence = vec![
            of_memory.error(placed.error).limit(view.limit("memory")).note(Note::Placement).on(most),
            of_time.limit(view.limit("home")),
        ];
        (Away::Memory(from, elsewhere, placed.error), evidence)
    } else {
        return Err(Unmet::Quiet);
    };
    if held.iter().all(|one| one.name.starts_with("card")) {
        return Err(Unmet::Excused("display"));
    }
    if view.cpus_of_nodes(&[*node]).is_empty() {
        return Err(Unmet::Excused("no-cpus"));
    }
    let cpuset = view.files_of(of).and_then(cpus_of_files).filter(|cpus| !cpus.is_empty());
    let bound_to = cpuset.filter(|cpus| !view.nodes_of_cpus(cpus).contains(node));
    Ok(Seen {
        severity: Severity::Info,
        confidence: match away {
            Away::Time(_) => Confidence::Measured,
            Away::Memory(..) => Confidence::Estimated,
        },
        evidence,
        facts: Facts {
            names: name(&name_list(held)),
            node: *node,
            away,
            bound_to: bound_to.map(|cpus| cpu_list(&cpus)),
        },
    })
}

fn advise(view: &View<'_>, of: &SubjectRef<'_>, seen: &Seen<Facts>) -> Advice {
    let Facts { names, node, away, bound_to } = &seen.facts;
    let process = cores::name(view, of);
    let what = match (away, bound_to) {
        (Away::Time(far), bound_to) => {
            let cpuset = bound_to.as_ref().map(|cpus| format!(", because its cpuset has CPUs {cpus} only"));
            let (far, cpuset) = (pct(*far), cpuset.unwrap_or_default());
            format!(
                "{process} holds {names} on node {node}, and spends {far} of its time on other nodes{cpuset}."
            )
        }
        (Away::Memory(from, share, error), _) => format!(
            "{process} holds {names} on node {node} and runs there, and {} of its memory is on {}.",
            pct_with_error(*share, *error),
            nodes(from)
        ),
    };
    let moved = match bound_to {
        None => move_to(view, of, *node),
        Some(_) => {
            let words =
                format!("add CPUs of node {node} to its cpuset: {}", cpu_list(&view.cpus_of_nodes(&[*node])));
            let commands = vec![Command::words(When::ForGood, Scope::Container, words)];
            Advice { commands, ..Advice::default() }
        }
    };
    Advice {
        sentence: sentence(what),
        check: match away {
            Away::Time(far) => {
                vec![check(of, ACCELERATOR_FAR_PCT.id, (*far, 100.0 - view.rule.limit("far", false)), true)]
            }
            Away::Memory(..) => super::remote_falls(of.subject(), view.remote_pct(of).ok(), 20.0),
        },
        or_else: vec![
            "If the process holds the accelerator without using it, the node does not matter: some programs open \
             every device they find.".into(),
        ],
        ..moved
    }
}
