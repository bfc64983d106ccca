//! Tables of containers and other cgroups, and each of them by node.

use std::sync::{Arc, LazyLock};

use super::cells::RowGroup;
use super::column::{Cell, Column, Get, columns};
use super::interval::Interval;
use crate::metric::accelerators;
use crate::metric::amounts::{AmountRow, ROW_AMOUNTS, RowAmount};
use crate::metric::container::{CGROUP, CONTAINER_ID, PARENT};
use crate::metric::over::Located;
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

    /// An amount of [`AMOUNTS`].
    fn amount(&self, at: usize) -> Option<i64> {
        AMOUNTS[at].value(self.interval.now(AmountRow::Container(self.row()), self.located)).cell()
    }

    fn name(&self) -> String {
        let row = self.row();
        row.group.as_ref().map_or_else(|| row.id.to_string(), |group| group.name.clone())
    }
}

columns! {
    FIRST of ContainerRow: row => {
        "cgroup" Text row.interval.text(&CGROUP, row.row());
        "container" Text row.name();
        "kind" Text row.row().kind().name();
        "pod" Text row.row().group.as_ref().and_then(|group| group.pod.as_deref());
        "namespace" Text row.row().group.as_ref().and_then(|group| group.namespace.as_deref());
        "container_id" Text row.interval.text(&CONTAINER_ID, row.row());
        "parent" Text row.interval.text(&PARENT, row.row());
        "processes" Int row.row().processes;
        "threads" Int row.row().sum.threads;
    }
}

columns! {
    LAST of ContainerRow: row => {
        "accelerators" Text row.interval.text(&accelerators::CONTAINER_ACCELERATORS, row.row());
        "accelerator_nodes" Text row.interval.text(&accelerators::CONTAINER_NODES, row.row());
        "mem_bytes" Int row.raw().and_then(|raw| raw.mem_bytes.clone().ok());
        "mem_limit_bytes" Int row.raw().and_then(|raw| raw.mem_limit_bytes.clone().ok()).flatten();
        "cpu_quota_milli" Int row.raw().and_then(|raw| raw.cpu_quota_milli.clone().ok()).flatten();
    }
}

static AMOUNTS: LazyLock<Vec<RowAmount>> =
    LazyLock::new(|| ROW_AMOUNTS.iter().filter(|amount| amount.is_of_containers()).copied().collect());

/// All columns.
pub(super) static CONTAINERS: LazyLock<Vec<Column<ContainerRow>>> = LazyLock::new(|| {
    let amounts = AMOUNTS.iter().enumerate();
    let amounts = amounts
        .map(|(at, amount)| Column { name: amount.column, get: Get::Listed(ContainerRow::amount, at) });
    FIRST.iter().copied().chain(amounts).chain(LAST.iter().copied()).collect()
});

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
            containers.push(&interval.stamp, &CONTAINERS, &*row);
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
