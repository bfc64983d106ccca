//! The metrics of interrupts of devices, by node; and time that a task loses to interrupts on its CPU, and to waiting while others
//! idle. Both of the latter are estimates from CPUs and tasks at the end of an interval.

use std::collections::BTreeMap;

use super::host::no_irq;
use super::over::{Better, Over, Quotient};
use super::{Group, Metric, Order, Stands, Traits, Unit, Value, no, sum};
use crate::model::counters::Counter;
use crate::model::facility::Facility;
use crate::model::sample::{Missing, Reading};
use crate::model::topology::Device;
use crate::model::turns::DeviceInterrupts;
use crate::model::units::NodeId;
use crate::snapshot::{Container, CpuDelta, Node, Snapshot, Task};
use crate::text::clean_str;

pub const IRQS_PER_S: Metric<Node> = metric(
    "irqs_per_s",
    "IRQ/s",
    Unit::PerSecond,
    "Message-signalled interrupts of devices (network cards, disks, GPUs) that the node's CPUs handle, per second. \
     Excludes devices of an unknown node. Devices are read in turns, at most one per second; a rate covers the \
     time between the last two readings.",
    |node, snapshot| {
        let here = NodeId(node.raw.id);
        let devices = counted(snapshot.host.topology.placed_devices(), snapshot)?;
        if devices.is_empty() {
            return Err(no("no device with its own interrupts has a known node"));
        }
        Ok(Value::F64(devices.iter().map(|device| device.per_second_on(here)).sum()))
    },
);

pub const DEVICE_IRQS_PER_S: Metric<Node> = metric(
    "device_irqs_per_s",
    "DEVIRQ/s",
    Unit::PerSecond,
    "Interrupts per second of the devices on the node, handled on any CPU.",
    |node, snapshot| {
        let devices = of_node(node, snapshot)?;
        Ok(Value::F64(devices.iter().map(|device| device.all_per_second()).sum()))
    },
);

pub const DEVICE_IRQS_AWAY_PCT: Metric<Node> = Metric {
    over: Over::Quotient(away),
    traits: Traits::NONE
        .needs(&[Facility::DeviceIrqs])
        .stands(Stands::Remote(|pct| pct > 0.0))
        .better(Better::Low),
    ..metric(
        "device_irqs_away_pct",
        "IRQAWAY%",
        Unit::Percent,
        "Share of the interrupts of its devices that CPUs of other nodes handled. These CPUs touch the device's \
         data first, far from the device.",
        |node, snapshot| away(node, snapshot).map(Quotient::value).map(Value::F64),
    )
};

/// Interrupts in the interval that other nodes handled, of all of the node's devices.
fn away(node: &Node, snapshot: &Snapshot) -> Reading<Quotient> {
    let (devices, home) = (of_node(node, snapshot)?, NodeId(node.raw.id));
    let seconds = snapshot.interval_ns.filter(|ns| *ns > 0).ok_or(Missing::FirstInterval)? as f64 / 1e9;
    let all: f64 = devices.iter().map(|device| device.all_per_second()).sum();
    let away: f64 = devices.iter().map(|device| device.per_second(|of| of != home)).sum();
    if all > 0.0 {
        Ok(Quotient::pct(away * seconds, all * seconds))
    } else {
        Err(no("the devices of the node had no interrupts"))
    }
}

/// Interrupts of devices on the node that have any.
///
/// # Errors
/// It has no such device, or not all of them were counted.
fn of_node<'a>(node: &Node, snapshot: &'a Snapshot) -> Reading<Vec<&'a DeviceInterrupts>> {
    let gone = || Missing::NotCollected("the node is offline now".into());
    let facts = snapshot.host.topology.node(NodeId(node.raw.id)).ok_or_else(gone)?;
    let found = counted(facts.devices.iter(), snapshot)?;
    if found.is_empty() { Err(no("no device on the node has its own interrupts")) } else { Ok(found) }
}

