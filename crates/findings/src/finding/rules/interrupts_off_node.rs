//! Nearly all interrupts of a device are handled by CPUs of other nodes than its own.

use super::super::command::{Command, Scope, When, line};
use super::super::rule::{Condition, Group, Hold, Limit, Rule, Seen, Unmet};
use super::super::text::{self, nodes, pct, sentence};
use super::super::view::{SubjectRef, View};
use super::super::{Advice, Check, Confidence, Severity, Subject, SubjectKind};
use crate::metric::interrupts::{DEVICE_IRQS_AWAY_PCT, DEVICE_IRQS_PER_S};
use crate::metric::node::IRQ_PCT;
use crate::model::topology::{Device, DeviceClass};
use crate::model::units::NodeId;
use crate::text::quantity::count;

pub(super) static RULE: Rule = Rule {
    id: "interrupts-off-node",
    title: "Interrupts far from their device",
    about: "CPUs of other nodes handle nearly all interrupts of a device, and spend at least 2 % of a node's \
            time on interrupts.",
    not_when: &[
        ("no-cpus", "the node of the device has no CPUs online"),
        ("isolated", "all CPUs of the device's node are isolated"),
        ("partly", "10 % or more of its interrupts are handled on its own node"),
        (
            "few",
            "the device has fewer than 1,000 interrupts a second, or interrupts take less than 2 % of the \
             time of nodes that handle them",
        ),
        ("nodeless", "the device's node, or the CPUs that handle its interrupts, are unknown"),
    ],
    of: &[SubjectKind::Device],
    group: Group::Devices,
    gravest: Severity::Info,
    needs: &[IRQ_PCT.id],
    hold: Hold::s(60.0),
    limits: &[
        Limit::least("irq", 2.0, "estimate: below 2 % of a node, moving the interrupts gains little"),
        Limit::until(
            "away",
            90.0,
            80.0,
            "estimate: one or two queues on the device's own node do not change the result",
        ),
        Limit::least(
            "rate",
            1000.0,
            "estimate: at a few microseconds each, fewer interrupts take less than 1 % of a CPU",
        )
        .counted_in("/s"),
    ],
    idle_too: true,
    judge: &Condition { look, advise },
};

/// The device's interrupts.
struct Facts {
    /// Nodes that handle them.
    from: Vec<NodeId>,
    /// CPUs of its node.
    cpus: Vec<u32>,
    /// Time of CPUs in interrupts there, percent.
    irq: f64,
    /// Interrupts as counted.
    counted: Option<Counted>,
}

fn look(view: &View<'_>, of: &SubjectRef<'_>) -> Result<Seen<Facts>, Unmet> {
    let SubjectRef::Device(device, Some(home)) = of else { return Err(Unmet::Quiet) };
    let Some(away) = away(view, device, *home)? else { return Err(Unmet::Quiet) };
    if view.cpus_of_nodes(&[*home]).is_empty() {
        return Err(Unmet::Quiet);
    }
    // The node that has most of them: the device is one of several that it works for.
    let rows = away.nodes.iter().filter_map(|node| view.node(*node));
    let shares = rows.filter_map(|row| Some((NodeId(row.raw.id), view.node_number(&IRQ_PCT, row).ok()?)));
    let Some((node, irq)) = shares.max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0))) else {
        return Err(super::waiting::unknown(
            "the interrupt time of the nodes that handle its interrupts is not known",
        ));
    };
    if irq < view.limit("irq") {
        return Err(Unmet::Quiet);
    }
    let mut evidence = vec![view.evidence(IRQ_PCT.id, Subject::Node(node), irq).limit(view.limit("irq"))];
    if let Some(counted) = &away.counted {
        let of_device =
            |metric, value, limit| view.evidence(metric, of.subject(), value).limit(view.limit(limit));
        evidence.push(of_device(DEVICE_IRQS_AWAY_PCT.id, counted.away_pct, "away"));
        evidence.push(of_device(DEVICE_IRQS_PER_S.id, counted.per_s, "rate"));
    }
    Ok(Seen {
        severity: Severity::Info,
        // Interrupts of a node are those of all of its devices.
        confidence: Confidence::Estimated,
        evidence,
        facts: Facts { from: away.nodes, cpus: view.cpus_of_nodes(&[*home]), irq, counted: away.counted },
    })
}

/// Interrupts of a device that are handled far from it.
struct Away {
    /// Nodes that handle them.
    nodes: Vec<NodeId>,
    /// `None` where only lists of CPUs are known.
    counted: Option<Counted>,
}

/// Interrupts of a device as they were counted.
struct Counted {
    /// All of them per second.
    per_s: f64,
    /// Share that other nodes than its own handle, in percent.
    away_pct: f64,
}

