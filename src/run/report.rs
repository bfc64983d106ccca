//! Making a report of a recording: it is read once, and written when it is whole.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};

use super::stretch::{Read, blame, nothing_there, samples_between};
use super::{print, ran, stop_signals};
use crate::cli::{PageFormat, ReportArgs};
use crate::finding::redact::Redactor;
use crate::model::sample::{HostFacts, Sample};
use crate::options;
use crate::program::say::Form;
use crate::program::signals;
use crate::record::dir::Dir;
use crate::record::reader::Reader;
use crate::report::clock::Clock;
use crate::report::fold::{Fold, Interval};
use crate::report::gaps::Gap;
use crate::report::page::{self, View};
use crate::report::{Report, json, text};
use crate::snapshot::{RowKind, derive};
use crate::source::Source;
use crate::source::recording::{Recording, files_of};
use crate::text::one_line;

/// The reason of a gap where names are not to be shown.
const UNSAID: &str = "the reason is left out: it may name files";

/// Intervals from which the length of a bucket is found.
const LOOKED_AT: usize = 5;

pub(super) fn run(args: &ReportArgs) -> Result<ExitCode> {
    let choices = options::report(args)?;
    let out = Out::of(args)?;
    check_hosts(&args.path)?;
    let mut recording = Recording::open(&args.path)?;
    let span = recording.span().unwrap_or_default();
    let zone = options::zone(args);
    let (from, to) = options::stretch_in(args.from.as_deref(), args.to.as_deref(), span, &zone)
        .map_err(|error| blame(&args.path, error))?;
    let shown = (from.map_or(span.0, |from| from.max(span.0)), to.map_or(span.1, |to| to.min(span.1)));
    let interval_ns = interval_ns(&args.path, from)?;
    let stop = stop_signals()?;
    let fold = Fold::new(choices, shown, interval_ns, &recording.host()).context("making an empty report")?;
    let redactor = args.anonymous.then(Redactor::by_kind);
    let mut reading = Reading { fold, previous: None, redactor, hosts: None };
    samples_between(&mut recording, (from, to), stop, |read| {
        reading.take(read);
        Ok(())
    })?;
    if signals::ended_by().is_some() {
        return Ok(ran());
    }
    reading.fold.torn(recording.torn());
    let Some(report) = reading.fold.finish() else { return Ok(nothing_there(&args.path, span)) };
    let clock = Clock::new(zone, report.span, report.grid.width_ns);
    let (text, form) = render(args, &report, &clock);
    out.write(&text, form)?;
    Ok(ExitCode::SUCCESS)
}

fn render(args: &ReportArgs, report: &Report, clock: &Clock) -> (String, Form) {
    match args.format {
        PageFormat::Html => (page::render(&View { report, clock, command: command(args) }), Form::Text),
        PageFormat::Json => (format!("{:#}\n", json::object(report, clock)), Form::Json),
        PageFormat::Text => (text::render(report, clock), Form::Text),
    }
}

/// The command that reads the same recording; empty where names are not to be shown.
fn command(args: &ReportArgs) -> String {
    if args.anonymous {
        return String::new();
    }
    let path = one_line(&args.path.to_string_lossy());
    let is_plain = path.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+,:@".contains(c));
    let quoted = if is_plain { path } else { format!("'{}'", path.replace('\'', "'\\''")) };
    format!("numatop-ng report {quoted}{}", if args.utc { " --utc" } else { "" })
}

