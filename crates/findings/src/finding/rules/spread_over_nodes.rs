//! A process runs all over the machine although fewer nodes would do.

use super::super::fit::{best_set, cost_on, mean_cost, memory_room};
use super::super::guards::{self, Placed};
use super::super::moves;
use super::super::rule::{Condition, Group, Hold, Limit, Rule, Seen, Unmet};
use super::super::text::{bytes, nodes, number, sentence};
use super::super::view::{SubjectRef, View, input};
use super::super::{Advice, Check, Command, Confidence, Note, Severity, SubjectKind, env, gain};
use super::remote_after_pin::RISK_OF_MOVE;
use super::spread_containers;
use crate::metric::placement::{MEM_PCT_BY_NODE, REMOTE_PCT};
use crate::metric::task::RUNQ_WAIT_PCT;
use crate::model::sample::CgroupMode;
use crate::model::units::NodeId;

pub(super) static RULE: Rule = Rule {
    id: "spread-over-nodes",
    title: "Spread over nodes, would fit on fewer",
    about: "An unbound process or group is spread over several nodes, and fits on fewer. The finding is a \
            warning if the kernel placed its memory. Containers count as a whole.",
    not_when: &[
        ("shards", "nothing shows that its threads use memory of other nodes"),
        ("interleave", "its policy interleaves memory or names nodes"),
        (
            "needs-all",
            "its load or its memory does not fit on fewer nodes; or other cpusets leave too few cores there \
             (only for containers with a cpuset)",
        ),
        ("bound", "its affinity or cpuset excludes some nodes"),
        ("converging", "its placement is changing"),
        ("shared", "20 % or more of its memory is shared other than through a large object of its group"),
        ("group", "the process shares a large object: its group is judged instead"),
        (
            "bandwidth",
            "each remaining node would get 50 memory accesses per us or more: more memory controllers serve \
             the process better",
        ),
        (
            "own-policies",
            "memory policies set the node of 80 % or more of its memory (20 % or more, or unknown policies: \
             only a note)",
        ),
        ("others-map-it", "processes that numatop-ng does not see also map the shared memory (only a note)"),
        ("vm", "the process is a virtual machine, which can have its own nodes (only a note)"),
    ],
    of: &[SubjectKind::Process, SubjectKind::Group, SubjectKind::Container],
    group: Group::Placement,
    gravest: Severity::Warning,
    needs: &[MEM_PCT_BY_NODE.id],
    hold: Hold::s(30.0),
    limits: &[
        Limit::least("remote", 20.0, "[S3]: pages are moved to their users when locality is below 80 %"),
        Limit::sharp("accesses", 50e6, "[S3]: Carrefour acts only above 50 accesses per us and node")
            .counted_in("/s"),
    ],
    idle_too: false,
    judge: &Condition { look, advise },
};

/// Where the memory is and should be.
pub(super) struct Facts {
    /// Nodes that would do.
    pub(super) to: Vec<NodeId>,
    /// Nodes where its memory is now.
    pub(super) from: Vec<NodeId>,
    /// Bytes that move.
    pub(super) bytes: f64,
    /// Nodes that it uses.
    pub(super) over: usize,
    /// Its remote share, percent.
    pub(super) remote: f64,
    /// CPUs of a container that would do.
    pub(super) cpus: Vec<u32>,
}

