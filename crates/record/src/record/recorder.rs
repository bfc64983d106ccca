//! Decides when a recording continues in the next file, pauses for lack of room, and resumes.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Resource, getrlimit};

use super::aggregate::{Fold, Keep};
use super::command_lines::{self, Lines};
use super::dir::{Files, Limits};
use super::format::{End, Gap, Head};
use super::writer::{WriteError, Writer};
use crate::model::process::CommandLines;
use crate::model::sample::{HostFacts, Sample, TaskRaw};
use crate::text;

const HOUR_NS: i64 = 3_600_000_000_000;

/// A file of a ring is at most this part of it, as a divisor, so that removing one frees a little.
const FILES_IN_RING: u64 = 8;

/// Ends of processes that are kept during a pause, to be recorded after it: some 40 MB.
const EXITS_KEPT: usize = 1 << 16;

/// The name of the loss of ends of processes during a pause that were too many to keep.
const EXITS_NOT_KEPT: &str = "exits_not_recorded";

/// The limits of a recording.
#[derive(Clone, Debug)]
pub struct RecordOptions {
    /// Nominal length of an interval.
    pub interval: Duration,
    /// Bytes of all files of a ring together.
    pub max_bytes: u64,
    /// Age at which files of a ring are removed.
    pub max_age: Option<Duration>,
    pub keep: Keep,
    /// Command lines that are kept; `None`: none.
    pub lines: Option<Lines>,
}

impl RecordOptions {
    pub const MAX_BYTES: u64 = 2 << 30;

    /// All rows of intervals of this nominal length, in files of [`Self::MAX_BYTES`] together, of any age.
    pub fn every(interval: Duration) -> RecordOptions {
        RecordOptions {
            interval,
            max_bytes: RecordOptions::MAX_BYTES,
            max_age: None,
            keep: Keep::default(),
            lines: None,
        }
    }
}

/// The progress of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Name of the file that is written now; none between two files.
    pub file: Option<String>,
    /// Bytes of that file, in a ring with the others.
    pub bytes: u64,
    /// Samples that could not be recorded since the last one that was; not 0 during a pause.
    pub waiting: u64,
}

/// Samples that were not recorded.
struct Paused {
    reason: String,
    from_wall_ns: i64,
    samples: u64,
    /// Processes that ended meanwhile.
    exited: Vec<Arc<TaskRaw>>,
}

/// Records samples. Only the first one can fail; later ones pause the recording.
pub struct Recorder {
    files: Files,
    options: RecordOptions,
    fold: Option<Fold>,
    session: String,
    /// Files begun in this session.
    begun: u32,
    current: Option<Current>,
    /// Bytes of the other files of the ring, as far as known.
    other_bytes: u64,
    paused: Option<Paused>,
    /// Ends of processes that no sample of the recording has, since its beginning.
    exits_not_kept: u64,
    /// Command lines of the sample before.
    lines: Arc<CommandLines>,
    rotate: bool,
}

/// The file that is being written.
struct Current {
    writer: Writer,
    name: PathBuf,
    /// Hours since 1970 when it began.
    hour: i64,
    host: Option<Arc<HostFacts>>,
    /// Samples in it.
    samples: u64,
}

impl Recorder {
    /// Checks the place without writing to it. `path` is a ring if it is a directory, or ends with a slash,
    /// and then it is made. Otherwise it is a file that must not exist.
    ///
    /// # Errors
    /// The place cannot be used; gives the reason.
    pub fn open(path: &Path, options: RecordOptions) -> Result<Recorder> {
        let files = Files::open(path)?;
        let fold = (!options.keep.is_everything()).then(|| Fold::new(options.keep));
        Ok(Recorder {
            files,
            options,
            fold,
            session: String::new(),
            begun: 0,
            current: None,
            other_bytes: 0,
            paused: None,
            exits_not_kept: 0,
            lines: Arc::default(),
            rotate: false,
        })
    }

    /// The next sample goes into a new file.
    pub fn rotate(&mut self) {
        self.rotate = true;
    }

    /// Whether it needs command lines of all processes.
    pub fn wants_lines(&self) -> bool {
        self.options.lines.is_some()
    }

    /// Its progress.
    pub fn progress(&self) -> Progress {
        let current = self.current.as_ref();
        Progress {
            file: current.map(|current| text::clean(current.name.as_os_str().as_encoded_bytes())),
            bytes: self.other_bytes + current.map_or(0, |current| current.writer.len()),
            waiting: self.paused.as_ref().map_or(0, |paused| paused.samples),
        }
    }

