//! Threads move from node to node so often that their caches are cold.

use std::iter;

use super::super::gain::{Arithmetic, Gain};
use super::super::rule::{Group, Hold, Limit, Look, Plan, Rule, Seen};
use super::super::text::{comm, number, sentence};
use super::super::view::{Of, View, need, settle};
use super::super::{Confidence, Kind, Severity, Told};
use crate::metric::task::{NODE_MIGRATIONS_PER_S, SWITCHES_PER_S};

/// The scheduler's own cost of a cold cache, seconds (S17).
const MOVE_S: f64 = 0.0005;

/// The least time between two switches in which a cache is of use, seconds.
const RUN_S: f64 = 0.00005;

pub(super) static RULE: Rule = Rule {
    id: "moves-between-nodes",
    title: "Its threads move between nodes",
    about: "Threads of a process move to another node at least 100 times per second of CPU time.",
    not_when: &[
        ("tiny", "fewer than ten moves a second"),
        ("sleepers", "it runs for less than 50 us between two switches: caches do not help it"),
    ],
    of: &[Kind::Process],
    group: Group::Cpus,
    gravest: Severity::Info,
    needs: &[NODE_MIGRATIONS_PER_S.id],
    hold: Hold::s(60.0),
    limits: &[
        Limit::least("moves", 100.0, "[S17]: at 0.5 ms each they cost 5 % of its time"),
        Limit::least("least", 10.0, "reasoned: fewer cost less than half a percent of a CPU"),
    ],
    idle_too: false,
    look: |view, of| settle(look(view, of)),
    tell,
};

fn look(view: &View<'_>, of: &Of<'_>) -> Result<Look, Look> {
    let moves = need(view.number(&NODE_MIGRATIONS_PER_S, of))?;
    let cpus = view.cpus(of);
    if moves < view.limit("least") || cpus <= 0.0 || moves / cpus < view.limit("moves") {
        return Ok(Look::Quiet);
    }
    let switches = need(view.number(&SWITCHES_PER_S, of))?;
    if switches > 0.0 && cpus / switches < RUN_S {
        return Ok(Look::Quiet);
    }
    Ok(Look::seen(Seen {
        severity: Severity::Info,
        confidence: Confidence::Measured,
        evidence: vec![
            view.evidence(NODE_MIGRATIONS_PER_S.id, of.subject(), moves).limit(view.limit("moves") * cpus),
            view.evidence(SWITCHES_PER_S.id, of.subject(), switches),
        ],
        plan: Plan { number: moves, ..Plan::default() },
    }))
}

fn tell(view: &View<'_>, of: &Of<'_>, seen: &Seen) -> Told {
    let name = of.task().map_or_else(String::new, |task| comm(task.raw.comm));
    let (moves, cpus) = (seen.plan.number, view.cpus(of));
    Told {
        sentence: sentence(format!(
            "Threads of {name} move to another node {} times a second, and leave their caches behind.",
            number(moves)
        )),
        gain: Gain {
            at_most: Some((moves * MOVE_S).min(cpus)),
            of: Some(cpus),
            how: Some(Arithmetic::Moves { per_s: moves }),
            ..Gain::default()
        },
        or_else: iter::once(format!(
            "It sleeps often and shortly, or has more threads than a node has CPUs: switches_per_s is {}.",
            number(seen.evidence[1].value)
        ))
        .chain(view.or_else_scheduler())
        .collect(),
        ..Told::default()
    }
}
