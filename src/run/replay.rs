//! Intervals of existing samples as text, JSON or CSV: the same that batch mode would have written at the time. The samples of a
//! stretch of a recording are read one after the other.

use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, bail};

use super::pipeline::ahead;
use crate::error::Exit;
use crate::export::{Export, derive_for};
use crate::hot::profile::Profile;
use crate::model::sample::{HostFacts, Sample};
use crate::model::stacks::StackBatch;
use crate::options;
use crate::program::output;
use crate::program::progress::Progress;
use crate::record::time::TimeError;
use crate::snapshot::RowKind;
use crate::source::recording::{Outlook, Recording};
use crate::source::{Source, poll};
use crate::text::quantity::length;
use crate::text::rfc3339;

/// The period at which a recording that is being written is looked at for more.
const FOLLOW_EVERY: Duration = Duration::from_millis(200);

/// A part of a recording, and the wanted rows.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Wall clock, ns since 1970: intervals that end at or after the first and at or before the second.
    pub from_wall_ns: Option<i64>,
    pub to_wall_ns: Option<i64>,
    pub iterations: Option<u64>,
    /// Wait for more at the end.
    pub follow: bool,
    pub grain: RowKind,
    /// Progress is shown on standard error, where that is a terminal.
    pub progress: bool,
}

/// Writes the interval between two samples. Returns false if the reader of the output has gone.
fn write_interval(
    export: &mut dyn Export,
    out: &mut dyn Write,
    host: &Arc<HostFacts>,
    previous: &Sample,
    current: &Sample,
    news: Option<StackBatch>,
    grain: RowKind,
) -> Result<bool> {
    let mut snapshot = derive_for(export, host, previous, current, grain);
    snapshot.hot = news.map(|news| {
        let mut profile = Profile::default();
        profile.add(news);
        profile
    });
    match export.write(out, &snapshot) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        result => result.map(|()| true).context("writing the output"),
    }
}

/// Writes the intervals of `part`, holding two samples at a time. Returns their number; ends early when
/// `stop` becomes readable or the reader of the output is gone. `tell` is called once for each event of a
/// followed file.
///
/// # Errors
/// The recording cannot be read, the output cannot be written, or a followed file has ended for good.
pub fn run(
    recording: &mut Recording,
    export: &mut dyn Export,
    out: &mut dyn Write,
    part: Part,
    stop: BorrowedFd<'_>,
    tell: &mut dyn FnMut(&str),
) -> Result<u64> {
    if let Some(from) = part.from_wall_ns {
        // The sample right before the first interval is needed too.
        recording.seek(from.saturating_sub(1))?;
    }
    let mut told = String::new();
    let span = recording.span().unwrap_or_default();
    let begin = part.from_wall_ns.map_or(span.0, |from| from.max(span.0));
    let end = part.to_wall_ns.map_or(span.1, |to| to.min(span.1));
    let mut progress = part.progress.then(|| Progress::new("writing"));
    let next = |recording: &mut Recording, out: &mut dyn Write| loop {
        if let Some(sample) = recording.next()? {
            if let Some(progress) = &mut progress {
                reached(progress, (begin, end), sample.wall_ns);
            }
            return Ok(Some(sample));
        }
        if !part.follow {
            return Ok(None);
        }
        match recording.outlook() {
            Outlook::More => told.clear(),
            Outlook::Perhaps(what) if what != told => {
                tell(&what);
                told = what;
            }
            Outlook::Perhaps(_) => {}
            Outlook::Nothing(why) => {
                out.flush().context("writing the output")?;
                bail!(why);
            }
        }
        if recording.wait(Instant::now() + FOLLOW_EVERY, stop)? {
            return Ok(None);
        }
    };
    intervals(recording, next, export, out, part, stop)
}

