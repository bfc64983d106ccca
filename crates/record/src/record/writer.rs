//! One file of a recording while it is written: frames go on at the end, or not at all. Frames that others depend on are
//! written twice, so that the loss of any one sector costs few samples, unreadable ones included.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};

use super::format::{
    ANCHOR_EVERY, APART, End, FORMAT, FrameKind, Gap, HEAD_EVERY, Head, KEY_EVERY, LOSS, MAX_PAYLOAD,
    MIN_FRAME, SECTOR,
};
use super::frame::{Carried, Extras, FrameHead, HEAD_LEN, Sealer};
use super::payload::{self, Delta, TooLarge};
use super::rows::{Changes, FAR, FAR_EVERY, REACH};
use crate::model::sample::Sample;
use crate::program::slack::is_roomy;

/// zstd's level: 3 and 9 are within 3 % in size and cost more time.
const LEVEL: i32 = 1;

/// Bytes for which a buffer may have room whatever is in it.
const ROOM_MIN: usize = 64 << 10;

/// Why something was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The file is as it was before.
    #[error("{0}")]
    NotWritten(io::Error),
    /// A torn frame could not be taken back: nothing may be written after it.
    #[error("{write}, and the part that was already written cannot be removed: {undo}")]
    Damaged { write: io::Error, undo: io::Error },
    #[error("{0}")]
    TooLarge(#[from] TooLarge),
}

/// The head in force.
#[derive(Default)]
struct HeadWritten {
    at: u64,
    json: Vec<u8>,
    copy: Option<Due>,
    /// Keyframes since it, or since its last copy.
    keys: u32,
}

/// The keyframe in force.
struct KeyWritten {
    at: u64,
    sample: Sample,
    /// Its number in deltas.
    id: u32,
    /// The whole frame, until it has a copy.
    frame: Vec<u8>,
    copy: Option<Due>,
}

/// Writes frames to a file that belongs to it.
pub struct Writer {
    file: File,
    /// Distinguishes this file's frames from those of others.
    id: u32,
    /// End of the last whole frame.
    end: u64,
    next_seq: u64,
    head: HeadWritten,
    key: Option<KeyWritten>,
    /// Changes since the keyframe, as of the last sample.
    changes: Changes,
    spread: Spread,
    /// Times of the last sample.
    mono_ns: u64,
    wall_ns: i64,
    sealer: Sealer,
    payload: Vec<u8>,
    /// Frames to be written, and their number; the copy of a frame does not count.
    frames: Vec<u8>,
    sealed: u64,
}

impl Writer {
    /// Takes over an empty file. Nothing is written before the first [`Writer::head`].
    ///
    /// # Errors
    /// zstd could not set itself up (out of memory).
    pub fn new(file: File, id: u32) -> io::Result<Writer> {
        Ok(Writer {
            file,
            id,
            end: 0,
            next_seq: 0,
            head: HeadWritten::default(),
            key: None,
            changes: Changes::default(),
            spread: Spread::default(),
            mono_ns: 0,
            wall_ns: 0,
            sealer: Sealer::new(LEVEL)?,
            payload: Vec::new(),
            frames: Vec::new(),
            sealed: 0,
        })
    }

    /// Whether the file is in no directory: everything written to it is lost when it is closed.
    pub fn is_removed(&self) -> bool {
        self.file.metadata().is_ok_and(|meta| meta.nlink() == 0)
    }

    /// Bytes of the file.
    pub fn len(&self) -> u64 {
        self.end
    }

    /// True before the first head.
    pub fn is_empty(&self) -> bool {
        self.end == 0
    }

