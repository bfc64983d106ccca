//! Samples of a recording: of one file, or of all files of a ring one after the other.

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail};

use super::Source;
use crate::error::chain;
use crate::metric::needs;
use crate::model::sample::{HostFacts, Missing, Sample};
use crate::record::dir::is_ring_name;
use crate::record::format::{End, FrameKind, Gap, Head};
use crate::record::reader::{Found, Frame, HeadInForce, Reader};
use crate::text::clean_str;
use crate::text::one_line;
use crate::text::rfc3339;

/// The prospect at the end of a recording that is followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outlook {
    /// Nothing is known that speaks against more.
    More,
    /// Something happened to the file, and more may come all the same.
    Perhaps(String),
    /// The end, for this reason.
    Nothing(String),
}

/// Files that cannot be used: why the first few cannot, and how many there are.
#[derive(Default)]
struct LeftOut {
    first: Vec<String>,
    count: usize,
}

impl LeftOut {
    /// Maximum files whose reasons are reported.
    const TOLD: usize = 3;

    fn add(&mut self, error: &anyhow::Error) {
        self.count += 1;
        if self.first.len() < LeftOut::TOLD {
            self.first.push(one_line(&chain(error)));
        }
    }

    fn lines(&self) -> Vec<String> {
        let more = self.count - self.first.len();
        let more = (more > 0).then(|| format!("and {more} more"));
        self.first.iter().cloned().chain(more).collect()
    }

    fn notes(self) -> Vec<String> {
        self.lines().into_iter().map(|line| format!("left out: {line}")).collect()
    }
}

/// A recording that is read from front to back, from any time on. Damaged parts and pauses of the recorder
/// are left out, and the notes of the next sample report them.
pub struct Recording {
    path: PathBuf,
    files: Vec<PathBuf>,
    /// No other files are read, whatever comes into the directory.
    only_these: bool,
    /// Index of the file that is open.
    current: usize,
    reader: Reader,
    /// Where the next frame is looked for, and the number of the last one that was whole.
    at: u64,
    last_seq: Option<u64>,
    /// The last sample handed out: its file, and its first copy there.
    last: Option<(usize, u64)>,
    head: Arc<HeadInForce>,
    host: Arc<HostFacts>,
    /// The session of the last sample, unless we have jumped since.
    session: Option<String>,
    continues: bool,
    interrupted: bool,
    /// Bytes at the end of the last file that are no whole frame.
    torn: u64,
    notes: Vec<String>,
}

impl Recording {
    /// A file with its rotated files, or a directory with all its recordings.
    ///
    /// # Errors
    /// No recording is there, or the first of them cannot be used.
    pub fn open(path: &Path) -> Result<Recording> {
        Recording::begin(path, files_of(path)?, false)
    }

    /// Only these of the files below `path`, in the order of time.
    ///
    /// # Errors
    /// None of them can be used.
    pub fn of_files(path: &Path, files: Vec<PathBuf>) -> Result<Recording> {
        Recording::begin(path, files, true)
    }

