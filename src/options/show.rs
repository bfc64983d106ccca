//! Rows and metrics that are shown, and their order, from the flags.

use regex_lite::Regex;

use super::{BadValue, bad};
use crate::analysis::filter::RowFilter;
use crate::cli::{DisplayArgs, Preset, ScreenArgs};
use crate::export::{ContainerSelection, PlaceSelection, Selection, Whole, all_columns};
use crate::metric::columns::{CONTAINER_TEXT, CPU_SET_PRIORITY, TASK_TEXT};
use crate::metric::container::CONTAINER_METRICS;
use crate::metric::cpu_set::{self, CPU_SET_METRICS};
use crate::metric::identity::{self, PID, TID};
use crate::metric::node::NODE_METRICS;
use crate::metric::task::{self, TASK_METRICS, by_id};
use crate::metric::{Metric, efficiency, events};
use crate::model::event::names;
use crate::model::units::NodeId;
use crate::pmu::typed::{Form, Typed};
use crate::snapshot::{Node, SetKind, Task};

/// Columns in the order of numatop's first window, then the names.
static NUMATOP: [&Metric<Task>; 7] = [
    &PID,
    &efficiency::RMA_PER_S,
    &efficiency::LMA_PER_S,
    &efficiency::RMA_LMA,
    &efficiency::CPI,
    &task::CPU_PCT,
    &identity::COMM,
];

/// The metrics of `--columns`, or `None` when it was not given.
///
/// # Errors
/// An unknown id, or one given twice.
pub fn columns(args: &DisplayArgs) -> Result<Option<Vec<&'static Metric<Task>>>, BadValue> {
    let mut metrics: Vec<&'static Metric<Task>> = Vec::new();
    for id in &args.columns {
        let metric = metric("--columns", id.trim())?;
        if metrics.iter().any(|other| other.id == metric.id) {
            return Err(bad("--columns", format!("'{id}' is given twice")));
        }
        metrics.push(metric);
    }
    if let (true, Some(Preset::Numatop)) = (metrics.is_empty(), args.preset) {
        return Ok(Some(NUMATOP.to_vec()));
    }
    Ok((!metrics.is_empty()).then_some(metrics))
}

/// The metrics of `--node-columns`, or `None` when it was not given.
///
/// # Errors
/// An unknown id.
pub fn node_columns(args: &ScreenArgs) -> Result<Option<Vec<&'static Metric<Node>>>, BadValue> {
    let find = |id: &String| {
        named(NODE_METRICS, id.trim())
            .ok_or_else(|| unknown("--node-columns", "nodes have", NODE_METRICS, id))
    };
    let metrics: Vec<&'static Metric<Node>> = args.node_columns.iter().map(find).collect::<Result<_, _>>()?;
    Ok((!metrics.is_empty()).then_some(metrics))
}

/// The metric of `--sort` and whether its order is reversed.
///
/// # Errors
/// An unknown id.
pub fn sort(args: &DisplayArgs) -> Result<Option<(&'static Metric<Task>, bool)>, BadValue> {
    let Some(text) = &args.sort else { return Ok(None) };
    let (id, reversed) = text.strip_prefix('-').map_or((text.as_str(), false), |id| (id, true));
    Ok(Some((metric("--sort", id)?, reversed)))
}

fn metric(flag: &'static str, id: &str) -> Result<&'static Metric<Task>, BadValue> {
    named(TASK_METRICS, id).or_else(|| event(id)).ok_or_else(|| unknown(flag, "there is", TASK_METRICS, id))
}

/// The column of an event, where a text can be one: a name of the kernel, a raw number, or terms of a PMU.
fn event(text: &str) -> Option<&'static Metric<Task>> {
    let is_event = match Typed::parse(text).ok()?.form {
        Form::Name(name) => names::find(name).is_some(),
        Form::Raw(_) | Form::Terms { .. } => true,
    };
    is_event.then(|| events::column(text)).flatten()
}

