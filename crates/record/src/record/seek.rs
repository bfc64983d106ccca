//! Finding a time in a file without reading the file: the places of frames are found again anywhere.

use anyhow::Result;

use super::reader::{Found, Frame, Reader};

/// Bytes that are walked frame by frame rather than halved again.
const NEAR: u64 = 256 << 10;

impl Reader {
    /// The last sample at or before `wall_ns`; the first of all if none is earlier. `None` without samples.
    /// If the clock was set back, it is one of those that match.
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
