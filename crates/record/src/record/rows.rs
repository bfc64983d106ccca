//! The rows of tasks in a sample: the recently changed ones ([`Recent`]), encoded against a keyframe. The others are as in
//! the previous sample, and are shared with it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::columns::{self, Cells, Differs, Layout};
use super::format::{self, KEY_EVERY, MAX_ROWS};
use super::payload::{Delta, Room};
use crate::model::coded::varint::{Bytes, Malformed, put};
use crate::model::sample::{Sample, TaskRaw, TaskRows};

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

/// Places of the rows with these serials; both in the order of serials.
pub(super) fn bases(tasks: &[Arc<TaskRaw>], serials: &[u64]) -> Vec<Option<usize>> {
    let mut begin = 0;
    let next = |serial: &u64| {
        let rest = &tasks[begin..];
        // Rows that change are near each other: looks at 1, 2, 4 … rows ahead touch the fewest.
        let mut ahead = 1;
        while rest.get(ahead - 1).is_some_and(|task| task.serial < *serial) {
            ahead *= 2;
        }
        begin += rest[..ahead.min(rest.len())].partition_point(|task| task.serial < *serial);
        tasks.get(begin).filter(|task| task.serial == *serial).map(|_| begin)
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
        serials.push(serial.ok_or(Malformed("serial numbers are not in order"))?);
    }
    Ok(serials)
}

