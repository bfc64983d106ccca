//! The metrics of where a task may run and take memory from. Neither needs [`Facility::AllowedNodes`]: containers have metrics of
//! the same names, and these would be missing with it.
//!
//! [`Facility::AllowedNodes`]: crate::model::facility::Facility::AllowedNodes

use super::over::Over;
use super::{Group, Metric, Order, Traits, Unit, Value, no, on_demand};
use crate::model::sample::{Missing, OTHERS_PID, Reading};
use crate::model::topology::format_cpulist;
use crate::snapshot::{Snapshot, Task};

pub const NODES_ALLOWED: Metric<Task> = Metric {
    id: "nodes_allowed",
    title: "CPUNODES",
    width: 8,
    group: Group::Running,
    unit: Unit::Text,
    order: Order::Ascending,
    help: "Nodes of the CPUs it may use, as a list: its affinity (taskset(1)) within its cpuset. Of a process: of \
           all its threads.",
    value: |task, snapshot| of(task, task.cpu_nodes, snapshot).map(Value::Text),
    over: Over::Newest,
    traits: Traits::NONE,
};

pub const MEMS_ALLOWED: Metric<Task> = Metric {
    id: "mems_allowed",
    title: "MEMS",
    width: 6,
    group: Group::Memory,
    unit: Unit::Text,
    order: Order::Ascending,
    help: "Nodes that it may take memory from (cpuset), as a list. Of the main thread of a process.",
    value: |task, snapshot| match of(task, task.raw.mem_nodes, snapshot) {
        Ok(nodes) => Ok(Value::Text(nodes)),
        // Nodes above 63 are in no sample.
        Err(_) => on_demand::mems_allowed(task).map(Value::Text),
    },
    over: Over::Newest,
    traits: Traits::NONE,
};

fn of(task: &Task, nodes: Option<u64>, snapshot: &Snapshot) -> Reading<String> {
    if task.ended() || task.raw.exit_state != 0 {
        return Err(no("the task has ended"));
    }
    if task.raw.pid == OTHERS_PID {
        return Err(no("several tasks, each with its own"));
    }
    if snapshot.host.topology.possible_nodes > u64::BITS {
        return Err(Missing::Unsupported("nodes above 63 are not shown".into()));
    }
    nodes.map(node_list).ok_or_else(|| no("it was not recorded, or the kernel does not say"))
}

/// Bits of nodes as a list: `0-1,4`.
pub(super) fn node_list(bits: u64) -> String {
    format_cpulist((0..u64::BITS).filter(|node| bits >> node & 1 == 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_of_nodes_are_a_list() {
        assert_eq!([0b1_0011, 1 << 63, 0].map(node_list), ["0-1,4", "63", ""]);
    }
}
