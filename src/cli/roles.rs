//! Flags by role: a struct for each, flattened into the subcommands that have a use for it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{NonEmptyStringValueParser, OsStringValueParser, TypedValueParser};
use clap::{Args, ValueEnum};

use super::parse;
use crate::export::Format;
use crate::record::command_lines::Lines;

/// The place and the amount of output.
#[derive(Args, Debug)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// Write to standard output instead of the screen (implied if standard output is not a terminal).
    #[arg(short = 'b', long)]
    pub batch: bool,

    /// Format of batch output; implies --batch. Default: text.
    #[arg(long, value_parser = parse::formats())]
    pub format: Option<&'static Format>,

    #[command(flatten)]
    pub json: JsonArgs,

    #[command(flatten)]
    pub count: CountArgs,
}

/// The shape of JSON.
#[derive(Args, Debug)]
pub struct JsonArgs {
    /// Repeat everything in every line of JSON. By default, a line omits what earlier lines contain
    /// (docs/json.md).
    #[arg(long)]
    pub json_full: bool,
}

/// Number of intervals.
#[derive(Args, Debug)]
pub struct CountArgs {
    /// Stop after this many intervals.
    #[arg(short = 'n', long, value_name = "N", value_parser = parse::at_least_one)]
    pub iterations: Option<u64>,
}

/// Rows and columns to show, and their order.
#[derive(Args, Debug)]
#[command(next_help_heading = "Rows and columns")]
pub struct DisplayArgs {
    /// Show one row per thread instead of per process.
    #[arg(short = 'H', long)]
    pub threads: bool,

    /// Show one row per container, pod, unit or other cgroup; each row includes all groups below it. On the
    /// screen, this is the first view. In batch mode, text and CSV have these rows (JSON always has both).
    #[arg(long, conflicts_with_all = ["threads", "comm", "node"])]
    pub by_container: bool,

    /// Show one row per last-level cache (L3) in text and CSV, if L3 domains differ from nodes (JSON always
    /// has these rows). On the screen, the view of nodes comes first; the key x shows these rows.
    #[arg(long, conflicts_with_all = ["threads", "comm", "node", "by_container"])]
    pub by_llc: bool,

    /// Like --by-llc, with one row per socket.
    #[arg(long, conflicts_with_all = ["threads", "comm", "node", "by_container", "by_llc"])]
    pub by_socket: bool,

    /// Metrics to show, in order, by id or title (see: numatop-ng list metrics).
    #[arg(short = 'o', long, value_name = "ID,...", value_delimiter = ',', value_parser = parse::MetricName, hide_possible_values = true)]
    pub columns: Vec<String>,

    /// Columns of another tool: numatop's RMA, LMA, RMA/LMA, CPI and CPU%. --columns overrides this.
    #[arg(long, value_enum, value_name = "NAME")]
    pub preset: Option<Preset>,

    /// Metric to sort by; a leading '-' reverses the order.
    #[arg(short = 's', long, value_name = "ID", allow_hyphen_values = true, value_parser = parse::MetricName, hide_possible_values = true)]
    pub sort: Option<String>,

    /// Show the first N rows only.
    #[arg(long, value_name = "N", value_parser = parse::at_least_one)]
    pub top: Option<u64>,

    /// Show only tasks whose name matches this regular expression.
    #[arg(long, value_name = "REGEX")]
    pub comm: Option<String>,

    /// Show only tasks that ran on this node in the interval, or whose last CPU was on this node.
    #[arg(long, value_name = "NODE")]
    pub node: Option<u32>,
}

/// The columns of another tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Preset {
    Numatop,
}

/// Look of the screen.
#[derive(Args, Debug)]
#[command(next_help_heading = "Screen")]
pub struct ScreenArgs {
    /// When to use colour.
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = ColourArg::Auto)]
    pub color: ColourArg,

    /// Colours of the screen. terminal: the terminal's own; okabe-ito: fixed colours for colour-blind users;
    /// contrast: bright colours, no grey.
    #[arg(long, value_enum, value_name = "NAME", default_value_t = ThemeArg::Terminal)]
    pub theme: ThemeArg,

    /// Highlight shares of remote accesses of at least this percentage.
    #[arg(long, value_name = "PCT", default_value_t = 20, value_parser = parse::between::<0, 100>)]
    pub remote_from: u32,

    /// Dim shares of remote accesses of processes with less resident memory than this.
    #[arg(long, value_name = "MIB", default_value_t = 16, value_parser = parse::between::<0, 1_048_576>)]
    pub dim_below: u32,

    /// Draw with ASCII characters only.
    #[arg(long)]
    pub ascii: bool,

    /// Leave mouse events to the terminal.
    #[arg(long)]
    pub no_mouse: bool,

    /// Metrics of the table of nodes, in order.
    #[arg(long, value_name = "ID,...", value_delimiter = ',')]
    pub node_columns: Vec<String>,

    /// File with default values for flags of the screen; the key W in the live view writes it. Default:
    /// NUMATOP_NG_CONFIG, or ~/.config/numatop-ng/config.toml.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// Tasks to watch, and measurements to make of them.
