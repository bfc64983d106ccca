//! What of a recording is intact, and what is lost? Reads every frame of it.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::format::{End, Gap, Kind};
use super::reader::{Found, Frame, Reader};
use crate::export::rfc3339;
use crate::text::clean_str;

/// What is known about one file.
#[derive(Debug)]
pub struct Report {
    pub path: PathBuf,
    pub bytes: u64,
    pub writer: String,
    pub format: u16,
    pub host: String,
    pub samples: u64,
    /// Wall clock of the first and the last sample, ns since 1970.
    pub span: Option<(i64, i64)>,
    /// Pauses of the recorder, and samples that were not recorded in them.
    pub gaps: Vec<Gap>,
    /// Bytes that are no frame or no intact one. A damaged copy of a frame that is there twice is here too.
    pub damaged: Vec<Range<u64>>,
    /// Frames whose content is lost.
    pub lost_frames: u64,
    /// Bytes after the last whole frame.
    pub torn: u64,
    pub end: Option<End>,
    pub being_written: bool,
}

impl Report {
    /// True when all that was written can be read.
    pub fn is_intact(&self) -> bool {
        self.damaged.is_empty() && self.lost_frames == 0 && (self.torn == 0 || self.being_written)
    }
}

/// Reads all of `path`.
///
/// # Errors
/// It cannot be read, or nothing says how to.
pub fn verify(path: &Path) -> Result<Report> {
    let mut reader = Reader::open(path)?;
    let head = reader.first_head()?;
    let mut report = Report {
        path: path.to_owned(),
        bytes: reader.bytes()?,
        writer: head.head.writer.clone(),
        format: head.head.format,
        host: head.host.hostname.clone(),
        samples: 0,
        span: None,
        gaps: Vec::new(),
        damaged: Vec::new(),
        lost_frames: 0,
        torn: 0,
        end: None,
        being_written: reader.is_being_written(),
    };
    let mut last_seq = None;
    let mut at = 0;
    loop {
        match reader.at(at)? {
            Found::Frame(frame) => {
                at = frame.end();
                let again = last_seq == Some(frame.head.seq);
                match read(&mut reader, frame, &mut report, again) {
                    Ok(()) => {
                        let next = last_seq.map_or(0, |last: u64| last + 1);
                        report.lost_frames += frame.head.seq.saturating_sub(next);
                        last_seq = Some(frame.head.seq);
                    }
                    Err(_) => report.damaged.push(frame.at..frame.end()),
                }
            }
            Found::Damaged { next } => {
                report.damaged.push(at..next);
                at = next;
            }
            Found::End { torn } => {
                report.torn = torn;
                return Ok(report);
            }
        }
    }
}

/// Reads one frame; counts it unless its first copy was.
fn read(reader: &mut Reader, frame: Frame, report: &mut Report, again: bool) -> Result<()> {
    match frame.head.kind {
        Kind::Head => {
            reader.json::<super::format::Head>(frame)?;
        }
        Kind::Key | Kind::Delta => {
            let (_, sample) = reader.sample(frame)?;
            if !again {
                report.samples += 1;
                let first = report.span.map_or(sample.wall_ns, |(first, _)| first);
                report.span = Some((first, sample.wall_ns));
            }
        }
        Kind::Gap => report.gaps.push(reader.json(frame)?),
        Kind::End => report.end = Some(reader.json(frame)?),
    }
    Ok(())
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.path.display(), if self.is_intact() { "intact" } else { "damaged" })?;
        writeln!(
            f,
            "  {} bytes, format {}, written by numatop-ng {} on {}",
            self.bytes,
            self.format,
            clean_str(&self.writer),
            clean_str(&self.host)
        )?;
        match self.span {
            Some((first, last)) => {
                let samples = count(self.samples, "sample");
                writeln!(f, "  {samples}, {} to {}", rfc3339(first), rfc3339(last))?;
            }
            None => writeln!(f, "  no samples")?,
        }
        for gap in &self.gaps {
            let (at, reason) = (rfc3339(gap.from_wall_ns), clean_str(&gap.reason));
            writeln!(f, "  paused at {at}, not recorded: {}: {reason}", count(gap.samples, "sample"))?;
        }
        for range in &self.damaged {
            writeln!(f, "  damaged: bytes {} to {}", range.start, range.end)?;
        }
        if self.lost_frames > 0 {
            writeln!(f, "  lost: the content of {}", count(self.lost_frames, "frame"))?;
        } else if !self.damaged.is_empty() {
            writeln!(f, "  lost: nothing, the second copies are intact")?;
        }
        match (self.end, self.being_written) {
            (_, true) => writeln!(f, "  it is being written"),
            (Some(End::Stopped), _) => writeln!(f, "  the recorder was stopped"),
            (Some(End::Rotated), _) => writeln!(f, "  another file goes on"),
            (None, _) if self.torn > 0 => {
                writeln!(f, "  it ends in {} bytes of a frame that was not finished", self.torn)
            }
            (None, _) => writeln!(f, "  the recorder did not end it: it was killed, or the machine stopped"),
        }
    }
}

/// `1 sample`, `2 samples`.
fn count(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
