//! Flags of `diff`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::parse;

/// Flags of `diff`.
#[derive(Args, Debug)]
pub struct DiffArgs {
    /// A recording, a directory of them, or a stretch of one, before the change.
    #[arg(value_name = "A", required_unless_present = "before", conflicts_with_all = ["before", "after"], requires = "b")]
    pub a: Option<String>,

    /// The same after the change.
    #[arg(value_name = "B")]
    pub b: Option<String>,

    /// A recording before the change; repeatable. From three per side on, each counts as one sample.
    #[arg(long, value_name = "A", requires = "after")]
    pub before: Vec<String>,

    /// A recording after the change; repeatable.
    #[arg(long, value_name = "B", requires = "before")]
    pub after: Vec<String>,

    /// Kinds of rows to compare, all if not given.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "KIND,...")]
    pub by: Vec<ByArg>,

    /// Metrics to compare (see: numatop-ng list metrics).
    #[arg(long, value_name = "ID,...", value_delimiter = ',')]
    pub metrics: Vec<String>,

    /// Number of programs, and of containers, to compare, by CPU time.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub rows: usize,

    /// Changes within this percentage count as none.
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0, value_parser = parse::percent)]
    pub same: f64,

    /// Also show rows that are the same or too short.
    #[arg(long)]
    pub all: bool,

    /// Skip the beginning of each recording or part, as warm-up: 30s, 5m, 1h.
    #[arg(long, value_name = "TIME", value_parser = parse::age)]
    pub skip: Option<Duration>,

    /// A new file to write to; - is standard output. A page needs one where standard output is a terminal.
    #[arg(short = 'o', long, value_name = "OUT")]
    pub output: Option<PathBuf>,

    /// Overwrite OUT if it exists.
    #[arg(long, requires = "output")]
    pub force: bool,

    #[arg(long, value_enum, default_value_t = DiffFormat::Text)]
    pub format: DiffFormat,

    /// Exit with 5 if a metric is worse: worse for any, worse=ID,... for some.
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
    /// Rows that differ, for a terminal.
    Text,
    /// All numbers.
    Json,
    /// One self-contained file for a browser.
    Html,
}
