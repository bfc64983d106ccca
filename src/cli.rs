//! What can be typed after `numatop-ng`.

mod parse;
mod useless;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{NonEmptyStringValueParser, OsStringValueParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use crate::text::printable;

/// A live profiler for NUMA machines: where every task runs, and what that costs it.
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
    pub view: ViewArgs,

    /// Show a made-up machine of four nodes instead of this one: needs no privilege, and measures nothing. In batch
    /// mode -n intervals come at once.
    #[arg(long)]
    pub demo: bool,

    /// Record everything that is measured, to a new file or in a directory (made if it ends with '/').
    #[arg(long, value_name = "FILE|DIR")]
    pub record: Option<PathBuf>,

    #[command(flatten)]
    pub limits: RecordLimits,
}

impl Cli {
    /// What `words` say, the name of the program first. A flag without use is refused, not ignored.
    ///
    /// # Errors
    /// Wrong usage, or a request for help or the version.
    pub fn from_words<T: Into<OsString> + Clone>(
        words: impl IntoIterator<Item = T>,
    ) -> Result<Cli, clap::Error> {
        let mut command = useless::hide(Self::command());
        let matches = command.try_get_matches_from_mut(words).map_err(clean)?;
        let (command, typed) = match matches.subcommand() {
            Some((name, typed)) => {
                (command.find_subcommand_mut(name).expect("clap knows what it found"), typed)
            }
            None => (&mut command, &matches),
        };
        if let Some((flag, why)) = useless::find(command, typed) {
            let long = command.get_arguments().find(|arg| arg.get_id() == flag).and_then(clap::Arg::get_long);
            let why = format!("--{}: {why}", long.unwrap_or(flag));
            return Err(command.error(ErrorKind::UnknownArgument, why));
        }
        Cli::from_arg_matches(&matches)
    }
}

/// Escapes in a message what was typed. clap would hand it to a terminal as it is, and leave out escape sequences
/// elsewhere.
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
    /// Say what works on this machine, what does not, and what to do about it.
    Doctor {
        #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
        format: ReportFormat,
    },
    /// Show nodes, CPUs, caches, distances, memory and devices.
    Topology {
        #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
        format: ReportFormat,
    },
    /// List the metrics or the events that can be named in --columns, --sort and --events.
    List {
        #[arg(value_enum)]
        what: Listing,
        /// Folder with event tables (*.toml) of your own; they go before those built in.
        #[arg(long, value_name = "DIR")]
        pmu_dir: Option<PathBuf>,
    },
    /// Record without showing anything, until a signal comes or -n intervals have passed.
    Record {
        /// A new file, or a directory to keep a ring of hourly files in (made if it ends with '/').
        #[arg(value_name = "FILE|DIR")]
        path: PathBuf,

        #[command(flatten)]
        limits: RecordLimits,

        #[command(flatten)]
        view: Box<ViewArgs>,
    },
    /// Show a recording, on the screen or as batch output. Needs no privilege.
    Replay {
        /// A recording, or a directory of them.
        #[arg(value_name = "FILE|DIR")]
        path: PathBuf,

        /// Begin at this time, as in 03:12, '2026-01-31 03:12' or -10m (before the end).
        #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
        at: Option<String>,

        /// Wait for more at the end of a recording that is being written.
        #[arg(long)]
        follow: bool,

        #[command(flatten)]
        view: Box<ViewArgs>,
    },
    /// Write a recording as JSON Lines or CSV. Needs no privilege.
    Export(ExportArgs),
    /// Check a recording: what is intact, what is lost. Exits with 1 if anything is.
    Verify {
        /// Recordings, or directories of them.
        #[arg(value_name = "FILE|DIR", required = true)]
        paths: Vec<PathBuf>,
    },
}

/// What a recording may take up, and what it may leave out.
#[derive(Args, Clone, Debug)]
pub struct RecordLimits {
    /// Size of all files in a recording directory together; the oldest are removed.
    #[arg(long, value_name = "SIZE", default_value = "2GiB", value_parser = parse::size)]
    pub record_max_size: u64,

    /// Remove files of a recording directory that are older, as in 12h or 7d.
    #[arg(long, value_name = "TIME", value_parser = parse::age)]
    pub record_max_age: Option<Duration>,

    /// Record only the N busiest processes of each interval; the others become one row.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub record_top: Option<u64>,

