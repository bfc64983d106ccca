//! A process was pinned to nodes, and its memory stayed on others.

use super::super::fit::{mean_cost, memory_room};
use super::super::gain;
use super::super::guards::{self, Placed};
use super::super::moves;
use super::super::rule::{Condition, Group, Hold, Limit, Rule, Seen, Unmet};
use super::super::text::{bytes, nodes, pct_with_error, sentence};
use super::super::view::{SubjectRef, View, input};
use super::super::{
    Advice, Command, Confidence, Evidence, Note, Scope, Severity, Subject, SubjectKind, When, command, env,
};
use super::pinned_containers;
use crate::metric::balancing::HINT_REMOTE_PCT;
use crate::metric::pages::CROSS_NODE_FAULT_PCT;
use crate::metric::placement::{MEM_PCT_BY_NODE, REMOTE_PCT};
use crate::model::counters::Counter;
use crate::model::units::NodeId;
use crate::snapshot::Task;

pub(super) static RULE: Rule = Rule {
    id: "remote-after-pin",
    title: "Memory on other nodes after pinning",
    about: "A process, group or container is limited to some nodes and has 10 % of its memory on others, although \
            its nodes have room.",
    not_when: &[
        (
            "cold",
            "that memory is hardly used: accesses are local, or NUMA balancing scans find no use (only a note \
             until most of it has been scanned)",
        ),
        ("interleave", "its policy interleaves memory, or names a node that has none of its allowed CPUs"),
        ("still-going-out", "new memory is also allocated on other nodes"),
        ("mems-elsewhere", "the process cannot use memory of the nodes where it runs"),
        ("no-room", "its memory does not fit on the nodes where it runs"),
        ("moving", "its placement is already changing"),
        (
            "shared",
            "20 % or more of its memory is shared other than through a large object of its group (only \
             a note)",
        ),
        (
            "group",
            "the process shares a large object: its group is judged instead, or its container if the \
             container has a cpuset",
        ),
        ("others-map-it", "processes that numatop-ng does not see also map the shared memory (only a note)"),
        ("own-policies", "memory policies set the node of 90 % or more of its memory"),
        ("memory-only", "its remaining memory is on a node without CPUs"),
    ],
    of: &[SubjectKind::Process, SubjectKind::Group, SubjectKind::Container],
    group: Group::Placement,
    gravest: Severity::Warning,
    needs: &[MEM_PCT_BY_NODE.id],
    hold: Hold::s(30.0),
    limits: &[
        Limit::least("outside", 10.0, "estimate: the largest error of a placement that counts as known"),
        Limit::sharp("home", 99.0, "by definition: pinned means all of its time, except rounding"),
    ],
    idle_too: false,
    judge: &Condition { look, advise },
};

/// Allocations per second from which on their nodes say something, and the share on other nodes that means new memory goes
/// out.
const FAULTS: f64 = 100.0;
const GOING_OUT_PCT: f64 = 20.0;

/// The nodes that a process may run on, when these are not all.
pub(super) fn pinned_to(view: &View<'_>, task: &Task) -> Result<Option<Vec<NodeId>>, Unmet> {
    let mask = input(task.cpu_nodes, "its allowed nodes are not known")?;
    // Without a bit for each node a mask of all would look like a pin.
    input(view.masks_hold_all().then_some(()), "node ids above 63 do not fit in a mask")?;
    let nodes: Vec<NodeId> =
        view.whole_nodes().into_iter().filter(|node| node.0 < 64 && mask >> node.0 & 1 == 1).collect();
    Ok((!nodes.is_empty() && nodes.len() < view.whole_nodes().len()).then_some(nodes))
}

/// Whether its new memory goes to nodes other than it runs on.
pub(super) fn goes_out(view: &View<'_>, of: &SubjectRef<'_>) -> Option<bool> {
    let task = of.task()?;
    if view.snapshot.host_missing(CROSS_NODE_FAULT_PCT.id).is_some() {
        return None;
    }
    let per_s = view.window.rate(task.delta[Counter::UserAllocs]).ok()?;
    let share = view.number(&CROSS_NODE_FAULT_PCT, of).unwrap_or(0.0);
    Some(per_s >= FAULTS && share >= GOING_OUT_PCT)
}

