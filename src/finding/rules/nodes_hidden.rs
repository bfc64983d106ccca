//! The firmware shows fewer nodes than the machine has sockets.

use super::super::command::{Command, Scope, When};
use super::super::rule::{Group, Hold, Look, Plan, Rule, Seen};
use super::super::text::sentence;
use super::super::view::{Of, View};
use super::super::{Confidence, Kind, Note, Severity, Subject, Told};
use crate::model::sample::HostFacts;
use crate::model::topology::NumaSupport;

pub(super) static RULE: Rule = Rule {
    id: "nodes-hidden",
    title: "The machine hides its nodes",
    about: "The machine shows fewer nodes than sockets: memory of another socket looks local.",
    not_when: &[
        ("one-socket", "it has no more sockets than nodes"),
        ("vm", "it is a virtual machine: sockets of one core, or a made-up CPU"),
    ],
    of: &[Kind::Host],
    group: Group::Machine,
    gravest: Severity::Info,
    needs: &[],
    hold: Hold::AT_ONCE,
    limits: &[],
    idle_too: true,
    look,
    tell,
};

/// Whether nodes are hidden on a machine that is no virtual one, as far as its topology tells.
pub(super) fn hides(host: &HostFacts) -> bool {
    let topology = &host.topology;
    let nodes = topology.nodes.iter().filter(|node| !node.cpus.is_empty()).count();
    // A hypervisor that is told nothing makes each CPU a socket.
    let sockets = topology.sockets as usize;
    nodes > 0 && sockets > nodes && topology.cores as usize >= 2 * sockets && !super::is_virtual(host)
}

fn look(view: &View<'_>, _: &Of<'_>) -> Look {
    if !hides(&view.snapshot.host) {
        return Look::Quiet;
    }
    let nodes = view.snapshot.nodes.len() as f64;
    Look::seen(Seen {
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
        plan: Plan { number: nodes, ..Plan::default() },
    })
}

fn tell(view: &View<'_>, _: &Of<'_>, seen: &Seen) -> Told {
    let topology = view.topology();
    let (by, words) = match topology.numa {
        NumaSupport::On => ("the BIOS hides NUMA", "BIOS: NUMA on, or Node Interleaving off"),
        NumaSupport::SwitchedOff => {
            ("numa=off hides NUMA", "remove numa=off from the kernel's command line and reboot")
        }
        NumaSupport::NotBuilt => ("the kernel has no NUMA", "boot a kernel with CONFIG_NUMA"),
    };
    let nodes = seen.plan.number as u64;
    Told {
        sentence: sentence(format!(
            "This machine has {} sockets but shows {nodes} node{}: {by}. Accesses to another socket are slow, and look local.",
            topology.sockets,
            if nodes == 1 { "" } else { "s" }
        )),
        commands: vec![Command::words(When::ForGood, Scope::Host, words)],
        or_else: vec![format!(
            "One memory controller serves all {} sockets, as on boards with a front-side bus; or a hypervisor shows no nodes.",
            topology.sockets
        )],
        ..Told::default()
    }
}