    /// Record only processes that use this much of a CPU; the others become one row.
    #[arg(long, value_name = "PERCENT", value_parser = parse::percent)]
    pub record_min_cpu: Option<f64>,
}

/// Which part of a recording goes where, in which form.
#[derive(Args, Debug)]
pub struct ExportArgs {
    /// A recording, or a directory of them.
    #[arg(value_name = "FILE|DIR")]
    pub path: PathBuf,

    #[arg(long, value_enum)]
    pub format: BatchFormat,

    /// Begin at this time, as in 03:12, '2026-01-31 03:12' or -10m (before the end).
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub from: Option<String>,

    /// End at this time.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub to: Option<String>,

    /// A new file to write to, instead of standard output.
    #[arg(short = 'o', long, value_name = "OUT")]
    pub output: Option<PathBuf>,

    /// One row per thread instead of per process.
    #[arg(short = 'H', long)]
    pub threads: bool,

    /// Metrics to write, in order (see: numatop-ng list metrics).
    #[arg(long, value_name = "ID,...", value_delimiter = ',')]
    pub columns: Vec<String>,

    /// Metric to sort by; with a leading '-' in reverse.
    #[arg(short = 's', long, value_name = "ID", allow_hyphen_values = true)]
    pub sort: Option<String>,

    /// Write the first N rows only.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub top: Option<u64>,

    /// Write only tasks whose name matches this regular expression.
    #[arg(long, value_name = "REGEX")]
    pub comm: Option<String>,

    /// Write only tasks that ran on this node in the interval, or rest there.
    #[arg(long, value_name = "NODE")]
    pub node: Option<u32>,
}

impl ExportArgs {
    /// The same choice of rows and columns as flags of the live view.
    pub fn view(&self) -> ViewArgs {
        let defaults = Cli::parse_from(["numatop-ng"]).view;
        ViewArgs {
            format: Some(self.format),
            threads: self.threads,
            columns: self.columns.clone(),
            sort: self.sort.clone(),
            top: self.top,
            comm: self.comm.clone(),
            node: self.node,
            ..defaults
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    Text,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Listing {
    Metrics,
    Events,
}

/// How batch output is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BatchFormat {
    Text,
    Json,
    Csv,
}

/// When to use colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ColourArg {
    Auto,
    Always,
    Never,
}

/// Scopes that are and-ed with the others; several of them are or-ed.
const CONTAINERS: &str = "Containers (applied in the kernel; several are or-ed)";

const HOT: &str = "Hot spots";

/// What to watch and how to show it; the same in the live view and in batch mode.
#[derive(Args, Debug)]
pub struct ViewArgs {
    /// Write to standard output instead of the screen (implied when it is not a terminal).
    #[arg(short = 'b', long)]
    pub batch: bool,

    /// Format of batch output, text if not given; implies --batch.
    #[arg(long, value_enum)]
    pub format: Option<BatchFormat>,

    /// Stop after this many intervals.
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub iterations: Option<u64>,

    /// Length of an interval, 0.1 to 60 seconds.
    #[arg(short = 'd', long = "delay", value_name = "SECONDS", default_value = "1", value_parser = parse::delay)]
    pub delay: f64,

    /// One row per thread instead of per process.
    #[arg(short = 'H', long)]
    pub threads: bool,

    /// One row per container, pod, unit or other cgroup, each with all below it; on the screen that view first, in
    /// batch mode for text and CSV (JSON has both).
    #[arg(long = "by-container", conflicts_with_all = ["threads", "tids", "comm", "node"], help_heading = CONTAINERS)]
    pub by_container: bool,

    /// Metrics to show, in order (see: numatop-ng list metrics).
    #[arg(short = 'o', long, value_name = "ID,...", value_delimiter = ',')]
    pub columns: Vec<String>,

    /// Metric to sort by; with a leading '-' in reverse.
    #[arg(short = 's', long, value_name = "ID", allow_hyphen_values = true)]
    pub sort: Option<String>,

    /// Show the first N rows only.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub top: Option<u64>,

    /// Time that finding out where memory is may take in each interval, in ms; 0: do not find out. Without it 20 ms
    /// or 1 % of a CPU, whichever is less. Machines with one node need none.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(0..=1000))]
    pub placement_budget: Option<u64>,

    /// Watch only these processes (applied in the kernel).
    #[arg(short = 'p', long = "pid", value_name = "PID,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    pub pids: Vec<u32>,

    /// Watch only these threads (applied in the kernel).
    #[arg(short = 't', long = "tid", value_name = "TID,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    pub tids: Vec<u32>,

