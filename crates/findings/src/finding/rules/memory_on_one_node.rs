//! A process runs on several nodes, and all of its memory is on some of them: who touched it first decided that.

use super::super::command::{Command, Scope, When, node_list};
use super::super::fit::{mean_cost, memory_room};
use super::super::guards;
use super::super::moves::{self, who_runs};
use super::super::rule::{Condition, Group, Hold, Limit, Rule, Seen, Unmet};
use super::super::text::{bytes, nodes, number, pct_with_error, sentence};
use super::super::view::{SubjectRef, View, input};
use super::super::{Advice, Confidence, Note, Severity, SubjectKind};
use super::{spread_over_nodes, waiting};
use crate::metric::placement::{MEM_PCT_BY_NODE, OWN_POLICY_PCT, REMOTE_PCT};
use crate::model::units::NodeId;

pub(super) static RULE: Rule = Rule {
    id: "memory-on-one-node",
    title: "Runs on nodes without its memory",
    about: "A process or group does a quarter of its work or more on nodes without its memory. It fits on no \
            smaller set of nodes. One thread touched the memory first, and the kernel allocated it on that \
            thread's node.",
    not_when: &[
        ("fits", "the process fits on fewer nodes: spread-over-nodes reports this"),
        ("interleave", "its policy interleaves memory or names nodes"),
        ("bound", "the process cannot use memory of the nodes where it runs"),
        ("own-policies", "memory policies set the node of its memory (unknown policies: only a note)"),
        ("shared", "20 % or more of its memory is shared other than through a large object of its group"),
        (
            "unused",
            "counted or sampled accesses, or NUMA balancing's scans, show that nodes without its memory do \
             not use it",
        ),
        ("converging", "its placement is changing"),
        ("no-room", "the nodes without its memory have no room for their share"),
    ],
    of: &[SubjectKind::Process, SubjectKind::Group],
    group: Group::Placement,
    gravest: Severity::Warning,
    needs: &[MEM_PCT_BY_NODE.id],
    hold: Hold::s(60.0),
    limits: &[
        Limit::least("works", 25.0, "estimate: a busy home node can push out 20 % of the work for a while"),
        Limit::least("remote", 20.0, "[S3]: pages are moved to their users when locality is below 80 %"),
    ],
    idle_too: false,
    judge: &Condition { look, advise },
};

/// Where it works and where its memory is.
struct Facts {
    /// Nodes that it works on and that have none of its memory.
    workers: Vec<NodeId>,
    /// Nodes with its memory.
    holders: Vec<NodeId>,
    /// Share of its time on these workers, percent.
    works: f64,
    /// Its remote share, percent.
    remote: f64,
}

