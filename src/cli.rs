//! The command line: subcommands, and the roles of flags that each has a use for.

mod documents;
mod machine;
mod parse;
mod recordings;
mod roles;
mod tips;

use std::any::TypeId;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::LazyLock;

use clap::error::{ContextKind, ContextValue};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Id, Parser, Subcommand, ValueEnum};
use roles::{MEASUREMENT, RECORDING};

use crate::text::printable;

pub use self::machine::{
    Binding, Bound, CalibrateArgs, NodeList, PartArg, ProfileFormat, RunArgs, RunFormat, SelftestArgs,
    SelftestPart,
};
pub use self::recordings::{
    ByArg, DiffArgs, DiffFormat, ExportFormat, LayoutArg, PageFormat, PerArg, ReportArgs, TableArgs,
};
pub use documents::Document;
pub use roles::{
    ColourArg, ContainerArgs, CountArgs, CounterArgs, DisplayArgs, EventTableArgs, HostArgs, HotArgs,
    JsonArgs, MeasureArgs, NamedGroups, OutputArgs, PlacesArg, Preset, ProfileArgs, RecordLimits, ScopeArgs,
    ScreenArgs, StackArgs, ThemeArg, WatchArgs,
};

/// A live profiler for NUMA machines: shows where each task runs and what remote memory costs it.
#[derive(Parser, Debug)]
#[command(
    name = "numatop-ng",
    bin_name = "numatop-ng",
    version,
    about,
    max_term_width = 100,
    args_conflicts_with_subcommands = true
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,

    #[command(flatten)]
    pub live: LiveArgs,
}

/// Flags that only a measurement of this machine has a use for, which exclude a recording. By flag, not by role: clap would name
/// all flags of a role in its message.
static MEASURING: LazyLock<Vec<Id>> = LazyLock::new(|| {
    let command = MeasureArgs::augment_args(ScopeArgs::augment_args(clap::Command::new("")));
    command.get_arguments().map(|arg| arg.get_id().clone()).collect()
});

/// Flags of measurements that the simulated machine has a use for: its intervals have lengths, its PMU counts sets of events, and
/// its tasks are in containers.
const SIMULATED: [&str; 9] =
    ["delay", "events", "containers", "pods", "namespaces", "cgroups", "units", "machines", "host"];

