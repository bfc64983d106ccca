//! The samples of a stretch of a recording, one after the other.

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Error, Result};

use super::pipeline::ahead;
use crate::error::Exit;
use crate::model::sample::{HostFacts, Sample};
use crate::options;
use crate::program::output;
use crate::program::progress::Progress;
use crate::record::time::TimeError;
use crate::source::recording::Recording;
use crate::source::{Source, poll};
use crate::text::quantity::length;
use crate::text::rfc3339;

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
            if poll(&[stop], Instant::now()).context("looking for signals")?.is_some() {
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
        "numatop-ng: {path} has no interval in that time; its samples are from {first} to {last}"
    ));
    Exit::CouldNotMeasure.into()
}
