//! Facts about a process, each in one line: NUMA balancing, pages that were moved for it and the reasons, and the share of
//! remote accesses with its certainty, from each available source.

use crate::metric::access::DRAM_REMOTE_PCT;
use crate::metric::balancing::{BALANCING_PCT, NUMA_GROUP, NUMA_MOVES};
use crate::metric::format::short;
use crate::metric::pages::{OTHER, PAGES_MIGRATED};
use crate::metric::placement::{
    Basis, REMOTE_HIGH_PCT, REMOTE_LOW_PCT, REMOTE_PCT, RemoteShare, remote_by_source,
};
use crate::metric::task::{PREFERRED_NODE, SCAN_PERIOD_MS};
use crate::metric::{Metric, Value, Witness};
use crate::model::counters::Counter;
use crate::snapshot::{Snapshot, Task};
use crate::text::quantity::{count, percent};

/// The line; `None` where balancing has nothing to choose between.
pub(super) fn balancing(task: &Task, snapshot: &Snapshot) -> Option<String> {
    if snapshot.host.topology.nodes.len() < 2 {
        return None;
    }
    if let Some(why) = snapshot.host_missing(NUMA_MOVES.id) {
        return Some(format!("unavailable: {}", crate::text::clean_str(&why.to_string())));
    }
    let number = |metric: &Metric<Task>| match metric.read(task, snapshot) {
        Ok(Value::U64(number)) => Some(number),
        _ => None,
    };
    let prefers = match number(&PREFERRED_NODE) {
        Some(node) => format!("prefers node {node}"),
        None => "no preferred node".into(),
    };
    let scans = number(&SCAN_PERIOD_MS).map(|ms| format!(", scans every {ms} ms"));
    let group = number(&NUMA_GROUP).map(|id| format!(", group {id}"));
    let took = match BALANCING_PCT.read(task, snapshot) {
        Ok(Value::F64(pct)) => format!("; takes {pct:.1} % of its CPU time"),
        _ => String::new(),
    };
    let total = &task.total;
    Some(format!(
        "{prefers}{}{}{took}; moves {}, swaps {}, failed {} in total",
        scans.unwrap_or_default(),
        group.unwrap_or_default(),
        total[Counter::NumaMoves],
        total[Counter::NumaSwaps],
        total[Counter::NumaStuck]
    ))
}

/// The line; `None` where pages have nowhere to go.
pub(super) fn moved(task: &Task, snapshot: &Snapshot) -> Option<String> {
    if snapshot.host.topology.nodes.len() < 2 {
        return None;
    }
    if let Some(why) = snapshot.host_missing(PAGES_MIGRATED.id) {
        return Some(format!("unavailable: {}", crate::text::clean_str(&why.to_string())));
    }
    let now = PAGES_MIGRATED.read(task, snapshot).ok();
    let now = now.map(|rate| format!(" ({}/s)", short(&rate, PAGES_MIGRATED.unit)));
    let total = &task.total;
    let mut words = format!("{} pages{}", written(total[Counter::MigratedPages]), now.unwrap_or_default());
    // Recordings may be older than the reasons.
    if snapshot.host_missing(OTHER.id).is_none() && total[Counter::MigratedPages] > 0 {
        let known = total[Counter::BalancedPages].saturating_add(total[Counter::AskedPages]);
        words += &format!(
            ": by balancing {}, on request {}, other {}",
            written(total[Counter::BalancedPages]),
            written(total[Counter::AskedPages]),
            written(total[Counter::MigratedPages].saturating_sub(known)),
        );
    }
    if total[Counter::MigrateFailedPages] > 0 {
        words += &format!("; failed {}", written(total[Counter::MigrateFailedPages]));
    }
    Some(words)
}

fn written(pages: u64) -> String {
    count(pages as f64)
}

/// The line; `None` with a single node.
pub(super) fn remote(task: &Task, snapshot: &Snapshot) -> Option<String> {
    if snapshot.host.topology.nodes.len() < 2 {
        return None;
    }
    if let Some(side_by_side) = side_by_side(task, snapshot) {
        return Some(side_by_side);
    }
    let end = |metric: &Metric<Task>| {
        let end = metric.read(task, snapshot).ok().and_then(|value| value.number());
        end.map_or("?".into(), |pct| format!("{pct:.0}"))
    };
    Some(match REMOTE_PCT.read(task, snapshot) {
        Ok(Value::Share { pct, witness, .. }) => match witness {
            Witness::Counted => format!("{}% of its accesses, counted by the CPU", percent(pct)),
            Witness::Estimate => {
                format!(
                    "~{}% of its accesses, {} to {}%",
                    percent(pct),
                    end(&REMOTE_LOW_PCT),
                    end(&REMOTE_HIGH_PCT)
                )
            }
            Witness::Time => format!(
                "{pct:.0}% of its memory-access time, {} to {}%",
                end(&REMOTE_LOW_PCT),
                end(&REMOTE_HIGH_PCT)
            ),
            Witness::Memory => format!(
                "{pct:.0}% of its memory is on other nodes: {} to {}% of its accesses",
                end(&REMOTE_LOW_PCT),
                end(&REMOTE_HIGH_PCT)
            ),
            Witness::Hints => format!("{pct:.0}% of its hinting faults; accesses unknown"),
        },
        Ok(_) => return None,
        Err(why) => format!("unavailable: {}", crate::text::clean_str(&why.to_string())),
    })
}

/// Each source with its error, first the source of remote_pct; `None` if samples and counters add nothing to
/// a single source.
fn side_by_side(task: &Task, snapshot: &Snapshot) -> Option<String> {
    let read = |metric: &Metric<Task>| metric.read(task, snapshot).ok().and_then(|value| value.number());
    let sources = remote_by_source(task, snapshot);
    let mut parts: Vec<String> = sources.iter().filter_map(words_of).collect();
    let of_answers = parts.len();
    if let Some(pct) = read(&DRAM_REMOTE_PCT) {
        parts.push(format!("DRAM {pct:.0}%"));
    }
    // Counters and placement alone are one answer: the other one adds nothing to it.
    let is_sampled = |share: &RemoteShare| matches!(share.basis, Basis::Sampled | Basis::SampledTime);
    let sampled = sources.iter().any(is_sampled) || parts.len() > of_answers;
    (sampled && parts.len() > 1).then(|| parts.join("; "))
}

/// A source in a few words. Hinting faults say little beside any other.
fn words_of(share: &RemoteShare) -> Option<String> {
    let RemoteShare { basis, pct, range: (low, high) } = share;
    match basis {
        Basis::Counted => Some(format!("counted {pct:.0}%")),
        Basis::Sampled => Some(format!("sampled {pct:.0}% +-{:.0}", (high - pct).max(pct - low))),
        Basis::SampledTime => Some(format!("by time {pct:.0}% ({low:.0}-{high:.0})")),
        Basis::Placement => Some(format!("placement {pct:.0}% ({low:.0}-{high:.0})")),
        Basis::OneNode | Basis::Hinting => None,
    }
}
