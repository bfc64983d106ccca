//! Two containers are bound to the same cores while others idle.

use std::collections::BTreeSet;

use super::super::cores::{self, Core};
use super::super::gain::{self, Arithmetic, Gain};
use super::super::rule::{Condition, Group, Hold, Limit, Rule, Seen, Unmet};
use super::super::text::sentence;
use super::super::view::{SubjectRef, View, cpus_of_files, mems_of_files};
use super::super::{Advice, Check, Confidence, Evidence, Severity, Subject, SubjectKind, env};
use super::waiting;
use crate::metric::task::{CPU_PCT, RUNQ_WAIT_PCT, SMT_BUSY_PCT};
use crate::model::sample::CgroupMode;
use crate::model::units::NodeId;
use crate::snapshot::Container;

/// CPUs that both must use: the threshold of significance of all rules (S2).
const MATTERS_CPUS: f64 = 0.5;

pub(super) static RULE: Rule = Rule {
    id: "shared-cores",
    title: "Two containers share cores",
    about: "The cpusets of two containers name the same cores, and both containers slow each other down. The \
            finding is a warning if cores outside all cpusets are idle.",
    not_when: &[
        (
            "pool",
            "both cpusets are equal: a shared pool, as the kubelet makes for pods without their own CPUs",
        ),
        ("nested", "one container contains the other"),
        ("idle", "one of the containers uses less than half a CPU"),
        ("no-trouble", "neither container has busy siblings or waits for CPUs"),
        ("no-free-core", "too few idle cores are outside all cpusets (only a note)"),
    ],
    of: &[SubjectKind::Container],
    group: Group::Cpus,
    gravest: Severity::Warning,
    // Without siblings two cpusets may still name the same CPUs.
    needs: &[RUNQ_WAIT_PCT.id],
    hold: Hold::s(60.0),
    limits: &[
        Limit::least(
            "busy",
            30.0,
            "estimate: 30 % of its time; by chance, siblings are busy together less \
                                    often",
        ),
        Limit::least("wait", 10.0, "estimate: 10 % of its CPU time"),
    ],
    idle_too: false,
    judge: &Condition { look, advise },
};

/// CPUs of a container's own cpuset, which has fewer than all.
fn own(view: &View<'_>, row: &Container) -> Option<BTreeSet<u32>> {
    if !cores::is_container(&SubjectRef::Container(row)) {
        return None;
    }
    let list = cpus_of_files(row.raw.as_deref()?)?;
    let online = view.topology().online_cpus().count();
    (!list.is_empty() && list.len() < online).then(|| list.into_iter().collect())
}

/// Whether one is below the other.
fn is_nested(view: &View<'_>, a: &Container, b: &Container) -> bool {
    let rows = &view.snapshot.containers;
    let is_below = |row: &Container, id: u64| row.and_above(rows).skip(1).any(|above| above.id == id);
    is_below(a, b.id) || is_below(b, a.id)
}

/// CPUs of a core of `theirs` that the first list names, too, or has a sibling of.
fn common(view: &View<'_>, mine: &BTreeSet<u32>, theirs: &BTreeSet<u32>) -> BTreeSet<u32> {
    let met = |core: &&Core| {
        core.cpus.iter().any(|cpu| mine.contains(cpu)) && core.cpus.iter().any(|cpu| theirs.contains(cpu))
    };
    let all = cores::cores(view);
    all.iter()
        .filter(met)
        .flat_map(|core| core.cpus.iter().copied())
        .filter(|cpu| mine.contains(cpu))
        .collect()
}

/// Time beside busy siblings in percent of its time, and its waits in percent of a CPU and of its CPU time.
struct Trouble {
    cpus: f64,
    busy: f64,
    wait: f64,
}

impl Trouble {
    fn of(view: &View<'_>, of: &SubjectRef<'_>) -> Trouble {
        Trouble {
            cpus: view.cpus(of),
            busy: view.number(&SMT_BUSY_PCT, of).unwrap_or(0.0),
            wait: view.number(&RUNQ_WAIT_PCT, of).unwrap_or(0.0),
        }
    }

    fn waits(&self, limit: f64) -> bool {
        self.wait >= self.cpus * limit
    }
}

