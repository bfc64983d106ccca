//! Hot spots as a JSON object: for each process its functions, the share of its samples that each is in, and its stacks.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::{Value as Json, json};

use crate::analysis::filter::RowFilter;
use crate::hot::profile::{Process, Profile, Spot, share};
use crate::model::process::ProcessId;
use crate::model::stacks::Function;
use crate::snapshot::Task;
use crate::text::clean;

/// Functions of a process at most, those with the most samples.
const FUNCTIONS_MAX: usize = 100;

/// The profile of one interval; processes with the most samples first. Includes only processes whose rows
/// among `tasks` the filter keeps. A process without a row (all its samples may have been lost) has its name
/// only.
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
    let (frames, stacks) = stacks(profile, id);
    json!({
        "pid": id.0,
        "comm": clean(process.comm.bytes()),
        "samples": process.samples,
        "functions": functions,
        "functions_left_out": spots.len().saturating_sub(FUNCTIONS_MAX),
        "frames": frames,
        "stacks": stacks,
    })
}

/// The functions that stacks of a process have, and the stacks: samples, and places in the list of functions, innermost first.
/// All of them, the most samples first; stacks of the same functions are one.
fn stacks(profile: &Profile, id: ProcessId) -> (Vec<Json>, Vec<Json>) {
    let mut counted: BTreeMap<Vec<Arc<Function>>, u64> = BTreeMap::new();
    for (stack, samples) in profile.stacks(&|other, _| other == id) {
        let count = counted.entry(stack).or_default();
        *count = count.saturating_add(samples);
    }
    let mut counted: Vec<(Vec<Arc<Function>>, u64)> = counted.into_iter().collect();
    counted.sort_by_key(|(_, samples)| std::cmp::Reverse(*samples));
    let mut places: HashMap<&Function, usize> = HashMap::new();
    let mut frames = Vec::new();
    let mut rows = Vec::new();
    for (stack, samples) in &counted {
        let mut row = Vec::new();
        for function in stack {
            let at = *places.entry(function.as_ref()).or_insert_with(|| {
                frames.push(named(function));
                frames.len() - 1
            });
            row.push(at);
        }
        rows.push(json!({ "samples": samples, "frames": row }));
    }
    (frames, rows)
}

fn named(function: &Function) -> Json {
    json!({ "function": function.name, "module": function.module, "kernel": function.kernel })
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
