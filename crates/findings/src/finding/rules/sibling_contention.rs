//! Threads share cores while other cores idle.

use super::super::command::{Command, Scope, When};
use super::super::cores::{self, Core};
use super::super::gain::{self, Arithmetic, Gain};
use super::super::rule::{Condition, Group, Hold, Limit, Rule, Seen, Unmet};
use super::super::text::{number, pct, sentence};
use super::super::view::{SubjectRef, View, input, need};
use super::super::{Advice, Check, Confidence, Evidence, Note, Severity, Subject, SubjectKind, env, guards};
use super::waiting;
use crate::metric::efficiency::{IPC_SMT_BUSY, IPC_SMT_IDLE};
use crate::metric::host::BUSY;
use crate::metric::placement::REMOTE_PCT;
use crate::metric::task::SMT_BUSY_PCT;
use crate::model::group::GroupKind;
use crate::model::sample::CgroupMode;
use crate::model::units::NodeId;
use crate::text::plural;

/// Share of its cycles in percent that each state of the siblings must have, so that its speed in both is known.
const STATE_PCT: f64 = 5.0;

pub(super) static RULE: Rule = Rule {
    id: "sibling-contention",
    title: "Threads share cores despite idle cores",
    about: "A process or container shares its cores with busy SMT siblings for half of its time while whole \
            cores of its nodes are idle. The finding is a warning if counters show the cost, or its affinity \
            has too few cores.",
    not_when: &[
        ("no-idle-core", "too few whole cores are idle among its allowed CPUs, or outside all cpusets"),
        ("fast", "busy siblings do not slow it: IPC stays at 90 % or more"),
        ("fast-change", "siblings are busy only now and then: normal scheduling"),
        ("shared", "the siblings run another container: see shared-cores"),
        ("one-thread-per-core", "cores have one thread each"),
        ("isolated", "the idle cores are isolated"),
    ],
    of: &[SubjectKind::Process, SubjectKind::Container],
    group: Group::Cpus,
    gravest: Severity::Warning,
    // A machine without siblings does not count as lacking data.
    needs: &[],
    hold: Hold::s(60.0),
    limits: &[
        Limit::least(
            "busy",
            50.0,
            "estimate: half of its time; by chance, two threads on four cores share a core less often",
        ),
        Limit::sharp(
            "speed",
            90.0,
            "[S1]: two threads of a core together do 1.2 to 1.6 times the work of one, 60 to 80 % each",
        ),
    ],
    idle_too: false,
    judge: &Condition { look, advise },
};

/// Instructions per cycle with busy and with idle siblings; `None` where it was not long enough in both states.
pub(super) fn counted(view: &View<'_>, of: &SubjectRef<'_>) -> Option<(f64, f64)> {
    let [idle, busy] = of.task()?.delta.by_sibling.map(|state| state.cycles as f64);
    if idle.min(busy) * 100.0 < (idle + busy) * STATE_PCT {
        return None;
    }
    let (busy, idle) = (view.number(&IPC_SMT_BUSY, of).ok()?, view.number(&IPC_SMT_IDLE, of).ok()?);
    (idle > 0.0).then_some((busy, idle))
}

/// The same of this process, or of another one with its name in the last interval.
fn speeds(view: &View<'_>, of: &SubjectRef<'_>) -> Option<(f64, f64)> {
    counted(view, of).or_else(|| {
        let SubjectRef::Process(task) = of else { return None };
        let now = waiting::now(view);
        let mut peers = view.candidates().filter(|peer| {
            peer.raw.comm == task.raw.comm && peer.raw.uid == task.raw.uid && peer.raw.pid != task.raw.pid
        });
        peers.find_map(|peer| counted(&now, &SubjectRef::Process(peer)))
    })
}

/// Idle cores that it could use: of the nodes where it runs, and that it may use or no cpuset names.
fn idle_for(view: &View<'_>, of: &SubjectRef<'_>, restricted: bool) -> Result<Vec<Core>, Unmet> {
    let mut nodes = cores::nodes_in_use(of);
    if let SubjectRef::Process(task) = of {
        let mask = input(task.cpu_nodes, "its allowed nodes are not known")?;
        nodes.retain(|node| node.0 < u64::BITS && mask >> node.0 & 1 == 1);
    }
    let idle = cores::idle_cores(view, &nodes);
    if !restricted {
        return Ok(idle);
    }
    let (own, named) = (cores::own_cpus(view, of).unwrap_or_default(), cores::named_cpus(view));
    let may = |core: &Core| {
        core.cpus.iter().all(|cpu| own.contains(cpu)) || !core.cpus.iter().any(|cpu| named.contains(cpu))
    };
    Ok(idle.into_iter().filter(may).collect())
}