/// The container that shares most of its CPUs, among those found after it: a pair is one finding.
fn other<'a>(view: &View<'a>, row: &Container, mine: &BTreeSet<u32>) -> Option<&'a Container> {
    let now = waiting::now(view);
    // Few use half a CPU: lists of others are not read.
    let busy = view
        .snapshot
        .containers
        .iter()
        .filter(|other| other.id > row.id && now.cpus(&SubjectRef::Container(other)) >= MATTERS_CPUS);
    let pairs = busy.filter_map(|other| {
        let theirs = own(view, other)?;
        let met = common(view, mine, &theirs);
        let pair = !met.is_empty() && theirs != *mine && !is_nested(view, row, other);
        pair.then_some((other, met.len()))
    });
    pairs.max_by(|a, b| a.1.cmp(&b.1).then(b.0.id.cmp(&a.0.id))).map(|(other, _)| other)
}

/// Idle cores that no cpuset names, on the nodes of these CPUs first.
fn free(view: &View<'_>, near: &BTreeSet<u32>) -> Vec<Core> {
    let near: Vec<u32> = near.iter().copied().collect();
    let mut nodes: Vec<NodeId> = view.nodes_of_cpus(&near).into_iter().collect();
    let others: Vec<NodeId> = view.whole_nodes().into_iter().filter(|node| !nodes.contains(node)).collect();
    nodes.extend(others);
    let named = cores::named_cpus(view);
    let is_free = |core: &Core| !core.cpus.iter().any(|cpu| named.contains(cpu));
    cores::idle_cores(view, &nodes).into_iter().filter(is_free).collect()
}

/// The neighbour, and where one of the two could go.
struct Facts {
    /// The other container.
    other: u64,
    /// CPUs to bind the smaller one to, none where none are free.
    cpus: Vec<u32>,
    /// Idle cores in no cpuset.
    free: usize,
    /// They share cores; else they wait for CPUs.
    siblings: bool,
    /// Metric of the trouble.
    metric: &'static str,
    /// Its value.
    value: f64,
}

fn look(view: &View<'_>, of: &SubjectRef<'_>) -> Result<Seen<Facts>, Unmet> {
    let SubjectRef::Container(row) = of else { return Err(Unmet::Quiet) };
    let its = Trouble::of(view, of);
    if its.busy < view.limit("busy") && !its.waits(view.limit("wait")) {
        return Err(Unmet::Quiet);
    }
    let Some(mine) = own(view, row) else { return Err(Unmet::Quiet) };
    let Some(other) = other(view, row, &mine) else { return Err(Unmet::Quiet) };
    let now = waiting::now(view);
    let theirs = Trouble::of(&now, &SubjectRef::Container(other));
    let siblings = its.busy.min(theirs.busy) >= view.limit("busy");
    let waits = its.waits(view.limit("wait")) && theirs.waits(view.limit("wait"));
    if !siblings && !waits {
        return Err(Unmet::Quiet);
    }
    let (mover, list) = mover(view, row, other, &mine);
    let free = free(view, &list);
    let cpus = cores::first_threads(&free, now.cpus(&SubjectRef::Container(mover)));
    let (subject, neighbour) = (of.subject(), Subject::Container(other.id));
    let of_them = |metric, of: Subject, value, limit| Evidence {
        over_ns: now.over_ns(),
        ..view.evidence(metric, of, value).limit(limit)
    };
    let evidence = if siblings {
        vec![
            view.evidence(SMT_BUSY_PCT.id, subject.clone(), its.busy).limit(view.limit("busy")),
            of_them(SMT_BUSY_PCT.id, neighbour.clone(), theirs.busy, view.limit("busy")),
        ]
    } else {
        let limit = |trouble: &Trouble| trouble.cpus * view.limit("wait");
        vec![
            view.evidence(RUNQ_WAIT_PCT.id, subject.clone(), its.wait).limit(limit(&its)),
            of_them(RUNQ_WAIT_PCT.id, neighbour.clone(), theirs.wait, limit(&theirs)),
        ]
    };
    let of_them = |subject: Subject, cpus: f64| Evidence {
        over_ns: now.over_ns(),
        ..view.evidence(CPU_PCT.id, subject, cpus * 100.0).limit(MATTERS_CPUS * 100.0)
    };
    let uses =
        [of_them(neighbour.clone(), theirs.cpus), view.evidence(CPU_PCT.id, subject, its.cpus * 100.0)];
    Ok(Seen {
        severity: if cpus.is_some() { Severity::Warning } else { Severity::Info },
        confidence: Confidence::Measured,
        evidence: evidence.into_iter().chain(uses).collect(),
        facts: Facts {
            other: other.id,
            cpus: cpus.unwrap_or_default(),
            free: free.len(),
            siblings,
            metric: if siblings { SMT_BUSY_PCT.id } else { RUNQ_WAIT_PCT.id },
            value: if siblings { its.busy } else { its.wait },
        },
    })
}

