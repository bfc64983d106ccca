//! Modes of the program, and how each ends: the command line becomes a source and a place to show it.

mod about;
pub mod batch;
mod calibrate;
mod command;
mod demo;
mod destination;
mod diagnose;
mod diff;
mod pipeline;
mod prometheus;
mod recordings;
pub mod replay;
mod report;
mod selftest;
mod settings;
#[cfg(feature = "parquet")]
mod tables;
mod traces;
mod watch;

use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::BorrowedFd;
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::calibrate::child as measuring;
use crate::cli::{Cli, ColourArg, Command, DisplayArgs, OutputArgs, ScreenArgs, ThemeArg};
use crate::collect::mm_reader;
use crate::container::asked;
use crate::export::{Format, Writer};
use crate::host::clock;
use crate::program::interruptible::{self, Interruptible};
use crate::program::output::{self, Form, Notes};
use crate::program::{asked_file, launch, signals};
use crate::snapshot::RowKind;
use crate::tui::input::ScreenId;
use crate::tui::update::Settings;
use crate::tui::{ColourChoice, Ended, Limits, Palette, TuiOptions};
use crate::{options, symbolize};

/// Executes the command. The exit code is that of a run that went well or found nothing.
///
/// # Errors
/// The obstacle: a [`options::BadValue`], a [`crate::error::Refusal`], or anything else.
pub fn run(cli: &Cli) -> Result<ExitCode> {
    if let Some(
        Command::Doctor { .. }
        | Command::Topology { .. }
        | Command::List { .. }
        | Command::Verify { .. }
        | Command::Generate { .. },
    ) = &cli.command
    {
        signals::release();
    }
    let chosen = settings::applied(cli);
    let cli = chosen.as_ref().unwrap_or(cli);
    match &cli.command {
        Some(Command::Doctor { format, all, host }) => {
            about::doctor(*format, *all, options::host_root(host)?.as_deref())
        }
        Some(Command::Topology { format, host, profile }) => about::topology(
            *format,
            options::host_root(host)?.as_deref(),
            &options::machine_profile(profile)?,
        ),
        Some(Command::List { what }) => about::list(what),
        Some(Command::Record(args)) => watch::record(args),
        Some(Command::Run(args)) => command::run(args),
        Some(Command::Exporter(args)) => prometheus::run(args),
        Some(Command::Replay(args)) => recordings::replay(args),
        Some(Command::Export(args)) => recordings::export(args),
        Some(Command::Verify { paths }) => recordings::verify(paths),
        Some(Command::Diagnose(args)) => diagnose::run(args),
        Some(Command::Diff(args)) => diff::run(args),
        Some(Command::Report(args)) => report::run(args),
        Some(Command::Calibrate(args)) => calibrate::run(args),
        Some(Command::Selftest(args)) => selftest::run(args),
        Some(Command::Generate { what }) => about::generate(*what),
        None if cli.live.demo => demo::run(&cli.live),
        None if wants_batch(&cli.live.output) => watch::batch(&cli.live),
        None => watch::live(&cli.live),
    }
}

fn wants_batch(args: &OutputArgs) -> bool {
    args.batch || args.format.is_some() || args.json.json_full || !io::stdout().is_terminal()
}

/// The screen, as it was asked for, with an interval of a second and rows of `grain`.
fn tui_options(display: &DisplayArgs, screen: &ScreenArgs, grain: RowKind) -> Result<TuiOptions> {
    Ok(TuiOptions {
        view: Settings {
            columns: options::columns(display)?,
            sort: options::sort(display)?,
            threads: grain == RowKind::Threads,
            screen: match options::place_kind(display) {
                Some(_) => ScreenId::Nodes,
                None if display.by_container => ScreenId::Containers,
                None => ScreenId::Tasks,
            },
            filter: options::filter(display)?,
            node_columns: options::node_columns(screen)?,
            ..Settings::default()
        },
        iterations: None,
        mouse: !screen.no_mouse,
        colour: colour_choice(screen.color),
        ascii: screen.ascii,
        palette: palette(screen.theme),
        limits: Limits {
            remote_from_pct: screen.remote_from.into(),
            dim_below_bytes: u64::from(screen.dim_below) << 20,
        },
        keeper: settings::keeper(screen),
    })
}