/// These flags and those of measurements, which exclude the simulated machine.
fn not_simulated(others: &[&'static str]) -> impl Iterator<Item = Id> {
    let measuring = MEASURING.iter().filter(|id| !SIMULATED.contains(&id.as_str())).cloned();
    measuring.chain(others.iter().copied().map(Id::from))
}

/// Whether the first word after the name of the program is a command that reads recordings from end to end.
pub fn reads_recordings(word: Option<&OsStr>) -> bool {
    word.is_some_and(|word| ["diff", "export", "report", "verify"].iter().any(|command| word == *command))
}

impl Cli {
    /// Parses `words`, the name of the program first.
    ///
    /// # Errors
    /// Wrong usage, or a request for help or the version.
    pub fn from_words<T: Into<OsString> + Clone>(
        words: impl IntoIterator<Item = T>,
    ) -> Result<Cli, clap::Error> {
        Cli::with_places(words).map(|(cli, _)| cli)
    }

    /// The same, with the places of files that were typed.
    ///
    /// # Errors
    /// As there.
    pub fn with_places<T: Into<OsString> + Clone>(
        words: impl IntoIterator<Item = T>,
    ) -> Result<(Cli, Places), clap::Error> {
        let words: Vec<OsString> = words.into_iter().map(Into::into).collect();
        let mut command = Self::command();
        let matches = command.try_get_matches_from_mut(&words).map_err(|mut error| {
            tips::add(&mut error, &mut command, &words);
            clean(error)
        })?;
        Ok((Cli::from_arg_matches(&matches)?, Places::of(&command, &matches)))
    }

    /// Long names of the flags that are among `words`, in whatever form; none of wrong usage.
    pub fn flags_in(words: &[OsString]) -> Vec<String> {
        let Ok(matches) = Self::command().try_get_matches_from(words) else { return Vec::new() };
        let matches = matches.subcommand().map_or(&matches, |(_, below)| below);
        let is_typed = |id: &&str| matches.value_source(id) == Some(ValueSource::CommandLine);
        matches.ids().map(Id::as_str).filter(is_typed).map(|id| id.replace('_', "-")).collect()
    }
}

/// Places of files on the command line, and the program of `run`.
#[derive(Debug, Default)]
pub struct Places {
    pub files: Vec<PathBuf>,
    pub program: Option<OsString>,
}

impl Places {
    /// `matches` are those of `command`, whose subcommand they may be of.
    fn of(command: &clap::Command, matches: &ArgMatches) -> Places {
        let below =
            matches.subcommand().and_then(|(name, below)| Some((command.find_subcommand(name)?, below)));
        let (command, matches) = below.unwrap_or((command, matches));
        let mut found = Places::default();
        for arg in command.get_arguments() {
            let kind = arg.get_value_parser().type_id();
            let mut values = matches.try_get_raw(arg.get_id().as_str()).ok().flatten().into_iter().flatten();
            if arg.get_id() == "command" {
                // All behind the first is for that program.
                found.program = values.next().map(OsStr::to_owned);
                continue;
            }
            for value in values {
                let text = value.to_string_lossy();
                let text = text.strip_prefix("unix:").unwrap_or(&text);
                if kind == TypeId::of::<PathBuf>() || kind == TypeId::of::<OsString>() {
                    found.files.push(value.into());
                } else if text.contains('/') {
                    found.files.push(text.into());
                }
            }
        }
        found
    }
}

/// Escapes the user's words in a message. clap would pass them to a terminal unescaped, and remove escape
/// sequences elsewhere.
fn clean(mut error: clap::Error) -> clap::Error {
    let typed: Vec<(ContextKind, ContextValue)> = error
        .context()
        .filter_map(|(kind, value)| {
            let value = match value {
                ContextValue::String(text) => ContextValue::String(printable(text)),
                ContextValue::Strings(texts) => {
                    ContextValue::Strings(texts.iter().map(|text| printable(text)).collect())
                }
                // Not what was typed: usage, numbers, suggestions.
                _ => return None,
            };
            Some((kind, value))
        })
        .collect();
    for (kind, value) in typed {
        error.insert(kind, value);
    }
    error
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Print what works on this machine, what does not, and what to change.
    Doctor {
        #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
        format: ReportFormat,

        /// Also show what works: every fact, probe and metric.
        #[arg(long)]
        all: bool,

        #[command(flatten)]
        host: HostArgs,
    },
    /// Show nodes, CPUs, caches, distances, memory and devices.
    Topology {
        #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
        format: ReportFormat,

        #[command(flatten)]
        host: HostArgs,

        #[command(flatten)]
        profile: ProfileArgs,
    },
    /// List metrics, events, or rules of findings, under the names that other commands accept.
    #[command(disable_help_subcommand = true)]
    List {
        #[command(subcommand)]
        what: Listing,
    },
    /// Record without a screen, until a signal arrives or -n intervals have passed.
    #[command(after_help = "Everything is recorded; replay and export select what to show.")]
    Record(Box<RecordArgs>),
    /// Run a command, watch it and all its descendants, and print a page when the command ends.
    #[command(
        after_help = "numatop-ng run [OPTIONS] -- COMMAND [ARG...]. The page goes to standard error; the command \
                      keeps standard input and output. The exit code is that of the command, or 128 plus the \
                      number of the signal that killed it. 127: there is no such command. 126: it cannot be \
                      executed. 125: it cannot be bound to the requested place."
    )]
    Run(Box<RunArgs>),
    /// Serve counters of nodes, containers and programs to Prometheus.
    #[command(
        after_help = "The page /metrics is rebuilt once per interval, however often it is read; /-/healthy \
                      is the health check. docs/fleet.md lists the metrics. Anyone who can connect reads \
                      names of programs and containers; use a proxy for TLS and passwords."
    )]
    Exporter(Box<ExporterArgs>),
    /// Show a recording, on the screen or as batch output.
    #[command(after_help = MEASURED)]
    Replay(Box<ReplayArgs>),
    /// Write a recording as JSON Lines, CSV or text, for Perfetto and pprof, or as Parquet files.
    #[command(after_help = MEASURED)]
    Export(Box<ExportArgs>),
    /// Check a recording: print what is intact and what is lost. The exit code is 1 if anything is lost.
    Verify {
        /// Recordings, or directories of recordings.
        #[arg(value_name = "FILE|DIR", required = true)]
        paths: Vec<PathBuf>,
    },
    /// Print problems in the placement of memory and work, and the commands that fix them. The exit code is 5
    /// if there are findings.
    #[command(
        after_help = "numatop-ng list findings lists the rules; docs/rules.md describes their conditions. Commands \
                      are only printed: diagnose changes nothing."
    )]
    Diagnose(Box<DiagnoseArgs>),
    /// Compare two recordings, or two stretches of one recording, to see whether a change helped.
    #[command(
        after_help = "A stretch is PATH@FROM..TO, with times as for --from and --to of export. The verdicts are: \
                      better, worse, changed (neither direction is better), same, unclear, too short."
    )]
    Diff(Box<DiffArgs>),
    /// Write one page about a recording: problems, times, places and affected programs.
    #[command(after_help = "The page is one self-contained file, and is complete without JavaScript. \
                      docs/report.md describes its contents.")]
    Report(Box<ReportArgs>),
    /// Measure latency and bandwidth between nodes, caches and sibling threads of this machine, and store the
    /// results. Loads the machine.
    #[command(
        after_help = "Takes 5 s to 2 min. Privileges are needed only to store the profile for all users. It \
                      runs only on request, and changes no setting of the machine. GB are 10^9 bytes of \
                      program data. The memory traffic is twice that for a plain write, 1.5 times for a \
                      copy, and 4/3 times for a triad."
    )]
    Calibrate(Box<CalibrateArgs>),
    /// Test whether the numbers are right on this machine. Needs the same privileges as the live view, and
    /// takes five seconds.
    #[command(
        after_help = "A test process touches pages, waits, moves, works and places memory, and counts these \
                      actions; the code of the live view measures the process. The exit code is 1 if the two \
                      differ. JSON has no host, user or process names, so it can be attached to an issue."
    )]
    Selftest(SelftestArgs),
    /// Print the man page, or completions of a shell, for installation.
    Generate {
        #[arg(value_enum)]
        what: Document,
    },
}

