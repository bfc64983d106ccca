//! A process waits for the CPUs that its affinity leaves it, and others are idle.

use super::super::command::{Command, Scope, When, line};
use super::super::rule::{Condition, Group, Hold, Limit, Rule, Seen, Unmet};
use super::super::text::{comm, number, sentence};
use super::super::view::{SubjectRef, View, cpus_of_files, need};
use super::super::{Advice, Check, Confidence, Note, Severity, SubjectKind, gain};
use super::waiting;
use crate::metric::interrupts::RUNQ_WAIT_BOUND_PCT;
use crate::metric::task::{RUNQ_WAIT_PCT, RUNQ_WAIT_US};
use crate::model::units::NodeId;
use crate::text::plural;

/// Nice value from which on a task is one that may wait.
const NICE: i32 = 10;

pub(super) static RULE: Rule = Rule {
    id: "bound-to-busy-cpus",
    title: "Bound to busy CPUs",
    about: "The CPUs of a process's affinity are busy and its threads wait, while other CPUs are idle. The \
            finding is only a note if the affinity contains all CPUs of a node.",
    not_when: &[
        ("cpuset", "the cpuset of its container has only these CPUs: see cpus-too-few"),
        ("isolated", "the idle CPUs are isolated"),
        ("short", "its waits last 1 ms or less, which is normal for the scheduler"),
        ("rt", "the process has a real-time policy"),
        ("nice", "the process has a nice value of 10 or more"),
        ("throttled", "a quota explains 20 % or more of its waits"),
    ],
    of: &[SubjectKind::Process],
    group: Group::Cpus,
    gravest: Severity::Warning,
    needs: &[RUNQ_WAIT_PCT.id, RUNQ_WAIT_BOUND_PCT.id],
    hold: Hold::s(30.0),
    limits: &[
        Limit::least("wait", 25.0, "estimate: a quarter of a CPU, the least time worth a finding"),
        Limit::least("share", 10.0, "estimate: 10 % of its CPU time"),
        Limit::sharp("idle", 1.0, "estimate: one CPU that could run the process").counted_in("CPUs"),
        Limit::sharp("grain", 1000.0, "[S17]: twice the scheduler's migration cost").counted_in("us"),
    ],
    // A process that waits all the time uses little.
    idle_too: true,
    judge: &Condition { look, advise },
};

/// Its waits, and idle CPUs.
struct Facts {
    /// Waits, percent of a CPU.
    wait: f64,
    /// CPUs that are idle.
    idle: f64,
    /// CPUs to allow.
    cpus: Vec<u32>,
}

