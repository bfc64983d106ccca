//! All interrupts of a device are handled by CPUs of other nodes than its own.

use super::super::command::{Command, Scope, When, line};
use super::super::rule::{Group, Hold, Limit, Look, Plan, Rule, Seen};
use super::super::text::{self, nodes, pct, sentence};
use super::super::view::{Of, View, settle};
use super::super::{Confidence, Kind, Severity, Subject, Told};
use crate::metric::node::IRQ_PCT;
use crate::model::units::NodeId;

pub(super) static RULE: Rule = Rule {
    id: "interrupts-off-node",
    title: "Interrupts far from their device",
    about: "All interrupts of a device go to CPUs of other nodes than its own, and interrupts take a fiftieth or more of one of \
            these nodes. An info, because they may be there on purpose. Lists of one device after the other are read again.",
    not_when: &[
        ("no-cpus", "its node has no CPUs online"),
        ("isolated", "all CPUs of its node are isolated"),
        ("partly", "some of its interrupts go to its own node"),
        ("few", "interrupts take less than 2 % of the nodes that handle them"),
        ("nodeless", "the firmware does not say where it is, or nothing says who handles its interrupts"),
    ],
    of: &[Kind::Device],
    group: Group::Devices,
    gravest: Severity::Info,
    needs: &[IRQ_PCT.id],
    hold: Hold::s(60.0),
    limits: &[Limit::least(
        "irq",
        2.0,
        "reasoned: below a fiftieth of a node little is to be had by moving them",
    )],
    idle_too: true,
    look: |view, of| settle(look(view, of)),
    tell,
};

fn look(view: &View<'_>, of: &Of<'_>) -> Result<Look, Look> {
    let Of::Device(device, Some(home)) = of else { return Ok(Look::Quiet) };
    if device.irq_nodes.is_empty()
        || device.irq_nodes.contains(home)
        || view.cpus_of_nodes(&[*home]).is_empty()
    {
        return Ok(Look::Quiet);
    }
    // The node that has most of them: the device is one of several that it works for.
    let rows = device.irq_nodes.iter().filter_map(|node| view.node(*node));
    let shares = rows.filter_map(|row| Some((NodeId(row.raw.id), view.node_number(&IRQ_PCT, row).ok()?)));
    let Some((node, irq)) = shares.max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0))) else {
        return Err(super::waiting::unknown(
            "the time in interrupts of the nodes that handle them is not known",
        ));
    };
    if irq < view.limit("irq") {
        return Ok(Look::Quiet);
    }
    Ok(Look::seen(Seen {
        severity: Severity::Info,
        // Interrupts of a node are those of all of its devices.
        confidence: Confidence::Estimated,
        evidence: vec![view.evidence(IRQ_PCT.id, Subject::Node(node), irq).limit(view.limit("irq"))],
        plan: Plan {
            to: vec![*home],
            from: device.irq_nodes.clone(),
            cpus: view.cpus_of_nodes(&[*home]),
            ..Plan::default()
        },
    }))
}

/// Commands that move all message-signalled interrupts of a PCI function to these CPUs, and those that undo it.
pub(super) fn move_interrupts(address: &str, cpus: &[u32], before: &[u32]) -> (Vec<Command>, Vec<Command>) {
    let keep = line("grep . /proc/irq/*/smp_affinity_list > /root/irq-before.txt");
    let to = |cpus: &[u32]| line("for i in").interrupts_of(address, cpus);
    let words = "irqbalance writes its own lists again: stop it first, where it runs";
    let commands = vec![
        Command::new(When::Now, Scope::Host, keep, "keeps what is there"),
        Command::new(When::Now, Scope::Host, to(cpus), words),
    ];
    let back = "or write the lists of /root/irq-before.txt back";
    (commands, vec![Command::new(When::Now, Scope::Host, to(before), back)])
}

fn tell(view: &View<'_>, of: &Of<'_>, seen: &Seen) -> Told {
    let (Of::Device(device, Some(home)), Some(share)) = (of, seen.evidence.first()) else {
        return Told::default();
    };
    let label = text::name(&crate::text::clean_str(&device.name));
    let before = view.cpus_of_nodes(&seen.plan.from);
    let (commands, undo) = match &device.pci {
        Some(address) => move_interrupts(address, &seen.plan.cpus, &before),
        None => Default::default(),
    };
    Told {
        sentence: sentence(format!(
            "{label} is on node {home}, and all of its interrupts go to CPUs of {}.",
            nodes(&seen.plan.from)
        )),
        risk: if commands.is_empty() {
            String::new()
        } else {
            format!(
                "It changes the whole machine: node {home} handles them then. Managed interrupts (NVMe, some network cards) \
                 refuse the write."
            )
        },
        commands,
        undo,
        or_else: vec![format!(
            "They are there because CPUs of node {home} are busy (its cpu_pct), or because the program that uses the device runs on \
             {}; interrupts take {} there.",
            nodes(&seen.plan.from),
            pct(share.value)
        )],
        ..Told::default()
    }
}
