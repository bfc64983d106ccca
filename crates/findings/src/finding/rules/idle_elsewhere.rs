//! A process waits for CPUs of its node while another node idles.

use std::iter;

use super::super::fit::fits;
use super::super::rule::{Condition, Group, Hold, Limit, Rule, Seen, Unmet};
use super::super::text::{comm, number, pct, sentence};
use super::super::view::{SubjectRef, View, input, need};
use super::super::{Advice, Check, Confidence, Note, Severity, Subject, SubjectKind, env, gain, guards};
use super::remote_after_pin::RISK_OF_MOVE;
use super::waiting;
use crate::metric::balancing::NUMA_STUCK;
use crate::metric::interrupts::RUNQ_WAIT_IDLE_ELSEWHERE_PCT;
use crate::metric::placement::REMOTE_PCT;
use crate::metric::task::{RUNQ_WAIT_PCT, RUNQ_WAIT_US};
use crate::model::sample::CgroupMode;
use crate::model::units::NodeId;

pub(super) static RULE: Rule = Rule {
    id: "idle-elsewhere",
    title: "It waits while another node is idle",
    about: "Threads of an unbound process wait at least 0.25 s of each second for CPUs of a busy node while \
            another node is half idle. The finding is a warning if the process fits on the idle node.",
    not_when: &[
        (
            "bound",
            "an affinity or a cpuset limits the process, or threads that account for 20 % of its waits",
        ),
        ("isolated", "the idle CPUs are isolated"),
        ("short", "its waits last 1 ms or less, which is normal for the scheduler"),
        ("rt", "the process has a real-time policy"),
        ("throttled", "a quota explains 20 % or more of its waits"),
        (
            "balancing-places",
            "NUMA balancing keeps the process on the busy node, or fails to move it, at least once a second",
        ),
    ],
    of: &[SubjectKind::Process],
    group: Group::Cpus,
    gravest: Severity::Warning,
    needs: &[RUNQ_WAIT_PCT.id, RUNQ_WAIT_IDLE_ELSEWHERE_PCT.id],
    hold: Hold::s(30.0),
    limits: &[
        Limit::least("wait", 25.0, "estimate: a quarter of a CPU, the least time worth a finding"),
        Limit::least("share", 10.0, "estimate: 10 % of its CPU time"),
        Limit::until("busy", 85.0, 75.0, "[S2]: numad fills nodes to 85 %"),
        Limit::until(
            "idle",
            50.0,
            60.0,
            "estimate: if half of a node is idle, this is more than a gap between tasks",
        ),
        Limit::sharp("grain", 1000.0, "[S17]: twice the scheduler's migration cost").counted_in("us"),
        Limit::sharp("stuck", 1.0, "estimate: once a second is not chance").counted_in("/s"),
    ],
    idle_too: false,
    judge: &Condition { look, advise },
};

/// The two nodes, and what would move.
struct Facts {
    /// The node that it waits on.
    home: NodeId,
    /// The idle node.
    other: NodeId,
    /// Busy share of that node, percent.
    load: f64,
    /// Its waits, percent of a CPU.
    wait: f64,
    /// CPUs that are idle there.
    idle: f64,
    /// CPUs to bind it to, none where it does not fit.
    cpus: Vec<u32>,
    /// Nodes with its memory.
    from: Vec<NodeId>,
    /// Bytes that move.
    bytes: f64,
}

