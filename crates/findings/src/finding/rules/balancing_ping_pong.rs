//! NUMA balancing moves the same memory of a process to and fro between nodes.

use super::super::command::{Command, Scope, When, line};
use super::super::gain::{Arithmetic, Assumption, Gain};
use super::super::rule::{Condition, Group, Hold, Limit, Rule, Seen, Unmet};
use super::super::text::{bytes, comm, nodes, sentence};
use super::super::view::{SubjectRef, View, need};
use super::super::{Advice, Check, Confidence, Note, Severity, Subject, SubjectKind, guards};
use crate::metric::balancing::BALANCING_PCT;
use crate::metric::pages::{BALANCING, PAGES_IN, PAGES_OUT};
use crate::model::counters::Counter;
use crate::model::units::NodeId;

const PAGE: f64 = 4096.0;

/// Seconds in which the share of its memory must have moved.
const SECONDS: f64 = 90.0;

pub(super) static RULE: Rule = Rule {
    id: "balancing-ping-pong",
    title: "NUMA balancing moves memory to and fro",
    about: "NUMA balancing moves 10 % of a process's memory in 90 s, and about as many pages come back.",
    not_when: &[
        ("one-way", "few of the moved pages come back: NUMA balancing moves them to the nodes that use them"),
        (
            "churn",
            "the process has as many page faults as page moves: newly allocated pages move, not the same \
             pages back and forth",
        ),
        ("demotion", "pages move to or from a node without CPUs"),
        ("others", "20 % or more of the moved pages belong to other processes"),
        ("starting", "the process is younger than 120 s: NUMA balancing has not settled"),
    ],
    of: &[SubjectKind::Process],
    group: Group::Balancing,
    gravest: Severity::Warning,
    needs: &[BALANCING.id, PAGES_IN.id, PAGES_OUT.id],
    hold: Hold::s(90.0),
    limits: &[
        Limit::least(
            "moved",
            10.0,
            "estimate: 10 % of the memory; a scan that has settled moves next to nothing",
        ),
        Limit::sharp("net", 25.0, "estimate: three quarters of the moved pages have come back"),
        Limit::sharp(
            "both",
            25.0,
            "estimate: each of two nodes receives and sends a quarter of all moved pages",
        ),
    ],
    idle_too: false,
    judge: &Condition { look, advise },
};

/// Pages that each node with such moves took in and gave out, in the order of nodes.
fn traffic(view: &View<'_>) -> Vec<(NodeId, f64, f64)> {
    let rows = view.window.nodes.iter().filter(|row| row.counts.pages_in > 0 || row.counts.pages_out > 0);
    let mut rows: Vec<_> = rows
        .map(|row| (NodeId(row.raw.id), row.counts.pages_in as f64, row.counts.pages_out as f64))
        .collect();
    rows.sort_by_key(|(node, ..)| *node);
    rows
}

/// Whether balancing is on and met `enough` of its memory elsewhere in the last two minutes. It scans, and
/// moves, in turns of up to a minute, so most intervals of a process with many moves have none.
fn may_move(view: &View<'_>, of: &SubjectRef<'_>, enough: f64) -> bool {
    !view.balancing_is_off() && view.hints(of).remote as f64 * guards::FAULT_BYTES >= enough
}

/// The pages that move, and the cost.
struct Facts {
    /// Pages that balancing moves per second.
    rate: f64,
    /// Nodes that they move between.
    nodes: Vec<NodeId>,
    /// CPUs that balancing takes, where that is known.
    cost: Option<f64>,
}