#[derive(Args, Debug)]
pub struct WatchArgs {
    #[command(flatten)]
    pub scope: ScopeArgs,

    #[command(flatten)]
    pub measure: MeasureArgs,

    #[command(flatten)]
    pub hot: HotArgs,
}

/// Tasks to watch.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Scope (applied in the kernel)")]
pub struct ScopeArgs {
    /// Watch only these processes.
    #[arg(short = 'p', long = "pid", value_name = "PID,...", value_delimiter = ',', value_parser = parse::process_id)]
    pub pids: Vec<u32>,

    /// Watch only these threads.
    #[arg(short = 't', long = "tid", value_name = "TID,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    pub tids: Vec<u32>,

    /// Watch only tasks of these users, by name or number.
    #[arg(short = 'u', long = "user", value_name = "USER,...", value_delimiter = ',')]
    pub users: Vec<String>,

    /// Watch only this process and all of its descendants, present and future; can be repeated.
    #[arg(long = "tree", value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub trees: Vec<u32>,

    #[command(flatten)]
    pub containers: ContainerArgs,
}

/// Scopes that are and-ed with the others; several of them are or-ed.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Scope by container (applied in the kernel; tasks must match one of these)")]
pub struct ContainerArgs {
    #[command(flatten)]
    pub named: NamedGroups,

    /// Watch only tasks outside containers, pods and guests.
    #[arg(long, conflicts_with_all = ["containers", "pods", "namespaces", "cgroups", "units", "machines"])]
    pub host: bool,

    /// Start before the named container exists, and wait for it.
    #[arg(long, requires = "NamedGroups")]
    pub wait: bool,

    /// Ask docker or podman on this socket for names of containers; can be repeated.
    #[arg(long = "runtime-socket", value_name = "PATH")]
    pub runtime_sockets: Vec<PathBuf>,
}

/// Groups of tasks by name.
#[derive(Args, Debug, Default)]
pub struct NamedGroups {
    /// Watch only this container, by name or the start of its id; can be repeated.
    #[arg(long = "container", value_name = "NAME|ID", value_parser = NonEmptyStringValueParser::new())]
    pub containers: Vec<String>,

    /// Watch only this pod, by name or uid.
    #[arg(long = "pod", value_name = "[NAMESPACE/]NAME", value_parser = NonEmptyStringValueParser::new())]
    pub pods: Vec<String>,

    /// Watch only the pods of this Kubernetes namespace.
    #[arg(long = "k8s-namespace", value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub namespaces: Vec<String>,

    /// Watch only this cgroup and cgroups below it. Accepts a path or a pattern (* ? **), relative to the
    /// root of the hierarchy, or a full path below /sys/fs/cgroup. Non-UTF-8 bytes are written as \xff.
    #[arg(long = "cgroup", value_name = "PATH|GLOB", value_parser = OsStringValueParser::new().try_map(parse::cgroup))]
    pub cgroups: Vec<String>,

    /// Watch only this systemd unit.
    #[arg(long = "unit", value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub units: Vec<String>,

    /// Watch only this LXC, nspawn or libvirt guest.
    #[arg(long = "machine", value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub machines: Vec<String>,
}

/// Sets of CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PlacesArg {
    Node,
    L3,
}

pub(super) const MEASUREMENT: &str = "Measurement";

/// Measurements, and when they are made.
#[derive(Args, Debug)]
#[command(next_help_heading = MEASUREMENT)]
pub struct MeasureArgs {
    /// Length of an interval, 0.1 to 60 seconds.
    #[arg(short = 'd', long = "delay", value_name = "SECONDS", default_value = "1", value_parser = parse::delay)]
    pub delay: f64,

    #[command(flatten)]
    pub counters: CounterArgs,

    /// Milliseconds per interval for locating memory; 0 disables it. Default: 20 ms or 1 % of a CPU,
    /// whichever is less.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(0..=1000))]
    pub placement_budget: Option<u64>,

    /// Record CPU time per node or per L3 domain. Default: per L3 domain on machines with at most 64 domains.
    #[arg(long, value_enum, value_name = "BY")]
    pub places: Option<PlacesArg>,

    /// Name of this machine in all output. Useful in containers, where the kernel reports the container's
    /// name. Default: NUMATOP_HOST_NAME, or the kernel's name.
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub host_name: Option<String>,

    #[command(flatten)]
    pub host: HostArgs,

