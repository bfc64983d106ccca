//! Flags of `report`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::parse;
use crate::report::{POINTS, TOP};

/// Flags of `report`.
#[derive(Args, Debug)]
pub struct ReportArgs {
    /// A recording, or a directory of them.
    #[arg(value_name = "FILE|DIR")]
    pub path: PathBuf,

    /// A new file to write to; - is standard output. A page needs one where standard output is a terminal.
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

    /// Replace names of the machine, programs, containers, pods, cgroups and functions by host-1, program-3 and so on,
    /// so that the report can be shared. Numbers, nodes and times stay.
    #[arg(long)]
    pub anonymous: bool,
}

/// Forms of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PageFormat {
    /// One self-contained file for a browser.
    Html,
    /// The numbers of the page.
    Json,
    /// Summary and findings, 60 lines at most.
    Text,
}
