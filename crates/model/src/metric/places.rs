//! Where tasks run below the level of nodes: sockets and last-level caches.

use super::over::{self, Over, Quotient};
use super::{Group, Metric, Order, Several, Stands, Traits, Unit, Value, no};
use crate::model::facility::Facility;
use crate::model::sample::{Counts, Reading};
use crate::model::topology::Topology;
use crate::model::units::NodeId;
use crate::snapshot::{SetKind, Snapshot, Task, most_used};

const NEEDS: Traits = Traits::NONE.needs(&[Facility::Places]).several(Several::Caches);

pub const RUN_PCT_BY_LLC: Metric<Task> = Metric {
    id: "run_pct_by_llc",
    title: "RUN BY L3",
    width: 14,
    group: Group::Running,
    unit: Unit::Percent,
    order: Order::Descending,
    help: "Share of its on-CPU time per last-level cache (L3 domain) in the interval; sums to 100.",
    value: |task, snapshot| run_pct(task, snapshot, SetKind::Llc).map(over::values).map(Value::ByNode),
    over: Over::ByNode(|task, snapshot| run_pct(task, snapshot, SetKind::Llc)),
    traits: NEEDS.least_width(9),
};

pub const RUN_PCT_BY_SOCKET: Metric<Task> = Metric {
    id: "run_pct_by_socket",
    title: "RUN BY SKT",
    width: 14,
    group: Group::Running,
    unit: Unit::Percent,
    order: Order::Descending,
    help: "Share of its on-CPU time per socket in the interval; sums to 100.",
    value: |task, snapshot| run_pct(task, snapshot, SetKind::Socket).map(over::values).map(Value::ByNode),
    over: Over::ByNode(|task, snapshot| run_pct(task, snapshot, SetKind::Socket)),
    traits: NEEDS.least_width(10),
};

pub const HOME_LLC: Metric<Task> = Metric {
    id: "home_llc",
    title: "L3",
    width: 4,
    group: Group::Running,
    unit: Unit::Id,
    order: Order::Ascending,
    help: "Last-level cache (L3 domain) with the largest share of its on-CPU time.",
    value: |task, snapshot| home(task, snapshot, SetKind::Llc).map(|id| Value::U64(id.into())),
    over: Over::Newest,
    traits: NEEDS.stands(Stands::Plain),
};

pub const HOME_SOCKET: Metric<Task> = Metric {
    id: "home_socket",
    title: "SOCKET",
    width: 6,
    group: Group::Running,
    unit: Unit::Id,
    order: Order::Ascending,
    help: "Socket with the largest share of its on-CPU time.",
    value: |task, snapshot| home(task, snapshot, SetKind::Socket).map(|id| Value::U64(id.into())),
    over: Over::Newest,
    traits: NEEDS.stands(Stands::Plain),
};

/// The number of the socket or of the last-level cache on which a task ran most: in the interval, or ever if it
/// rested. The lowest of equal ones.
///
/// # Errors
/// Time is not kept by these sets, or it has not run yet.
pub fn home(task: &Task, snapshot: &Snapshot, kind: SetKind) -> Reading<u32> {
    let counts = if task.run_ns() > 0 { &task.delta } else { &task.total };
    most_used(&times(counts, snapshot, kind)?).ok_or_else(|| no("the task has not run yet"))
}

fn run_pct(task: &Task, snapshot: &Snapshot, kind: SetKind) -> Reading<over::ByNode> {
    if task.run_ns() == 0 {
        return Err(no("the task did not run in this interval"));
    }
    let times = times(&task.delta, snapshot, kind)?;
    let all = times.iter().fold(0u64, |all, (_, ns)| all.saturating_add(*ns)) as f64;
    let used = times.into_iter().filter(|(_, ns)| *ns > 0);
    Ok(used.map(|(set, ns)| (NodeId(set), Quotient::pct(ns as f64, all))).collect())
}

fn times(counts: &Counts, snapshot: &Snapshot, kind: SetKind) -> Reading<Vec<(u32, u64)>> {
    snapshot.place_sets.times(counts, kind).ok_or_else(|| no(why_not(&snapshot.host.topology, kind)))
}

fn why_not(topology: &Topology, kind: SetKind) -> &'static str {
    match kind {
        SetKind::Socket if topology.sockets == 0 => "sysfs does not list sockets",
        SetKind::Socket if topology.sockets == 1 => "the machine has one socket",
        SetKind::Socket if topology.places.is_empty() => {
            "no node spans sockets, or CPU time is recorded per node only (use --places l3)"
        }
        SetKind::Socket => "no node spans sockets: CPU time by node already shows the sockets",
        SetKind::Llc => topology.no_llcs().unwrap_or(match topology.places.is_empty() {
            true => {
                "L3 domains and nodes are the same, or CPU time is recorded per node only (use --places \
                     l3)"
            }
            false => "each node has one L3 domain: see CPU time by node",
        }),
    }
}
