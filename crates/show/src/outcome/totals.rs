//! Sums over a run, from its samples: final rows of ended tasks, and the last rows of the living.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Peak, Waits};
use crate::metric::Metric;
use crate::metric::interrupts::{RUNQ_WAIT_BOUND_PCT, RUNQ_WAIT_IDLE_ELSEWHERE_PCT, RUNQ_WAIT_THROTTLED_PCT};
use crate::model::process::ProcessId;
use crate::model::sample::{Counts, HostFacts, Missing, Reading, Sample, TaskRaw, TaskRows};
use crate::model::units::NodeId;
use crate::snapshot::{Container, Remote, RowKind, Snapshot, Task, derive_tasks};

/// Samples after which a process that ended is not reported again.
const SETTLED: u64 = 8;

/// Sums of a run so far.
#[derive(Default)]
pub struct Totals {
    samples: u64,
    /// Without rows.
    first: Sample,
    /// Its rows are the living ones.
    last: Sample,
    /// Sums of processes that ended, less what there was before the command began.
    sum: Counts,
    /// Processes that ended a short while ago, and in which sample: a thread that ends late replaces the row.
    ended: HashMap<ProcessId, (Arc<TaskRaw>, u64)>,
    leader: Option<Arc<TaskRaw>>,
    remote: Remote,
    waits: Waits,
    peak: Option<Peak>,
    /// CPU time of ended tasks without a row, ns.
    lost_ns: u64,
}

/// Sums over the whole run.
pub struct Sums {
    pub machine: Snapshot,
    pub row: Container,
    pub waits: Waits,
    pub peak: Reading<Peak>,
    pub living: u64,
    pub lost_ns: u64,
}

/// The same sample without rows.
fn without_rows(sample: &Sample) -> Sample {
    Sample { tasks: TaskRows::default(), exited: Vec::new(), ..sample.clone() }
}

impl Totals {
    /// Takes the next sample; the first is from before the command began. `snapshot`: the interval that it ends.
    pub fn take(&mut self, sample: &Sample, snapshot: Option<&Snapshot>) {
        if self.samples == 0 {
            self.first = without_rows(sample);
            for task in &sample.tasks {
                self.sum -= &task.counts;
            }
            self.leader = sample.tasks.first().cloned();
        }
        self.samples += 1;
        for task in &sample.exited {
            self.ended.insert(task.process(), (Arc::clone(task), self.samples));
        }
        let (samples, sum) = (self.samples, &mut self.sum);
        self.ended.retain(|_, (task, seen)| {
            let is_open = *seen + SETTLED > samples;
            if !is_open {
                *sum += &task.counts;
            }
            is_open
        });
        self.last = Sample { exited: Vec::new(), ..sample.clone() };
        if let Some(snapshot) = snapshot {
            self.add_interval(snapshot);
        }
    }

    /// Adds facts known only for an interval: the place of memory, and reasons for waits.
    fn add_interval(&mut self, snapshot: &Snapshot) {
        let interval_ns = snapshot.interval_ns.unwrap_or(0) as f64;
        let ns = |metric: &Metric<Task>, task: &Task| {
            let pct = metric.read(task, snapshot).ok().and_then(|value| value.number());
            pct.unwrap_or(0.0) / 100.0 * interval_ns
        };
        let mut bytes = 0u64;
        let mut by_node: Vec<f64> = Vec::new();
        for task in &snapshot.tasks {
            self.waits.quota_ns += ns(&RUNQ_WAIT_THROTTLED_PCT, task);
            self.waits.bound_ns += ns(&RUNQ_WAIT_BOUND_PCT, task);
            self.waits.idle_elsewhere_ns += ns(&RUNQ_WAIT_IDLE_ELSEWHERE_PCT, task);
            bytes = bytes.saturating_add(task.rss_bytes);
            let Some((_, Ok(memory))) = task.memory() else { continue };
            self.remote += &Remote::of(&task.delta.run_ns, memory, &snapshot.room);
            by_node.resize(by_node.len().max(memory.bytes_by_node.len()), 0.0);
            for (sum, bytes) in by_node.iter_mut().zip(&memory.bytes_by_node) {
                *sum += bytes;
            }
        }
        if let [only] = snapshot.host.topology.nodes.as_slice() {
            by_node = vec![0.0; only.id.0 as usize + 1];
            by_node[only.id.0 as usize] = bytes as f64;
        }
        if bytes == 0 {
            return;
        }
        let peak = self.peak.get_or_insert_default();
        peak.bytes = peak.bytes.max(bytes);
        // Looks at memory lag behind it: the largest of them is not of the same moment.
        let seen = |parts: &[(NodeId, f64)]| parts.iter().map(|(_, bytes)| bytes).sum::<f64>();
        if by_node.iter().sum::<f64>() >= seen(&peak.by_node) {
            let used = by_node.into_iter().enumerate().filter(|(_, bytes)| *bytes > 0.0);
            peak.by_node = used.map(|(node, bytes)| (NodeId(node as u32), bytes)).collect();
        }
    }

