//! Choices for recordings, from the command line: a report, the sides of a comparison and its metrics, tables and their files,
//! a trace or a profile, and rules of findings by their names.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use jiff::tz::TimeZone;
use regex_lite::Regex;

use super::{BadValue, bad};
use crate::cli::{ByArg, DiffArgs, DisplayArgs, ExportArgs, LayoutArg, PerArg, ReportArgs};
use crate::diff::series::compares;
use crate::entity::By;
use crate::finding::rules;
use crate::metric::container::CONTAINER_METRICS;
use crate::metric::host::{self, HOST_METRICS};
use crate::metric::node::NODE_METRICS;
use crate::metric::over::Better;
use crate::metric::task::{self, TASK_METRICS};
use crate::metric::{Metric, balancing, pages, placement};
use crate::record::dir::is_ring;
use crate::tables::Table;
use crate::text::clean_str;
use crate::traces::TraceFormat;
use crate::{finding, report};

/// The zone of the times of a report.
pub fn zone(args: &ReportArgs) -> TimeZone {
    if args.utc { TimeZone::UTC } else { TimeZone::system() }
}

/// Rows, points, title.
///
/// # Errors
/// `--comm` is not a regular expression.
pub fn report(args: &ReportArgs) -> Result<report::Options, BadValue> {
    let comm = args.comm.as_deref().map(Regex::new).transpose();
    Ok(report::Options {
        top: args.top as usize,
        points: args.points as usize,
        comm: comm.map_err(|error| bad("--comm", error.to_string()))?,
        title: args.title.clone(),
    })
}

/// The refusal of recordings of several hosts in one report.
pub fn several_hosts(names: &[String]) -> BadValue {
    bad(
        "FILE|DIR",
        format!(
            "the directory has recordings of {} hosts ({}): give the files of one host",
            names.len(),
            names.join(", ")
        ),
    )
}

/// The refusal to write a page to a terminal.
pub fn no_page_on_a_terminal() -> BadValue {
    bad("-o", "HTML needs a file (-o report.html); --format text prints to the terminal")
}

/// Metrics that are compared by default: the ones that show whether work and memory are in better places.
const USUAL: &[&str] = &[
    task::CPU_PCT.id,
    placement::REMOTE_PCT.id,
    task::IPC.id,
    task::RUNQ_WAIT_PCT.id,
    task::RUNQ_WAIT_US.id,
    task::SWITCHES_PER_S.id,
    task::CPU_MIGRATIONS_PER_S.id,
    task::NODE_MIGRATIONS_PER_S.id,
    pages::CROSS_NODE_FAULT_PCT.id,
    pages::PAGES_MIGRATED.id,
    balancing::BALANCING_PCT.id,
    task::LLC_MPKI.id,
    task::MAJOR_FAULTS_PER_S.id,
    task::RSS_BYTES.id,
    host::BUSY.id,
];

impl From<ByArg> for By {
    fn from(by: ByArg) -> By {
        match by {
            ByArg::Host => By::Host,
            ByArg::Node => By::Node,
            ByArg::Container => By::Container,
            ByArg::Program => By::Program,
        }
    }
}

/// A recording, or a stretch of it, as typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    pub typed: String,
    pub path: PathBuf,
    pub from: Option<String>,
    pub to: Option<String>,
}

/// `PATH`, or `PATH@FROM..TO`: an existing path is taken literally.
///
/// # Errors
/// Neither exists.
fn stretch_of(typed: &str, exists: impl Fn(&str) -> bool) -> Result<Stretch, BadValue> {
    let whole = || Stretch { typed: typed.into(), path: typed.into(), from: None, to: None };
    if exists(typed) {
        return Ok(whole());
    }
    let Some((path, part)) = typed.rsplit_once('@') else { return Ok(whole()) };
    let Some((from, to)) = part.split_once("..") else {
        let typed = clean_str(typed);
        return Err(bad("A, B", format!("'{typed}' is neither a file nor a file with @FROM..TO")));
    };
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    Ok(Stretch { typed: typed.into(), path: path.into(), from: some(from), to: some(to) })
}

