//! An account of every byte of a recording: intact, lost, or unusable.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::format::{End, FrameKind, Gap};
use super::frame::HEAD_LEN;
use super::reader::{Found, Frame, Reader};
use crate::text::clean_str;
use crate::text::one_line;
use crate::text::rfc3339;

/// Stretches of a file that are described one by one.
const DESCRIBED: usize = 20;

/// The findings about one file.
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
    pub parts: Parts,
    /// Damage, in the order of the file. A damaged copy of a frame that appears twice is here too.
    pub flaws: Vec<Flaw>,
    /// Frames whose content is lost.
    pub lost_frames: u64,
    pub end: Option<End>,
    pub being_written: bool,
}

/// Bytes of a file by kind. Together they are the whole file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// Frames whose content can be read.
    pub whole: u64,
    /// Frames that are copies.
    pub copies: u64,
    /// Frames that are as they were written, and whose content can not be read.
    pub orphaned: u64,
    /// No frame, or a damaged one.
    pub damaged: u64,
    /// Frames of other recordings.
    pub foreign: u64,
    /// Whatever is behind the frame that ends the recording.
    pub behind: u64,
    /// The beginning of a frame, at the end.
    pub torn: u64,
}

impl Parts {
    /// All of them together.
    pub fn sum(&self) -> u64 {
        self.whole + self.copies + self.orphaned + self.damaged + self.foreign + self.behind + self.torn
    }
}

/// A stretch of a file that is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flaw {
    pub bytes: Range<u64>,
    pub what: What,
}

/// Its mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    Damaged,
    /// This many frames in a row that are intact and cannot be read for this reason.
    Orphaned {
        frames: u64,
        why: String,
    },
    Foreign,
    /// Behind the end of the recording; whether another one begins there.
    Behind {
        recording: bool,
    },
}

impl Report {
    /// True if everything written can be read, and the file has nothing else.
    pub fn is_intact(&self) -> bool {
        self.flaws.is_empty() && self.lost_frames == 0 && (self.parts.torn == 0 || self.being_written)
    }

    /// Counts a stretch that is not as it was written, with the one before it if that is of the same kind.
    fn flaw(&mut self, bytes: Range<u64>, what: What) {
        let part = match &what {
            What::Damaged => &mut self.parts.damaged,
            What::Orphaned { .. } => &mut self.parts.orphaned,
            What::Foreign => &mut self.parts.foreign,
            What::Behind { .. } => &mut self.parts.behind,
        };
        *part += bytes.end - bytes.start;
        if let Some(last) = self.flaws.last_mut().filter(|last| last.bytes.end == bytes.start) {
            match (&mut last.what, &what) {
                (What::Orphaned { frames, why }, What::Orphaned { why: other, .. }) if why == other => {
                    *frames += 1;
                    last.bytes.end = bytes.end;
                    return;
                }
                (was, is) if *was == *is => {
                    last.bytes.end = bytes.end;
                    return;
                }
                _ => {}
            }
        }
        self.flaws.push(Flaw { bytes, what });
    }
}

/// Reads all of `path`.
///
/// # Errors
/// It cannot be read, or a head is missing.
pub fn verify(path: &Path) -> Result<Report> {
    let reader = Reader::open(path)?;
    let head = reader.first_head();
    let report = Report {
        path: path.to_owned(),
        bytes: 0,
        writer: head.head.writer.clone(),
        format: head.head.format,
        host: head.head.host.hostname.clone(),
        samples: 0,
        span: None,
        gaps: Vec::new(),
        parts: Parts::default(),
        flaws: Vec::new(),
        lost_frames: 0,
        end: None,
        being_written: reader.is_being_written(),
    };
    let beside = reader.beside()?;
    let mut walk = Walk { reader, beside, report, next_seq: 0, seen_seq: 0 };
    walk.all()?;
    let Walk { mut report, next_seq, seen_seq, .. } = walk;
    // Numbers of frames that cannot be read may be anything, but each takes its bytes.
    let most = report.bytes / HEAD_LEN as u64;
    report.lost_frames = (report.lost_frames + seen_seq.saturating_sub(next_seq)).min(most);
    Ok(report)
}

/// From frame to frame.
struct Walk {
    /// Reads the frames that a replay reads, in the same order: earlier attempts decide what can be read
    /// next.
    reader: Reader,
    /// Reads the rest: heads, and copies of frames already read.
    beside: Reader,
    report: Report,
    /// The number of the frame that should be next, and the one after the highest of any that is whole.
    next_seq: u64,
    seen_seq: u64,
}

impl Walk {
    fn all(&mut self) -> Result<()> {
        let mut at = 0;
        loop {
            if self.report.end.is_some() {
                return self.behind(at);
            }
            at = match self.reader.at(at)? {
                Found::Frame(frame) => {
                    self.frame(frame)?;
                    frame.end()
                }
                Found::Damaged { next } => {
                    let foreign = self.reader.is_foreign(at)?;
                    self.report.flaw(at..next, if foreign { What::Foreign } else { What::Damaged });
                    next
                }
                Found::End { torn } => {
                    (self.report.parts.torn, self.report.bytes) = (torn, at + torn);
                    return Ok(());
                }
            };
        }
    }

    fn behind(&mut self, at: u64) -> Result<()> {
        self.report.bytes = self.reader.bytes()?.max(at);
        if self.report.bytes > at {
            let recording = self.reader.is_foreign(at)?;
            self.report.flaw(at..self.report.bytes, What::Behind { recording });
        }
        Ok(())
    }

