//! The rows of tasks in a sample: those that changed of late ([`super::changes`]), told apart from a keyframe. The others
//! are as in the sample before, or in one a little further back.

use std::sync::Arc;

use super::columns::{self, Layout};
use super::format::{KEY_EVERY, MAX_ROWS};
use super::payload::Delta;
use super::room::Room;
use super::varint::{Bytes, Malformed, put};
use crate::model::sample::{Sample, TaskRaw};

/// The keyframe of a sample, and a sample before it that is near enough.
#[derive(Clone, Copy)]
pub struct Base<'a> {
    pub key: &'a Sample,
    /// The checksum of its payload.
    pub key_id: u32,
    /// Samples from the keyframe to this one.
    pub tick: u32,
    pub tasks: &'a [Arc<TaskRaw>],
}

/// Distance from the keyframe, reach of the changes, serials that are gone, serials of the rows
/// that follow, rows. A whole sample has all its rows, in its order and without their serials in front.
pub(super) fn encode(out: &mut Vec<u8>, delta: Option<Delta<'_>>, sample: &Sample) {
    let Some(Delta { key, changes, .. }) = delta else {
        put(out, 0);
        put(out, sample.tasks.len() as u64);
        let rows: Vec<_> = sample.tasks.iter().map(|task| (&**task, None)).collect();
        columns::encode(out, columns::task(), &rows);
        return;
    };
    put(out, changes.tick().into());
    put(out, changes.reach().into());
    put_ascending(out, &changes.gone().collect::<Vec<_>>());
    let rows: Vec<_> = changes.rows(sample).map(|task| (task, find(&key.tasks, task.serial))).collect();
    put_ascending(out, &rows.iter().map(|(task, _)| task.serial).collect::<Vec<_>>());
    columns::encode(out, columns::task(), &rows);
}

/// The row with this serial among rows in the order of serials.
fn find(tasks: &[Arc<TaskRaw>], serial: u64) -> Option<&TaskRaw> {
    tasks.binary_search_by_key(&serial, |task| task.serial).ok().map(|at| &*tasks[at])
}

/// The rows with these serials, both in the order of serials.
pub(super) fn bases<'a>(tasks: &'a [Arc<TaskRaw>], serials: &[u64]) -> Vec<Option<&'a TaskRaw>> {
    let mut rest = tasks;
    let next = |serial: &u64| {
        // Rows that change are near each other: looks at 1, 2, 4 … rows ahead touch the fewest.
        let mut ahead = 1;
        while rest.get(ahead - 1).is_some_and(|task| task.serial < *serial) {
            ahead *= 2;
        }
        let at = rest[..ahead.min(rest.len())].partition_point(|task| task.serial < *serial);
        rest = &rest[at..];
        rest.first().filter(|task| task.serial == *serial).map(|task| &**task)
    };
    serials.iter().map(next).collect()
}

fn put_ascending(out: &mut Vec<u8>, serials: &[u64]) {
    put(out, serials.len() as u64);
    let mut before = 0;
    for serial in serials {
        put(out, serial.wrapping_sub(before));
        before = *serial;
    }
}

fn ascending(input: &mut Bytes<'_>) -> Result<Vec<u64>, Malformed> {
    let count = input.count(MAX_ROWS)?;
    // Each takes a byte at least.
    let mut serials: Vec<u64> = Vec::with_capacity(count.min(input.0.len()));
    for _ in 0..count {
        let more = input.number()?;
        let serial = match serials.last() {
            Some(before) if more > 0 => before.checked_add(more),
            Some(_) => None,
            None => Some(more),
        };
        serials.push(serial.ok_or(Malformed("serials are not in order"))?);
    }
    Ok(serials)
}

/// Puts rows of the sample before in the place of equal ones, as a live source does: a history of samples then takes little
/// memory, and rows that did not change are known by their address.
pub(super) fn share(before: &[Arc<TaskRaw>], tasks: &mut [Arc<TaskRaw>]) {
    let mut before = before.iter().peekable();
    for task in tasks {
        while before.next_if(|old| old.serial < task.serial).is_some() {}
        if let Some(old) = before.next_if(|old| old.serial == task.serial)
            && old == task
        {
            *task = Arc::clone(old);
        }
    }
}

/// Rows of deltas while they are put together: most turn out to be as in the sample before, and those of all deltas take the
/// same memory.
#[derive(Default)]
pub struct Scratch(Vec<TaskRaw>);

/// Rows whose memory is kept for the next delta at most: about two megabytes.
const SCRATCH_ROWS: usize = 2048;