/// Both sides, each of one recording or several.
///
/// # Errors
/// One names a stretch wrongly.
pub fn sides(args: &DiffArgs, exists: impl Fn(&str) -> bool + Copy) -> Result<[Vec<Stretch>; 2], BadValue> {
    let typed: [&[String]; 2] = match (&args.a, &args.b) {
        (Some(a), Some(b)) => [std::slice::from_ref(a), std::slice::from_ref(b)],
        _ => [&args.before, &args.after],
    };
    let side =
        |typed: &[String]| typed.iter().map(|one| stretch_of(one, exists)).collect::<Result<Vec<_>, _>>();
    let [a, b] = typed.map(side);
    Ok([a?, b?])
}

/// The metrics that are compared.
///
/// # Errors
/// No metric has this name, or its values do not add up.
pub fn compared(args: &DiffArgs) -> Result<BTreeSet<&'static str>, BadValue> {
    if args.metrics.is_empty() {
        return Ok(USUAL.iter().copied().collect());
    }
    args.metrics.iter().map(|id| known("--metrics", id)).collect()
}

/// A metric that can be compared, by its name.
fn known(flag: &'static str, id: &str) -> Result<&'static str, BadValue> {
    let mut named = all_metrics().filter(|metric| metric.id == id).peekable();
    if named.peek().is_none() {
        return Err(bad(
            flag,
            format!("there is no metric '{}': see numatop-ng list metrics", clean_str(id)),
        ));
    }
    let why = || {
        format!(
            "{id} cannot be compared: only metrics that can be summed over a recording are comparable \
             (numatop-ng list metrics)"
        )
    };
    named.find(|metric| metric.adds_up).map(|metric| metric.id).ok_or_else(|| bad(flag, why()))
}

/// A metric of a kind of row, with the facts that a comparison needs.
struct Named {
    id: &'static str,
    adds_up: bool,
    /// One direction is better.
    directed: bool,
}

/// Every metric of every kind of row.
fn all_metrics() -> impl Iterator<Item = Named> {
    fn of<R>(metric: &'static Metric<R>) -> Named {
        Named { id: metric.id, adds_up: compares(metric), directed: metric.traits.better != Better::Neither }
    }
    let host = HOST_METRICS.iter().map(|metric| Named {
        id: metric.id,
        adds_up: metric.share_of_time.is_some(),
        directed: metric.share_of_time.is_some_and(|better| better != Better::Neither),
    });
    let tasks = TASK_METRICS.iter().map(of).chain(CONTAINER_METRICS.iter().map(of));
    tasks.chain(NODE_METRICS.iter().map(of)).chain(host)
}

/// Metrics whose getting worse is a failure; `None`: no metric, an empty set: every metric that can get
/// worse.
///
/// # Errors
/// No metric has this name, or neither direction is better.
pub fn fails_on(args: &DiffArgs) -> Result<Option<BTreeSet<&'static str>>, BadValue> {
    const FLAG: &str = "--fail-on";
    let Some(typed) = &args.fail_on else { return Ok(None) };
    let ids = match typed.split_once('=') {
        None if typed == "worse" => return Ok(Some(BTreeSet::new())),
        Some(("worse", ids)) => ids,
        _ => {
            return Err(bad(
                FLAG,
                format!("'{}' is not a condition: use worse or worse=ID,...", clean_str(typed)),
            ));
        }
    };
    let directed = |id: &str| {
        let id = known(FLAG, id)?;
        let can_be = all_metrics().any(|metric| metric.id == id && metric.adds_up && metric.directed);
        if can_be {
            Ok(id)
        } else {
            Err(bad(FLAG, format!("a rise of {id} is neither good nor bad, so the metric cannot get worse")))
        }
    };
    ids.split(',').map(directed).collect::<Result<_, _>>().map(Some)
}

/// Tables, and the place of their files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tables {
    /// Each once, in the order of [`Table::ALL`].
    pub tables: Vec<Table>,
    /// The directory of all files.
    pub out: PathBuf,
    pub layout: Layout,
    /// Rows of tasks that rested, too.
    pub all: bool,
    /// Rows of threads.
    pub threads: bool,
}

/// Names of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Folders by table, day and host; a file covers this many ns, which divide a day.
    Hive { period_ns: i64 },
    /// One file by table.
    Flat,
}

const HOUR_NS: i64 = 3600 * 1_000_000_000;