/// Whether its own affinity has both threads of a core, and fewer cores than it has busy threads.
fn contradicts_itself(view: &View<'_>, of: &SubjectRef<'_>, restricted: bool) -> bool {
    let (SubjectRef::Process(_), true) = (of, restricted) else { return false };
    let Some(own) = cores::own_cpus(view, of) else { return false };
    let of_group = view.files_of(of).and_then(super::super::view::cpus_of_files);
    if of_group.is_some_and(|list| list == own) {
        return false;
    }
    let here = |core: &Core| core.cpus.iter().filter(|cpu| own.contains(cpu)).count();
    let named: Vec<usize> = cores::cores(view).iter().map(here).filter(|cpus| *cpus > 0).collect();
    // Two busy threads use somewhat less than two CPUs.
    named.iter().any(|cpus| *cpus > 1) && view.cpus(of) >= named.len() as f64 * 1.25
}

/// Its busy siblings, and cores that are idle.
struct Facts {
    /// Share of its time beside a busy sibling, percent.
    busy: f64,
    /// Cores that are idle.
    idle: usize,
    /// CPUs to bind it to.
    cpus: Vec<u32>,
}

fn look(view: &View<'_>, of: &SubjectRef<'_>) -> Result<Seen<Facts>, Unmet> {
    if !view.topology().smt() || matches!(of, SubjectRef::Container(_)) && !cores::is_container(of) {
        return Err(Unmet::Quiet);
    }
    let busy = need(view.number(&SMT_BUSY_PCT, of))?;
    if busy < view.limit("busy") || view.container_of(of).is_some_and(|row| row.smt_shared_cpus > Some(0)) {
        return Err(Unmet::Quiet);
    }
    // Without its files the siblings may be those of another container.
    let unread = |row: &crate::snapshot::Container| {
        matches!(row.kind(), GroupKind::Container | GroupKind::Pod | GroupKind::Machine) && row.raw.is_none()
    };
    if view.container_of(of).is_some_and(unread) {
        return Err(waiting::unknown("the files of its container were not read"));
    }
    if !cores::any_idle(view, &cores::nodes_in_use(of)) {
        return Err(Unmet::Quiet);
    }
    let restricted = input(cores::is_restricted(view, of), "its allowed CPUs are not known")?;
    let idle = idle_for(view, of, restricted)?;
    if idle.len() < cores::needed(view.cpus(of) * busy / 200.0) {
        return Err(Unmet::Quiet);
    }
    let speeds = speeds(view, of);
    if speeds.is_some_and(|(busy, idle)| busy * 100.0 >= idle * view.limit("speed")) {
        return Err(Unmet::Quiet);
    }
    // A group with whole private cores was given them on purpose.
    let reserved = restricted
        && view.files_of(of).and_then(super::super::view::cpus_of_files).is_some_and(|list| {
            list.len() < view.topology().online_cpus().count() && cores::is_whole_cores(view, &list)
        });
    let contradicts = contradicts_itself(view, of, restricted);
    let subject = of.subject();
    let mut evidence: Vec<Evidence> = vec![
        view.evidence(SMT_BUSY_PCT.id, subject.clone(), busy).limit(view.limit("busy")),
        view.evidence(
            BUSY.id,
            Subject::Host,
            view.window.on_cpus.busy_ns as f64 * 100.0 / view.over_ns().max(1) as f64,
        ),
    ];
    if let Some((beside, alone)) = speeds {
        evidence.push(
            view.evidence(IPC_SMT_BUSY.id, subject.clone(), beside)
                .limit(alone * view.limit("speed") / 100.0)
                .note(Note::AtMost),
        );
        evidence.push(view.evidence(IPC_SMT_IDLE.id, subject, alone).note(Note::Compare));
    }
    Ok(Seen {
        severity: if !reserved && (speeds.is_some() || contradicts) {
            Severity::Warning
        } else {
            Severity::Info
        },
        confidence: match (speeds, contradicts) {
            (Some(_), _) => Confidence::Measured,
            (None, true) => Confidence::Estimated,
            // It may be as fast beside a busy sibling.
            (None, false) => Confidence::Suspected,
        },
        evidence,
        facts: Facts { busy, idle: idle.len(), cpus: targets(view, of, &idle, restricted) },
    })
}

