//! Finding a time in a file without reading the file: the places of frames are found again anywhere.

use anyhow::Result;

use super::reader::{Found, Frame, Reader};

/// Bytes that are walked frame by frame rather than halved again.
const NEAR: u64 = 256 << 10;

impl Reader {
    /// The last sample at or before `wall_ns`; the first of all if there is none before. `None` without
    /// samples. Where the clock was set back it is one of those it fits.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn seek(&self, wall_ns: i64) -> Result<Option<Frame>> {
        let (mut low, mut high) = (0, self.bytes()?);
        while high - low > NEAR {
            let middle = low + (high - low) / 2;
            match self.sample_from(middle, high)? {
                Some(frame) if frame.head.wall_ns <= wall_ns => low = frame.at,
                _ => high = middle,
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
