//! The output of `numatop-ng topology` against the options of QEMU, with a CPU offline too.

use serde_json::Value;
use vmtests_protocol::Plan;

use super::{Case, Stop};
use crate::report::Report;
use crate::sysfs::{self, show_list};
use crate::tool;

pub const CASE: Case = Case {
    name: "topology",
    about: "numatop-ng topology prints the nodes, CPUs, hardware threads, sockets and distances that QEMU was told",
    run,
};

fn run(report: &mut Report, plan: &Plan) -> Result<(), Stop> {
    let machine = &plan.machine;
    let said = tool::json(&["topology", "--format", "json"])?;
    compare(report, plan, &said)?;
    let sockets = said["sockets"].as_u64().map_or("unknown".to_owned(), |sockets| sockets.to_string());
    report.equal("sockets", machine.sockets.to_string(), sockets);
    report.equal("SMT", machine.threads_per_core > 1, said["smt"].as_bool().unwrap_or(false));
    let cores = u64::from(machine.cpus() / machine.threads_per_core);
    report.equal("cores", cores, said["cores"].as_u64().unwrap_or(0));
    if machine.cpus() > 1 {
        let last = machine.cpus() - 1;
        report.say(format_args!("with CPU {last} taken offline"));
        sysfs::set_online(last, false)?;
        let said = tool::json(&["topology", "--format", "json"]);
        sysfs::set_online(last, true)?;
        let said = said?;
        let cpu = said["cpus"].as_array().into_iter().flatten().find(|cpu| cpu["cpu"] == last);
        let online = cpu.map_or(Value::Null, |cpu| cpu["online"].clone());
        report.equal(format_args!("CPU {last} online"), Value::Bool(false), online);
        let nodes = said["nodes"].as_array().map_or(0, Vec::len);
        report.equal("nodes, with that CPU offline", machine.nodes.len(), nodes);
    }
    Ok(())
}

fn compare(report: &mut Report, plan: &Plan, said: &Value) -> Result<(), Stop> {
    let nodes = said["nodes"].as_array().ok_or_else(|| Stop::fail("topology has no nodes"))?;
    report.equal("nodes", plan.machine.nodes.len(), nodes.len());
    for (id, node) in plan.machine.nodes.iter().enumerate() {
        let found = nodes.iter().find(|found| found["node"] == id).cloned().unwrap_or(Value::Null);
        report.equal(
            format_args!("CPUs of node {id}"),
            show_list(&node.cpus),
            show_list(&numbers(&found["cpus"])),
        );
        let distances = numbers(&found["distance"]);
        let want = format!("{:?}", plan.machine.distances[id]);
        report.equal(format_args!("distances of node {id}"), want, format!("{distances:?}"));
        let kernel_says = sysfs::node_memory_kib(id as u32, "MemTotal")? * 1024;
        report.equal(
            format_args!("bytes of node {id}"),
            kernel_says,
            found["mem_total_bytes"].as_u64().unwrap_or(0),
        );
    }
    for cpu in 0..plan.machine.cpus() {
        let cpus = said["cpus"].as_array().into_iter().flatten();
        let found = cpus.clone().find(|found| found["cpu"] == cpu).cloned().unwrap_or(Value::Null);
        let siblings = show_list(&numbers(&found["siblings"]));
        report.equal(
            format_args!("hardware threads beside CPU {cpu}"),
            show_list(&sysfs::siblings(cpu)?),
            siblings,
        );
    }
    Ok(())
}

/// An array of ids; anything else is an empty one.
fn numbers(value: &Value) -> Vec<u32> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|number| number.as_u64())
        .map(|number| number as u32)
        .collect()
}