const MEASURED: &str = "A recording cannot be measured again; options select what to show.";

/// The live view, and batch output of the machine.
#[derive(Args, Debug)]
// Both flags exist only here.
#[command(mut_arg("tids", |tids| tids.conflicts_with("by_container")))]
pub struct LiveArgs {
    /// Show a simulated machine with four nodes; needs no privileges. Batch mode prints all
    /// intervals at once, without waiting between them.
    #[arg(
        long,
        conflicts_with_all = not_simulated(&["hot_event", "hot_rate", "overhead", "access", "no_access"])
    )]
    pub demo: bool,

    #[command(flatten)]
    pub output: OutputArgs,

    #[command(flatten)]
    pub display: DisplayArgs,

    #[command(flatten)]
    pub screen: ScreenArgs,

    #[command(flatten)]
    pub watch: WatchArgs,

    /// Also measure the cost of each BPF program of numatop-ng, for JSON output (on the screen: key o). This
    /// adds to the cost.
    #[arg(long, help_heading = MEASUREMENT)]
    pub overhead: bool,

    /// Also sample memory use, triggered by a clock. JSON and the details of the live view show shares by
    /// mapping. In the details, u also starts the sampling.
    #[arg(long, help_heading = MEASUREMENT)]
    pub access: bool,

    /// Start the live view without sampling memory accesses. By default processes on the screen are sampled,
    /// at a cost of at most 1 % of a CPU; the key U toggles sampling.
    #[arg(long, help_heading = MEASUREMENT, conflicts_with = "access")]
    pub no_access: bool,

    /// Record everything, to a new file or in a directory (created if the name ends with '/').
    #[arg(long, value_name = "FILE|DIR", help_heading = RECORDING)]
    pub record: Option<PathBuf>,

    #[command(flatten)]
    pub limits: RecordLimits,
}

