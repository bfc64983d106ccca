//! NUMA balancing of a process, in one line.

use crate::metric::balancing::{BALANCING_PCT, NUMA_GROUP, NUMA_MOVES};
use crate::metric::task::{PREFERRED_NODE, SCAN_PERIOD_MS};
use crate::metric::{Metric, Value};
use crate::model::counters::Counter;
use crate::snapshot::{Snapshot, Task};

/// The line; `None` where balancing has nothing to choose between.
pub(super) fn words(task: &Task, snapshot: &Snapshot) -> Option<String> {
    if snapshot.host.topology.nodes.len() < 2 {
        return None;
    }
    if let Some(why) = snapshot.host_missing(NUMA_MOVES.id) {
        return Some(format!("n/a: {}", crate::text::clean_str(&why.to_string())));
    }
    let number = |metric: &Metric<Task>| match metric.read(task, snapshot) {
        Ok(Value::U64(number)) => Some(number),
        _ => None,
    };
    let prefers = match number(&PREFERRED_NODE) {
        Some(node) => format!("prefers node {node}"),
        None => "prefers no node".into(),
    };
    let scans = number(&SCAN_PERIOD_MS).map(|ms| format!(", scans every {ms} ms"));
    let group = number(&NUMA_GROUP).map(|id| format!(", group {id}"));
    let took = match BALANCING_PCT.read(task, snapshot) {
        Ok(Value::F64(pct)) => format!("; costs {pct:.1} % of its time"),
        _ => String::new(),
    };
    let total = &task.total;
    Some(format!(
        "{prefers}{}{}{took}; moves {}, swaps {}, failed {}",
        scans.unwrap_or_default(),
        group.unwrap_or_default(),
        total[Counter::NumaMoves],
        total[Counter::NumaSwaps],
        total[Counter::NumaStuck]
    ))
}
