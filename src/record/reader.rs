//! One file of a recording while it is read: the samples in its frames, each with what it builds on.

use std::io;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};

use super::changes::REACH;
use super::format::{Head, Kind};
use super::payload::{self, Base, Layouts};
use super::scan::Scan;
pub use super::scan::{Found, Frame};
use crate::sample::{HostFacts, Missing, Sample, TaskRaw};

/// A head that was read, with what follows from it.
pub struct HeadInForce {
    pub head: Head,
    /// The recorded facts, and what this version of the recording cannot have.
    pub host: Arc<HostFacts>,
    layouts: Layouts,
}

/// A keyframe that was read.
#[derive(Clone)]
struct KeyInForce {
    head: Arc<HeadInForce>,
    sample: Arc<Sample>,
}

/// The rows of the sample that was read last: of which keyframe, and how many samples after it.
struct Near {
    key: u64,
    tick: u32,
    tasks: Vec<Arc<TaskRaw>>,
}

/// An open file of a recording.
pub struct Reader {
    scan: Scan,
    /// Where the first head is.
    first_at: u64,
    stored: Vec<u8>,
    raw: Vec<u8>,
    /// The head and the keyframe used last, by place.
    head: Option<(u64, Arc<HeadInForce>)>,
    key: Option<(u64, KeyInForce)>,
    near: Option<Near>,
}

impl Reader {
    /// # Errors
    /// It cannot be opened, is no recording, or its head cannot be used.
    pub fn open(path: &Path) -> Result<Reader> {
        let mut reader = Reader {
            scan: Scan::open(path)?,
            first_at: 0,
            stored: Vec::new(),
            raw: Vec::new(),
            head: None,
            key: None,
            near: None,
        };
        let first = reader.find_head().with_context(|| path.display().to_string())?;
        reader.scan.id = Some(first.head.file);
        reader.first_at = first.first();
        reader.first_head().with_context(|| path.display().to_string())?;
        Ok(reader)
    }

    /// The head that the file begins with; of two copies the first that is whole.
    fn find_head(&mut self) -> Result<Frame> {
        let mut at = 0;
        loop {
            match self.at(at)? {
                Found::Frame(frame) if frame.head.kind == Kind::Head && self.payload(frame).is_ok() => {
                    return Ok(frame);
                }
                Found::Frame(frame) if frame.head.kind == Kind::Head => at = frame.end(),
                Found::Damaged { next } => at = next,
                Found::Frame(_) => bail!("both copies of the head are damaged: nothing says how to read it"),
                Found::End { .. } => bail!("there is no recording in it"),
            }
        }
    }

    /// The head that the file begins with.
    ///
    /// # Errors
    /// It was damaged after the file was opened.
    pub fn first_head(&mut self) -> Result<Arc<HeadInForce>> {
        self.head_at(self.first_at)
    }

    /// Bytes in the file now.
    ///
    /// # Errors
    /// What fstat(2) returned.
    pub fn bytes(&self) -> io::Result<u64> {
        self.scan.bytes()
    }

    /// True when somebody has the file open for recording (holds its lock).
    pub fn is_being_written(&self) -> bool {
        self.scan.is_being_written()
    }