    fn begin(path: &Path, files: Vec<PathBuf>, only_these: bool) -> Result<Recording> {
        let mut left_out = LeftOut::default();
        let mut first = None;
        for (at, file) in files.iter().enumerate() {
            match Reader::open(file) {
                Ok(reader) => {
                    first = Some((at, reader));
                    break;
                }
                Err(error) if files.len() == 1 => return Err(error),
                Err(error) => left_out.add(&error),
            }
        }
        let Some((current, reader)) = first else {
            let (count, why) = (left_out.count, left_out.lines().join("; "));
            bail!("none of the {count} recordings in {} can be used: {why}", path.display());
        };
        let notes = left_out.notes();
        let head = reader.first_head();
        Ok(Recording {
            path: path.to_owned(),
            files,
            only_these,
            current,
            reader,
            at: 0,
            last_seq: None,
            last: None,
            host: facts(&head),
            head,
            session: None,
            continues: false,
            interrupted: false,
            torn: 0,
            notes,
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// True if samples are missing before the last one: the recorder paused or restarted, or frames are
    /// damaged.
    pub fn is_interrupted(&self) -> bool {
        self.interrupted
    }

    /// Bytes behind the last whole frame, once the end was reached: damage, or a frame that is being written.
    pub fn torn(&self) -> u64 {
        self.torn
    }

    /// Wall clock of the first and of the last sample, ns since 1970; `None` without samples.
    pub fn span(&self) -> Option<(i64, i64)> {
        let mut readers = self.files.iter().filter_map(|file| Reader::open(file).ok());
        let first = readers.find_map(|reader| reader.sample_from(0, reader.bytes().ok()?).ok().flatten());
        let mut readers = self.files.iter().rev().filter_map(|file| Reader::open(file).ok());
        let last = readers.find_map(|reader| reader.sample_before(reader.bytes().ok()?).ok().flatten());
        first.zip(last).map(|(first, last)| (first.head.wall_ns, last.head.wall_ns))
    }

    /// The next sample will be the last one at or before this time, or the first of all.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn seek(&mut self, wall_ns: i64) -> Result<()> {
        let mut found: Option<(usize, Frame)> = None;
        // Files begin one after the other: the last file that begins early enough contains it.
        let later = self.files.partition_point(|file| begins(file).is_none_or(|begins| begins <= wall_ns));
        for at in (0..later.max(1)).rev() {
            if let Ok(reader) = Reader::open(&self.files[at])
                && let Some(frame) = reader.seek(wall_ns)?
            {
                found = Some((at, frame));
                break;
            }
        }
        match found {
            Some((file, frame)) => self.go_to(file, frame.first()),
            None => self.go_to(0, 0),
        }
    }

    /// The next sample will be the one before the last that was handed out; the first of all stays so.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn step_back(&mut self) -> Result<()> {
        let before = self.last.map(|last| self.before(last)).transpose()?.flatten();
        let (file, at) = before.unwrap_or((0, 0));
        self.go_to(file, at)
    }

    /// The next sample, and the one before it unless it is the first of a run: what an interval is made of.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn next_interval(&mut self) -> Result<Option<(Option<Sample>, Sample)>> {
        let here = (self.current, self.at);
        let Some((file, at)) = self.before(here)? else {
            return Ok(self.next()?.map(|first| (None, first)));
        };
        self.go_to(file, at)?;
        let Some(before) = self.next()? else { return Ok(None) };
        // When that one cannot be read, this is the one after it.
        if self.last >= Some(here) {
            return Ok(Some((None, before)));
        }
        Ok(Some(match self.next()? {
            Some(sample) => (self.continues.then_some(before), sample),
            None => (None, before),
        }))
    }

    /// Where the sample before the one at this place of this file is: its file, and its first copy there.
    fn before(&self, (file, at): (usize, u64)) -> Result<Option<(usize, u64)>> {
        for earlier in (0..=file).rev() {
            let Ok(reader) = Reader::open(&self.files[earlier]) else { continue };
            let end = if earlier == file { at } else { reader.bytes()? };
            if let Some(frame) = reader.sample_before(end)? {
                return Ok(Some((earlier, frame.first())));
            }
        }
        Ok(None)
    }

    fn go_to(&mut self, file: usize, at: u64) -> Result<()> {
        if file != self.current {
            self.reader = Reader::open(&self.files[file])?;
            self.current = file;
        }
        self.at = at;
        self.last_seq = None;
        self.session = None;
        self.notes.clear();
        Ok(())
    }

    /// Opens the next usable file. False if there is none, or none yet.
    fn next_file(&mut self) -> Result<bool> {
        let known = self.files[self.current].clone();
        if !self.only_these {
            self.files = files_of(&self.path)?;
        }
        // Files may have been removed meanwhile, this one too: it is read on all the same.
        let here = match self.files.iter().position(|file| *file == known) {
            Some(here) => here,
            None => {
                let here = self.files.iter().position(|file| *file > known).unwrap_or(self.files.len());
                self.files.insert(here, known);
                here
            }
        };
        self.current = here;
        let mut left_out = LeftOut::default();
        for at in here + 1..self.files.len() {
            match Reader::open(&self.files[at]) {
                Ok(mut reader) => {
                    reader.goes_on_from(&self.reader);
                    (self.current, self.reader, self.at, self.last_seq) = (at, reader, 0, None);
                    self.notes.extend(left_out.notes());
                    return Ok(true);
                }
                // The recorder has just made it.
                Err(_) if at + 1 == self.files.len() => return Ok(false),
                Err(error) => left_out.add(&error),
            }
        }
        Ok(false)
    }