/// Where the memory is and should be.
pub(super) struct Facts {
    /// Nodes that it may run on.
    pub(super) to: Vec<NodeId>,
    /// Nodes where its memory is now.
    pub(super) from: Vec<NodeId>,
    /// Bytes that move.
    pub(super) bytes: f64,
    /// Share of its memory there, percent.
    pub(super) behind: f64,
}

fn look(view: &View<'_>, of: &SubjectRef<'_>) -> Result<Seen<Facts>, Unmet> {
    if let SubjectRef::Container(row) = of {
        return pinned_containers::look(view, of, row);
    }
    let (SubjectRef::Process(task) | SubjectRef::Group(task, _)) = of else { return Err(Unmet::Quiet) };
    let Some(home) = pinned_to(view, task)? else { return Err(Unmet::Quiet) };
    // Members may be pinned to other nodes each.
    let is_as_one = !matches!(of, SubjectRef::Group(_, group) if !group.is_free);
    if view.is_in_group(of) || !is_as_one || pinned_containers::speaks_for(view, of) {
        return Err(Unmet::Quiet);
    }
    let placed = guards::placed(view, of)?;
    let outside = 100.0 - placed.memory_pct(&home);
    if placed.run_pct(&home) < view.limit("home")
        || outside < view.limit("outside")
        || !guards::is_large(view, &placed)
    {
        return Err(Unmet::Quiet);
    }
    let policy = task.raw.mempolicy;
    if guards::is_interleaved(policy) || guards::names_others(policy, &home) {
        return Err(Unmet::Quiet);
    }
    // A tier without CPUs was chosen on purpose: only other memory counts as left behind.
    let sources = view.nodes_to_leave();
    let from: Vec<NodeId> = placed.sources(&home).into_iter().filter(|node| sources.contains(node)).collect();
    let behind = placed.memory_pct(&from);
    if behind < view.limit("outside") {
        return Err(Unmet::Quiet);
    }
    let mems = input(task.mem_nodes, "its allowed memory nodes are not known")?;
    if !home.iter().any(|node| mems >> node.0 & 1 == 1) {
        return Err(Unmet::Quiet);
    }
    let bytes = placed.memory() * behind / 100.0;
    let room = memory_room(view, &home);
    if bytes > room || guards::is_moving(view, of, &placed) || goes_out(view, of) == Some(true) {
        return Err(Unmet::Quiet);
    }
    let elsewhere = guards::use_elsewhere(view, of, &placed);
    if elsewhere == guards::UseElsewhere::Cold {
        return Err(guards::cold());
    }
    let by_policy = guards::elsewhere(view, of, &placed, &home);
    if by_policy.is_some_and(|elsewhere| elsewhere.kernel < view.limit("outside")) {
        return Err(Unmet::Excused("own-policies"));
    }
    let own = guards::is_own_memory(of);
    let has_others = matches!(of, SubjectRef::Group(_, group) if group.has_unknown_users);
    let mut severity = Severity::Warning;
    // Pages moved for one process are moved for all that share them.
    if own != Some(true) || has_others || goes_out(view, of).is_none() {
        severity = Severity::Info;
    }
    // Scans that go on for longer than this may yet find that nothing uses it.
    let sure = behind - placed.error >= view.limit("outside") && elsewhere != guards::UseElsewhere::TooLittle;
    Ok(Seen {
        severity,
        confidence: if sure { Confidence::Estimated } else { Confidence::Suspected },
        evidence: stayed_behind(view, of, &placed, &home, (&from, behind), (room, bytes)),
        facts: Facts { to: home, from, bytes, behind },
    })
}

/// The values of memory that stayed behind. First the node with most memory and the share of all in percent,
/// then the time on the nodes where its owner may run. The last is the room there, beside the bytes that
/// would come.
pub(super) fn stayed_behind(
    view: &View<'_>,
    of: &SubjectRef<'_>,
    placed: &Placed,
    home: &[NodeId],
    (from, share): (&[NodeId], f64),
    (room, bytes): (f64, f64),
) -> Vec<Evidence> {
    let subject = of.subject();
    vec![
        view.evidence(MEM_PCT_BY_NODE.id, subject.clone(), share)
            .error(placed.error)
            .limit(view.limit("outside"))
            .note(Note::Placement)
            .on(placed.most(from).unwrap_or(home[0]))
            .over_nodes(from),
        view.evidence("run_pct_by_node", subject, placed.run_pct(home))
            .limit(view.limit("home"))
            .on(home[0])
            .over_nodes(home),
        view.evidence("mem_free_bytes", Subject::Node(home[0]), room)
            .limit(bytes)
            .note(Note::Room)
            .over_nodes(home),
    ]
}