/// Interrupts of those of these devices that have any, each function once.
///
/// # Errors
/// Not all of them were counted.
fn counted<'a>(
    devices: impl Iterator<Item = &'a Device>,
    snapshot: &'a Snapshot,
) -> Reading<Vec<&'a DeviceInterrupts>> {
    let mut found = BTreeMap::new();
    for device in devices {
        match snapshot.interrupts_of(device) {
            Some(counted) => _ = found.insert(&device.pci, counted),
            // It has no interrupts itself.
            None if device.irq_nodes.is_empty() => {}
            None => {
                let name = clean_str(&device.name);
                let why =
                    format!("the interrupts of {name} are not counted, or were counted only once so far");
                return Err(Missing::NotCollected(why));
            }
        }
    }
    Ok(found.into_values().collect())
}

const fn metric(
    id: &'static str,
    title: &'static str,
    unit: Unit,
    help: &'static str,
    value: fn(&Node, &Snapshot) -> Reading<Value>,
) -> Metric<Node> {
    let kind = (Group::Node, unit, Order::Descending);
    Metric::new(id, (title, 8), kind, help, value).with(Traits::NONE.needs(&[Facility::DeviceIrqs]))
}

pub const IRQ_PCT: Metric<Task> = Metric {
    id: "irq_pct",
    title: "IRQ%",
    width: 6,
    group: Group::Running,
    unit: Unit::Percent,
    order: Order::Descending,
    help: "Estimate: share of the interval lost to hard and soft interrupts while it was on a CPU. Its on-CPU time \
           is multiplied by the interrupt share of that CPU (/proc/stat, in steps of 10 ms). If it moved or has \
           several threads, the share of the node is used.",
    value: |task, snapshot| {
        let ns = irq_ns(task, snapshot)?;
        snapshot.rate_f64(ns).map(|per_second| Value::estimate(per_second / 1e7))
    },
    over: Over::Time,
    traits: Traits::NONE.needs(&[Facility::Irq]).better(Better::Low),
};

pub const CONTAINER_IRQ_PCT: Metric<Container> = Metric {
    id: IRQ_PCT.id,
    title: IRQ_PCT.title,
    width: IRQ_PCT.width,
    group: IRQ_PCT.group,
    unit: IRQ_PCT.unit,
    order: IRQ_PCT.order,
    help: "Estimate: time that its tasks lost to hard and soft interrupts, in % of one CPU. For each node, \
           CPU time of its tasks is multiplied by the average interrupt share of the node's CPUs.",
    value: |row, snapshot| {
        let ns = irq_ns_on_nodes(&row.sum.delta.run_ns, snapshot)?;
        snapshot.rate_f64(ns).map(|per_second| Value::estimate(per_second / 1e7))
    },
    over: Over::Time,
    traits: Traits::NONE.needs(&[Facility::Irq]).better(Better::Low),
};

pub const RUNQ_WAIT_IDLE_ELSEWHERE_PCT: Metric<Task> = Metric {
    id: "runq_wait_idle_elsewhere_pct",
    title: "WIDLE%",
    width: 6,
    group: Group::Running,
    unit: Unit::Percent,
    order: Order::Descending,
    help: "Estimate: the part of runq_wait_pct during which a CPU of another node was idle. The wait is multiplied \
           by the idle share of the idlest CPU outside its home node. Excludes waits due to a quota, and threads \
           limited to some CPUs.",
    value: |task, snapshot| {
        let free_ns = task.delta[Counter::RunDelayNs].saturating_sub(task.waits.bound_ns);
        let wait = snapshot.share(free_ns)? * (1.0 - task.waits.throttled);
        let idle = if wait > 0.0 { idle_elsewhere(task, snapshot)? } else { 0.0 };
        Ok(Value::estimate(wait * idle))
    },
    over: Over::Time,
    traits: Traits::NONE.better(Better::Low),
};

pub const RUNQ_WAIT_THROTTLED_PCT: Metric<Task> = Metric {
    id: "runq_wait_throttled_pct",
    title: "WQUOTA%",
    width: 7,
    group: Group::Running,
    unit: Unit::Percent,
    order: Order::Descending,
    help: "Estimate: the part of runq_wait_pct due to a CPU quota. The wait is multiplied by the throttled share \
           of all waits in its cgroup or a parent.",
    value: |task, snapshot| {
        let wait = snapshot.share(task.delta[Counter::RunDelayNs])?;
        Ok(Value::estimate(wait * task.waits.throttled))
    },
    over: Over::Time,
    traits: Traits::NONE.needs(&[Facility::CgroupLimits]).better(Better::Low),
};

