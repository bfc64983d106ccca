//! The kernel cleans up a node before it takes memory from another one that has enough.

use super::super::command::{Command, Scope, When, line};
use super::super::rule::{Blindness, Condition, Group, Hold, Limit, Reason, Rule, Seen, Unmet};
use super::super::text::{bytes, number, sentence};
use super::super::view::{SubjectRef, View, need};
use super::super::{Advice, Check, Confidence, Note, Severity, Subject, SubjectKind};
use crate::metric::host::ZONE_RECLAIM_MODE;
use crate::metric::node::NODE_RECLAIM_PER_S;
use crate::model::units::NodeId;

/// Zone reclaim works within this distance only, unless the kernel raises the limit (S8).
const RECLAIM_DISTANCE: u32 = 30;

pub(super) static RULE: Rule = Rule {
    id: "zone-reclaim",
    title: "A node is reclaimed, another has room",
    about: "vm.zone_reclaim_mode is set, and allocations reclaim pages of a node although a near node has \
            free memory.",
    not_when: &[
        ("unused", "the mode is set but has no effect, because the nodes have room"),
        ("far", "the free memory is at a distance above 30, which zone reclaim avoids on purpose"),
        ("full", "no other node has free memory"),
    ],
    of: &[SubjectKind::Host],
    group: Group::NodeMemory,
    gravest: Severity::Warning,
    needs: &[ZONE_RECLAIM_MODE.id, NODE_RECLAIM_PER_S.id, "mem_free_bytes", "watermark_distance_pct"],
    hold: Hold::s(15.0),
    limits: &[Limit::least(
        "reclaims",
        10.0,
        "estimate: each reclaim delays an allocation; ten per second are more than chance",
    )
    .counted_in("/s")],
    idle_too: true,
    judge: &Condition { look, advise },
};

/// The node that is reclaimed, and one with room.
struct Facts {
    /// The node that is reclaimed.
    node: NodeId,
    /// The node with room.
    roomy: NodeId,
    /// Free memory there, bytes.
    free: f64,
    /// Value of vm.zone_reclaim_mode.
    mode: u32,
    /// Reclaims per second.
    rate: f64,
}

fn look(view: &View<'_>, _: &SubjectRef<'_>) -> Result<Seen<Facts>, Unmet> {
    let mode = view.snapshot.zone_reclaim_mode.ok_or_else(|| {
        Unmet::Blind(Blindness::new(Reason::NotSupported, "the kernel has no vm.zone_reclaim_mode"))
    })?;
    if mode == 0 {
        return Err(Unmet::Quiet);
    }
    let mut worst: Option<(f64, NodeId, f64, NodeId)> = None;
    for node in &view.window.nodes {
        let id = NodeId(node.raw.id);
        let rate = need(view.node_number(&NODE_RECLAIM_PER_S, node))?;
        if rate < view.limit("reclaims") {
            continue;
        }
        let near = |other: NodeId| {
            view.topology().distance(id, other).is_some_and(|distance| distance <= RECLAIM_DISTANCE)
        };
        if let Some((roomy, free)) = view.roomiest(|other| other != id && near(other))
            && worst.is_none_or(|(most, ..)| rate > most)
        {
            worst = Some((rate, id, free, roomy));
        }
    }
    let Some((rate, node, free, roomy)) = worst else { return Err(Unmet::Quiet) };
    Ok(Seen {
        severity: Severity::Warning,
        confidence: Confidence::Measured,
        evidence: vec![
            view.evidence(NODE_RECLAIM_PER_S.id, Subject::Node(node), rate).limit(view.limit("reclaims")),
            view.evidence(ZONE_RECLAIM_MODE.id, Subject::Host, f64::from(mode)).note(Note::Setting),
            view.evidence("mem_free_bytes", Subject::Node(roomy), free)
                .limit(view.enough_free())
                .note(Note::FreeElsewhere),
        ],
        facts: Facts { node, roomy, free, mode, rate },
    })
}

fn advise(view: &View<'_>, _: &SubjectRef<'_>, seen: &Seen<Facts>) -> Advice {
    let Facts { node, roomy, free, mode, rate } = seen.facts;
    let set = |when, words| Command::new(when, Scope::Host, words, "");
    Advice {
        sentence: sentence(format!(
            "zone_reclaim_mode is {mode}: node {node} is reclaimed {} times a second while node {roomy} has {} \
             free.",
            number(rate),
            bytes(free)
        )),
        commands: vec![
            set(When::Now, line("sysctl -w vm.zone_reclaim_mode=0")),
            set(When::ForGood, line("echo vm.zone_reclaim_mode=0 > /etc/sysctl.d/90-zone-reclaim.conf")),
        ],
        undo: vec![set(When::Now, line("sysctl -w").joined("vm.zone_reclaim_mode=", &mode.to_string()))],
        check: vec![Check {
            metric: NODE_RECLAIM_PER_S.id,
            of: Subject::Node(node),
            from: rate,
            to: 0.0,
            below: true,
            within_s: 15.0,
        }],
        risk: "This affects the whole machine: allocations that were kept local can go to other nodes."
            .into(),
        or_else: vec![format!(
            "A tuning profile can set the mode again: check vm.zone_reclaim_mode after a reboot. The mode is \
             {} now.",
            view.snapshot.zone_reclaim_mode.unwrap_or(0)
        )],
        ..Advice::default()
    }
}
