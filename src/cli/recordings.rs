//! Flags of commands that read recordings: `report`, `diff`, and `export` with its formats and tables.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::parse;
use crate::export::{FORMATS, Format};
use crate::report::{POINTS, TOP};
use crate::tables::Table;
use crate::traces::TraceFormat;

/// Flags of `report`.
#[derive(Args, Debug)]
pub struct ReportArgs {
    /// A recording, or a directory of recordings.
    #[arg(value_name = "FILE|DIR")]
    pub path: PathBuf,

    /// A new file to write to; - is standard output. The html format needs a file if standard output is a
    /// terminal.
    #[arg(short = 'o', long, value_name = "OUT")]
    pub output: Option<PathBuf>,

    /// Overwrite OUT if it exists.
    #[arg(long, requires = "output")]
    pub force: bool,

    #[arg(long, value_enum, default_value_t = PageFormat::Html)]
    pub format: PageFormat,

    /// Begin at this time, as in 03:12, '2026-01-31 03:12' or -10m (before the end).
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub from: Option<String>,

    /// End at this time.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub to: Option<String>,

    /// Read and print times in UTC instead of local time.
    #[arg(long)]
    pub utc: bool,

    /// Number of programs, and of containers, with their own rows, by CPU time.
    #[arg(long, value_name = "N", default_value_t = TOP, value_parser = parse::between::<1, 1000>)]
    pub top: u32,

    /// Maximum number of points of a curve, 100 to 10000.
    #[arg(long, value_name = "N", default_value_t = POINTS, value_parser = parse::between::<100, 10_000>)]
    pub points: u32,

    /// Only programs whose name matches this regular expression have their own rows.
    #[arg(long, value_name = "REGEX")]
    pub comm: Option<String>,

    /// First line of the report, in place of host and day.
    #[arg(long, value_name = "TEXT")]
    pub title: Option<String>,

    /// Replace names of the machine, programs, containers, pods, cgroups and functions by host-1, program-3
    /// and so on, so that the report can be shared. Numbers, nodes and times are kept.
    #[arg(long)]
    pub anonymous: bool,
}

/// Forms of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PageFormat {
    /// One self-contained file for a browser.
    Html,
    /// The numbers of the page, as JSON.
    Json,
    /// Summary and findings, at most 60 lines of text.
    Text,
}

/// Flags of `diff`.
#[derive(Args, Debug)]
pub struct DiffArgs {
    /// A recording, a directory of recordings, or a stretch of a recording, before the change.
    #[arg(value_name = "A", required_unless_present = "before", conflicts_with_all = ["before", "after"], requires = "b")]
    pub a: Option<String>,

    /// The same, after the change.
    #[arg(value_name = "B")]
    pub b: Option<String>,

    /// A recording before the change; can be repeated. From three recordings per side on, each counts as one
    /// observation.
    #[arg(long, value_name = "A", requires = "after")]
    pub before: Vec<String>,

    /// A recording after the change; can be repeated.
    #[arg(long, value_name = "B", requires = "before")]
    pub after: Vec<String>,

    /// Kinds of rows to compare; all kinds by default.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "KIND,...")]
    pub by: Vec<ByArg>,

    /// Metrics to compare (see: numatop-ng list metrics).
    #[arg(long, value_name = "ID,...", value_delimiter = ',')]
    pub metrics: Vec<String>,

    /// Number of programs, and of containers, to compare, by CPU time.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub rows: usize,

    /// Treat changes up to this percentage as no change.
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0, value_parser = parse::percent)]
    pub same: f64,

    /// Also show rows with the verdict same or too short.
    #[arg(long)]
    pub all: bool,

    /// Skip the beginning of each recording or stretch as warm-up: 30s, 5m, 1h.
    #[arg(long, value_name = "TIME", value_parser = parse::age)]
    pub skip: Option<Duration>,

    /// A new file to write to; - is standard output. The html format needs a file if standard output is a
    /// terminal.
    #[arg(short = 'o', long, value_name = "OUT")]
    pub output: Option<PathBuf>,

    /// Overwrite OUT if it exists.
    #[arg(long, requires = "output")]
    pub force: bool,

    #[arg(long, value_enum, default_value_t = DiffFormat::Text)]
    pub format: DiffFormat,

    /// Exit with 5 if a metric is worse: 'worse' for any metric, 'worse=ID,...' for some.
    #[arg(long, value_name = "worse[=ID,...]")]
    pub fail_on: Option<String>,
}

/// A kind of row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ByArg {
    Host,
    Node,
    Container,
    Program,
}

/// Forms of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DiffFormat {
    /// Rows that differ, as text for a terminal.
    Text,
    /// All numbers, as JSON.
    Json,
    /// One self-contained file for a browser.
    Html,
}

/// The heading of flags that only `export` has.
pub(super) const TABLES: &str = "Parquet";

/// Tables, and the files that they are in.
#[derive(Args, Debug)]
#[command(next_help_heading = TABLES)]
pub struct TableArgs {
    /// hive (default): OUT/TABLE/date=DAY/host=NAME/; query engines read date and host as columns. flat:
    /// OUT/TABLE.parquet, for one host.
    #[arg(long, value_enum, value_name = "LAYOUT")]
    pub layout: Option<LayoutArg>,

    /// Time span of one file, in UTC. Default: an hour.
    #[arg(long, value_enum, value_name = "TIME")]
    pub per: Option<PerArg>,

    /// Tables to write; all by default: tasks, task_nodes, containers, container_nodes, nodes, sockets, llcs,
    /// events, matrix, host, lost, findings, hot.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = parse::tables(), hide_possible_values = true)]
    pub tables: Vec<Table>,

    /// Also write rows of idle tasks.
    #[arg(long)]
    pub all: bool,
}

/// Names of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LayoutArg {
    // Folders by table, day and host. Documents of values would make help long.
    Hive,
    // One file by table.
    Flat,
}

/// Time of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PerArg {
    Hour,
    Day,
}

/// A format of `export`.
#[derive(Clone, Copy, Debug)]
pub enum ExportFormat {
    /// One of batch output.
    Batch(&'static Format),
    /// One of another tool.
    Trace(TraceFormat),
    /// Tables in Parquet files.
    Parquet,
}

impl ExportFormat {
    /// All of them, in the order in which help lists them.
    pub fn all() -> Vec<ExportFormat> {
        let batch = FORMATS.into_iter().map(ExportFormat::Batch);
        let traces = TraceFormat::ALL.map(ExportFormat::Trace);
        batch.chain(traces).chain([ExportFormat::Parquet]).collect()
    }

    /// The value of `--format`.
    pub fn name(&self) -> &'static str {
        match self {
            ExportFormat::Batch(format) => format.name,
            ExportFormat::Trace(format) => format.name(),
            ExportFormat::Parquet => "parquet",
        }
    }
}
