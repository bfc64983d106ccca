//! Columns of a table at a given width, and their places.

use crate::metric::columns::{
    CONTAINER_PRIORITY, CPU_SET_PRIORITY, NODE_PRIORITY, TASK_ORDER, TASK_PRIORITY,
};
use crate::metric::container::{CONTAINER, CONTAINER_METRICS};
use crate::metric::cpu_set::{self, CPU_SET_METRICS};
use crate::metric::identity::{CGROUP, CMDLINE, COMM, NAME_LEAST, PID, THREADS, TID, USER};
use crate::metric::node::{self, NODE_METRICS};
use crate::metric::placement::MEM_PCT_BY_NODE;
use crate::metric::{Metric, events, task};
use crate::model::sample::HostFacts;
use crate::snapshot::{Container, CpuSet, Node, Task};

/// Cells at the left of a table for marks, and between two columns.
pub const GUTTER: u16 = 1;
const GAP: u16 = 1;
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

/// The task metrics that suit `width` on this host, in the order of the screen. The column that the table is
/// sorted by is among them, whatever it is.
pub fn tasks_for(width: u16, host: &HostFacts, threads: bool, sorted: &str) -> Vec<&'static Metric<Task>> {
    let urgent = [COMM.id, sorted, if threads { TID.id } else { PID.id }];
    // Events that were asked for by name are shown, refused ones with their reason.
    let asked: Vec<&'static Metric<Task>> = events::asked(host).collect();
    let find = |id: &str| task::by_id(id).or_else(|| asked.iter().copied().find(|metric| metric.id == id));
    let fitting = TASK_PRIORITY.iter().filter_map(|id| task::by_id(id)).filter(|metric| metric.fits(host));
    let wanted = urgent.into_iter().chain([task::CPU_PCT.id]).chain(asked.iter().map(|metric| metric.id));
    let wanted: Vec<&str> =
        wanted.chain(fitting.map(|metric| metric.id)).chain(threads.then_some(PID.id)).collect();
    let chosen = fill(width, &wanted, |id| find(id).map(Metric::least_width));
    let mut metrics: Vec<_> = chosen.into_iter().filter_map(find).collect();
    metrics.sort_by_key(|metric| {
        TASK_ORDER.iter().position(|id| *id == metric.id).unwrap_or_else(|| {
            // A metric that is only here because the table is sorted by it is placed before the name.
            TASK_ORDER.len() - 2
        })
    });
    metrics
}

/// Columns that are the same for all threads of a process.
const OF_PROCESSES: [&str; 5] = [PID.id, USER.id, THREADS.id, CGROUP.id, task::RSS_BYTES.id];

/// The columns of one process's threads that suit `width` on this host.
pub fn threads_for(width: u16, host: &HostFacts) -> Vec<&'static Metric<Task>> {
    let mut metrics = tasks_for(width, host, true, task::CPU.id);
    metrics.retain(|metric| !OF_PROCESSES.contains(&metric.id));
    metrics
}

/// The node metrics that suit `width` on this host, in the order of help.
pub fn nodes_for(width: u16, host: &HostFacts, sorted: &str) -> Vec<&'static Metric<Node>> {
    in_order(NODE_METRICS, NODE_PRIORITY, width, host, [node::NODE.id, sorted])
}

/// The metrics of sockets and L3 domains that suit `width` on this host, in the order of help.
pub fn cpu_sets_for(width: u16, host: &HostFacts, sorted: &str) -> Vec<&'static Metric<CpuSet>> {
    in_order(CPU_SET_METRICS, CPU_SET_PRIORITY, width, host, [cpu_set::PLACE.id, sorted])
}

/// The container metrics that suit `width` on this host, in the order of help.
pub fn containers_for(width: u16, host: &HostFacts, sorted: &str) -> Vec<&'static Metric<Container>> {
    in_order(CONTAINER_METRICS, CONTAINER_PRIORITY, width, host, [CONTAINER.id, sorted])
}

