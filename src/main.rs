//! Which mode to run in, and how each ends.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use clap::Parser;

use numatop_ng::batch::{self, Pace};
use numatop_ng::cli::{
    BatchFormat, Cli, ColourArg, Command, ExportArgs, Listing, RecordLimits, ReportFormat, ViewArgs,
};
use numatop_ng::collect::libbpf_log;
use numatop_ng::error::{self, Exit, Refusal};
use numatop_ng::export::{
    Export, csv::Csv, json::JsonLines, quiet::Quiet, rfc3339, stoppable::Stoppable, text::Text,
};
use numatop_ng::host::topology::Topology;
use numatop_ng::host::users;
use numatop_ng::options::{self, BadValue};
use numatop_ng::pmu::open::try_event;
use numatop_ng::record::recorder::Recorder;
use numatop_ng::record::verify;
use numatop_ng::replay::{self, Part};
use numatop_ng::snapshot::Grain;
use numatop_ng::source::Source;
use numatop_ng::source::live::{LiveOptions, LiveSource};
use numatop_ng::source::recorded::Recorded;
use numatop_ng::source::recording::{self, Recording};
use numatop_ng::tui::{self, ColourChoice, Ended, TuiOptions};
use numatop_ng::{doctor, events_cmd, topology_cmd};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are errors to clap, but not to the user.
            let code = if error.use_stderr() { Exit::Usage } else { Exit::Ok };
            // A closed stdout or stderr leaves nobody to tell.
            let _ = error.print();
            return code.into();
        }
    };
    libbpf_log::keep();
    match run(&cli) {
        Ok(code) => code,
        Err(error) => {
            let exit = match (error.downcast_ref::<BadValue>(), error.downcast_ref::<Refusal>()) {
                (Some(_), _) => Exit::Usage,
                (_, Some(refusal)) => refusal.exit,
                _ => Exit::CouldNotMeasure,
            };
            eprintln!("numatop-ng: {error:#}");
            exit.into()
        }
    }
}

fn run(cli: &Cli) -> Result<ExitCode> {
    match &cli.command {
        Some(Command::Doctor { format }) => doctor(*format),
        Some(Command::Topology { format }) => topology(*format),
        Some(Command::List { what, pmu_dir }) => list(*what, pmu_dir.as_deref()),
        Some(Command::Record { path, limits, view }) => record(path, limits, view),
        Some(Command::Replay { path, at, follow, view }) => replay(path, at.as_deref(), *follow, view),
        Some(Command::Export(args)) => export(args),
        Some(Command::Verify { paths }) => verify(paths),
        None if wants_batch(&cli.view) => batch(&cli.view, cli.record.as_deref(), &cli.limits),
        None => live(&cli.view, cli.record.as_deref(), &cli.limits),
    }
}

fn wants_batch(args: &ViewArgs) -> bool {
    args.batch || args.format.is_some() || !io::stdout().is_terminal()
}

