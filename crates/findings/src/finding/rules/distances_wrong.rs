//! The firmware's distances between nodes contradict themselves, or measurements.

use super::super::rule::{Condition, Group, Hold, Limit, Rule, Seen, Unmet};
use super::super::text::{number, sentence};
use super::super::view::{SubjectRef, View};
use super::super::{Advice, Confidence, Note, Severity, Subject, SubjectKind};
use crate::model::sample::HostFacts;
use crate::model::topology::Topology;
use crate::model::units::NodeId;

/// The distance of a node to itself: ACPI 6.5, 5.2.17.
const LOCAL: u32 = 10;

pub(super) static RULE: Rule = Rule {
    id: "distances-wrong",
    title: "The firmware's distances are wrong",
    about: "The firmware's distances between nodes (SLIT) contradict each other, or differ from measured \
            latencies (calibrate) by a factor of 1.5 or more.",
    not_when: &[
        ("vm", "the machine is virtual: hypervisors invent distances"),
        (
            "same-order",
            "distances are symmetric, nodes of one socket are nearer, and measured latencies agree within a \
             factor of 1.5",
        ),
        ("one-socket", "the machine has one socket: its nodes can be equally far apart"),
    ],
    of: &[SubjectKind::Host],
    group: Group::Machine,
    gravest: Severity::Info,
    needs: &[],
    hold: Hold::AT_ONCE,
    limits: &[
        Limit::sharp("times", 1.5, "estimate: sockets of one machine differ by less").counted_in("times")
    ],
    idle_too: true,
    judge: &Condition { look, advise },
};

/// A contradiction: between two nodes, in words.
struct Wrong {
    from: NodeId,
    to: NodeId,
    distance: u32,
    why: Why,
}

/// The truth that a distance contradicts.
enum Why {
    /// Other distances.
    Words(&'static str),
    /// The measured latency, relative to that of the node's own memory.
    Measured(f64),
}

/// The first contradiction in the distances of nodes with CPUs; else the largest one with measured latencies,
/// by `times` or more.
fn wrong(host: &HostFacts, times: f64) -> Option<Wrong> {
    let topology = &host.topology;
    // Hypervisors make each CPU a socket by default.
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
                true if distance != LOCAL => "the distance of a node to itself must be 10",
                false if distance <= LOCAL => "only the node itself can have a distance of 10",
                false if distance != back => "the distance in the other direction is different",
                _ => continue,
            };
            return Some(Wrong { from: *from, to: *to, distance, why: Why::Words(why) });
        }
    }
    equal(topology, &nodes).or_else(|| measured(topology, &nodes, times))
}

/// The pair whose distance is farthest from the measured latency, by `times` or more. In an order contrary to
/// the measurement, one of the two pairs is that far off, unless both are nearly right.
fn measured(topology: &Topology, nodes: &[NodeId], times: f64) -> Option<Wrong> {
    let pairs = nodes.iter().flat_map(|from| nodes.iter().map(move |to| (*from, *to)));
    let apart = pairs.filter(|(from, to)| from != to).filter_map(|(from, to)| {
        let distance = topology.distance(from, to)?;
        let ratio = topology.measured_ratio(from, to).filter(|ratio| *ratio > 0.0)?;
        let says = f64::from(distance) / f64::from(LOCAL);
        let factor = (says / ratio).max(ratio / says);
        (factor >= times).then_some((factor, Wrong { from, to, distance, why: Why::Measured(ratio) }))
    });
    // Of equal ones the first.
    let farthest = apart.reduce(|best, next| if next.0 > best.0 { next } else { best });
    farthest.map(|(_, wrong)| wrong)
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
        why: Why::Words("both nodes are in one socket, but nodes of other sockets are no farther away"),
    })
}

/// The distance that cannot be.
struct Facts {
    /// From this node.
    from: NodeId,
    /// To this node.
    to: NodeId,
    /// The distance that the firmware gives.
    distance: f64,
}

fn look(view: &View<'_>, _: &SubjectRef<'_>) -> Result<Seen<Facts>, Unmet> {
    let Some(wrong) = wrong(&view.snapshot.host, view.limit("times")) else { return Err(Unmet::Quiet) };
    let value = f64::from(wrong.distance);
    let distance = view.evidence("distance", Subject::Node(wrong.from), value).on(wrong.to);
    Ok(Seen {
        severity: Severity::Info,
        confidence: Confidence::Measured,
        evidence: vec![distance.note(Note::Setting)],
        facts: Facts { from: wrong.from, to: wrong.to, distance: value },
    })
}

fn advise(view: &View<'_>, _: &SubjectRef<'_>, seen: &Seen<Facts>) -> Advice {
    let Facts { from, to, distance: says } = seen.facts;
    let (why, or_else) = match wrong(&view.snapshot.host, view.limit("times")).map(|wrong| wrong.why) {
        Some(Why::Measured(ratio)) => (
            format!(
                "calibrate measured {} times the latency of local memory, not {}",
                number(ratio),
                number(says / 10.0)
            ),
            "If the machine was busy during calibration, the latencies are wrong: numatop-ng calibrate --show \
             prints their spread. Gains are computed from measured latencies.",
        ),
        Some(Why::Words(why)) => (
            why.to_owned(),
            "If the distances are unusual but correct, a firmware update does not change them. The estimated \
             gains use SLIT; numatop-ng calibrate measures the real distances.",
        ),
        None => return Advice::default(),
    };
    Advice {
        sentence: sentence(format!(
            "The firmware gives {says:.0} as the distance from node {from} to node {to}, but {why}."
        )),
        or_else: vec![or_else.to_owned()],
        ..Advice::default()
    }
}
