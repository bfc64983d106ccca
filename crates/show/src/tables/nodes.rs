//! Tables of NUMA nodes, of pairs of them, and of sockets and L3 domains where they are not the nodes.

use std::sync::{Arc, LazyLock};

use super::cells::RowGroup;
use super::column::{Cell, Column, Get, columns};
use super::interval::{Interval, LocatedSums};
use crate::metric::amounts::{NODE_AMOUNTS, NS, NodeNow, events};
use crate::metric::matrix::{PAIR_METRICS, PairMetric};
use crate::metric::over::Located;
use crate::metric::{Metric, cache_use};
use crate::model::event::Role;
use crate::model::sample::Flow;
use crate::model::topology::format_cpulist;
use crate::model::units::NodeId;
use crate::snapshot::{CpuSet, Node, SetKind};

/// A node in the interval.
pub(super) struct NodeRow {
    interval: Arc<Interval>,
    at: usize,
    located: Option<Located>,
}

impl NodeRow {
    /// An amount of [`NODE_AMOUNTS`]; `None` where the host cannot measure it.
    fn amount(&self, at: usize) -> Option<i64> {
        let snapshot = &self.interval.snapshot;
        let (_, metric) = NODE_AMOUNTS[at].column?;
        if metric.is_some_and(|metric| snapshot.host_missing(metric.missing_as()).is_some()) {
            return None;
        }
        let now = NodeNow { node: &snapshot.nodes[self.at], snapshot, located: self.located, cpu_s: None };
        (NODE_AMOUNTS[at].value)(now).cell()
    }
}

/// The id of a node, and amounts that have a column.
pub(super) static NODES: LazyLock<Vec<Column<NodeRow>>> = LazyLock::new(|| {
    let id = Get::Int(|row: &NodeRow| row.interval.snapshot.nodes[row.at].raw.id.cell());
    let amounts = NODE_AMOUNTS.iter().enumerate();
    let amounts = amounts.filter_map(|(at, amount)| {
        Some(Column { name: amount.column?.0, get: Get::Listed(NodeRow::amount, at) })
    });
    std::iter::once(Column { name: "node", get: id }).chain(amounts).collect()
});

/// A pair of nodes in the interval.
pub(super) struct PairRow {
    from: NodeId,
    to: NodeId,
    access_ns: Option<f64>,
    tasks: Option<u64>,
    pages: Option<u64>,
    distance: Option<u32>,
}

columns! {
    pub(super) MATRIX of PairRow: row => {
        "from_node" Int row.from.0;
        "to_node" Int row.to.0;
        "access_ns" Int row.access_ns;
        "tasks" Int row.tasks;
        "pages" Int row.pages;
        "distance" Int row.distance;
    }
}

/// Adds the rows of an interval to the tables that are wanted.
pub(super) fn add(
    interval: &Arc<Interval>,
    located: &LocatedSums,
    mut nodes: Option<&mut RowGroup>,
    mut matrix: Option<&mut RowGroup>,
) {
    for (at, node) in interval.snapshot.nodes.iter().enumerate() {
        let located = located.nodes.get(&(node.raw.id as usize)).copied();
        if let Some(nodes) = &mut nodes {
            nodes.push(&interval.stamp, &NODES, &NodeRow { interval: Arc::clone(interval), at, located });
        }
        if let Some(matrix) = &mut matrix {
            pairs(interval, node, |pair| matrix.push(&interval.stamp, MATRIX, &pair));
        }
    }
}

