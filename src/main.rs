//! Which mode to run in, and how each ends.

use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;

use numatop_ng::batch::{self, Pace};
use numatop_ng::cli::{BatchFormat, Cli, Command, Listing, ReportFormat, ViewArgs};
use numatop_ng::export::{Export, csv::Csv, json::JsonLines, text::Text};
use numatop_ng::host::topology::Topology;
use numatop_ng::host::users;
use numatop_ng::options::{self, BadValue};
use numatop_ng::source::live::LiveSource;
use numatop_ng::topology_cmd;

/// Exit codes, as the manual lists them.
const USAGE: u8 = 2;
const FAILED: u8 = 1;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are errors to clap, but not to the user.
            let code = if error.use_stderr() { USAGE } else { 0 };
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    match run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let code = if error.is::<BadValue>() { USAGE } else { FAILED };
            eprintln!("numatop-ng: {error:#}");
            ExitCode::from(code)
        }
    }
}

fn run(cli: &Cli) -> Result<()> {
    match &cli.command {
        Some(Command::Topology { format }) => topology(*format),
        Some(Command::List { what }) => list(*what),
        Some(Command::Doctor { .. }) => unimplemented!(),
        None => batch(&cli.view),
    }
}

fn batch(args: &ViewArgs) -> Result<()> {
    let selection = options::selection(args, args.format != BatchFormat::Text)?;
    let live = options::live(args, &users::read(Path::new("/")))?;
    let mut export: Box<dyn Export> = match args.format {
        BatchFormat::Text => Box::new(Text::new(selection)),
        BatchFormat::Json => Box::new(JsonLines::new(selection)),
        BatchFormat::Csv => Box::new(Csv::new(selection)),
    };
    let pace =
        Pace { interval: options::interval(args), iterations: args.iterations, grain: options::grain(args) };
    let stop = stop_signals()?;
    let mut source = LiveSource::start(live)?;
    let mut out = io::BufWriter::with_capacity(64 * 1024, io::stdout().lock());
    batch::run(&mut source, export.as_mut(), &mut out, pace, stop.as_raw_fd())
}

/// Becomes readable at SIGINT, SIGTERM or SIGHUP.
fn stop_signals() -> Result<OwnedFd> {
    let (read, write) = UnixStream::pair().context("making a pair of sockets for signals")?;
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        signal_hook::low_level::pipe::register(signal, write.try_clone()?).context("catching signals")?;
    }
    Ok(read.into())
}

fn topology(format: ReportFormat) -> Result<()> {
    let topology = Topology::read(Path::new("/"))?;
    let text = match format {
        ReportFormat::Text => topology_cmd::render_text(&topology, 80),
        ReportFormat::Json => format!("{:#}\n", topology_cmd::render_json(&topology)),
    };
    print(&text)
}

fn list(what: Listing) -> Result<()> {
    let mut text = String::new();
    match what {
        Listing::Metrics => {
            for metric in numatop_ng::metric::task::TASK_METRICS {
                text.push_str(&format!("{:24} {}\n", metric.id, metric.help));
            }
        }
        Listing::Events => {
            for event in numatop_ng::pmu::event::Event::all() {
                let state = match numatop_ng::pmu::open::try_event(&event) {
                    Ok(()) => "works here".to_string(),
                    Err(why) => why.to_string(),
                };
                text.push_str(&format!("{:20} {state}\n", event.name));
            }
        }
    }
    print(&text)
}

/// Writes to standard output; a reader that has gone away is no error.
fn print(text: &str) -> Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("writing to standard output"),
    }
}
