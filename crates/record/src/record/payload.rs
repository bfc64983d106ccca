//! A sample as bytes and back: sections preceded by their length, encoded against a keyframe or against
//! nothing. After a jump, rows of the sample that a delta builds on come from the deltas behind it, from the last one back
//! to the keyframe, and only the latest version of each row is read. Rows, names and places are in separate files.

use std::cmp::Ordering;
use std::sync::Arc;

use super::columns::{self, Cells, Layout};
use super::format::{self, MAX_PAYLOAD};
use super::rows::{self, Recent};
use super::sections::{self, Context, KEY_ID, TASKS, Written};
use crate::model::coded::varint::{Bytes, Malformed, put};
use crate::model::coded::{In, Out, fits, least_stored_for};
use crate::model::sample::{Sample, TaskRaw};

pub use super::format::TooLarge;
pub use super::rows::{Base, KnownRows, Listed};
pub use super::sections::Layouts;
pub use crate::model::coded::Room;

/// The base of a delta.
#[derive(Clone, Copy)]
pub struct Delta<'a> {
    pub key: &'a Sample,
    /// The checksum of the payload of the keyframe: [`id_of`].
    pub key_id: u32,
    pub changes: Recent<'a>,
}

/// The checksum by which deltas name the keyframe that has this payload. It is that of no other keyframe, also where frames
/// have come to another place than they were written to.
pub fn id_of(payload: &[u8]) -> u32 {
    crc32fast::hash(payload)
}

/// Writes `sample`: the part that differs from the keyframe and is in `changes`, or the whole. Returns the
/// number of its bytes that must be in the file, so that readers accept its content.
///
/// # Errors
/// It is beyond the limits that readers keep.
pub fn encode(out: &mut Vec<u8>, delta: Option<Delta<'_>>, sample: &Sample) -> Result<usize, TooLarge> {
    format::check(sample)?;
    let (needed, beyond) = encode_unchecked(out, delta, sample);
    if let Some(beyond) = beyond {
        return Err(beyond);
    }
    if out.len() > MAX_PAYLOAD {
        return Err(TooLarge("bytes"));
    }
    let needed = format::needed(delta, sample, out.len(), needed);
    if !fits(needed, out.len()) {
        return Err(TooLarge("memory"));
    }
    Ok(least_stored_for(needed))
}

/// The same for memory: a sample beyond the limits of readers is written, too, and not decoded. Returns the
/// memory that readers take for data beside rows, and the first limit that it exceeds.
pub fn encode_unchecked(
    out: &mut Vec<u8>,
    delta: Option<Delta<'_>>,
    sample: &Sample,
) -> (usize, Option<TooLarge>) {
    let written = Written { delta, base: delta.map(|delta| delta.key), sample };
    let mut body = Out::default();
    for section in sections::all() {
        body.bytes.clear();
        section.put(written, &mut body);
        out.push(section.tag());
        put(out, body.bytes.len() as u64);
        out.extend_from_slice(&body.bytes);
    }
    (body.needed, body.beyond)
}

/// The sample in `bytes`, and its distance from its keyframe in samples. It takes at most `room` memory.
///
/// # Errors
/// The bytes are not a sample, it is beyond the limits, or `base` is too far back.
pub fn decode(
    bytes: &[u8],
    layouts: &Layouts,
    state: Option<Base<'_>>,
    room: Room,
) -> Result<(Sample, u32), Malformed> {
    decode_with(bytes, layouts, state, room, &mut KnownRows::default())
}

/// The same, for one sample after the other.
///
/// # Errors
/// As [`decode`].
pub fn decode_with(
    bytes: &[u8],
    layouts: &Layouts,
    state: Option<Base<'_>>,
    mut room: Room,
    known: &mut KnownRows,
) -> Result<(Sample, u32), Malformed> {
    let found = Sections::of(bytes)?;
    state.map_or(Ok(()), |state| found.check_key(state.key_id))?;
    let (tasks, tick) = rows::decode(found.get(TASKS)?, &layouts.task, state, &mut room, known)?;
    let rest = decode_rest(&found, layouts, state.map(|state| state.key), &mut room)?;
    Ok((Sample { tasks: tasks.into(), ..rest }, tick))
}