/// Gives the pairs from a node on between which something was used or moved.
fn pairs(interval: &Interval, from: &Node, mut give: impl FnMut(PairRow)) {
    let snapshot = &interval.snapshot;
    let [is_used, has_moved, was_migrated, ..] = PAIR_METRICS else { unreachable!("it has these and more") };
    let is_known = |metric: &PairMetric| snapshot.host_missing(metric.missing_as).is_none();
    let from = NodeId(from.raw.id);
    for to in snapshot.nodes.iter().map(|node| NodeId(node.raw.id)) {
        let access_ns = snapshot.accesses.ns(from, to);
        let (tasks, pages) = (count(&snapshot.flows, from, to), count(&snapshot.page_flows, from, to));
        if access_ns > 0.0 || tasks > 0 || pages > 0 {
            give(PairRow {
                from,
                to,
                access_ns: is_known(is_used).then_some(access_ns),
                tasks: is_known(has_moved).then_some(tasks),
                pages: is_known(was_migrated).then_some(pages),
                distance: snapshot.host.topology.distance(from, to),
            });
        }
    }
}

/// The count from one node to the other; several where a recording has the pair twice.
fn count(flows: &[Flow], from: NodeId, to: NodeId) -> u64 {
    let of_pair = flows.iter().filter(|flow| (flow.from, flow.to) == (from, to));
    of_pair.fold(0, |sum, flow| sum.saturating_add(flow.count))
}

/// A socket or an L3 domain in the interval.
pub(super) struct PlaceRow {
    interval: Arc<Interval>,
    at: usize,
}

impl PlaceRow {
    fn set(&self) -> &CpuSet {
        &self.interval.snapshot.cpu_sets[self.at]
    }

    fn events(&self, role: Role) -> Option<f64> {
        events(&self.set().on_cpus.slots, &self.interval.snapshot, role)
    }

    fn number(&self, metric: &Metric<CpuSet>) -> Option<f64> {
        metric.read(self.set(), &self.interval.snapshot).ok()?.number()
    }

    /// The sum over the interval of a rate.
    fn sum(&self, rate: &Metric<CpuSet>) -> Option<f64> {
        Some(self.number(rate)? * self.interval.snapshot.interval_ns? as f64 * NS)
    }
}

/// The columns of either table: its id, and the same amounts.
macro_rules! places {
    ($table:ident, $id:literal) => {
        columns! {
            pub(super) $table of PlaceRow: row => {
                $id Int row.set().id;
                "nodes" Text Some(format_cpulist(row.set().nodes.iter().copied()));
                "cpu_list" Text Some(format_cpulist(row.set().cpus.iter().copied()));
                "cpus" Int row.set().cpus.len();
                "cores" Int row.set().cores;
                "llc_size_bytes" Int row.set().llc_size_bytes;
                "moves_in" Int row.set().moves.map(|moves| moves.into);
                "moves_out" Int row.set().moves.map(|moves| moves.out);
                "busy_ns" Int row.set().on_cpus.busy_ns;
                "irq_ns" Int row.set().on_cpus.irq_ns.get();
                "cycles" Int row.events(Role::Cycles);
                "instructions" Int row.events(Role::Instructions);
                "llc_misses" Int row.events(Role::Llc);
                "lma" Int row.events(Role::Lma);
                "rma" Int row.events(Role::Rma);
                "llc_occupancy_bytes" Int row.number(&cache_use::OCCUPANCY);
                "mbm_bytes" Int row.sum(&cache_use::MBM);
                "mbm_local_bytes" Int row.sum(&cache_use::MBM_LOCAL);
                "dram_read_bytes" Int row.set().dram.read.get();
                "dram_write_bytes" Int row.set().dram.write.get();
            }
        }
    };
}

places!(SOCKETS, "socket");

places!(LLCS, "llc");

/// Adds the rows of an interval to the tables that are wanted.
pub(super) fn add_places(
    interval: &Arc<Interval>,
    mut sockets: Option<&mut RowGroup>,
    mut llcs: Option<&mut RowGroup>,
) {
    for (at, set) in interval.snapshot.cpu_sets.iter().enumerate() {
        let (rows, columns) = match set.kind {
            SetKind::Socket => (sockets.as_deref_mut(), SOCKETS),
            SetKind::Llc => (llcs.as_deref_mut(), LLCS),
        };
        if let Some(rows) = rows {
            rows.push(&interval.stamp, columns, &PlaceRow { interval: Arc::clone(interval), at });
        }
    }
}
