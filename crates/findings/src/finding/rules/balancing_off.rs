//! NUMA balancing is off on a machine where it would have something to repair.

use super::super::command::{Command, Scope, When, line};
use super::super::rule::{Condition, Group, Hold, Limit, Rule, Seen, Unmet};
use super::super::text::{number, pct, sentence};
use super::super::view::{SubjectRef, View, input};
use super::super::{Advice, Check, Confidence, Note, Severity, Subject, SubjectKind, view};
use super::{memory_on_other_node, spread_over_nodes, waiting};
use crate::metric::placement::REMOTE_PCT;
use crate::snapshot::Task;

/// The age in seconds and the CPUs from which on a process matters to rules: as for all of them.
const LIVES_S: f64 = 60.0;
const MATTERS_CPUS: f64 = 0.5;

/// Processes that are evidence.
const EVIDENCE: usize = 5;

pub(super) static RULE: Rule = Rule {
    id: "balancing-off",
    title: "NUMA balancing is off",
    about: "NUMA balancing is off, but three processes, or processes with 10 % of the busy time, could run \
            nearer to their memory (spread-over-nodes, memory-on-other-node).",
    not_when: &[
        ("bound", "the processes are bound: NUMA balancing would not move them"),
        ("tiering", "a node has no CPUs: kernel.numa_balancing also controls memory tiers"),
        ("on", "NUMA balancing is on"),
    ],
    of: &[SubjectKind::Host],
    group: Group::Balancing,
    gravest: Severity::Info,
    needs: &[],
    hold: Hold::s(60.0),
    limits: &[
        Limit::until("processes", 3.0, 2.0, "estimate: three programs are not a coincidence")
            .counted_in("processes"),
        Limit::least("share", 10.0, "estimate: 10 % of the busy time of the machine"),
    ],
    idle_too: true,
    judge: &Condition { look, advise },
};

/// Whether a rule about placement sees a process in the last interval; an error where it cannot look.
fn sees(view: &View<'_>, rule: &'static Rule, task: &Task) -> Result<bool, ()> {
    let view = View { rule, ..waiting::now(view) };
    match rule.judge.look(&view, &SubjectRef::Process(task)) {
        Ok(confidence) => Ok(confidence > Confidence::Suspected),
        Err(Unmet::Quiet | Unmet::Excused(_)) => Ok(false),
        Err(Unmet::Blind(_)) => Err(()),
    }
}

/// Processes that could run nearer to their memory.
struct Facts {
    /// Their number.
    count: usize,
    /// CPUs that they use.
    cpus: f64,
    /// The busiest of them.
    busiest: Subject,
    /// Its remote share, percent.
    remote: f64,
}

fn look(view: &View<'_>, _: &SubjectRef<'_>) -> Result<Seen<Facts>, Unmet> {
    let mode = view.snapshot.machine.and_then(|machine| machine.numa_balancing);
    let mode = input(mode, "the state of NUMA balancing is not known")?;
    if mode != 0 || view.topology().nodes.iter().any(|node| view.topology().is_tier(node)) {
        return Err(Unmet::Quiet);
    }
    let now = waiting::now(view);
    let (mut away, mut blind, mut ran) = (Vec::new(), 0, 0.0);
    for task in view.candidates() {
        let of = SubjectRef::Process(task);
        let age_s = view.snapshot.boot_ns.saturating_sub(task.raw.leader_start_ns) as f64 / 1e9;
        let cpus = now.cpus(&of);
        if age_s < LIVES_S || cpus < MATTERS_CPUS {
            continue;
        }
        let looks =
            [&spread_over_nodes::RULE, &memory_on_other_node::RULE].map(|rule| sees(view, rule, task));
        if looks.contains(&Ok(true)) {
            ran += cpus;
            away.push((cpus, view::process(&task.raw), now.remote_pct(&of).unwrap_or(0.0)));
        } else if looks.contains(&Err(())) {
            blind += 1;
        }
    }
    let busy = view.snapshot.share(view.snapshot.on_cpus.busy_ns).unwrap_or(0.0) / 100.0;
    let enough = away.len() as f64 >= view.limit("processes") || ran * 100.0 >= busy * view.limit("share");
    away.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let Some((_, busiest, remote)) = away.first().filter(|_| enough).cloned() else {
        return match (away.len(), blind) {
            (0, 1..) => Err(waiting::unknown("the placement of its processes is not known")),
            _ => Err(Unmet::Quiet),
        };
    };
    let over_ns = now.over_ns();
    let mut evidence =
        vec![view.evidence("numa_balancing", Subject::Host, f64::from(mode)).note(Note::Setting)];
    evidence.extend(away.iter().take(EVIDENCE).map(|(_, subject, remote)| super::super::Evidence {
        over_ns,
        ..view.evidence(REMOTE_PCT.id, subject.clone(), *remote).note(Note::Placement)
    }));
    Ok(Seen {
        severity: Severity::Info,
        confidence: Confidence::Estimated,
        evidence,
        facts: Facts { count: away.len(), cpus: ran, busiest, remote },
    })
}

fn advise(_: &View<'_>, _: &SubjectRef<'_>, seen: &Seen<Facts>) -> Advice {
    let Facts { count, cpus, busiest, remote } = &seen.facts;
    let remote = *remote;
    let set = |when, words| Command::new(when, Scope::Host, words, "");
    Advice {
        sentence: sentence(format!(
            "NUMA balancing is off, and {count} process{} using {} CPUs could run nearer to their memory.",
            if *count == 1 { "" } else { "es" },
            number(*cpus)
        )),
        commands: vec![
            set(When::Now, line("sysctl -w kernel.numa_balancing=1")),
            set(When::ForGood, line("echo kernel.numa_balancing=1 > /etc/sysctl.d/90-numa-balancing.conf")),
        ],
        undo: vec![set(When::Now, line("sysctl -w kernel.numa_balancing=0"))],
        check: vec![Check {
            metric: REMOTE_PCT.id,
            of: busiest.clone(),
            from: remote,
            to: (remote / 2.0).max(5.0),
            below: true,
            within_s: 300.0,
        }],
        risk: "This affects the whole machine, and has slowed down databases by 20 %. Switch NUMA balancing off \
               again if balancing_pct exceeds 5."
            .into(),
        or_else: vec![format!(
            "If NUMA balancing was turned off on purpose for a program on this machine, pin the listed \
             processes instead. remote_pct of the first process is {}.",
            pct(remote)
        )],
        ..Advice::default()
    }
}