/// The rows of a sample, and how many samples after its keyframe it is. Rows that are as in the sample before are shared with
/// it.
///
/// # Errors
/// The bytes are not rows, or those that they build on are not there.
pub(super) fn decode(
    mut input: Bytes<'_>,
    layout: &Layout<TaskRaw>,
    state: Option<Base<'_>>,
    room: &mut Room,
    scratch: &mut Scratch,
) -> Result<(Vec<Arc<TaskRaw>>, u32), Malformed> {
    let tick = input.count(KEY_EVERY as usize)? as u32;
    if tick == 0 {
        let count = input.count(MAX_ROWS)?;
        let rows = columns::decode(&mut input, layout, count, |_| None, room)?;
        input.finish()?;
        return Ok((rows.into_iter().map(Arc::new).collect(), 0));
    }
    let state = state.ok_or(Malformed("its keyframe is not there"))?;
    let listed = Listed::after(tick, &mut input)?;
    if state.tick >= tick || state.tick < listed.builds_on() {
        return Err(Malformed("the samples before it are not there"));
    }
    let bases = bases(&state.key.tasks, &listed.serials);
    room.take_rows::<TaskRaw>(listed.serials.len())?;
    let mut rows = std::mem::take(&mut scratch.0);
    columns::decode_into(&mut rows, &mut input, layout, &bases, None, room)?;
    input.finish()?;
    if rows.iter().zip(&listed.serials).any(|(row, serial)| row.serial != *serial) {
        return Err(Malformed("a row is not the one it says"));
    }
    room.take_shared(state.tasks.len() + rows.len())?;
    let tasks = merged(state.tasks, &listed.gone, &rows);
    // Each delta may add some: together they are no more than a sample can have.
    check_count(tasks.len())?;
    if rows.len() <= SCRATCH_ROWS {
        scratch.0 = rows;
    }
    Ok((tasks, tick))
}

/// # Errors
/// No sample has so many tasks.
pub(super) fn check_count(tasks: usize) -> Result<(), Malformed> {
    if tasks > MAX_ROWS { Err(Malformed("it has more tasks than can be")) } else { Ok(()) }
}

/// The tasks that a delta has something about.
pub struct Listed {
    /// Samples from its keyframe to it.
    pub tick: u32,
    /// Samples of which it has all changes.
    pub reach: u32,
    /// Serials of tasks that are gone, and of those that have rows, in their order.
    pub gone: Vec<u64>,
    pub serials: Vec<u64>,
}

impl Listed {
    /// Of the rows of a delta, which stay in `input`.
    ///
    /// # Errors
    /// The bytes are not rows, or those of a keyframe.
    pub(super) fn read(input: &mut Bytes<'_>) -> Result<Listed, Malformed> {
        match input.count(KEY_EVERY as usize)? as u32 {
            0 => Err(Malformed("it is a keyframe")),
            tick => Listed::after(tick, input),
        }
    }

    fn after(tick: u32, input: &mut Bytes<'_>) -> Result<Listed, Malformed> {
        let reach = input.count(tick as usize)? as u32;
        Ok(Listed { tick, reach, gone: ascending(input)?, serials: ascending(input)? })
    }

    /// The sample furthest back that it can be read on top of, by its distance from the keyframe.
    pub(super) fn builds_on(&self) -> u32 {
        self.tick - self.reach
    }
}

/// Rows of the sample before, but for those that are gone or among `rows`; all lists are in the order of serials.
fn merged(before: &[Arc<TaskRaw>], gone: &[u64], rows: &[TaskRaw]) -> Vec<Arc<TaskRaw>> {
    let mut tasks = Vec::with_capacity(before.len() + rows.len());
    let mut gone = gone.iter().peekable();
    let mut rows = rows.iter().peekable();
    for old in before {
        while let Some(row) = rows.next_if(|row| row.serial < old.serial) {
            tasks.push(Arc::new(row.clone()));
        }
        while gone.next_if(|serial| **serial < old.serial).is_some() {}
        match rows.next_if(|row| row.serial == old.serial) {
            // It changed before the last sample.
            Some(row) if *row == **old => tasks.push(Arc::clone(old)),
            Some(row) => tasks.push(Arc::new(row.clone())),
            None if gone.peek() == Some(&&old.serial) => {}
            None => tasks.push(Arc::clone(old)),
        }
    }
    tasks.extend(rows.map(|row| Arc::new(row.clone())));
    tasks
}