fn batch(args: &ViewArgs, record: Option<&Path>, limits: &RecordLimits) -> Result<ExitCode> {
    let mut export = exporter(args)?;
    let mut live = options::live(args, &users::read(Path::new("/")), record.is_some())?;
    // A list of tasks has nothing of a cgroup but its name.
    live.group_limits = record.is_some() || args.by_container || args.format == Some(BatchFormat::Json);
    let stop = stop_signals()?;
    let recorder = record.map(|path| Recorder::open(path, options::recording(limits, args))).transpose()?;
    let rotate = rotate_signal()?;
    let mut source = start(live)?;
    let mut out = io::BufWriter::with_capacity(64 * 1024, output(&stop)?);
    match recorder {
        Some(recorder) => {
            let mut source = Recorded::new(source, recorder, rotate);
            let ran = batch::run(&mut source, export.as_mut(), &mut out, pace(args), stop.as_raw_fd());
            source.finish()?;
            ran?;
        }
        None => batch::run(&mut source, export.as_mut(), &mut out, pace(args), stop.as_raw_fd())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Standard output, whose reader may keep us waiting until `stop` is readable. Not `io::stdout()`, which buffers.
fn output(stop: &impl AsRawFd) -> Result<Stoppable<File>> {
    let out =
        io::stdout().as_fd().try_clone_to_owned().context("copying the descriptor of standard output")?;
    Ok(Stoppable::new(out.into(), stop.as_raw_fd()))
}

fn live(args: &ViewArgs, record: Option<&Path>, limits: &RecordLimits) -> Result<ExitCode> {
    let mut live = options::live(args, &users::read(Path::new("/")), false)?;
    live.sets = options::event_sets(args)?;
    let recorder = record.map(|path| Recorder::open(path, options::recording(limits, args))).transpose()?;
    let rotate = rotate_signal()?;
    let options = TuiOptions { sets: live.sets.clone(), ..tui_options(args)? };
    let start = move || {
        let source = start(live)?;
        Ok(match recorder {
            Some(recorder) => Box::new(Recorded::new(source, recorder, rotate)) as Box<dyn Source>,
            None => Box::new(source),
        })
    };
    ended(tui::run(options, start)?)
}

/// The screen, as it was asked for.
fn tui_options(args: &ViewArgs) -> Result<TuiOptions> {
    Ok(TuiOptions {
        interval: options::interval(args),
        iterations: args.iterations,
        columns: options::columns(args)?,
        sort: options::sort(args)?,
        threads: options::grain(args) == Grain::Threads,
        filter: options::filter(args)?,
        mouse: !args.no_mouse,
        colour: match args.color {
            ColourArg::Auto => ColourChoice::Auto,
            ColourArg::Always => ColourChoice::Always,
            ColourArg::Never => ColourChoice::Never,
        },
        ascii: args.ascii,
        sets: Vec::new(),
    })
}

fn ended(ended: Ended) -> Result<ExitCode> {
    match ended {
        Ended::Quit => Ok(ExitCode::SUCCESS),
        // As a shell reports it: 128 plus the number, which is below 32.
        Ended::Signal(signal) => Ok(ExitCode::from(128 + signal as u8)),
    }
}

/// The writer of `--format`, with its choice of rows and columns.
fn exporter(args: &ViewArgs) -> Result<Box<dyn Export>> {
    let format = args.format.unwrap_or(BatchFormat::Text);
    Ok(match format {
        // JSON has tasks and containers both.
        BatchFormat::Json => Box::new(JsonLines::new(options::selection(args, true)?)),
        BatchFormat::Text if args.by_container => {
            Box::new(Text::new(options::container_selection(args, false)?))
        }
        BatchFormat::Text => Box::new(Text::new(options::selection(args, false)?)),
        BatchFormat::Csv if args.by_container => {
            Box::new(Csv::new(options::container_selection(args, true)?))
        }
        BatchFormat::Csv => Box::new(Csv::new(options::selection(args, true)?)),
    })
}

/// How often, how long, and what beside the rows.
fn pace(args: &ViewArgs) -> Pace {
    Pace {
        interval: options::interval(args),
        iterations: args.iterations,
        grain: options::grain(args),
        hot: args.hot,
        overhead: args.overhead,
    }
}

/// Records without showing anything; what there is to say goes to standard error, once.
fn record(path: &Path, limits: &RecordLimits, args: &ViewArgs) -> Result<ExitCode> {
    let live = options::live(args, &users::read(Path::new("/")), true)?;
    let stop = stop_signals()?;
    let recorder = Recorder::open(path, options::recording(limits, args))?;
    // Before the start, which takes a moment: without a handler the signal would end us.
    let rotate = rotate_signal()?;
    let mut source = Recorded::new(start(live)?, recorder, rotate);
    let ran = batch::run(&mut source, &mut Quiet::default(), &mut io::stderr(), pace(args), stop.as_raw_fd());
    source.finish()?;
    ran.map(|()| ExitCode::SUCCESS)
}

fn replay(path: &Path, at: Option<&str>, follow: bool, args: &ViewArgs) -> Result<ExitCode> {
    options::check_replay(args)?;
    let mut recording = Recording::open(path)?;
    let span = recording.span().unwrap_or_default();
    let at = options::moment("--at", at, span)?;
    if !wants_batch(args) {
        let begin = if follow { span.1 } else { span.0 };
        return ended(tui::replay(tui_options(args)?, recording, span, at.unwrap_or(begin), follow)?);
    }
    let mut export = exporter(args)?;
    let part = Part {
        from_wall_ns: at,
        to_wall_ns: None,
        iterations: args.iterations,
        follow,
        grain: options::grain(args),
    };
    let stop = stop_signals()?;
    let mut out = io::BufWriter::with_capacity(64 * 1024, output(&stop)?);
    let written = replay::run(&mut recording, export.as_mut(), &mut out, part, stop.as_raw_fd())?;
    Ok(if written > 0 || follow { ExitCode::SUCCESS } else { nothing_there(path, span) })
}

fn export(args: &ExportArgs) -> Result<ExitCode> {
    let view = args.view();
    let mut export = exporter(&view)?;
    let mut recording = Recording::open(&args.path)?;
    let span = recording.span().unwrap_or_default();
    let (from_wall_ns, to_wall_ns) = options::stretch(args.from.as_deref(), args.to.as_deref(), span)?;
    let part =
        Part { from_wall_ns, to_wall_ns, iterations: None, follow: false, grain: options::grain(&view) };
    let stop = stop_signals()?;
    let sink: Box<dyn Write> = match &args.output {
        Some(path) => Box::new(File::create_new(path).with_context(|| {
            format!("making {}, which must be a new file in a directory that exists", path.display())
        })?),
        None => Box::new(output(&stop)?),
    };
    let mut out = io::BufWriter::with_capacity(64 * 1024, sink);
    let written = replay::run(&mut recording, export.as_mut(), &mut out, part, stop.as_raw_fd())?;
    Ok(if written > 0 { ExitCode::SUCCESS } else { nothing_there(&args.path, span) })
}

/// Says that no interval of a recording, which lasts from the first to the second of `span`, was asked for.
fn nothing_there(path: &Path, (first, last): (i64, i64)) -> ExitCode {
    let (path, first, last) = (path.display(), rfc3339(first), rfc3339(last));
    eprintln!("numatop-ng: {path} has no interval in that time; its samples are from {first} to {last}");
    Exit::CouldNotMeasure.into()
}

fn verify(paths: &[PathBuf]) -> Result<ExitCode> {
    let mut exit = Exit::Ok;
    for path in paths {
        for file in recording::files_of(path)? {
            match verify::verify(&file) {
                Ok(report) => {
                    print(&report.to_string())?;
                    if !report.is_intact() {
                        exit = Exit::CouldNotMeasure;
                    }
                }
                Err(error) => {
                    print(&format!("{}: unreadable\n  {error:#}\n", file.display()))?;
                    exit = Exit::CouldNotMeasure;
                }
            }
        }
    }
    Ok(exit.into())
}

/// Set at SIGUSR1: the recording goes on in a new file.
fn rotate_signal() -> Result<Arc<AtomicBool>> {
    let rotate = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(libc::SIGUSR1, Arc::clone(&rotate)).context("catching SIGUSR1")?;
    Ok(rotate)
}

/// The live source, or a refusal that says what stands in the way on this host.
fn start(options: LiveOptions) -> Result<LiveSource> {
    LiveSource::start(options).map_err(|error| error::explain(&error, &doctor::check()).into())
}

fn doctor(format: ReportFormat) -> Result<ExitCode> {
    let report = doctor::Report::gather();
    print(&match format {
        ReportFormat::Text => doctor::render_text(&report, terminal_width()),
        ReportFormat::Json => format!("{:#}\n", doctor::render_json(&report)),
    })?;
    Ok(report.exit().into())
}

/// Becomes readable at SIGINT, SIGTERM or SIGHUP.
fn stop_signals() -> Result<OwnedFd> {
    let (read, write) = UnixStream::pair().context("making a pair of sockets for signals")?;
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        signal_hook::low_level::pipe::register(signal, write.try_clone()?).context("catching signals")?;
    }
    Ok(read.into())
}

fn topology(format: ReportFormat) -> Result<ExitCode> {
    let topology = Topology::read(Path::new("/"))?;
    print(&match format {
        ReportFormat::Text => topology_cmd::render_text(&topology, terminal_width()),
        ReportFormat::Json => format!("{:#}\n", topology_cmd::render_json(&topology)),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Columns of the terminal on standard output; 80 when it is something else.
fn terminal_width() -> usize {
    const DEFAULT: u16 = 80;
    if !io::stdout().is_terminal() {
        return DEFAULT.into();
    }
    ratatui::crossterm::terminal::size().map_or(DEFAULT, |(columns, _)| columns.max(40)).into()
}

fn list(what: Listing, pmu_dir: Option<&Path>) -> Result<ExitCode> {
    let mut text = String::new();
    match what {
        Listing::Metrics => {
            for metric in numatop_ng::metric::task::TASK_METRICS {
                text.push_str(&format!("{:24} {}\n", metric.id, metric.help));
            }
        }
        Listing::Events => {
            let root = Path::new("/");
            let catalog = options::catalog(root, pmu_dir)?;
            let choose = |set: &str| options::choose(root, &catalog, set).unwrap_or_default();
            let budget = options::budget(root, &catalog);
            text = events_cmd::render_text(&catalog, budget, &try_event, &choose, terminal_width());
        }
    }
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes to standard output; a reader that has gone away is no error.
fn print(text: &str) -> Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("writing to standard output"),
    }
}
