//! Which mode to run in, and how each ends.

use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;

use numatop_ng::batch::{self, Pace};
use numatop_ng::cli::{BatchFormat, Cli, ColourArg, Command, Listing, ReportFormat, ViewArgs};
use numatop_ng::collect::libbpf_log;
use numatop_ng::error::{self, Exit, Refusal};
use numatop_ng::export::{Export, csv::Csv, json::JsonLines, text::Text};
use numatop_ng::host::topology::Topology;
use numatop_ng::host::users;
use numatop_ng::options::{self, BadValue};
use numatop_ng::pmu::open::try_event;
use numatop_ng::snapshot::Grain;
use numatop_ng::source::live::{LiveOptions, LiveSource};
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
        None if cli.view.batch || cli.view.format.is_some() || !io::stdout().is_terminal() => {
            batch(&cli.view)
        }
        None => live(&cli.view),
    }
}

fn batch(args: &ViewArgs) -> Result<ExitCode> {
    let format = args.format.unwrap_or(BatchFormat::Text);
    let selection = options::selection(args, format != BatchFormat::Text)?;
    let live = options::live(args, &users::read(Path::new("/")))?;
    let mut export: Box<dyn Export> = match format {
        BatchFormat::Text => Box::new(Text::new(selection)),
        BatchFormat::Json => Box::new(JsonLines::new(selection)),
        BatchFormat::Csv => Box::new(Csv::new(selection)),
    };
    let pace =
        Pace { interval: options::interval(args), iterations: args.iterations, grain: options::grain(args) };
    let stop = stop_signals()?;
    let mut source = start(live)?;
    let mut out = io::BufWriter::with_capacity(64 * 1024, io::stdout().lock());
    batch::run(&mut source, export.as_mut(), &mut out, pace, stop.as_raw_fd())?;
    Ok(ExitCode::SUCCESS)
}

fn live(args: &ViewArgs) -> Result<ExitCode> {
    let options = TuiOptions {
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
    };
    let live = options::live(args, &users::read(Path::new("/")))?;
    match tui::run(options, move || Ok(Box::new(start(live)?)))? {
        Ended::Quit => Ok(ExitCode::SUCCESS),
        // As a shell reports it: 128 plus the number, which is below 32.
        Ended::Signal(signal) => Ok(ExitCode::from(128 + signal as u8)),
    }
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
