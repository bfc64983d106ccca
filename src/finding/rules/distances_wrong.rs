//! The firmware's distances between nodes contradict themselves.

use super::super::rule::{Group, Hold, Look, Plan, Rule, Seen};
use super::super::text::sentence;
use super::super::view::{Of, View};
use super::super::{Confidence, Kind, Note, Severity, Subject, Told};
use crate::model::sample::HostFacts;
use crate::model::topology::Topology;
use crate::model::units::NodeId;

/// The distance of a node to itself: ACPI 6.5, 5.2.17.
const LOCAL: u32 = 10;

pub(super) static RULE: Rule = Rule {
    id: "distances-wrong",
    title: "The firmware's distances are wrong",
    about: "Distances between nodes contradict themselves: to a node it is farther than back, a node is not 10 from itself, \
            another one is as near as that, or nodes of one socket are as far apart as sockets.",
    not_when: &[
        ("vm", "it is a virtual machine: hypervisors make distances up"),
        ("same-order", "they are symmetric, and nodes of a socket are the nearer ones"),
        ("one-socket", "it has one socket: its nodes may well be equally far"),
    ],
    of: &[Kind::Host],
    group: Group::Machine,
    gravest: Severity::Info,
    needs: &[],
    hold: Hold { on_s: 0.0, off_s: 0.0 },
    limits: &[],
    idle_too: true,
    look,
    tell,
};

/// A contradiction: between two nodes, in words.
struct Wrong {
    from: NodeId,
    to: NodeId,
    distance: u32,
    why: &'static str,
}

/// The first contradiction of the distances of nodes with CPUs.
fn wrong(host: &HostFacts) -> Option<Wrong> {
    let topology = &host.topology;
    // A hypervisor that is told nothing makes each CPU a socket.
    if super::is_virtual(host) || (topology.cores as usize) < 2 * topology.sockets as usize {
        return None;
    }
    let nodes: Vec<NodeId> =
        topology.nodes.iter().filter(|node| !node.cpus.is_empty()).map(|node| node.id).collect();
    for from in &nodes {
        for to in &nodes {
            let Some(distance) = topology.distance(*from, *to) else { continue };
            let back = topology.distance(*to, *from).unwrap_or(distance);
            let why = match from == to {
                true if distance != LOCAL => "a node is 10 from itself",
                false if distance <= LOCAL => "only a node itself is that near",
                false if distance != back => "the way back is another",
                _ => continue,
            };
            return Some(Wrong { from: *from, to: *to, distance, why });
        }
    }
    equal(topology, &nodes)
}

/// Two nodes of one socket that are as far apart as all sockets are. Sockets of one node each may well be equally far.
fn equal(topology: &Topology, nodes: &[NodeId]) -> Option<Wrong> {
    if nodes.len() < 3 || topology.sockets < 2 {
        return None;
    }
    let socket = |node: &NodeId| topology.online_cpus().find(|cpu| cpu.node == Some(*node))?.socket;
    let pairs = || nodes.iter().flat_map(|a| nodes.iter().map(move |b| (a, b))).filter(|(a, b)| a < b);
    let mut distances = pairs().filter_map(|(a, b)| topology.distance(*a, *b));
    let first = distances.next()?;
    if distances.any(|distance| distance != first) {
        return None;
    }
    let mates = |(a, b): &(&NodeId, &NodeId)| socket(a).is_some() && socket(a) == socket(b);
    let (from, to) = pairs().find(mates)?;
    pairs().any(|(a, b)| socket(a) != socket(b)).then_some(Wrong {
        from: *from,
        to: *to,
        distance: first,
        why: "they are in one socket, and other sockets are as far",
    })
}

fn look(view: &View<'_>, _: &Of<'_>) -> Look {
    let Some(wrong) = wrong(&view.snapshot.host) else { return Look::Quiet };
    let value = f64::from(wrong.distance);
    let distance = view.evidence("distance", Subject::Node(wrong.from), value).on(wrong.to);
    Look::seen(Seen {
        severity: Severity::Info,
        confidence: Confidence::Measured,
        evidence: vec![distance.note(Note::Setting)],
        plan: Plan { from: vec![wrong.from], to: vec![wrong.to], number: value, ..Plan::default() },
    })
}

fn tell(view: &View<'_>, _: &Of<'_>, seen: &Seen) -> Told {
    let (from, to) = (seen.plan.from[0], seen.plan.to[0]);
    let why = wrong(&view.snapshot.host).map_or("", |wrong| wrong.why);
    Told {
        sentence: sentence(format!(
            "The firmware says {:.0} for the distance from node {from} to node {to}, but {why}.",
            seen.plan.number
        )),
        or_else: vec![
            "The distances are the machine's, and unusual: an update of the firmware keeps them. Gains of placement are \
             computed from them."
                .to_owned(),
        ],
        ..Told::default()
    }
}