fn look(view: &View<'_>, of: &SubjectRef<'_>) -> Result<Seen<Facts>, Unmet> {
    let SubjectRef::Process(task) = of else { return Err(Unmet::Quiet) };
    if need(view.number(&RUNQ_WAIT_PCT, of))? < view.limit("wait") {
        return Err(Unmet::Quiet);
    }
    let wait = need(view.number(&RUNQ_WAIT_BOUND_PCT, of))?;
    let used = view.cpus(of);
    if wait < view.limit("wait") || wait < used * view.limit("share") || waiting::is_real_time(task) {
        return Err(Unmet::Quiet);
    }
    let Ok(each_us) = view.number(&RUNQ_WAIT_US, of) else { return Err(Unmet::Quiet) };
    if each_us <= view.limit("grain") || task.raw.nice >= NICE {
        return Err(Unmet::Quiet);
    }
    let Some(now) = waiting::row_now(view, of) else { return Err(Unmet::Quiet) };
    if !waiting::is_bound(view, now) || waiting::is_throttled(now) {
        return Err(Unmet::Quiet);
    }
    let online = view.topology().online_cpus().count();
    if view.files_of(of).and_then(cpus_of_files).is_some_and(|cpus| cpus.len() < online) {
        return Err(Unmet::Quiet);
    }
    // The CPUs of its nodes are enough where one of them is idle: memory stays near.
    let may = task.cpu_nodes.unwrap_or(0);
    let own: Vec<NodeId> =
        view.whole_nodes().into_iter().filter(|node| node.0 < 64 && may >> node.0 & 1 == 1).collect();
    let free = |nodes: &[NodeId]| -> Vec<u32> {
        nodes.iter().flat_map(|node| waiting::free_cpus(view, *node)).collect()
    };
    let enough =
        |cpus: &Vec<u32>| waiting::busy(view, cpus).is_some_and(|(_, idle)| idle >= view.limit("idle"));
    let cpus = [free(&own), free(&view.whole_nodes())].into_iter().find(enough);
    let Some(cpus) = cpus else { return Err(Unmet::Quiet) };
    let idle = waiting::busy(view, &cpus).map_or(0.0, |(_, idle)| idle);
    // Of its leader; threads may differ.
    let allowed = task.raw.cpus_allowed as usize;
    let whole = view.cpus_of_nodes(&own).len() == allowed && own.len() < view.whole_nodes().len();
    let subject = of.subject();
    Ok(Seen {
        severity: if whole { Severity::Info } else { Severity::Warning },
        confidence: Confidence::Estimated,
        evidence: vec![
            view.evidence(RUNQ_WAIT_BOUND_PCT.id, subject.clone(), wait)
                .limit(view.limit("wait").max(used * view.limit("share")))
                .note(Note::Estimated),
            view.evidence(RUNQ_WAIT_US.id, subject, each_us).limit(view.limit("grain")),
        ],
        facts: Facts { wait, idle, cpus },
    })
}

fn advise(view: &View<'_>, of: &SubjectRef<'_>, seen: &Seen<Facts>) -> Advice {
    let Some(task) = of.task() else { return Advice::default() };
    let Facts { wait, idle, cpus } = &seen.facts;
    let (wait, idle) = (*wait, *idle);
    let online = view.topology().online_cpus().count() as u32;
    let allowed = task.raw.cpus_allowed;
    let which = if allowed > 0 && allowed < online {
        format!("the {} in its affinity", plural(allowed as usize, "CPU"))
    } else {
        "the CPUs in the affinity of its threads".to_owned()
    };
    let pid = task.raw.pid;
    let taskset = |cpus: &[u32]| {
        let words = line("taskset -acp").cpus(cpus).number(pid.into());
        Command::new(When::Now, Scope::Process, words, "")
    };
    // The list is known of a single thread on a single CPU only.
    let undo = if allowed == 1 && task.threads == 1 {
        taskset(&[task.raw.cpu])
    } else {
        let words = format!("restore the lists that taskset -acp {pid} prints now: save its output first");
        Command::words(When::Now, Scope::Process, words)
    };
    let all = view.number(&RUNQ_WAIT_PCT, of).unwrap_or(wait);
    Advice {
        sentence: sentence(format!(
            "{} waits {} s of each second for {which}, while {} other CPUs are idle.",
            comm(task.raw.comm),
            number(wait / 100.0),
            number(idle)
        )),
        gain: gain::waiting(view.cpus(of), wait / 100.0, idle),
        commands: vec![
            taskset(cpus),
            Command::words(
                When::ForGood,
                Scope::Process,
                "allow more CPUs where the affinity is set: taskset, numactl, CPUAffinity= of the unit, or \
                 settings of the program",
            ),
        ],
        undo: vec![undo],
        check: vec![Check {
            metric: RUNQ_WAIT_PCT.id,
            of: of.subject(),
            from: all,
            to: all / 4.0,
            below: true,
            within_s: 60.0,
        }],
        stop: Vec::new(),
        risk: "The threads then also use CPUs that the binding kept free of them.".into(),
        or_else: vec![
            "If other tasks use these CPUs, move those tasks instead: the Tasks view sorted by CPU shows them."
                .into(),
        ],
    }
}
