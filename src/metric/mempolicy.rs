//! The metric of where a task asks for its new memory.

use super::{Group, Metric, Order, Unit, Value};
use crate::host::topology::format_cpulist;
use crate::sample::MemPolicy;
use crate::snapshot::Task;

/// Metrics that need the policy in a sample.
pub const MEMPOLICY: [&str; 1] = ["mempolicy"];

pub const POLICY: Metric<Task> = Metric {
    id: "mempolicy",
    title: "MEMPOLICY",
    width: 12,
    group: Group::Memory,
    unit: Unit::Text,
    order: Order::Ascending,
    help: "Where it asks for new memory (set_mempolicy(2), numactl(8)), with nodes as in numa_maps: default is the node that \
           it runs on. Of the main thread of a process. Mappings may have policies of their own: see m in the details.",
    value: |task, _| Ok(Value::Text(describe(task.raw.mempolicy))),
};

/// As mpol_to_str() of the kernel's mm/mempolicy.c writes it.
pub fn describe(policy: MemPolicy) -> String {
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
    let nodes: Vec<u32> = (0..u64::BITS).filter(|node| policy.nodes >> node & 1 == 1).collect();
    if !nodes.is_empty() {
        text += &format!(":{}", format_cpulist(nodes.into_iter()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

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