/// Replaces rows by equal ones of the previous sample, as a live source does. A history of samples then takes
/// little memory, and unchanged rows are recognised by their address. A separately allocated row is treated
/// as changed.
pub fn share(before: &[Arc<TaskRaw>], tasks: &mut [Arc<TaskRaw>]) {
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

/// Rows of the deltas of one keyframe, each with its differences. Most rows of a delta are in the previous
/// one, too, with the same differences: they are known before they are made.
#[derive(Default)]
pub struct KnownRows {
    /// The checksum of the payload of the keyframe.
    key_id: u32,
    /// By the place of the row in the keyframe.
    rows: Vec<Option<Known>>,
    /// Differences in all of them.
    len: usize,
}

struct Known {
    differs: Vec<Differs>,
    row: Arc<TaskRaw>,
}

/// Differences that are kept at most: about four megabytes.
const KNOWN_MAX: usize = 1 << 18;

impl KnownRows {
    /// Forgets all rows: deltas of another keyframe come next, or of one that was read again.
    fn forget(&mut self) {
        *self = KnownRows::default();
    }

    /// The row that is at this place in the keyframe, if it differed in the same when it was read last.
    fn find(&self, place: usize, differs: &[Differs]) -> Option<&Arc<TaskRaw>> {
        self.rows.get(place)?.as_ref().filter(|known| known.differs == differs).map(|known| &known.row)
    }

    fn note(&mut self, place: usize, differs: &[Differs], row: &Arc<TaskRaw>) {
        if self.len + differs.len() > KNOWN_MAX {
            return;
        }
        if self.rows.len() <= place {
            self.rows.resize_with(place + 1, || None);
        }
        self.len += differs.len();
        match &mut self.rows[place] {
            Some(known) => {
                self.len -= known.differs.len();
                known.differs.clear();
                known.differs.extend_from_slice(differs);
                known.row = Arc::clone(row);
            }
            none => *none = Some(Known { differs: differs.to_vec(), row: Arc::clone(row) }),
        }
    }
}

/// The rows of a sample, and how many samples after its keyframe it is. Rows that are as in the sample before are shared with
/// it.
///
/// # Errors
/// The bytes are not rows, or the rows that they build on are missing.
pub(super) fn decode(
    mut input: Bytes<'_>,
    layout: &Layout<TaskRaw>,
    state: Option<Base<'_>>,
    room: &mut Room,
    known: &mut KnownRows,
) -> Result<(Vec<Arc<TaskRaw>>, u32), Malformed> {
    let tick = input.count(KEY_EVERY as usize)? as u32;
    if tick == 0 {
        known.forget();
        let count = input.count(MAX_ROWS)?;
        let rows = columns::decode(&mut input, layout, count, |_| None, room)?;
        input.finish()?;
        return Ok((rows.into_iter().map(Arc::new).collect(), 0));
    }
    let state = state.ok_or(Malformed("the keyframe of the sample is missing"))?;
    let listed = Listed::after(tick, &mut input)?;
    if state.tick >= tick || state.tick < listed.builds_on() {
        return Err(Malformed("earlier samples are missing"));
    }
    let bases = bases(&state.key.tasks, &listed.serials);
    format::take_rows::<TaskRaw>(room, listed.serials.len())?;
    if known.key_id != state.key_id {
        known.forget();
        known.key_id = state.key_id;
    }
    let mut cells = Cells::of(&mut input, layout, listed.serials.len())?;
    input.finish()?;
    let mut rows: Vec<Arc<TaskRaw>> = Vec::with_capacity(listed.serials.len());
    let zero = Arc::default();
    for (serial, place) in listed.serials.iter().zip(bases) {
        cells.advance()?;
        // The row before one without a base is another one each time.
        if let Some(row) = place.and_then(|place| known.find(place, cells.differs())) {
            rows.push(Arc::clone(row));
            continue;
        }
        let base = place.map(|place| &*state.key.tasks[place]);
        let from = base.unwrap_or_else(|| rows.last().unwrap_or(&zero));
        let mut row = Arc::new(TaskRaw::clone(from));
        cells.change(Arc::make_mut(&mut row), from, base.is_none(), room)?;
        if row.serial != *serial {
            return Err(Malformed("the data of a row do not match its id"));
        }
        if let Some(place) = place {
            known.note(place, cells.differs(), &row);
        }
        rows.push(row);
    }
    cells.finish()?;
    format::take_shared(room, state.tasks.len() + rows.len())?;
    let tasks = merged(state.tasks, &listed.gone, rows);
    // Each delta may add some: together they are at most as many as a sample can have.
    check_count(tasks.len())?;
    Ok((tasks, tick))
}

/// # Errors
/// No sample has more tasks than this.
pub(super) fn check_count(tasks: usize) -> Result<(), Malformed> {
    if tasks > MAX_ROWS { Err(Malformed("the sample has more tasks than the format allows")) } else { Ok(()) }
}

/// The tasks that a delta has something about.
pub struct Listed {
    /// Samples from its keyframe to it.
    pub tick: u32,
    /// The number of samples whose changes it has completely.
    pub reach: u32,
    /// Serials of ended tasks, and of those with rows, in their order.
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
            0 => Err(Malformed("the sample is a keyframe")),
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

/// Rows of the previous sample, except ended ones and those among `rows`; all lists are in the order of
/// serials.
fn merged(before: &[Arc<TaskRaw>], gone: &[u64], rows: Vec<Arc<TaskRaw>>) -> Vec<Arc<TaskRaw>> {
    let mut tasks = Vec::with_capacity(before.len() + rows.len());
    let mut gone = gone.iter().peekable();
    let mut rows = rows.into_iter().peekable();
    for old in before {
        while let Some(row) = rows.next_if(|row| row.serial < old.serial) {
            tasks.push(row);
        }
        while gone.next_if(|serial| **serial < old.serial).is_some() {}
        match rows.next_if(|row| row.serial == old.serial) {
            // It changed before the last sample.
            Some(row) if !Arc::ptr_eq(&row, old) && row == *old => tasks.push(Arc::clone(old)),
            Some(row) => tasks.push(row),
            None if gone.peek() == Some(&&old.serial) => {}
            None => tasks.push(Arc::clone(old)),
        }
    }
    tasks.extend(rows);
    tasks
}

/// Samples that a frame looks back at least, so that it can be read where one less of those before it are damaged. Readers
/// of all versions rely on it.
pub const REACH: u32 = 4;

/// One sample in this many looks back further: if four frames in a row are damaged, one of the next ones is
/// such a sample.
pub const FAR_EVERY: u32 = 5;

pub const FAR: u32 = 4 + FAR_EVERY;

/// Changes up to a sample since its keyframe.
#[derive(Default)]
pub struct Changes {
    tick: u32,
    /// Rows of the sample.
    tasks: TaskRows,
    /// Serial → when the row last changed or came, and when it went.
    changed: BTreeMap<u64, u32>,
    gone: BTreeMap<u64, u32>,
}

impl Changes {
    /// None yet: the sample is a keyframe.
    pub fn since(key: &Sample) -> Changes {
        Changes { tasks: key.tasks.clone(), ..Changes::default() }
    }

    /// With those of the next sample. `None` if rows are not in the order of their serials.
    pub fn after(&self, sample: &Sample) -> Option<Changes> {
        let sorted = |tasks: &[Arc<TaskRaw>]| tasks.windows(2).all(|pair| pair[0].serial < pair[1].serial);
        if !sorted(&self.tasks) || !sorted(&sample.tasks) {
            return None;
        }
        let tick = self.tick + 1;
        let mut next = Changes {
            tick,
            tasks: sample.tasks.clone(),
            changed: self.changed.clone(),
            gone: self.gone.clone(),
        };
        let mut before = self.tasks.iter().peekable();
        for task in &sample.tasks {
            // Most are shared: the pointers tell it without a look at the rows.
            if before.next_if(|old| Arc::ptr_eq(old, task)).is_some() {
                continue;
            }
            while let Some(old) = before.next_if(|old| old.serial < task.serial) {
                next.went(old.serial);
            }
            match before.next_if(|old| old.serial == task.serial) {
                Some(old) if Arc::ptr_eq(old, task) || old == task => {}
                _ => {
                    next.changed.insert(task.serial, tick);
                    next.gone.remove(&task.serial);
                }
            }
        }
        before.for_each(|old| next.went(old.serial));
        Some(next)
    }

    fn went(&mut self, serial: u64) {
        self.gone.insert(serial, self.tick);
        self.changed.remove(&serial);
    }

    /// Samples since the keyframe.
    pub fn tick(&self) -> u32 {
        self.tick
    }

    /// Changes of the last `reach` samples: a frame of them is read on top of any sample that is no further back.
    pub fn of_the_last(&self, reach: u32) -> Recent<'_> {
        Recent { changes: self, reach: reach.min(self.tick) }
    }
}

/// Changes in the last few samples.
#[derive(Clone, Copy)]
pub struct Recent<'a> {
    changes: &'a Changes,
    reach: u32,
}