fn look(view: &View<'_>, of: &SubjectRef<'_>) -> Result<Seen<Facts>, Unmet> {
    let (SubjectRef::Process(task) | SubjectRef::Group(task, _)) = of else { return Err(Unmet::Quiet) };
    let placed = guards::placed(view, of)?;
    let whole = view.whole_nodes();
    let mut workers = placed.workers_without_memory(view.limit("works"));
    workers.retain(|node| whole.contains(node));
    let works = view.limit("works");
    // All of its work on one node is the matter of memory-on-other-node.
    let several = whole.iter().filter(|node| placed.run_pct(&[**node]) >= works).count() > 1;
    if workers.is_empty() || !several || !guards::is_large(view, &placed) || !task.raw.mempolicy.is_default()
    {
        return Err(Unmet::Quiet);
    }
    let Ok(remote) = view.number(&REMOTE_PCT, of) else { return Err(Unmet::Quiet) };
    if remote < view.limit("remote")
        || view.is_in_group(of)
        || matches!(of, SubjectRef::Group(_, group) if !group.is_free)
    {
        return Err(Unmet::Quiet);
    }
    let mems = input(task.mem_nodes, "its allowed memory nodes are not known")?;
    if !view.masks_hold_all() || !workers.iter().all(|node| mems >> node.0 & 1 == 1) {
        return Err(Unmet::Quiet);
    }
    if guards::is_own_memory(of) != Some(true) {
        return Err(Unmet::Excused("shared"));
    }
    if guards::is_moving(view, of, &placed) {
        return Err(Unmet::Excused("converging"));
    }
    if guards::is_cold(view, of, &placed) || guards::faults_are_local(view, of) {
        return Err(guards::cold());
    }
    // A policy is no accident.
    let elsewhere = guards::elsewhere(view, of, &placed, &[]);
    let is_meant = match elsewhere {
        Some(elsewhere) => elsewhere.kernel < view.limit("remote"),
        // Known, and too much to decide where it is intended to be.
        None => view.number(&OWN_POLICY_PCT, of).is_ok(),
    };
    if is_meant {
        return Err(Unmet::Excused("own-policies"));
    }
    let placement = View { rule: &spread_over_nodes::RULE, ..waiting::now(view) };
    if spread_over_nodes::RULE.judge.look(&placement, of).is_ok() {
        return Err(Unmet::Excused("fits"));
    }
    let works = placed.run_pct(&workers);
    let away = placed.memory() * works / 100.0;
    let room = memory_room(view, &workers);
    if room < away {
        return Err(Unmet::Excused("no-room"));
    }
    let holders = placed.holders(&workers, view.limit("works"));
    let subject = of.subject();
    let mut evidence = vec![
        view.evidence(REMOTE_PCT.id, subject.clone(), remote)
            .error(placed.error)
            .limit(view.limit("remote"))
            .note(Note::Placement),
        view.evidence("run_pct_by_node", subject.clone(), placed.run_pct(&[workers[0]]))
            .on(workers[0])
            .limit(view.limit("works"))
            .note(Note::Witness),
        view.evidence(MEM_PCT_BY_NODE.id, subject, placed.memory_pct(&[workers[0]]))
            .error(placed.error)
            .on(workers[0])
            .note(Note::Placement),
    ];
    let used = guards::witness_of_use(view, of);
    evidence.extend(used);
    Ok(Seen {
        severity: if elsewhere.is_some() { Severity::Warning } else { Severity::Info },
        confidence: Confidence::Estimated,
        evidence,
        facts: Facts { workers, holders, works, remote },
    })
}

fn advise(view: &View<'_>, of: &SubjectRef<'_>, seen: &Seen<Facts>) -> Advice {
    let (Some(_), Ok(placed)) = (of.task(), guards::placed(view, of)) else { return Advice::default() };
    let Facts { workers, holders, works, remote } = &seen.facts;
    let all: Vec<NodeId> = placed.used(view.limit("works"));
    let tiered = view.topology().nodes.iter().any(|node| view.topology().is_tier(node));
    let mut commands: Vec<Command> = Vec::new();
    if view.balancing_is_off() && !tiered {
        commands.push(Command::words(
            When::Now,
            Scope::Host,
            "kernel.numa_balancing=1 moves pages to the threads that use them, in all processes: watch \
             balancing_pct",
        ));
    }
    let start = format!(
        "put numactl --interleave={} before its command: the load is then even, but half or more of the \
         accesses stay remote",
        node_list(&all)
    );
    commands.push(Command::words(When::NextStart, Scope::Process, start));
    commands.push(Command::words(
        When::ForGood,
        Scope::Process,
        "let each thread touch its own part first (parallel initialisation; -XX:+UseNUMA for Java)",
    ));
    Advice {
        sentence: sentence(format!(
            "{} {} of its time on {}, which {} none of its {}; its memory is on {}.",
            who_runs(view, of).0,
            pct_with_error(*works, 0.0),
            nodes(workers),
            if workers.len() == 1 { "has" } else { "have" },
            bytes(placed.memory()),
            nodes(holders)
        )),
        gain: moves::gain_by_accesses(view, of, &placed, 0.0).unwrap_or_else(|| {
            let now = mean_cost(view, &placed.run, &placed.bytes).unwrap_or(1.0);
            moves::gain_by_cost(view, of, now, 1.0)
        }),
        commands,
        or_else: vec![format!(
            "If all threads use all of the memory, only interleaving helps. remote_pct is {}.",
            number(*remote)
        )],
        ..Advice::default()
    }
}
