//! The firmware shows fewer nodes than the machine has sockets.

use super::super::command::{Command, Scope, When};
use super::super::rule::{Condition, Group, Hold, Rule, Seen, Unmet};
use super::super::text::sentence;
use super::super::view::{SubjectRef, View};
use super::super::{Advice, Confidence, Note, Severity, Subject, SubjectKind};
use crate::model::sample::HostFacts;
use crate::model::topology::NumaSupport;

pub(super) static RULE: Rule = Rule {
    id: "nodes-hidden",
    title: "The machine hides its nodes",
    about: "The machine shows fewer nodes than sockets: memory of another socket looks local.",
    not_when: &[
        ("one-socket", "the machine has at least as many nodes as sockets"),
        ("vm", "the machine is virtual: sockets of one core, or a generic virtual CPU"),
    ],
    of: &[SubjectKind::Host],
    group: Group::Machine,
    gravest: Severity::Info,
    needs: &[],
    hold: Hold::AT_ONCE,
    limits: &[],
    idle_too: true,
    judge: &Condition { look, advise },
};

/// Whether nodes are hidden on a physical machine, according to its topology.
pub(super) fn hides(host: &HostFacts) -> bool {
    let topology = &host.topology;
    let nodes = topology.nodes.iter().filter(|node| !node.cpus.is_empty()).count();
    // Hypervisors make each CPU a socket by default.
    let sockets = topology.sockets as usize;
    nodes > 0 && sockets > nodes && topology.cores as usize >= 2 * sockets && !super::is_virtual(host)
}

/// Nodes that the machine shows.
struct Facts {
    /// Their number.
    nodes: usize,
}

fn look(view: &View<'_>, _: &SubjectRef<'_>) -> Result<Seen<Facts>, Unmet> {
    if !hides(&view.snapshot.host) {
        return Err(Unmet::Quiet);
    }
    let nodes = view.snapshot.nodes.len();
    Ok(Seen {
        severity: Severity::Info,
        confidence: Confidence::Measured,
        evidence: view
            .snapshot
            .nodes
            .first()
            .map(|node| {
                let id = crate::model::units::NodeId(node.raw.id);
                view.evidence("cpus", Subject::Node(id), f64::from(node.cpus)).note(Note::Setting)
            })
            .into_iter()
            .collect(),
        facts: Facts { nodes },
    })
}

fn advise(view: &View<'_>, _: &SubjectRef<'_>, seen: &Seen<Facts>) -> Advice {
    let topology = view.topology();
    let (by, words) = match topology.numa {
        NumaSupport::On => (
            "the firmware hides NUMA",
            "firmware setup: turn NUMA on, or Node Interleaving \
                                                        off",
        ),
        NumaSupport::SwitchedOff => {
            ("numa=off hides NUMA", "remove numa=off from the kernel's command line and reboot")
        }
        NumaSupport::NotBuilt => ("the kernel has no NUMA", "boot a kernel built with CONFIG_NUMA"),
    };
    let nodes = seen.facts.nodes;
    Advice {
        sentence: sentence(format!(
            "This machine has {} sockets but shows {nodes} node{}: {by}. Accesses to another socket are slow, but \
             count as local.",
            topology.sockets,
            if nodes == 1 { "" } else { "s" }
        )),
        commands: vec![Command::words(When::ForGood, Scope::Host, words)],
        or_else: vec![format!(
            "One memory controller can serve all {} sockets, as on boards with a front-side bus; or a hypervisor \
             hides the nodes.",
            topology.sockets
        )],
        ..Advice::default()
    }
}