/// Flags of `record`.
#[derive(Args, Debug)]
pub struct RecordArgs {
    /// A new file, or a directory for a ring of hourly files (created if the name ends with '/').
    // As --record of the live view, which the limits of a recording require.
    #[arg(id = "record", value_name = "FILE|DIR")]
    pub path: PathBuf,

    /// Record a simulated machine; needs no privileges. With -n the recording takes no time.
    #[arg(long, conflicts_with_all = not_simulated(&["access"]))]
    pub demo: bool,

    #[command(flatten)]
    pub count: CountArgs,

    #[command(flatten)]
    pub limits: RecordLimits,

    #[command(flatten)]
    pub watch: WatchArgs,

    /// Also sample which memory is used. Up to 50 mappings of each process are recorded, with their shares of
    /// use. Registers, code, values and addresses inside mappings are not recorded.
    #[arg(long, help_heading = MEASUREMENT)]
    pub access: bool,
}

/// Flags of `exporter`.
#[derive(Args, Debug)]
#[command(mut_arg("delay", |delay| delay.default_value("5")))]
pub struct ExporterArgs {
    /// Listen at ADDRESS:PORT or unix:PATH; can be repeated. Default: 127.0.0.1:6862.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Vec<String>,

    /// Write the page to this file, for the textfile collector of node_exporter. Without --listen, no socket
    /// is opened.
    #[arg(long, value_name = "FILE")]
    pub textfile: Option<PathBuf>,

    /// Number of programs with their own series, by CPU time; the others share one series.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub top: usize,

    /// Number of containers with their own series; the others share one series.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub max_containers: usize,

    /// Maximum number of series. Beyond this number, places, devices, containers by node, programs, and pairs of nodes are
    /// omitted.
    #[arg(long, value_name = "N", default_value_t = 5000)]
    pub max_series: usize,

    /// Stop after this many intervals.
    #[command(flatten)]
    pub count: CountArgs,

    /// Serve a recording instead of this machine, at the recorded pace.
    #[arg(
        long,
        value_name = "FILE|DIR",
        conflicts_with_all = MEASURING.iter().cloned()
    )]
    pub from_recording: Option<PathBuf>,

    /// Also record everything, to a new file or in a directory (created if the name ends with '/').
    #[arg(long, value_name = "FILE|DIR", help_heading = RECORDING, conflicts_with = "from_recording")]
    pub record: Option<PathBuf>,

    #[command(flatten)]
    pub limits: RecordLimits,

    #[command(flatten)]
    pub scope: ScopeArgs,

    #[command(flatten)]
    pub measure: MeasureArgs,
}

/// Flags of `replay`.
#[derive(Args, Debug)]
pub struct ReplayArgs {
    /// A recording, or a directory of recordings.
    #[arg(value_name = "FILE|DIR")]
    pub path: PathBuf,

    /// Begin at this time, as in 03:12, '2026-01-31 03:12' or -10m (before the end).
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub at: Option<String>,

    /// At the end of a recording that is being written, wait for more.
    #[arg(long)]
    pub follow: bool,

    #[command(flatten)]
    pub output: OutputArgs,

    #[command(flatten)]
    pub display: DisplayArgs,

