//! The machine swaps although a node has free memory.

use super::super::rule::{Condition, Group, Hold, Limit, Rule, Seen, Unmet};
use super::super::text::{bytes, sentence};
use super::super::view::{SubjectRef, View, need};
use super::super::{Advice, Check, Command, Confidence, Note, Severity, Subject, SubjectKind};
use super::node_short_of_memory::{
    KSWAPD, WATERMARK, distance_if_short, explained_by_limit, is_certain, move_largest, severity,
};
use crate::metric::host::SWAP_OUT;
use crate::metric::node::WATERMARK_DISTANCE_PCT;
use crate::model::units::NodeId;
use crate::snapshot::Node;

/// Bytes of a page where the kernel counts swap.
const PAGE: f64 = 4096.0;

pub(super) static RULE: Rule = Rule {
    id: "swap-while-memory-free",
    title: "Swapping while a node has free memory",
    about: "Pages go to swap and a node is at its low watermark, while another node has free memory.",
    not_when: &[
        ("limit", "a container at its memory limit explains the swapping"),
        (
            "proactive",
            "no node is below the watermark that wakes kswapd: a program requested the reclaim \
                       (memory.reclaim)",
        ),
        ("full-everywhere", "no node has free memory"),
        ("way-back", "pages are read from swap, but none are written to it"),
        ("zram", "pages go to compressed memory, not to a disk (at most a warning)"),
        ("memory-only", "the node has no CPUs: rarely used pages go there until it is full"),
        (
            "streaming",
            "5 % of the node or more is page cache, which kswapd can reclaim instead (only a note)",
        ),
    ],
    of: &[SubjectKind::Host],
    group: Group::NodeMemory,
    gravest: Severity::Critical,
    needs: &[SWAP_OUT.id, WATERMARK_DISTANCE_PCT.id],
    hold: Hold::in_bursts(20.0),
    limits: &[
        Limit::least(
            "swap-out",
            256.0,
            "estimate: 1 MiB/s; no healthy machine swaps that much all the time [S13]",
        )
        .counted_in("pages/s"),
        WATERMARK,
        KSWAPD,
    ],
    idle_too: true,
    judge: &Condition { look, advise },
};

/// The full node, and one with room.
struct Facts {
    /// The node without free memory.
    node: NodeId,
    /// The node with room.
    roomy: NodeId,
    /// Free memory there, bytes.
    free: f64,
    /// Pages swapped out per second.
    rate: f64,
}

fn look(view: &View<'_>, _: &SubjectRef<'_>) -> Result<Seen<Facts>, Unmet> {
    let value = need(SWAP_OUT.read(view.window))?;
    let rate = value.number().unwrap_or(0.0);
    if rate < view.limit("swap-out") {
        return Err(Unmet::Quiet);
    }
    let whole = view.whole_nodes();
    let mut full: Option<(f64, &Node)> = None;
    let mut unknown = None;
    for node in view.window.nodes.iter().filter(|node| whole.contains(&NodeId(node.raw.id))) {
        match distance_if_short(view, node) {
            Ok(Some(distance)) if full.is_none_or(|(least, _)| distance < least) => {
                full = Some((distance, node));
            }
            Ok(_) => {}
            Err(why) => unknown = Some(why),
        }
    }
    let Some((distance, full)) = full else { return unknown.map_or(Err(Unmet::Quiet), Err) };
    let node = NodeId(full.raw.id);
    let limit = explained_by_limit(view);
    if limit == Some(true) {
        return Err(Unmet::Quiet);
    }
    let Some((roomy, free)) = view.roomiest(|other| other != node) else { return Err(Unmet::Quiet) };
    Ok(Seen {
        // Compressing takes CPU time only.
        severity: severity(is_certain(distance, full), limit).min(if on_zram(view) {
            Severity::Warning
        } else {
            Severity::Critical
        }),
        confidence: Confidence::Measured,
        evidence: vec![
            view.evidence(SWAP_OUT.id, Subject::Host, rate).limit(view.limit("swap-out")),
            view.evidence(WATERMARK_DISTANCE_PCT.id, Subject::Node(node), distance)
                .limit(view.limit("watermark"))
                .note(Note::AtMost),
            view.evidence("mem_free_bytes", Subject::Node(roomy), free)
                .limit(view.enough_free())
                .note(Note::FreeElsewhere),
        ],
        facts: Facts { node, roomy, free, rate },
    })
}

fn on_zram(view: &View<'_>) -> bool {
    view.snapshot.host.swap_on_zram == Some(true)
}

fn advise(view: &View<'_>, _: &SubjectRef<'_>, seen: &Seen<Facts>) -> Advice {
    let Facts { node, roomy, free, rate } = seen.facts;
    let moved = move_largest(view, node, roomy).into_iter().map(|[go, back]| (go, back));
    let (commands, undo): (Vec<Command>, Vec<Command>) = moved.unzip();
    let swappiness = view.snapshot.machine.and_then(|machine| machine.swappiness);
    let setting = swappiness.map_or(String::new(), |value| format!(" vm.swappiness is {value}."));
    Advice {
        sentence: sentence(format!(
            "The machine swaps out {} a second{} while node {roomy} has {} free.",
            bytes(rate * PAGE),
            if on_zram(view) { " into compressed memory (zram)" } else { "" },
            bytes(free)
        )),
        risk: if commands.is_empty() {
            String::new()
        } else {
            "The moved memory becomes remote for tasks that stay on the node.".into()
        },
        commands,
        undo,
        check: vec![Check {
            metric: SWAP_OUT.id,
            of: Subject::Host,
            from: rate,
            to: 0.0,
            below: true,
            within_s: 30.0,
        }],
        or_else: vec![format!(
            "If some tasks are not allowed to use the free memory of node {roomy}, their mems_allowed or mempolicy \
             shows it.{setting}"
        )],
        ..Advice::default()
    }
}
