//! The firmware does not give the node of a GPU, an NVMe disk or a network card.

use super::super::command::{Command, Scope, When};
use super::super::rule::{Condition, Group, Hold, Rule, Seen, Unmet};
use super::super::text::{name, sentence};
use super::super::view::{SubjectRef, View};
use super::super::{Advice, Confidence, Note, Severity, Subject, SubjectKind};
use crate::model::topology::{Device, DeviceClass};
use crate::model::units::NodeId;
use crate::text::{clean_str, plural};

pub(super) static RULE: Rule = Rule {
    id: "device-node-unknown",
    title: "The firmware hides the node of a device",
    about: "The firmware does not give the node of a GPU, an NVMe disk or a network card. Rules about the place of \
            devices do not run.",
    not_when: &[
        ("one-node", "the machine has one node"),
        ("vm", "the machine is virtual: hypervisors often hide the node of a device"),
        ("other-bus", "the device is not a PCI function"),
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

/// Devices that a sentence names.
const NAMED: usize = 3;

fn devices<'a>(view: &'a View<'_>) -> impl Iterator<Item = &'a Device> {
    let is_one = |class| matches!(class, DeviceClass::Gpu | DeviceClass::Nvme | DeviceClass::Net);
    let all = view.topology().unplaced_devices.iter();
    all.filter(move |device| is_one(device.class) && device.pci.is_some() && device.node.is_none())
}

fn look(view: &View<'_>, _: &SubjectRef<'_>) -> Result<Seen<()>, Unmet> {
    if view.whole_nodes().len() < 2
        || super::is_virtual(&view.snapshot.host)
        || devices(view).next().is_none()
    {
        return Err(Unmet::Quiet);
    }
    let of_node = |node: &crate::snapshot::Node| {
        let subject = Subject::Node(NodeId(node.raw.id));
        view.evidence("cpus", subject, f64::from(node.cpus)).note(Note::Setting)
    };
    Ok(Seen {
        severity: Severity::Info,
        confidence: Confidence::Measured,
        evidence: view.snapshot.nodes.first().map(of_node).into_iter().collect(),
        facts: (),
    })
}

fn advise(view: &View<'_>, _: &SubjectRef<'_>, _: &Seen<()>) -> Advice {
    let names: Vec<String> = devices(view).map(|device| name(&clean_str(&device.name))).collect();
    let more = names.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let words = [
        "firmware: enable NUMA for I/O (PCI root bridges, _PXM), or update the firmware",
        "or write the node, if known, to /sys/bus/pci/devices/ADDRESS/numa_node; this taints the kernel",
    ];
    Advice {
        sentence: sentence(format!(
            "The firmware does not give the node of {}: {}{more}.",
            plural(names.len(), "device"),
            names[..names.len().min(NAMED)].join(", ")
        )),
        commands: words.map(|words| Command::words(When::ForGood, Scope::Host, words)).into(),
        or_else: vec![
            "The device can be behind a bridge that all sockets share, and then has no node.".into(),
        ],
        ..Advice::default()
    }
}