/// Writes the intervals between the samples that `next` takes from `source`, until it has no other. Notes of samples
/// that end no interval go to the next one. Returns how many intervals there were; see [`run`] for its end.
///
/// # Errors
/// Errors of `next` and of the source, or the output cannot be written.
pub fn intervals<S: Source + ?Sized>(
    source: &mut S,
    mut next: impl FnMut(&mut S, &mut dyn Write) -> Result<Option<Sample>>,
    export: &mut dyn Export,
    out: &mut dyn Write,
    part: Part,
    stop: BorrowedFd<'_>,
) -> Result<u64> {
    let mut previous: Option<Sample> = None;
    let mut notes = Vec::new();
    let mut written = 0;
    while part.iterations != Some(written) {
        if poll(&[stop], Instant::now()).context("waiting for a signal")?.is_some() {
            break;
        }
        let Some(mut current) = next(source, out)? else { break };
        if part.to_wall_ns.is_some_and(|to| current.wall_ns > to) {
            break;
        }
        // A recording has stacks in its samples, a machine beside them.
        let kept = current.hot.take().map(Arc::unwrap_or_clone);
        let news = kept.or(source.hot_news(Duration::ZERO)?);
        current.notes.splice(..0, notes.drain(..));
        let continues = source.continues();
        if let Some(engine) = export.engine().filter(|_| !continues) {
            // The next interval is of another run: no finding continues.
            engine.interrupt();
        }
        let before = previous.take().filter(|_| continues);
        if let Some(before) = before
            && part.from_wall_ns.is_none_or(|from| current.wall_ns >= from)
        {
            let news = news.filter(|_| export.wants_hot());
            written += 1;
            if !write_interval(export, out, &source.host(), &before, &current, news, part.grain)? {
                break;
            }
        } else {
            notes.clone_from(&current.notes);
        }
        previous = Some(current);
    }
    Ok(written)
}

/// Samples that are handed over at a time.
const READ_AHEAD: usize = 4;

/// A sample, and its place in the recording.
pub(super) struct Read {
    pub host: Arc<HostFacts>,
    pub sample: Sample,
    /// It is of the same run as the one before.
    pub goes_on: bool,
    /// Samples are missing before it: see [`Recording::is_interrupted`].
    pub is_interrupted: bool,
}

/// Takes the samples of a stretch of a recording, beginning with the sample at which its first interval
/// begins. Ends early at a signal.
///
/// # Errors
/// The recording cannot be read, a time is not in it, or errors of `take`.
pub(super) fn samples(
    path: &Path,
    (from, to): (Option<&str>, Option<&str>),
    stop: BorrowedFd<'_>,
    take: impl FnMut(Read) -> Result<()>,
) -> Result<()> {
    let mut recording = Recording::open(path)?;
    let span = recording.span().unwrap_or_default();
    let between = options::stretch(from, to, span).map_err(|error| blame(path, error))?;
    samples_between(&mut recording, between, stop, take)
}

/// The same for an open recording, between two moments in ns since 1970. A separate thread reads it, a few
/// samples ahead.
///
/// # Errors
/// The recording cannot be read, or errors of `take`.
pub(super) fn samples_between(
    recording: &mut Recording,
    (from, to): (Option<i64>, Option<i64>),
    stop: BorrowedFd<'_>,
    mut take: impl FnMut(Read) -> Result<()>,
) -> Result<()> {
    let (first, last) = recording.span().unwrap_or_default();
    let (begin, end) = (from.map_or(first, |from| from.max(first)), to.map_or(last, |to| to.min(last)));
    let mut progress = Progress::new("reading");
    ahead(
        READ_AHEAD,
        |give| {
            if let Some(from) = from {
                recording.seek(from.saturating_sub(1))?;
            }
            while let Some(sample) = recording.next()?
                && to.is_none_or(|to| sample.wall_ns <= to)
            {
                let (goes_on, is_interrupted) = (recording.continues(), recording.is_interrupted());
                if !give(Read { host: recording.host(), sample, goes_on, is_interrupted }) {
                    break;
                }
            }
            Ok(())
        },
        |read| {
            if poll(&[stop], Instant::now()).context("waiting for a signal")?.is_some() {
                return Ok(false);
            }
            reached(&mut progress, (begin, end), read.sample.wall_ns);
            take(read)?;
            Ok(true)
        },
    )
}

/// Shows how far a recording is read: up to `now` of the stretch from the first to the second of `span`, ns since 1970.
pub(super) fn reached(progress: &mut Progress, span: (i64, i64), now: i64) {
    let whole = span.1.saturating_sub(span.0).max(1) as f64;
    let done = now.saturating_sub(span.0).max(0) as f64;
    let time = |ns: f64| length(ns as u64);
    progress.at(done / whole, || format!("{} of {}", time(done), time(whole)));
}

/// Names the recording where a time is right and the recording is not.
pub(super) fn blame(path: &Path, error: Error) -> Error {
    if error.is::<TimeError>() { error.context(path.display().to_string()) } else { error }
}

/// Reports that the requested time has no interval of a recording, which lasts from the first to the second
/// of `span`.
pub(super) fn nothing_there(path: &Path, (first, last): (i64, i64)) -> ExitCode {
    let (path, first, last) = (path.display(), rfc3339(first), rfc3339(last));
    output::message(format!(
        "numatop-ng: {path} has no interval in this period; its samples are from {first} to {last}"
    ));
    Exit::CouldNotMeasure.into()
}
