//! Others use the counters of the CPUs, so that ours take turns.

use super::super::rule::{Condition, Group, Hold, Limit, Rule, Seen, Unmet};
use super::super::text::{pct, sentence};
use super::super::view::{SubjectRef, View};
use super::super::{Advice, Confidence, Note, Severity, Subject, SubjectKind};
use crate::metric::counters;
use crate::metric::task::COUNTERS_RUNNING_PCT;

pub(super) static RULE: Rule = Rule {
    id: "counters-taken-turns",
    title: "Hardware counters are shared",
    about: "Hardware counters were on the PMU for less than 95 % of the time; counts are scaled up.",
    not_when: &[
        ("short", "sharing lasts less than 30 s, as during a short perf stat"),
        ("no-counters", "no hardware counter is open"),
    ],
    of: &[SubjectKind::Host],
    group: Group::Machine,
    gravest: Severity::Info,
    needs: &[],
    hold: Hold::s(30.0),
    limits: &[Limit::until(
        "running",
        95.0,
        97.0,
        "estimate: below this, the error of scaling is more than 5 %",
    )],
    idle_too: true,
    judge: &Condition { look, advise },
};

/// Time for which counters run.
struct Facts {
    /// Share of the time, percent.
    running: f64,
}

fn look(view: &View<'_>, _: &SubjectRef<'_>) -> Result<Seen<Facts>, Unmet> {
    let Ok(running) = counters::running_pct(&view.window.on_cpus.slots, view.window) else {
        return Err(Unmet::Quiet);
    };
    if running >= view.limit("running") {
        return Err(Unmet::Quiet);
    }
    Ok(Seen {
        severity: Severity::Info,
        confidence: Confidence::Measured,
        evidence: vec![
            view.evidence(COUNTERS_RUNNING_PCT.id, Subject::Host, running)
                .limit(view.limit("running"))
                .note(Note::AtMost),
        ],
        facts: Facts { running },
    })
}

fn advise(_: &View<'_>, _: &SubjectRef<'_>, seen: &Seen<Facts>) -> Advice {
    let running = seen.facts.running;
    Advice {
        sentence: sentence(format!(
            "Other users of the PMU leave numatop-ng {} of the counter time; counts are scaled up.",
            pct(running)
        )),
        or_else: vec![format!(
            "On a guest, or on a core with both SMT threads enabled, the CPU has fewer counters: request \
             fewer --events. Counters ran for {} of the time.",
            pct(running)
        )],
        ..Advice::default()
    }
}
