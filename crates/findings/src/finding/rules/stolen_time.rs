//! The hypervisor runs something else while this machine wants to run.

use super::super::rule::{Condition, Group, Hold, Limit, Rule, Seen, Unmet};
use super::super::text::{number, pct, sentence};
use super::super::view::{SubjectRef, View, input};
use super::super::{Advice, Confidence, Note, Severity, Subject, SubjectKind};
use crate::metric::host::BUSY;

pub(super) static RULE: Rule = Rule {
    id: "stolen-time",
    title: "The hypervisor takes CPU time",
    about: "The hypervisor takes at least 10 % of the time in which CPUs are busy; all CPU times shown are \
            too large.",
    not_when: &[("idle", "less than one CPU is busy")],
    of: &[SubjectKind::Host],
    group: Group::Cpus,
    gravest: Severity::Info,
    needs: &["steal_pct"],
    hold: Hold::s(60.0),
    limits: &[
        Limit::least("share", 10.0, "[S14]: the usual alert threshold"),
        Limit::least("busy", 100.0, "estimate: one CPU"),
    ],
    idle_too: true,
    judge: &Condition { look, advise },
};

/// Time of the machine, percent of a CPU.
struct Facts {
    /// Time that the hypervisor takes.
    steal: f64,
    /// Time in which CPUs are busy.
    busy: f64,
}

fn look(view: &View<'_>, _: &SubjectRef<'_>) -> Result<Seen<Facts>, Unmet> {
    let steal_ns = input(view.window.on_cpus.steal_ns.get(), "stolen time is not known")?;
    let length = view.over_ns().max(1) as f64;
    let (steal, busy) =
        (steal_ns as f64 * 100.0 / length, view.window.on_cpus.busy_ns as f64 * 100.0 / length);
    if busy < view.limit("busy") || steal * 100.0 < busy * view.limit("share") {
        return Err(Unmet::Quiet);
    }
    Ok(Seen {
        severity: Severity::Info,
        confidence: Confidence::Measured,
        evidence: vec![
            view.evidence("steal_pct", Subject::Host, steal)
                .limit(busy * view.limit("share") / 100.0)
                .note(Note::Measured),
            view.evidence(BUSY.id, Subject::Host, busy),
        ],
        facts: Facts { steal, busy },
    })
}

fn advise(_: &View<'_>, _: &SubjectRef<'_>, seen: &Seen<Facts>) -> Advice {
    let Facts { steal, busy } = seen.facts;
    Advice {
        sentence: sentence(format!(
            "The hypervisor takes {} CPUs of this machine while {} are busy: all CPU times shown are too \
             large.",
            number(steal / 100.0),
            number(busy / 100.0)
        )),
        or_else: vec![format!(
            "If a burstable instance has used up its credit, steal looks the same ({}), but the remedy is \
             another instance type.",
            pct(steal * 100.0 / busy.max(1.0))
        )],
        ..Advice::default()
    }
}
