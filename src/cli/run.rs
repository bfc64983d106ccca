//! Flags of `run`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::parse;
use super::roles::{MeasureArgs, RECORDING, RecordLimits};

/// Flags of `run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// The command and its arguments.
    #[arg(value_name = "COMMAND", last = true, required = true)]
    pub command: Vec<OsString>,

    /// Run the command N times, and show the mean and the standard deviation.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = parse::between::<1, 1000>)]
    pub repeat: u32,

    /// Run the command N times first, without measuring.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = parse::between::<0, 1000>)]
    pub warmup: u32,

    /// Bind the command to these nodes, cores or CPUs, and its memory to nodes; repeat to compare bindings in a table. Examples: 'node:0', 'node:0,mem:1', 'core:0,1', 'cpu:0-3', 'mem:0'.
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

    /// Also record everything, to a new file or in a directory (created if it ends with '/').
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