/// The choices for Parquet files.
///
/// # Errors
/// No directory is given, or a flag is of other formats or of the other layout.
pub fn tables(args: &ExportArgs) -> Result<Tables, BadValue> {
    let display = &args.display;
    for (flag, is_typed) in [
        ("--by-container", display.by_container),
        ("--by-llc", display.by_llc),
        ("--by-socket", display.by_socket),
        ("--columns", !display.columns.is_empty()),
        ("--sort", display.sort.is_some()),
        ("--top", display.top.is_some()),
        ("--comm", display.comm.is_some()),
        ("--node", display.node.is_some()),
    ] {
        if is_typed {
            return Err(bad(
                flag,
                "Parquet files contain all columns and rows of their tables: select them in the query",
            ));
        }
    }
    let layout = match (args.tables.layout, args.tables.per) {
        (Some(LayoutArg::Flat), Some(_)) => {
            return Err(bad("--per", "--layout flat writes one file for the whole time"));
        }
        (Some(LayoutArg::Flat), None) => Layout::Flat,
        (_, Some(PerArg::Day)) => Layout::Hive { period_ns: 24 * HOUR_NS },
        _ => Layout::Hive { period_ns: HOUR_NS },
    };
    if layout != Layout::Flat && (args.from.is_some() || args.to.is_some()) {
        return Err(bad(
            "--from, --to",
            "only --layout flat accepts times: in the hive layout, each file covers a full hour or day",
        ));
    }
    let chosen = &args.tables.tables;
    let is_chosen = |table: &Table| chosen.is_empty() || chosen.contains(table);
    Ok(Tables {
        tables: Table::ALL.into_iter().filter(is_chosen).collect(),
        out: directory(args.output.as_deref())?,
        layout,
        all: args.tables.all,
        threads: display.threads,
    })
}

/// The directory of `-o`, which is one, or is to become one.
fn directory(path: Option<&Path>) -> Result<PathBuf, BadValue> {
    let tables =
        "Parquet output is several files, one for each table and time: give a directory, as in -o fleet/";
    match path {
        Some(path) if is_ring(path) => Ok(path.to_owned()),
        Some(path) => Err(bad(
            "-o",
            format!("{} is not a directory. {tables}", crate::text::clean_str(&path.to_string_lossy())),
        )),
        None => Err(bad("-o", tables)),
    }
}

/// Refuses flags of Parquet files for other formats.
///
/// # Errors
/// The first of these flags.
pub fn check_no_tables(args: &ExportArgs) -> Result<(), BadValue> {
    let typed = [
        ("--layout", args.tables.layout.is_some()),
        ("--per", args.tables.per.is_some()),
        ("--tables", !args.tables.tables.is_empty()),
        ("--all", args.tables.all),
    ];
    match typed.into_iter().find(|(_, is_typed)| *is_typed) {
        Some((flag, _)) => Err(bad(flag, "works only with --format parquet")),
        None => Ok(()),
    }
}

/// The refusal of Parquet files by a build that cannot make them.
pub fn no_parquet() -> BadValue {
    bad(
        "--format",
        "this numatop-ng is built without Parquet: use a release package, or cargo install --features parquet",
    )
}

/// The refusal of recordings of several hosts in one file of a table.
pub fn several_hosts_in_a_file(names: &[String]) -> BadValue {
    bad(
        "--layout",
        format!(
            "the directory has recordings of {} hosts ({}), but a flat file holds one host: omit flat, or give the \
             files of one host",
            names.len(),
            names.join(", ")
        ),
    )
}

/// Programs and containers with tracks in a trace, by default (`--top`).
const TOP: (usize, usize) = (20, 100);

/// Rows of a trace or a profile.
#[derive(Clone, Debug)]
pub struct TraceChoice {
    /// Programs with tracks of their own, and containers.
    pub top: (usize, usize),
    /// The name of a program or of a sampled process must match.
    pub comm: Option<Regex>,
}