/// Refuses a directory with recordings of several hosts. A file that cannot be read is left to the reader.
fn check_hosts(path: &Path) -> Result<()> {
    let mut names: Vec<String> = Vec::new();
    for file in files_of(path)? {
        let Ok(reader) = Reader::open(&file) else { continue };
        let name = one_line(&reader.first_head().head.host.hostname);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if names.len() > 1 { Err(options::several_hosts(&names).into()) } else { Ok(()) }
}

/// The usual length of an interval, from the first few: the median, in ns; 0 without any.
fn interval_ns(path: &Path, from: Option<i64>) -> Result<i64> {
    let mut recording = Recording::open(path)?;
    if let Some(from) = from {
        recording.seek(from.saturating_sub(1))?;
    }
    let (mut lengths, mut previous) = (Vec::new(), None::<u64>);
    while let Some(sample) = recording.next()?
        && lengths.len() < LOOKED_AT
    {
        if let Some(before) = previous.filter(|_| recording.continues()) {
            lengths.push(sample.mono_ns.saturating_sub(before));
        }
        previous = Some(sample.mono_ns);
    }
    lengths.sort_unstable();
    let median = lengths.get(lengths.len() / 2).copied().unwrap_or(0);
    // A timer is late by a little: 1.0008 s are a second.
    let second = 1_000_000_000.0;
    let seconds = median as f64 / second;
    let is_round = (seconds - seconds.round()).abs() < 0.02 * seconds;
    Ok(if is_round { (seconds.round() * second) as i64 } else { i64::try_from(median).unwrap_or(i64::MAX) })
}

/// The report in the making, and the sample before.
struct Reading {
    fold: Fold,
    previous: Option<(Arc<HostFacts>, Sample)>,
    /// Replaces names, where they are not to be shown.
    redactor: Option<Redactor>,
    /// Facts of the host as they were read last, and without names.
    hosts: Option<(Arc<HostFacts>, Arc<HostFacts>)>,
}

impl Reading {
    fn take(&mut self, Read { mut host, mut sample, goes_on, is_interrupted }: Read) {
        let mut hot = sample.hot.take().map(Arc::unwrap_or_clone);
        if let Some(redactor) = &mut self.redactor {
            redactor.sample(&mut sample);
            if is_interrupted {
                sample.notes.push(UNSAID.into());
            }
            host = match &self.hosts {
                Some((before, after)) if Arc::ptr_eq(before, &host) => Arc::clone(after),
                _ => {
                    let after = Arc::new(redactor.host(&host));
                    self.hosts = Some((host, Arc::clone(&after)));
                    after
                }
            };
            hot.iter_mut().for_each(|batch| redactor.stacks(batch));
        }
        match self.previous.take() {
            Some((_, before)) if goes_on => {
                let snapshot = derive(&host, Some(&before), &sample, RowKind::Processes);
                self.fold.take(Interval { snapshot: &snapshot, is_interrupted, hot });
            }
            before => {
                if let Some((facts, before)) = before {
                    self.fold.interrupt(Gap {
                        from_ns: before.wall_ns,
                        to_ns: sample.wall_ns,
                        why: sample.notes.iter().map(|note| one_line(note)).collect(),
                        is_new_run: true,
                        is_restart: facts.boot_id != host.boot_id,
                    });
                } else {
                    self.fold.notes(sample.wall_ns, &sample.notes);
                }
                let exit_lost_ns = sample.exit_lost_ns.iter().fold(0, |sum: u64, ns| sum.saturating_add(*ns));
                self.fold.begin(sample.lost.clone(), exit_lost_ns);
            }
        }
        self.previous = Some((host, sample));
    }
}

/// The place that the report goes to.
enum Out {
    Standard,
    File(PathBuf),
}

impl Out {
    fn of(args: &ReportArgs) -> Result<Out> {
        match &args.output {
            Some(path) if path.as_os_str() == "-" => Ok(Out::Standard),
            Some(path) => {
                // Better now than after minutes of reading; making it fails then, too.
                if path.symlink_metadata().is_ok() {
                    bail!("{} exists already: name a new file", path.display());
                }
                Ok(Out::File(path.clone()))
            }
            None if args.format == PageFormat::Html && io::stdout().is_terminal() => {
                Err(options::no_page_on_a_terminal().into())
            }
            None => Ok(Out::Standard),
        }
    }

    fn write(&self, text: &str, form: Form) -> Result<()> {
        let path = match self {
            Out::Standard => return print(text, form),
            Out::File(path) => path,
        };
        let making =
            || format!("making {}, which must be a new file in a directory that exists", path.display());
        let name = path.file_name().with_context(making)?;
        let dir = Dir::for_file(path.parent().unwrap_or(Path::new("."))).with_context(making)?;
        dir.publish(Path::new(name), text.as_bytes()).with_context(making)
    }
}
