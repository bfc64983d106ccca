//! Watching this machine: on the screen, as batch output, or only into a recording.

use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result};

use super::{ended, exporter, messages, ran, standard_output, stop_signals, tui_options};
use crate::cli::{LiveArgs, RecordArgs, RecordLimits};
use crate::export::Quiet;
use crate::metric::needs::Demand;
use crate::program::output::{self, Cleaned};
use crate::record::recorder::Recorder;
use crate::run::batch::{self, Counted, Pace};
use crate::source::Source;
use crate::source::live::{LiveOptions, LiveSource};
use crate::source::recorded::Recorded;
use crate::text::plural;
use crate::tui::{self, TuiOptions};
use crate::{doctor, error, options};

pub(super) fn batch(args: &LiveArgs) -> Result<ExitCode> {
    let format = options::batch_format(&args.output)?;
    let mut export = exporter(format, &args.display)?;
    let kept = args.record.is_some();
    options::check_places(format, args.watch.hot.hot, args.overhead, kept)?;
    let mut live = live_options(args)?;
    // A list of tasks has nothing of a cgroup but its name.
    live.group_limits = kept || args.display.by_container || format.has_both();
    if !kept {
        live.demand = export.demand();
    }
    let stop = stop_signals()?;
    let recorder = recorder(args)?;
    let rotate = rotate_signal()?;
    let source = start(live)?;
    let mut out = Cleaned::new(io::BufWriter::with_capacity(64 * 1024, standard_output(stop)?), format.form);
    let pace = pace(args);
    recorded(source, recorder, rotate, |source| {
        batch::run(source, export.as_mut(), &mut out, pace, stop).map(drop)
    })?;
    Ok(ran())
}

/// Runs with a source. With a recorder its samples go through that, and it is ended whatever the result of
/// the run.
pub(super) fn recorded(
    mut source: impl Source,
    recorder: Option<Recorder>,
    rotate: Arc<AtomicBool>,
    run: impl FnOnce(&mut dyn Source) -> Result<()>,
) -> Result<()> {
    let Some(recorder) = recorder else { return run(&mut source) };
    let mut source = Recorded::new(source, recorder, rotate);
    let done = run(&mut source);
    source.finish()?;
    done
}

pub(super) fn live(args: &LiveArgs) -> Result<ExitCode> {
    // On the screen, stacks are sampled while hot spots are shown, with or without a recording.
    options::check_places(options::batch_format(&args.output)?, args.watch.hot.hot, args.overhead, false)?;
    let mut live = live_options(args)?;
    live.sets = options::event_sets(&args.watch.measure.counters.tables)?;
    let recorder = recorder(args)?;
    let rotate = rotate_signal()?;
    let recorded = recorder.is_some();
    let mut options = screen(args)?;
    if !recorded {
        let (columns, sort) = (&options.view.columns, options.view.sort.map(|(metric, _)| metric));
        live.demand = Demand::screen(columns.iter().flatten().chain(&sort));
    }
    options.view.sets = live.sets.clone();
    options.view.access = args.access;
    options.view.sampling = !args.no_access;
    options.view.findings = findings_wanted();
    let access = args.access;
    let start = move || {
        let mut source = start(live)?;
        if access {
            source.set_access(true)?;
        }
        Ok(match recorder {
            Some(recorder) => Box::new(Recorded::new(source, recorder, rotate)) as Box<dyn Source>,
            None => Box::new(source),
        })
    };
    ended(tui::run(options, recorded, start)?)
}

/// The pace of a recording that nothing is shown of.
pub(super) fn recording_pace(args: &RecordArgs) -> Pace {
    Pace {
        interval: args.watch.measure.interval(),
        iterations: args.count.iterations,
        counted: Counted::Taken,
        grain: options::grain(false, Some(&args.watch.scope)),
        hot: args.watch.hot.hot,
        access: args.access,
        overhead: false,
        findings: true,
        progress: true,
    }
}

/// Prints the place of the recording, on a terminal.
pub(super) fn say_recording(args: &RecordArgs) {
    if output::is_on_terminal() {
        let end = match args.count.iterations {
            Some(count) => {
                format!("for {}", plural(usize::try_from(count).unwrap_or(usize::MAX), "interval"))
            }
            None => "until Ctrl-C".into(),
        };
        output::message(format!("numatop-ng: recording to {}, {end}", args.path.display()));
    }
}

