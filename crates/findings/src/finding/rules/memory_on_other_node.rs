//! A process runs on one node, and its memory is on another.

use super::super::fit::memory_room;
use super::super::guards;
use super::super::moves;
use super::super::rule::{Condition, Group, Hold, Limit, Rule, Seen, Unmet};
use super::super::text::{bytes, nodes, pct_with_error, sentence};
use super::super::view::{SubjectRef, View, input};
use super::super::{Advice, Confidence, Evidence, Note, Severity, Subject, SubjectKind};
use super::remote_after_pin::{RISK_OF_MOVE, gain_beside};
use crate::metric::access::MEM_TIME_REMOTE_PCT;
use crate::metric::balancing::HINT_REMOTE_PCT;
use crate::metric::placement::{MEM_PCT_BY_NODE, REMOTE_BEST_PCT, REMOTE_PCT};
use crate::model::units::NodeId;

pub(super) static RULE: Rule = Rule {
    id: "memory-on-other-node",
    title: "Its memory is on another node",
    about: "An unbound process or group runs on one node and has memory on others. The finding is a warning \
            if the kernel placed that memory and, where NUMA balancing is on, the memory is in use.",
    not_when: &[
        ("balancing-repairs", "its placement is already changing, by NUMA balancing or by hand"),
        ("cold", "nothing uses its memory on the other nodes"),
        ("no-room", "its memory does not fit on the node where the process runs"),
        ("policy", "its policy interleaves memory or names nodes"),
        ("bound", "its affinity or cpuset excludes some nodes"),
        ("two-thirds", "20 % or more of its time is on other nodes"),
        ("shared", "20 % or more of its memory is shared other than through a large object of its group"),
        ("group", "the process shares a large object: its group is judged instead"),
        (
            "bandwidth",
            "the process makes 50 memory accesses per us or more: a second memory controller serves it better",
        ),
        (
            "own-policies",
            "memory policies set the node of 80 % or more of its memory (20 % or more, or unknown policies: \
             only a note)",
        ),
        ("others-map-it", "processes that numatop-ng does not see also map the shared memory (only a note)"),
        (
            "unused",
            "NUMA balancing is on, and neither accesses nor hinting faults show use of this memory (only a \
             note)",
        ),
    ],
    of: &[SubjectKind::Process, SubjectKind::Group],
    group: Group::Placement,
    gravest: Severity::Warning,
    needs: &[MEM_PCT_BY_NODE.id],
    // If balancing is on, it repairs used memory: the longer time covers both cases.
    hold: Hold::s(60.0),
    limits: &[
        Limit::least("remote", 20.0, "[S3]: pages are moved to their users when locality is below 80 %"),
        Limit::sharp("home", 80.0, "[S3]: the same share for CPU time"),
        Limit::sharp("accesses", 50e6, "[S3]: Carrefour acts only above 50 accesses per us and node")
            .counted_in("/s"),
    ],
    idle_too: false,
    judge: &Condition { look, advise },
};

/// Where its memory is and should be.
struct Facts {
    /// The node that it runs on.
    home: NodeId,
    /// Nodes where its memory is now.
    from: Vec<NodeId>,
    /// Bytes that move.
    bytes: f64,
    /// Share of its memory there, percent.
    share: f64,
    /// The least remote share that it can have, percent.
    best: f64,
}

