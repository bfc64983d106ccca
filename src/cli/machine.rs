//! Flags of commands that measure something by themselves: `run`, `calibrate`, `selftest`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::roles::{MeasureArgs, RECORDING, RecordLimits};
use super::{ColourArg, EventTableArgs, ReportFormat, parse};

/// Flags of `run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// The command and its arguments.
    #[arg(value_name = "COMMAND", last = true, required = true)]
    pub command: Vec<OsString>,

    /// Run the command N times, and show the mean and the standard deviation.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = parse::between::<1, 1000>)]
    pub repeat: u32,

    /// First run the command N times without measuring.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = parse::between::<0, 1000>)]
    pub warmup: u32,

    /// Bind the command to these nodes, cores or CPUs, and its memory to nodes. Can be repeated to compare
    /// bindings in a table. Examples: 'node:0', 'node:0,mem:1', 'core:0,1', 'cpu:0-3', 'mem:0'.
    #[arg(long = "bind", value_name = "PLACE", value_parser = parse::binding)]
    pub bindings: Vec<Binding>,

    /// Run the command as the user who called sudo, not as root.
    #[arg(long)]
    pub as_user: bool,

    #[arg(long, value_enum, default_value_t = RunFormat::Text)]
    pub format: RunFormat,

    /// A new file to write to, instead of standard error; '-' is standard output.
    #[arg(short = 'o', long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Also record everything, to a new file or in a directory (created if the name ends with '/').
    #[arg(long, value_name = "FILE|DIR", help_heading = RECORDING, conflicts_with_all = ["repeat", "warmup", "bindings"])]
    pub record: Option<PathBuf>,

    #[command(flatten)]
    pub limits: RecordLimits,

    #[command(flatten)]
    pub measure: MeasureArgs,
}

/// Forms of the page about a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RunFormat {
    Text,
    Json,
    Csv,
}

/// A place for a command, as it was typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The words.
    pub text: String,
    pub parts: Vec<(Bound, Vec<u32>)>,
}

/// The meaning of the numbers in a part of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Nodes whose CPUs it may use.
    Node,
    /// Cores whose CPUs it may use.
    Core,
    Cpu,
    /// Nodes that it takes memory from.
    Memory,
}

impl Bound {
    /// The kind that a word names.
    pub(super) fn named(word: &str) -> Option<Bound> {
        Some(match word {
            "node" => Bound::Node,
            "core" => Bound::Core,
            "cpu" => Bound::Cpu,
            "mem" => Bound::Memory,
            _ => return None,
        })
    }
}

/// Flags of `calibrate`.
#[derive(Args, Debug)]
pub struct CalibrateArgs {
    /// Print the plan (CPUs, time and memory); measure nothing.
    #[arg(long, conflicts_with_all = ["show", "compare"])]
    pub dry_run: bool,

    /// Show the stored profile, or a file, and whether it matches this machine; measure nothing.
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    pub show: Option<Option<PathBuf>>,

    /// Compare with this profile, cell by cell. The other side is this machine now, or the profile that
    /// --show names.
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

    /// Measure only from the CPUs of these nodes.
    #[arg(long, value_name = "NODES", value_parser = parse::nodes)]
    pub from: Option<NodeList>,

    /// Measure only memory of these nodes.
    #[arg(long, value_name = "NODES", value_parser = parse::nodes)]
    pub to: Option<NodeList>,

    /// Measure every pair of cores, instead of one pair of each kind.
    #[arg(long)]
    pub cores: bool,

    /// Time limit in seconds, 1 to 3600; parts that do not fit are omitted. Default 120; most runs take less.
    #[arg(long, value_name = "SECONDS", value_parser = parse::seconds)]
    pub time: Option<f64>,

    /// Percent of each node's free memory to use, at most 2 GiB.
    #[arg(long, value_name = "PERCENT", default_value = "10", value_parser = parse::memory_share)]
    pub memory: f64,

    /// Also measure on a busy machine. The profile is marked as disturbed and is not used.
    #[arg(long)]
    pub force: bool,

    /// Do not store the profile.
    #[arg(long)]
    pub no_save: bool,

    #[arg(long, value_enum, default_value_t = ProfileFormat::Text)]
    pub format: ProfileFormat,

    /// Colour the cells of matrices by cost. auto: on a terminal with colours, unless NO_COLOR is set.
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
    /// Latency of loads, from node to node
    Latency,
    /// Bandwidth, from node to node
    Bandwidth,
    /// Transfer of cache lines between cores
    Cores,
    /// Throughput of the two threads of a core
    Smt,
    /// Cost of page walks, and nodes that the firmware hides
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

/// Flags of `selftest`.
#[derive(Args, Debug)]
pub struct SelftestArgs {
    /// The part of the numbers to test.
    #[arg(value_enum, default_value_t = SelftestPart::All)]
    pub part: SelftestPart,

    /// Count only these events: roles such as `lma`, or names from the event table, separated by commas.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub events: Vec<String>,

    #[command(flatten)]
    pub tables: EventTableArgs,

    /// Node whose CPUs run the loads. Default: the first node.
    #[arg(long, value_name = "NODE")]
    pub from: Option<u32>,

    /// The second node of loads that need two nodes. Default: the node farthest from the first by SLIT.
    #[arg(long, value_name = "NODE")]
    pub to: Option<u32>,

    /// Time limit for events in seconds, 1 to 3600; the remaining events stay untested.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = parse::seconds)]
    pub time: f64,

    /// Also count events on a busy machine.
    #[arg(long)]
    pub force: bool,

    /// List the comparisons with their tolerances; test nothing.
    #[arg(long)]
    pub list: bool,

    /// Judge the numbers of a JSON report with the tolerances of this version. No test is run.
    #[arg(long, value_name = "FILE", conflicts_with = "list")]
    pub check: Option<PathBuf>,

    /// Do not store the verdicts on events; `list events` and `doctor` show stored verdicts.
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
    /// Counters of the PMU, tested with loads whose counts are known
    Counters,
    /// Counters of the PMU and software numbers
    All,
    /// Numbers that need no PMU: faults, switches, moves, CPU time, placement, shares
    Software,
}
