//! What NUMA balancing thinks of a process and did with it, in one line.

use crate::metric::Value;
use crate::metric::task::by_id;
use crate::snapshot::{Snapshot, Task};

/// The line; `None` where balancing has nothing to choose between.
pub fn words(task: &Task, snapshot: &Snapshot) -> Option<String> {
    if snapshot.host.topology.nodes.len() < 2 {
        return None;
    }
    if let Some(why) = snapshot.host_missing("numa_moves_per_s") {
        return Some(format!("n/a: {}", crate::text::clean_str(&why.to_string())));
    }
    let number = |id| match by_id(id).map(|metric| metric.read(task, snapshot)) {
        Some(Ok(Value::U64(number))) => Some(number),
        _ => None,
    };
    let prefers = match number("preferred_node") {
        Some(node) => format!("prefers node {node}"),
        None => "prefers no node".into(),
    };
    let scans = number("scan_period_ms").map(|ms| format!(", scans every {ms} ms"));
    let group = number("numa_group").map(|id| format!(", group {id}"));
    let took = match by_id("balancing_pct").map(|metric| metric.read(task, snapshot)) {
        Some(Ok(Value::F64(pct))) => format!("; costs it {pct:.1} %"),
        _ => String::new(),
    };
    let total = &task.total;
    Some(format!(
        "{prefers}{}{}{took}; sent there {}, swapped {}, stuck {}",
        scans.unwrap_or_default(),
        group.unwrap_or_default(),
        total.numa_moves,
        total.numa_swaps,
        total.numa_stuck
    ))
}
