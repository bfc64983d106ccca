//! Hot spots as a JSON object: for each process its functions, and the share of its samples that each is in.

use std::collections::HashMap;

use serde_json::{Value as Json, json};

use crate::analysis::filter::RowFilter;
use crate::hot::profile::{Process, Profile, Spot, share};
use crate::model::process::ProcessId;
use crate::snapshot::Task;
use crate::text::clean;

/// Functions of a process at most, those with the most samples.
const FUNCTIONS_MAX: usize = 100;

/// The profile of one interval; processes with the most samples first. Of processes only those whose rows among `tasks`
/// the filter keeps. A process without a row (all of it may have been lost) has its name only.
pub(super) fn object(profile: &Profile, filter: &RowFilter, tasks: &[Task]) -> Json {
    let mut kept: HashMap<ProcessId, bool> = HashMap::new();
    if filter.is_restricted() {
        for task in tasks {
            *kept.entry(task.raw.process()).or_default() |= filter.keeps(task);
        }
    }
    let keeps = |(id, process): &(ProcessId, &Process)| {
        !filter.is_restricted() || kept.get(id).copied().unwrap_or_else(|| filter.keeps_name(&process.comm))
    };
    let mut processes: Vec<(ProcessId, &Process)> = profile.processes().filter(keeps).collect();
    processes.sort_by_key(|(id, process)| (std::cmp::Reverse(process.samples), *id));
    let processes: Vec<Json> =
        processes.into_iter().map(|(id, process)| of_process(profile, id, process)).collect();
    json!({
        "event": profile.event,
        "rate_hz": profile.hz,
        "samples": profile.samples,
        "lost": profile.lost,
        "processes": processes,
    })
}

fn of_process(profile: &Profile, id: ProcessId, process: &Process) -> Json {
    let spots = profile.spots(&|other, _| other == id);
    let functions: Vec<Json> =
        spots.iter().take(FUNCTIONS_MAX).map(|spot| function(spot, process.samples)).collect();
    json!({
        "pid": id.0,
        "comm": clean(process.comm.bytes()),
        "samples": process.samples,
        "functions": functions,
        "functions_left_out": spots.len().saturating_sub(FUNCTIONS_MAX),
    })
}

/// Shares are of the samples of the process; errors are half of the 95 % interval.
fn function(spot: &Spot, samples: u64) -> Json {
    let (own, own_error) = share(spot.own, samples).unzip();
    let (total, total_error) = share(spot.total, samples).unzip();
    json!({
        "function": spot.function.name,
        "module": spot.function.module,
        "kernel": spot.function.kernel,
        "own_pct": own,
        "own_error_pct": own_error,
        "total_pct": total,
        "total_error_pct": total_error,
    })
}
