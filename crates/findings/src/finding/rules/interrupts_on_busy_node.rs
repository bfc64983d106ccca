//! Interrupts take time of a node where a process runs, and other nodes have few of them.

use std::collections::BTreeSet;

use super::super::command::{Command, Scope, When};
use super::super::gain::{Arithmetic, Gain};
use super::super::rule::{Condition, Group, Hold, Limit, Rule, Seen, Unmet};
use super::super::text::{self, comm, pct, sentence};
use super::super::view::{SubjectRef, View, need, process};
use super::super::{Advice, Check, Confidence, Evidence, Note, Severity, Subject, SubjectKind};
use super::interrupts_off_node::move_interrupts;
use super::waiting;
use crate::metric::node::{CPU_PCT, IRQ_PCT};
use crate::metric::{interrupts, task};
use crate::model::topology::Device;
use crate::model::units::NodeId;
use crate::snapshot::Task;
use crate::text::clean_str;
use crate::text::quantity::count;

/// The least share of a process's time that interrupts take for it to be affected, in percent (S5).
const SHARE_PCT: f64 = 5.0;

/// Devices that are named at most.
const NAMED: usize = 4;

/// The least share of a node's interrupts of the one device that should move, and the least number in a
/// second. With fewer, interrupts do not take a tenth of a node. Such time goes to timers, soft interrupts of
/// others, or devices of no node.
const MOST: f64 = 0.8;
const LOUD: f64 = 1000.0;

/// The age in seconds from which on a process matters to rules: as for all of them.
const LIVES_S: f64 = 60.0;

pub(super) static RULE: Rule = Rule {
    id: "interrupts-on-busy-node",
    title: "Interrupts on a busy node",
    about: "Interrupts take 10 % of the time of the node where a process runs, and at most half as much on \
            another node with room.",
    not_when: &[
        ("even", "interrupts on every other node take more than half as much time"),
        ("busy-elsewhere", "every other node is more than 70 % busy"),
        (
            "nothing-runs",
            "interrupts take less than a tenth of a CPU, or less than 5 % of the time of each process on the \
             node",
        ),
        ("isolated", "the CPUs of the other node are isolated"),
    ],
    of: &[SubjectKind::Node],
    group: Group::Devices,
    gravest: Severity::Info,
    needs: &[IRQ_PCT.id],
    // /proc/stat counts in ticks of 10 ms: a tenth of one CPU is 600 of them in that time, so that none is an accident.
    hold: Hold::s(60.0),
    limits: &[
        Limit::least("irq", 10.0, "[S1]: work was 25 to 30 % slower on such a node"),
        Limit::until(
            "other",
            50.0,
            75.0,
            "estimate: if other nodes spend at most half as much, the spread is uneven",
        ),
        Limit::until("busy", 70.0, 80.0, "estimate: leaves room for the interrupts below the 85 % of [S2]"),
        Limit::least(
            "process",
            10.0,
            "estimate: a tenth of a CPU; below this, a change can cost more than \
                                       it gains",
        ),
    ],
    idle_too: true,
    judge: &Condition { look, advise },
};

/// The process with this home node that loses most to interrupts, with its loss in percent of a CPU.
fn victim<'a>(view: &View<'a>, node: NodeId) -> Option<(f64, &'a Task)> {
    let now = waiting::now(view);
    let here = view.candidates().filter(|task| task.home_node() == Some(node));
    let takes = here.filter_map(|task| {
        let of = SubjectRef::Process(task);
        let age_s = view.snapshot.boot_ns.saturating_sub(task.raw.leader_start_ns) as f64 / 1e9;
        let irq = now.number(&interrupts::IRQ_PCT, &of).ok()?;
        let used = now.number(&task::CPU_PCT, &of).ok()?;
        (age_s >= LIVES_S && irq >= view.limit("process") && irq * 100.0 >= used * SHARE_PCT)
            .then_some((irq, task))
    });
    takes.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.raw.pid.cmp(&a.1.raw.pid)))
}

/// The node, a quieter one, and a process that suffers.
struct Facts {
    /// The node that handles the interrupts.
    node: NodeId,
    /// Time of its CPUs in interrupts, percent.
    irq: f64,
    /// The node that handles few.
    other: NodeId,
    /// The same of that node.
    few: f64,
    /// The process that loses most time to them.
    victim: Subject,
    /// CPUs that it loses.
    loses: f64,
}

