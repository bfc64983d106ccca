//! A row: a process or a thread in the interval, and the reasons why it waits for a CPU: a quota that stops it, or an affinity
//! that keeps it from CPUs that idle. Pure.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use super::{Memory, Tally, sum};
use crate::model::access::{AccessSource, MemoryUse, SampledEvent};
use crate::model::counters::Counter;
use crate::model::process::ProcFields;
use crate::model::sample::{Missing, PagesByPolicy, PolicyBytes, Reading, Resident, Sample, TaskRaw};
use crate::model::units::NodeId;

/// The unit of one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowKind {
    /// A process: the sum of its threads, ended ones included.
    Processes,
    /// A thread; what ended threads left is a row with `tid` 0.
    Threads,
    /// The threads of one process id.
    ThreadsOf(u32),
}

/// Memory that a process uses, from samples.
#[derive(Clone, Debug)]
pub struct SampledUse {
    pub source: AccessSource,
    /// The event of a PMU that is sampled, too, if so.
    pub event: Option<SampledEvent>,
    /// Length of the window in seconds.
    pub window_s: f64,
    pub found: Arc<MemoryUse>,
}

/// Values of a process that are looked up beside its counts; the rows of its threads share them.
#[derive(Debug)]
pub struct LookedUp {
    pub(super) memory: Option<(u64, Reading<Memory>)>,
    pub(super) policies: Option<(u64, Reading<PolicyBytes>)>,
    pub(super) by_policy: Option<Arc<PagesByPolicy>>,
    pub(super) about: Option<Reading<Arc<ProcFields>>>,
    pub(super) memory_use: Option<SampledUse>,
}

/// One row: identity and gauges of a task, and what it did since we first saw it and in the interval.
#[derive(Clone, Debug)]
pub struct Task {
    /// Identity and gauges: of the thread, or of the process's leader.
    pub raw: Arc<TaskRaw>,
    /// `None` when the row is a process.
    pub tid: Option<u32>,
    /// Live threads; 0 for a process that ended.
    pub threads: u32,
    pub exited: bool,
    pub rss_bytes: u64,
    /// The same by kind; see [`TaskRaw::resident`].
    pub resident: Option<Resident>,
    /// Nodes that any of its live threads may run on, and take memory from; see [`TaskRaw::cpu_nodes`].
    pub cpu_nodes: Option<u64>,
    pub mem_nodes: Option<u64>,
    /// `None` where nothing of its process was looked up.
    pub looked_up: Option<Arc<LookedUp>>,
    /// Cumulative. Fields that the kernel keeps since birth are since birth here.
    pub total: Tally,
    /// In the interval; all zero in a first sample.
    pub delta: Tally,
    /// Reasons of its waits in the interval.
    pub waits: Waits,
}

/// See [`Task::tie`].
pub type Tie = (Reverse<u64>, u32, u32, u64);

/// The amounts of a row by which the largest are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowUse {
    pub pid: u32,
    /// On-CPU time in the interval, ns.
    pub run_ns: u64,
    pub rss_bytes: u64,
}

impl Task {
    /// A process that has done nothing yet and has nothing.
    pub fn new(raw: Arc<TaskRaw>) -> Task {
        Task {
            raw,
            tid: None,
            threads: 0,
            exited: false,
            rss_bytes: 0,
            resident: None,
            cpu_nodes: None,
            mem_nodes: None,
            looked_up: None,
            total: Tally::Nothing,
            delta: Tally::Nothing,
            waits: Waits::default(),
        }
    }

    /// True for the row of a process, and for that of its main thread.
    pub fn leads(&self) -> bool {
        self.tid.is_none_or(|tid| tid == self.raw.pid)
    }

    /// The order of rows that are equal: the busier, then the older task first, so that a screen does not flicker.
    pub fn tie(&self) -> Tie {
        (Reverse(self.total.cpu_ns()), self.raw.pid, self.raw.tid, self.raw.serial)
    }

    /// True for a row of a task that was moved out of the scope: it still runs, and is not watched.
    pub fn left(&self) -> bool {
        self.exited && self.raw.tid != 0 && self.raw.exit_state == 0
    }

    /// True for a row of a task that does not live any longer; see [`Task::left`] for the others without further rows.
    pub fn ended(&self) -> bool {
        self.exited && !self.left()
    }

    /// When the memory of its process was looked at (CLOCK_MONOTONIC, ns), and where it was; `None` for rows without memory and
    /// those whose turn has not come.
    pub fn memory(&self) -> Option<&(u64, Reading<Memory>)> {
        self.looked_up.as_ref()?.memory.as_ref()
    }

    /// When the policies of its mappings were read (CLOCK_MONOTONIC, ns), and the memory that they are for; `None` unless they
    /// were asked for.
    pub fn policies(&self) -> Option<&(u64, Reading<PolicyBytes>)> {
        self.looked_up.as_ref()?.policies.as_ref()
    }

    /// Pages of its process by the policy that holds for them; `None` where the kernel does not tell policies without a walk, and
    /// where its turn has not come.
    pub fn by_policy(&self) -> Option<&PagesByPolicy> {
        self.looked_up.as_ref()?.by_policy.as_deref()
    }

    /// Fields of its process that were read on demand.
    pub fn about(&self) -> Option<&Reading<Arc<ProcFields>>> {
        self.looked_up.as_ref()?.about.as_ref()
    }

    /// The memory that its process uses, and the source and the window of that.
    pub fn memory_use(&self) -> Option<&SampledUse> {
        self.looked_up.as_ref()?.memory_use.as_ref()
    }

    /// Time from the look at its memory to `now_ns`.
    pub fn memory_age_ns(&self, now_ns: u64) -> Option<u64> {
        self.memory().map(|(read_ns, _)| now_ns.saturating_sub(*read_ns))
    }

    /// On-CPU time in the interval, ns.
    pub fn run_ns(&self) -> u64 {
        self.delta.cpu_ns()
    }

    /// Share of its on-CPU time per node in percent, over the interval.
    ///
    /// # Errors
    /// It did not run in the interval.
    pub fn run_pct_by_node(&self) -> Reading<Vec<(NodeId, f64)>> {
        shares(&self.delta.run_ns)
            .ok_or_else(|| Missing::NotCollected("the task did not run in this interval".into()))
    }

    /// The node with the largest share of its on-CPU time: in the interval, or ever if it rested.
    pub fn home_node(&self) -> Option<NodeId> {
        let ran = if self.run_ns() > 0 { &self.delta.run_ns } else { &self.total.run_ns };
        let (node, ns) = ran.iter().enumerate().max_by_key(|(node, ns)| (**ns, std::cmp::Reverse(*node)))?;
        (*ns > 0).then_some(NodeId(node as u32))
    }
}

fn shares(run_ns: &[u64]) -> Option<Vec<(NodeId, f64)>> {
    let sum = sum(run_ns);
    if sum == 0 {
        return None;
    }
    let share = |(node, ns): (usize, &u64)| (NodeId(node as u32), *ns as f64 * 100.0 / sum as f64);
    Some(run_ns.iter().enumerate().filter(|(_, ns)| **ns > 0).map(share).collect())
}

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
        *known
            .entry(cgroup)
            .or_insert_with(|| sample.names.upwards(cgroup).find(|id| throttled.contains_key(id)))
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