/// The smaller one of the two by its CPU time now, and its list.
fn mover<'a>(
    view: &View<'a>,
    row: &Container,
    other: &'a Container,
    mine: &BTreeSet<u32>,
) -> (&'a Container, BTreeSet<u32>) {
    let now = waiting::now(view);
    let at = view.rows.containers.get(&row.id).map(|at| &view.snapshot.containers[*at]);
    let first = at.unwrap_or(other);
    let uses = |row: &Container| now.cpus(&SubjectRef::Container(row));
    if uses(other) < uses(first) {
        (other, own(view, other).unwrap_or_default())
    } else {
        (first, mine.clone())
    }
}

fn advise(view: &View<'_>, of: &SubjectRef<'_>, seen: &Seen<Facts>) -> Advice {
    let SubjectRef::Container(row) = of else { return Advice::default() };
    let Facts { other, cpus, free, siblings, metric, value } = &seen.facts;
    let (siblings, value) = (*siblings, *value);
    let Some(other) = view.rows.containers.get(other).map(|at| &view.snapshot.containers[*at]) else {
        return Advice::default();
    };
    let Some(mine) = own(view, row) else { return Advice::default() };
    let now = waiting::now(view);
    let (its, theirs) = (Trouble::of(view, of), Trouble::of(&now, &SubjectRef::Container(other)));
    let label = |row: &Container| view.identity(&SubjectRef::Container(row)).label;
    let (mover, list) = mover(view, row, other, &mine);
    let moves = SubjectRef::Container(mover);
    // The finding is of the lower id, which stays the same while CPU times change; its words begin with the busier one.
    let (busier, met) = if mover.id == row.id {
        (other, common(view, &own(view, other).unwrap_or_default(), &mine).len())
    } else {
        (*row, common(view, &mine, &list).len())
    };
    let list: Vec<u32> = list.into_iter().collect();
    let unified = view.snapshot.host.cgroups.map(|cgroups| cgroups.mode == CgroupMode::V2);
    let environment = view.env(&moves);
    let mems = mover.raw.as_deref().and_then(mems_of_files).unwrap_or_else(|| view.whole_nodes());
    let bind = |cpus: &[u32]| env::bind(&environment, cpus, &mems, cores::pid(view, &moves), unified);
    let commands = if cpus.is_empty() { Vec::new() } else { bind(cpus) };
    let undo = if commands.is_empty() { Vec::new() } else { env::at_once(bind(&list)) };
    let used = its.cpus + theirs.cpus;
    let gain = if siblings {
        let busy = (its.cpus * its.busy + theirs.cpus * theirs.busy) / used.max(f64::MIN_POSITIVE) / 100.0;
        let (k, assumed) = gain::beside_sibling(view.topology());
        Gain {
            at_most: Some(used * busy * (1.0 - k)),
            of: Some(used),
            how: Some(Arithmetic::Siblings { busy, k }),
            assumes: vec![assumed],
            ..Gain::default()
        }
    } else {
        gain::waiting(used, (its.wait + theirs.wait) / 100.0, cpus.len() as f64)
    };
    let to = if siblings { 20.0 } else { value / 4.0 };
    Advice {
        sentence: sentence(format!(
            "{} and {} are pinned to the same cores: {met} CPUs of the first container share cores with the \
             second. {free} idle cores are in no cpuset.",
            label(busier),
            label(mover)
        )),
        gain,
        check: vec![Check { metric, of: of.subject(), from: value, to, below: true, within_s: 60.0 }]
            .into_iter()
            .filter(|_| !commands.is_empty())
            .collect(),
        stop: Vec::new(),
        risk: if commands.is_empty() {
            String::new()
        } else {
            "Fewer cores are idle for other programs, and clock rates fall when more cores are awake."
                .to_owned()
        },
        commands,
        undo,
        or_else: vec![format!(
            "If one of the containers has a low priority (cpu.weight, nice), the other loses little: runq_wait_pct \
             of {} would be near 0.",
            label(other)
        )],
    }
}