/// Ends a recording of this many intervals, and prints its size and place, on a terminal.
///
/// # Errors
/// See [`Recorded::finish`].
pub(super) fn finish(source: Recorded<impl Source>, args: &RecordArgs, taken: Result<u64>) -> Result<()> {
    let progress = source.recording();
    source.finish()?;
    let intervals = plural(usize::try_from(taken?).unwrap_or(usize::MAX), "interval");
    if let Some(progress) = progress.filter(|_| output::is_on_terminal()) {
        let path = match (&progress.file, args.path.is_dir()) {
            (Some(name), true) => args.path.join(name),
            _ => args.path.clone(),
        };
        output::message(format!(
            "numatop-ng: recorded {intervals}, {}, {}",
            batch::size(progress.bytes),
            path.display()
        ));
    }
    Ok(())
}

/// Records without a screen; messages go to standard error, once.
pub(super) fn record(args: &RecordArgs) -> Result<ExitCode> {
    if args.demo {
        return super::demo::record(args);
    }
    let live = options::live(&args.watch)?;
    let interval = args.watch.measure.interval();
    let stop = stop_signals()?;
    let recorder = Recorder::open(&args.path, options::recording(&args.limits, &args.path, interval)?)?;
    let rotate = rotate_signal()?;
    let source = start(live)?;
    let mut out = messages()?;
    let pace = recording_pace(args);
    say_recording(args);
    let mut source = Recorded::new(source, recorder, rotate);
    let taken = batch::run(&mut source, &mut Quiet::default(), &mut out, pace, stop);
    finish(source, args, taken)?;
    Ok(ran())
}

/// Options of the live source, as they were asked for.
fn live_options(args: &LiveArgs) -> Result<LiveOptions> {
    let live = options::live(&args.watch)?;
    // The live source reports why the topology is missing.
    if let Ok(topology) = crate::host::topology::read(live.roots().machine) {
        options::check_node(&args.display, &topology)?;
    }
    Ok(live)
}

/// The recording beside the view or batch output.
pub(super) fn recorder(args: &LiveArgs) -> Result<Option<Recorder>> {
    recorder_at(args.record.as_deref(), &args.limits, args.watch.measure.interval())
}

/// A recording at `path`, where one is asked for.
pub(super) fn recorder_at(
    path: Option<&Path>,
    limits: &RecordLimits,
    interval: Duration,
) -> Result<Option<Recorder>> {
    let open = |path| Recorder::open(path, options::recording(limits, path, interval)?);
    path.map(open).transpose()
}

/// The screen, as it was asked for.
pub(super) fn screen(args: &LiveArgs) -> Result<TuiOptions> {
    let grain = options::grain(args.display.threads, Some(&args.watch.scope));
    let mut options = tui_options(&args.display, &args.screen, grain)?;
    options.view.interval = args.watch.measure.interval();
    options.iterations = args.output.count.iterations;
    Ok(options)
}

/// Whether findings are looked for. The benchmark that measures what they cost leaves them out; for people that would be a way
/// to miss them.
fn findings_wanted() -> bool {
    std::env::var_os("NUMATOP_NG_FINDINGS").is_none_or(|value| value != "off")
}

/// Length and number of intervals, and the measurements beside the rows.
pub(super) fn pace(args: &LiveArgs) -> Pace {
    Pace {
        interval: args.watch.measure.interval(),
        iterations: args.output.count.iterations,
        counted: Counted::Written,
        grain: options::grain(args.display.threads, Some(&args.watch.scope)),
        hot: args.watch.hot.hot,
        access: args.access,
        overhead: args.overhead,
        findings: findings_wanted(),
        progress: false,
    }
}

/// Set at SIGUSR1: the recording continues in a new file.
pub(super) fn rotate_signal() -> Result<Arc<AtomicBool>> {
    let rotate = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(libc::SIGUSR1, Arc::clone(&rotate)).context("catching SIGUSR1")?;
    Ok(rotate)
}

/// The live source, or a refusal that names the obstacle on this host.
pub(super) fn start(options: LiveOptions) -> Result<LiveSource> {
    let host_root = options.host_root.clone();
    LiveSource::start(options)
        .map_err(|error| error::explain(&error, &doctor::check(host_root.as_deref())).into())
}