fn look(view: &View<'_>, of: &SubjectRef<'_>) -> Result<Seen<Facts>, Unmet> {
    if let SubjectRef::Container(row) = of {
        return spread_containers::look(view, of, row);
    }
    let (SubjectRef::Process(task) | SubjectRef::Group(task, _)) = of else { return Err(Unmet::Quiet) };
    let placed = guards::placed(view, of)?;
    let whole = view.whole_nodes();
    // Half of an even share where nodes are many.
    let share = 5.0f64.min(50.0 / whole.len().max(1) as f64);
    let used = placed.used(share);
    let ran = used.iter().filter(|node| placed.run_pct(&[**node]) >= share).count();
    if ran < 2 || !guards::is_large(view, &placed) || !task.raw.mempolicy.is_default() {
        return Err(Unmet::Quiet);
    }
    let Ok(remote) = view.number(&REMOTE_PCT, of) else { return Err(Unmet::Quiet) };
    if remote < view.limit("remote")
        || view.is_in_group(of)
        || matches!(of, SubjectRef::Group(_, group) if !group.is_free)
    {
        return Err(Unmet::Quiet);
    }
    let cpus = input(task.cpu_nodes, "its allowed nodes are not known")?;
    let mems = input(task.mem_nodes, "its allowed memory nodes are not known")?;
    if !whole.iter().all(|node| node.0 < 64 && cpus >> node.0 & mems >> node.0 & 1 == 1) {
        return Err(Unmet::Quiet);
    }
    // A list of CPUs is its container's, which is then the subject.
    if view.container_of(of).is_some_and(|row| spread_containers::has_cpuset(view, row)) {
        return Err(Unmet::Quiet);
    }
    if guards::is_own_memory(of) != Some(true) {
        return Err(Unmet::Excused("shared"));
    }
    if guards::is_moving(view, of, &placed) {
        return Err(Unmet::Excused("converging"));
    }
    let Some(witness) = guards::witness(view, of, &placed) else { return Err(Unmet::Quiet) };
    let Some(set) = best_set(view, of, &placed, used.len(), &whole) else { return Err(Unmet::Quiet) };
    let rest = 100.0 * (1.0 - 1.0 / set.len() as f64);
    if remote - rest < view.limit("remote") {
        return Err(Unmet::Quiet);
    }
    if guards::accesses_per_s(view, of) >= view.limit("accesses") * set.len() as f64 {
        return Err(Unmet::Excused("bandwidth"));
    }
    let sure = remote - placed.error - rest >= view.limit("remote");
    // All of its nodes are home, so memory intended for one of them is not elsewhere.
    let elsewhere = guards::elsewhere(view, of, &placed, &[]);
    if elsewhere.is_some_and(|elsewhere| elsewhere.kernel < view.limit("remote")) {
        return Err(Unmet::Excused("own-policies"));
    }
    let is_machine = task.raw.comm.bytes().starts_with(b"qemu-");
    let has_others = matches!(of, SubjectRef::Group(_, group) if group.has_unknown_users);
    let is_known = elsewhere
        .is_some_and(|elsewhere| guards::is_misplaced(view, of, &elsewhere, rest, view.limit("remote")));
    let is_warned = is_known && !has_others && !is_machine;
    let meant = guards::kernel_places(view, of).filter(|_| is_warned);
    let from: Vec<NodeId> = placed.sources(&set).into_iter().filter(|node| whole.contains(node)).collect();
    let away = placed.outside(&set);
    let subject = of.subject();
    let limit = rest + view.limit("remote");
    let shown = if witness.metric == REMOTE_PCT.id { witness.value } else { remote };
    let mut evidence = match witness.metric == REMOTE_PCT.id {
        // Counted or sampled: the value is that of the witness, with its error.
        true => vec![witness.limit(limit)],
        false => {
            let first = view.evidence(REMOTE_PCT.id, subject, remote).error(placed.error);
            vec![first.limit(limit).note(Note::Placement), witness]
        }
    };
    evidence.push(
        view.evidence("mem_free_bytes", super::super::Subject::Node(set[0]), memory_room(view, &set))
            .limit(away)
            .note(Note::Room)
            .over_nodes(&set),
    );
    let severity = if is_warned { Severity::Warning } else { Severity::Info };
    evidence.extend(meant);
    Ok(Seen {
        severity,
        confidence: if sure { Confidence::Estimated } else { Confidence::Suspected },
        evidence,
        facts: Facts { to: set, from, bytes: away, over: used.len(), remote: shown, cpus: Vec::new() },
    })
}

/// Processes of a group that are bound by a line each.
const BOUND_MAX: usize = 8;

