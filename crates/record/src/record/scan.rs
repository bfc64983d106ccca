//! The frames of a file: their places, their contents, and the one of a time. Nothing in the file is trusted, and it may grow meanwhile.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use serde::de::DeserializeOwned;

use super::format::{FrameKind, MAX_PAYLOAD};
use super::frame::{self, FrameHead, HEAD_LEN, MAGIC, Opener};
use super::reader::Reader;
use crate::program::{guard, signals};

/// Bytes looked through at a time when a frame is searched.
const WINDOW: usize = 64 << 10;

/// A frame and where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    pub at: u64,
    pub head: FrameHead,
}

impl Frame {
    /// Where the next one should be.
    pub fn end(&self) -> u64 {
        self.at + self.head.len()
    }

    /// Where its first copy is: itself, unless it is the second, which is right behind the first, or a later one of a head.
    pub fn first(&self) -> u64 {
        match self.head.kind {
            _ if self.head.copy => self.at.saturating_sub(self.head.len()),
            FrameKind::Head => self.at.min(self.head.base),
            _ => self.at,
        }
    }
}

/// The find at a place in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// A frame whose head is whole and whose payload is all there; the payload may yet be damaged.
    Frame(Frame),
    /// No frame from here to `next`, if there is a next one.
    Damaged { next: u64 },
    /// The file ends, with this many bytes left that are no whole frame.
    End { torn: u64 },
}

/// An open file of a recording, as far as frames go.
pub(super) struct Scan {
    file: File,
    /// The number in all its frames, once it is known.
    pub id: Option<u32>,
    /// Stretches without the beginning of a frame, as far as the search went, so that nothing is searched
    /// twice. The key is the frame that ends a stretch, the value its start. The last stretch ends with the
    /// file at that time.
    holes: RefCell<BTreeMap<u64, u64>>,
    tail: RefCell<(u64, u64)>,
}

