//! Which columns a table has at a given width, and where they stand.

use crate::metric::container::CONTAINER_METRICS;
use crate::metric::node::NODE_METRICS;
use crate::metric::{Metric, task};
use crate::sample::HostFacts;
use crate::snapshot::{Container, Node, Task};

/// Cells at the left of a table for marks, and between two columns.
pub const GUTTER: u16 = 1;
const GAP: u16 = 1;
/// The name of a task needs this much to be recognized.
const NAME_MIN: u16 = 14;
/// Two nodes and their shares.
const SHARES_MIN: u16 = 11;
/// Names longer than this are rare: room beyond goes to the shares by node.
const NAME_ENOUGH: u16 = 32;

/// A column at its place.
pub struct Placed<R: 'static> {
    pub metric: &'static Metric<R>,
    /// From the left end of the table.
    pub x: u16,
    pub width: u16,
}

/// All columns that fit, and how many do not.
pub struct Columns<R: 'static> {
    pub placed: Vec<Placed<R>>,
    pub hidden: usize,
}

/// In which order task columns are shown.
const ORDER: &[&str] = &[
    "pid",
    "tid",
    "user",
    "state",
    "threads",
    "cpu",
    "cpu_pct",
    "home_node",
    "run_pct_by_node",
    "mem_pct_by_node",
    "remote_pct",
    "preferred_node",
    "ipc",
    "ghz",
    "node_migrations_per_s",
    "llc_migrations_per_s",
    "smt_busy_pct",
    "runq_wait_pct",
    "switches_per_s",
    "minor_faults_per_s",
    "major_faults_per_s",
    "cross_node_faults_per_s",
    "pages_migrated_per_s",
    "cpu_ns",
    "rss_bytes",
    "cgroup",
    "comm",
];

/// In which order they get room: what says where a task runs and what it costs comes first.
const PRIORITY: &[&str] = &[
    "comm",
    "pid",
    "cpu_pct",
    "home_node",
    "state",
    "run_pct_by_node",
    "remote_pct",
    "ipc",
    "node_migrations_per_s",
    "mem_pct_by_node",
    "runq_wait_pct",
    "rss_bytes",
    "user",
    "switches_per_s",
    "cpu_ns",
    "smt_busy_pct",
    "threads",
    "cgroup",
    "llc_migrations_per_s",
    "minor_faults_per_s",
    "major_faults_per_s",
    "ghz",
    "cross_node_faults_per_s",
    "pages_migrated_per_s",
    "preferred_node",
];

const CONTAINER_PRIORITY: &[&str] = &[
    "cpu_pct",
    "kind",
    "home_node",
    "mem_bytes",
    "ipc",
    "processes",
    "run_pct_by_node",
    "remote_pct",
    "mem_bytes_by_node",
    "cpus_allowed",
    "throttled_pct",
    "node_migrations_per_s",
    "runq_wait_pct",
    "cpu_quota_pct",
    "mem_limit_bytes",
    "mems_allowed",
    "pod",
    "smt_shared_cpus",
    "switches_per_s",
    "cpu_ns",
    "engine",
    "threads",
];

/// What a machine with one node has nothing to say about.
const NEEDS_NODES: &[&str] = &[
    "home_node",
    "run_pct_by_node",
    "mem_pct_by_node",
    "remote_pct",
    "node_migrations_per_s",
    "preferred_node",
    "cross_node_faults_per_s",
    "pages_migrated_per_s",
    "pages_in_per_s",
    "pages_out_per_s",
];

const NODE_PRIORITY: &[&str] = &[
    "node",
    "cpus",
    "cpu_pct",
    "mem_free_bytes",
    "watermark_distance_pct",
    "numa_miss_per_s",
    "other_node_per_s",
    "ipc",
    "remote_pct",
    "irq_pct",
    "hint_faults_per_s",
    "rma_per_s",
    "lma_per_s",
    "mem_file_bytes",
    "mem_anon_bytes",
    "mem_total_bytes",
    "direct_reclaim_pages_per_s",
    "kswapd_pages_per_s",
    "pages_in_per_s",
    "pages_out_per_s",
    "node_reclaim_per_s",
    "local_node_per_s",
    "numa_hit_per_s",
    "numa_foreign_per_s",
    "mem_slab_bytes",
    "huge_free",
    "huge_total",
    "interleave_hit_per_s",
];