    /// Describes the next frames; the next sample is a keyframe.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn head(&mut self, head: &Head) -> Result<(), WriteError> {
        self.json(head);
        let json = self.payload.clone();
        let at = self.end;
        self.seal(FrameKind::Head, at, Extras::default())?;
        self.seal_again(at);
        self.write()?;
        let copy = Some(self.spread.due(at, self.end));
        self.head = HeadWritten { at, json, copy, keys: 0 };
        self.key = None;
        Ok(())
    }

    /// Writes a sample: whole if a keyframe is due, as differences otherwise. A gap before it is written
    /// ahead of it, and only together with it.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn sample(&mut self, sample: &Sample, gap: Option<&Gap>) -> Result<(), WriteError> {
        if let Some(gap) = gap {
            self.json(gap);
            self.seal(FrameKind::Gap, self.head.at, Extras::default())?;
        }
        (self.mono_ns, self.wall_ns) = (sample.mono_ns, sample.wall_ns);
        let copied = self.head.copy.is_some_and(|copy| copy.is_ready(self.next_at()));
        if copied {
            self.seal_head_again()?;
        }
        let at = self.next_at();
        match self.changes.after(sample).filter(|changes| self.key.is_some() && changes.tick() < KEY_EVERY) {
            Some(changes) => self.delta(sample, changes)?,
            None => self.keyframe(sample)?,
        }
        self.spread.push(at..self.end);
        if copied {
            (self.head.copy, self.head.keys) = (None, 0);
        }
        self.head.copy.iter_mut().for_each(Due::count);
        Ok(())
    }

    fn keyframe(&mut self, sample: &Sample) -> Result<(), WriteError> {
        self.payload.clear();
        let encoded = payload::encode(&mut self.payload, None, sample);
        let stored = encoded.map_err(|error| self.refuse(error.into()))?;
        let (first, id) = (self.key.is_none(), payload::id_of(&self.payload));
        let at = self.next_at();
        let least = self.head.copy.map_or(0, |copy| copy.least(at)).max(HEAD_LEN + stored).max(MIN_FRAME);
        self.seal(FrameKind::Key, self.head.at, Extras { copies: &[], least })?;
        let frame = self.frames[(at - self.end) as usize..].to_vec();
        // Its content is nowhere else yet. Later the keyframe before it is near.
        if first {
            self.seal_again(at);
        }
        self.write()?;
        self.shrink();
        let copy = Some(self.spread.due(at, self.end));
        self.key = Some(KeyWritten { at, sample: sample.clone(), id, frame, copy });
        self.changes = Changes::since(sample);
        self.head.keys += 1;
        if self.head.keys >= HEAD_EVERY && self.head.copy.is_none() {
            self.head.copy = Some(Due::at_once());
        }
        Ok(())
    }

    /// Gives back the room that samples of a burst of tasks took, after a keyframe: no frame up to the next
    /// one is much larger than that.
    fn shrink(&mut self) {
        if is_roomy(self.payload.capacity(), self.payload.len(), ROOM_MIN)
            && let Ok(sealer) = Sealer::new(LEVEL)
        {
            self.sealer = sealer;
            self.payload.shrink_to(2 * self.payload.len());
            self.frames.shrink_to(2 * self.frames.len());
        }
    }

    fn delta(&mut self, sample: &Sample, changes: Changes) -> Result<(), WriteError> {
        let at = self.next_at();
        let key = self.key.take().expect("the caller looked");
        let written = self.write_delta(sample, &changes, at, &key);
        self.key = Some(key);
        let carried = written?;
        if let Some(key) = &mut self.key {
            key.copy = key.copy.filter(|_| !carried);
            key.copy.iter_mut().for_each(Due::count);
        }
        self.changes = changes;
        Ok(())
    }

    /// Writes a delta at `at`. True if it has the copy of its keyframe.
    fn write_delta(
        &mut self,
        sample: &Sample,
        changes: &Changes,
        at: u64,
        key: &KeyWritten,
    ) -> Result<bool, WriteError> {
        let carries = key.copy.is_some_and(|copy| copy.is_ready(at)) && key.frame.len() <= MAX_PAYLOAD / 4;
        let carried = [Carried { at: key.at, frame: &key.frame }];
        let copies = if carries { &carried[..] } else { &[] };
        let waiting = [self.head.copy, key.copy.filter(|_| !carries)];
        let least = waiting.iter().flatten().map(|copy| copy.least(at)).fold(MIN_FRAME, usize::max);
        let tick = changes.tick();
        let reach = match tick {
            _ if tick.is_multiple_of(ANCHOR_EVERY) => tick,
            _ if tick.is_multiple_of(FAR_EVERY) => FAR,
            _ => REACH,
        };
        let reach = reach.max(self.spread.reach(at));
        self.payload.clear();
        let changes = changes.of_the_last(reach);
        let delta = Some(Delta { key: &key.sample, key_id: key.id, changes });
        let encoded = payload::encode(&mut self.payload, delta, sample);
        let stored = encoded.map_err(|error| self.refuse(error.into()))?;
        let least = least.max(HEAD_LEN + stored);
        let (frames, sealed) = (self.frames.len(), self.sealed);
        self.seal(FrameKind::Delta, key.at, Extras { copies, least })?;
        if tick + 1 == KEY_EVERY
            && let Some(least) = self.spread.least_before_key(at, self.next_at())
        {
            self.frames.truncate(frames);
            self.sealed = sealed;
            self.seal(FrameKind::Delta, key.at, Extras { copies, least })?;
        }
        self.write()?;
        Ok(carries)
    }

    /// Marks the end, and makes the disk store everything.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn end(mut self, end: End) -> Result<(), WriteError> {
        if self.head.copy.is_some() {
            self.seal_head_again()?;
        }
        self.json(&end);
        let key = self.key.take();
        let waiting = key.as_ref().filter(|key| key.copy.is_some() && key.frame.len() <= MAX_PAYLOAD / 4);
        let copy = waiting.map(|key| Carried { at: key.at, frame: &key.frame });
        self.seal(FrameKind::End, self.head.at, Extras { copies: copy.as_slice(), least: 0 })?;
        self.write()?;
        self.file.sync_data().map_err(WriteError::NotWritten)
    }

    fn json<T: serde::Serialize>(&mut self, value: &T) {
        self.payload.clear();
        serde_json::to_writer(&mut self.payload, value)
            .expect("these types become JSON, and memory takes it");
    }

    /// Where the next frame that is sealed will be.
    fn next_at(&self) -> u64 {
        self.end + self.frames.len() as u64
    }

    /// Makes a frame of `self.payload`, to be written with the others in `self.frames`.
    fn seal(&mut self, kind: FrameKind, base: u64, beside: Extras<'_>) -> Result<(), WriteError> {
        let head = FrameHead {
            kind,
            compressed: false,
            copy: false,
            carries: false,
            format: FORMAT,
            file: self.id,
            stored: 0,
            raw: 0,
            seq: self.next_seq + self.sealed,
            mono_ns: self.mono_ns,
            wall_ns: self.wall_ns,
            base,
            payload_crc: 0,
        };
        let sealed = self.sealer.seal(&mut self.frames, head, &self.payload, beside);
        sealed.map_err(|error| self.refuse(WriteError::NotWritten(error)))?;
        self.sealed += 1;
        Ok(())
    }

    /// Makes a second copy of the frame that was sealed last, which begins at `at`.
    fn seal_again(&mut self, at: u64) {
        let frame = self.frames.split_off((at - self.end) as usize);
        let head = FrameHead::from_bytes(&frame).expect("it was sealed just now");
        self.frames.extend_from_slice(&frame);
        self.frames.extend_from_slice(&FrameHead { copy: true, ..head }.to_bytes());
        self.frames.extend_from_slice(&frame[HEAD_LEN..]);
    }

    /// Makes a copy of the head in force: a head that names the place of the first. Readers that do not know
    /// of such copies take it for another head.
    fn seal_head_again(&mut self) -> Result<(), WriteError> {
        self.payload.clone_from(&self.head.json);
        self.seal(FrameKind::Head, self.head.at, Extras::default())
    }

    /// Forgets the frames that are sealed and not written.
    fn refuse(&mut self, error: WriteError) -> WriteError {
        self.frames.clear();
        self.sealed = 0;
        error
    }

    /// Puts the sealed frames at the end of the file: all of them, or nothing.
    fn write(&mut self) -> Result<(), WriteError> {
        if let Err(write) = self.file.write_all_at(&self.frames, self.end) {
            let undone = self.file.set_len(self.end);
            return Err(self.refuse(match undone {
                Ok(()) => WriteError::NotWritten(write),
                Err(undo) => WriteError::Damaged { write, undo },
            }));
        }
        self.end += self.frames.len() as u64;
        self.next_seq += self.sealed;
        self.frames.clear();
        self.sealed = 0;
        Ok(())
    }
}