    /// Also interrupt isolated and tickless CPUs (isolcpus, nohz_full) at each interval. Without it, counts
    /// of a task on these CPUs are unknown until a context switch, and its CPU time can be up to 1 s old.
    #[arg(long)]
    pub flush_isolated: bool,

    #[command(flatten)]
    pub profile: ProfileArgs,
}

/// The host whose files are read.
#[derive(Args, Debug, Default)]
pub struct HostArgs {
    /// Read the host's files below DIR: CPUs, nodes, memory, users, cgroups and containers. Use it in a
    /// container that mounts the host's files, or for a copy from another machine. In another pid namespace,
    /// files of processes are also read from DIR/proc.
    #[arg(long, value_name = "DIR")]
    pub host_root: Option<PathBuf>,
}

/// The profile of the machine.
#[derive(Args, Debug)]
pub struct ProfileArgs {
    /// Profile of measured costs between nodes (numatop-ng calibrate) to use instead of the stored one; ''
    /// uses no profile.
    #[arg(long, value_name = "FILE")]
    pub machine_profile: Option<OsString>,
}

impl MeasureArgs {
    pub fn interval(&self) -> Duration {
        Duration::from_secs_f64(self.delay)
    }
}

/// Hardware and software counters.
#[derive(Args, Debug)]
pub struct CounterArgs {
    /// Counters to read at context switches: sets (auto, basic, numa, stalls, tlb, cache) and event names, up
    /// to eight events; '' reads none.
    #[arg(long, value_name = "LIST", default_value = "auto")]
    pub events: String,

    /// Rotate events of --events that do not fit the counters. Each turn lasts this long, at least one
    /// interval (-d). In each turn, rows have values only for the events of this turn.
    #[arg(long, value_name = "TIME", requires = "events", value_parser = parse::age)]
    pub events_rotate: Option<Duration>,

    #[command(flatten)]
    pub tables: EventTableArgs,
}

/// Event tables of the user.
#[derive(Args, Debug)]
pub struct EventTableArgs {
    /// Directory with your own event tables (*.toml); they override built-in tables.
    #[arg(long, value_name = "DIR")]
    pub pmu_dir: Option<PathBuf>,
}

/// Hot spots.
#[derive(Args, Debug)]
#[command(next_help_heading = "Hot spots")]
pub struct HotArgs {
    /// Also sample stacks, for hot spots in JSON output and in recordings (on the screen: key p).
    #[arg(long)]
    pub hot: bool,

    #[command(flatten)]
    pub stacks: StackArgs,
}

/// Sampling of stacks.
#[derive(Args, Debug)]
pub struct StackArgs {
    /// Event that triggers a stack sample: auto (cycles, or cpu-clock without a PMU), rma, llc, or an event
    /// name.
    #[arg(long, value_name = "EVENT", default_value = "auto")]
    pub hot_event: String,

    /// Samples per second and CPU, 1 to 999; fewer on machines with hundreds of CPUs.
    #[arg(long, value_name = "HZ", default_value_t = crate::collect::hot::SAMPLES_HZ, value_parser = parse::between::<1, 999>)]
    pub hot_rate: u32,
}

/// Command lines in a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LinesArg {
    Redacted,
    Full,
}

impl From<LinesArg> for Lines {
    fn from(lines: LinesArg) -> Lines {
        match lines {
            LinesArg::Redacted => Lines::Redacted,
            LinesArg::Full => Lines::Full,
        }
    }
}

pub(super) const RECORDING: &str = "Recording";

/// Room that a recording may take, and rows that it leaves out.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = RECORDING)]
pub struct RecordLimits {
    /// Maximum total size of a recording directory; the oldest files are removed. Default: 2GiB.
    #[arg(long, requires = "record", value_name = "SIZE", value_parser = parse::size)]
    pub record_max_size: Option<u64>,

    /// Remove files of a recording directory older than this, as in 12h or 7d.
    #[arg(long, requires = "record", value_name = "TIME", value_parser = parse::age)]
    pub record_max_age: Option<Duration>,

    /// Record only the N busiest processes of each interval; the others are combined into one row.
    #[arg(long, requires = "record", value_name = "N", value_parser = parse::at_least_one)]
    pub record_top: Option<u64>,

    /// Also record command lines: 'redacted' hides values that resemble secrets, 'full' hides nothing.
    #[arg(long, requires = "record", value_name = "LINES", num_args = 0..=1, require_equals = true, default_missing_value = "redacted")]
    pub record_cmdline: Option<LinesArg>,

    /// Record only processes that use at least this share of a CPU; the others are combined into one row.
    #[arg(long, requires = "record", value_name = "PERCENT", value_parser = parse::percent)]
    pub record_min_cpu: Option<f64>,
}

/// The colours of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ThemeArg {
    Terminal,
    OkabeIto,
    Contrast,
}

/// When to use colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ColourArg {
    Auto,
    Always,
    Never,
}