fn look(view: &View<'_>, of: &SubjectRef<'_>) -> Result<Seen<Facts>, Unmet> {
    let SubjectRef::Node(row) = of else { return Err(Unmet::Quiet) };
    let node = NodeId(row.raw.id);
    if row.cpus == 0 || view.whole_nodes().len() < 2 {
        return Err(Unmet::Quiet);
    }
    let irq = need(view.node_number(&IRQ_PCT, row))?;
    if irq < view.limit("irq") {
        return Err(Unmet::Quiet);
    }
    let Some((other, load, _)) = waiting::idlest_node(view, node) else { return Err(Unmet::Quiet) };
    let Some(there) = view.node(other) else { return Err(Unmet::Quiet) };
    let few = need(view.node_number(&IRQ_PCT, there))?;
    if few * 100.0 > irq * view.limit("other") || load > view.limit("busy") {
        return Err(Unmet::Quiet);
    }
    let Some((takes, task)) = victim(view, node) else { return Err(Unmet::Quiet) };
    let over_ns = waiting::now(view).over_ns();
    let victim = process(&task.raw);
    Ok(Seen {
        severity: Severity::Info,
        confidence: Confidence::Estimated,
        evidence: vec![
            view.evidence(IRQ_PCT.id, of.subject(), irq).limit(view.limit("irq")),
            view.evidence(IRQ_PCT.id, Subject::Node(other), few)
                .limit(irq * view.limit("other") / 100.0)
                .note(Note::AtMost),
            view.evidence(CPU_PCT.id, Subject::Node(other), load)
                .limit(view.limit("busy"))
                .note(Note::AtMost),
            Evidence {
                over_ns,
                ..view
                    .evidence(interrupts::IRQ_PCT.id, victim.clone(), takes)
                    .limit(view.limit("process"))
                    .note(Note::Estimated)
            },
        ],
        facts: Facts { node, irq, other, few, victim, loses: takes / 100.0 },
    })
}

/// A device, and its interrupts per second that CPUs of a node handle, where they are counted.
type Loud<'a> = (&'a Device, Option<f64>);

/// Devices that have interrupts handled by CPUs of this node, the loudest first.
fn devices<'a>(view: &View<'a>, node: NodeId) -> Vec<Loud<'a>> {
    // Several ports may be one function.
    let mut seen = BTreeSet::new();
    let all = view.topology().placed_devices();
    let all = all.filter(|device| device.pci.as_ref().is_none_or(|address| seen.insert(address)));
    let here = all.filter(|device| view.snapshot.handles(node, device));
    let rate = |device| view.snapshot.interrupts_of(device).map(|counted| counted.per_second_on(node));
    let mut found: Vec<Loud<'_>> = here.map(|device| (device, rate(device))).collect();
    found.sort_by(|(_, a), (_, b)| b.unwrap_or(0.0).total_cmp(&a.unwrap_or(0.0)));
    found
}

/// The device that has nearly all of these interrupts. If all are counted, it is the loudest, if that takes
/// time of a node; else the only device.
fn culprit<'a>(devices: &[Loud<'a>]) -> Option<Loud<'a>> {
    let first = *devices.first()?;
    let rates: Option<Vec<f64>> = devices.iter().map(|(_, per_s)| *per_s).collect();
    match rates {
        Some(rates) => {
            let is_most = rates[0] >= MOST * rates.iter().sum::<f64>();
            (is_most && rates[0] >= LOUD).then_some(first)
        }
        None => (devices.len() == 1).then_some(first),
    }
}

fn advise(view: &View<'_>, of: &SubjectRef<'_>, seen: &Seen<Facts>) -> Advice {
    let Facts { node, irq, other, few, loses, .. } = seen.facts;
    let at = view.rows.processes.get(&seen.facts.victim);
    let Some(task) = at.map(|at| &view.snapshot.tasks[*at]) else { return Advice::default() };
    let devices = devices(view, node);
    let label = |device: &Device| text::name(&clean_str(&device.name));
    let culprit = culprit(&devices);
    let (commands, undo) = match culprit.and_then(|(device, _)| device.pci.as_deref()) {
        Some(address) => {
            let cpus = [node, other].map(|node| view.cpus_of_nodes(&[node]));
            move_interrupts(address, &cpus[1], &cpus[0])
        }
        None => {
            let name = |(device, per_s): &Loud<'_>| match per_s {
                Some(per_s) => format!("{}: {} a second", label(device), count(*per_s)),
                None => label(device),
            };
            let names: Vec<String> = devices.iter().take(NAMED).map(name).collect();
            let which = match names.is_empty() {
                true => "the device's interrupts".to_owned(),
                false => {
                    format!("the interrupts of the busy device (candidates here: {})", names.join(", "))
                }
            };
            let words = format!(
                "save /proc/irq/*/smp_affinity_list, stop irqbalance or ban the CPUs of node {node} in it, and \
                 write CPUs of node {other} into smp_affinity_list of {which}"
            );
            (vec![Command::words(When::Now, Scope::Host, words)], Vec::new())
        }
    };
    let used = waiting::now(view).cpus(&SubjectRef::Process(task));
    Advice {
        sentence: sentence(format!(
            "Interrupts take {} of the time of node {node}, where {} runs, and {} of node {other}.{}",
            pct(irq),
            comm(task.raw.comm),
            pct(few),
            match culprit {
                Some((device, Some(per_s))) => {
                    format!(" {} raises {} interrupts a second there.", label(device), count(per_s))
                }
                _ => String::new(),
            }
        )),
        gain: Gain {
            at_most: Some(loses),
            of: Some(used),
            how: Some(Arithmetic::Interrupts),
            ..Gain::default()
        },
        commands,
        undo,
        check: vec![Check {
            metric: IRQ_PCT.id,
            of: of.subject(),
            from: irq,
            to: irq / 5.0,
            below: true,
            within_s: 30.0,
        }],
        risk: "This affects the whole machine: the packets of the device are then handled far from it. Some \
               interrupts cannot be moved."
            .into(),
        or_else: vec![format!(
            "If the process itself uses the device, its packets already arrive on the right node. If a \
             packet flood or a broken driver is the cause, irq_pct of node {node} was lower before the \
             problem started."
        )],
        ..Advice::default()
    }
}