    /// The prospect at the end of the samples so far. Looks at the file that is open.
    pub fn outlook(&self) -> Outlook {
        let file = &self.files[self.current];
        let happened = match (std::fs::metadata(file), self.reader.metadata()) {
            (Err(error), _) if error.kind() == io::ErrorKind::NotFound => "was removed".to_string(),
            (Ok(there), Ok(open)) if (there.dev(), there.ino()) != (open.dev(), open.ino()) => {
                "was replaced by another file".to_string()
            }
            (_, Ok(open)) if open.len() < self.at => {
                let what = format!("{} was cut to {} bytes", file.display(), open.len());
                return Outlook::Perhaps(format!("{what}; waiting until the file grows again"));
            }
            _ => return Outlook::More,
        };
        let what = format!("{} {happened} while it was followed", file.display());
        if self.path.is_dir() {
            Outlook::Perhaps(format!("{what}; waiting for the next file of the ring"))
        } else if self.reader.is_being_written() {
            Outlook::Perhaps(format!("{what}, and the recorder still writes to the removed file"))
        } else {
            Outlook::Nothing(format!("{what}: no more samples will come"))
        }
    }

    /// Counts the samples missed before this frame. False if it is the second copy of an intact one.
    fn count(&mut self, frame: Frame) -> bool {
        let seq = frame.head.seq;
        match self.last_seq {
            Some(last) if seq <= last => return false,
            Some(last) if seq > last + 1 => {
                self.notes
                    .push(format!("{} frames before this sample are damaged and omitted", seq - last - 1));
            }
            _ => {}
        }
        self.last_seq = Some(seq);
        true
    }

    /// The sample of a frame, if it has one.
    fn take(&mut self, frame: Frame) -> Result<Option<Sample>> {
        if self.last_seq.is_some_and(|last| frame.head.seq <= last) {
            return Ok(None);
        }
        match frame.head.kind {
            FrameKind::Head => {
                // Beside the samples: a head that is tried in vain must not stand in their way.
                self.reader.json::<Head>(frame)?;
                self.count(frame);
                Ok(None)
            }
            FrameKind::Key | FrameKind::Delta => {
                let (head, mut sample) = self.reader.sample(frame)?;
                self.count(frame);
                let session = &head.head.session;
                self.continues = self.session.as_ref() == Some(session);
                if self.session.as_ref().is_some_and(|before| before != session) {
                    self.notes.push("another run of the recorder begins here".into());
                }
                self.session = Some(session.clone());
                if !Arc::ptr_eq(&self.head, &head) {
                    self.host = facts(&head);
                    self.head = head;
                }
                self.last = Some((self.current, frame.first()));
                self.interrupted = !self.notes.is_empty();
                sample.notes.append(&mut self.notes);
                Ok(Some(sample))
            }
            FrameKind::Gap => {
                let gap: Gap = self.reader.json(frame)?;
                self.count(frame);
                self.notes.push(format!(
                    "recording was paused at {}: {}; {} samples were not recorded",
                    rfc3339(gap.from_wall_ns),
                    crate::text::clean_str(&gap.reason),
                    gap.samples
                ));
                Ok(None)
            }
            FrameKind::End => {
                self.reader.json::<End>(frame)?;
                self.count(frame);
                Ok(None)
            }
        }
    }
}

/// The recorded facts, and why metrics have no value: the version that recorded did not keep what they need.
fn facts(head: &HeadInForce) -> Arc<HostFacts> {
    let mut host = head.head.host.clone();
    let writer = clean_str(&head.head.writer);
    let why = Missing::NotCollected(format!("not recorded by numatop-ng {writer}"));
    for facility in head.without() {
        needs::add_missing(&mut host.missing, facility, &why);
    }
    Arc::new(host)
}

impl Source for Recording {
    fn host(&self) -> Arc<HostFacts> {
        Arc::clone(&self.host)
    }

