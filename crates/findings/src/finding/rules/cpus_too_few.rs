//! A container may use few CPUs, all of them are busy, and others are idle.

use super::super::gain;
use super::super::rule::{Condition, Group, Hold, Limit, Rule, Seen, Unmet};
use super::super::text::{number, sentence};
use super::super::view::{SubjectRef, View, cpus_of_files, need};
use super::super::{Advice, Check, Confidence, Severity, SubjectKind, env};
use crate::metric::task::{CPU_PCT, RUNQ_WAIT_PCT};
use crate::model::sample::CgroupMode;
use crate::model::units::NodeId;

/// Nice value from which on a task is one that may wait.
const NICE: i32 = 10;

pub(super) static RULE: Rule = Rule {
    id: "cpus-too-few",
    title: "Too few CPUs for its threads",
    about: "All CPUs of a container's cpuset are busy and its threads wait, while other CPUs are idle. The \
            finding is a warning if the container's quota exceeds its CPUs.",
    not_when: &[
        ("quota", "its quota is not larger than its number of CPUs"),
        ("isolated", "the idle CPUs are isolated"),
        ("batch", "tasks with a nice value of 10 or more use half of its time or more"),
    ],
    of: &[SubjectKind::Container],
    group: Group::Cpus,
    gravest: Severity::Warning,
    needs: &[RUNQ_WAIT_PCT.id, "cpus_allowed"],
    hold: Hold::s(60.0),
    limits: &[
        Limit::least("busy", 95.0, "by definition: full means all CPUs available to the container"),
        Limit::least("wait", 25.0, "estimate: a quarter of its CPU time"),
        Limit::least("idle", 25.0, "estimate: a quarter of its CPUs, and at least one"),
        Limit::sharp("quota", 110.0, "estimate: a quota above the number of CPUs contradicts the cpuset"),
    ],
    idle_too: false,
    judge: &Condition { look, advise },
};

/// Its CPUs, and how it waits for them.
struct Facts {
    /// Nodes of its CPUs.
    nodes: Vec<NodeId>,
    /// CPUs that it may use.
    cpus: Vec<u32>,
    /// CPUs' worth of waiting.
    wait: f64,
    /// CPUs used.
    used: f64,
    /// CPUs that are idle elsewhere.
    idle: f64,
}

fn look(view: &View<'_>, of: &SubjectRef<'_>) -> Result<Seen<Facts>, Unmet> {
    let SubjectRef::Container(row) = of else { return Err(Unmet::Quiet) };
    let Some(cpus) = row.raw.as_deref().and_then(cpus_of_files) else { return Err(Unmet::Quiet) };
    let online = view.topology().online_cpus().count();
    if cpus.is_empty() || cpus.len() >= online {
        return Err(Unmet::Quiet);
    }
    let count = cpus.len() as f64;
    let used = need(view.number(&CPU_PCT, of))?;
    let wait = need(view.number(&RUNQ_WAIT_PCT, of))?;
    if used < count * view.limit("busy") || wait * 100.0 < used * view.limit("wait") {
        return Err(Unmet::Quiet);
    }
    let quota = view.quota(of).map(|quota| quota * 100.0);
    if quota.is_some_and(|quota| quota <= count * 100.0) {
        return Err(Unmet::Quiet);
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
    let contradicts = quota.is_some_and(|quota| quota >= count * view.limit("quota"));
    let nodes = view.nodes_of_cpus(&cpus);
    Ok(Seen {
        severity: if contradicts { Severity::Warning } else { Severity::Info },
        confidence: Confidence::Measured,
        evidence: vec![
            view.evidence(RUNQ_WAIT_PCT.id, of.subject(), wait).limit(used * view.limit("wait") / 100.0),
            view.evidence(CPU_PCT.id, of.subject(), used).limit(count * view.limit("busy")),
        ],
        facts: Facts {
            nodes: nodes.into_iter().collect(),
            cpus,
            wait: wait / 100.0,
            used: used / 100.0,
            idle,
        },
    })
}

fn advise(view: &View<'_>, of: &SubjectRef<'_>, seen: &Seen<Facts>) -> Advice {
    let label = view.identity(of).label;
    let Facts { nodes, cpus, wait, used, idle } = &seen.facts;
    let (wait, used, idle) = (*wait, *used, *idle);
    let unified = view.snapshot.host.cgroups.map(|cgroups| cgroups.mode == CgroupMode::V2);
    let environment = view.env(of);
    let mems = view.files_of(of).and_then(super::super::view::mems_of_files);
    let mems = mems.unwrap_or_else(|| view.whole_nodes());
    // More CPUs of its nodes, where these have others.
    let more = view.cpus_of_nodes(nodes);
    let pid = view.processes_of(of).first().map(|task| task.raw.pid);
    let commands = if more.len() > cpus.len() {
        env::bind(&environment, &more, &mems, pid, unified)
    } else {
        Vec::new()
    };
    let undo = match commands.is_empty() {
        true => Vec::new(),
        false => env::at_once(env::bind(&environment, cpus, &mems, pid, unified)),
    };
    let threads = of.task().map_or(0, |task| task.threads);
    Advice {
        sentence: sentence(format!(
            "{label} is limited to {} CPUs, all busy; its {threads} threads wait {} s of each second, and {} \
             other CPUs are idle.",
            cpus.len(),
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
        risk: "Fewer idle CPUs are left for other programs.".into(),
        or_else: vec![format!(
            "If the container has more threads than it needs (now {threads}), reduce their number."
        )],
    }
}
