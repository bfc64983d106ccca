//! Exports for other tools: a trace is written piece by piece, a profile when it is complete.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Error, Result};

use super::destination::{Existing, Out, must_be_new};
use super::replay::{Read, blame, nothing_there, samples_between};
use super::report::check_hosts;
use super::{ran, standard_output, stop_signals};
use crate::cli::ExportArgs;
use crate::error::Exit;
use crate::model::sample::{HostFacts, Sample};
use crate::options::{self, TraceChoice};
use crate::program::output::{self, Form};
use crate::program::{guard, signals};
use crate::snapshot::{RowKind, Snapshot, derive};
use crate::source::recording::Recording;
use crate::text::plural;
use crate::traces::perfetto::Trace;
use crate::traces::pprof::{self, Span};
use crate::traces::stacks::Stacks;
use crate::traces::tracks::{Busiest, Chosen};
use crate::traces::{TraceFormat, folded};

/// A recording, and the requested part.
struct Asked<'a> {
    path: &'a Path,
    /// Wall clock of its first and last sample, ns since 1970.
    span: (i64, i64),
    /// The part, in ns since 1970.
    between: (Option<i64>, Option<i64>),
    choice: TraceChoice,
    stop: BorrowedFd<'static>,
}

pub(super) fn run(args: &ExportArgs, format: TraceFormat) -> Result<ExitCode> {
    let choice = options::trace(&args.display, format)?;
    let to_standard = args.output.as_deref().is_none_or(|path| path.as_os_str() == "-");
    if format.is_binary() && to_standard && io::stdout().is_terminal() {
        return Err(options::no_trace_on_a_terminal(format).into());
    }
    let out = Out::of(args.output.as_deref(), false, Existing::Kept)?;
    check_hosts(&args.path)?;
    let recording = Recording::open(&args.path)?;
    let span = recording.span().unwrap_or_default();
    let between = options::stretch(args.from.as_deref(), args.to.as_deref(), span)
        .map_err(|error| blame(&args.path, error))?;
    let asked = Asked { path: &args.path, span, between, choice, stop: stop_signals()? };
    match format {
        TraceFormat::Perfetto => trace(&asked, recording, &out),
        TraceFormat::Folded | TraceFormat::Pprof => profile(&asked, recording, format, &out),
    }
}

/// Writes a trace. The recording is read twice: the tasks with the most CPU time are known only at its end.
fn trace(asked: &Asked<'_>, recording: Recording, out: &Out) -> Result<ExitCode> {
    let (mut busiest, mut intervals) = (Busiest::default(), 0);
    steps(asked, recording, |step| {
        if let Step::Interval { snapshot, .. } = step {
            busiest.take(snapshot);
            intervals += 1;
        }
        Ok(())
    })?;
    if signals::ended_by().is_some() {
        return Ok(ran());
    }
    if intervals == 0 {
        return Ok(nothing_there(asked.path, asked.span));
    }
    let TraceChoice { top: (programs, containers), comm } = &asked.choice;
    let chosen = busiest.choose(*programs, *containers, comm.as_ref());
    if chosen.programs_left_out + chosen.containers_left_out > 0 {
        let left_out = [(chosen.programs_left_out, "program"), (chosen.containers_left_out, "container")]
            .map(|(count, what)| plural(count, what));
        let words = left_out.join(" and ");
        output::message(format!("numatop-ng: {words} with less CPU time have no tracks (--top)"));
    }
    let sink: Box<dyn Write> = match out {
        Out::Standard => Box::new(standard_output(asked.stop)?),
        Out::File(path, _) => Box::new(guard::create_new(path).with_context(|| must_be_new(path))?),
    };
    match (written(asked, chosen, sink), out) {
        (Ok(()), _) => Ok(ran()),
        (Err(error), Out::Standard) if is_unread(&error) => Ok(ran()),
        (Err(error), Out::Standard) => Err(error),
        (Err(error), Out::File(path, _)) => {
            // Half a trace would look like a whole one.
            let removed = guard::remove(path);
            removed.with_context(|| format!("removing incomplete {}: {error:#}", path.display()))?;
            Err(error.context(format!("writing {}", path.display())))
        }
    }
}

