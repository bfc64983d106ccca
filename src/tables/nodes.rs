//! Tables of NUMA nodes and of pairs of them.

use std::sync::Arc;

use super::cells::RowGroup;
use super::column::columns;
use super::interval::{Interval, LocatedSums};
use crate::metric::located::Located;
use crate::metric::matrix::{PAIR_METRICS, PairMetric};
use crate::metric::{Metric, balancing, node, page_migrations};
use crate::model::event::Role;
use crate::model::sample::Flow;
use crate::model::units::NodeId;
use crate::snapshot::Node;

/// A node in the interval.
pub(super) struct NodeRow {
    interval: Arc<Interval>,
    at: usize,
    located: Option<Located>,
}

impl NodeRow {
    fn node(&self) -> &Node {
        &self.interval.snapshot.nodes[self.at]
    }

    /// A value of the node, unless the host cannot measure this metric.
    fn known(&self, metric: &Metric<Node>, value: u64) -> Option<u64> {
        self.interval.unless_missing(metric, value)
    }

    fn events(&self, role: Role) -> Option<f64> {
        self.interval.events(&self.node().slots, role)
    }

    /// `None` where the kernel does not say: both are zero then.
    fn watermark(&self, bytes: u64) -> Option<u64> {
        let raw = &self.node().raw;
        self.known(&node::WATERMARK_DISTANCE_PCT, bytes)
            .filter(|_| raw.low_watermark_bytes > 0 || raw.managed_bytes > 0)
    }
}

columns! {
    pub(super) NODES of NodeRow: row => {
        "node" Int row.node().raw.id;
        "cpus" Int row.node().cpus;
        "busy_ns" Int row.node().busy_ns;
        "irq_ns" Int row.known(&node::IRQ_PCT, row.node().irq_ns);
        "cycles" Int row.events(Role::Cycles);
        "instructions" Int row.events(Role::Instructions);
        "lma" Int row.events(Role::Lma);
        "rma" Int row.events(Role::Rma);
        "located_ns" Int row.located.map(|located| located.run_ns);
        "remote_ns" Int row.located.map(|located| located.remote_ns);
        "mem_total_bytes" Int row.known(&node::MEM_TOTAL_BYTES, row.node().raw.mem_total_bytes);
        "mem_free_bytes" Int row.known(&node::MEM_FREE_BYTES, row.node().raw.mem_free_bytes);
        "mem_file_bytes" Int row.known(&node::MEM_FILE_BYTES, row.node().raw.mem_file_bytes);
        "mem_anon_bytes" Int row.known(&node::MEM_ANON_BYTES, row.node().raw.mem_anon_bytes);
        "mem_slab_bytes" Int row.known(&node::MEM_SLAB_BYTES, row.node().raw.mem_slab_bytes);
        "low_watermark_bytes" Int row.watermark(row.node().raw.low_watermark_bytes);
        "managed_bytes" Int row.watermark(row.node().raw.managed_bytes);
        "numa_hit" Int row.known(&node::NUMA_HIT_PER_S, row.node().pages.numa_hit);
        "numa_miss" Int row.known(&node::NUMA_MISS_PER_S, row.node().pages.numa_miss);
        "numa_foreign" Int row.known(&node::NUMA_FOREIGN_PER_S, row.node().pages.numa_foreign);
        "interleave_hit" Int row.known(&node::INTERLEAVE_HIT_PER_S, row.node().pages.interleave_hit);
        "local_node" Int row.known(&node::LOCAL_NODE_PER_S, row.node().pages.local_node);
        "other_node" Int row.known(&node::OTHER_NODE_PER_S, row.node().pages.other_node);
        "kswapd_pages" Int row.known(&node::KSWAPD_PAGES_PER_S, row.node().kswapd_pages);
        "direct_pages" Int row.known(&node::DIRECT_RECLAIM_PAGES_PER_S, row.node().direct_pages);
        "node_reclaims" Int row.known(&node::NODE_RECLAIM_PER_S, row.node().node_reclaims);
        "hint_faults" Int row.node().hints.and_then(|hints| row.known(&balancing::NODE_HINT_FAULTS, hints.faults));
        "hint_remote" Int row.node().hints.and_then(|hints| row.known(&balancing::NODE_HINT_REMOTE_PCT, hints.remote));
        "pages_in" Int row.known(&page_migrations::PAGES_IN, row.node().pages_in);
        "pages_out" Int row.known(&page_migrations::PAGES_OUT, row.node().pages_out);
    }
}

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
            nodes.push(&interval.stamp, NODES, &NodeRow { interval: Arc::clone(interval), at, located });
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
