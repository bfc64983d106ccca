//! All cores have all of their hardware threads busy.

use std::collections::BTreeMap;

use super::super::rule::{Group, Hold, Limit, Look, Plan, Rule, Seen};
use super::super::text::sentence;
use super::super::view::{Of, View, settle};
use super::super::{Confidence, Kind, Note, Severity, Subject, Told};
use crate::metric::host::BUSY;

/// Nice value from which on a task is one that may wait, and policies that may: SCHED_BATCH and SCHED_IDLE of sched(7).
const NICE: i32 = 10;
const MAY_WAIT: [u32; 2] = [3, 5];

pub(super) static RULE: Rule = Rule {
    id: "cores-exhausted",
    title: "All cores are busy with all threads",
    about: "Nine of ten cores have all of their hardware threads busy: a CPU more is a part of a core that is in use. An \
            info: a full machine is what many want.",
    not_when: &[
        ("no-smt", "a core has one thread"),
        ("nice", "half of the time or more is of tasks with nice 10 or above, SCHED_BATCH or SCHED_IDLE"),
        ("half-idle", "a thread of more than a tenth of the cores is less than 80 % busy"),
    ],
    of: &[Kind::Host],
    group: Group::Cpus,
    gravest: Severity::Info,
    needs: &[],
    hold: Hold::s(60.0),
    limits: &[
        Limit::until("cores", 90.0, 80.0, "reasoned: all of them but what a moment leaves"),
        Limit::until(
            "thread",
            80.0,
            70.0,
            "reasoned: a thread that idles a fifth of the time leaves the core to the other",
        ),
    ],
    idle_too: true,
    look: |view, _| settle(look(view)),
    tell,
};

/// Cores with two threads or more, and those of them all of whose threads are busy.
fn cores(view: &View<'_>, least_pct: f64) -> (usize, usize) {
    let length = view.over_ns().max(1) as f64;
    let busy: BTreeMap<u32, f64> =
        view.window.cpus.iter().map(|cpu| (cpu.id, cpu.busy_ns as f64 * 100.0 / length)).collect();
    let mut of_core: BTreeMap<u32, (usize, bool)> = BTreeMap::new();
    for cpu in view.topology().online_cpus() {
        let core = of_core.entry(cpu.core).or_insert((0, true));
        core.0 += 1;
        core.1 &= busy.get(&cpu.id.0).is_some_and(|pct| *pct >= least_pct);
    }
    let shared = of_core.values().filter(|(threads, _)| *threads > 1);
    (of_core.len(), shared.filter(|(_, busy)| *busy).count())
}

/// Whether tasks that may wait make half of the time.
fn may_wait(view: &View<'_>) -> bool {
    let (mut nice, mut all) = (0.0, 0.0);
    for task in &view.snapshot.tasks {
        let ran = task.run_ns() as f64;
        all += ran;
        if task.raw.nice >= NICE || MAY_WAIT.contains(&task.raw.policy) {
            nice += ran;
        }
    }
    nice * 2.0 >= all
}

fn look(view: &View<'_>) -> Result<Look, Look> {
    if !view.topology().smt() {
        return Ok(Look::Quiet);
    }
    let (all, busy) = cores(view, view.limit("thread"));
    if (busy as f64) * 100.0 < all as f64 * view.limit("cores") || may_wait(view) {
        return Ok(Look::Quiet);
    }
    let length = view.over_ns().max(1) as f64;
    let used = view.window.busy_ns as f64 * 100.0 / length;
    let cpus = view.topology().online_cpus().count() as f64;
    let limit = cpus * view.limit("cores") * view.limit("thread") / 100.0;
    Ok(Look::seen(Seen {
        severity: Severity::Info,
        confidence: Confidence::Measured,
        evidence: vec![view.evidence(BUSY.id, Subject::Host, used).limit(limit).note(Note::Measured)],
        plan: Plan { number: busy as f64, bytes: all as f64, ..Plan::default() },
    }))
}

fn tell(view: &View<'_>, _: &Of<'_>, seen: &Seen) -> Told {
    let cpus = view.topology().online_cpus().count();
    Told {
        sentence: sentence(format!(
            "{:.0} of {:.0} cores have all of their threads busy: {cpus} CPUs share the units of {:.0} cores.",
            seen.plan.number, seen.plan.bytes, seen.plan.bytes
        )),
        or_else: vec![
            "Placement wins nothing here: fewer services on this machine do, or more machines. Waits for CPUs (runq_wait_pct) \
             say whether it is too full."
                .to_owned(),
        ],
        ..Told::default()
    }
}