/// The task metrics that suit `width` on this host, in the order of the screen. What the table is
/// sorted by is among them, whatever it is.
pub fn tasks_for(width: u16, host: &HostFacts, threads: bool, sorted: &str) -> Vec<&'static Metric<Task>> {
    let one_node = host.topology.nodes.len() < 2;
    let one_cache = host.topology.llcs.len() < 2;
    let fits_host = |id: &str| {
        !(host.missing.contains_key(id)
            || one_node && NEEDS_NODES.contains(&id)
            || one_cache && id == "llc_migrations_per_s")
    };
    let urgent = ["comm", sorted, if threads { "tid" } else { "pid" }];
    let wanted: Vec<&str> = urgent
        .into_iter()
        .chain(PRIORITY.iter().copied().filter(|id| fits_host(id)))
        .chain(threads.then_some("pid"))
        .collect();
    let chosen = fill(width, &wanted, |id| task::by_id(id).map(cells));
    let mut metrics: Vec<_> = chosen.into_iter().filter_map(task::by_id).collect();
    metrics.sort_by_key(|metric| {
        ORDER.iter().position(|id| *id == metric.id).unwrap_or_else(|| {
            // A metric that is only here because the table is sorted by it stands before the name.
            ORDER.len() - 2
        })
    });
    metrics
}

/// The columns of one process's threads that suit `width` on this host.
pub fn threads_for(width: u16, host: &HostFacts) -> Vec<&'static Metric<Task>> {
    let mut metrics = tasks_for(width, host, true, "cpu");
    metrics.retain(|metric| !matches!(metric.id, "pid" | "user" | "threads" | "cgroup" | "rss_bytes"));
    metrics
}

/// The node metrics that suit `width` on this host, in the order of help.
pub fn nodes_for(width: u16, host: &HostFacts, sorted: &str) -> Vec<&'static Metric<Node>> {
    let one_node = host.topology.nodes.len() < 2;
    let fits_host = |id: &&str| !(host.missing.contains_key(*id) || one_node && NEEDS_NODES.contains(id));
    let wanted: Vec<&str> =
        ["node", sorted].into_iter().chain(NODE_PRIORITY.iter().copied().filter(fits_host)).collect();
    let chosen = fill(width, &wanted, |id| crate::metric::node::by_id(id).map(cells));
    NODE_METRICS.iter().filter(|metric| chosen.contains(&metric.id)).collect()
}

/// The container metrics that suit `width` on this host, in the order of help.
pub fn containers_for(width: u16, host: &HostFacts, sorted: &str) -> Vec<&'static Metric<Container>> {
    let one_node = host.topology.nodes.len() < 2;
    let fits_host = |id: &&str| {
        !host.missing.contains_key(*id)
            && !(one_node && (NEEDS_NODES.contains(id) || *id == "mem_bytes_by_node"))
    };
    let wanted: Vec<&str> = ["container", sorted]
        .into_iter()
        .chain(CONTAINER_PRIORITY.iter().copied().filter(fits_host))
        .collect();
    let chosen = fill(width, &wanted, |id| crate::metric::container::by_id(id).map(cells));
    CONTAINER_METRICS.iter().filter(|metric| chosen.contains(&metric.id)).collect()
}

/// Takes ids in order of priority while they fit.
fn fill<'a>(width: u16, wanted: &[&'a str], cells: impl Fn(&str) -> Option<u16>) -> Vec<&'a str> {
    let mut chosen: Vec<&str> = Vec::new();
    // The last column needs no gap after it.
    let mut left = width.saturating_sub(GUTTER) + GAP;
    for id in wanted {
        let Some(cells) = cells(id) else { continue };
        if chosen.contains(id) {
            continue;
        }
        if cells + GAP > left {
            // Few screens have room for a path; what comes after it may have. Otherwise a narrow column
            // would take the place of a more telling one.
            if *id == "cgroup" {
                continue;
            }
            break;
        }
        left -= cells + GAP;
        chosen.push(*id);
    }
    chosen
}