fn look(view: &View<'_>, of: &SubjectRef<'_>) -> Result<Seen<Facts>, Unmet> {
    let SubjectRef::Process(task) = of else { return Err(Unmet::Quiet) };
    if view.whole_nodes().len() < 2 || need(view.number(&RUNQ_WAIT_PCT, of))? < view.limit("wait") {
        return Err(Unmet::Quiet);
    }
    let wait = need(view.number(&RUNQ_WAIT_IDLE_ELSEWHERE_PCT, of))?;
    let cpus = view.cpus(of);
    if wait < view.limit("wait") || wait < cpus * view.limit("share") {
        return Err(Unmet::Quiet);
    }
    let Some(home) = task.home_node() else { return Err(Unmet::Quiet) };
    let Some((busy, _)) = waiting::busy(view, &view.cpus_of_nodes(&[home])) else { return Err(Unmet::Quiet) };
    let Some((other, load, idle)) = waiting::idlest_node(view, home) else { return Err(Unmet::Quiet) };
    if busy < view.limit("busy") || load > view.limit("idle") || waiting::is_real_time(task) {
        return Err(Unmet::Quiet);
    }
    let Ok(each_us) = view.number(&RUNQ_WAIT_US, of) else { return Err(Unmet::Quiet) };
    if each_us <= view.limit("grain") {
        return Err(Unmet::Quiet);
    }
    let may = input(task.cpu_nodes, "its allowed nodes are not known")?;
    let everywhere = view.whole_nodes().iter().all(|node| node.0 < 64 && may >> node.0 & 1 == 1);
    let Some(now) = waiting::row_now(view, of) else { return Err(Unmet::Quiet) };
    if !everywhere || waiting::is_bound(view, now) || waiting::is_throttled(now) {
        return Err(Unmet::Quiet);
    }
    let off = view.balancing_is_off();
    let stuck = match view.snapshot.host_missing(NUMA_STUCK.id) {
        None => view.number(&NUMA_STUCK, of).ok(),
        Some(_) => off.then_some(0.0),
    };
    if stuck.is_some_and(|stuck| stuck >= view.limit("stuck")) {
        return Err(Unmet::Quiet);
    }
    let sure = stuck.is_some() && waiting::knows_throttling(view, of);
    // Only memory without a policy may move.
    let mems = task.mem_nodes.unwrap_or(0);
    let free =
        view.whole_nodes().iter().all(|node| mems >> node.0 & 1 == 1) && task.raw.mempolicy.is_default();
    let placed = guards::placed(view, of).ok().filter(|_| free);
    let fits = placed.as_ref().filter(|placed| fits(view, of, placed, &[other]));
    let small = gain::waiting(cpus, wait / 100.0, idle).is_too_small(view.over);
    let subject = of.subject();
    let from = fits.map_or_else(Vec::new, |placed| placed.sources(&[other]));
    let whole = view.whole_nodes();
    Ok(Seen {
        severity: if fits.is_some() && !small { Severity::Warning } else { Severity::Info },
        confidence: if sure { Confidence::Estimated } else { Confidence::Suspected },
        evidence: vec![
            view.evidence(RUNQ_WAIT_IDLE_ELSEWHERE_PCT.id, subject.clone(), wait)
                .limit(view.limit("wait").max(cpus * view.limit("share")))
                .note(Note::Estimated),
            view.evidence("cpu_pct", Subject::Node(home), busy).limit(view.limit("busy")),
            view.evidence("cpu_pct", Subject::Node(other), load).limit(view.limit("idle")).note(Note::AtMost),
            view.evidence(RUNQ_WAIT_US.id, subject, each_us).limit(view.limit("grain")),
        ],
        facts: Facts {
            home,
            other,
            load,
            wait,
            idle,
            cpus: fits.map_or_else(Vec::new, |_| waiting::free_cpus(view, other)),
            bytes: fits.map_or(0.0, |placed| placed.outside(&[other])),
            from: from.into_iter().filter(|node| whole.contains(node)).collect(),
        },
    })
}

fn advise(view: &View<'_>, of: &SubjectRef<'_>, seen: &Seen<Facts>) -> Advice {
    let Some(task) = of.task() else { return Advice::default() };
    let Facts { home, other, load, wait, idle, .. } = seen.facts;
    let unified = view.snapshot.host.cgroups.map(|cgroups| cgroups.mode == CgroupMode::V2);
    let environment = view.env(of);
    let (mut commands, mut undo) = (Vec::new(), Vec::new());
    if !seen.facts.cpus.is_empty() {
        commands = env::bind(&environment, &seen.facts.cpus, &[other], Some(task.raw.pid), unified);
        if !env::memory_follows(&environment, unified) {
            let words = format!("moves {} to node {other}", super::super::text::bytes(seen.facts.bytes));
            commands.extend(env::move_memory(task.raw.pid, &seen.facts.from, &[other], words));
        }
        let all: Vec<NodeId> = view.whole_nodes();
        let back = env::bind(&environment, &view.cpus_of_nodes(&all), &all, Some(task.raw.pid), unified);
        undo.extend(env::at_once(back));
        let words = format!("moves its memory on node {other} back");
        undo.extend(env::move_memory(task.raw.pid, &[other], &seen.facts.from, words));
    }
    let all = view.number(&RUNQ_WAIT_PCT, of).unwrap_or(wait);
    let stop = view.number(&REMOTE_PCT, of).ok().filter(|_| !commands.is_empty()).map(|remote| Check {
        metric: REMOTE_PCT.id,
        of: of.subject(),
        from: remote,
        to: remote + 20.0,
        below: false,
        within_s: 60.0,
    });
    Advice {
        sentence: sentence(format!(
            "{} waits {} s of each second for CPUs of node {home}; node {other} is {} idle.",
            comm(task.raw.comm),
            number(wait / 100.0),
            pct(100.0 - load)
        )),
        gain: gain::waiting(view.cpus(of), wait / 100.0, idle),
        check: vec![Check {
            metric: RUNQ_WAIT_PCT.id,
            of: of.subject(),
            from: all,
            to: all / 4.0,
            below: true,
            within_s: 60.0,
        }],
        stop: stop.into_iter().collect(),
        risk: if commands.is_empty() {
            String::new()
        } else {
            format!("Node {other} then has less room for other programs. {RISK_OF_MOVE}")
        },
        commands,
        undo,
        or_else: iter::once(
            "The scheduler itself can be the cause: on wakeup, it does not balance across distances above \
             30. An affinity set per thread can be another: see cpus_allowed."
                .to_owned(),
        )
        .chain(view.or_else_scheduler())
        .collect(),
    }
}
