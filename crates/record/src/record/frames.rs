//! The frames of an open file: their places and contents.

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;

use super::format::Kind;
use super::frame::{self, FrameHead, Opener};
use super::scan::{Found, Frame, Scan};

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
                Found::Frame(frame) if frame.head.kind == Kind::Head && self.payload(frame).is_ok() => {
                    return Ok(frame);
                }
                Found::Frame(frame) => {
                    others = true;
                    frame.end()
                }
                Found::Damaged { next } => next,
                Found::End { .. } if others => {
                    bail!("all copies of the head are damaged: it cannot be read")
                }
                Found::End { .. } => bail!("there is no recording in it"),
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
        if frame.head.kind == Kind::Key {
            self.payload(frame)?;
            return Ok(frame.head);
        }
        if !self.is_whole(frame)? {
            bail!(is_damaged(frame));
        }
        let copy = frame::copy_of(at, &self.stored).filter(|(head, _)| head.kind == Kind::Key);
        let (head, stored) = copy.context("it has no copy of the keyframe")?;
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
