//! Packets that a process reads are processed by CPUs of another node than the one where it runs.

use std::collections::BTreeMap;

use super::super::rule::{Condition, Group, Hold, Limit, Rule, Seen, Unmet};
use super::super::text::{bytes, pct, sentence};
use super::super::view::{SubjectRef, View, need};
use super::super::{Advice, Confidence, Note, Severity, SubjectKind, cores};
use super::far_device::{check, home_of, move_to, reached};
use super::interrupts_off_node;
use crate::metric::sockets::{FAR_PCT, READS, RECEIVED, traffic};
use crate::model::units::NodeId;

pub(super) static RULE: Rule = Rule {
    id: "far-network",
    title: "Its packets arrive on another node",
    about: "A process runs on one node, and CPUs of other nodes process 80 % of the bytes that the process receives (softirq). The \
            cost is not measured.",
    not_when: &[
        (
            "little",
            "the process receives less than 50 MB/s and reads sockets fewer than 20,000 times a second",
        ),
        ("several-nodes", "20 % or more of its time is on other nodes"),
        ("near", "20 % or more of the received bytes arrive on its own node"),
        ("interrupts", "interrupts of a network card are handled far from the card: see interrupts-off-node"),
        ("isolated", "its allowed CPUs are isolated"),
    ],
    of: &[SubjectKind::Process],
    group: Group::Devices,
    gravest: Severity::Info,
    needs: &[FAR_PCT.id],
    hold: Hold::s(60.0),
    limits: &[
        Limit::least("far", 80.0, "estimate: less is no reason to move a program"),
        Limit::least("bytes", 50e6, "estimate: 1 % of the throughput of a current network card")
            .counted_in("bytes/s"),
        Limit::least(
            "reads",
            20_000.0,
            "estimate: if each read takes 1 us longer, 2 % of the time is spent waiting",
        )
        .counted_in("/s"),
        Limit::sharp("home", 80.0, "[S3]: as with memory, most of the time is spent on one node"),
    ],
    idle_too: false,
    judge: &Condition { look, advise },
};

/// The node of the packets, the node of the process, and the traffic.
struct Facts {
    /// The node whose CPUs process most of its packets.
    node: NodeId,
    /// The node where it runs.
    home: NodeId,
    /// Share of its received bytes that arrive on other nodes, percent.
    far: f64,
    /// Bytes received per second.
    bytes_per_s: f64,
}

fn look(view: &View<'_>, of: &SubjectRef<'_>) -> Result<Seen<Facts>, Unmet> {
    let SubjectRef::Process(task) = of else { return Err(Unmet::Quiet) };
    if view.whole_nodes().len() < 2 {
        return Err(Unmet::Quiet);
    }
    let (received, reads) = (need(view.number(&RECEIVED, of))?, need(view.number(&READS, of))?);
    let rates = [(RECEIVED.id, received, "bytes"), (READS.id, reads, "reads")];
    let (metric, value, limit) = reached(view, rates)?;
    let (home, home_pct) = home_of(view, task)?;
    // Without a known CPU of any packet there is no share.
    let Ok(far) = view.number(&FAR_PCT, of) else { return Err(Unmet::Quiet) };
    let mut by_node: BTreeMap<NodeId, u64> = BTreeMap::new();
    for (route, used) in need(traffic(task, view.window))? {
        if let Some(from) = route.from.filter(|from| *from != route.to) {
            *by_node.entry(from).or_default() += used.received;
        }
    }
    let most = by_node.into_iter().max_by_key(|(node, bytes)| (*bytes, std::cmp::Reverse(*node)));
    let Some((node, _)) = most.filter(|_| far >= view.limit("far")) else { return Err(Unmet::Quiet) };
    if interrupts_off_node::sends_to(view, node) {
        return Err(Unmet::Excused("interrupts"));
    }
    let isolated = &view.snapshot.host.isolated_cpus;
    if cores::own_cpus(view, of).is_some_and(|cpus| cpus.iter().all(|cpu| isolated.contains(cpu))) {
        return Err(Unmet::Excused("isolated"));
    }
    let subject = of.subject();
    let share = view.evidence(FAR_PCT.id, subject.clone(), far).limit(view.limit("far"));
    let rate = view.evidence(metric, subject.clone(), value).limit(limit);
    let time = view.evidence("run_pct_by_node", subject, home_pct).on(home);
    Ok(Seen {
        severity: Severity::Info,
        confidence: Confidence::Measured,
        evidence: vec![share.note(Note::Measured), rate.note(Note::Measured), time.limit(view.limit("home"))],
        facts: Facts { node, home, far, bytes_per_s: received },
    })
}

fn advise(view: &View<'_>, of: &SubjectRef<'_>, seen: &Seen<Facts>) -> Advice {
    let Facts { node, home, far, bytes_per_s } = seen.facts;
    Advice {
        sentence: sentence(format!(
            "{} runs on node {home}, and CPUs of node {node} process {} of the {}/s that it receives.",
            cores::name(view, of),
            pct(far),
            bytes(bytes_per_s)
        )),
        check: vec![check(of, FAR_PCT.id, (far, 100.0 - view.rule.limit("far", false)), true)],
        or_else: vec![format!(
            "If the network card is on node {home}, move its queues instead: assign CPUs of node {home} to their \
             interrupts, or to RPS and RFS."
        )],
        ..move_to(view, of, node)
    }
}