impl Scan {
    /// # Errors
    /// It cannot be opened, or is no regular file.
    pub(super) fn open(path: &Path) -> Result<Scan> {
        let file = match guard::open(path) {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                bail!("{} is not a regular file", path.display())
            }
            opened => opened.with_context(|| format!("opening {}", path.display()))?,
        };
        Ok(Scan { file, id: None, holes: RefCell::default(), tail: RefCell::default() })
    }

    /// The same open file, with the facts known about it.
    ///
    /// # Errors
    /// The errno of dup(2).
    pub(super) fn again(&self) -> io::Result<Scan> {
        let (holes, tail) = (self.holes.clone(), self.tail.clone());
        Ok(Scan { file: self.file.try_clone()?, id: self.id, holes, tail })
    }

    /// Bytes in the file now.
    ///
    /// # Errors
    /// The errno of fstat(2).
    pub(super) fn bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// # Errors
    /// The errno of fstat(2).
    pub(super) fn metadata(&self) -> io::Result<Metadata> {
        self.file.metadata()
    }

    /// True if a recorder has the file open (holds its lock).
    pub(super) fn is_being_written(&self) -> bool {
        super::dir::is_locked(&self.file)
    }

    /// The frame at `at`.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn at(&self, at: u64) -> Result<Found> {
        let len = self.bytes()?;
        match self.exactly_at(at, len)? {
            Some(frame) if frame.end() <= len => return Ok(Found::Frame(frame)),
            None if at >= len => return Ok(Found::End { torn: 0 }),
            _ => {}
        }
        Ok(match self.next_from(at, len)? {
            Some(next) => Found::Damaged { next },
            None => Found::End { torn: len - at },
        })
    }

    /// The frame whose head is at `at`, in a file of `len` bytes, which may end before the frame does.
    fn exactly_at(&self, at: u64, len: u64) -> Result<Option<Frame>> {
        let mut bytes = [0; HEAD_LEN];
        let fits = at.checked_add(HEAD_LEN as u64).is_some_and(|end| end <= len);
        if !fits || !self.read_exact(&mut bytes, at)? {
            return Ok(None);
        }
        Ok(self.own(FrameHead::from_bytes(&bytes)).map(|head| Frame { at, head }))
    }

    /// Whether a frame of another recording begins at `at`.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn is_foreign(&self, at: u64) -> Result<bool> {
        let mut bytes = [0; HEAD_LEN];
        let read = self.read_exact(&mut bytes, at)?;
        Ok(read
            && FrameHead::from_bytes(&bytes).is_some_and(|head| self.id.is_some_and(|id| id != head.file)))
    }

    /// Where the first frame head behind `at` is, in a file of `len` bytes.
    fn next_from(&self, at: u64, len: u64) -> Result<Option<u64>> {
        let hole = self.holes.borrow().range(at + 1..).next().map(|(next, from)| (*next, *from));
        if let Some((next, _)) = hole.filter(|(_, from)| *from <= at) {
            return Ok(Some(next));
        }
        let (from, to) = *self.tail.borrow();
        let known = if (from..=to).contains(&at) { to.max(at + 1) } else { at + 1 };
        let next = self.search(known, len)?.map(|frame| frame.at);
        match next {
            Some(next) => {
                self.holes.borrow_mut().insert(next, at);
            }
            // A head may still begin in the last bytes and continue in the next ones written.
            None => *self.tail.borrow_mut() = (at, len.saturating_sub(HEAD_LEN as u64).max(at)),
        }
        Ok(next)
    }

    /// Frames of other files are ignored; before the first head is known, all are accepted.
    fn own(&self, head: Option<FrameHead>) -> Option<FrameHead> {
        head.filter(|head| self.id.is_none_or(|id| head.file == id))
    }

    /// The first frame head that begins in `from..to`. A terabyte without one takes a quarter of an hour to read, so a signal ends it.
    ///
    /// # Errors
    /// The file cannot be read, or a signal asks the program to end.
    fn search(&self, from: u64, to: u64) -> Result<Option<Frame>> {
        let mut window = vec![0; WINDOW + HEAD_LEN];
        let mut at = from;
        while at < to {
            if signals::ended_by().is_some() {
                bail!("a signal ended the search for frames");
            }
            // Parts of a sparse file that were never written are skipped.
            match rustix::fs::seek(&self.file, SeekFrom::Data(at)) {
                Err(Errno::NXIO) => return Ok(None),
                Ok(data) if data > at => {
                    at = data;
                    continue;
                }
                Ok(_) | Err(_) => {}
            }
            let read = self.read_some(&mut window, at)?;
            if read < HEAD_LEN {
                return Ok(None);
            }
            let starts = (read - HEAD_LEN + 1).min((to - at) as usize);
            let mut offset = 0;
            while let Some(hit) = window[offset..starts].iter().position(|byte| *byte == MAGIC[0]) {
                offset += hit;
                if let Some(head) = self.own(FrameHead::from_bytes(&window[offset..read])) {
                    return Ok(Some(Frame { at: at + offset as u64, head }));
                }
                offset += 1;
            }
            at += starts as u64;
        }
        Ok(None)
    }

    /// Reads the stored bytes of a frame into `stored`. Its size was bounded when its head was parsed.
    ///
    /// # Errors
    /// The file cannot be read, or ends inside it.
    pub(super) fn stored(&self, frame: Frame, stored: &mut Vec<u8>) -> Result<()> {
        debug_assert!(frame.head.stored as usize <= MAX_PAYLOAD, "further heads are not parsed");
        stored.resize(frame.head.stored as usize, 0);
        if !self.read_exact(stored, frame.at + HEAD_LEN as u64)? {
            bail!("the file ends inside the frame");
        }
        Ok(())
    }

    /// Reads all of `bytes`; false when the file ends before.
    fn read_exact(&self, bytes: &mut [u8], at: u64) -> Result<bool> {
        Ok(self.read_some(bytes, at)? == bytes.len())
    }

    /// Reads the available part of `bytes`.
    fn read_some(&self, bytes: &mut [u8], at: u64) -> Result<usize> {
        let mut read = 0;
        while read < bytes.len() {
            match self.file.read_at(&mut bytes[read..], at + read as u64) {
                Ok(0) => break,
                Ok(more) => read += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("reading the recording"),
            }
        }
        Ok(read)
    }
}

