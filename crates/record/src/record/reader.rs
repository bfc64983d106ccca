//! One file of a recording while it is read: the samples in its frames, each with the data that it builds on.
//!
//! Reading a file from front to back takes time in proportion to its size, whatever its content. A keyframe
//! that was read, or could not be, is the only one for the frames behind it. Each of the frames between a
//! keyframe and a delta is tried once.

use std::fs::Metadata;
use std::io;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};

use super::format::{ANCHOR_EVERY, FrameKind, Head, KEY_EVERY};
use super::frame::FrameHead;
use super::payload::{self, Base, KnownRows, Latest, Layouts, Room};
use super::rows;
use super::scan::{Frames, is_damaged};
use crate::model::facility::Facility;
use crate::model::sample::{Sample, TaskRows};

pub use super::scan::{Found, Frame};

/// Frames from one keyframe to the next at most: a gap and the copy of a head may be in front of each sample.
const BETWEEN: u64 = 3 * KEY_EVERY as u64;
/// A head that was read, and everything derived from it.
pub struct HeadInForce {
    pub head: Head,
    layouts: Layouts,
}

impl HeadInForce {
    fn new(head: Head) -> Result<HeadInForce> {
        head.check().map_err(anyhow::Error::msg)?;
        let layouts = Layouts::of(&head).map_err(anyhow::Error::msg)?;
        Ok(HeadInForce { head, layouts })
    }

    /// Facilities that the version that made the recording did not keep.
    pub fn without(&self) -> impl Iterator<Item = Facility> {
        self.layouts.without()
    }
}

/// A keyframe that was read.
#[derive(Clone)]
struct KeyInForce {
    head: Arc<HeadInForce>,
    sample: Arc<Sample>,
    id: u32,
    seq: u64,
}

/// The rows of the sample that was read last, with its keyframe and its distance from that in samples.
struct Near {
    key: u64,
    tick: u32,
    tasks: TaskRows,
    /// Deltas of this keyframe that begin before were tried.
    tried: u64,
}

impl KeyInForce {
    /// The base of a delta: this keyframe, and the sample `near` it, or else its own.
    fn base<'a>(&'a self, near: Option<&'a Near>) -> Base<'a> {
        let (tick, tasks) = near.map_or((0, &self.sample.tasks), |near| (near.tick, &near.tasks));
        Base { key: &self.sample, key_id: self.id, tick, tasks }
    }
}

/// The last reading of something that frames depend on, by the place of its first copy; `None` where it could not be.
type Last<T> = Option<(u64, Option<T>)>;

/// An open file of a recording.
pub struct Reader {
    frames: Frames,
    /// The head that the file begins with, and where.
    first: (u64, Arc<HeadInForce>),
    head: Last<Arc<HeadInForce>>,
    key: Last<KeyInForce>,
    near: Option<Near>,
    /// Rows of the sample before the first of this file.
    before: TaskRows,
    known: KnownRows,
}

impl Reader {
    /// # Errors
    /// It cannot be opened, is no recording, or its head cannot be used.
    pub fn open(path: &Path) -> Result<Reader> {
        Reader::begin(Frames::open(path)?).with_context(|| path.display().to_string())
    }

    fn begin(mut frames: Frames) -> Result<Reader> {
        let frame = frames.find_head()?;
        let head = HeadInForce::new(frames.json_in(frame)?)?;
        frames.scan.id = Some(frame.head.file);
        Ok(Reader::of(frames, (frame.first(), Arc::new(head))))
    }

    fn of(frames: Frames, first: (u64, Arc<HeadInForce>)) -> Reader {
        Reader {
            frames,
            first,
            head: None,
            key: None,
            near: None,
            before: TaskRows::default(),
            known: KnownRows::default(),
        }
    }

    /// Another reader of the same open file, which does not read its first head again.
    ///
    /// # Errors
    /// The errno of dup(2).
    pub fn beside(&self) -> io::Result<Reader> {
        Ok(Reader::of(Frames::of(self.frames.scan.again()?), (self.first.0, Arc::clone(&self.first.1))))
    }

    /// Notes that this file continues another one, so that equal rows are shared.
    pub fn goes_on_from(&mut self, other: &Reader) {
        self.before = other.last_rows().clone();
    }

    /// Rows of the sample that was read last.
    fn last_rows(&self) -> &TaskRows {
        self.near.as_ref().map_or(&self.before, |near| &near.tasks)
    }

    /// The head that the file begins with.
    pub fn first_head(&self) -> Arc<HeadInForce> {
        Arc::clone(&self.first.1)
    }

    /// Bytes in the file now.
    ///
    /// # Errors
    /// The errno of fstat(2).
    pub fn bytes(&self) -> io::Result<u64> {
        self.frames.scan.bytes()
    }

    /// The answer of fstat(2) for the file.
    ///
    /// # Errors
    /// Its error.
    pub fn metadata(&self) -> io::Result<Metadata> {
        self.frames.scan.metadata()
    }

    /// True if a recorder has the file open (holds its lock).
    pub fn is_being_written(&self) -> bool {
        self.frames.scan.is_being_written()
    }