/// Where the sector begins that has this byte.
fn sector(at: u64) -> u64 {
    at / SECTOR * SECTOR
}

/// The copy of a frame that is yet to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Due {
    /// The sector after those of the frame itself.
    from: u64,
    /// Samples written since, and how many more may be. All of them are lost with the frame, and with the
    /// rest of its sector.
    since: u32,
    left: u32,
}

impl Due {
    /// With the next sample.
    pub(super) fn at_once() -> Due {
        Due { from: 0, since: APART, left: 0 }
    }

    /// Whether it may be written with a sample at `at`.
    pub(super) fn is_ready(&self, at: u64) -> bool {
        self.since >= APART && at >= self.from
    }

    /// Bytes that a sample at `at` must take, so that the copy can be written with the next one if it must.
    pub(super) fn least(&self, at: u64) -> usize {
        if self.left > 1 { 0 } else { self.from.saturating_sub(at) as usize }
    }

    /// One more sample was written.
    pub(super) fn count(&mut self) {
        self.since += 1;
        self.left = self.left.saturating_sub(1);
    }
}

/// Where the last frames with a sample are.
#[derive(Default)]
pub(super) struct Spread(VecDeque<Range<u64>>);

impl Spread {
    /// A frame with a sample was written.
    pub(super) fn push(&mut self, frame: Range<u64>) {
        // At most this many have a part in one sector.
        if self.0.len() > LOSS as usize {
            self.0.pop_front();
        }
        self.0.push_back(frame);
    }

