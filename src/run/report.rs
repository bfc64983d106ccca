//! Making a report of a recording: it is read once, and written when it is whole.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};

use super::destination::{Existing, Out, quoted};
use super::pipeline::ahead;
use super::replay::{Read, blame, nothing_there, samples_between};
use super::{ran, stop_signals};
use crate::cli::{PageFormat, ReportArgs};
use crate::finding::Engine;
use crate::finding::redact::Redactor;
use crate::model::sample::{HostFacts, Sample};
use crate::model::stacks::StackBatch;
use crate::options;
use crate::program::output::Form;
use crate::program::signals;
use crate::record::reader::Reader;
use crate::report::clock::Clock;
use crate::report::fold::{Fold, Interval};
use crate::report::gaps::Gap;
use crate::report::page::{self, View};
use crate::report::{Options, Report, json, text};
use crate::snapshot::{RowKind, Snapshot, derive};
use crate::source::Source;
use crate::source::recording::{Recording, files_of};
use crate::text::one_line;

/// The reason of a gap where names are not to be shown.
const UNSAID: &str = "the reason is omitted: it can contain file names";

/// Intervals from which the length of a bucket is found.
const LOOKED_AT: usize = 5;

pub(super) fn run(args: &ReportArgs) -> Result<ExitCode> {
    let choices = options::report(args)?;
    let out = Out::of(args.output.as_deref(), args.format == PageFormat::Html, Existing::forced(args.force))?;
    check_hosts(&args.path)?;
    let mut recording = Recording::open(&args.path)?;
    let span = recording.span().unwrap_or_default();
    let zone = options::zone(args);
    let (from, to) = options::stretch_in(args.from.as_deref(), args.to.as_deref(), span, &zone)
        .map_err(|error| blame(&args.path, error))?;
    let mut fold = begin(&recording, span, (from, to), choices)?;
    let stop = stop_signals()?;
    let mut deriving = Deriving::new(args.anonymous.then(Redactor::by_kind));
    let mut engine = fold.lend_engine();
    let derive = |give: &mut dyn FnMut(Step) -> bool| {
        samples_between(&mut recording, (from, to), stop, |read| {
            ensure!(give(deriving.step(read)), "the report was cancelled");
            Ok(())
        })
    };
    let look = |give: &mut dyn FnMut(Step) -> bool| {
        ahead(DERIVED_AHEAD, derive, |step| {
            step.look(&mut engine);
            Ok(give(step))
        })
    };
    ahead(DERIVED_AHEAD, look, |step| {
        step.put_in(&mut fold);
        Ok(true)
    })?;
    fold.take_back(engine);
    if signals::ended_by().is_some() {
        return Ok(ran());
    }
    fold.torn(recording.torn());
    fold.replaced(deriving.replaced());
    let Some(report) = fold.finish() else { return Ok(nothing_there(&args.path, span)) };
    let clock = Clock::new(zone, report.span, report.grid.width_ns);
    let (text, form) = render(args, &report, &clock);
    out.write(&text, form)?;
    Ok(ExitCode::SUCCESS)
}

/// An empty report of a recording that has samples over `span`, between two of its moments, in ns since 1970.
///
/// # Errors
/// The recording cannot be read.
pub(super) fn begin(
    recording: &Recording,
    span: (i64, i64),
    (from, to): (Option<i64>, Option<i64>),
    choices: Options,
) -> Result<Fold> {
    let shown = (from.map_or(span.0, |from| from.max(span.0)), to.map_or(span.1, |to| to.min(span.1)));
    let interval_ns = interval_ns(recording.path(), from)?;
    Fold::new(choices, shown, interval_ns, &recording.host()).context("creating an empty report")
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
    let path = quoted(&args.path.to_string_lossy());
    format!("numatop-ng report {path}{}", if args.utc { " --utc" } else { "" })
}

/// Refuses a directory with recordings of several hosts. A file that cannot be read is left to the reader.
///
/// # Errors
/// The names of the hosts, or the directory cannot be read.
pub(super) fn check_hosts(path: &Path) -> Result<()> {
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

/// Intervals that are handed to the next thread at a time: with thousands of processes each takes a megabyte.
const DERIVED_AHEAD: usize = 4;

/// A sample, and its relation to the previous one.
pub(super) enum Step {
    Interval {
        snapshot: Box<Snapshot>,
        is_interrupted: bool,
        hot: Option<StackBatch>,
    },
    /// The first sample of a run, with its losses so far.
    Begin {
        gap: Option<Gap>,
        wall_ns: i64,
        notes: Vec<String>,
        lost: (BTreeMap<String, u64>, u64),
    },
}

impl Step {
    /// Shows it to an engine that the report has lent.
    fn look(&self, engine: &mut Engine) {
        match self {
            // An interval without a length does not count, as in a report.
            Step::Interval { snapshot, .. } if snapshot.interval_ns.is_some_and(|ns| ns > 0) => {
                engine.take(snapshot);
            }
            Step::Begin { gap: Some(_), .. } => engine.interrupt(),
            _ => {}
        }
    }

    pub(super) fn put_in(self, fold: &mut Fold) {
        match self {
            Step::Interval { snapshot, is_interrupted, hot } => {
                fold.take(Interval { snapshot: &snapshot, is_interrupted, hot });
            }
            Step::Begin { gap, wall_ns, notes, lost: (lost, exit_lost_ns) } => {
                match gap {
                    Some(gap) => fold.interrupt(gap),
                    None => fold.notes(wall_ns, &notes),
                }
                fold.begin(lost, exit_lost_ns);
            }
        }
    }
}

/// From samples to intervals, and the sample before.
pub(super) struct Deriving {
    pub previous: Option<(Arc<HostFacts>, Sample)>,
    /// Replaces names, where they are not to be shown.
    redactor: Option<Redactor>,
    /// Facts of the host as they were read last, and without names.
    hosts: Option<(Arc<HostFacts>, Arc<HostFacts>)>,
}

impl Deriving {
    pub(super) fn new(redactor: Option<Redactor>) -> Deriving {
        Deriving { previous: None, redactor, hosts: None }
    }

    /// Names of programs by the words in their place.
    fn replaced(&self) -> BTreeMap<String, String> {
        self.redactor.as_ref().map(Redactor::programs).unwrap_or_default()
    }

    pub(super) fn step(&mut self, Read { mut host, mut sample, goes_on, is_interrupted }: Read) -> Step {
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
        let step = match self.previous.take() {
            Some((_, before)) if goes_on => {
                let snapshot = Box::new(derive(&host, Some(&before), &sample, RowKind::Processes));
                Step::Interval { snapshot, is_interrupted, hot }
            }
            before => {
                let gap = before.map(|(facts, before)| {
                    let why = sample.notes.iter().map(|note| one_line(note)).collect();
                    let between = (before.wall_ns, sample.wall_ns);
                    Gap::new_run(between, why, facts.boot_id != host.boot_id)
                });
                let exit_lost_ns = sample.exit_lost_ns.iter().fold(0, |sum: u64, ns| sum.saturating_add(*ns));
                let lost = (sample.lost.clone(), exit_lost_ns);
                Step::Begin { gap, wall_ns: sample.wall_ns, notes: sample.notes.clone(), lost }
            }
        };
        self.previous = Some((host, sample));
        step
    }
}
