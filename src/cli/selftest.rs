//! Flags of `selftest`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{EventTableArgs, ReportFormat, parse};

/// Flags of `selftest`.
#[derive(Args, Debug)]
pub struct SelftestArgs {
    /// The numbers to test.
    #[arg(value_enum, default_value_t = SelftestPart::All)]
    pub part: SelftestPart,

    /// Count these events only: roles such as `lma`, or names of the table, separated by commas.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub events: Vec<String>,

    #[command(flatten)]
    pub tables: EventTableArgs,

    /// Node whose CPUs run the loads. Default: the first.
    #[arg(long, value_name = "NODE")]
    pub from: Option<u32>,

    /// The second node of loads that need two; default: the farthest from the first by SLIT.
    #[arg(long, value_name = "NODE")]
    pub to: Option<u32>,

    /// Time limit for events in seconds, 1 to 3600; events not reached stay untested.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = parse::seconds)]
    pub time: f64,

    /// Count events on a busy machine, too.
    #[arg(long)]
    pub force: bool,

    /// List the comparisons with their tolerances; test nothing.
    #[arg(long)]
    pub list: bool,

    /// Judge the numbers of a JSON file with the tolerances of this version; test nothing.
    #[arg(long, value_name = "FILE", conflicts_with = "list")]
    pub check: Option<PathBuf>,

    /// Do not store the verdicts on events that `list events` and `doctor` show.
    #[arg(long)]
    pub no_save: bool,

    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub format: ReportFormat,

    /// A new file to write to, instead of standard output.
    #[arg(short = 'o', long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Parts of a self-test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SelftestPart {
    /// Counters of the PMU, in loads whose counts are known
    Counters,
    /// Both
    All,
    /// Faults, switches, moves, CPU time, placement, shares: all that needs no PMU
    Software,
}
