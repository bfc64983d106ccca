//! Threads move from node to node so often that their caches are cold.

use std::iter;

use super::super::gain::{Arithmetic, Gain};
use super::super::rule::{Condition, Group, Hold, Limit, Rule, Seen, Unmet};
use super::super::text::{comm, number, sentence};
use super::super::view::{SubjectRef, View, need};
use super::super::{Advice, Confidence, Severity, SubjectKind};
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
        (
            "sleepers",
            "the process runs for less than 50 us between two context switches: caches do not help \
                      it",
        ),
    ],
    of: &[SubjectKind::Process],
    group: Group::Cpus,
    gravest: Severity::Info,
    needs: &[NODE_MIGRATIONS_PER_S.id],
    hold: Hold::s(60.0),
    limits: &[
        Limit::least("moves", 100.0, "[S17]: at 0.5 ms each, moves cost 5 % of the process's time")
            .counted_in("per second of CPU time"),
        Limit::least("least", 10.0, "estimate: fewer moves cost less than 0.5 % of a CPU").counted_in("/s"),
    ],
    idle_too: false,
    judge: &Condition { look, advise },
};

/// Its moves and switches.
struct Facts {
    /// Moves to another node per second.
    moves: f64,
    /// Context switches per second.
    switches: f64,
}

fn look(view: &View<'_>, of: &SubjectRef<'_>) -> Result<Seen<Facts>, Unmet> {
    let moves = need(view.number(&NODE_MIGRATIONS_PER_S, of))?;
    let cpus = view.cpus(of);
    if moves < view.limit("least") || cpus <= 0.0 || moves / cpus < view.limit("moves") {
        return Err(Unmet::Quiet);
    }
    let switches = need(view.number(&SWITCHES_PER_S, of))?;
    if switches > 0.0 && cpus / switches < RUN_S {
        return Err(Unmet::Quiet);
    }
    Ok(Seen {
        severity: Severity::Info,
        confidence: Confidence::Measured,
        evidence: vec![
            view.evidence(NODE_MIGRATIONS_PER_S.id, of.subject(), moves).limit(view.limit("moves") * cpus),
            view.evidence(SWITCHES_PER_S.id, of.subject(), switches),
        ],
        facts: Facts { moves, switches },
    })
}

fn advise(view: &View<'_>, of: &SubjectRef<'_>, seen: &Seen<Facts>) -> Advice {
    let name = of.task().map_or_else(String::new, |task| comm(task.raw.comm));
    let (Facts { moves, switches }, cpus) = (&seen.facts, view.cpus(of));
    let moves = *moves;
    Advice {
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
            "The process sleeps often and briefly, or has more threads than a node has CPUs: switches_per_s \
             is {}.",
            number(*switches)
        ))
        .chain(view.or_else_scheduler())
        .collect(),
        ..Advice::default()
    }
}