    /// Watch only tasks of these users, by name or number (applied in the kernel).
    #[arg(short = 'u', long = "user", value_name = "USER,...", value_delimiter = ',')]
    pub users: Vec<String>,

    /// Watch only this container, by name or the start of its id; may be given several times.
    #[arg(long = "container", value_name = "NAME|ID", value_parser = NonEmptyStringValueParser::new(), help_heading = CONTAINERS)]
    pub containers: Vec<String>,

    /// Watch only this pod, by name or uid.
    #[arg(long = "pod", value_name = "[NAMESPACE/]NAME", value_parser = NonEmptyStringValueParser::new(), help_heading = CONTAINERS)]
    pub pods: Vec<String>,

    /// Watch only the pods of this Kubernetes namespace.
    #[arg(long = "k8s-namespace", value_name = "NAME", value_parser = NonEmptyStringValueParser::new(), help_heading = CONTAINERS)]
    pub namespaces: Vec<String>,

    /// Watch only this cgroup and those below it: a path or a pattern (* ? **), from the root of the hierarchy
    /// or below /sys/fs/cgroup, which says in which hierarchy. Bytes that are no text as such, or as they are shown (\xff).
    #[arg(long = "cgroup", value_name = "PATH|GLOB", value_parser = OsStringValueParser::new().try_map(parse::cgroup), help_heading = CONTAINERS)]
    pub cgroups: Vec<String>,

    /// Watch only this systemd unit.
    #[arg(long = "unit", value_name = "NAME", value_parser = NonEmptyStringValueParser::new(), help_heading = CONTAINERS)]
    pub units: Vec<String>,

    /// Watch only this machine: LXC, nspawn, libvirt.
    #[arg(long = "machine", value_name = "NAME", value_parser = NonEmptyStringValueParser::new(), help_heading = CONTAINERS)]
    pub machines: Vec<String>,

    /// Watch only what is in no container, pod or machine.
    #[arg(long, help_heading = CONTAINERS, conflicts_with_all = ["containers", "pods", "namespaces", "cgroups", "units", "machines"])]
    pub host: bool,

    /// Start without what was named above, and wait until it exists.
    #[arg(long, help_heading = CONTAINERS)]
    pub wait: bool,

    /// Ask docker or podman on this socket for names that no file has; may be given several times.
    #[arg(long = "runtime-socket", value_name = "PATH", help_heading = CONTAINERS)]
    pub runtime_sockets: Vec<PathBuf>,

    /// Show only tasks whose name matches this regular expression.
    #[arg(long, value_name = "REGEX")]
    pub comm: Option<String>,

    /// Show only tasks that ran on this node in the interval, or rest there.
    #[arg(long, value_name = "NODE")]
    pub node: Option<u32>,

    /// Counters to read at context switches: sets (auto, basic, numa, stalls, tlb, cache) and names, up to eight; '' reads none.
    #[arg(long, value_name = "LIST", default_value = "auto")]
    pub events: String,

    /// Folder with event tables (*.toml) of your own; they go before those built in.
    #[arg(long, value_name = "DIR")]
    pub pmu_dir: Option<PathBuf>,

    /// Sample stacks too, for hot spots in JSON output and in recordings (on the screen, h does).
    #[arg(long, help_heading = HOT)]
    pub hot: bool,

    /// Event at whose overflows stacks are sampled: auto (cycles, or cpu-clock without a PMU), rma, llc, or a name.
    #[arg(long, value_name = "EVENT", default_value = "auto", help_heading = HOT)]
    pub hot_event: String,

    /// Times a second that each CPU is sampled, 1 to 999; less on machines with hundreds of CPUs.
    #[arg(long, value_name = "HZ", default_value_t = crate::collect::hot::SAMPLES_HZ, value_parser = clap::value_parser!(u32).range(1..1000), help_heading = HOT)]
    pub hot_rate: u32,

    /// Measure what each of our own BPF programs costs, too: in JSON output (on the screen, o does). Adds to the cost.
    #[arg(long)]
    pub overhead: bool,

    /// Use colour.
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = ColourArg::Auto)]
    pub color: ColourArg,

    /// Draw with ASCII characters only.
    #[arg(long)]
    pub ascii: bool,

    /// Leave the mouse to the terminal.
    #[arg(long)]
    pub no_mouse: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_are_consistent() {
        Cli::command().debug_assert();
    }
}
