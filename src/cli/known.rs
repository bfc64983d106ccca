//! Flags of `calibrate`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{ColourArg, parse};

/// Flags of `calibrate`.
#[derive(Args, Debug)]
pub struct CalibrateArgs {
    /// Print what would run where, for how long and with how much memory; measure nothing.
    #[arg(long, conflicts_with_all = ["show", "compare"])]
    pub dry_run: bool,

    /// Show the stored profile, or a file, and whether it matches this machine; measure nothing.
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    pub show: Option<Option<PathBuf>>,

    /// Compare with this profile, cell by cell: this machine now, or what --show names.
    #[arg(long, value_name = "FILE")]
    pub compare: Option<PathBuf>,

    /// Measure only these parts.
    #[arg(
        long,
        value_name = "PART,...",
        value_enum,
        value_delimiter = ',',
        default_value = "latency,bandwidth,cores,smt,pages"
    )]
    pub only: Vec<PartArg>,

    /// Measure from the CPUs of these nodes only.
    #[arg(long, value_name = "NODES", value_parser = parse::nodes)]
    pub from: Option<NodeList>,

    /// Measure memory of these nodes only.
    #[arg(long, value_name = "NODES", value_parser = parse::nodes)]
    pub to: Option<NodeList>,

    /// Measure every pair of cores, not one pair of each kind.
    #[arg(long)]
    pub cores: bool,

    /// Time limit in seconds, 1 to 3600; parts that do not fit are left out. Default 120; most runs take less.
    #[arg(long, value_name = "SECONDS", value_parser = parse::seconds)]
    pub time: Option<f64>,

    /// Percent of each node's free memory to use, at most 2 GiB.
    #[arg(long, value_name = "PERCENT", default_value = "10", value_parser = parse::memory_share)]
    pub memory: f64,

    /// Also measure on a busy machine. The profile is marked as disturbed and not used.
    #[arg(long)]
    pub force: bool,

    /// Do not store the profile.
    #[arg(long)]
    pub no_save: bool,

    #[arg(long, value_enum, default_value_t = ProfileFormat::Text)]
    pub format: ProfileFormat,

    /// Colour the cells of matrices by cost; auto: on a terminal with colours, unless NO_COLOR is set.
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = ColourArg::Auto)]
    pub color: ColourArg,

    /// A new file to write to, instead of standard output.
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Nodes of a list such as `0-3,8`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeList(pub Vec<u32>);

/// Parts of a calibration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PartArg {
    /// Latency of loads, node by node
    Latency,
    /// Bandwidth, node by node
    Bandwidth,
    /// Lines between cores
    Cores,
    /// Two threads of a core
    Smt,
    /// Page walks, and nodes that the firmware hides
    Pages,
    /// Latency under traffic
    Loaded,
}

/// Formats of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProfileFormat {
    Text,
    Json,
    Csv,
}