/// Frames behind a head or a keyframe among which its copy is: [`super::format::LOSS`] samples with the
/// frames before them, and more in case some are damaged.
const COPY_WITHIN: usize = 64;

/// An open file, and the frame that was read last.
pub(super) struct Frames {
    pub scan: Scan,
    /// Its payload, in the file and decompressed.
    stored: Vec<u8>,
    pub raw: Vec<u8>,
    opener: Opener,
}

impl Frames {
    /// # Errors
    /// It cannot be opened, or is no regular file.
    pub(super) fn open(path: &Path) -> Result<Frames> {
        Ok(Frames::of(Scan::open(path)?))
    }

    /// Frames of an open file.
    pub(super) fn of(scan: Scan) -> Frames {
        Frames { scan, stored: Vec::new(), raw: Vec::new(), opener: Opener::default() }
    }

    /// The first copy that is whole of the head that the file begins with. Its payload is in `raw`.
    ///
    /// # Errors
    /// No head exists, or the file cannot be read.
    pub(super) fn find_head(&mut self) -> Result<Frame> {
        let (mut at, mut others) = (0, false);
        loop {
            at = match self.scan.at(at)? {
                Found::Frame(frame) if frame.head.kind == FrameKind::Head && self.payload(frame).is_ok() => {
                    return Ok(frame);
                }
                Found::Frame(frame) => {
                    others = true;
                    frame.end()
                }
                Found::Damaged { next } => next,
                Found::End { .. } if others => {
                    bail!("the recording cannot be read: all copies of its header are damaged")
                }
                Found::End { .. } => bail!("the file contains no recording"),
            }
        }
    }

    /// Whether the bytes of a frame are intact.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn is_whole(&mut self, frame: Frame) -> Result<bool> {
        self.scan.stored(frame, &mut self.stored)?;
        Ok(frame.head.is_whole(&self.stored))
    }

    /// The payload of a frame into `raw`.
    ///
    /// # Errors
    /// It is damaged, or the file cannot be read.
    pub(super) fn payload(&mut self, frame: Frame) -> Result<()> {
        self.scan.stored(frame, &mut self.stored)?;
        let opened = self.opener.open(&frame.head, &self.stored, &mut self.raw);
        opened.map_err(anyhow::Error::msg).with_context(|| is_damaged(frame))
    }

    /// The payload of a keyframe into `raw`: of `frame` itself, or of the copy in it of the one at `at`.
    ///
    /// # Errors
    /// It is damaged or has no such copy, or the file cannot be read.
    pub(super) fn key(&mut self, frame: Frame, at: u64) -> Result<FrameHead> {
        if frame.head.kind == FrameKind::Key {
            self.payload(frame)?;
            return Ok(frame.head);
        }
        if !self.is_whole(frame)? {
            bail!(is_damaged(frame));
        }
        let copy = frame::copy_of(at, &self.stored).filter(|(head, _)| head.kind == FrameKind::Key);
        let (head, stored) = copy.context("the file has no copy of the keyframe")?;
        self.opener.open(&head, stored, &mut self.raw).map_err(anyhow::Error::msg)?;
        Ok(head)
    }

    /// The payload of a frame that holds JSON.
    ///
    /// # Errors
    /// It is damaged, or not such JSON.
    pub(super) fn json<T: DeserializeOwned>(&mut self, frame: Frame) -> Result<T> {
        self.payload(frame)?;
        self.json_in(frame)
    }

    /// The value of `raw`, the payload of a frame that holds JSON.
    ///
    /// # Errors
    /// It is not such JSON.
    pub(super) fn json_in<T: DeserializeOwned>(&self, frame: Frame) -> Result<T> {
        serde_json::from_slice(&self.raw).with_context(|| format!("in the frame at byte {}", frame.at))
    }

    /// The frames in `from..` that could be a copy of something that was written there, according to
    /// `is_copy`.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn copies(&self, from: u64, is_copy: impl Fn(&Frame) -> bool) -> Result<Vec<Frame>> {
        let (mut at, mut copies) = (from, Vec::new());
        for _ in 0..COPY_WITHIN {
            at = match self.scan.at(at)? {
                Found::Frame(frame) => {
                    copies.extend(is_copy(&frame).then_some(frame));
                    frame.end()
                }
                Found::Damaged { next } => next,
                Found::End { .. } => break,
            };
        }
        Ok(copies)
    }
}

