//! The metrics of GPUs and other accelerators that processes hold.

use std::collections::BTreeMap;

use super::over::{Better, Over, Quotient};
use super::{Group, Metric, Order, Several, Traits, Unit, Value, no};
use crate::model::accelerators::{Accelerator, nodes_of};
use crate::model::facility::Facility;
use crate::model::process::ProcessId;
use crate::model::sample::Reading;
use crate::model::topology::{Device, format_cpulist};
use crate::snapshot::{Container, Snapshot, Task};
use crate::text::clean;

/// Names that a value has at most; the number of others follows.
const NAMES: usize = 16;

/// Processes that the holders of a device are at most.
const HOLDERS: usize = 5;

const NEEDS: Traits = Traits::NONE.needs(&[Facility::Accelerators]);

const HELP_NAMES: &str = "GPUs and other accelerators whose device files it has open (NVIDIA, DRM, accel, kfd, \
                          VFIO, RDMA), checked at most every 10 s. An open device is not necessarily in use.";
const HELP_NODES: &str = "Nodes of the accelerators that it holds, as a list; ? if the firmware does not \
                          give the node.";
const HELP_FAR: &str = "Share of its on-CPU time on nodes other than those of its accelerators.";

pub const ACCELERATORS: Metric<Task> =
    names("accelerators", |task, snapshot| names_of(held(task, snapshot)?));
pub const ACCELERATOR_NODES: Metric<Task> =
    nodes("accelerator_nodes", |task, snapshot| node_list(held(task, snapshot)?));
pub const ACCELERATOR_FAR_PCT: Metric<Task> = far_pct(
    "accelerator_far_pct",
    |task, snapshot| far(held(task, snapshot)?, &task.delta.run_ns).map(Quotient::value).map(Value::F64),
    |task, snapshot| far(held(task, snapshot)?, &task.delta.run_ns),
);

pub const CONTAINER_ACCELERATORS: Metric<Container> =
    names(ACCELERATORS.id, |row, _| names_of(held_in(row)?));
pub const CONTAINER_NODES: Metric<Container> = nodes(ACCELERATOR_NODES.id, |row, _| node_list(held_in(row)?));
pub const CONTAINER_FAR_PCT: Metric<Container> = far_pct(
    ACCELERATOR_FAR_PCT.id,
    |row, _| far(held_in(row)?, &row.sum.delta.run_ns).map(Quotient::value).map(Value::F64),
    |row, _| far(held_in(row)?, &row.sum.delta.run_ns),
);

const fn names<R>(id: &'static str, value: fn(&R, &Snapshot) -> Reading<Value>) -> Metric<R> {
    let kind = (Group::Running, Unit::Text, Order::Ascending);
    Metric::new(id, ("ACCEL", 16), kind, HELP_NAMES, value).with(NEEDS)
}

const fn nodes<R>(id: &'static str, value: fn(&R, &Snapshot) -> Reading<Value>) -> Metric<R> {
    let kind = (Group::Running, Unit::Text, Order::Ascending);
    Metric::new(id, ("ACCNODES", 8), kind, HELP_NODES, value).with(NEEDS.several(Several::Nodes))
}

const fn far_pct<R>(
    id: &'static str,
    value: fn(&R, &Snapshot) -> Reading<Value>,
    of: fn(&R, &Snapshot) -> Reading<Quotient>,
) -> Metric<R> {
    let kind = (Group::Running, Unit::Percent, Order::Descending);
    let metric = Metric::new(id, ("ACCFAR%", 7), kind, HELP_FAR, value).over(Over::Quotient(of));
    metric.with(NEEDS.several(Several::Nodes).better(Better::Low))
}

/// Accelerators that the process of a task holds; at least one.
///
/// # Errors
/// It holds none.
pub fn held<'s>(task: &Task, snapshot: &'s Snapshot) -> Reading<&'s [Accelerator]> {
    let held = snapshot.inputs.accelerators.get(&task.raw.process()).map(|held| held.as_slice());
    held.filter(|held| !held.is_empty()).ok_or_else(|| no("the process holds no accelerator"))
}

fn held_in(row: &Container) -> Reading<&[Accelerator]> {
    if row.held.is_empty() { Err(no("the process holds no accelerator")) } else { Ok(&row.held) }
}

/// `card0,renderD128`, the first sixteen.
pub fn name_list(held: &[Accelerator]) -> String {
    let shown = held.iter().take(NAMES).map(|one| one.name.clone());
    shown.chain(more(held.len(), NAMES)).collect::<Vec<_>>().join(",")
}

/// `+3` of 19.
fn more(all: usize, most: usize) -> Option<String> {
    (all > most).then(|| format!("+{}", all - most))
}

fn names_of(held: &[Accelerator]) -> Reading<Value> {
    Ok(Value::Text(name_list(held)))
}

fn node_list(held: &[Accelerator]) -> Reading<Value> {
    let (nodes, is_nodeless) = nodes_of(held);
    let known = (!nodes.is_empty()).then(|| format_cpulist(nodes.iter().map(|node| node.0)));
    let list: Vec<String> = known.into_iter().chain(is_nodeless.then(|| "?".to_owned())).collect();
    Ok(Value::Text(list.join(",")))
}

