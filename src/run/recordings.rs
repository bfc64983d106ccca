//! Modes for recordings: shown, written in another format, checked.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};

use super::destination::must_be_new;
use super::replay::{blame, nothing_there};
use super::{ended, exporter, print, ran, standard_output, stop_signals, traces, tui_options, wants_batch};
use crate::cli::{ExportArgs, ExportFormat, ReplayArgs};
use crate::error::{self, Exit};
use crate::export::Format;
use crate::program::output::{self, Cleaned, Form};
use crate::program::progress::Progress;
use crate::program::{guard, signals};
use crate::record::verify;
use crate::run::replay::{self, Part};
use crate::source::Source;
use crate::source::recording::{self, Recording};
use crate::text::{one_line, rfc3339};
use crate::{options, tui};

pub(super) fn replay(args: &ReplayArgs) -> Result<ExitCode> {
    let ReplayArgs { path, at, follow, output: out, display, screen } = args;
    let (follow, format) = (*follow, options::batch_format(out)?);
    let mut recording = Recording::open(path)?;
    options::check_node(display, &recording.host().topology)?;
    let span = recording.span().unwrap_or_default();
    let at = options::moment("--at", at.as_deref(), span).map_err(|error| blame(path, error))?;
    if let Some(why) = at.and_then(|at| too_early(path, at, span.0)) {
        output::message(why);
    }
    let grain = options::grain(display.threads, None);
    if !wants_batch(out) {
        options::check_by_hand(&out.count)?;
        let at = match at {
            Some(at) => at,
            None if follow => span.1,
            None => first_whole(&mut recording)?.unwrap_or(span.0),
        };
        return ended(tui::replay(tui_options(display, screen, grain)?, recording, span, at, follow)?);
    }
    let mut export = exporter(format, display)?;
    let part = Part {
        from_wall_ns: at,
        to_wall_ns: None,
        iterations: out.count.iterations,
        follow,
        grain,
        progress: false,
    };
    let stop = stop_signals()?;
    let mut out = Cleaned::new(io::BufWriter::with_capacity(64 * 1024, standard_output(stop)?), format.form);
    let written = replay::run(&mut recording, export.as_mut(), &mut out, part, stop, &mut tell)?;
    Ok(if written > 0 || follow || signals::ended_by().is_some() { ran() } else { nothing_there(path, span) })
}

/// The note that a time is before the first sample, which is shown then.
fn too_early(path: &Path, at: i64, first: i64) -> Option<String> {
    let (path, begins) = (path.display(), rfc3339(first));
    (at < first).then(|| format!("numatop-ng: --at is before {path}, whose first sample is from {begins}"))
}

pub(super) fn export(args: &ExportArgs) -> Result<ExitCode> {
    if !matches!(args.format, ExportFormat::Batch(_)) {
        options::check_no_json(&args.json)?;
    }
    match args.format {
        ExportFormat::Batch(format) => {
            options::check_no_tables(args)?;
            export_batch(args, options::shape(format, &args.json)?)
        }
        ExportFormat::Trace(format) => {
            options::check_no_tables(args)?;
            traces::run(args, format)
        }
        #[cfg(feature = "parquet")]
        ExportFormat::Parquet => super::tables::run(args),
        #[cfg(not(feature = "parquet"))]
        ExportFormat::Parquet => Err(options::no_parquet().into()),
    }
}