    /// The file that is being written.
    pub fn path(&self) -> Option<PathBuf> {
        self.current.as_ref().map(|current| self.files.dir().path().join(&current.name))
    }

    /// Records a sample. Returns what its reader should know about the recording.
    ///
    /// # Errors
    /// The first sample could not be written: recording never began.
    pub fn record(&mut self, host: &Arc<HostFacts>, sample: &Sample) -> Result<Vec<String>> {
        let mut words = Vec::new();
        let first = self.session.is_empty();
        if first {
            self.session = format!("{}-{}-{}", host.boot_id, std::process::id(), sample.mono_ns);
        }
        let whole = self.with_what_was_missed(sample);
        let folded = self.fold.as_ref().map(|fold| fold.fold(host, &whole));
        let taken = folded.as_ref().map_or(&*whole, |folded| &folded.sample);
        let with_lines = self.options.lines.map(|lines| {
            let command_lines = command_lines::of(taken, lines, &self.lines);
            if command_lines != *self.lines {
                self.lines = Arc::new(command_lines);
            }
            Sample { command_lines: Arc::clone(&self.lines), ..taken.clone() }
        });
        let taken = with_lines.as_ref().unwrap_or(taken);
        match self.write(host, taken, &mut words) {
            Ok(()) => {
                if let (Some(fold), Some(folded)) = (&mut self.fold, folded) {
                    fold.commit(folded);
                }
            }
            Err(error) if first => {
                self.remove_unbegun();
                return Err(error.context("recording cannot begin"));
            }
            Err(error) => {
                let reason = format!("{error:#}");
                let paused = self.paused.get_or_insert_with(|| Paused {
                    reason: String::new(),
                    from_wall_ns: sample.wall_ns,
                    samples: 0,
                    exited: Vec::new(),
                });
                paused.samples += 1;
                let room = EXITS_KEPT - paused.exited.len();
                paused.exited.extend(sample.exited.iter().take(room).cloned());
                self.exits_not_kept += sample.exited.len().saturating_sub(room) as u64;
                words.push(format!("recording is paused: {reason}; {} samples not recorded", paused.samples));
                paused.reason = reason;
            }
        }
        Ok(words)
    }

    /// A file without a sample would only be in the way of the next attempt.
    fn remove_unbegun(&mut self) {
        if let Some(current) = self.current.take() {
            // The failure that is reported is the one before.
            let _ = self.files.dir().remove(&current.name);
        }
    }

