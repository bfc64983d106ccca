//! The metrics of where a task may run and take memory from, and asks for its new memory. The former do not need
//! [`Facility::AllowedNodes`]: containers have metrics of the same names, and these would be missing with it.
//!
//! [`Facility::AllowedNodes`]: crate::model::facility::Facility::AllowedNodes

use super::over::Over;
use super::{Group, Metric, Order, Traits, Unit, Value, identity, no};
use crate::model::facility::Facility;
use crate::model::sample::{MemPolicy, Missing, OTHERS_PID, Reading};
use crate::model::topology::format_cpulist;
use crate::model::units::NodeId;
use crate::snapshot::{Snapshot, Task};

pub const NODES_ALLOWED: Metric<Task> = Metric {
    id: "nodes_allowed",
    title: "CPUNODES",
    width: 8,
    group: Group::Running,
    unit: Unit::Text,
    order: Order::Ascending,
    help: "Nodes of its allowed CPUs, as a list: its affinity (taskset(1)) within its cpuset. For a process, \
           those of all its threads count.",
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
    help: "Nodes from which it is allowed to take memory (cpuset), as a list. A process shows those of its \
           main thread.",
    value: |task, snapshot| match of(task, task.raw.mem_nodes, snapshot) {
        Ok(nodes) => Ok(Value::Text(nodes)),
        // Nodes above 63 are in no sample.
        Err(_) => identity::mems_allowed(task).map(Value::Text),
    },
    over: Over::Newest,
    traits: Traits::NONE,
};

fn of(task: &Task, nodes: Option<u64>, snapshot: &Snapshot) -> Reading<String> {
    if task.ended() || task.raw.exit_state != 0 {
        return Err(no("the task has ended"));
    }
    if task.raw.pid == OTHERS_PID {
        return Err(no("the row has several tasks, each with its own value"));
    }
    if snapshot.host.topology.possible_nodes > u64::BITS {
        return Err(Missing::Unsupported("nodes above 63 are not shown".into()));
    }
    nodes.map(node_list).ok_or_else(|| no("the value was not recorded, or the kernel does not report it"))
}

/// Bits of nodes as a list: `0-1,4`.
pub(super) fn node_list(bits: u64) -> String {
    format_cpulist((0..u64::BITS).filter(|node| bits >> node & 1 == 1))
}

pub const POLICY: Metric<Task> = Metric {
    id: "mempolicy",
    title: "MEMPOLICY",
    width: 12,
    group: Group::Memory,
    unit: Unit::Text,
    order: Order::Ascending,
    help: "Memory policy for its new pages (set_mempolicy(2), numactl(8)), with nodes as in numa_maps; \
           default means the node where it runs. A process shows that of its main thread. Mappings can have \
           their own policies: press m in the details.",
    value: |task, snapshot| Ok(Value::Text(policy_of(task)? + &weights(task, snapshot))),
    over: Over::Newest,
    traits: Traits::NONE.needs(&[Facility::NodePages, Facility::MemPolicy]),
};

/// Where a task asks for new memory, in words.
///
/// # Errors
/// For a task that ends: do_exit() of kernel/exit.c has given its policy back by the time of its last row. For the row of all
/// tasks that a recording does not have one by one.
pub fn policy_of(task: &Task) -> Result<String, Missing> {
    if task.ended() || task.raw.exit_state != 0 {
        return Err(no("the task has ended"));
    }
    if task.raw.pid == OTHERS_PID {
        return Err(no("each task has its own policy"));
    }
    Ok(describe(task.raw.mempolicy))
}

/// ` (0=3 2=1)`: pages in turn on each node of a policy of weighted interleaving, where they are known.
fn weights(task: &Task, snapshot: &Snapshot) -> String {
    const WEIGHTED_INTERLEAVE: u16 = 6;
    let policy = task.raw.mempolicy;
    let is_of_it = |node: &NodeId| policy.nodes.checked_shr(node.0).is_some_and(|bits| bits & 1 == 1);
    let nodes = snapshot.inputs.tiers.iter().filter(|(node, _)| is_of_it(node));
    let words: Vec<String> =
        nodes.filter_map(|(node, tier)| Some(format!("{node}={}", tier.weight?))).collect();
    if policy.mode != WEIGHTED_INTERLEAVE || words.is_empty() {
        String::new()
    } else {
        format!(" ({})", words.join(" "))
    }
}

/// As mpol_to_str() of the kernel's mm/mempolicy.c writes it.
fn describe(policy: MemPolicy) -> String {
    // include/uapi/linux/mempolicy.h
    const MODES: [&str; 7] =
        ["default", "prefer", "bind", "interleave", "local", "prefer (many)", "weighted interleave"];
    const FLAGS: [(u16, &str); 3] = [(1 << 15, "static"), (1 << 14, "relative"), (1 << 13, "balancing")];
    let mode = MODES.get(usize::from(policy.mode));
    let mut text = mode.map_or_else(|| format!("mode {}", policy.mode), |mode| (*mode).to_owned());
    let flags: Vec<&str> =
        FLAGS.iter().filter(|(bit, _)| policy.flags & bit != 0).map(|(_, name)| *name).collect();
    if !flags.is_empty() {
        text += &format!("={}", flags.join("|"));
    }
    if policy.nodes != 0 {
        text += &format!(":{}", node_list(policy.nodes));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::sample::TaskRaw;

    #[test]
    fn bits_of_nodes_are_a_list() {
        assert_eq!([0b1_0011, 1 << 63, 0].map(node_list), ["0-1,4", "63", ""]);
    }

    #[test]
    fn a_task_that_ends_has_given_its_policy_back() {
        const EXIT_ZOMBIE: u32 = 0x20;
        let of_task = |pid, exited, exit_state| {
            let raw = TaskRaw { pid, tid: pid, exit_state, ..TaskRaw::default() };
            policy_of(&Task { exited, ..Task::new(Arc::new(raw)) })
        };
        assert_eq!(of_task(7, false, 0), Ok("default".into()));
        assert_eq!(of_task(7, true, 0), Ok("default".into()), "it was moved out of the scope");
        assert!(of_task(7, true, EXIT_ZOMBIE).is_err());
        assert!(of_task(7, false, EXIT_ZOMBIE).is_err());
        assert!(of_task(OTHERS_PID, false, 0).is_err());
    }

    #[test]
    fn policies_are_written_as_in_numa_maps() {
        let policy = |mode, flags, nodes| describe(MemPolicy { mode, flags, nodes });
        assert_eq!(policy(0, 0, 0), "default");
        assert_eq!(policy(2, 1 << 15, 0b1_0011), "bind=static:0-1,4");
        assert_eq!(policy(2, 1 << 13 | 1 << 14, 1), "bind=relative|balancing:0");
        assert_eq!(policy(4, 0, 0), "local");
        assert_eq!(policy(99, 0, 1 << 63), "mode 99:63");
    }
}