/// The rows of `format`.
///
/// # Errors
/// A flag has no effect on this format, or `--comm` is not a regular expression.
pub fn trace(args: &DisplayArgs, format: TraceFormat) -> Result<TraceChoice, BadValue> {
    let is_trace = format == TraceFormat::Perfetto;
    let rows: [(&'static str, bool); 8] = [
        ("--threads", args.threads),
        ("--by-container", args.by_container),
        ("--by-llc", args.by_llc),
        ("--by-socket", args.by_socket),
        ("--columns", !args.columns.is_empty()),
        ("--sort", args.sort.is_some()),
        ("--node", args.node.is_some()),
        ("--top", args.top.is_some() && !is_trace),
    ];
    if let Some((flag, _)) = rows.iter().find(|(_, typed)| *typed) {
        let others =
            if is_trace { "--comm and --top select its programs" } else { "--comm selects its samples" };
        return Err(bad(flag, format!("has no effect on {}: {others}", format.name())));
    }
    let comm = args.comm.as_deref().map(Regex::new).transpose();
    Ok(TraceChoice {
        top: args.top.map_or(TOP, |top| (top as usize, top as usize)),
        comm: comm.map_err(|error| bad("--comm", error.to_string()))?,
    })
}

/// The refusal to write something that is not text to a terminal.
pub fn no_trace_on_a_terminal(format: TraceFormat) -> BadValue {
    let (name, extension) = (format.name(), format.extension());
    bad(
        "-o",
        format!(
            "the format {name} cannot be written to a terminal: give a file (-o x.{extension}), or write to \
             a pipe"
        ),
    )
}

/// The refusal of an id that no rule has.
pub fn no_rule(flag: &'static str, id: &str) -> BadValue {
    let near: Vec<&str> = rules::RULES
        .iter()
        .map(|rule| rule.id)
        .filter(|known| id.split('-').any(|word| word.len() > 3 && known.contains(word)))
        .collect();
    let hint = if near.is_empty() { String::new() } else { format!(", did you mean {}?", near.join(" or ")) };
    bad(flag, format!("there is no rule '{}'{hint} (numatop-ng list findings lists all)", clean_str(id)))
}

/// The rules that `--rules` names; names with a dash are excluded from all rules.
///
/// # Errors
/// An id that no rule has, or both kinds of names.
pub fn rules(ids: &[String]) -> Result<finding::Options, BadValue> {
    let mut options = finding::Options::default();
    for id in ids.iter().map(|id| id.trim()).filter(|id| !id.is_empty()) {
        let (name, without) = id.strip_prefix('-').map_or((id, false), |name| (name, true));
        if rules::by_id(name).is_none() {
            return Err(no_rule("--rules", name));
        }
        if without {
            options.without.insert(name.to_owned());
        } else {
            options.only.get_or_insert_default().insert(name.to_owned());
        }
    }
    if options.only.is_some() && !options.without.is_empty() {
        return Err(bad("--rules", "takes either names of rules, or names with a leading '-', not both"));
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_follows_the_last_at_unless_the_path_exists() {
        let exists = |path: &str| path == "a@b..c";
        let stretch = |typed| stretch_of(typed, exists).unwrap();
        assert_eq!(stretch("a@b..c").path.as_path(), "a@b..c".as_ref() as &std::path::Path);
        let part = stretch("/var/log/numa/@-2h..-90m");
        assert_eq!(
            (part.path.as_path(), part.from.as_deref(), part.to.as_deref()),
            ("/var/log/numa/".as_ref(), Some("-2h"), Some("-90m"))
        );
        let end = stretch("ring@-30m..");
        assert_eq!((end.from.as_deref(), end.to, end.typed.as_str()), (Some("-30m"), None, "ring@-30m.."));
        assert!(stretch_of("ring@yesterday", exists).unwrap_err().to_string().contains("FROM..TO"));
    }

    #[test]
    fn rules_are_chosen_or_left_out() {
        let of = |ids: &[&str]| rules(&ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>());
        assert_eq!(of(&[]).unwrap(), finding::Options::default());
        assert!(of(&["zone-reclaim"]).unwrap().only.unwrap().contains("zone-reclaim"));
        assert!(of(&["-zone-reclaim"]).unwrap().without.contains("zone-reclaim"));
        assert!(of(&["zone-reclaim", "-quota-throttled"]).is_err());
        let error = of(&["zone-reclaims"]).unwrap_err().to_string();
        assert!(error.contains("did you mean zone-reclaim?"), "{error}");
    }
}
