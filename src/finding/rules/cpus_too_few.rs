//! A container may use few CPUs, all of them are busy, and others are idle.

use super::super::gain;
use super::super::rule::{Group, Hold, Limit, Look, Plan, Rule, Seen};
use super::super::text::{number, sentence};
use super::super::view::{Of, View, cpus_of_files, need, settle};
use super::super::{Check, Confidence, Kind, Severity, Told, env};
use crate::metric::task::{CPU_PCT, RUNQ_WAIT_PCT};
use crate::model::sample::CgroupMode;

/// Nice value from which on a task is one that may wait.
const NICE: i32 = 10;

pub(super) static RULE: Rule = Rule {
    id: "cpus-too-few",
    title: "Its CPUs are too few",
    about: "All CPUs of a container's cpuset are busy and its threads wait, while other CPUs idle. A warning where its \
            quota exceeds its CPUs.",
    not_when: &[
        ("quota", "its quota is no larger than its CPUs"),
        ("isolated", "the CPUs that are idle are isolated"),
        ("batch", "tasks with nice 10 or above use half of its time or more"),
    ],
    of: &[Kind::Container],
    group: Group::Cpus,
    gravest: Severity::Warning,
    needs: &[RUNQ_WAIT_PCT.id, "cpus_allowed"],
    hold: Hold::s(60.0),
    limits: &[
        Limit::least("busy", 95.0, "by definition of full: all of its CPUs but what cannot be used"),
        Limit::least("wait", 25.0, "reasoned: a quarter of its CPU time"),
        Limit::least("idle", 25.0, "reasoned: a quarter of its CPUs, and one"),
        Limit::sharp("quota", 110.0, "reasoned: a quota above its CPUs contradicts itself"),
    ],
    idle_too: false,
    look: |view, of| settle(look(view, of)),
    tell,
};

fn look(view: &View<'_>, of: &Of<'_>) -> Result<Look, Look> {
    let Of::Container(row) = of else { return Ok(Look::Quiet) };
    let Some(cpus) = row.raw.as_deref().and_then(cpus_of_files) else { return Ok(Look::Quiet) };
    let online = view.topology().online_cpus().count();
    if cpus.is_empty() || cpus.len() >= online {
        return Ok(Look::Quiet);
    }
    let count = cpus.len() as f64;
    let used = need(view.number(&CPU_PCT, of))?;
    let wait = need(view.number(&RUNQ_WAIT_PCT, of))?;
    if used < count * view.limit("busy") || wait * 100.0 < used * view.limit("wait") {
        return Ok(Look::Quiet);
    }
    let quota = view.quota(of).map(|quota| quota * 100.0);
    if quota.is_some_and(|quota| quota <= count * 100.0) {
        return Ok(Look::Quiet);
    }
    let isolated = &view.snapshot.host.isolated_cpus;
    let length = view.over_ns().max(1) as f64;
    let outside = view
        .window
        .cpus
        .iter()
        .filter(|cpu| cpu.online && !cpus.contains(&cpu.id) && !isolated.contains(&cpu.id));
    let idle: f64 = outside.map(|cpu| (1.0 - cpu.busy_ns as f64 / length).clamp(0.0, 1.0)).sum();
    if idle < 1.0 || idle * 100.0 < count * view.limit("idle") {
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
    let contradicts = quota.is_some_and(|quota| quota >= count * view.limit("quota"));
    let nodes = view.nodes_of_cpus(&cpus);
    Ok(Look::seen(Seen {
        severity: if contradicts { Severity::Warning } else { Severity::Info },
        confidence: Confidence::Measured,
        evidence: vec![
            view.evidence(RUNQ_WAIT_PCT.id, of.subject(), wait).limit(used * view.limit("wait") / 100.0),
            view.evidence(CPU_PCT.id, of.subject(), used).limit(count * view.limit("busy")),
        ],
        plan: Plan { to: nodes.into_iter().collect(), cpus, number: idle, ..Plan::default() },
    }))
}

fn tell(view: &View<'_>, of: &Of<'_>, seen: &Seen) -> Told {
    let label = view.identity(of).label;
    let (wait, used, idle) =
        (seen.evidence[0].value / 100.0, seen.evidence[1].value / 100.0, seen.plan.number);
    let unified = view.snapshot.host.cgroups.map(|cgroups| cgroups.mode == CgroupMode::V2);
    let environment = view.env(of);
    let mems = view.files_of(of).and_then(super::super::view::mems_of_files);
    let mems = mems.unwrap_or_else(|| view.whole_nodes());
    // More CPUs of its nodes, where these have others.
    let more = view.cpus_of_nodes(&seen.plan.to);
    let pid = view.processes_of(of).first().map(|task| task.raw.pid);
    let commands = if more.len() > seen.plan.cpus.len() {
        env::bind(&environment, &more, &mems, pid, unified)
    } else {
        Vec::new()
    };
    let undo = match commands.is_empty() {
        true => Vec::new(),
        false => env::at_once(env::bind(&environment, &seen.plan.cpus, &mems, pid, unified)),
    };
    let threads = of.task().map_or(0, |task| task.threads);
    Told {
        sentence: sentence(format!(
            "{label} may use {} CPUs, all busy; its {threads} threads wait {} s of each second, and {} CPUs are idle.",
            seen.plan.cpus.len(),
            number(wait),
            number(idle)
        )),
        gain: gain::waiting(used, wait, idle),
        commands,
        undo,
        check: vec![Check {
            metric: RUNQ_WAIT_PCT.id,
            of: of.subject(),
            from: wait * 100.0,
            to: used * 10.0,
            below: true,
            within_s: 60.0,
        }],
        stop: Vec::new(),
        risk: "Others have fewer idle CPUs.".into(),
        or_else: vec![format!("It has more threads than it needs: it has {threads}.")],
    }
}