    /// The sums at the end.
    ///
    /// # Errors
    /// There was no sample after the command began.
    pub fn finish(mut self, host: &Arc<HostFacts>) -> Reading<Sums> {
        if self.samples < 2 {
            return Err(Missing::FirstInterval);
        }
        for (task, _) in self.ended.values() {
            self.sum += &task.counts;
        }
        for task in &self.last.tasks {
            self.sum += &task.counts;
        }
        let before = self.first.exit_lost_ns.iter().chain(std::iter::repeat(&0));
        let lost = self.last.exit_lost_ns.iter().zip(before).map(|(now, before)| now.saturating_sub(*before));
        let lost = Counts { run_ns: lost.collect(), ..Counts::default() };
        self.lost_ns = lost.cpu_ns();
        self.sum += &lost;
        // A clock of a CPU may stand a little behind.
        self.sum.clamp();
        let living = self.last.tasks.iter().filter(|task| task.tid != 0).count() as u64;
        let machine = derive_tasks(host, Some(&self.first), &without_rows(&self.last), RowKind::Processes);
        let mut sum = Task::new(self.leader.unwrap_or_default());
        (sum.total, sum.delta) = (self.sum.clone().into(), self.sum.into());
        sum.rss_bytes = self.peak.as_ref().map_or(0, |peak| peak.bytes);
        sum.threads = u32::try_from(living).unwrap_or(u32::MAX);
        let short = || {
            Missing::NotCollected(
                "no sample was taken while the command ran: it was shorter than an interval (-d)".into(),
            )
        };
        Ok(Sums {
            machine,
            row: Container::of_tasks(sum, self.remote),
            waits: self.waits,
            peak: self.peak.ok_or_else(short),
            living,
            lost_ns: self.lost_ns,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::counters::Counter;
    use crate::model::demo;

    fn task(pid: u32, faults: u64, ns: u64) -> Arc<TaskRaw> {
        let counts = Counts { run_ns: vec![ns], ..Counts::default() }.with([(Counter::MinFlt, faults)]);
        Arc::new(TaskRaw { serial: pid.into(), pid, tid: pid, start_ns: 1, counts, ..TaskRaw::default() })
    }

    fn sample(live: &[Arc<TaskRaw>], exited: &[Arc<TaskRaw>], mono_ns: u64) -> Sample {
        let tasks = live.iter().cloned().collect();
        Sample { tasks, exited: exited.to_vec(), mono_ns, exit_lost_ns: vec![mono_ns], ..Sample::default() }
    }

    fn sums(samples: &[Sample]) -> Reading<Sums> {
        let mut totals = Totals::default();
        samples.iter().for_each(|sample| totals.take(sample, None));
        totals.finish(&Arc::new(demo::facts()))
    }

    #[test]
    fn a_run_is_all_that_ended_and_all_that_lives_without_what_was_before() {
        let sums = sums(&[
            sample(&[task(5, 100, 1_000)], &[], 10),
            // A child came and went between two samples.
            sample(&[task(5, 150, 1_500), task(7, 4, 40)], &[task(6, 7, 70)], 20),
            // A late thread of the process is reported, too; the command ends, a daemon stays.
            sample(&[task(7, 5, 50)], &[task(6, 9, 90), task(5, 160, 1_600)], 30),
        ])
        .unwrap();
        let delta = &sums.row.sum.delta;
        // 20 ns without a row are on node 0.
        assert_eq!((delta[Counter::MinFlt], delta.cpu_ns()), (60 + 9 + 5, 600 + 90 + 50 + 20));
        assert_eq!((sums.living, sums.lost_ns), (1, 20));
        assert!(sums.peak.is_err(), "no interval was looked at");
    }

    #[test]
    fn a_process_counts_once_however_long_ago_it_ended() {
        let mut samples =
            vec![sample(&[task(5, 0, 0)], &[], 0), sample(&[task(5, 1, 1)], &[task(6, 7, 70)], 0)];
        samples.extend((0..2 * SETTLED).map(|_| sample(&[task(5, 1, 1)], &[], 0)));
        samples.push(sample(&[], &[task(5, 2, 2)], 0));
        assert_eq!(sums(&samples).unwrap().row.sum.delta[Counter::MinFlt], 9);
    }

    #[test]
    fn one_sample_is_no_run() {
        assert!(sums(&[sample(&[task(5, 0, 0)], &[], 0)]).is_err());
    }
}
