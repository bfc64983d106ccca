//! The sides of a comparison, and the metrics that are compared.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::{BadValue, bad};
use crate::cli::{ByArg, DiffArgs};
use crate::diff::series::compares;
use crate::entity::By;
use crate::metric::over::Better;
use crate::metric::task::{self, TASK_METRICS};
use crate::metric::{Metric, balancing, host, pages, placement};
use crate::metric::{container::CONTAINER_METRICS, host::HOST_METRICS, node::NODE_METRICS};
use crate::text::clean_str;

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
        return Err(bad("A, B", format!("'{typed}' is not a file, nor a file with @FROM..TO")));
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
            format!("no metric is called '{}': see numatop-ng list metrics", clean_str(id)),
        ));
    }
    let why = || {
        format!(
            "{id} cannot be compared: only metrics that add up over a recording can, see numatop-ng list metrics"
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
        if can_be { Ok(id) } else { Err(bad(FLAG, format!("{id} can rise or fall without being worse"))) }
    };
    ids.split(',').map(directed).collect::<Result<_, _>>().map(Some)
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
}
