//! Limits that readers keep: whether the rows of a sample fit them, and the memory that they take.

use std::sync::Arc;

use super::format::{MAX_CELLS, MAX_CPUS, MAX_NODE_TIMES, MAX_NODES, MAX_ROWS};
use super::payload::Delta;
pub use crate::model::coded::TooLarge;
use crate::model::coded::varint::Malformed;
use crate::model::coded::{ENTRY, PER_BYTE, Room};
use crate::model::sample::{Counts, CpuRaw, NodeRaw, Sample, TaskRaw};

/// Refuses a sample whose rows no reader would take. Other sections are counted while they are written.
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
    for (within, what) in [
        (most <= MAX_ROWS, "tasks"),
        (width <= MAX_NODES && sample.nodes.len() <= MAX_NODES, "nodes"),
        (most.saturating_mul(width) <= MAX_CELLS, "tasks times nodes"),
        (times.saturating_mul(size_of::<u64>()) <= MAX_NODE_TIMES, "tasks times nodes"),
        (sample.cpus.len() <= MAX_CPUS, "CPUs"),
    ] {
        if !within {
            return Err(TooLarge(what));
        }
    }
    Ok(())
}

/// A row that is that of another sample.
const SHARED: usize = 8;

fn of_row<R>() -> usize {
    size_of::<R>() + ENTRY
}

/// Takes memory for `count` rows of this type.
///
/// # Errors
/// So much is not left.
pub(super) fn take_rows<R>(room: &mut Room, count: usize) -> Result<(), Malformed> {
    room.take(count, of_row::<R>())
}

/// Takes memory for rows that are those of another sample.
///
/// # Errors
/// So much is not left.
pub(super) fn take_shared(room: &mut Room, count: usize) -> Result<(), Malformed> {
    room.take(count, SHARED)
}

/// The share of its [`Room`] that a reader takes for a sample of `raw` written bytes, with `noted` bytes of
/// memory for data beside its rows. Never an underestimate.
pub(super) fn needed(delta: Option<Delta<'_>>, sample: &Sample, raw: usize, noted: usize) -> usize {
    let lists = |counts: &Counts| {
        size_of_val(&counts.run_ns[..]) + size_of_val(&counts.pages[..]) + size_of_val(&counts.by_node[..])
    };
    let task = |task: &TaskRaw| of_row::<TaskRaw>() + lists(&task.counts);
    let rows: usize = match delta {
        Some(delta) => delta.changes.rows(sample).map(task).sum(),
        None => sample.tasks.iter().map(|row| task(row)).sum(),
    };
    // All that were in a sample since the keyframe may be in the one before.
    let shared = delta.map_or(0, |delta| SHARED * (delta.key.tasks.len() + sample.tasks.len()));
    raw * PER_BYTE
        + noted
        + rows
        + shared
        + sample.exited.iter().map(|row| task(row)).sum::<usize>()
        + sample.cpus.len() * of_row::<CpuRaw>()
        + sample.nodes.len() * of_row::<NodeRaw>()
}