fn look(view: &View<'_>, of: &SubjectRef<'_>) -> Result<Seen<Facts>, Unmet> {
    let SubjectRef::Process(task) = of else { return Err(Unmet::Quiet) };
    let rate = need(view.number(&BALANCING, of))?;
    let memory = task.rss_bytes as f64;
    let enough = memory * view.limit("moved") / 100.0;
    let moves = rate > 0.0 && rate * SECONDS * PAGE >= enough;
    let between = !moves && view.is_interval() && may_move(view, of, enough);
    if !moves && !between {
        return Err(Unmet::Quiet);
    }
    let age_s = view.snapshot.boot_ns.saturating_sub(task.raw.leader_start_ns) as f64 / 1e9;
    if age_s < 120.0 {
        return Err(Unmet::Quiet);
    }
    let placed = guards::placed(view, of)?;
    if !guards::is_large(view, &placed) {
        return Err(Unmet::Quiet);
    }
    // An interval between two bursts of moves: only the long window shows it.
    if between {
        return Ok(Seen {
            severity: Severity::Info,
            confidence: Confidence::Suspected,
            evidence: vec![view.evidence(BALANCING.id, of.subject(), rate)],
            facts: Facts { rate, nodes: Vec::new(), cost: None },
        });
    }
    let (moved, faults) = (task.delta[Counter::BalancedPages], task.delta[Counter::MinFlt]);
    // A hinting fault is a minor fault, too, and a page that it moved is faulted again: the remaining ones
    // are of new memory.
    let fresh = faults.saturating_sub(task.delta[Counter::HintFaults]).saturating_sub(moved);
    if fresh >= moved {
        return Err(Unmet::Quiet);
    }
    let traffic = traffic(view);
    let (taken, given): (f64, f64) =
        traffic.iter().fold((0.0, 0.0), |(taken, given), (_, i, o)| (taken + i, given + o));
    let all = taken.max(given);
    let tiers = traffic
        .iter()
        .any(|(node, ..)| view.topology().node(*node).is_none_or(|node| view.topology().is_tier(node)));
    if all <= 0.0 || tiers || (moved as f64) < all * 0.8 {
        return Err(Unmet::Quiet);
    }
    // Pages go one way in an interval and come back in another, so only the long window shows it.
    let both: Vec<NodeId> = traffic
        .iter()
        .filter(|(_, i, o)| i.min(*o) * 100.0 >= all * view.limit("both"))
        .map(|(node, ..)| *node)
        .collect();
    let net = traffic.iter().map(|(_, i, o)| (i - o).abs()).sum::<f64>() / 2.0 * 100.0 / all;
    if !view.is_interval() && (both.len() < 2 || net > view.limit("net")) {
        return Err(Unmet::Quiet);
    }
    let cost = match view.snapshot.host_missing(BALANCING_PCT.id) {
        None => view.number(&BALANCING_PCT, of).ok(),
        Some(_) => None,
    };
    let mut evidence = vec![
        view.evidence(BALANCING.id, of.subject(), rate)
            .limit(view.limit("moved") / 100.0 * memory / PAGE / SECONDS)
            .note(Note::Measured),
    ];
    let seconds = view.over_ns().max(1) as f64 / 1e9;
    for (node, i, o) in traffic.iter().filter(|(node, ..)| both.contains(node)) {
        let limit = all * view.limit("both") / 100.0 / seconds;
        evidence.push(view.evidence(PAGES_IN.id, Subject::Node(*node), i / seconds).limit(limit));
        evidence.push(view.evidence(PAGES_OUT.id, Subject::Node(*node), o / seconds).limit(limit));
    }
    Ok(Seen {
        // Without its time, it is unknown whether it costs more than a finding is worth.
        severity: if cost.is_some() { Severity::Warning } else { Severity::Info },
        confidence: Confidence::Measured,
        evidence,
        facts: Facts { rate, nodes: both, cost: cost.map(|pct| pct / 100.0 * view.cpus(of)) },
    })
}

fn advise(view: &View<'_>, of: &SubjectRef<'_>, seen: &Seen<Facts>) -> Advice {
    let name = of.task().map_or_else(String::new, |task| comm(task.raw.comm));
    let set = |when, words| Command::new(when, Scope::Host, words, "");
    let Facts { rate, nodes: both, cost } = &seen.facts;
    let (rate, cost) = (*rate, *cost);
    Advice {
        sentence: sentence(format!(
            "NUMA balancing moves {} of {name}'s memory between {} each second, and about as much comes back.",
            bytes(rate * PAGE),
            nodes(both)
        )),
        gain: Gain {
            at_least: cost,
            of: Some(view.cpus(of)),
            how: cost.map(|_| Arithmetic::Scans),
            assumes: vec![Assumption::PlacementStays],
            ..Gain::default()
        },
        commands: vec![
            set(When::Now, line("sysctl -w kernel.numa_balancing=0")),
            set(When::ForGood, line("echo kernel.numa_balancing=0 > /etc/sysctl.d/90-numa-balancing.conf")),
        ],
        undo: vec![set(When::Now, line("sysctl -w kernel.numa_balancing=1"))],
        check: vec![Check {
            metric: BALANCING.id,
            of: of.subject(),
            from: rate,
            to: rate / 10.0,
            below: true,
            within_s: 30.0,
        }],
        stop: Vec::new(),
        risk:
            "This affects the whole machine: other processes lose the benefit of NUMA balancing. Check their \
               remote_pct afterwards."
                .into(),
        or_else: vec![
            "If the program has phases that use its memory from different nodes, \
             pages_migrated_balancing_per_s is near 0 between phase changes."
                .to_owned(),
        ],
    }
}