/// One CPU of as many cores as it needs: first of its assigned ones if known, then of idle ones.
fn targets(view: &View<'_>, of: &SubjectRef<'_>, idle: &[Core], restricted: bool) -> Vec<u32> {
    let mut all: Vec<Core> = Vec::new();
    if let Some(own) = cores::own_cpus(view, of).filter(|_| restricted) {
        let mine = |core: Core| Core {
            cpus: core.cpus.into_iter().filter(|cpu| own.contains(cpu)).collect(),
            ..core
        };
        all.extend(cores::cores(view).into_iter().map(mine).filter(|core| !core.cpus.is_empty()));
    }
    let new = idle.iter().filter(|core| !all.iter().any(|mine| core.cpus.contains(&mine.cpus[0])));
    let new: Vec<Core> = new.cloned().collect();
    all.extend(new);
    cores::first_threads(&all, view.need(of)).unwrap_or_default()
}

fn advise(view: &View<'_>, of: &SubjectRef<'_>, seen: &Seen<Facts>) -> Advice {
    let Facts { busy, idle, cpus } = &seen.facts;
    let (busy, idle) = (*busy, *idle);
    let speeds = speeds(view, of);
    let (uncounted, assumed) = gain::beside_sibling(view.topology());
    let k = speeds.map_or(uncounted, |(beside, alone)| (beside / alone).clamp(0.0, 1.0));
    let used = view.cpus(of);
    let unified = view.snapshot.host.cgroups.map(|cgroups| cgroups.mode == CgroupMode::V2);
    let (environment, pid, mems) = (view.env(of), cores::pid(view, of), cores::own_mems(view, of));
    let commands = match cpus.is_empty() {
        false => env::bind(&environment, cpus, &mems, pid, unified),
        true => Vec::new(),
    };
    let undo = match cores::own_cpus(view, of).filter(|_| !commands.is_empty()) {
        Some(own) => env::bind(&environment, &own, &mems, pid, unified).into_iter().next(),
        None if commands.is_empty() => None,
        None => Some(Command::words(
            When::Now,
            Scope::Process,
            "bind the process to its former CPUs (before the change, save the output of taskset -acp)",
        )),
    };
    let check = |metric, from, to, below| Check { metric, of: of.subject(), from, to, below, within_s: 30.0 };
    let mut checks = vec![check(SMT_BUSY_PCT.id, busy, 20.0, true)];
    checks.extend(
        speeds.map(|(beside, alone)| check(crate::metric::task::IPC.id, beside, alone * 0.95, false)),
    );
    let remote =
        view.remote_pct(of).ok().filter(|_| guards::placed(view, of).is_ok() && !commands.is_empty());
    Advice {
        sentence: sentence(format!(
            "{} shares cores with busy threads for {} of its time, while {} of {} {} idle.",
            cores::name(view, of),
            pct(busy),
            plural(idle, "core"),
            super::super::text::nodes(&sorted(cores::nodes_in_use(of))),
            if idle == 1 { "is" } else { "are" }
        )),
        gain: Gain {
            at_most: Some(used * busy / 100.0 * (1.0 - k)),
            of: Some(used),
            how: Some(Arithmetic::Siblings { busy: busy / 100.0, k }),
            assumes: if speeds.is_none() { vec![assumed] } else { Vec::new() },
            ..Gain::default()
        },
        check: if commands.is_empty() { Vec::new() } else { checks },
        stop: remote
            .map(|from| Check {
                metric: REMOTE_PCT.id,
                of: of.subject(),
                from,
                to: from + 10.0,
                below: false,
                within_s: 60.0,
            })
            .into_iter()
            .collect(),
        risk: if commands.is_empty() {
            String::new()
        } else {
            "Fewer cores are idle for other programs, and clock rates fall when more cores are awake."
                .to_owned()
        },
        commands,
        undo: undo.into_iter().collect(),
        or_else: vec![match speeds {
            Some((beside, alone)) => format!(
                "If its threads use the same data and gain from sharing a core, ipc_smt_busy ({}) is near \
                 ipc_smt_idle ({}).",
                number(beside),
                number(alone)
            ),
            None => "If its threads use the same data and gain from sharing a core, ipc_smt_busy is near \
                     ipc_smt_idle; neither is known here."
                .to_owned(),
        }],
    }
}

fn sorted(mut nodes: Vec<NodeId>) -> Vec<NodeId> {
    nodes.sort_unstable();
    nodes
}