    /// The frame at `at`.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn at(&self, at: u64) -> Result<Found> {
        self.frames.scan.at(at)
    }

    /// Whether a frame of another recording begins at `at`.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn is_foreign(&self, at: u64) -> Result<bool> {
        self.frames.scan.is_foreign(at)
    }

    /// Whether the bytes of a frame are intact.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn is_whole(&mut self, frame: Frame) -> Result<bool> {
        self.frames.is_whole(frame)
    }

    /// The payload of a frame that holds JSON.
    ///
    /// # Errors
    /// It is damaged, or not such JSON.
    pub fn json<T: serde::de::DeserializeOwned>(&mut self, frame: Frame) -> Result<T> {
        self.frames.json(frame)
    }

    /// The head whose first copy is at `at`.
    ///
    /// # Errors
    /// All copies are damaged, or their content cannot be used.
    pub fn head_at(&mut self, at: u64) -> Result<Arc<HeadInForce>> {
        match &self.head {
            _ if at == self.first.0 => return Ok(self.first_head()),
            Some((last, head)) if *last == at => return head.clone().with_context(|| needed_is_damaged(at)),
            _ => {}
        }
        let read = self.read_head(at);
        self.head = Some((at, read.as_ref().ok().cloned()));
        read
    }

    fn read_head(&mut self, at: u64) -> Result<Arc<HeadInForce>> {
        let copies =
            self.frames.copies(at, |frame| frame.head.kind == FrameKind::Head && frame.first() == at)?;
        let mut read = Err(anyhow!(needed_is_damaged(at)));
        for copy in copies {
            read = self.frames.json(copy).and_then(HeadInForce::new).map(Arc::new);
            if read.is_ok() {
                break;
            }
        }
        read
    }

    /// The head that `frame` names; no other head may be in between.
    fn head_of(&mut self, frame: &FrameHead, at: u64) -> Result<Arc<HeadInForce>> {
        match &self.head {
            Some((last, _)) if *last > frame.base && *last < at => {
                bail!("the frame refers to an older header, but a newer header precedes the frame")
            }
            _ => self.head_at(frame.base),
        }
    }

    /// The keyframe whose first copy is where `delta` points.
    fn key_of(&mut self, delta: Frame) -> Result<KeyInForce> {
        let at = delta.head.base;
        match &self.key {
            Some((last, key)) if *last == at => return key.clone().with_context(|| needed_is_damaged(at)),
            Some((last, _)) if *last > at && *last < delta.at => {
                bail!("another keyframe lies between the sample and its keyframe")
            }
            _ => {}
        }
        let read = self.read_key(at, delta);
        self.key = Some((at, read.as_ref().ok().cloned()));
        read
    }

    fn read_key(&mut self, at: u64, delta: Frame) -> Result<KeyInForce> {
        let is_copy = |frame: &Frame| match frame.head.kind {
            FrameKind::Key => frame.first() == at,
            _ => frame.head.carries && frame.head.base == at,
        };
        let mut read = Err(anyhow!(needed_is_damaged(at)));
        // Near the delta too: where frames were cut out, nothing is at the place that it names.
        for from in [at, delta.at] {
            for copy in self.frames.copies(from, is_copy)? {
                read = self.frames.key(copy, at).and_then(|head| self.key_in(at, &head));
                if read.is_ok() {
                    return read;
                }
            }
        }
        read
    }

    /// The keyframe that is at `at` and whose payload is in `self.frames.raw`.
    fn key_in(&mut self, at: u64, frame: &FrameHead) -> Result<KeyInForce> {
        let head = self.head_of(frame, at)?;
        let sample = self.decode(frame, &head, None)?.0;
        let id = payload::id_of(&self.frames.raw);
        Ok(KeyInForce { head, sample: Arc::new(sample), id, seq: frame.seq })
    }

    /// The sample in a frame that has one, and the head it belongs to.
    ///
    /// # Errors
    /// It is damaged, or all copies of a frame that it needs are.
    pub fn sample(&mut self, frame: Frame) -> Result<(Arc<HeadInForce>, Sample)> {
        match frame.head.kind {
            FrameKind::Key => {
                self.frames.payload(frame)?;
                let mut key = self.key_in(frame.first(), &frame.head)?;
                if let Some(sample) = Arc::get_mut(&mut key.sample) {
                    rows::share(self.last_rows(), &mut sample.tasks);
                }
                self.before = TaskRows::default();
                let (head, sample) = (Arc::clone(&key.head), Sample::clone(&key.sample));
                // The frames after it need it next.
                let tasks = sample.tasks.clone();
                self.near = Some(Near { key: frame.first(), tick: 0, tasks, tried: frame.end() });
                self.key = Some((frame.first(), Some(key)));
                Ok((head, sample))
            }
            FrameKind::Delta => {
                let key = self.key_of(frame)?;
                if !(key.seq..=key.seq.saturating_add(BETWEEN)).contains(&frame.head.seq) {
                    bail!("the frame at byte {} is too far from its keyframe", frame.at);
                }
                self.near =
                    self.near.take().filter(|near| near.key == frame.head.base && near.tried <= frame.at);
                let mut sample = self.delta(frame, &key);
                // It was jumped to, or some before it are damaged: what it needs is between its keyframe and itself.
                let between = if sample.is_err() { self.deltas_before(frame)? } else { Vec::new() };
                if !between.is_empty() {
                    sample = self.jump(frame, &key, &between);
                }
                if sample.is_err() && !between.is_empty() {
                    // A damaged one may yet be bridged by those after it.
                    between.iter().for_each(|frame| drop(self.delta(*frame, &key)));
                    sample = self.delta(frame, &key);
                }
                if sample.is_err() {
                    self.tried(frame, &key);
                }
                Ok((key.head, sample?))
            }
            _ => bail!("the frame at byte {} holds no sample", frame.at),
        }
    }

    /// The sample of a delta, from the last one that was read, which must be near.
    fn delta(&mut self, frame: Frame, key: &KeyInForce) -> Result<Sample> {
        let near = self.near.take().filter(|near| near.key == frame.head.base);
        let base = key.base(near.as_ref());
        let decoded =
            self.frames.payload(frame).and_then(|()| self.decode(&frame.head, &key.head, Some(base)));
        let (key, tried) = (frame.head.base, frame.end());
        match decoded {
            Ok((sample, tick)) => {
                self.near = Some(Near { key, tick, tasks: sample.tasks.clone(), tried });
                Ok(sample)
            }
            Err(error) => {
                self.near = near;
                Err(error.context(is_damaged(frame)))
            }
        }
    }

    /// The sample of a delta, from the rows it needs of the samples between its keyframe and itself, all of
    /// them intact.
    fn jump(&mut self, frame: Frame, key: &KeyInForce, between: &[Frame]) -> Result<Sample> {
        let near = self.near.take();
        let rows = self.rows_before(frame, &key.head, key.base(near.as_ref()), between);
        self.near =
            rows.map(|(tick, tasks)| Near { key: frame.head.base, tick, tasks, tried: frame.at }).ok();
        let sample = self.delta(frame, key);
        if sample.is_err() {
            // Rows that this delta has were left out.
            self.near = near;
        }
        sample
    }

    /// The rows that a delta does not have itself, and their sample, by its distance from the keyframe.
    fn rows_before(
        &mut self,
        frame: Frame,
        head: &HeadInForce,
        base: Base<'_>,
        between: &[Frame],
    ) -> Result<(u32, TaskRows)> {
        self.frames.payload(frame)?;
        let mut listed = payload::listed(&self.frames.raw, base.key_id)?.0;
        let mut latest = Latest::before(&listed);
        let mut first = None;
        while listed.builds_on() > base.tick {
            // Some deltas have all changes since the keyframe.
            let anchor = (listed.tick - 1) / ANCHOR_EVERY * ANCHOR_EVERY;
            let tick = listed.builds_on().max(anchor);
            let at = (tick - base.tick - 1) as usize;
            let link = *between.get(at).filter(|_| tick < listed.tick).context("some frames are missing")?;
            self.frames.payload(link)?;
            let raw = &self.frames.raw;
            let room = Room::new(link.head.stored as usize, raw.len())?;
            listed = payload::decode_latest(&mut latest, raw, &head.layouts, base, tick, room)?;
            first.get_or_insert(tick);
        }
        Ok((first.unwrap_or(base.tick), latest.over(base).into()))
    }

    /// This delta could not be read, and neither can it be for those after it.
    fn tried(&mut self, frame: Frame, key: &KeyInForce) {
        let begin = || Near { key: frame.head.base, tick: 0, tasks: key.sample.tasks.clone(), tried: 0 };
        self.near.get_or_insert_with(begin).tried = frame.end();
    }

    /// The deltas before a delta that have the same keyframe and were not tried yet, in their order.
    fn deltas_before(&self, frame: Frame) -> Result<Vec<Frame>> {
        let mut at = self.near.as_ref().map_or(frame.head.base, |near| near.tried);
        let mut frames = Vec::new();
        for _ in 0..BETWEEN {
            if at >= frame.at {
                break;
            }
            at = match self.at(at)? {
                Found::Frame(found) => {
                    let same_key = found.head.kind == FrameKind::Delta && found.head.base == frame.head.base;
                    if same_key && found.at < frame.at {
                        frames.push(found);
                    }
                    found.end()
                }
                Found::Damaged { next } => next,
                Found::End { .. } => break,
            };
        }
        Ok(frames)
    }

    /// The payload of a frame in `self.frames.raw`.
    fn decode(
        &mut self,
        frame: &FrameHead,
        head: &HeadInForce,
        base: Option<Base<'_>>,
    ) -> Result<(Sample, u32)> {
        let room = Room::new(frame.stored as usize, self.frames.raw.len())?;
        Ok(payload::decode_with(&self.frames.raw, &head.layouts, base, room, &mut self.known)?)
    }
}

fn needed_is_damaged(at: u64) -> String {
    format!("the sample needs the frame at byte {at}, which is damaged")
}