/// The words for a frame that cannot be read.
pub(super) fn is_damaged(frame: Frame) -> String {
    format!("the frame at byte {} is damaged", frame.at)
}

/// Bytes that are walked frame by frame rather than halved again.
const NEAR: u64 = 256 << 10;

impl Reader {
    /// The last sample at or before `wall_ns`; the first of all if none is earlier. `None` without samples.
    /// If the clock was set back, several match, and this is any one of them.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn seek(&self, wall_ns: i64) -> Result<Option<Frame>> {
        let (mut low, mut high) = (0, self.bytes()?);
        let time = |frame: Option<Frame>| frame.map_or(wall_ns, |frame| frame.head.wall_ns);
        let (mut low_ns, mut high_ns) = match high > NEAR {
            true => (time(self.sample_from(0, high)?), time(self.sample_before(high)?)),
            // Nothing is guessed in a small file.
            false => (wall_ns, wall_ns),
        };
        // Samples come at even times and have about one size, so the place can be guessed, and then
        // bracketed. For other recordings, every third step halves the rest.
        for step in 0.. {
            if high - low <= NEAR {
                break;
            }
            let room = high - low - NEAR / 2;
            let guess = (room as f64 * between(wall_ns, low_ns, high_ns)) as u64;
            let middle = low
                + match step % 3 {
                    0 => guess,
                    1 => (guess + NEAR / 2).min(room),
                    _ => room / 2,
                };
            match self.sample_from(middle, high)? {
                Some(frame) if frame.head.wall_ns <= wall_ns => {
                    (low, low_ns) = (frame.at, frame.head.wall_ns);
                }
                Some(frame) => (high, high_ns) = (middle, frame.head.wall_ns),
                None => high = middle,
            }
        }
        let end = self.bytes()?;
        let mut best: Option<Frame> = None;
        let mut at = low;
        while let Some(frame) = self.sample_from(at, end)? {
            if frame.head.wall_ns > wall_ns {
                return Ok(best.or(Some(frame)));
            }
            if !(frame.head.copy && best.is_some_and(|best| best.head.seq == frame.head.seq)) {
                best = Some(frame);
            }
            at = frame.end();
        }
        Ok(best)
    }

    /// The first frame with a sample that begins in `from..to` and is all there.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn sample_from(&self, from: u64, to: u64) -> Result<Option<Frame>> {
        let mut at = from;
        while at < to {
            at = match self.at(at)? {
                Found::Frame(frame) if frame.head.kind.is_sample() && frame.at < to => {
                    return Ok(Some(frame));
                }
                Found::Frame(frame) => frame.end(),
                Found::Damaged { next } => next,
                Found::End { .. } => break,
            };
        }
        Ok(None)
    }

    /// The last frame with a sample that begins before `end`.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn sample_before(&self, end: u64) -> Result<Option<Frame>> {
        let mut span = NEAR;
        loop {
            let from = end.saturating_sub(span);
            let (mut last, mut at) = (None, from);
            while let Some(frame) = self.sample_from(at, end)? {
                last = Some(frame);
                at = frame.end();
            }
            if last.is_some() || from == 0 {
                return Ok(last);
            }
            span *= 4;
        }
    }
}

/// Where `at` is between two times: 0 to 1.
fn between(at: i64, low: i64, high: i64) -> f64 {
    let span = high as f64 - low as f64;
    if span <= 0.0 { 0.5 } else { ((at as f64 - low as f64) / span).clamp(0.0, 1.0) }
}
