//! The metrics of the effects of NUMA balancing on a task.

use super::over::{Better, Over, Quotient};
use super::{Group, Metric, Order, Traits, Unit, Value};
use crate::model::counters::Counter;
use crate::model::facility::Facility;
use crate::model::sample::{Hints, Missing, Reading};
use crate::snapshot::{Node, Snapshot, Task};

pub const NUMA_MOVES: Metric<Task> = Metric::memory_rate(
    "numa_moves_per_s",
    "NUMAMV/s",
    8,
    "Attempts by NUMA balancing to move it to an idle CPU of its preferred node (sched_move_numa). Failed attempts \
     are also in numa_stuck_per_s.",
    |task, snapshot| snapshot.rate(task.delta[Counter::NumaMoves]).map(Value::F64),
)
.with(Traits::NONE.needs(&[Facility::NumaFields, Facility::SentTasks]));

pub const NUMA_SWAPS: Metric<Task> = Metric::memory_rate(
    "numa_swaps_per_s",
    "NUMASW/s",
    8,
    "Attempts by NUMA balancing to swap it with a task of another node, so that one of them runs nearer to its \
     memory (sched_swap_numa).",
    |task, snapshot| snapshot.rate(task.delta[Counter::NumaSwaps]).map(Value::F64),
)
.with(Traits::NONE.needs(&[Facility::NumaFields, Facility::SentTasks]));

pub const NUMA_STUCK: Metric<Task> = Metric::memory_rate(
    "numa_stuck_per_s",
    "NUMAST/s",
    8,
    "Failed moves by NUMA balancing: another node was preferred, but no better CPU was found, or the move failed \
     (sched_stick_numa).",
    |task, snapshot| snapshot.rate(task.delta[Counter::NumaStuck]).map(Value::F64),
).with(Traits::NONE.needs(&[Facility::NumaFields, Facility::SentTasks]));

pub const NUMA_GROUP: Metric<Task> = Metric {
    id: "numa_group",
    title: "NGROUP",
    width: 7,
    group: Group::Memory,
    unit: Unit::Id,
    order: Order::Ascending,
    help: "Group of tasks that share memory according to NUMA balancing, which places them together. The number is \
           the id of the thread that began the group.",
    value: |task, _| match task.raw.numa_group {
        0 => Err(Missing::NotCollected("NUMA balancing has put it in no group".into())),
        group => Ok(Value::U64(group.into())),
    },
    over: Over::Newest,
    traits: Traits::NONE.needs(&[Facility::NumaFields, Facility::NumaGroup]),
};

pub const HINT_FAULTS: Metric<Task> = Metric::memory_rate(
    "hint_faults_per_s",
    "HINT/s",
    7,
    "NUMA hinting faults: balancing unmaps pages briefly to learn which CPUs use them. The rate shows how fast it \
     scans, not how much memory is used. Without a kernel function to probe (see doctor), pages are counted from \
     the task structure, and some are missed.",
    |task, snapshot| snapshot.rate(task.delta[Counter::HintFaults]).map(Value::F64),
)
.with(Traits::NONE.needs(&[Facility::NumaFields, Facility::HintFaults]));

pub const HINT_REMOTE_PCT: Metric<Task> = Metric {
    id: "hint_remote_pct",
    title: "HINTR%",
    width: 6,
    group: Group::Memory,
    unit: Unit::Percent,
    order: Order::Descending,
    help: "Share of its hinting faults that found the page on another node. Not a share of accesses: a \
           single-threaded process faults only on pages that are not yet local. Moved pages do not fault for a \
           while, and a bound process can have no faults at all. See remote_pct.",
    value: |task, snapshot| remote(of_task(task), snapshot).map(Quotient::value).map(Value::F64),
    over: Over::Quotient(|task, snapshot| remote(of_task(task), snapshot)),
    traits: Traits::NONE.needs(&[Facility::NumaFields, Facility::HintFaults]).better(Better::Low),
};