    /// What is at `at`.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn at(&self, at: u64) -> Result<Found> {
        self.scan.at(at)
    }

    /// The payload of a frame into `self.raw`.
    fn payload(&mut self, frame: Frame) -> Result<()> {
        let mut stored = std::mem::take(&mut self.stored);
        let read = self.scan.stored(frame, &mut stored);
        let opened = read.and_then(|()| frame.head.open(&stored, &mut self.raw).map_err(anyhow::Error::msg));
        self.stored = stored;
        opened.with_context(|| format!("the frame at byte {} is damaged", frame.at))
    }

    /// The payload of a frame that holds JSON.
    ///
    /// # Errors
    /// It is damaged, or not such JSON.
    pub fn json<T: serde::de::DeserializeOwned>(&mut self, frame: Frame) -> Result<T> {
        self.payload(frame)?;
        serde_json::from_slice(&self.raw).with_context(|| format!("in the frame at byte {}", frame.at))
    }

    /// The head whose first copy is at `at`.
    ///
    /// # Errors
    /// Both copies are damaged, or what it says cannot be used.
    pub fn head_at(&mut self, at: u64) -> Result<Arc<HeadInForce>> {
        if let Some((cached, head)) = &self.head
            && *cached == at
        {
            return Ok(Arc::clone(head));
        }
        let head: Head = self.either_copy(at, Kind::Head, |reader, frame| reader.json(frame))?;
        head.check().map_err(anyhow::Error::msg)?;
        let layouts = Layouts::of(&head).map_err(anyhow::Error::msg)?;
        let mut host = head.host.clone();
        for metric in layouts.without() {
            host.missing.entry(metric.into()).or_insert_with(|| {
                let writer = crate::text::clean_str(&head.writer);
                Missing::NotCollected(format!("numatop-ng {writer}, which recorded it, did not keep this"))
            });
        }
        let head = Arc::new(HeadInForce { host: Arc::new(host), head, layouts });
        self.head = Some((at, Arc::clone(&head)));
        Ok(head)
    }

    /// The keyframe whose first copy is at `at`, and its head.
    fn key_at(&mut self, at: u64) -> Result<KeyInForce> {
        if let Some((cached, key)) = &self.key
            && *cached == at
        {
            return Ok(key.clone());
        }
        let key = self.either_copy(at, Kind::Key, |reader, frame| {
            let head = reader.head_at(frame.head.base)?;
            let sample = reader.decode(frame, &head, None)?.0;
            Ok(KeyInForce { head, sample: Arc::new(sample) })
        })?;
        self.key = Some((at, key.clone()));
        Ok(key)
    }

    /// Reads the frame of this kind at `at` with `read`, or its second copy when that fails.
    fn either_copy<T>(
        &mut self,
        at: u64,
        kind: Kind,
        read: impl Fn(&mut Reader, Frame) -> Result<T>,
    ) -> Result<T> {
        let missing = || anyhow::anyhow!("the frame at byte {at}, which it needs, is damaged");
        let (first, second) = match self.at(at)? {
            Found::Frame(frame) => (Some(frame), self.at(frame.end())?),
            Found::Damaged { next } => (None, self.at(next)?),
            Found::End { .. } => return Err(missing()),
        };
        let first = match first.filter(|frame| frame.head.kind == kind && !frame.head.copy) {
            Some(frame) => read(self, frame),
            None => Err(missing()),
        };
        match (first, second) {
            (Err(_), Found::Frame(frame))
                if frame.head.kind == kind && frame.head.copy && frame.first() == at =>
            {
                read(self, frame)
            }
            (first, _) => first,
        }
    }

    /// The sample in a frame that has one, and the head it belongs to.
    ///
    /// # Errors
    /// It is damaged, or both copies of a frame that it needs are.
    pub fn sample(&mut self, frame: Frame) -> Result<(Arc<HeadInForce>, Sample)> {
        match frame.head.kind {
            Kind::Key => {
                let head = self.head_at(frame.head.base)?;
                let sample = self.decode(frame, &head, None)?.0;
                // The frames after it need it next.
                let key = KeyInForce { head: Arc::clone(&head), sample: Arc::new(sample.clone()) };
                self.near = Some(Near { key: frame.first(), tick: 0, tasks: sample.tasks.clone() });
                self.key = Some((frame.first(), key));
                Ok((head, sample))
            }
            Kind::Delta => {
                let key = self.key_at(frame.head.base)?;
                let sample = match self.delta(frame, &key) {
                    Ok(sample) => sample,
                    // It was jumped to: what it needs is between its keyframe and itself.
                    Err(_) => {
                        self.walk_to(frame, &key)?;
                        self.delta(frame, &key)?
                    }
                };
                Ok((key.head, sample))
            }
            _ => bail!("the frame at byte {} holds no sample", frame.at),
        }
    }

    /// The sample of a delta, from the last one that was read, which must be near.
    fn delta(&mut self, frame: Frame, key: &KeyInForce) -> Result<Sample> {
        let near = self.near.take().filter(|near| near.key == frame.head.base);
        let (tick, tasks) = near.as_ref().map_or((0, &key.sample.tasks), |near| (near.tick, &near.tasks));
        let base = Base { key: &key.sample, tick, tasks };
        let decoded = self.decode(frame, &key.head, Some(base));
        match decoded {
            Ok((sample, tick)) => {
                self.near = Some(Near { key: frame.head.base, tick, tasks: sample.tasks.clone() });
                Ok(sample)
            }
            Err(error) => {
                self.near = near;
                Err(error)
            }
        }
    }

    /// Reads what this frame needs of the samples between its keyframe and itself. Each of them has the rows of the
    /// [`REACH`] last ones, so that most need not be read, unless some are damaged.
    fn walk_to(&mut self, frame: Frame, key: &KeyInForce) -> Result<()> {
        let between = self.deltas_before(frame)?;
        let step = REACH as usize;
        let mut needed: Vec<Frame> = between.iter().rev().skip(step - 1).step_by(step).copied().collect();
        needed.reverse();
        self.near = None;
        if needed.into_iter().try_for_each(|frame| self.delta(frame, key).map(drop)).is_err() {
            self.near = None;
            for frame in between {
                // A damaged one may yet be bridged by those after it.
                let _ = self.delta(frame, key);
            }
        }
        Ok(())
    }

    /// The deltas between a delta and the keyframe that both have, in their order.
    fn deltas_before(&self, frame: Frame) -> Result<Vec<Frame>> {
        let mut frames = Vec::new();
        let mut at = frame.head.base;
        while at < frame.at {
            at = match self.at(at)? {
                Found::Frame(found) => {
                    let same_key = found.head.kind == Kind::Delta && found.head.base == frame.head.base;
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

    fn decode(&mut self, frame: Frame, head: &HeadInForce, base: Option<Base<'_>>) -> Result<(Sample, u32)> {
        self.payload(frame)?;
        payload::decode(&self.raw, &head.layouts, base)
            .with_context(|| format!("the frame at byte {} is damaged", frame.at))
    }
}