/// The sample in `bytes` without rows of live tasks.
///
/// # Errors
/// As [`decode`].
pub fn decode_without_tasks(
    bytes: &[u8],
    layouts: &Layouts,
    key: Option<&Sample>,
    mut room: Room,
) -> Result<Sample, Malformed> {
    decode_rest(&Sections::of(bytes)?, layouts, key, &mut room)
}

/// All of a sample but the rows of live tasks. Sections that older recordings do not have are as in an empty sample.
fn decode_rest(
    found: &Sections<'_>,
    layouts: &Layouts,
    base: Option<&Sample>,
    room: &mut Room,
) -> Result<Sample, Malformed> {
    let mut sample = Sample::default();
    for (section, body) in sections::all().iter().zip(&found.0) {
        let Some(body) = *body else {
            if section.is_required() {
                return Err(NOT_THERE);
            }
            continue;
        };
        let mut input = In::new(body, room);
        section.get(&mut input, Context { layouts, base }, &mut sample)?;
        input.bytes.finish()?;
    }
    Ok(sample)
}

/// Adds the rows of a delta to those of the deltas behind it, which all have the same keyframe. Gives how far back it reaches in
/// turn.
///
/// # Errors
/// The bytes are not a delta of this keyframe, or it is not the sample `tick` samples after it.
pub fn decode_latest(
    latest: &mut Latest,
    bytes: &[u8],
    layouts: &Layouts,
    base: Base<'_>,
    tick: u32,
    mut room: Room,
) -> Result<Listed, Malformed> {
    let (listed, rows) = listed(bytes, base.key_id)?;
    if listed.tick != tick {
        return Err(Malformed("earlier samples are missing"));
    }
    latest.add(&listed, rows, &layouts.task, &base.key.tasks, &mut room)?;
    Ok(listed)
}

/// The tasks that a delta has something about, and the bytes of their rows.
///
/// # Errors
/// The bytes are not a delta of this keyframe.
pub fn listed(bytes: &[u8], key_id: u32) -> Result<(Listed, Bytes<'_>), Malformed> {
    let found = Sections::of(bytes)?;
    found.check_key(key_id)?;
    let mut rows = found.get(TASKS)?;
    Ok((Listed::read(&mut rows)?, rows))
}

const NOT_THERE: Malformed = Malformed("a part of the sample is missing");

/// The parts of a sample, in the order of sections.
struct Sections<'a>(Vec<Option<Bytes<'a>>>);

impl<'a> Sections<'a> {
    fn of(bytes: &'a [u8]) -> Result<Sections<'a>, Malformed> {
        let mut found = vec![None; sections::all().len()];
        let mut input = Bytes(bytes);
        while !input.0.is_empty() {
            let tag = input.take(1)?[0];
            let len = input.count(MAX_PAYLOAD)?;
            let body = Bytes(input.take(len)?);
            if let Some(at) = place(tag) {
                found[at] = Some(body);
            }
        }
        Ok(Sections(found))
    }

    fn get(&self, tag: u8) -> Result<Bytes<'a>, Malformed> {
        place(tag).and_then(|at| self.0[at]).ok_or(NOT_THERE)
    }

    /// Older recordings do not name the keyframe.
    fn check_key(&self, id: u32) -> Result<(), Malformed> {
        match self.get(KEY_ID).map_or(&[][..], |bytes| bytes.0) {
            bytes if bytes.is_empty() || bytes == id.to_le_bytes() => Ok(()),
            _ => Err(Malformed("a different keyframe is in place of the sample's")),
        }
    }
}