/// The hinting faults of a task in the interval.
pub(super) fn of_task(task: &Task) -> Hints {
    Hints { faults: task.delta[Counter::HintFaults], remote: task.delta[Counter::HintRemote] }
}

fn remote(hints: Hints, snapshot: &Snapshot) -> Reading<Quotient> {
    snapshot.rate(0)?;
    match hints.faults {
        0 => Err(Missing::NotCollected("no hinting fault in this interval".into())),
        all => Ok(Quotient::pct(hints.remote as f64, all as f64)),
    }
}

pub const BALANCING_PCT: Metric<Task> = Metric {
    id: "balancing_pct",
    title: "BALANC%",
    width: 7,
    group: Group::Memory,
    unit: Unit::Percent,
    order: Order::Descending,
    help: "Share of its CPU time that NUMA balancing took: scans of its memory, and hinting faults with their page \
           moves, but not the exception itself. Needs probes on kernel functions.",
    value: |task, snapshot| balancing(task, snapshot).map(Quotient::value).map(Value::F64),
    over: Over::Quotient(balancing),
    traits: Traits::NONE.needs(&[Facility::NumaFields, Facility::BalancingTime]).better(Better::Low),
};

fn balancing(task: &Task, snapshot: &Snapshot) -> Reading<Quotient> {
    snapshot.rate(0)?;
    match task.run_ns() {
        0 => Err(Missing::NotCollected("the task did not run in this interval".into())),
        // Interrupts and the hypervisor may have taken a part of the clock's time.
        ran => Ok(Quotient::pct(task.delta[Counter::BalancingNs].min(ran) as f64, ran as f64)),
    }
}

fn of_node(node: &Node) -> Reading<Hints> {
    node.on_cpus.hints.ok_or_else(|| {
        Missing::NotCollected("not counted by CPU: the kernel has no function to probe".into())
    })
}

pub const NODE_HINT_FAULTS: Metric<Node> = Metric {
    id: "hint_faults_per_s",
    title: "HINT/s",
    width: 7,
    group: Group::Node,
    unit: Unit::PerSecond,
    order: Order::Descending,
    help: "NUMA hinting faults of all tasks on the node's CPUs, including tasks outside the scope.",
    value: |node, snapshot| snapshot.rate(of_node(node)?.faults).map(Value::F64),
    over: Over::Time,
    traits: Traits::NONE.needs(&[Facility::NumaFields, Facility::HintFaults]),
};

pub const NODE_HINT_REMOTE_PCT: Metric<Node> = Metric {
    id: "hint_remote_pct",
    title: "HINTR%",
    width: 6,
    group: Group::Node,
    unit: Unit::Percent,
    order: Order::Descending,
    help: "Share of hinting faults that found the page on another node. Not a share of accesses: see \
           hint_remote_pct of tasks.",
    value: |node, snapshot| remote(of_node(node)?, snapshot).map(Quotient::value).map(Value::F64),
    over: Over::Quotient(|node, snapshot| remote(of_node(node)?, snapshot)),
    traits: Traits::NONE.needs(&[Facility::NumaFields, Facility::HintFaults]).better(Better::Low),
};

/// The same of the whole machine, from /proc/vmstat: numa_hint_faults, numa_hint_faults_local.
pub fn of_host(snapshot: &Snapshot) -> [(&'static str, Reading<f64>); 2] {
    let reading = |id, value: fn(Hints, &Snapshot) -> Reading<f64>| {
        let counted = match (snapshot.host_missing(id), snapshot.counts.hints) {
            (Some(missing), _) => Err(missing.clone()),
            (None, Some(hints)) => value(hints, snapshot),
            (None, None) => Err(snapshot
                .rate(0)
                .err()
                .unwrap_or_else(|| Missing::NotCollected("/proc/vmstat has no numa_hint_faults".into()))),
        };
        (id, counted)
    };
    [
        reading(HINT_FAULTS.id, |hints, snapshot| snapshot.rate(hints.faults)),
        reading(HINT_REMOTE_PCT.id, |hints, snapshot| remote(hints, snapshot).map(Quotient::value)),
    ]
}
