//! Which mode runs, and how it ends: what was typed becomes a source and a place to show it.

mod about;
mod demo;
mod recordings;
mod watch;

use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::cli::{BatchFormat, Cli, ColourArg, Command, ViewArgs};
use crate::export::{Export, csv::Csv, json::JsonLines, stoppable::Stoppable, text::Text};
use crate::options;
use crate::say::{self, Form, Notes};
use crate::signals;
use crate::snapshot::Grain;
use crate::tui::action::Screen;
use crate::tui::{ColourChoice, Ended, TuiOptions};

/// Does what was asked for. The exit code is that of a run that went well or found nothing.
///
/// # Errors
/// What stood in the way: a [`options::BadValue`], a [`crate::error::Refusal`], or anything else.
pub fn run(cli: &Cli) -> Result<ExitCode> {
    if let Some(
        Command::Doctor { .. } | Command::Topology { .. } | Command::List { .. } | Command::Verify { .. },
    ) = &cli.command
    {
        signals::release();
    }
    match &cli.command {
        Some(Command::Doctor { format }) => about::doctor(*format),
        Some(Command::Topology { format }) => about::topology(*format),
        Some(Command::List { what, pmu_dir }) => about::list(*what, pmu_dir.as_deref()),
        Some(Command::Record { path, limits, view }) => watch::record(path, limits, view),
        Some(Command::Replay { path, at, follow, view }) => {
            recordings::replay(path, at.as_deref(), *follow, view)
        }
        Some(Command::Export(args)) => recordings::export(args),
        Some(Command::Verify { paths }) => recordings::verify(paths),
        None if cli.demo => demo::run(&cli.view, cli.record.as_deref(), &cli.limits),
        None if wants_batch(&cli.view) => watch::batch(&cli.view, cli.record.as_deref(), &cli.limits),
        None => watch::live(&cli.view, cli.record.as_deref(), &cli.limits),
    }
}

fn wants_batch(args: &ViewArgs) -> bool {
    args.batch || args.format.is_some() || !io::stdout().is_terminal()
}

/// The screen, as it was asked for.
fn tui_options(args: &ViewArgs) -> Result<TuiOptions> {
    Ok(TuiOptions {
        interval: options::interval(args),
        iterations: args.iterations,
        columns: options::columns(args)?,
        sort: options::sort(args)?,
        threads: options::grain(args) == Grain::Threads,
        screen: if args.by_container { Screen::Containers } else { Screen::Tasks },
        filter: options::filter(args)?,
        mouse: !args.no_mouse,
        colour: match args.color {
            ColourArg::Auto => ColourChoice::Auto,
            ColourArg::Always => ColourChoice::Always,
            ColourArg::Never => ColourChoice::Never,
        },
        ascii: args.ascii,
        sets: Vec::new(),
        demo: false,
    })
}

fn ended(ended: Ended) -> Result<ExitCode> {
    match ended {
        Ended::Quit => Ok(ExitCode::SUCCESS),
        Ended::Signal(signal) => Ok(signals::exit_code(signal).into()),
    }
}

/// The exit code of a run without a screen: that of a run that went well, unless a signal ended it that is not there to
/// end programs.
fn ran() -> ExitCode {
    match signals::ended_by() {
        None | Some(libc::SIGINT | libc::SIGQUIT | libc::SIGTERM | libc::SIGHUP) => ExitCode::SUCCESS,
        Some(signal) => signals::exit_code(signal).into(),
    }
}

/// The writer of `--format`, with its choice of rows and columns.
fn exporter(args: &ViewArgs) -> Result<Box<dyn Export + Send>> {
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

/// How what [`exporter`] writes is kept harmless to a terminal.
fn form(args: &ViewArgs) -> Form {
    match args.format.unwrap_or(BatchFormat::Text) {
        BatchFormat::Text => Form::Text,
        BatchFormat::Csv => Form::Csv,
        BatchFormat::Json => Form::Json,
    }
}

/// Becomes readable at a signal that ends the program.
fn stop_signals() -> Result<BorrowedFd<'static>> {
    signals::stop().context("signals are not caught")
}

/// Standard output, whose reader may keep us waiting until `stop` is readable. Not `io::stdout()`, which buffers.
fn output(stop: BorrowedFd<'_>) -> Result<Stoppable<'_, File>> {
    let out =
        io::stdout().as_fd().try_clone_to_owned().context("copying the descriptor of standard output")?;
    Ok(Stoppable::new(out.into(), stop))
}

/// Standard error for notes, whose reader keeps nothing waiting.
fn messages() -> Result<Notes<File>> {
    let err = say::descriptor().context("copying the descriptor of standard error")?;
    Ok(Notes::new(err.into()))
}

/// Columns of the terminal on standard output; 80 when it is something else.
fn terminal_width() -> usize {
    const DEFAULT: u16 = 80;
    if !io::stdout().is_terminal() {
        return DEFAULT.into();
    }
    ratatui::crossterm::terminal::size().map_or(DEFAULT, |(columns, _)| columns.max(40)).into()
}

/// Writes a report to standard output.
fn print(text: &str, form: Form) -> Result<()> {
    say::report(text, form).context("writing to standard output")
}