/// The gain of moving all memory of a placement to these nodes.
pub(super) fn gain_of_memory(
    view: &View<'_>,
    of: &SubjectRef<'_>,
    placed: &Placed,
    to: &[NodeId],
) -> gain::Gain {
    gain_beside(view, of, placed, to, 0.0)
}

/// The same where a part of the memory elsewhere stays there, 0 to 1: that of accesses is then as large.
pub(super) fn gain_beside(
    view: &View<'_>,
    of: &SubjectRef<'_>,
    placed: &Placed,
    to: &[NodeId],
    stays: f64,
) -> gain::Gain {
    // With several nodes, a part of the remote memory stays remote.
    if let [home] = to {
        if let Some(time) = guards::time_elsewhere(view, of) {
            let away: Vec<f64> = (0..)
                .map(NodeId)
                .zip(&placed.bytes)
                .map(|(node, bytes)| if node == *home { 0.0 } else { *bytes })
                .collect();
            let far = mean_cost(view, &placed.run, &away).unwrap_or(1.0);
            let costs = gain::distances(view.topology());
            return gain::time_at_memory(view.cpus(of), far, time.cpu_pct() / 100.0, costs);
        }
        if let Some(gain) = moves::gain_by_accesses(view, of, placed, stays) {
            return gain;
        }
    }
    let now = mean_cost(view, &placed.run, &placed.bytes).unwrap_or(1.0);
    let then = mean_cost(view, &placed.run, &gain::evenly(to, placed.memory())).unwrap_or(1.0);
    moves::gain_by_cost(view, of, now, then)
}

/// The effects of moving memory that are not wanted.
pub(super) const RISK_OF_MOVE: &str = "Each page is unavailable while it is copied. Shared memory also moves for \
                                       the other processes that use it.";

fn advise(view: &View<'_>, of: &SubjectRef<'_>, seen: &Seen<Facts>) -> Advice {
    if let SubjectRef::Container(row) = of {
        return pinned_containers::advise(view, of, row, seen);
    }
    let (Some(task), Ok(placed)) = (of.task(), guards::placed(view, of)) else { return Advice::default() };
    let Facts { to, from, behind, .. } = &seen.facts;
    let (name, whose) = match of {
        SubjectRef::Group(..) => (format!("{},", view.identity(of).label), "their"),
        _ => (super::super::text::comm(task.raw.comm), "its"),
    };
    let free = memory_room(view, to);
    let words = format!("moves {} to {}; room for {}", bytes(seen.facts.bytes), nodes(to), bytes(free));
    let elsewhere = guards::elsewhere(view, of, &placed, to);
    let (mut commands, undo) = moves::all(view, of, &placed, (from, to), elsewhere, &words);
    let start = format!(
        "start the program with numactl --cpunodebind={} {}: pinning does not move existing pages",
        command::node_list(to),
        env::preferred(to)
    );
    commands.push(Command::words(When::NextStart, Scope::Process, start));
    let (watched, row) = moves::witness(view, of).unwrap_or((of.subject(), task));
    let node = Subject::Node(to[0]);
    let hint = match view.number(&HINT_REMOTE_PCT, of) {
        Ok(pct) => format!("If so, hint_remote_pct (now {}) is near 0.", super::super::text::pct(pct)),
        Err(_) => "Whether the memory is used cannot be checked: NUMA balancing does not scan this process."
            .to_owned(),
    };
    Advice {
        sentence: sentence(format!(
            "{name} can run only on {}, but {} of {whose} memory is on {}.",
            nodes(to),
            pct_with_error(*behind, placed.error),
            nodes(from)
        )),
        gain: gain_beside(view, of, &placed, to, elsewhere.map_or(0.0, |elsewhere| elsewhere.stays())),
        commands,
        undo,
        check: super::remote_falls(
            watched,
            view.number(&REMOTE_PCT, &SubjectRef::Process(row)).ok(),
            (2.0 * placed.error).max(5.0),
        ),
        stop: super::watermark_stop(view, &node),
        risk: RISK_OF_MOVE.into(),
        or_else: moves::other_users(of)
            .into_iter()
            .chain([format!("Perhaps nothing uses that memory. {hint}")])
            .collect(),
    }
}
