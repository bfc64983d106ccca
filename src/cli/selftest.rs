//! Flags of `selftest`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::ReportFormat;

/// Flags of `selftest`.
#[derive(Args, Debug)]
pub struct SelftestArgs {
    /// The numbers to test.
    #[arg(value_enum, default_value_t = SelftestPart::Software)]
    pub part: SelftestPart,

    /// Say what is compared with what, and within which tolerance; test nothing.
    #[arg(long)]
    pub list: bool,

    /// Judge the numbers of such a JSON file once more, with the tolerances of this version; test nothing.
    #[arg(long, value_name = "FILE", conflicts_with = "list")]
    pub check: Option<PathBuf>,

    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub format: ReportFormat,

    /// A new file to write to, instead of standard output.
    #[arg(short = 'o', long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Parts of a self-test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SelftestPart {
    /// Faults, switches, moves, CPU time, placement, shares: all that needs no PMU
    Software,
}