/// The metric with this id, or with this title of its column; case does not count.
fn named<R>(metrics: &'static [Metric<R>], typed: &str) -> Option<&'static Metric<R>> {
    let by_id = || metrics.iter().find(|metric| metric.id.eq_ignore_ascii_case(typed));
    by_id().or_else(|| metrics.iter().find(|metric| metric.title.eq_ignore_ascii_case(typed)))
}

/// Names that are suggested at most.
const SUGGESTED: usize = 3;

fn unknown<R>(flag: &'static str, have: &str, metrics: &[Metric<R>], typed: &str) -> BadValue {
    let mut near: Vec<(u8, &str)> =
        metrics.iter().filter_map(|metric| Some((unlike(metric, typed)?, metric.id))).collect();
    // Stable: metrics that are as near stay in their order.
    near.sort_by_key(|(unlike, _)| *unlike);
    let near: Vec<&str> = near.iter().take(SUGGESTED).map(|(_, id)| *id).collect();
    let hint = match near.split_last() {
        None => String::new(),
        Some((only, [])) => format!(", did you mean {only}?"),
        Some((last, others)) => format!(", did you mean {} or {last}?", others.join(", ")),
    };
    let typed = crate::text::clean_str(typed);
    bad(flag, format!("{have} no metric '{typed}'{hint} (all metrics: numatop-ng list metrics)"))
}

/// Words of top, htop, ps and pidstat, and ids of the metrics that mean the same.
const ELSEWHERE: [(&str, &[&str]); 14] = [
    ("mem", &["rss_bytes", "mem_bytes", "mem_pct_by_node"]),
    ("%mem", &["rss_bytes", "mem_bytes", "mem_pct_by_node"]),
    ("ram", &["rss_bytes", "mem_bytes", "mem_pct_by_node"]),
    ("res", &["rss_bytes", "mem_pct_by_node"]),
    ("shr", &["rss_shmem_bytes"]),
    ("time+", &["cpu_ns"]),
    ("io", &["disk_bytes_per_s", "disk_requests_per_s"]),
    ("disk", &["disk_bytes_per_s", "disk_requests_per_s"]),
    ("net", &["net_recv_bytes_per_s", "net_sent_bytes_per_s"]),
    ("gpu", &["accelerators", "accelerator_far_pct"]),
    ("ni", &["nice"]),
    ("s", &["state"]),
    ("psr", &["cpu"]),
    ("args", &["cmdline"]),
];

/// The distance of a metric from the typed word, 0 the nearest; `None` if they share no word of three
/// letters, and no other tool has that word for it.
fn unlike<R>(metric: &Metric<R>, typed: &str) -> Option<u8> {
    let typed = typed.to_lowercase();
    if ELSEWHERE.iter().any(|(word, ids)| *word == typed && ids.contains(&metric.id)) {
        return Some(0);
    }
    let words = |text: &str| -> Vec<String> {
        let parts = text.split(|c: char| !c.is_ascii_alphanumeric());
        parts.filter(|word| word.len() >= 3).map(str::to_owned).collect()
    };
    let (known, wanted) = (words(metric.id), words(&typed));
    let begins =
        |part: &String, word: &String| part.starts_with(word.as_str()) || word.starts_with(part.as_str());
    match () {
        () if metric.id.starts_with(&typed) || metric.title.to_lowercase().starts_with(&typed) => Some(1),
        () if known.first().zip(wanted.first()).is_some_and(|(part, word)| begins(part, word)) => Some(2),
        () => wanted.iter().any(|word| known.iter().any(|part| begins(part, word))).then_some(3),
    }
}

/// The contents of batch output with rows of containers.
///
/// # Errors
/// An unknown metric.
pub fn container_selection(
    args: &DisplayArgs,
    machine_readable: bool,
) -> Result<ContainerSelection, BadValue> {
    whole(args, "containers have", (CONTAINER_METRICS, CONTAINER_TEXT, task::CPU_PCT.id), machine_readable)
}

/// The same with rows of sockets or L3 domains; `None` without `--by-socket` and `--by-llc`.
///
/// # Errors
/// An unknown metric.
pub fn place_selection(
    args: &DisplayArgs,
    machine_readable: bool,
) -> Result<Option<PlaceSelection>, BadValue> {
    let Some(kind) = place_kind(args) else { return Ok(None) };
    let sets = (CPU_SET_METRICS, CPU_SET_PRIORITY, cpu_set::PLACE.id);
    let of = whole(args, "sockets and L3 domains have", sets, machine_readable)?;
    Ok(Some(PlaceSelection { kind, of }))
}

/// The kind of places that rows are of, if any.
pub fn place_kind(args: &DisplayArgs) -> Option<SetKind> {
    match (args.by_socket, args.by_llc) {
        (true, _) => Some(SetKind::Socket),
        (_, true) => Some(SetKind::Llc),
        _ => None,
    }
}

/// All rows of a kind that has `metrics`. Text output shows the ids in `text`. The order is by `sort` unless `--sort` is typed.
fn whole<R>(
    args: &DisplayArgs,
    have: &str,
    (metrics, text, sort): (&'static [Metric<R>], &[&str], &str),
    machine_readable: bool,
) -> Result<Whole<R>, BadValue> {
    let find = |flag, id: &str| named(metrics, id).ok_or_else(|| unknown(flag, have, metrics, id));
    let mut columns = Vec::new();
    for id in &args.columns {
        columns.push(find("--columns", id.trim())?);
    }
    if columns.is_empty() && machine_readable {
        columns.extend(metrics);
    } else if columns.is_empty() {
        columns.extend(text.iter().filter_map(|id| metrics.iter().find(|metric| metric.id == *id)));
    }
    let sort = args.sort.as_deref().unwrap_or(sort);
    let (id, reversed) = sort.strip_prefix('-').map_or((sort, false), |id| (id, true));
    let top = args.top.map(|top| top as usize);
    Ok(Whole { columns, sort: find("--sort", id)?, reversed, top })
}

/// The part of the selection that user space applies.
///
/// # Errors
/// `--comm` is not a regular expression.
pub fn filter(args: &DisplayArgs) -> Result<RowFilter, BadValue> {
    let comm = match &args.comm {
        Some(text) => Some(Regex::new(text).map_err(|error| bad("--comm", error.to_string()))?),
        None => None,
    };
    Ok(RowFilter { comm, node: args.node.map(NodeId), top: args.top.map(|top| top as usize) })
}

/// The content of batch output. `machine_readable` output has all metrics unless columns are named.
///
/// # Errors
/// See [`columns`], [`sort`], [`filter`].
pub fn selection(args: &DisplayArgs, machine_readable: bool) -> Result<Selection, BadValue> {
    let default = || {
        if machine_readable {
            return all_columns();
        }
        let tid = args.threads.then_some(TID.id);
        tid.into_iter().chain(TASK_TEXT.iter().copied()).filter_map(by_id).collect()
    };
    let named = columns(args)?;
    let sorted = sort(args)?;
    let asked = identity::asked(named.iter().flatten().chain(sorted.iter().map(|(metric, _)| metric)));
    // Of JSON each row has its counts by name anyway.
    let with_events = named.is_none();
    let mut columns = named.unwrap_or_else(default);
    if machine_readable {
        // A row must say whose it is.
        for id in [TID.id, PID.id] {
            if (id == PID.id || args.threads) && !columns.iter().any(|metric| metric.id == id) {
                columns.insert(0, by_id(id).expect("pid and tid are metrics"));
            }
        }
    }
    let (sort, reversed) = sorted.unwrap_or((&task::CPU_PCT, false));
    Ok(Selection { filter: filter(args)?, columns, sort, reversed, asked, with_events })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::tests::args;

    #[test]
    fn a_misspelt_metric_names_its_neighbours() {
        let error = selection(&args(&["--sort", "cpu_percent"]).display, true).err().unwrap().to_string();
        assert!(error.contains("'cpu_percent'") && error.contains("cpu_pct"), "{error}");
    }

    #[test]
    fn titles_of_columns_name_metrics_in_any_case() {
        for (typed, id) in
            [("CPU%", "cpu_pct"), ("rss", "rss_bytes"), ("PID", "pid"), ("Remote%", "remote_pct")]
        {
            assert_eq!(metric("--columns", typed).unwrap().id, id);
        }
        assert_eq!(sort(&args(&["--sort", "-CPU%"]).display).unwrap().unwrap().0.id, "cpu_pct");
    }

    #[test]
    fn at_most_three_names_are_suggested() {
        let error = metric("--sort", "mem").err().unwrap().to_string();
        assert!(error.contains("did you mean rss_bytes, mem_pct_by_node or mempolicy?"), "{error}");
        assert!(!metric("--sort", "zzz").err().unwrap().to_string().contains("did you mean"));
    }

    #[test]
    fn a_leading_minus_reverses() {
        let (metric, reversed) = sort(&args(&["--sort", "-rss_bytes"]).display).unwrap().unwrap();
        assert_eq!((metric.id, reversed), ("rss_bytes", true));
    }

    #[test]
    fn machine_readable_rows_say_whose_they_are() {
        let selection = selection(&args(&["--threads", "--columns", "ipc"]).display, true).unwrap();
        let ids: Vec<&str> = selection.columns.iter().map(|metric| metric.id).collect();
        assert_eq!(ids, ["pid", "tid", "ipc"]);
    }
}