fn export_batch(args: &ExportArgs, format: &Format) -> Result<ExitCode> {
    let mut export = exporter(format, &args.display)?;
    let mut recording = Recording::open(&args.path)?;
    options::check_node(&args.display, &recording.host().topology)?;
    let span = recording.span().unwrap_or_default();
    let stretch = options::stretch(args.from.as_deref(), args.to.as_deref(), span);
    let (from_wall_ns, to_wall_ns) = stretch.map_err(|error| blame(&args.path, error))?;
    let part = Part {
        from_wall_ns,
        to_wall_ns,
        iterations: None,
        follow: false,
        grain: options::grain(args.display.threads, None),
        progress: args.output.is_some() || !io::stdout().is_terminal(),
    };
    let stop = stop_signals()?;
    let sink: Box<dyn Write> = match &args.output {
        Some(path) => Box::new(guard::create_new(path).with_context(|| must_be_new(path))?),
        None => Box::new(standard_output(stop)?),
    };
    let mut out = Cleaned::new(io::BufWriter::with_capacity(64 * 1024, sink), format.form);
    let written = replay::run(&mut recording, export.as_mut(), &mut out, part, stop, &mut tell);
    let written = match (written, &args.output) {
        (Err(error), Some(path)) => {
            // Half of an export would look like a whole one.
            let removed = guard::remove(path);
            removed.with_context(|| format!("removing incomplete {}: {error:#}", path.display()))?;
            return Err(error.context(format!("writing {}", path.display())));
        }
        (written, _) => written?,
    };
    Ok(if written > 0 || signals::ended_by().is_some() { ran() } else { nothing_there(&args.path, span) })
}

/// Samples among which the first whole interval is looked for.
const LOOKED_AT: usize = 30;

/// The end of the first interval in which the memory of processes and the limits of groups are known, or else
/// of the first of all. Wall clock in ns since 1970. A recorder needs some time to read them. `None` without
/// intervals.
fn first_whole(recording: &mut Recording) -> Result<Option<i64>> {
    let several_nodes = recording.host().topology.nodes.len() > 1;
    let mut first = None;
    for number in 0..LOOKED_AT {
        let Some(sample) = recording.next()? else { break };
        if number == 0 {
            continue;
        }
        let has_placement = !several_nodes || !sample.placement.is_empty();
        if has_placement && (sample.names.groups.is_empty() || !sample.groups.is_empty()) {
            return Ok(Some(sample.wall_ns));
        }
        first = first.or(Some(sample.wall_ns));
    }
    Ok(first)
}

/// Prints the state of a followed file.
fn tell(what: &str) {
    output::message(format!("numatop-ng: {what}"));
}

pub(super) fn verify(paths: &[PathBuf]) -> Result<ExitCode> {
    let mut exit = Exit::Ok;
    // `FILE*` names what a file was rotated to as well.
    let mut seen = BTreeSet::new();
    let mut files: Vec<(&PathBuf, Result<PathBuf>)> = Vec::new();
    for path in paths {
        match recording::files_of(path) {
            Ok(found) => files.extend(
                found.into_iter().filter(|file| seen.insert(file.clone())).map(|file| (path, Ok(file))),
            ),
            Err(error) => files.push((path, Err(error))),
        }
    }
    let size = |file: &Result<PathBuf>| {
        let meta = file.as_ref().ok().and_then(|file| file.metadata().ok());
        meta.map_or(0, |meta| meta.len())
    };
    let all: u64 = files.iter().map(|(_, file)| size(file)).sum();
    let (count, mut done) = (files.len(), 0);
    let mut progress = Progress::new("verifying");
    for (at, (path, file)) in files.into_iter().enumerate() {
        let bytes = size(&file);
        progress.at(done as f64 / all.max(1) as f64, || format!("file {} of {count}", at + 1));
        let (intact, text) = match &file {
            Ok(file) => report(file),
            Err(error) => unreadable(path, error),
        };
        done += bytes;
        progress.erase();
        print(&text, Form::Text)?;
        if !intact {
            exit = Exit::CouldNotMeasure;
        }
    }
    Ok(exit.into())
}

/// The report of [`verify::verify`] on a file, and whether it is intact.
fn report(file: &Path) -> (bool, String) {
    match verify::verify(file) {
        Ok(report) => (report.is_intact(), report.to_string()),
        Err(error) => unreadable(file, &error),
    }
}

fn unreadable(path: &Path, error: &anyhow::Error) -> (bool, String) {
    let (path, why) = (one_line(&path.to_string_lossy()), one_line(&error::chain(error)));
    (false, format!("{path}: unreadable\n  {why}\n"))
}
