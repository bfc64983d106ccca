//! Waits and idle CPUs as rules about the scheduler need them, and the view of the last interval.

use std::collections::BTreeMap;

use super::super::rule::{Blindness, Reason, Unmet};
use super::super::view::{SubjectRef, View};
use crate::finding::cores::Region;
use crate::metric::interrupts::RUNQ_WAIT_THROTTLED_PCT;
use crate::model::counters::Counter;
use crate::model::units::{CpuId, NodeId};
use crate::snapshot::Task;

/// Share of its waits, from 0 to 1, from which on an affinity or a quota counts as their cause.
const CAUSE: f64 = 0.2;

/// Real-time policies of sched(7): FIFO, RR, DEADLINE.
const REAL_TIME: [u32; 3] = [1, 2, 6];

/// The same view with the last interval as its window: rows of others have only that.
pub(super) fn now<'a>(view: &View<'a>) -> View<'a> {
    View {
        snapshot: view.snapshot,
        window: view.snapshot,
        rows: view.rows,
        rule: view.rule,
        over: view.over,
        trend: None,
    }
}

/// The row of a process in the last interval. Reasons of waits are those of an interval, so that they go with its counts
/// only.
pub(super) fn row_now<'a>(view: &View<'a>, of: &SubjectRef<'_>) -> Option<&'a Task> {
    view.rows.processes.get(&of.subject()).map(|at| &view.snapshot.tasks[*at])
}

/// Whether a fifth of its waits or more is of threads that may not use all CPUs, or its leader may not.
pub(super) fn is_bound(view: &View<'_>, task: &Task) -> bool {
    let online = view.topology().online_cpus().count() as u32;
    let leader = task.raw.cpus_allowed > 0 && task.raw.cpus_allowed < online;
    let waited = task.delta[Counter::RunDelayNs] as f64;
    leader || task.waits.bound_ns > 0 && task.waits.bound_ns as f64 >= waited * CAUSE
}

/// Whether a quota explains a fifth of its waits or more.
pub(super) fn is_throttled(task: &Task) -> bool {
    task.waits.throttled >= CAUSE
}

/// Whether throttled time of its container was read, so that "no quota stopped it" is a measurement.
pub(super) fn knows_throttling(view: &View<'_>, of: &SubjectRef<'_>) -> bool {
    let read = view.files_of(of).is_some_and(|files| files.throttled_ns.is_ok());
    view.snapshot.host_missing(RUNQ_WAIT_THROTTLED_PCT.id).is_none() && read
}

/// Whether it has a real-time policy.
pub(super) fn is_real_time(task: &Task) -> bool {
    REAL_TIME.contains(&task.raw.policy)
}

/// CPUs of a node that are online and that the scheduler uses, ascending.
pub(super) fn free_cpus(view: &View<'_>, node: NodeId) -> Vec<u32> {
    let isolated = &view.snapshot.host.isolated_cpus;
    view.cpus_of_nodes(&[node]).into_iter().filter(|cpu| !isolated.contains(cpu)).collect()
}

/// The busy share of these CPUs in percent, and how many of them are idle as a sum; `None` without a CPU.
pub(super) fn busy(view: &View<'_>, cpus: &[u32]) -> Option<(f64, f64)> {
    let length = view.over_ns().max(1) as f64;
    let here = view.window.cpus.iter().filter(|cpu| cpu.online && cpus.contains(&cpu.id));
    let idle: Vec<f64> = here.map(|cpu| (1.0 - cpu.busy_ns as f64 / length).clamp(0.0, 1.0)).collect();
    let (sum, count) = (idle.iter().sum::<f64>(), idle.len() as f64);
    (count > 0.0).then(|| ((count - sum) * 100.0 / count, sum))
}

/// The node with CPUs and memory, other than `except`, that is busy least, with its busy share in percent and its idle CPUs.
pub(super) fn idlest_node(view: &View<'_>, except: NodeId) -> Option<(NodeId, f64, f64)> {
    let length = view.over_ns().max(1) as f64;
    let (topology, isolated) = (view.topology(), &view.snapshot.host.isolated_cpus);
    // One pass over CPUs: a rule about nodes asks once for each, and large machines have many of both.
    let mut sums: BTreeMap<NodeId, (f64, f64)> = BTreeMap::new();
    for cpu in view.window.cpus.iter().filter(|cpu| cpu.online && !isolated.contains(&cpu.id)) {
        let place = topology.cpu(CpuId(cpu.id)).filter(|place| place.online);
        if let Some(node) = place.and_then(|place| place.node) {
            let (idle, count) = sums.entry(node).or_default();
            *idle += (1.0 - cpu.busy_ns as f64 / length).clamp(0.0, 1.0);
            *count += 1.0;
        }
    }
    let others = view.whole_nodes().into_iter().filter(|node| *node != except);
    let busy = others.filter_map(|node| {
        let (idle, count) = *sums.get(&node)?;
        Some((node, (count - idle) * 100.0 / count, idle))
    });
    busy.min_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)))
}

/// The region other than `except` that is busy least, with its busy share in percent and its idle CPUs.
pub(super) fn idlest(view: &View<'_>, except: Region) -> Option<(Region, f64, f64)> {
    if let Region::Node(node) = except {
        return idlest_node(view, node).map(|(node, load, idle)| (Region::Node(node), load, idle));
    }
    let others = view.regions().into_iter().filter(|region| *region != except);
    let busy = others.filter_map(|region| {
        let (load, idle) = busy(view, &view.cpus_of(region))?;
        Some((region, load, idle))
    });
    busy.min_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)))
}

/// Blindness because a value is not known.
pub(super) fn unknown(words: &'static str) -> Unmet {
    Unmet::Blind(Blindness::new(Reason::NoInput, words))
}
