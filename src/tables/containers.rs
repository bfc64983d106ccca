//! Tables of containers and other cgroups, and each of them by node.

use std::sync::Arc;

use super::cells::RowGroup;
use super::column::columns;
use super::interval::Interval;
use crate::metric::container::{CGROUP, CONTAINER_ID, PARENT};
use crate::metric::located::Located;
use crate::metric::placement;
use crate::model::counters::Counter;
use crate::model::event::Role;
use crate::model::sample::GroupRaw;
use crate::snapshot::Container;

/// A row of containers in the interval, with all below it.
pub(super) struct ContainerRow {
    interval: Arc<Interval>,
    at: usize,
    located: Option<Located>,
}

impl ContainerRow {
    fn row(&self) -> &Container {
        &self.interval.snapshot.containers[self.at]
    }

    fn raw(&self) -> Option<&GroupRaw> {
        self.row().raw.as_deref()
    }

    fn counter(&self, counter: Counter) -> Option<u64> {
        self.interval.counter(&self.row().sum, counter)
    }

    fn events(&self, role: Role) -> Option<f64> {
        self.interval.events(&self.row().sum.delta.slots, role)
    }

    /// Throttled time of the interval, ns. Files of groups are read in turns: the time between two readings is spread over the
    /// intervals that it covers.
    fn throttled_ns(&self) -> Option<f64> {
        let raw = self.raw()?;
        let (then, before) = raw.throttled_before?;
        let over = raw.read_ns.checked_sub(then).filter(|over| *over > 0)?;
        let throttled = raw.throttled_ns.as_ref().ok()?.saturating_sub(before);
        let interval_ns = self.interval.snapshot.interval_ns?;
        Some(throttled as f64 * interval_ns as f64 / over as f64)
    }

    fn remote_best_ns(&self) -> Option<f64> {
        let located = self.located?;
        let metric = &placement::CONTAINER_REMOTE_BEST_PCT;
        let best = metric.read(self.row(), &self.interval.snapshot).ok()?.number()?;
        Some((best / 100.0 * located.run_ns).min(located.remote_ns))
    }

    fn name(&self) -> String {
        let row = self.row();
        row.group.as_ref().map_or_else(|| row.id.to_string(), |group| group.name.clone())
    }
}

columns! {
    pub(super) CONTAINERS of ContainerRow: row => {
        "cgroup" Text row.interval.text(&CGROUP, row.row());
        "container" Text row.name();
        "kind" Text row.row().kind().name();
        "pod" Text row.row().group.as_ref().and_then(|group| group.pod.as_deref());
        "namespace" Text row.row().group.as_ref().and_then(|group| group.namespace.as_deref());
        "container_id" Text row.interval.text(&CONTAINER_ID, row.row());
        "parent" Text row.interval.text(&PARENT, row.row());
        "processes" Int row.row().processes;
        "threads" Int row.row().sum.threads;
        "cpu_ns" Int row.row().sum.run_ns();
        "wait_ns" Int row.counter(Counter::RunDelayNs);
        "throttled_ns" Int row.throttled_ns();
        "node_moves" Int row.counter(Counter::NodeMoves);
        "cycles" Int row.events(Role::Cycles);
        "instructions" Int row.events(Role::Instructions);
        "lma" Int row.events(Role::Lma);
        "rma" Int row.events(Role::Rma);
        "located_ns" Int row.located.map(|located| located.run_ns);
        "remote_ns" Int row.located.map(|located| located.remote_ns);
        "remote_best_ns" Int row.remote_best_ns();
        "pages_migrated" Int row.counter(Counter::MigratedPages);
        "mem_bytes" Int row.raw().and_then(|raw| raw.mem_bytes.clone().ok());
        "mem_limit_bytes" Int row.raw().and_then(|raw| raw.mem_limit_bytes.clone().ok()).flatten();
        "cpu_quota_milli" Int row.raw().and_then(|raw| raw.cpu_quota_milli.clone().ok()).flatten();
    }
}

/// A row of containers on a node.
pub(super) struct ContainerNodeRow {
    container: Arc<ContainerRow>,
    node: usize,
    run_ns: u64,
    mem_bytes: Option<u64>,
}

columns! {
    pub(super) CONTAINER_NODES of ContainerNodeRow: row => {
        "cgroup" Text row.container.interval.text(&CGROUP, row.container.row());
        "node" Int row.node;
        "run_ns" Int row.run_ns;
        "mem_bytes" Int row.mem_bytes;
    }
}

/// Adds the rows of an interval to the tables that are wanted.
pub(super) fn add(
    interval: &Arc<Interval>,
    located: &[Option<Located>],
    mut containers: Option<&mut RowGroup>,
    mut nodes: Option<&mut RowGroup>,
) {
    for at in 0..interval.snapshot.containers.len() {
        let located = located.get(at).copied().flatten();
        let row = Arc::new(ContainerRow { interval: Arc::clone(interval), at, located });
        if let Some(containers) = &mut containers {
            containers.push(&interval.stamp, CONTAINERS, &*row);
        }
        if let Some(nodes) = &mut nodes {
            by_node(&row, |of_node| nodes.push(&interval.stamp, CONTAINER_NODES, &of_node));
        }
    }
}

/// Gives the rows of a container by node: where it ran or has memory.
fn by_node(row: &Arc<ContainerRow>, mut give: impl FnMut(ContainerNodeRow)) {
    let ran = &row.row().sum.delta.run_ns;
    let bytes = row.raw().and_then(|raw| raw.mem_bytes_by_node.as_ref().ok());
    // A recording may name any node: only those with a number are looked at.
    let with_memory = bytes.iter().flat_map(|bytes| bytes.keys()).map(|node| *node as usize);
    let mut nodes: Vec<usize> = (0..ran.len()).chain(with_memory).collect();
    nodes.sort_unstable();
    nodes.dedup();
    for node in nodes {
        let run_ns = ran.get(node).copied().unwrap_or(0);
        let mem_bytes = bytes.map(|bytes| bytes.get(&(node as u32)).copied().unwrap_or(0));
        if run_ns > 0 || mem_bytes.is_some_and(|bytes| bytes > 0) {
            give(ContainerNodeRow { container: Arc::clone(row), node, run_ns, mem_bytes });
        }
    }
}