/// The place of a section among all.
fn place(tag: u8) -> Option<usize> {
    sections::all().binary_search_by_key(&tag, |section| section.tag()).ok()
}

/// Rows of tasks by serial; `None` for a task that is gone, or whose row is elsewhere.
type Decided = Vec<(u64, Option<Arc<TaskRaw>>)>;

/// Rows whose latest version is known.
pub struct Latest(Decided);

impl Latest {
    /// Nothing is needed of the tasks that `listed` has something about: a delta that is read by itself.
    pub(super) fn before(listed: &Listed) -> Latest {
        let mut decided: Decided =
            listed.serials.iter().chain(&listed.gone).map(|serial| (*serial, None)).collect();
        decided.sort_unstable_by_key(|(serial, _)| *serial);
        decided.dedup_by_key(|(serial, _)| *serial);
        Latest(decided)
    }

    /// With the rows of a delta further back, which are the rest of `input`, unless a later one has them.
    ///
    /// # Errors
    /// The bytes are not rows, or they need more memory than `room`.
    pub(super) fn add(
        &mut self,
        listed: &Listed,
        mut input: Bytes<'_>,
        layout: &Layout<TaskRaw>,
        key: &[Arc<TaskRaw>],
        room: &mut Room,
    ) -> Result<(), Malformed> {
        let bases = rows::bases(key, &listed.serials);
        format::take_rows::<TaskRaw>(room, listed.serials.len())?;
        let news = self.unknown(&listed.serials);
        let mut wanted = news.clone();
        columns::with_needed(&mut wanted, &bases);
        let mut cells = Cells::of(&mut input, layout, listed.serials.len())?;
        input.finish()?;
        let (mut found, mut before) = (Vec::new(), Arc::default());
        for (i, serial) in listed.serials.iter().enumerate() {
            cells.advance()?;
            if !wanted[i] {
                continue;
            }
            before = Arc::new(cells.make(bases[i].map(|at| &*key[at]), &before, room)?);
            if before.serial != *serial {
                return Err(Malformed("the data of a row do not match its id"));
            }
            if news[i] {
                found.push((*serial, Some(Arc::clone(&before))));
            }
        }
        cells.finish()?;
        let gone = listed.gone.iter().zip(self.unknown(&listed.gone)).filter(|(_, new)| *new);
        let gone = gone.map(|(serial, _)| (*serial, None)).collect();
        let before = std::mem::take(&mut self.0);
        // A task with a row is not gone.
        self.0 = merged(merged(before, found), gone);
        // All of them are in the sample that is built.
        rows::check_count(self.0.iter().filter(|(_, row)| row.is_some()).count())
    }

    /// The serials about which nothing is known yet; both are in their order.
    fn unknown(&self, serials: &[u64]) -> Vec<bool> {
        let mut known = self.0.iter().map(|(serial, _)| *serial).peekable();
        let is_new = |serial: &u64| {
            while known.next_if(|known| known < serial).is_some() {}
            known.peek() != Some(serial)
        };
        serials.iter().map(is_new).collect()
    }

    /// All rows: the known ones, and for the rest those of the sample that the deltas build on.
    pub(super) fn over(self, base: Base<'_>) -> Vec<Arc<TaskRaw>> {
        let base = base.tasks.iter().map(|task| (task.serial, Some(Arc::clone(task)))).collect();
        merged(self.0, base).into_iter().filter_map(|(_, row)| row).collect()
    }
}

/// Both, in the order of serials; `first` wins.
fn merged(first: Decided, second: Decided) -> Decided {
    let mut all = Vec::with_capacity(first.len() + second.len());
    let (mut first, mut second) = (first.into_iter().peekable(), second.into_iter().peekable());
    loop {
        let next = match (first.peek(), second.peek()) {
            (Some((one, _)), Some((other, _))) => one.cmp(other),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return all,
        };
        if next == Ordering::Equal {
            second.next();
        }
        all.extend(if next == Ordering::Greater { second.next() } else { first.next() });
    }
}
