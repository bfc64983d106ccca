//! Memory that a process uses is on a node without CPUs, and its own node has room.

use super::super::command::{Command, Scope, When, line};
use super::super::fit::memory_room;
use super::super::rule::{Condition, Group, Hold, Limit, Rule, Seen, Unmet};
use super::super::text::{bytes, comm, nodes, pct_with_error, sentence};
use super::super::view::{SubjectRef, View, input};
use super::super::{Advice, Confidence, Note, Severity, Subject, SubjectKind, env, guards};
use super::remote_after_pin::{RISK_OF_MOVE, gain_of_memory};
use crate::metric::pages::BALANCING;
use crate::metric::placement::{MEM_PCT_BY_NODE, REMOTE_PCT};
use crate::metric::tiers::TIERING;
use crate::model::units::NodeId;

/// The least page: larger ones are counted as several.
const PAGE_BYTES: f64 = 4096.0;

pub(super) static RULE: Rule = Rule {
    id: "slow-tier-memory",
    title: "Memory in use on a node without CPUs",
    about: "10 % of a process's memory is on nodes without CPUs (CXL, persistent memory) and in use, although the \
            nodes where it runs have room.",
    not_when: &[
        (
            "unused",
            "nothing shows use of memory on other nodes: accesses are not counted, and hinting faults are few",
        ),
        ("policy", "its policy or its cpuset names the node without CPUs"),
        (
            "promoting",
            "the kernel promotes pages: NUMA balancing is in its tiering mode, and moves 1 % of the slow \
             pages in two minutes",
        ),
        ("cold", "nothing uses the slow memory: NUMA balancing scans it and finds no use"),
        ("no-room", "its memory does not fit on the node where it runs"),
        ("shared", "20 % or more of its memory is shared with other processes"),
    ],
    of: &[SubjectKind::Process],
    group: Group::Placement,
    gravest: Severity::Info,
    needs: &[MEM_PCT_BY_NODE.id],
    // Tiering promotes used memory in that time.
    hold: Hold::s(120.0),
    limits: &[Limit::least("share", 10.0, "estimate: the largest error of a placement that counts as known")],
    idle_too: false,
    judge: &Condition { look, advise },
};

/// Nodes with memory and no CPUs.
fn tiers(view: &View<'_>) -> Vec<NodeId> {
    view.topology().nodes.iter().filter(|node| view.topology().is_tier(node)).map(|node| node.id).collect()
}

/// Where its memory is and should be.
struct Facts {
    /// The node that it runs on.
    home: NodeId,
    /// Nodes without CPUs that have its memory.
    from: Vec<NodeId>,
    /// Bytes that move.
    bytes: f64,
    /// Share of its memory there, percent.
    share: f64,
}

fn look(view: &View<'_>, of: &SubjectRef<'_>) -> Result<Seen<Facts>, Unmet> {
    let (SubjectRef::Process(task), tiers) = (of, tiers(view)) else { return Err(Unmet::Quiet) };
    if tiers.is_empty() {
        return Err(Unmet::Quiet);
    }
    let placed = guards::placed(view, of)?;
    let Some(home) = placed.home().filter(|home| view.whole_nodes().contains(home)) else {
        return Err(Unmet::Quiet);
    };
    let share = placed.memory_pct(&tiers);
    if share < view.limit("share") || !guards::is_large(view, &placed) || !task.raw.mempolicy.is_default() {
        return Err(Unmet::Quiet);
    }
    let mems = input(task.mem_nodes, "its allowed memory nodes are not known")?;
    let all = view.topology().nodes.iter().all(|node| node.id.0 < u64::BITS && mems >> node.id.0 & 1 == 1);
    if !all || guards::is_own_memory(of) != Some(true) {
        return Err(Unmet::Quiet);
    }
    let mode = view.snapshot.machine.and_then(|machine| machine.numa_balancing);
    if mode.is_some_and(|mode| mode & TIERING != 0)
        && is_promoted(view, of, mode == Some(TIERING), &placed, &tiers)
    {
        return Err(Unmet::Quiet);
    }
    if guards::is_cold(view, of, &placed) {
        return Err(guards::cold());
    }
    // Hinting faults come in bursts: an interval may have none, the whole time must have some. Counted accesses that are
    // local say the contrary.
    let witness = guards::witness_of_use(view, of).filter(|witness| witness.value >= view.limit("share"));
    if witness.is_none() && !view.is_interval() {
        return Err(Unmet::Quiet);
    }
    let from: Vec<NodeId> = placed.sources(&[home]).into_iter().filter(|node| tiers.contains(node)).collect();
    let away = placed.memory() * placed.memory_pct(&from) / 100.0;
    let room = memory_room(view, &[home]);
    let Some(first) = from.first().copied().filter(|_| away <= room) else { return Err(Unmet::Quiet) };
    let sure = share - placed.error >= view.limit("share") && mode.is_some();
    Ok(Seen {
        severity: Severity::Info,
        confidence: if sure { Confidence::Estimated } else { Confidence::Suspected },
        evidence: [
            view.evidence(MEM_PCT_BY_NODE.id, of.subject(), share)
                .error(placed.error)
                .limit(view.limit("share"))
                .note(Note::Placement)
                .on(first)
                .over_nodes(&from),
            view.evidence("mem_free_bytes", Subject::Node(home), room).limit(away).note(Note::Room),
        ]
        .into_iter()
        .chain(witness)
        .collect(),
        facts: Facts { home, from, bytes: away, share },
    })
}

