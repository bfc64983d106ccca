//! Watching this machine: on the screen, as batch output, or only into a recording.

use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};

use super::{ended, exporter, form, messages, output, ran, stop_signals, tui_options};
use crate::batch::{self, Counted, Pace};
use crate::cli::{BatchFormat, RecordLimits, ViewArgs};
use crate::export::quiet::Quiet;
use crate::host::users;
use crate::record::recorder::Recorder;
use crate::say::Cleaned;
use crate::source::Source;
use crate::source::live::{LiveOptions, LiveSource};
use crate::source::recorded::Recorded;
use crate::tui::{self, TuiOptions};
use crate::{doctor, error, options};

pub(super) fn batch(args: &ViewArgs, record: Option<&Path>, limits: &RecordLimits) -> Result<ExitCode> {
    let mut export = exporter(args)?;
    let mut live = options::live(args, &users::read(Path::new("/")), record.is_some())?;
    // A list of tasks has nothing of a cgroup but its name.
    live.group_limits = record.is_some() || args.by_container || args.format == Some(BatchFormat::Json);
    if record.is_none() {
        live.demand = export.demand();
    }
    let stop = stop_signals()?;
    let recorder = record.map(|path| Recorder::open(path, options::recording(limits, args))).transpose()?;
    let rotate = rotate_signal()?;
    let mut source = start(live)?;
    let mut out = Cleaned::new(io::BufWriter::with_capacity(64 * 1024, output(stop)?), form(args));
    let pace = pace(args, Counted::Written);
    match recorder {
        Some(recorder) => {
            let mut source = Recorded::new(source, recorder, rotate);
            let done = batch::run(&mut source, export.as_mut(), &mut out, pace, stop);
            source.finish()?;
            done?;
        }
        None => batch::run(&mut source, export.as_mut(), &mut out, pace, stop)?,
    }
    Ok(ran())
}

pub(super) fn live(args: &ViewArgs, record: Option<&Path>, limits: &RecordLimits) -> Result<ExitCode> {
    let mut live = options::live(args, &users::read(Path::new("/")), false)?;
    live.sets = options::event_sets(args)?;
    let recorder = record.map(|path| Recorder::open(path, options::recording(limits, args))).transpose()?;
    let rotate = rotate_signal()?;
    let recorded = recorder.is_some();
    let options = TuiOptions { sets: live.sets.clone(), ..tui_options(args)? };
    let start = move || {
        let source = start(live)?;
        Ok(match recorder {
            Some(recorder) => Box::new(Recorded::new(source, recorder, rotate)) as Box<dyn Source>,
            None => Box::new(source),
        })
    };
    ended(tui::run(options, recorded, start)?)
}

/// Records without showing anything; what there is to say goes to standard error, once.
pub(super) fn record(path: &Path, limits: &RecordLimits, args: &ViewArgs) -> Result<ExitCode> {
    let live = options::live(args, &users::read(Path::new("/")), true)?;
    let stop = stop_signals()?;
    let recorder = Recorder::open(path, options::recording(limits, args))?;
    let rotate = rotate_signal()?;
    let mut source = Recorded::new(start(live)?, recorder, rotate);
    let mut out = messages()?;
    let pace = pace(args, Counted::Taken);
    let done = batch::run(&mut source, &mut Quiet::default(), &mut out, pace, stop);
    source.finish()?;
    done.map(|()| ran())
}

/// How often, how long, and what beside the rows.
pub(super) fn pace(args: &ViewArgs, counted: Counted) -> Pace {
    Pace {
        interval: options::interval(args),
        iterations: args.iterations,
        counted,
        grain: options::grain(args),
        hot: args.hot,
        overhead: args.overhead,
    }
}

/// Set at SIGUSR1: the recording goes on in a new file.
pub(super) fn rotate_signal() -> Result<Arc<AtomicBool>> {
    let rotate = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(libc::SIGUSR1, Arc::clone(&rotate)).context("catching SIGUSR1")?;
    Ok(rotate)
}

/// The live source, or a refusal that says what stands in the way on this host.
fn start(options: LiveOptions) -> Result<LiveSource> {
    LiveSource::start(options).map_err(|error| error::explain(&error, &doctor::check()).into())
}
