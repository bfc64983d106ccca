//! A process interleaves its memory over nodes, runs on one, and fits there.

use super::super::fit::memory_room;
use super::super::guards;
use super::super::rule::{Condition, Group, Hold, Limit, Rule, Seen, Unmet};
use super::super::text::{bytes, comm, pct, sentence};
use super::super::view::{SubjectRef, View, input};
use super::super::{Advice, Command, Confidence, Note, Scope, Severity, Subject, SubjectKind, When, env};
use super::remote_after_pin::{RISK_OF_MOVE, gain_of_memory};
use crate::metric::placement::{MEM_PCT_BY_NODE, REMOTE_PCT};
use crate::model::units::NodeId;

/// Children on other nodes that make a process a supervisor whose policy is for them.
const CHILDREN: usize = 5;

pub(super) static RULE: Rule = Rule {
    id: "interleaved-on-one-node",
    title: "Interleaved memory, used from one node",
    about: "A process interleaves its memory over several nodes but runs on one node that has room for all \
            of it.",
    not_when: &[
        (
            "bandwidth",
            "its node makes 50 memory accesses per us or more: several memory controllers serve them better",
        ),
        ("half", "its memory is larger than half of the node: interleaving keeps room on the node"),
        ("children", "five or more of its child processes run on other nodes: its policy is meant for them"),
        ("no-room", "its memory does not fit on the node where the process runs"),
        ("bound", "the process cannot use memory of the node where it runs"),
        ("shared", "20 % or more of its memory is shared with other processes"),
        ("moving", "its placement is changing"),
    ],
    of: &[SubjectKind::Process],
    group: Group::Placement,
    gravest: Severity::Info,
    needs: &[MEM_PCT_BY_NODE.id],
    hold: Hold::s(60.0),
    limits: &[
        Limit::least("remote", 20.0, "[S3]: pages are moved to their users when locality is below 80 %"),
        Limit::until("home", 95.0, 90.0, "estimate: all of its time, except short moves by the scheduler"),
        Limit::sharp("accesses", 50e6, "[S3]: Carrefour acts only above 50 accesses per us and node")
            .counted_in("/s"),
        Limit::sharp("half", 50.0, "estimate: the other half is left to other programs"),
    ],
    idle_too: false,
    judge: &Condition { look, advise },
};

/// Where its memory is and should be.
struct Facts {
    /// The node that it runs on.
    home: NodeId,
    /// Other nodes with its memory.
    from: Vec<NodeId>,
    /// Bytes that move.
    bytes: f64,
    /// Share of its memory on other nodes, percent.
    away_pct: f64,
    /// Nodes that its memory is spread over.
    over: usize,
}

fn look(view: &View<'_>, of: &SubjectRef<'_>) -> Result<Seen<Facts>, Unmet> {
    let SubjectRef::Process(task) = of else { return Err(Unmet::Quiet) };
    let whole = view.whole_nodes();
    let policy = task.raw.mempolicy;
    let over = whole.iter().filter(|node| node.0 < 64 && policy.nodes >> node.0 & 1 == 1).count();
    if !guards::is_interleaved(policy) || over < 2 {
        return Err(Unmet::Quiet);
    }
    let placed = guards::placed(view, of)?;
    let Some(home) = placed.home().filter(|home| whole.contains(home) && home.0 < 64) else {
        return Err(Unmet::Quiet);
    };
    let here = [home];
    let (ran, outside) = (placed.run_pct(&here), 100.0 - placed.memory_pct(&here));
    if ran < view.limit("home") || outside < view.limit("remote") || !guards::is_large(view, &placed) {
        return Err(Unmet::Quiet);
    }
    let mems = input(task.mem_nodes, "its allowed memory nodes are not known")?;
    if mems >> home.0 & 1 == 0 || guards::is_own_memory(of) != Some(true) {
        return Err(Unmet::Quiet);
    }
    let size = view.node(home).map_or(0.0, |row| row.raw.mem_total_bytes as f64);
    let (away, room) = (placed.outside(&here), memory_room(view, &here));
    if placed.memory() * 100.0 > size * view.limit("half") || away > room {
        return Err(Unmet::Quiet);
    }
    let child = |other: &&crate::snapshot::Task| {
        other.raw.ppid == task.raw.pid
            && other.raw.pid != task.raw.pid
            && other.home_node().is_some_and(|node| node != home)
    };
    if view.snapshot.tasks.iter().filter(child).count() >= CHILDREN || guards::is_moving(view, of, &placed) {
        return Err(Unmet::Quiet);
    }
    let row = input(view.node(home), "its node is not in the sample")?;
    let accesses = guards::node_accesses_per_s(view, row);
    if accesses.is_some_and(|count| count >= view.limit("accesses")) {
        return Err(Unmet::Quiet);
    }
    // Without counted accesses interleaving may be for the sum of the controllers.
    let sure = outside - placed.error >= view.limit("remote") && accesses.is_some();
    let from: Vec<NodeId> = placed.sources(&here).into_iter().filter(|node| whole.contains(node)).collect();
    let Some(first) = from.first().copied() else { return Err(Unmet::Quiet) };
    let subject = of.subject();
    Ok(Seen {
        severity: Severity::Info,
        confidence: if sure { Confidence::Estimated } else { Confidence::Suspected },
        evidence: vec![
            view.evidence(MEM_PCT_BY_NODE.id, subject.clone(), placed.memory_pct(&from))
                .error(placed.error)
                .limit(view.limit("remote"))
                .note(Note::Placement)
                .on(first)
                .over_nodes(&from),
            view.evidence("run_pct_by_node", subject, ran).limit(view.limit("home")).on(home),
            view.evidence("mem_free_bytes", Subject::Node(home), room).limit(away).note(Note::Room),
        ],
        facts: Facts { home, away_pct: placed.memory_pct(&from), from, bytes: away, over },
    })
}

fn advise(view: &View<'_>, of: &SubjectRef<'_>, seen: &Seen<Facts>) -> Advice {
    let (Some(task), Ok(placed)) = (of.task(), guards::placed(view, of)) else { return Advice::default() };
    let Facts { home, away_pct: away, .. } = seen.facts;
    let words = format!("moves {} to node {home}; new pages are still interleaved", bytes(seen.facts.bytes));
    let mut commands: Vec<Command> =
        env::move_memory(task.raw.pid, &seen.facts.from, &[home], words).into_iter().collect();
    let start = format!("start the program with numactl --preferred={home} in place of --interleave");
    commands.push(Command::words(When::NextStart, Scope::Process, start));
    Advice {
        sentence: sentence(format!(
            "{} interleaves its memory over {} nodes but runs on node {home}, where all of it fits.",
            comm(task.raw.comm),
            seen.facts.over
        )),
        gain: gain_of_memory(view, of, &placed, &[home]),
        commands,
        undo: vec![env::move_back(task.raw.pid, &placed, &[home], &seen.facts.from)],
        check: super::remote_falls(
            of.subject(),
            Some(view.number(&REMOTE_PCT, of).unwrap_or(away)),
            (2.0 * placed.error).max(5.0),
        ),
        stop: super::watermark_stop(view, &Subject::Node(home)),
        risk: format!("Only one memory controller then serves the process. {RISK_OF_MOVE}"),
        or_else: vec![format!(
            "If the process needs the bandwidth of several memory controllers, or will grow, interleaving is \
             right: {} of its memory is on other nodes.",
            pct(away)
        )],
    }
}
