//! The share of remote accesses of a process and its certainty, in one line: from each available source.

use crate::metric::access::DRAM_REMOTE_PCT;
use crate::metric::placement::{
    Basis, REMOTE_HIGH_PCT, REMOTE_LOW_PCT, REMOTE_PCT, RemoteShare, remote_by_source,
};
use crate::metric::{Metric, Value, Witness};
use crate::snapshot::{Snapshot, Task};
use crate::text::quantity::percent;

/// The line; `None` with a single node.
pub(super) fn words(task: &Task, snapshot: &Snapshot) -> Option<String> {
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
        Err(why) => format!("n/a: {}", crate::text::clean_str(&why.to_string())),
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