/// On-CPU time of a task that holds accelerators on other nodes than theirs, and all of it, ns.
///
/// # Errors
/// It holds none, or the node of one is not known.
pub fn far_and_all_ns(task: &Task, snapshot: &Snapshot) -> Reading<(u64, u64)> {
    far_and_all(held(task, snapshot)?, &task.delta.run_ns)
}

/// The same of a container.
///
/// # Errors
/// As of a task.
pub fn container_far_and_all_ns(row: &Container) -> Reading<(u64, u64)> {
    far_and_all(held_in(row)?, &row.sum.delta.run_ns)
}

/// Time on other nodes than those of these accelerators, and all time, ns.
fn far_and_all(held: &[Accelerator], run_ns: &[u64]) -> Reading<(u64, u64)> {
    let (nodes, is_nodeless) = nodes_of(held);
    if is_nodeless {
        return Err(no("the node of an accelerator is not known"));
    }
    let (mut far, mut all) = (0u64, 0u64);
    for (node, ns) in run_ns.iter().enumerate() {
        all = all.saturating_add(*ns);
        if !nodes.iter().any(|own| own.index() == node) {
            far = far.saturating_add(*ns);
        }
    }
    Ok((far, all))
}

fn far(held: &[Accelerator], run_ns: &[u64]) -> Reading<Quotient> {
    let (far, all) = far_and_all(held, run_ns)?;
    if all == 0 {
        Err(no("the task did not run in this interval"))
    } else {
        Ok(Quotient::pct(far as f64, all as f64))
    }
}

/// Live processes that hold a device, `2710 zstd, 3001 train`: the first five. Empty without any.
pub fn held_by(device: &Device, snapshot: &Snapshot) -> String {
    holders(snapshot, &is_of(device))
}

/// Whether an accelerator is a function of the device.
pub fn is_of(device: &Device) -> impl Fn(&Accelerator) -> bool {
    |one| device.pci.as_ref().is_some_and(|address| one.functions.contains(address))
}

/// Live processes that hold such an accelerator, in the same form.
pub fn holders(snapshot: &Snapshot, is_it: &dyn Fn(&Accelerator) -> bool) -> String {
    let holds = |process: &ProcessId| {
        let held = snapshot.inputs.accelerators.get(process);
        held.is_some_and(|held| held.iter().any(is_it))
    };
    let mut holders: BTreeMap<ProcessId, &Task> = BTreeMap::new();
    for task in snapshot.tasks.iter().filter(|task| !task.exited && holds(&task.raw.process())) {
        // Of threads, the first one names the process.
        let first = holders.entry(task.raw.process()).or_insert(task);
        if task.raw.tid == task.raw.pid {
            *first = task;
        }
    }
    let name =
        |(process, task): (&ProcessId, &&Task)| format!("{} {}", process.0, clean(task.raw.comm.bytes()));
    let shown = holders.iter().take(HOLDERS).map(name);
    shown.chain(more(holders.len(), HOLDERS)).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::units::NodeId;

    fn of(name: &str, nodes: &[u32], is_nodeless: bool) -> Accelerator {
        let nodes = nodes.iter().copied().map(NodeId).collect();
        Accelerator { name: name.into(), functions: vec![], nodes, is_nodeless }
    }

    #[test]
    fn more_than_sixteen_names_are_counted() {
        let held: Vec<Accelerator> = (0..19).map(|at| of(&format!("nvidia{at}"), &[0], false)).collect();
        assert!(name_list(&held).ends_with("nvidia14,nvidia15,+3"), "{}", name_list(&held));
        assert!(name_list(&held[..16]).ends_with("nvidia14,nvidia15"));
    }

    #[test]
    fn nodes_are_a_list_with_a_mark_for_unknown_ones() {
        let list = |held: &[Accelerator]| node_list(held).unwrap();
        let text = |text: &str| Value::Text(text.into());
        assert_eq!(list(&[of("a", &[0], false), of("b", &[1, 3], false)]), text("0-1,3"));
        assert_eq!(list(&[of("a", &[1], false), of("b", &[], true)]), text("1,?"));
        assert_eq!(list(&[of("kfd", &[], true)]), text("?"));
    }

    #[test]
    fn time_is_far_where_no_accelerator_is() {
        let pct = |held: &[Accelerator], run_ns: &[u64]| far(held, run_ns).map(Quotient::value);
        assert_eq!(pct(&[of("a", &[1], false)], &[30, 10]), Ok(75.0));
        assert_eq!(pct(&[of("a", &[1], false), of("b", &[0], false)], &[30, 10]), Ok(0.0));
        assert_eq!(pct(&[of("a", &[9], false)], &[u64::MAX, u64::MAX]), Ok(100.0));
        assert!(pct(&[of("a", &[1], true)], &[30, 10]).is_err());
        assert!(pct(&[of("a", &[1], false)], &[0, 0]).is_err());
    }
}
