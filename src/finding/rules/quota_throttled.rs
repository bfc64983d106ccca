//! A quota stops a container while CPUs are idle.

use super::super::command::{Command, Scope, When};
use super::super::env;
use super::super::gain;
use super::super::rule::{Group, Hold, Limit, Look, Plan, Rule, Seen};
use super::super::text::{number, sentence};
use super::super::view::{Of, View, need, settle};
use super::super::{Check, Confidence, Kind, Note, Severity, Told};
use crate::metric::container::{CPU_QUOTA_PCT, THROTTLED_PCT};
use crate::metric::task::CPU_PCT;
use crate::model::sample::{CgroupMode, GroupRaw};

/// Nice value from which on a task is one that may wait.
const NICE: i32 = 10;

/// Share of its CPU time above which a container is at its quota, not stopped below it.
const AT_QUOTA_PCT: f64 = 80.0;

pub(super) static RULE: Rule = Rule {
    id: "quota-throttled",
    title: "Held back by its CPU quota",
    about: "A CPU quota stops a container for at least a quarter of a CPU while CPUs idle. A warning where its average \
            use is below the quota.",
    not_when: &[
        ("host-busy", "less than one CPU is idle: the quota protects others"),
        ("nice", "tasks with nice 10 or above use half of its time or more"),
        ("ancestor", "the quota is set on the group above, which has the finding"),
    ],
    of: &[Kind::Container],
    group: Group::Cpus,
    gravest: Severity::Warning,
    needs: &[THROTTLED_PCT.id, CPU_QUOTA_PCT.id],
    hold: Hold::s(60.0),
    limits: &[
        Limit::least("throttled", 25.0, "reasoned: a quarter of a CPU, the least time worth a finding"),
        Limit::least("share", 10.0, "reasoned: a tenth of its CPU time"),
        Limit::sharp("idle", 1.0, "reasoned: one CPU that could run it"),
    ],
    // A small quota leaves little CPU time, and may be the one that hurts.
    idle_too: true,
    look: |view, of| settle(look(view, of)),
    tell,
};

fn look(view: &View<'_>, of: &Of<'_>) -> Result<Look, Look> {
    let Of::Container(row) = of else { return Ok(Look::Quiet) };
    let quota = |files: &GroupRaw| files.cpu_quota_milli.clone();
    let Some(files) = row.raw.as_deref() else { return Ok(Look::Quiet) };
    let Some(quota) = need(quota(files))? else { return Ok(Look::Quiet) };
    let quota_pct = quota as f64 / 10.0;
    let throttled =
        need((THROTTLED_PCT.value)(row, view.window)).and_then(|value| value.number().ok_or(Look::Quiet))?;
    let cpu = need(view.number(&CPU_PCT, of))?;
    if throttled < view.limit("throttled") || throttled * 100.0 < cpu * view.limit("share") {
        return Ok(Look::Quiet);
    }
    let idle = view.idle_cpus(None);
    if idle < view.limit("idle") {
        return Ok(Look::Quiet);
    }
    let (mut nice, mut all) = (0.0, 0.0);
    for task in view.members(row.id) {
        let ran = task.run_ns() as f64;
        all += ran;
        nice += if task.raw.nice >= NICE { ran } else { 0.0 };
    }
    if all > 0.0 && nice * 2.0 >= all {
        return Ok(Look::Quiet);
    }
    let subject = of.subject();
    let bursts = cpu < quota_pct * AT_QUOTA_PCT / 100.0;
    Ok(Look::seen(Seen {
        severity: if bursts { Severity::Warning } else { Severity::Info },
        confidence: Confidence::Measured,
        evidence: vec![
            view.evidence(THROTTLED_PCT.id, subject.clone(), throttled)
                .limit(view.limit("throttled"))
                .note(Note::Measured),
            view.evidence(CPU_PCT.id, subject.clone(), cpu),
            view.evidence(CPU_QUOTA_PCT.id, subject, quota_pct).note(Note::Setting),
        ],
        plan: Plan { number: idle, ..Plan::default() },
    }))
}

fn tell(view: &View<'_>, of: &Of<'_>, seen: &Seen) -> Told {
    let (throttled, cpu, quota) =
        (seen.evidence[0].value / 100.0, seen.evidence[1].value / 100.0, seen.evidence[2].value / 100.0);
    let label = view.identity(of).label;
    let sentence = sentence(match seen.severity {
        Severity::Info => format!(
            "{label} is at its quota of {} CPUs, which stops it for {} s of each second.",
            number(quota),
            number(throttled)
        ),
        _ => format!(
            "{label} is held back in bursts: it uses {} of its {} CPUs on average, yet its quota stops it for {} s of each \
             second.",
            number(cpu),
            number(quota),
            number(throttled)
        ),
    });
    let environment = view.env(of);
    let unified = view.snapshot.host.cgroups.map(|cgroups| cgroups.mode == CgroupMode::V2);
    let set = |cpus: f64| env::quota(&environment, (cpus * 1000.0).round() as u64, unified);
    // Engines refuse more CPUs than the machine has.
    let cpus = view.topology().online_cpus().count() as f64;
    let wanted = (quota + throttled).ceil().min(cpus.max(quota.ceil()));
    let mut commands = if wanted > quota { set(wanted) } else { Vec::new() };
    let undo = if commands.is_empty() { Vec::new() } else { env::at_once(set(quota)) };
    // A burst may be no longer than the quota of a period, which samples do not have, so it is words.
    commands.push(Command::words(
        When::Now,
        Scope::Container,
        "or cpu.max.burst of its cgroup, which allows bursts (v2)",
    ));
    Told {
        sentence,
        gain: gain::waiting(cpu, throttled, seen.plan.number),
        commands,
        undo,
        check: vec![Check {
            metric: THROTTLED_PCT.id,
            of: of.subject(),
            from: throttled * 100.0,
            to: (cpu * 5.0).max(1.0),
            below: true,
            within_s: 60.0,
        }],
        stop: Vec::new(),
        risk: "Others get less when the machine fills up.".into(),
        or_else: vec![format!(
            "It has more threads than its quota has CPUs (GOMAXPROCS, ActiveProcessorCount of a JVM): fewer threads cure it \
             as well. It has {}.",
            of.task().map_or(0, |task| task.threads)
        )],
    }
}
