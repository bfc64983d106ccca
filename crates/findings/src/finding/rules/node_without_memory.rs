//! A node with CPUs has no memory.

use super::super::rule::{Condition, Group, Hold, Limit, Rule, Seen, Unmet};
use super::super::text::{number, sentence};
use super::super::view::{SubjectRef, View, need};
use super::super::{Advice, Command, Confidence, Scope, Severity, SubjectKind, When, command};
use crate::metric::node::CPU_PCT;
use crate::model::units::NodeId;

pub(super) static RULE: Rule = Rule {
    id: "node-without-memory",
    title: "A node has CPUs and no memory",
    about: "CPUs of a node without memory are busy: every access is remote.",
    not_when: &[
        ("vm", "the CPU model is a generic virtual one: hypervisors create such nodes"),
        ("idle", "its CPUs are less than 10 % busy"),
        ("isolated", "all of its CPUs are isolated"),
    ],
    of: &[SubjectKind::Node],
    group: Group::Machine,
    gravest: Severity::Info,
    needs: &[],
    hold: Hold { off_s: 30.0, ..Hold::AT_ONCE },
    limits: &[Limit::least("busy", 10.0, "estimate: less affects little of the machine")],
    idle_too: true,
    judge: &Condition { look, advise },
};

/// The node and its work.
struct Facts {
    /// The node.
    node: NodeId,
    /// Busy share of its CPUs, percent.
    busy: f64,
}

fn look(view: &View<'_>, of: &SubjectRef<'_>) -> Result<Seen<Facts>, Unmet> {
    let SubjectRef::Node(node) = of else { return Err(Unmet::Quiet) };
    let others = view.window.nodes.iter().any(|other| other.raw.mem_total_bytes > 0);
    if node.cpus == 0 || node.raw.mem_total_bytes > 0 || !others || super::is_virtual(&view.snapshot.host) {
        return Err(Unmet::Quiet);
    }
    let busy = need(view.node_number(&CPU_PCT, node))?;
    let host = &view.snapshot.host;
    let mut here = view.topology().online_cpus().filter(|cpu| cpu.node.is_some_and(|id| id.0 == node.raw.id));
    if busy < view.limit("busy") || here.all(|cpu| host.isolated_cpus.contains(&cpu.id.0)) {
        return Err(Unmet::Quiet);
    }
    Ok(Seen {
        severity: Severity::Info,
        confidence: Confidence::Measured,
        evidence: vec![view.evidence(CPU_PCT.id, of.subject(), busy).limit(view.limit("busy"))],
        facts: Facts { node: NodeId(node.raw.id), busy },
    })
}

fn advise(_: &View<'_>, _: &SubjectRef<'_>, seen: &Seen<Facts>) -> Advice {
    let Facts { node, busy } = seen.facts;
    Advice {
        sentence: sentence(format!(
            "Node {node} has no memory, and its CPUs are {} % busy: all of their accesses are remote.",
            number(busy)
        )),
        commands: vec![Command::new(
            When::Now,
            Scope::Host,
            command::line("dmidecode -t memory"),
            "shows which slots are filled",
        )],
        or_else: vec![format!(
            "A memory module has failed, is in the wrong slot, or was never installed. The CPUs of the node are {} % busy.",
            number(busy)
        )],
        ..Advice::default()
    }
}