fn written(asked: &Asked<'_>, chosen: Chosen, sink: Box<dyn Write>) -> Result<()> {
    const WRITING: &str = "writing the trace";
    let mut trace = Trace::new(BufWriter::with_capacity(64 * 1024, sink), chosen);
    steps(asked, Recording::open(asked.path)?, |step| match step {
        Step::Begin { host, sample } => trace.begin(host, sample).context(WRITING),
        Step::Interval { snapshot, is_interrupted } => {
            trace.interval(snapshot, is_interrupted).context(WRITING)
        }
    })?;
    trace.finish().context(WRITING)?;
    Ok(())
}

/// Whether the reader of the output has gone.
fn is_unread(error: &Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// A sample of a recording, or the interval that it ends.
enum Step<'a> {
    /// The first of a run.
    Begin { host: &'a HostFacts, sample: &'a Sample },
    Interval {
        /// Its rows are processes.
        snapshot: &'a Snapshot,
        /// Samples are missing in it.
        is_interrupted: bool,
    },
}

/// Takes the part of a recording that was asked for, interval by interval. Ends early at a signal.
fn steps(
    asked: &Asked<'_>,
    mut recording: Recording,
    mut take: impl FnMut(Step<'_>) -> Result<()>,
) -> Result<()> {
    let mut previous: Option<Sample> = None;
    samples_between(&mut recording, asked.between, asked.stop, |read| {
        let Read { host, sample, goes_on, is_interrupted } = read;
        match previous.take().filter(|_| goes_on) {
            Some(before) => {
                let snapshot = &derive(&host, Some(&before), &sample, RowKind::Processes);
                take(Step::Interval { snapshot, is_interrupted })?;
            }
            None => take(Step::Begin { host: &host, sample: &sample })?,
        }
        previous = Some(sample);
        Ok(())
    })
}

fn profile(asked: &Asked<'_>, mut recording: Recording, format: TraceFormat, out: &Out) -> Result<ExitCode> {
    let wanted = |name: &str| asked.choice.comm.as_ref().is_none_or(|comm| comm.is_match(name));
    let mut stacks = Stacks::default();
    let (mut intervals, mut sampled) = (0, 0);
    let mut span: Option<Span> = None;
    // Wall clock and CLOCK_MONOTONIC of the sample before.
    let mut previous: Option<(i64, u64)> = None;
    samples_between(&mut recording, asked.between, asked.stop, |read| {
        let Read { sample, goes_on, .. } = read;
        match previous.take().filter(|_| goes_on) {
            Some((wall_ns, mono_ns)) => {
                intervals += 1;
                let span = span.get_or_insert(Span { begin_wall_ns: wall_ns, length_ns: 0 });
                span.length_ns = span.length_ns.saturating_add(sample.mono_ns.saturating_sub(mono_ns));
                if let Some(batch) = &sample.hot {
                    sampled += 1;
                    stacks.add(batch, &sample.names, &wanted);
                }
            }
            None => stacks.begin(sample.hot.as_deref()),
        }
        previous = Some((sample.wall_ns, sample.mono_ns));
        Ok(())
    })?;
    if signals::ended_by().is_some() {
        return Ok(ran());
    }
    let Some(span) = span.filter(|_| intervals > 0) else {
        return Ok(nothing_there(asked.path, asked.span));
    };
    if stacks.total().samples == 0 {
        let path = asked.path.display();
        let why = match (sampled, &asked.choice.comm) {
            (0, _) => "has no hot spots in this period: stacks are recorded only with --hot",
            (_, Some(_)) => "has no sample in this period of a process that matches --comm",
            (_, None) => "has no stack sample in this period: nothing ran in its scope",
        };
        output::message(format!("numatop-ng: {path} {why}"));
        return Ok(Exit::CouldNotMeasure.into());
    }
    for (cause, count) in stacks.lost() {
        output::message(format!(
            "numatop-ng: {} missing or incomplete: {cause}",
            plural(count as usize, "sample")
        ));
    }
    if stacks.cut() > 0 {
        let cut = plural(stacks.cut() as usize, "sample");
        output::message(format!("numatop-ng: {cut} without callers: there are too many different stacks"));
    }
    let mut bytes = Vec::new();
    if format == TraceFormat::Pprof {
        pprof::write(&stacks, span, &mut bytes)?;
        out.write_bytes(&bytes)?;
    } else {
        folded::write(&stacks, &mut bytes)?;
        out.write(&String::from_utf8_lossy(&bytes), Form::Text)?;
    }
    Ok(ExitCode::SUCCESS)
}