fn advise(view: &View<'_>, of: &SubjectRef<'_>, seen: &Seen<Facts>) -> Advice {
    if let SubjectRef::Container(row) = of {
        return spread_containers::advise(view, of, row, seen);
    }
    let (Some(task), Ok(placed)) = (of.task(), guards::placed(view, of)) else { return Advice::default() };
    let Facts { to, from, .. } = &seen.facts;
    let unified = view.snapshot.host.cgroups.map(|cgroups| cgroups.mode == CgroupMode::V2);
    let environment = view.env(of);
    let cpus = view.cpus_of_nodes(to);
    // Without a container of their own each is bound.
    let pids: Vec<u32> = match of {
        SubjectRef::Group(_, group) if group.container.is_none() => {
            let members = group.members.iter().take(BOUND_MAX);
            members.map(|at| view.snapshot.tasks[*at].raw.pid).collect()
        }
        _ => vec![task.raw.pid],
    };
    let bind = |cpus: &[u32], nodes: &[NodeId]| -> Vec<Command> {
        let of_each = pids.iter().map(|pid| env::bind(&environment, cpus, nodes, Some(*pid), unified));
        of_each.flatten().collect()
    };
    let mut commands = bind(&cpus, to);
    if !env::memory_follows(&environment, unified) {
        let words = format!("moves {} to {}", bytes(seen.facts.bytes), nodes(to));
        commands.extend(moves::there(view, of, from, to, &words));
    }
    let all = view.whole_nodes();
    let undo = bind(&view.cpus_of_nodes(&all), &all);
    let subject = Subject {
        runs: moves::who_runs(view, of).0,
        placed: &placed,
        remote: REMOTE_PCT.id,
        or_else: "If its threads use only memory of their own node, hint_remote_pct is near 0 and \
                  node_migrations_per_s is low.",
    };
    advise_fewer(view, of, seen, &subject, commands, undo)
}

/// A process or a container that would fit on fewer nodes.
pub(super) struct Subject<'a> {
    /// As the sentence begins, with its verb.
    pub runs: String,
    pub placed: &'a Placed,
    /// Metric of its share on other nodes.
    pub remote: &'static str,
    /// Another reading of the same numbers.
    pub or_else: &'static str,
}

/// The finding about either.
pub(super) fn advise_fewer(
    view: &View<'_>,
    of: &SubjectRef<'_>,
    seen: &Seen<Facts>,
    subject: &Subject<'_>,
    commands: Vec<Command>,
    undo: Vec<Command>,
) -> Advice {
    let (Facts { to, over, .. }, placed, remote) = (&seen.facts, subject.placed, seen.facts.remote);
    // Accesses may be known, and are no share of memory.
    let memory = if matches!(of, SubjectRef::Container(_)) { remote } else { 100.0 * placed.remote_part() };
    let [whose, they, need] = match of {
        SubjectRef::Group(..) => ["their", "they run", "they need"],
        _ => ["its", "it runs", "it needs"],
    };
    let rest = 100.0 * (1.0 - 1.0 / to.len().max(1) as f64);
    // A group has no row: its busiest process is watched.
    let (watched, row) = match moves::witness(view, of) {
        Some((process, task)) => (process, SubjectRef::Process(task)),
        None => (of.subject(), *of),
    };
    let is_process = matches!(row, SubjectRef::Process(_));
    let from = view.number(&REMOTE_PCT, &row).ok().filter(|_| is_process).unwrap_or(remote);
    let wait = view.number(&RUNQ_WAIT_PCT, &row).unwrap_or(0.0);
    let check =
        |metric, from, to, below| Check { metric, of: watched.clone(), from, to, below, within_s: 60.0 };
    Advice {
        sentence: sentence(format!(
            "{} on {over} nodes, and {} % of {whose} memory is remote from where {they}; {need} {} CPUs and \
             {}: {} would do.",
            subject.runs,
            number(memory),
            number(view.need(of)),
            bytes(placed.memory()),
            nodes(to)
        )),
        gain: gain_on_fewer(view, of, placed, to),
        commands,
        undo: env::at_once(undo),
        check: vec![check(subject.remote, from, (rest + 2.0 * placed.error).max(5.0), true)],
        stop: vec![check(RUNQ_WAIT_PCT.id, wait, wait + view.cpus(&row) * 10.0, false)],
        risk: format!(
            "Fewer memory controllers and caches serve the program, which gets slower near their limits. \
             {RISK_OF_MOVE}"
        ),
        or_else: moves::other_users(of).into_iter().chain([subject.or_else.to_owned()]).collect(),
    }
}

/// The gain of bringing everything to these nodes.
fn gain_on_fewer(view: &View<'_>, of: &SubjectRef<'_>, placed: &Placed, to: &[NodeId]) -> gain::Gain {
    if to.len() == 1 {
        let elsewhere = guards::elsewhere(view, of, placed, to);
        let stays = elsewhere.map_or(0.0, |elsewhere| elsewhere.stays());
        if let Some(gain) = moves::gain_by_accesses(view, of, placed, stays) {
            return gain;
        }
    }
    let now = mean_cost(view, &placed.run, &placed.bytes).unwrap_or(1.0);
    let then = cost_on(view, placed, to).unwrap_or(now);
    moves::gain_by_cost(view, of, now, then)
}
