//! A quota stops a container while CPUs are idle.

use super::super::command::{Command, Scope, When};
use super::super::env;
use super::super::gain;
use super::super::rule::{Condition, Group, Hold, Limit, Rule, Seen, Unmet};
use super::super::text::{number, sentence};
use super::super::view::{SubjectRef, View, need};
use super::super::{Advice, Check, Confidence, Note, Severity, SubjectKind};
use crate::metric::container::{CPU_QUOTA_PCT, THROTTLED_PCT};
use crate::metric::task::CPU_PCT;
use crate::model::sample::{CgroupMode, GroupRaw};

/// Nice value from which on a task is one that may wait.
const NICE: i32 = 10;

/// Share of its CPU time above which a container is at its quota, not stopped below it.
const AT_QUOTA_PCT: f64 = 80.0;

pub(super) static RULE: Rule = Rule {
    id: "quota-throttled",
    title: "Throttled by its CPU quota",
    about: "A CPU quota stops a container for at least 0.25 s of each second while CPUs are idle. The \
            finding is a warning if the container's average use is below its quota.",
    not_when: &[
        ("host-busy", "less than one CPU is idle: the quota protects other programs"),
        ("nice", "tasks with a nice value of 10 or more use half of its time or more"),
        ("ancestor", "the quota is set on the parent group, which has the finding"),
    ],
    of: &[SubjectKind::Container],
    group: Group::Cpus,
    gravest: Severity::Warning,
    needs: &[THROTTLED_PCT.id, CPU_QUOTA_PCT.id],
    hold: Hold::s(60.0),
    limits: &[
        Limit::least("throttled", 25.0, "estimate: a quarter of a CPU, the least time worth a finding"),
        Limit::least("share", 10.0, "estimate: 10 % of its CPU time"),
        Limit::sharp("idle", 1.0, "estimate: one CPU that could run the process").counted_in("CPUs"),
    ],
    // A small quota leaves little CPU time, and may be the cause.
    idle_too: true,
    judge: &Condition { look, advise },
};

/// Its quota, and how it is used, in CPUs.
struct Facts {
    /// Time for which the quota stops it.
    throttled: f64,
    /// CPUs used.
    cpu: f64,
    /// The quota.
    quota: f64,
    /// CPUs that are idle.
    idle: f64,
}

fn look(view: &View<'_>, of: &SubjectRef<'_>) -> Result<Seen<Facts>, Unmet> {
    let SubjectRef::Container(row) = of else { return Err(Unmet::Quiet) };
    let quota = |files: &GroupRaw| files.cpu_quota_milli.clone();
    let Some(files) = row.raw.as_deref() else { return Err(Unmet::Quiet) };
    let Some(quota) = need(quota(files))? else { return Err(Unmet::Quiet) };
    let quota_pct = quota as f64 / 10.0;
    let throttled =
        need((THROTTLED_PCT.value)(row, view.window)).and_then(|value| value.number().ok_or(Unmet::Quiet))?;
    let cpu = need(view.number(&CPU_PCT, of))?;
    if throttled < view.limit("throttled") || throttled * 100.0 < cpu * view.limit("share") {
        return Err(Unmet::Quiet);
    }
    let idle = view.idle_cpus(None);
    if idle < view.limit("idle") {
        return Err(Unmet::Quiet);
    }
    let (mut nice, mut all) = (0.0, 0.0);
    for task in view.members(row.id) {
        let ran = task.run_ns() as f64;
        all += ran;
        nice += if task.raw.nice >= NICE { ran } else { 0.0 };
    }
    if all > 0.0 && nice * 2.0 >= all {
        return Err(Unmet::Quiet);
    }
    let subject = of.subject();
    let bursts = cpu < quota_pct * AT_QUOTA_PCT / 100.0;
    Ok(Seen {
        severity: if bursts { Severity::Warning } else { Severity::Info },
        confidence: Confidence::Measured,
        evidence: vec![
            view.evidence(THROTTLED_PCT.id, subject.clone(), throttled)
                .limit(view.limit("throttled"))
                .note(Note::Measured),
            view.evidence(CPU_PCT.id, subject.clone(), cpu),
            view.evidence(CPU_QUOTA_PCT.id, subject, quota_pct).note(Note::Setting),
        ],
        facts: Facts { throttled: throttled / 100.0, cpu: cpu / 100.0, quota: quota_pct / 100.0, idle },
    })
}

fn advise(view: &View<'_>, of: &SubjectRef<'_>, seen: &Seen<Facts>) -> Advice {
    let Facts { throttled, cpu, quota, idle } = seen.facts;
    let label = view.identity(of).label;
    let sentence = sentence(match seen.severity {
        Severity::Info => format!(
            "{label} is at its quota of {} CPUs, which stops it for {} s of each second.",
            number(quota),
            number(throttled)
        ),
        _ => format!(
            "{label} is throttled in bursts: it uses {} of its {} CPUs on average, yet its quota stops it for {} s \
             of each second.",
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
    // A burst may not exceed the quota of a period, which samples do not have, so it is words.
    commands.push(Command::words(
        When::Now,
        Scope::Container,
        "or set cpu.max.burst of its cgroup, which allows bursts (cgroup v2)",
    ));
    Advice {
        sentence,
        gain: gain::waiting(cpu, throttled, idle),
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
        risk: "Other programs get less CPU time when the machine is busy.".into(),
        or_else: vec![format!(
            "If the container has more threads than its quota has CPUs (GOMAXPROCS, ActiveProcessorCount of \
             a JVM), use fewer threads. The container has {} threads.",
            of.task().map_or(0, |task| task.threads)
        )],
    }
}
