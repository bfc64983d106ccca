//! A made-up machine instead of this one: on the screen, or as batch output.

use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::process::ExitCode;

use anyhow::Result;

use super::watch::{finish, pace, recorded, recorder, recording_pace, rotate_signal, say_recording, screen};
use super::{ended, exporter, messages, ran, standard_output, stop_signals, wants_batch};
use crate::cli::{LiveArgs, RecordArgs};
use crate::export::{Export, Quiet};
use crate::program::output::Cleaned;
use crate::record::recorder::Recorder;
use crate::run::batch::{self, Pace};
use crate::run::replay::{Part, intervals};
use crate::source::demo::{Demo, DemoOptions};
use crate::source::recorded::Recorded;
use crate::source::synthetic::events;
use crate::source::{Focus, Source};
use crate::{options, tui};

pub(super) fn run(args: &LiveArgs) -> Result<ExitCode> {
    options::check_node(&args.display, &Demo::new().host().topology)?;
    let format = options::batch_format(&args.output)?;
    options::check_places(format, args.watch.hot.hot, args.overhead, args.record.is_some())?;
    if wants_batch(&args.output) { batch(args) } else { live(args) }
}

fn live(args: &LiveArgs) -> Result<ExitCode> {
    let mut options = screen(args)?;
    options.view.demo = true;
    options.view.sets = events::sets();
    let simulated = simulated(args)?;
    // The source starts on its thread, and wrong names are refused before.
    Demo::of(&simulated)?;
    let recorder = recorder(args)?;
    let rotate = rotate_signal()?;
    let recorded = recorder.is_some();
    let start = move || {
        let demo = Demo::of(&simulated)?;
        Ok(match recorder {
            Some(recorder) => Box::new(Recorded::new(demo, recorder, rotate)) as Box<dyn Source>,
            None => Box::new(demo),
        })
    };
    ended(tui::run(options, recorded, start)?)
}

/// The machine of the screen and of batch output. A number of intervals is not waited for, except on the screen.
fn simulated(args: &LiveArgs) -> Result<DemoOptions> {
    let measure = &args.watch.measure;
    let counted = args.output.count.iterations.filter(|_| wants_batch(&args.output));
    Ok(options::simulated(&args.watch.scope, measure, counted.map(|_| measure.interval()))?)
}

fn batch(args: &LiveArgs) -> Result<ExitCode> {
    let format = options::batch_format(&args.output)?;
    let mut export = exporter(format, &args.display)?;
    let stop = stop_signals()?;
    let mut out = Cleaned::new(io::BufWriter::with_capacity(64 * 1024, standard_output(stop)?), format.form);
    let source = Demo::of(&simulated(args)?)?;
    let pace = pace(args);
    recorded(source, recorder(args)?, rotate_signal()?, |source| match pace.iterations {
        Some(_) => write_at_once(source, export.as_mut(), &mut out, pace, stop).map(drop),
        None => batch::run(source, export.as_mut(), &mut out, pace, stop).map(drop),
    })?;
    Ok(ran())
}

/// Records it: a number of intervals without waiting for any, or in real time until a signal comes.
pub(super) fn record(args: &RecordArgs) -> Result<ExitCode> {
    let interval = args.watch.measure.interval();
    let every = args.count.iterations.map(|_| interval);
    let source = Demo::of(&options::simulated(&args.watch.scope, &args.watch.measure, every)?)?;
    let stop = stop_signals()?;
    let recorder = Recorder::open(&args.path, options::recording(&args.limits, &args.path, interval)?)?;
    let pace = recording_pace(args);
    let (mut quiet, mut out) = (Quiet::default(), messages()?);
    say_recording(args);
    let mut source = Recorded::new(source, recorder, rotate_signal()?);
    let taken = match pace.iterations {
        Some(_) => write_at_once(&mut source, &mut quiet, &mut out, pace, stop),
        None => batch::run(&mut source, &mut quiet, &mut out, pace, stop),
    };
    finish(source, args, taken)?;
    Ok(ran())
}

/// Writes a number of intervals without waiting for any.
fn write_at_once<S: Source + ?Sized>(
    source: &mut S,
    export: &mut (dyn Export + Send),
    out: &mut (dyn Write + Send),
    pace: Pace,
    stop: BorrowedFd<'_>,
) -> Result<u64> {
    source.focus(Focus { asked: export.asked(), ..Focus::default() });
    let mut begun = false;
    let next = |source: &mut S, _: &mut dyn Write| {
        let sample = source.next()?;
        if pace.hot && !begun {
            begun = true;
            source.set_hot(true)?;
        }
        Ok(sample)
    };
    let part = Part {
        from_wall_ns: None,
        to_wall_ns: None,
        iterations: pace.iterations,
        follow: false,
        grain: pace.grain,
        progress: false,
    };
    intervals(source, next, export, out, part, stop)
}
