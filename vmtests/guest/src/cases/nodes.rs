//! The nodes in /sys against QEMU's options: unless this holds, nothing about nodes can.

use vmtests_protocol::Plan;

use super::{Case, Stop};
use crate::report::Report;
use crate::sysfs::{self, show_list};

pub const CASE: Case = Case {
    name: "nodes",
    about: "CPUs, memory and distances of the nodes in /sys are what QEMU was told",
    run,
};

/// The kernel keeps some of a node for itself; small nodes lose the largest share.
const LEAST_SHARE_OF_MEMORY: f64 = 0.4;

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    let machine = &plan.machine;
    let told: Vec<u32> = (0..machine.nodes.len() as u32).collect();
    report.equal("nodes", show_list(&told), show_list(&sysfs::nodes()?));
    for (id, node) in machine.nodes.iter().enumerate() {
        let nid = id as u32;
        let cpus = sysfs::node_cpus(nid)?;
        report.equal(format_args!("CPUs of node {id}"), show_list(&node.cpus), show_list(&cpus));
        let want = format!("{:?}", machine.distances[id]);
        report.equal(
            format_args!("distances of node {id}"),
            want,
            format!("{:?}", sysfs::node_distances(nid)?),
        );
        let told = node.mem_mib * 1024;
        let found = sysfs::node_memory_kib(nid, "MemTotal")?;
        let enough = found <= told && found as f64 >= told as f64 * LEAST_SHARE_OF_MEMORY;
        report.check(enough, format_args!("KiB of node {id}"), format_args!("nearly {told}"), found);
    }
    let with_cpus: Vec<u32> = machine.cpu_nodes().map(|(id, _)| id as u32).collect();
    let has_cpu = sysfs::list("/sys/devices/system/node/has_cpu")?;
    report.equal("nodes with CPUs", show_list(&with_cpus), show_list(&has_cpu));
    for first in (0..machine.cpus()).step_by(machine.threads_per_core as usize) {
        let told: Vec<u32> = (first..first + machine.threads_per_core).collect();
        report.equal(
            format_args!("hardware threads of the core of CPU {first}"),
            show_list(&told),
            show_list(&sysfs::siblings(first)?),
        );
    }
    Ok(())
}
