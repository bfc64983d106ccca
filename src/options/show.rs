//! Rows and metrics that are shown, and their order, from the flags.

use regex_lite::Regex;

use super::{BadValue, bad};
use crate::analysis::filter::RowFilter;
use crate::cli::{DisplayArgs, ScreenArgs};
use crate::export::{ContainerSelection, Selection, all_columns};
use crate::metric::Metric;
use crate::metric::columns::{CONTAINER_TEXT, TASK_TEXT};
use crate::metric::container::{self, CONTAINER_METRICS};
use crate::metric::events;
use crate::metric::identity::{PID, TID};
use crate::metric::node;
use crate::metric::on_demand;
use crate::metric::task::{self, TASK_METRICS, by_id};
use crate::model::event::names;
use crate::model::units::NodeId;
use crate::pmu::typed::{Form, Typed};
use crate::snapshot::{Node, Task};

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
    Ok((!metrics.is_empty()).then_some(metrics))
}

/// The metrics of `--node-columns`, or `None` when it was not given.
///
/// # Errors
/// An unknown id.
pub fn node_columns(args: &ScreenArgs) -> Result<Option<Vec<&'static Metric<Node>>>, BadValue> {
    let find = |id: &String| {
        let found = node::by_id(id.trim());
        found.ok_or_else(|| {
            bad("--node-columns", format!("nodes have no metric '{}'", crate::text::clean_str(id)))
        })
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
    by_id(id).or_else(|| event(id)).ok_or_else(|| {
        let near: Vec<&str> =
            TASK_METRICS.iter().map(|metric| metric.id).filter(|known| alike(known, id)).collect();
        let hint =
            if near.is_empty() { String::new() } else { format!(", did you mean {}?", near.join(" or ")) };
        bad(
            flag,
            format!(
                "there is no metric '{}'{hint} (numatop-ng list metrics shows all)",
                crate::text::clean_str(id)
            ),
        )
    })
}

/// The column of an event, where a text can be one: a name of the kernel, a raw number, or terms of a PMU.
fn event(text: &str) -> Option<&'static Metric<Task>> {
    let is_event = match Typed::parse(text).ok()?.form {
        Form::Name(name) => names::find(name).is_some(),
        Form::Raw(_) | Form::Terms { .. } => true,
    };
    is_event.then(|| events::column(text)).flatten()
}

/// A word of at least three letters in common.
fn alike(known: &str, typed: &str) -> bool {
    let typed = typed.to_lowercase();
    typed.split('_').any(|word| {
        word.len() >= 3
            && known
                .split('_')
                .any(|part| part.starts_with(word) || word.starts_with(part) && part.len() >= 3)
    })
}

/// The contents of batch output with rows of containers.
///
/// # Errors
/// An unknown metric.
pub fn container_selection(
    args: &DisplayArgs,
    machine_readable: bool,
) -> Result<ContainerSelection, BadValue> {
    let find = |flag, id: &str| {
        container::by_id(id)
            .ok_or_else(|| bad(flag, format!("containers have no metric '{}'", crate::text::clean_str(id))))
    };
    let mut columns = Vec::new();
    for id in &args.columns {
        columns.push(find("--columns", id.trim())?);
    }
    if columns.is_empty() && machine_readable {
        columns.extend(CONTAINER_METRICS);
    } else if columns.is_empty() {
        columns.extend(CONTAINER_TEXT.iter().filter_map(|id| container::by_id(id)));
    }
    let sort = args.sort.as_deref().unwrap_or(task::CPU_PCT.id);
    let (id, reversed) = sort.strip_prefix('-').map_or((sort, false), |id| (id, true));
    Ok(ContainerSelection {
        columns,
        sort: find("--sort", id)?,
        reversed,
        top: args.top.map(|top| top as usize),
    })
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
    let asked = on_demand::asked(named.iter().flatten().chain(sorted.iter().map(|(metric, _)| metric)));
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