fn look(view: &View<'_>, of: &SubjectRef<'_>) -> Result<Seen<Facts>, Unmet> {
    let (SubjectRef::Process(task) | SubjectRef::Group(task, _)) = of else { return Err(Unmet::Quiet) };
    let placed = guards::placed(view, of)?;
    let Some(home) = placed.home() else { return Err(Unmet::Quiet) };
    let here = [home];
    let outside = 100.0 - placed.memory_pct(&here);
    if placed.run_pct(&here) < view.limit("home")
        || outside < view.limit("remote")
        || !guards::is_large(view, &placed)
    {
        return Err(Unmet::Quiet);
    }
    let best = view.number(&REMOTE_BEST_PCT, of).unwrap_or(0.0);
    let remote = view.number(&REMOTE_PCT, of).unwrap_or(outside);
    if remote - best < view.limit("remote") {
        return Err(Unmet::Quiet);
    }
    if view.is_in_group(of) {
        return Err(Unmet::Quiet);
    }
    if !task.raw.mempolicy.is_default() {
        return Err(Unmet::Excused("policy"));
    }
    if matches!(of, SubjectRef::Group(_, group) if !group.is_free) {
        return Err(Unmet::Excused("bound"));
    }
    let cpus = input(task.cpu_nodes, "its allowed nodes are not known")?;
    let mems = input(task.mem_nodes, "its allowed memory nodes are not known")?;
    let whole = view.whole_nodes();
    if !whole.iter().all(|node| node.0 < 64 && cpus >> node.0 & mems >> node.0 & 1 == 1)
        || !whole.contains(&home)
    {
        return Err(Unmet::Excused("bound"));
    }
    if guards::is_own_memory(of) != Some(true) {
        return Err(Unmet::Excused("shared"));
    }
    if guards::is_moving(view, of, &placed) {
        return Err(Unmet::Excused("balancing-repairs"));
    }
    if guards::is_cold(view, of, &placed) {
        return Err(guards::cold());
    }
    let elsewhere = guards::elsewhere(view, of, &placed, &here);
    if elsewhere.is_some_and(|elsewhere| elsewhere.kernel < view.limit("remote")) {
        return Err(Unmet::Excused("own-policies"));
    }
    if guards::accesses_per_s(view, of) >= view.limit("accesses") {
        return Err(Unmet::Excused("bandwidth"));
    }
    // Memory that is meant to be elsewhere stays there.
    let away =
        elsewhere.map_or(placed.outside(&here), |elsewhere| placed.memory() * elsewhere.kernel / 100.0);
    let room = memory_room(view, &here);
    let sources = view.nodes_to_leave();
    let from: Vec<NodeId> = placed.sources(&here).into_iter().filter(|node| sources.contains(node)).collect();
    if away > room || from.is_empty() {
        return Err(Unmet::Excused("no-room"));
    }
    let witness = guards::witness(view, of, &placed);
    let sure = remote - placed.error - best >= view.limit("remote") && witness.is_some();
    let mut evidence = vec![
        view.evidence(MEM_PCT_BY_NODE.id, of.subject(), placed.memory_pct(&from))
            .error(placed.error)
            .limit(view.limit("remote"))
            .note(Note::Placement)
            .on(placed.most(&from).unwrap_or(from[0]))
            .over_nodes(&from),
        view.evidence("run_pct_by_node", of.subject(), placed.run_pct(&here))
            .limit(view.limit("home"))
            .on(home),
        view.evidence("mem_free_bytes", Subject::Node(home), room).limit(away).note(Note::Room),
    ];
    // Balancing repairs used memory: running in a single place is then no evidence.
    let balances =
        view.snapshot.machine.and_then(|machine| machine.numa_balancing).is_none_or(|mode| mode & 1 == 1);
    let of_use = [REMOTE_PCT.id, MEM_TIME_REMOTE_PCT.id, HINT_REMOTE_PCT.id];
    let is_used = |witness: &Evidence| of_use.contains(&witness.metric);
    let is_known = elsewhere
        .is_some_and(|elsewhere| guards::is_misplaced(view, of, &elsewhere, best, view.limit("remote")));
    let has_others = matches!(of, SubjectRef::Group(_, group) if group.has_unknown_users);
    let is_warned = is_known && !has_others && (!balances || witness.as_ref().is_some_and(is_used));
    let severity = if is_warned { Severity::Warning } else { Severity::Info };
    let meant = guards::kernel_places(view, of).filter(|_| is_warned);
    evidence.extend(witness);
    evidence.extend(meant);
    Ok(Seen {
        severity,
        confidence: if sure { Confidence::Estimated } else { Confidence::Suspected },
        evidence,
        facts: Facts { home, share: placed.memory_pct(&from), from, bytes: away, best },
    })
}

/// Other readings of its numbers.
const AWAY: &str = "Perhaps nothing uses that memory. If the scheduler moved the process here because the other \
                    node was full, cpu_pct of that node is 85 or more.";

fn advise(view: &View<'_>, of: &SubjectRef<'_>, seen: &Seen<Facts>) -> Advice {
    let (Some(task), Ok(placed)) = (of.task(), guards::placed(view, of)) else { return Advice::default() };
    let Facts { home, from, share, best, .. } = &seen.facts;
    let (to, share) = (&[*home][..], *share);
    let words = format!(
        "moves {} to {}; room for {}",
        bytes(seen.facts.bytes),
        nodes(to),
        bytes(memory_room(view, to))
    );
    let elsewhere = guards::elsewhere(view, of, &placed, to);
    let (mut commands, undo) = moves::all(view, of, &placed, (from, to), elsewhere, &words);
    commands.push(moves::next_start(to));
    let (runs, whose) = moves::who_runs(view, of);
    let (watched, row) = moves::witness(view, of).unwrap_or((of.subject(), task));
    let remote = view.number(&REMOTE_PCT, &SubjectRef::Process(row)).unwrap_or(share);
    Advice {
        sentence: sentence(format!(
            "{runs} on {}, and {} of {whose} memory is on {}.",
            nodes(to),
            pct_with_error(share, placed.error),
            nodes(from)
        )),
        gain: gain_beside(view, of, &placed, to, elsewhere.map_or(0.0, |elsewhere| elsewhere.stays())),
        commands,
        undo,
        check: super::remote_falls(watched, Some(remote), (best + 2.0 * placed.error).max(5.0)),
        stop: super::watermark_stop(view, &Subject::Node(to[0])),
        risk: RISK_OF_MOVE.into(),
        or_else: moves::other_users(of).into_iter().chain([AWAY.to_owned()]).collect(),
    }
}