pub const RUNQ_WAIT_BOUND_PCT: Metric<Task> = Metric {
    id: "runq_wait_bound_pct",
    title: "WBOUND%",
    width: 7,
    group: Group::Running,
    unit: Unit::Percent,
    order: Order::Descending,
    help: "Estimate: the part of runq_wait_pct during which an affinity or a cpuset kept its threads from an idle \
           CPU. The wait of threads limited to some CPUs is multiplied by the idle share of the idlest CPU. \
           Excludes waits due to a quota.",
    value: |task, snapshot| {
        let wait = snapshot.share(task.waits.bound_ns)? * (1.0 - task.waits.throttled);
        let idle = if wait > 0.0 { idlest(snapshot, |_| true)? } else { 0.0 };
        Ok(Value::estimate(wait * idle))
    },
    over: Over::Time,
    traits: Traits::NONE.better(Better::Low),
};

/// Time in interrupts, of the on-CPU time of a task.
fn irq_ns(task: &Task, snapshot: &Snapshot) -> Reading<f64> {
    let interval = snapshot.interval_ns.filter(|ns| *ns > 0).ok_or(Missing::FirstInterval)? as f64;
    let stayed = task.threads == 1 && task.delta[Counter::CpuMigrations] == 0;
    if stayed && let Some(cpu) = snapshot.cpus.iter().find(|cpu| cpu.id == task.raw.cpu) {
        let ns = cpu.irq_ns.ok_or_else(|| no_irq(snapshot, |of| of.id == cpu.id))?;
        return Ok(task.run_ns() as f64 * share(ns, interval));
    }
    irq_ns_on_nodes(&task.delta.run_ns, snapshot)
}

/// Time in interrupts, of on-CPU time by node: the average share of its node's CPUs.
fn irq_ns_on_nodes(run_ns: &[u64], snapshot: &Snapshot) -> Reading<f64> {
    let interval = snapshot.interval_ns.filter(|ns| *ns > 0).ok_or(Missing::FirstInterval)? as f64;
    let on_node = |(node, ns): (usize, &u64)| {
        let here = || snapshot.cpus.iter().filter(move |cpu| cpu.online && cpu.node as usize == node);
        let shares: Option<Vec<f64>> = here().map(|cpu| Some(share(cpu.irq_ns?, interval))).collect();
        let shares = shares.ok_or_else(|| no_irq(snapshot, |cpu| cpu.node as usize == node))?;
        Ok(*ns as f64 * sum(shares.iter().copied()) / shares.len().max(1) as f64)
    };
    let of_nodes: Reading<Vec<f64>> =
        run_ns.iter().enumerate().filter(|(_, ns)| **ns > 0).map(on_node).collect();
    of_nodes.map(|of_nodes| sum(of_nodes.into_iter()))
}

/// From 0 to 1.
fn share(ns: u64, interval: f64) -> f64 {
    (ns as f64 / interval).min(1.0)
}

/// The idle share of the idlest CPU outside of its home node, from 0 to 1.
fn idle_elsewhere(task: &Task, snapshot: &Snapshot) -> Reading<f64> {
    if snapshot.host.topology.nodes.len() == 1 {
        return Err(no("the machine has one node"));
    }
    let home = task.home_node().or(snapshot.host.node_of(task.raw.cpu));
    idlest(snapshot, |cpu| Some(NodeId(cpu.node)) != home)
}

/// The idle share of the idlest of these CPUs, from 0 to 1.
fn idlest(snapshot: &Snapshot, of: impl Fn(&CpuDelta) -> bool) -> Reading<f64> {
    let interval = snapshot.interval_ns.filter(|ns| *ns > 0).ok_or(Missing::FirstInterval)? as f64;
    let idle = |cpu: &CpuDelta| 1.0 - share(cpu.busy_ns, interval);
    let wanted = snapshot.cpus.iter().filter(|cpu| cpu.online && of(cpu));
    wanted.map(idle).max_by(f64::total_cmp).ok_or_else(|| no("the CPU where it ran is offline"))
}
