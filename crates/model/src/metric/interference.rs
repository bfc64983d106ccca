//! Time that a task loses to interrupts on its CPU, and to waiting while others idle. Both are estimates from CPUs and
//! tasks at the end of an interval, and cost the context switch nothing.

use super::host::no_irq;
use super::over::{Better, Over};
use super::{Group, Metric, Order, Traits, Unit, Value, no, sum};
use crate::model::counters::Counter;
use crate::model::facility::Facility;
use crate::model::sample::{Missing, Reading};
use crate::model::units::NodeId;
use crate::snapshot::{Container, CpuDelta, Snapshot, Task};

pub const IRQ_PCT: Metric<Task> = Metric {
    id: "irq_pct",
    title: "IRQ%",
    width: 6,
    group: Group::Running,
    unit: Unit::Percent,
    order: Order::Descending,
    help: "Estimate: share of the interval lost to hard and soft interrupts while it was on a CPU: its \
           on-CPU time times the interrupt share of that CPU (/proc/stat, in steps of 10 ms), or of its \
           node if it moved or has several threads.",
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
    help: "Estimate: share of the interval lost to hard and soft interrupts while its tasks were on CPUs: \
           their time on each node times the interrupt share of the node's CPUs; 100 is one CPU.",
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
    help: "Estimate: the part of runq_wait_pct in which a CPU of another node was idle: the wait times the \
           idle share of the idlest CPU outside its home node. Excludes waits due to a quota, and threads \
           that may not use all CPUs.",
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
    help: "Estimate: its wait (runq_wait_pct) times the throttled share of all waits in its cgroup or one above.",
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
    help: "Estimate: the part of runq_wait_pct in which an affinity or a cpuset kept its threads from an \
           idle CPU: the wait of threads that may not use all CPUs, times the idle share of the idlest \
           CPU. Excludes waits due to a quota.",
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
    wanted.map(idle).max_by(f64::total_cmp).ok_or_else(|| no("no such CPU is online"))
}