    fn frame(&mut self, frame: Frame) -> Result<()> {
        let (bytes, seq) = (frame.at..frame.end(), frame.head.seq);
        if !self.reader.is_whole(frame)? {
            if frame.head.kind.is_sample() && seq >= self.next_seq {
                // In vain, as a replay does.
                let _ = self.reader.sample(frame);
            }
            self.report.flaw(bytes, What::Damaged);
            return Ok(());
        }
        let is_copy = frame.first() != frame.at;
        let read = if seq >= self.next_seq || is_copy {
            self.read(frame)
        } else {
            Err("its sequence number occurs earlier in the file".into())
        };
        match read {
            Ok(()) if is_copy => self.report.parts.copies += frame.head.len(),
            Ok(()) => self.report.parts.whole += frame.head.len(),
            Err(why) => {
                self.seen_seq = self.seen_seq.max(seq.saturating_add(1));
                self.report.flaw(bytes, What::Orphaned { frames: 1, why });
                return Ok(());
            }
        }
        self.report.lost_frames = self.report.lost_frames.saturating_add(seq.saturating_sub(self.next_seq));
        self.next_seq = self.next_seq.max(seq.saturating_add(1));
        Ok(())
    }

    /// Reads the content of a frame, and counts it unless its first copy was read; or returns why it cannot
    /// be read.
    fn read(&mut self, frame: Frame) -> Result<(), String> {
        let again = frame.head.seq < self.next_seq;
        let read = match frame.head.kind {
            FrameKind::Head => self.beside.head_at(frame.first()).map(drop),
            FrameKind::Key | FrameKind::Delta if again => self.beside.sample(frame).map(drop),
            FrameKind::Key | FrameKind::Delta => self.reader.sample(frame).map(|(_, sample)| {
                self.report.samples += 1;
                let first = self.report.span.map_or(sample.wall_ns, |(first, _)| first);
                self.report.span = Some((first, sample.wall_ns));
            }),
            FrameKind::Gap => self.reader.json(frame).map(|gap| self.report.gaps.push(gap)),
            FrameKind::End => self.reader.json(frame).map(|end| self.report.end = Some(end)),
        };
        read.map_err(|error| clean_str(&error.root_cause().to_string()))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {}",
            one_line(&self.path.to_string_lossy()),
            if self.is_intact() { "intact" } else { "damaged" }
        )?;
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
            writeln!(f, "  paused at {at}, {} not recorded: {reason}", count(gap.samples, "sample"))?;
        }
        self.flaws.iter().take(DESCRIBED).try_for_each(|flaw| writeln!(f, "  {flaw}"))?;
        if self.flaws.len() > DESCRIBED {
            writeln!(f, "  and {} more", count((self.flaws.len() - DESCRIBED) as u64, "stretch"))?;
        }
        if self.lost_frames > 0 {
            writeln!(f, "  lost: the data of {}", count(self.lost_frames, "frame"))?;
        } else if self.parts.damaged > 0 {
            writeln!(f, "  lost: nothing, because other copies are intact")?;
        }
        if !self.is_intact() {
            writeln!(f, "  total size in bytes: {}", self.parts)?;
        }
        match (self.end, self.being_written) {
            (_, true) => writeln!(f, "  the file is being written"),
            (Some(End::Stopped), _) => writeln!(f, "  ended normally"),
            (Some(End::Rotated), _) => writeln!(f, "  the recording continues in another file"),
            (None, _) if self.parts.torn > 0 => {
                writeln!(f, "  the file ends with {} of an unfinished frame", count(self.parts.torn, "byte"))
            }
            (None, _) => {
                writeln!(
                    f,
                    "  the recording was not finished: the recorder was killed, or the machine stopped"
                )
            }
        }
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Range { start, end } = self.bytes;
        match &self.what {
            What::Damaged => write!(f, "damaged: bytes {start} to {end}"),
            What::Orphaned { frames, why } => {
                write!(
                    f,
                    "intact but not readable: bytes {start} to {end}, {}: {why}",
                    count(*frames, "frame")
                )
            }
            What::Foreign => write!(f, "part of another recording: bytes {start} to {end}"),
            What::Behind { recording: true } => write!(
                f,
                "after the end of the recording: bytes {start} to {end}, which begin like another recording; to \
                 extract them: tail -c +{}",
                start + 1
            ),
            What::Behind { recording: false } => {
                write!(f, "after the end of the recording: bytes {start} to {end}, not part of it")
            }
        }
    }
}

impl fmt::Display for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            (self.whole, "intact"),
            (self.copies, "copies"),
            (self.orphaned, "intact but not readable"),
            (self.damaged, "damaged"),
            (self.foreign, "part of another recording"),
            (self.behind, "after the end of the recording"),
            (self.torn, "unfinished"),
        ];
        let parts =
            parts.iter().filter(|(bytes, _)| *bytes > 0).map(|(bytes, what)| format!("{bytes} {what}"));
        f.write_str(&parts.collect::<Vec<_>>().join(", "))
    }
}

/// `1 sample`, `2 samples`.
fn count(number: u64, what: &str) -> String {
    let plural = match what {
        _ if number == 1 => "",
        "stretch" => "es",
        _ => "s",
    };
    format!("{number} {what}{plural}")
}