/// Interrupts of a device on `home`, if nearly all are handled elsewhere.
///
/// # Errors
/// Its lists name no CPU of its node, and its interrupts are not counted yet.
fn away(view: &View<'_>, device: &Device, home: NodeId) -> Result<Option<Away>, Unmet> {
    let Some(counted) = view.snapshot.interrupts_of(device) else {
        let nodes = device.irq_nodes.clone();
        let may_be = !nodes.is_empty() && !nodes.contains(&home);
        // Recordings from before there were counts have lists alone.
        if may_be && view.snapshot.host_missing(DEVICE_IRQS_PER_S.id).is_none() {
            let why = "its interrupts are not counted, or were counted only once so far";
            return Err(super::waiting::unknown(why));
        }
        return Ok(may_be.then_some(Away { nodes, counted: None }));
    };
    let per_s = counted.all_per_second();
    if per_s < view.limit("rate") {
        return Ok(None);
    }
    let away_pct = counted.per_second(|node| node != home) * 100.0 / per_s;
    let nodes = counted.by_node.keys().copied().filter(|node| *node != home).collect();
    let counted = Counted { per_s, away_pct };
    Ok((away_pct >= view.limit("away")).then_some(Away { nodes, counted: Some(counted) }))
}

/// Whether CPUs of `node` handle nearly all interrupts of a network card of another node.
pub(super) fn sends_to(view: &View<'_>, node: NodeId) -> bool {
    let others = view.topology().nodes.iter().filter(|home| home.id != node);
    let mut cards = others.flat_map(|home| home.devices.iter().map(|device| (device, home.id)));
    cards.any(|(device, home)| {
        device.class == DeviceClass::Net
            && matches!(away(view, device, home), Ok(Some(away)) if away.nodes.contains(&node))
    })
}

/// The share that the node's devices have elsewhere once this one's interrupts are at home, all but a fifth of them.
fn falls(view: &View<'_>, device: &Device, home: NodeId, away_pct: f64, per_s: f64) -> Option<Check> {
    const LEFT: f64 = 0.2;
    // The reading during the move contains some of both states; the next one contains its end.
    const TURNS: f64 = 2.5;
    let turn_s = view.snapshot.interrupts_of(device)?.over_ns as f64 / 1e9;
    let row = view.node(home)?;
    let all = view.node_number(&DEVICE_IRQS_PER_S, row).ok().filter(|all| *all > 0.0)?;
    let from = view.node_number(&DEVICE_IRQS_AWAY_PCT, row).ok()?;
    Some(Check {
        metric: DEVICE_IRQS_AWAY_PCT.id,
        of: Subject::Node(home),
        from,
        to: (from - away_pct * (1.0 - LEFT) * (per_s / all).min(1.0)).max(0.0),
        below: true,
        within_s: SEEN_AFTER_S.max((turn_s * TURNS).ceil()),
    })
}

/// A move takes effect within this many seconds, if a device is read every twenty.
const SEEN_AFTER_S: f64 = 60.0;

/// Commands that move all message-signalled interrupts of a PCI function to these CPUs, and their undo.
pub(super) fn move_interrupts(address: &str, cpus: &[u32], before: &[u32]) -> (Vec<Command>, Vec<Command>) {
    let keep = line("grep . /proc/irq/*/smp_affinity_list > /root/irq-before.txt");
    let to = |cpus: &[u32]| line("for i in").interrupts_of(address, cpus);
    let words = "if irqbalance runs, stop it first: it would overwrite these lists";
    let commands = vec![
        Command::new(When::Now, Scope::Host, keep, "saves the present lists"),
        Command::new(When::Now, Scope::Host, to(cpus), words),
    ];
    let back = "or restore the lists saved in /root/irq-before.txt";
    (commands, vec![Command::new(When::Now, Scope::Host, to(before), back)])
}

fn advise(view: &View<'_>, of: &SubjectRef<'_>, seen: &Seen<Facts>) -> Advice {
    let SubjectRef::Device(device, Some(home)) = of else { return Advice::default() };
    let Facts { from, cpus, irq, counted } = &seen.facts;
    let label = text::name(&crate::text::clean_str(&device.name));
    let before = view.cpus_of_nodes(from);
    let (commands, undo) = match &device.pci {
        Some(address) => move_interrupts(address, cpus, &before),
        None => Default::default(),
    };
    let from = nodes(from);
    Advice {
        sentence: sentence(match counted {
            Some(Counted { per_s, away_pct }) => format!(
                "{label} is on node {home}, and CPUs of {from} handle {} of its {} interrupts a second.",
                pct(*away_pct),
                count(*per_s)
            ),
            None => format!("{label} is on node {home}, and all of its interrupts go to CPUs of {from}."),
        }),
        check: counted
            .as_ref()
            .and_then(|counted| falls(view, device, *home, counted.away_pct, counted.per_s))
            .into_iter()
            .collect(),
        risk: if commands.is_empty() {
            String::new()
        } else {
            format!(
                "This affects the whole machine: node {home} then handles the interrupts. Managed interrupts \
                 (NVMe, some network cards) refuse the write."
            )
        },
        commands,
        undo,
        or_else: vec![format!(
            "CPUs of node {home} can be busy (see its cpu_pct), or the program that uses the device runs on {}; \
             interrupts take {} of the time there.",
            from,
            pct(*irq)
        )],
        ..Advice::default()
    }
}