fn ended(ended: Ended) -> Result<ExitCode> {
    match ended {
        Ended::Quit => Ok(ExitCode::SUCCESS),
        Ended::Signal(signal) => Ok(signals::exit_code(signal).into()),
    }
}

/// The exit code of a run without a screen: that of success, unless a signal ended it that is not meant to
/// end programs.
fn ran() -> ExitCode {
    match signals::ended_by() {
        None | Some(libc::SIGINT | libc::SIGQUIT | libc::SIGTERM | libc::SIGHUP) => ExitCode::SUCCESS,
        Some(signal) => signals::exit_code(signal).into(),
    }
}

/// The writer of `format`, with the chosen rows and columns.
fn exporter(format: &Format, display: &DisplayArgs) -> Result<Writer> {
    if let Some(writer) = format.places
        && let Some(selection) = options::place_selection(display, format.machine_readable)?
    {
        return Ok(writer(selection));
    }
    Ok(match format.containers {
        Some(writer) if display.by_container => {
            writer(options::container_selection(display, format.machine_readable)?)
        }
        _ => (format.tasks)(options::selection(display, format.machine_readable)?),
    })
}

/// Becomes readable at a signal that ends the program.
fn stop_signals() -> Result<BorrowedFd<'static>> {
    signals::stop().context("signals cannot be caught")
}

/// Standard output, whose reader may keep us waiting until `stop` is readable. Not `io::stdout()`, which buffers.
fn standard_output(stop: BorrowedFd<'_>) -> Result<Interruptible<'_, File>> {
    let out = interruptible::output(io::stdout()).context("copying the descriptor of standard output")?;
    Ok(Interruptible::new(out.into(), stop))
}

/// Standard error for notes, whose reader keeps nothing waiting.
fn messages() -> Result<Notes<File>> {
    let err = output::descriptor().context("copying the descriptor of standard error")?;
    Ok(Notes::new(err.into()))
}

fn colour_choice(typed: ColourArg) -> ColourChoice {
    match typed {
        ColourArg::Auto => ColourChoice::Auto,
        ColourArg::Always => ColourChoice::Always,
        ColourArg::Never => ColourChoice::Never,
    }
}

fn palette(typed: ThemeArg) -> Palette {
    match typed {
        ThemeArg::Terminal => Palette::Terminal,
        ThemeArg::OkabeIto => Palette::OkabeIto,
        ThemeArg::Contrast => Palette::Contrast,
    }
}

/// Whether a report on standard output has colour: by itself only on a terminal that has.
fn has_colour(typed: ColourArg) -> bool {
    let is_for_eyes = typed != ColourArg::Auto || io::stdout().is_terminal();
    is_for_eyes && colour_choice(typed).holds(|name| std::env::var(name).ok())
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
    output::report(text, form).context("writing to standard output")
}

/// The whole of such a process.
type Main = fn() -> ExitCode;

/// Does the work of such a process, if this one was started as one. Every program that makes a live source
/// calls it first; otherwise its children would start as another copy of the program.
pub fn started_as() -> Option<ExitCode> {
    let name = std::env::args_os().next()?;
    let mains: [(&str, Main); 7] = [
        (symbolize::child::NAME, symbolize::child::main),
        (symbolize::namer::NAME, symbolize::namer::main),
        (asked_file::NAME, asked_file::main),
        (asked::NAME, asked::main),
        (mm_reader::child::NAME, mm_reader::child::main),
        (launch::NAME, launch::main),
        (measuring::NAME, measuring::main),
    ];
    let (_, main) = mains.into_iter().find(|(known, _)| name == *known)?;
    // Some of them open nothing later.
    clock::learn_offsets();
    Some(main())
}