    /// `None` at the end; more may follow when it is being written.
    fn next(&mut self) -> Result<Option<Sample>> {
        loop {
            match self.reader.at(self.at)? {
                Found::Frame(frame) => {
                    self.at = frame.end();
                    // A damaged frame is missed by its number at the next whole one.
                    if let Ok(Some(sample)) = self.take(frame) {
                        return Ok(Some(sample));
                    }
                }
                Found::Damaged { next } => self.at = next,
                Found::End { torn } => {
                    let name = self.files[self.current].clone();
                    if !self.next_file()? {
                        self.torn = torn;
                        return Ok(None);
                    }
                    if torn > 0 {
                        let name = one_line(&name.to_string_lossy());
                        self.notes.push(format!("the last {torn} bytes of {name} are damaged"));
                    }
                }
            }
        }
    }

    fn continues(&self) -> bool {
        self.continues
    }
}

/// The files of a recording in the order of time: one with those it was rotated to, or those of a ring.
///
/// # Errors
/// A directory cannot be read, or has no recording in it.
pub fn files_of(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(rotated(path));
    }
    let mut names = Vec::new();
    for entry in std::fs::read_dir(path).with_context(|| format!("reading {}", path.display()))? {
        let name = PathBuf::from(entry.with_context(|| format!("reading {}", path.display()))?.file_name());
        if is_ring_name(&name) {
            names.push(name);
        }
    }
    if names.is_empty() {
        bail!("{} has no ring file (numatop-DATE-NNN.nrec): name the file to read", path.display());
    }
    names.sort();
    Ok(in_turn(names.into_iter().map(|name| path.join(name)).collect()))
}

/// Files of a ring in the order in which they were recorded: that of their names, unless the clock was set back meanwhile.
fn in_turn(files: Vec<PathBuf>) -> Vec<PathBuf> {
    if files.len() < 2 {
        return files;
    }
    let turns: Vec<Option<(String, u32)>> = files.iter().map(|file| turn(file)).collect();
    // A session is where its first file is.
    let mut begins: HashMap<&str, (u32, usize)> = HashMap::new();
    for (at, (session, number)) in
        turns.iter().enumerate().filter_map(|(at, turn)| Some((at, turn.as_ref()?)))
    {
        let begin = begins.entry(session).or_insert((*number, at));
        *begin = (*begin).min((*number, at));
    }
    let key = |at: usize| match &turns[at] {
        Some((session, number)) => (begins[session.as_str()].1, *number, at),
        None => (at, 0, at),
    };
    let mut order: Vec<usize> = (0..files.len()).collect();
    order.sort_by_key(|at| key(*at));
    order.into_iter().map(|at| files[at].clone()).collect()
}

/// Files whose heads are remembered: they never change.
const HEADS_MAX: usize = 65_536;

/// The session of a file, and its number in it; `None` while it has no head that can be read.
fn turn(file: &Path) -> Option<(String, u32)> {
    type Heads = HashMap<(u64, u64, PathBuf), (String, u32)>;
    static HEADS: Mutex<Option<Heads>> = Mutex::new(None);
    let meta = std::fs::symlink_metadata(file).ok()?;
    let key = (meta.dev(), meta.ino(), file.to_owned());
    let mut heads = HEADS.lock().unwrap_or_else(PoisonError::into_inner);
    let heads = heads.get_or_insert_default();
    if let Some(known) = heads.get(&key) {
        return Some(known.clone());
    }
    let head = Reader::open(file).ok()?.first_head();
    let turn = (head.head.session.clone(), head.head.number);
    if heads.len() >= HEADS_MAX {
        heads.clear();
    }
    heads.insert(key, turn.clone());
    Some(turn)
}

/// A single file and the files that the recorder has rotated it to: `file`, `file.1`, `file.2`, …
fn rotated(path: &Path) -> Vec<PathBuf> {
    let numbered = |number: u32| {
        let mut name = path.to_owned().into_os_string();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    };
    let next = (1..).map(numbered).take_while(|path| path.is_file());
    std::iter::once(path.to_owned()).chain(next).collect()
}

/// When the first sample of a file was taken.
fn begins(file: &Path) -> Option<i64> {
    let reader = Reader::open(file).ok()?;
    let frame = reader.sample_from(0, reader.bytes().ok()?).ok()??;
    Some(frame.head.wall_ns)
}