    /// The sample with the ends of processes that a pause kept from the recording.
    fn with_what_was_missed<'a>(&self, sample: &'a Sample) -> Cow<'a, Sample> {
        let mut whole = Cow::Borrowed(sample);
        if let Some(paused) = self.paused.as_ref().filter(|paused| !paused.exited.is_empty()) {
            whole.to_mut().exited.splice(0..0, paused.exited.iter().cloned());
        }
        if self.exits_not_kept > 0 {
            whole.to_mut().lost.insert(EXITS_NOT_KEPT.into(), self.exits_not_kept);
        }
        whole
    }

    /// Ends the recording.
    ///
    /// # Errors
    /// The end could not be written; everything before it was.
    pub fn finish(mut self) -> Result<()> {
        let name = self.path();
        match self.current.take() {
            Some(current) if !current.writer.is_empty() => current
                .writer
                .end(End::Stopped)
                .with_context(|| format!("ending {}", name.unwrap_or_default().display())),
            _ => Ok(()),
        }
    }

    /// Writes a sample to the current file, or to the next one of a ring if a limit keeps this one from growing.
    fn write(&mut self, host: &Arc<HostFacts>, sample: &Sample, words: &mut Vec<String>) -> Result<()> {
        let room_elsewhere =
            self.files.is_ring() && self.current.as_ref().is_some_and(|file| file.samples > 0);
        match self.write_once(host, sample, words) {
            Err(error) if room_elsewhere && error.downcast_ref().is_some_and(NotWritten::is_too_large) => {
                self.rotate = true;
                self.write_once(host, sample, words)
            }
            written => written,
        }
    }

    fn write_once(&mut self, host: &Arc<HostFacts>, sample: &Sample, words: &mut Vec<String>) -> Result<()> {
        self.begin_file(sample.wall_ns, words)?;
        let number = self.begun - 1;
        let gap = self.paused.as_ref().map(|paused| Gap {
            reason: paused.reason.clone(),
            from_wall_ns: paused.from_wall_ns,
            samples: paused.samples,
        });
        let current = self.current.as_mut().expect("begin_file made it");
        if !current.host.as_ref().is_some_and(|known| Arc::ptr_eq(known, host) || known == host) {
            let mut head = Head::new(host, &self.session, number);
            head.interval_ns = self.options.interval.as_nanos() as u64;
            head.folded = self.options.keep.describe();
            current.writer.head(&head).map_err(|error| self.failed(error))?;
            let current = self.current.as_mut().expect("it was there above");
            current.host = Some(Arc::clone(host));
        }
        let current = self.current.as_mut().expect("it was there above");
        if let Err(error) = current.writer.sample(sample, gap.as_ref()) {
            return Err(self.failed(error));
        }
        current.samples += 1;
        if let Some(paused) = self.paused.take() {
            words.push(format!("recording resumed; {} samples were not recorded", paused.samples));
        }
        if self.files.is_ring()
            && self.other_bytes + self.current.as_ref().map_or(0, |current| current.writer.len())
                > self.options.max_bytes
        {
            self.trim(sample.wall_ns, words);
        }
        Ok(())
    }

    /// A file with a damaged tail is never appended to.
    fn failed(&mut self, error: WriteError) -> anyhow::Error {
        let name = self.path().unwrap_or_default();
        if matches!(error, WriteError::Damaged { .. }) {
            self.current = None;
        }
        let words = format!("{}: {error}{}", name.display(), advice(&error));
        NotWritten { words, too_large: is_too_large(&error) }.into()
    }

    /// Ensures that a file to write to is open: the current one, or the next.
    fn begin_file(&mut self, wall_ns: i64, words: &mut Vec<String>) -> Result<()> {
        let hour = wall_ns.div_euclid(HOUR_NS);
        let ring = self.files.is_ring();
        if let Some(current) = &self.current {
            let is_removed = current.writer.is_removed();
            if is_removed {
                words.push(format!(
                    "{} was removed: the recording continues in another file",
                    current.name.display()
                ));
            }
            let over = is_removed
                || ring
                    && (current.hour != hour
                        || current.writer.len() > self.options.max_bytes / FILES_IN_RING);
            if !over && !self.rotate {
                return Ok(());
            }
        }
        // The new file first: if it cannot be made, the old one continues to be used.
        let (file, name) = self.files.create(wall_ns, self.begun == 0)?;
        let id = crc32fast::hash(format!("{} {}", self.session, self.begun).as_bytes());
        let writer = Writer::new(file, id).context("initialising zstd")?;
        let old = self.current.replace(Current { writer, name, hour, host: None, samples: 0 });
        self.begun += 1;
        self.rotate = false;
        if let Some(old) = old
            && let Err(error) = old.writer.end(End::Rotated)
        {
            words.push(format!("ending {}: {error}{}", old.name.display(), advice(&error)));
        }
        if ring {
            self.trim(wall_ns, words);
        }
        Ok(())
    }

    /// Keeps the ring within its limits.
    fn trim(&mut self, wall_ns: i64, words: &mut Vec<String>) {
        if let Some(current) = &self.current {
            let limits = Limits { bytes: self.options.max_bytes, age: self.options.max_age };
            let trimmed = self.files.trim((&current.name, current.writer.len()), limits, wall_ns, words);
            self.other_bytes = trimmed.unwrap_or(self.other_bytes);
        }
    }
}

/// A sample was not written.
#[derive(Debug, thiserror::Error)]
#[error("{words}")]
struct NotWritten {
    words: String,
    /// The file must not become any larger.
    too_large: bool,
}

impl NotWritten {
    fn is_too_large(&self) -> bool {
        self.too_large
    }
}

fn is_too_large(error: &WriteError) -> bool {
    matches!(error, WriteError::NotWritten(error) if error.raw_os_error() == Some(libc::EFBIG))
}

/// The remedy of a failure, to be put behind it; empty where the failure names it.
fn advice(error: &WriteError) -> String {
    match getrlimit(Resource::Fsize).current {
        Some(bytes) if is_too_large(error) => {
            format!(", because a file is limited to {bytes} bytes here: raise RLIMIT_FSIZE (ulimit -f)")
        }
        _ => String::new(),
    }
}

impl Drop for Recorder {
    /// An unfinished file ends here, as well as it can.
    fn drop(&mut self) {
        if let Some(current) = self.current.take().filter(|current| !current.writer.is_empty()) {
            let _ = current.writer.end(End::Stopped);
        }
    }
}
