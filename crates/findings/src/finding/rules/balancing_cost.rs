//! NUMA balancing takes time of a process and does not make its placement better.

use super::super::command::{Command, Scope, When, line};
use super::super::gain::{Arithmetic, Assumption, Gain};
use super::super::rule::{Condition, Group, Hold, Limit, Rule, Seen, Unmet};
use super::super::text::{comm, pct, sentence};
use super::super::view::{SubjectRef, View, need};
use super::super::{Advice, Check, Confidence, Note, Severity, SubjectKind};
use crate::metric::balancing::BALANCING_PCT;
use crate::metric::placement::REMOTE_PCT;
use crate::metric::task::CPU_PCT;

/// Scans of a process that has just started are fast by design (S8).
const STARTING_S: f64 = 120.0;

/// A placement improves if the remote share falls by this many points from the first to the last third.
const CONVERGING_POINTS: f64 = 5.0;

pub(super) static RULE: Rule = Rule {
    id: "balancing-cost",
    title: "NUMA balancing wastes CPU time",
    about: "NUMA balancing takes at least 5 % of a process's time without improving its placement.",
    not_when: &[
        ("converging", "the remote share of the process's memory has fallen by 5 percentage points or more"),
        ("starting", "the process is younger than 120 s: its first scans are always fast"),
        ("tiering", "NUMA balancing promotes pages from nodes without CPUs"),
        ("small", "NUMA balancing takes less than a tenth of a CPU"),
    ],
    of: &[SubjectKind::Process],
    group: Group::Balancing,
    gravest: Severity::Warning,
    needs: &[BALANCING_PCT.id],
    hold: Hold::s(60.0),
    limits: &[
        Limit::least("share", 5.0, "[S5]; a settled scan takes far less: 1.3 % was reported upstream [S16]"),
        Limit::least("cpus", 0.1, "estimate: below this, a change can cost more than it gains")
            .counted_in("CPUs"),
    ],
    idle_too: false,
    judge: &Condition { look, advise },
};

/// The cost of balancing.
struct Facts {
    /// Share of its time, percent.
    share: f64,
    /// CPUs that balancing takes.
    cpus: f64,
}

fn look(view: &View<'_>, of: &SubjectRef<'_>) -> Result<Seen<Facts>, Unmet> {
    let SubjectRef::Process(task) = of else { return Err(Unmet::Quiet) };
    let share = need(view.number(&BALANCING_PCT, of))?;
    let cpus = view.cpus(of);
    let small = share / 100.0 * cpus < view.limit("cpus");
    if share < view.limit("share") || small {
        return Err(Unmet::Quiet);
    }
    let age_s = view.snapshot.boot_ns.saturating_sub(task.raw.leader_start_ns) as f64 / 1e9;
    if age_s < STARTING_S {
        return Err(Unmet::Quiet);
    }
    // Whether it promotes pages or balances nodes is not known where memory without CPUs is.
    let tiered = view.topology().nodes.iter().any(|node| view.topology().is_tier(node));
    let mut confidence = if tiered { Confidence::Suspected } else { Confidence::Measured };
    let subject = of.subject();
    let mut evidence = vec![
        view.evidence(BALANCING_PCT.id, subject.clone(), share)
            .limit(view.limit("share"))
            .note(Note::Measured),
        view.evidence(CPU_PCT.id, subject.clone(), cpus * 100.0),
    ];
    if !view.is_interval() {
        match view.trend {
            Some((first, last)) if first - last >= CONVERGING_POINTS => return Err(Unmet::Quiet),
            Some(_) => {
                if let Ok(remote) = view.number(&REMOTE_PCT, of) {
                    evidence.push(view.evidence(REMOTE_PCT.id, subject, remote).note(Note::Placement));
                }
            }
            // Whether its placement gets better cannot be seen.
            None => confidence = Confidence::Suspected,
        }
    }
    let facts = Facts { share, cpus: share / 100.0 * cpus };
    Ok(Seen { severity: Severity::Warning, confidence, evidence, facts })
}

fn advise(view: &View<'_>, of: &SubjectRef<'_>, seen: &Seen<Facts>) -> Advice {
    let name = of.task().map_or_else(String::new, |task| comm(task.raw.comm));
    let share = seen.facts.share;
    let improved = if seen.confidence == Confidence::Suspected {
        "; it is unknown whether this improves the placement"
    } else {
        ", and the placement has not improved meanwhile"
    };
    let set = |when, words| Command::new(when, Scope::Host, words, "");
    Advice {
        sentence: sentence(format!("NUMA balancing takes {} of {name}'s time{improved}.", pct(share))),
        gain: Gain {
            at_least: Some(seen.facts.cpus),
            at_most: None,
            of: Some(view.cpus(of)),
            how: Some(Arithmetic::Scans),
            assumes: vec![Assumption::PlacementStays],
        },
        commands: vec![
            set(When::Now, line("sysctl -w kernel.numa_balancing=0")),
            set(When::ForGood, line("echo kernel.numa_balancing=0 > /etc/sysctl.d/90-numa-balancing.conf")),
        ],
        undo: vec![set(When::Now, line("sysctl -w kernel.numa_balancing=1"))],
        check: vec![Check {
            metric: BALANCING_PCT.id,
            of: of.subject(),
            from: share,
            to: 0.5,
            below: true,
            within_s: 30.0,
        }],
        stop: match view.number(&REMOTE_PCT, of) {
            Ok(remote) => vec![Check {
                metric: REMOTE_PCT.id,
                of: of.subject(),
                from: remote,
                to: remote + 5.0,
                below: false,
                within_s: 600.0,
            }],
            Err(_) => Vec::new(),
        },
        risk: "This affects the whole machine: other processes lose the benefit of NUMA balancing.".into(),
        or_else: vec![format!(
            "If the process was just moved to other nodes, balancing_pct ({} now) falls by itself.",
            pct(share)
        )],
    }
}