    #[command(flatten)]
    pub screen: ScreenArgs,
}

/// Flags of `export`.
#[derive(Args, Debug)]
// -o is --output.
#[command(mut_arg("columns", |columns| columns.short(None)))]
pub struct ExportArgs {
    /// A recording, or a directory of recordings.
    #[arg(value_name = "FILE|DIR")]
    pub path: PathBuf,

    /// text, json, csv: rows. perfetto: a trace (.pftrace). folded, pprof: hot spots. parquet: tables.
    #[arg(long, value_parser = parse::export_formats())]
    pub format: ExportFormat,

    /// Begin at this time, as in 03:12, '2026-01-31 03:12' or -10m (before the end).
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub from: Option<String>,

    /// End at this time.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub to: Option<String>,

    /// A new file to write to, instead of standard output; for parquet a directory (created if the name ends
    /// with '/').
    #[arg(short = 'o', long, value_name = "OUT")]
    pub output: Option<PathBuf>,

    #[command(flatten)]
    pub json: JsonArgs,

    #[command(flatten)]
    pub tables: TableArgs,

    #[command(flatten)]
    pub display: DisplayArgs,
}

/// Flags of `diagnose`.
#[derive(Args, Debug)]
pub struct DiagnoseArgs {
    /// A recording, or a directory of recordings, instead of this machine.
    #[arg(
        value_name = "FILE|DIR",
        conflicts_with_all = MEASURING.iter().cloned().chain([Id::from("seconds")])
    )]
    pub path: Option<PathBuf>,

    /// Diagnose a simulated machine; its intervals take no time.
    #[arg(
        long,
        conflicts_with_all = not_simulated(&["path"])
    )]
    pub demo: bool,

    /// Watch for this many seconds. The default is the longest time needed by the rules that can reach
    /// --fail-on: 95 for warnings.
    #[arg(long = "for", id = "seconds", value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: Option<u64>,

    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub format: ReportFormat,

    /// Also write a report of the same time to this new file, like numatop-ng report.
    #[arg(long, value_name = "OUT")]
    pub report: Option<PathBuf>,

    /// Exit with 5 if a finding has at least this severity.
    #[arg(long, value_enum, value_name = "LEVEL", default_value_t = LevelArg::Warning)]
    pub fail_on: LevelArg,

    /// Exit with 0, not with 1, if nothing was found but a rule needed more time or lacked an input.
    #[arg(long)]
    pub allow_undecided: bool,

    /// Also show notes, suspected notes, and findings that another finding explains.
    #[arg(long)]
    pub all: bool,

    /// Replace names of processes, containers, cgroups and the machine by letters, so that the output can be
    /// shared.
    #[arg(long)]
    pub redact: bool,

    /// Run only these rules; with a leading '-', run all rules except these.
    #[arg(long, value_name = "ID,...", value_delimiter = ',', allow_hyphen_values = true)]
    pub rules: Vec<String>,

    /// Explain a rule: its condition, its limits with sources, and its exceptions.
    #[arg(long, value_name = "ID", exclusive = true)]
    pub explain: Option<String>,

    /// Begin at this time of the recording, as in 03:12, '2026-01-31 03:12' or -10m (before the end).
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, requires = "path")]
    pub from: Option<String>,

    /// End at this time.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, requires = "path")]
    pub to: Option<String>,

    #[command(flatten)]
    pub scope: ScopeArgs,

    #[command(flatten)]
    pub measure: MeasureArgs,
}

/// Severities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LevelArg {
    Info,
    Warning,
    Critical,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    Text,
    Json,
}

/// Lists, each with the flags that it has a use for.
#[derive(Subcommand, Debug)]
pub enum Listing {
    /// List the metrics that --columns and --sort accept.
    Metrics,
    /// List the rules of findings.
    Findings,
    /// List the events that --events accepts, and whether they work here.
    Events(EventTableArgs),
}

#[cfg(test)]
mod tests;
