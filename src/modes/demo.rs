//! A made-up machine instead of this one: on the screen, or as batch output.

use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::watch::{pace, rotate_signal};
use super::{ended, exporter, form, output, ran, stop_signals, tui_options, wants_batch};
use crate::batch::{self, Counted, Pace};
use crate::cli::{RecordLimits, ViewArgs};
use crate::export::Export;
use crate::options;
use crate::record::recorder::Recorder;
use crate::replay::write_interval;
use crate::say::Cleaned;
use crate::source::recorded::Recorded;
use crate::source::synthetic::demo::Demo;
use crate::source::{Focus, Source, poll};
use crate::tui::{self, TuiOptions};

pub(super) fn run(args: &ViewArgs, record: Option<&Path>, limits: &RecordLimits) -> Result<ExitCode> {
    options::check_node(args, &Demo::new().host().topology)?;
    options::check_hot(args, record.is_some())?;
    let recorder = || record.map(|path| Recorder::open(path, options::recording(limits, args))).transpose();
    if wants_batch(args) { batch(args, recorder) } else { live(args, recorder) }
}

fn live(args: &ViewArgs, recorder: impl FnOnce() -> Result<Option<Recorder>>) -> Result<ExitCode> {
    let options = TuiOptions { demo: true, ..tui_options(args)? };
    let recorder = recorder()?;
    let rotate = rotate_signal()?;
    let recorded = recorder.is_some();
    let start = move || {
        Ok(match recorder {
            Some(recorder) => Box::new(Recorded::new(Demo::new(), recorder, rotate)) as Box<dyn Source>,
            None => Box::new(Demo::new()),
        })
    };
    ended(tui::run(options, recorded, start)?)
}

fn batch(args: &ViewArgs, recorder: impl FnOnce() -> Result<Option<Recorder>>) -> Result<ExitCode> {
    let mut export = exporter(args)?;
    let stop = stop_signals()?;
    let mut out = Cleaned::new(io::BufWriter::with_capacity(64 * 1024, output(stop)?), form(args));
    let mut write = |source: &mut dyn Source| {
        write(source, export.as_mut(), &mut out, pace(args, Counted::Written), stop)
    };
    let mut source = match args.iterations {
        Some(_) => Demo::at_once(options::interval(args)),
        None => Demo::new(),
    };
    match recorder()? {
        Some(recorder) => {
            let mut source = Recorded::new(source, recorder, rotate_signal()?);
            let done = write(&mut source);
            source.finish()?;
            done?;
        }
        None => write(&mut source)?,
    }
    Ok(ran())
}

/// Writes intervals: a number of them at once, or in real time until a signal comes.
fn write(
    source: &mut dyn Source,
    export: &mut (dyn Export + Send),
    out: &mut (dyn Write + Send),
    pace: Pace,
    stop: BorrowedFd<'_>,
) -> Result<()> {
    let Some(intervals) = pace.iterations else { return batch::run(source, export, out, pace, stop) };
    source.focus(Focus { asked: export.asked(), ..Focus::default() });
    let Some(mut previous) = source.next()? else { return Ok(()) };
    if pace.hot {
        source.set_hot(true)?;
    }
    for _ in 0..intervals {
        if poll(&[stop], Instant::now()).context("looking for signals")?.is_some() {
            return Ok(());
        }
        let Some(mut current) = source.next()? else { return Ok(()) };
        current.notes.splice(..0, previous.notes.drain(..));
        let news = source.hot_news(Duration::ZERO)?;
        if !write_interval(export, out, &source.host(), &previous, &current, news, pace.grain)? {
            return Ok(());
        }
        current.notes.clear();
        previous = current;
    }
    Ok(())
}
