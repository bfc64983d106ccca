//! Reasons why tasks wait for a CPU: a quota that stops them, or an affinity that keeps them from CPUs that idle. Pure.

use std::collections::HashMap;

use super::Task;
use crate::model::counters::Counter;
use crate::model::group::DEPTH_MAX;
use crate::model::sample::{Sample, TaskRaw};

/// Parts of the time that a row waited for a CPU in the interval, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Waits {
    /// Of its threads that may not use all CPUs.
    pub bound_ns: u64,
    /// The share, 0 to 1, that the quota of a cgroup explains.
    pub throttled: f64,
}

/// Whether a thread is kept from some of the CPUs that are online.
pub(super) fn is_bound(task: &TaskRaw, online: u32) -> bool {
    task.cpus_allowed > 0 && task.cpus_allowed < online
}

/// Computes the share of waits that quotas explain: the throttled time of a cgroup, which counts each of its
/// CPUs, in the time that its tasks waited. Several tasks may wait on one throttled CPU, so this is a lower
/// bound.
pub(super) fn throttle(rows: &mut [Task], sample: &Sample, interval_ns: Option<u64>) {
    let Some(interval_ns) = interval_ns.filter(|ns| *ns > 0) else { return };
    let throttled: HashMap<u64, f64> = sample
        .groups
        .iter()
        .filter_map(|(id, raw)| {
            let (then, before) = raw.throttled_before?;
            let (now, over) = (*raw.throttled_ns.as_ref().ok()?, raw.read_ns.saturating_sub(then));
            let ns = now.saturating_sub(before);
            (ns > 0 && over > 0).then(|| (*id, ns as f64 * interval_ns as f64 / over as f64))
        })
        .collect();
    if throttled.is_empty() {
        return;
    }
    // The group that stops it: the nearest one above it with a quota that bites.
    let mut known: HashMap<u64, Option<u64>> = HashMap::new();
    let mut stops = |cgroup: u64| {
        *known.entry(cgroup).or_insert_with(|| {
            let parent = |id: &u64| sample.names.groups.get(id).and_then(|group| group.parent);
            std::iter::successors(Some(cgroup), parent).take(DEPTH_MAX).find(|id| throttled.contains_key(id))
        })
    };
    let mut waited: HashMap<u64, f64> = HashMap::new();
    for row in rows.iter() {
        if let Some(group) = stops(row.raw.cgroup_id) {
            *waited.entry(group).or_default() += row.delta[Counter::RunDelayNs] as f64;
        }
    }
    for row in rows {
        let Some(group) = stops(row.raw.cgroup_id) else { continue };
        let waited = waited.get(&group).copied().unwrap_or(0.0);
        if waited > 0.0 {
            row.waits.throttled = (throttled[&group] / waited).min(1.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::sample::Counts;

    #[test]
    fn a_quota_explains_waits_of_its_group_only() {
        let task = |cgroup_id, wait_ns| {
            let raw = TaskRaw { cgroup_id, ..TaskRaw::default() };
            let delta = Counts::from([(Counter::RunDelayNs, wait_ns)]).into();
            Task { delta, ..Task::new(Arc::new(raw)) }
        };
        let mut rows = [task(7, 300), task(7, 700), task(8, 500)];
        let mut sample = crate::model::sample::Sample::default();
        let mut raw = crate::snapshot::containers::tests::group_raw();
        (raw.read_ns, raw.throttled_ns, raw.throttled_before) = (2_000, Ok(900), Some((1_000, 400)));
        sample.groups.insert(7, Arc::new(raw));
        throttle(&mut rows, &sample, Some(1_000));
        assert_eq!(rows.each_ref().map(|row| row.waits.throttled), [0.5, 0.5, 0.0]);
        // More than they waited counts as all.
        throttle(&mut rows, &sample, Some(9_000));
        assert_eq!(rows[0].waits.throttled, 1.0);
    }
}
