//! What can be typed after `numatop-ng`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// A live profiler for NUMA machines: where every task runs, and what that costs it.
#[derive(Parser, Debug)]
#[command(name = "numatop-ng", version, about, max_term_width = 100, args_conflicts_with_subcommands = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,

    #[command(flatten)]
    pub view: ViewArgs,
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
    #[arg(short = 'd', long = "delay", value_name = "SECONDS", default_value = "1", value_parser = parse_delay)]
    pub delay: f64,

    /// One row per thread instead of per process.
    #[arg(short = 'H', long)]
    pub threads: bool,

    /// Metrics to show, in order (see: numatop-ng list metrics).
    #[arg(short = 'o', long, value_name = "ID,...", value_delimiter = ',')]
    pub columns: Vec<String>,

    /// Metric to sort by; with a leading '-' in reverse.
    #[arg(short = 's', long, value_name = "ID", allow_hyphen_values = true)]
    pub sort: Option<String>,

    /// Show the first N rows only.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub top: Option<u64>,

    /// Watch only these processes (applied in the kernel).
    #[arg(short = 'p', long = "pid", value_name = "PID,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    pub pids: Vec<u32>,

    /// Watch only these threads (applied in the kernel).
    #[arg(short = 't', long = "tid", value_name = "TID,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    pub tids: Vec<u32>,

    /// Watch only tasks of these users, by name or number (applied in the kernel).
    #[arg(short = 'u', long = "user", value_name = "USER,...", value_delimiter = ',')]
    pub users: Vec<String>,

    /// Show only tasks whose name matches this regular expression.
    #[arg(long, value_name = "REGEX")]
    pub comm: Option<String>,

    /// Show only tasks that ran on this node in the interval, or rest there.
    #[arg(long, value_name = "NODE")]
    pub node: Option<u32>,

    /// Counters to read at context switches: sets (auto, basic, numa, stalls, tlb, cache) and names, up to eight.
    #[arg(long, value_name = "LIST", default_value = "auto")]
    pub events: String,

    /// Folder with event tables (*.toml) of your own; they go before those built in.
    #[arg(long, value_name = "DIR")]
    pub pmu_dir: Option<PathBuf>,

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

fn parse_delay(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("'{text}' is not a number of seconds"))?;
    if (0.1..=60.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err(format!("{text} is outside 0.1 to 60 seconds"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_flags_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn delays_have_limits() {
        for (text, ok) in [
            ("1", true),
            ("0.1", true),
            ("60", true),
            ("0.09", false),
            ("61", false),
            ("x", false),
            ("nan", false),
        ] {
            assert_eq!(parse_delay(text).is_ok(), ok, "{text}");
        }
    }
}