impl Recent<'_> {
    /// Samples since the keyframe.
    pub fn tick(&self) -> u32 {
        self.changes.tick
    }

    /// The number of samples back that one may be which this one is read on top of.
    pub fn reach(&self) -> u32 {
        self.reach
    }

    fn is_recent(&self, at: u32) -> bool {
        at + self.reach > self.changes.tick
    }

    /// Serials in one of the samples within reach that have ended since; ascending.
    pub fn gone(&self) -> impl Iterator<Item = u64> {
        self.changes.gone.iter().filter(|(_, at)| self.is_recent(**at)).map(|(serial, _)| *serial)
    }

    /// The rows of `sample` that differ from those in one of the samples within reach; by serial.
    pub fn rows<'a>(&self, sample: &'a Sample) -> impl Iterator<Item = &'a TaskRaw> {
        let recent = self.changes.changed.iter().filter(|(_, at)| self.is_recent(**at));
        let mut changed = recent.map(|(serial, _)| *serial).peekable();
        sample.tasks.iter().filter_map(move |task| {
            while changed.next_if(|serial| *serial < task.serial).is_some() {}
            changed.next_if(|serial| *serial == task.serial).map(|_| &**task)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Changes, FAR, Recent, *};

    const NAME: u32 = 7;

    fn sample(rss: [u64; 3]) -> Sample {
        let task = |(serial, rss_bytes): (u64, u64)| TaskRaw { serial, rss_bytes, ..TaskRaw::default() };
        let tasks = (1..).zip(rss).map(task).map(Arc::new).collect();
        Sample { tasks, ..Sample::default() }
    }

    fn read(bytes: &[u8], state: Option<Base<'_>>, known: &mut KnownRows) -> Vec<Arc<TaskRaw>> {
        let layout = Layout::of(&columns::describe(columns::task()), columns::task()).unwrap();
        decode(Bytes(bytes), &layout, state, &mut Room::endless(), known).unwrap().0
    }

    /// A keyframe as bytes, and its deltas.
    fn written(key: &Sample, later: &[Sample]) -> (Vec<u8>, Vec<Vec<u8>>) {
        let mut whole = Vec::new();
        encode(&mut whole, None, key);
        let mut changes = Changes::since(key);
        let deltas = later.iter().map(|sample| {
            changes = changes.after(sample).unwrap();
            let recent: Recent<'_> = changes.of_the_last(FAR);
            let mut bytes = Vec::new();
            encode(&mut bytes, Some(Delta { key, key_id: NAME, changes: recent }), sample);
            bytes
        });
        (whole, deltas.collect())
    }

    #[test]
    fn a_row_that_a_delta_has_once_more_is_the_one_of_before() {
        let later = [sample([1, 20, 3]), sample([10, 20, 3]), sample([10, 2, 3]), sample([10, 20, 3])];
        let key = sample([1, 2, 3]);
        let (whole, deltas) = written(&key, &later);
        let mut known = KnownRows::default();
        let mut rows = vec![read(&whole, None, &mut known)];
        let key = Sample { tasks: rows[0].clone().into(), ..Sample::default() };
        for (bytes, tick) in deltas.iter().zip(0..) {
            let state = Base { key: &key, key_id: NAME, tick, tasks: &rows[tick as usize] };
            rows.push(read(bytes, Some(state), &mut known));
        }
        for (read, sample) in rows[1..].iter().zip(&later) {
            assert_eq!(*read, *sample.tasks);
        }
        let same = |at: usize, [one, other]: [usize; 2]| Arc::ptr_eq(&rows[one][at], &rows[other][at]);
        assert!(same(2, [0, 4]), "nothing says that it changed");
        assert!(same(1, [1, 2]) && same(0, [2, 4]), "it is in both deltas");
        assert!(!same(1, [2, 3]) && !same(1, [3, 4]), "it changed, and changed back");
    }

    #[test]
    fn rows_of_one_keyframe_are_not_those_of_another_with_the_same_checksum() {
        let mut known = KnownRows::default();
        for base in [2, 100] {
            let (whole, deltas) = written(&sample([1, base, 3]), &[sample([1, base + 5, 3])]);
            let tasks = read(&whole, None, &mut known);
            let key = Sample { tasks: tasks.into(), ..Sample::default() };
            let state = Base { key: &key, key_id: NAME, tick: 0, tasks: &key.tasks };
            assert_eq!(read(&deltas[0], Some(state), &mut known)[1].rss_bytes, base + 5);
        }
    }

    #[test]
    fn no_more_differences_are_kept_than_so_many() {
        let many = u64::MAX / 3;
        let mut known = KnownRows::default();
        let mut cells = Vec::new();
        encode(&mut cells, None, &sample([many, 0, many]));
        let layout = Layout::of(&columns::describe(columns::task()), columns::task()).unwrap();
        let mut input = Bytes(&cells[2..]);
        let mut cells = Cells::of(&mut input, &layout, 3).unwrap();
        cells.advance().unwrap();
        let differs = cells.differs();
        let row = Arc::new(TaskRaw::default());
        for place in 0..2 * KNOWN_MAX / differs.len() {
            known.note(place, differs, &row);
        }
        assert!(known.len <= KNOWN_MAX && known.len + differs.len() > KNOWN_MAX);
        assert_eq!(known.rows.iter().flatten().count() * differs.len(), known.len);
    }
}