    /// The number of them that end after `at`.
    fn after(&self, at: u64) -> u32 {
        self.0.iter().filter(|frame| frame.end > at).count() as u32
    }

    /// The due time of the copy of a frame that is written at `at` and ends at `end`, including a second
    /// frame right behind it.
    pub(super) fn due(&self, at: u64, end: u64) -> Due {
        let before = self.after(sector(at));
        let left = (LOSS - 1).saturating_sub(before).max(APART);
        Due { from: end.next_multiple_of(SECTOR), since: 0, left }
    }

    /// Samples that a delta at `at` looks back: more than may be lost while it is intact.
    pub(super) fn reach(&self, at: u64) -> u32 {
        match self.0.back() {
            Some(last) if last.start < sector(at) => 1 + self.after(sector(last.start)),
            _ => 1,
        }
    }

    /// The minimum length of the frame from `at` to `end` before a keyframe, so that not too many samples on
    /// both sides of the keyframe are lost with it.
    pub(super) fn least_before_key(&self, at: u64, end: u64) -> Option<usize> {
        let before = self.after(sector(end)) + u32::from(end > sector(end));
        (before + APART >= LOSS).then(|| (end.next_multiple_of(SECTOR) - at) as usize)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::sample::TaskRaw;

    #[test]
    fn a_burst_of_tasks_leaves_no_room_behind() {
        let file = rustix::fs::memfd_create("recording", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mut writer = Writer::new(file.into(), 1).unwrap();
        let quiet = Sample {
            tasks: [Arc::new(TaskRaw { pid: 1, tid: 1, ..TaskRaw::default() })].into_iter().collect(),
            ..Sample::default()
        };
        let mut burst = quiet.clone();
        burst.tasks = (1..50_000)
            .map(|serial| {
                Arc::new(TaskRaw {
                    serial,
                    tid: serial as u32,
                    exec_ns: serial * serial,
                    ..TaskRaw::default()
                })
            })
            .collect();
        let room =
            |writer: &Writer| writer.payload.capacity() + writer.frames.capacity() + writer.sealer.room();
        writer.sample(&burst, None).unwrap();
        assert!(room(&writer) > 500_000, "{}", room(&writer));
        for _ in 0..KEY_EVERY {
            writer.sample(&quiet, None).unwrap();
        }
        assert!(room(&writer) < 2 * ROOM_MIN, "{}", room(&writer));
    }

    fn frames(lens: &[u64]) -> (Spread, u64) {
        let (mut spread, mut at) = (Spread::default(), 0);
        for len in lens {
            spread.push(at..at + len);
            at += len;
        }
        (spread, at)
    }

    #[test]
    fn the_first_frame_of_a_sector_looks_back_beyond_the_one_before() {
        let (spread, at) = frames(&[600; 7]);
        // The seventh ends at 4200.
        assert_eq!(spread.reach(at), 8);
        assert_eq!(spread.reach(4000), 1);
        let (spread, at) = frames(&[3000, 3000, 3000]);
        assert_eq!(spread.reach(at), 3);
    }

    #[test]
    fn a_copy_is_in_another_sector_and_some_samples_later() {
        let (spread, at) = frames(&[600; 3]);
        let mut due = spread.due(at, at + 1000);
        assert!(!due.is_ready(5000));
        for _ in 0..APART {
            assert_eq!(due.least(at), 0);
            due.count();
        }
        assert!(due.is_ready(SECTOR) && !due.is_ready(SECTOR - 1));
        // Three samples before it in its sector, three after it.
        assert_eq!(due.least(SECTOR - 100), 100);
    }

    #[test]
    fn a_keyframe_begins_a_sector_where_too_much_would_be_before_it() {
        let (spread, at) = frames(&[600; 5]);
        assert_eq!(spread.least_before_key(at, at + 600), Some(SECTOR as usize - 3000));
        let (spread, at) = frames(&[1500; 1]);
        assert_eq!(spread.least_before_key(at, at + 1500), None);
    }
}