/// The part of `metrics` that gets room, the `urgent` ones before all others.
fn in_order<R>(
    metrics: &'static [Metric<R>],
    priority: &[&'static str],
    width: u16,
    host: &HostFacts,
    urgent: [&str; 2],
) -> Vec<&'static Metric<R>> {
    let by_id = |id: &str| metrics.iter().find(|metric| metric.id == id);
    let fitting = priority.iter().filter_map(|id| by_id(id)).filter(|metric| metric.fits(host));
    let wanted: Vec<&str> = urgent.into_iter().chain(fitting.map(|metric| metric.id)).collect();
    let chosen = fill(width, &wanted, |id| by_id(id).map(Metric::least_width));
    metrics.iter().filter(|metric| chosen.contains(&metric.id)).collect()
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
            // Few screens have room for a path; later columns may still fit. Otherwise a narrow column would
            // take the place of a more useful one.
            if *id == CGROUP.id {
                continue;
            }
            break;
        }
        left -= cells + GAP;
        chosen.push(*id);
    }
    chosen
}

/// The metrics of `all` that fit into `width` after scrolling past `scrolled` of them: the `fixed` ones do
/// not move.
pub fn scroll<R>(
    all: &[&'static Metric<R>],
    fixed: &[&str],
    scrolled: usize,
    width: u16,
) -> Vec<&'static Metric<R>> {
    let is_fixed = |metric: &&'static Metric<R>| fixed.contains(&metric.id);
    let cells = |metric: &&'static Metric<R>| u32::from(metric.least_width() + GAP);
    let mut room = u32::from(width.saturating_sub(GUTTER) + GAP);
    room = room.saturating_sub(all.iter().copied().filter(is_fixed).map(|metric| cells(&metric)).sum());
    let others = all.iter().copied().filter(|metric| !is_fixed(metric)).skip(scrolled);
    let mut shown: Vec<&str> = Vec::new();
    for metric in others {
        let Some(left) = room.checked_sub(cells(&metric)) else { break };
        room = left;
        shown.push(metric.id);
    }
    all.iter().copied().filter(|metric| is_fixed(metric) || shown.contains(&metric.id)).collect()
}

/// Gives each of `metrics` its place, in order, as many as fit into `width`. The column `name` (if any) takes
/// the rest; if that is large, the shares by node get some.
pub fn place<R>(metrics: &[&'static Metric<R>], width: u16, name: &str) -> Columns<R> {
    // Command lines in place of names get the rest, too.
    let least = |metric: &&'static Metric<R>| match metric.id {
        id if id == name && id == CMDLINE.id => NAME_LEAST,
        _ => metric.least_width(),
    };
    let mut widths: Vec<u16> = metrics.iter().map(least).collect();
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
        let (ran, memory) = (at(task::RUN_PCT_BY_NODE.id), at(MEM_PCT_BY_NODE.id));
        widen(ran, 3);
        widen(memory, 3);
        widen(Some(name), NAME_ENOUGH - NAME_LEAST);
        widen(ran, 20);
        widen(memory, 20);
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
            let columns = place(&metrics(TASK_ORDER), width, "comm");
            for pair in columns.placed.windows(2) {
                assert_eq!(pair[0].x + pair[0].width + GAP, pair[1].x);
            }
            if columns.hidden == 0 {
                let last = columns.placed.last().unwrap();
                assert_eq!(last.x + last.width, width);
            }
            assert_eq!(columns.placed.len() + columns.hidden, TASK_ORDER.len());
        }
    }

    #[test]
    fn the_name_takes_what_is_left_over() {
        let columns = place(&metrics(&["pid", "comm"]), 80, "comm");
        assert_eq!(columns.placed[1].width, 80 - GUTTER - 7 - GAP);
    }

    #[test]
    fn a_narrow_column_does_not_take_the_place_of_a_more_telling_one() {
        let cells = |id: &str| Some(if id == "wide" { 20 } else { 3 });
        assert_eq!(fill(20, &["a", "b", "wide", "c"], cells), ["a", "b"]);
    }
}