/// Whether balancing brings a hundredth of its slow pages nearer in the rule's time. Where balancing is for tiers only, all pages that
/// it moves are promoted; where it balances nodes too, any page may be.
fn is_promoted(
    view: &View<'_>,
    of: &SubjectRef<'_>,
    only_tiers: bool,
    placed: &guards::Placed,
    tiers: &[NodeId],
) -> bool {
    let Ok(pages) = view.number(&BALANCING, of) else { return false };
    let slow = placed.memory() * placed.memory_pct(tiers) / 100.0 / PAGE_BYTES;
    pages > 0.0 && (!only_tiers || pages * RULE.hold.on_s >= slow / 100.0)
}

fn advise(view: &View<'_>, of: &SubjectRef<'_>, seen: &Seen<Facts>) -> Advice {
    let (Some(task), Ok(placed)) = (of.task(), guards::placed(view, of)) else { return Advice::default() };
    let Facts { home, from, share, .. } = &seen.facts;
    let (home, share) = (*home, *share);
    let remote = view.number(&REMOTE_PCT, of).ok();
    let words = format!("moves {} to node {home}", bytes(seen.facts.bytes));
    let mut commands: Vec<Command> =
        env::move_memory(task.raw.pid, from, &[home], words).into_iter().collect();
    let mut undo = Vec::new();
    let mode = view.snapshot.machine.and_then(|machine| machine.numa_balancing);
    if let Some(mode) = mode.filter(|mode| mode & TIERING == 0) {
        let set = |mode: u32| line("sysctl -w").joined("kernel.numa_balancing=", &mode.to_string());
        // The bit for tiers is added to the current one: balancing of nodes does not change.
        let words = "promotes pages that are in use; echo 1 > /sys/kernel/mm/numa/demotion_enabled makes \
                     room for them";
        commands.push(Command::new(When::ForGood, Scope::Host, set(mode | TIERING), words));
        undo.push(Command::new(
            When::Now,
            Scope::Host,
            set(mode),
            "promoted memory stays on the fast node, which is harmless",
        ));
    } else if !commands.is_empty() {
        undo.push(Command::words(
            When::Now,
            Scope::Process,
            "not strictly needed: memory on a local node does no harm; a restart places memory again",
        ));
    }
    Advice {
        sentence: sentence(format!(
            "{} runs on node {home}, and {} of its memory is on {}, which has no CPUs.",
            comm(task.raw.comm),
            pct_with_error(share, placed.error),
            nodes(from)
        )),
        gain: gain_of_memory(view, of, &placed, &[home]),
        commands,
        undo,
        // Memory of a node without CPUs is remote all of the time, and then only while it runs elsewhere.
        check: super::remote_falls(
            of.subject(),
            remote,
            remote.map_or(0.0, |remote| (remote - share * placed.run_pct(&[home]) / 100.0).max(0.0))
                + (2.0 * placed.error).max(5.0),
        ),
        stop: super::watermark_stop(view, &Subject::Node(home)),
        risk: format!("Node {home} then has less room for other programs. {RISK_OF_MOVE}"),
        or_else: vec![
            "If a tool placed the memory on the slow node on purpose, or the memory is seldom used, \
             hint_remote_pct is near 0."
                .to_owned(),
        ],
    }
}