/// The least width of a column.
fn cells<R>(metric: &Metric<R>) -> u16 {
    match metric.id {
        "comm" => NAME_MIN,
        // Trees of cgroups are deep.
        "container" => NAME_MIN + 6,
        // As many digits as the largest id has (PID_MAX_LIMIT is 4194304).
        "pid" | "tid" | "ppid" => 7,
        "run_pct_by_node" | "mem_pct_by_node" => SHARES_MIN,
        _ => metric.width,
    }
}

/// Gives each of `metrics` its place, in order, as many as fit into `width`. The column `name` (if any)
/// takes what is left over, and with much left over the shares by node get some.
pub fn place<R>(metrics: &[&'static Metric<R>], width: u16, name: &str) -> Columns<R> {
    let mut widths: Vec<u16> = metrics.iter().map(|metric| cells(metric)).collect();
    let total = |widths: &[u16]| {
        widths.iter().fold(u32::from(GUTTER), |sum, width| sum + u32::from(*width) + u32::from(GAP))
            - u32::from(GAP.min(widths.len() as u16))
    };
    let mut shown = metrics.len();
    while shown > 1 && total(&widths[..shown]) > u32::from(width) {
        shown -= 1;
    }
    widths.truncate(shown);
    let mut spare = u32::from(width).saturating_sub(total(&widths)) as u16;
    let at = |id: &str| metrics[..shown].iter().position(|metric| metric.id == id);
    if let Some(name) = at(name) {
        let mut widen = |column: Option<usize>, most: u16| {
            if let Some(column) = column {
                let more = spare.min(most);
                widths[column] += more;
                spare -= more;
            }
        };
        let shares = at("run_pct_by_node");
        widen(shares, 3);
        widen(Some(name), NAME_ENOUGH - NAME_MIN);
        widen(shares, 20);
        widen(Some(name), u16::MAX);
    }
    let mut x = GUTTER;
    let placed = metrics[..shown]
        .iter()
        .zip(widths)
        .map(|(metric, width)| {
            let column = Placed { metric, x, width };
            x += width + GAP;
            column
        })
        .collect();
    Columns { placed, hidden: metrics.len() - shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(ids: &[&str]) -> Vec<&'static Metric<Task>> {
        ids.iter().filter_map(|id| task::by_id(id)).collect()
    }

    #[test]
    fn columns_stand_side_by_side_and_fill_the_width() {
        for width in 1..200 {
            let columns = place(&metrics(ORDER), width, "comm");
            for pair in columns.placed.windows(2) {
                assert_eq!(pair[0].x + pair[0].width + GAP, pair[1].x);
            }
            if columns.hidden == 0 {
                let last = columns.placed.last().unwrap();
                assert_eq!(last.x + last.width, width);
            }
            assert_eq!(columns.placed.len() + columns.hidden, ORDER.len());
        }
    }

    #[test]
    fn the_name_takes_what_is_left_over() {
        let columns = place(&metrics(&["pid", "comm"]), 80, "comm");
        assert_eq!(columns.placed[1].width, 80 - GUTTER - 7 - GAP);
    }

    #[test]
    fn every_column_with_a_priority_has_its_place() {
        for id in PRIORITY {
            assert!(ORDER.contains(id) && task::by_id(id).is_some(), "{id}");
        }
        assert!(ORDER.iter().all(|id| task::by_id(id).is_some()));
    }

    #[test]
    fn a_narrow_column_does_not_take_the_place_of_a_more_telling_one() {
        let cells = |id: &str| Some(if id == "wide" { 20 } else { 3 });
        assert_eq!(fill(20, &["a", "b", "wide", "c"], cells), ["a", "b"]);
    }
}
