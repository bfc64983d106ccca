//! Limits that readers keep, and whether a sample fits them.

use std::sync::Arc;

use super::format::{
    MAX_CELLS, MAX_CPUS, MAX_FLOWS, MAX_FRAMES, MAX_NAMES, MAX_NODE_TIMES, MAX_NODES, MAX_ROWS, MAX_TEXT,
};
use crate::model::sample::{Counts, Sample, TaskRaw};

/// A sample is beyond what the format can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the sample has more {0} than a recording can hold")]
pub struct TooLarge(pub &'static str);

/// Refuses a sample that no reader would take.
///
/// # Errors
/// It has more of something than readers take.
pub(super) fn check(sample: &Sample) -> Result<(), TooLarge> {
    let rows = || sample.tasks.iter().chain(&sample.exited);
    let widest = |task: &Arc<TaskRaw>| {
        task.counts.run_ns.len().max(task.counts.by_node.len()).max(task.counts.pages.len())
    };
    let width = rows().map(widest).max().unwrap_or(0);
    let most = sample.tasks.len().max(sample.exited.len());
    // A time, pages, and two counts, for each node.
    let numbers = |counts: &Counts| counts.run_ns.len() + counts.pages.len() + 2 * counts.by_node.len();
    let times: usize = rows().map(|task| numbers(&task.counts)).sum();
    let names = sample.names.users.values().chain(sample.names.cgroups.values());
    let used = || sample.memory_use.iter().flat_map(|uses| uses.processes.values());
    let mappings = used().flat_map(|found| &found.mappings);
    let of_uses = used().flat_map(|found| found.lost.keys()).chain(mappings.map(|mapping| &mapping.name));
    let mut texts =
        names.chain(&sample.notes).chain(sample.lost.keys()).chain(of_uses).chain(sample.interrupts.keys());
    let hot = sample.hot.as_deref();
    let frames: usize = hot.iter().flat_map(|hot| &hot.stacks).map(|stack| stack.frames.len()).sum();
    let lists = [
        hot.map_or(0, |hot| hot.names.len().max(hot.stacks.len())),
        sample.names.groups.len(),
        sample.groups.len(),
        sample.names.users.len(),
        sample.names.cgroups.len(),
        sample.notes.len(),
        sample.lost.len(),
        sample.placement.len(),
        sample.interrupts.len(),
        sample.memory_use.as_ref().map_or(0, |uses| uses.processes.len()),
    ];
    for (within, what) in [
        (most <= MAX_ROWS, "tasks"),
        (width <= MAX_NODES && sample.nodes.len() <= MAX_NODES, "nodes"),
        (sample.exit_lost_ns.len() <= MAX_NODES, "nodes"),
        (sample.interrupts.values().all(|device| device.by_node.len() <= MAX_NODES), "nodes"),
        (most.saturating_mul(width) <= MAX_CELLS, "tasks times nodes"),
        (times.saturating_mul(size_of::<u64>()) <= MAX_NODE_TIMES, "tasks times nodes"),
        (sample.cpus.len() <= MAX_CPUS, "CPUs"),
        (sample.flows.len().max(sample.page_flows.len()) <= MAX_FLOWS, "pairs of nodes"),
        (lists.iter().all(|len| *len <= MAX_NAMES), "names"),
        (frames <= MAX_FRAMES, "frames of stacks"),
        (texts.all(|text| text.len() <= MAX_TEXT), "letters in a name"),
    ] {
        if !within {
            return Err(TooLarge(what));
        }
    }
    Ok(())
}
