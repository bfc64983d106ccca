//! Processes that a recording itemises, and the one row that all others are added to.
//!
//! The sum over all rows is unchanged. A process is itemised or folded as a whole, interval by interval. Its
//! counts while folded are added to the row of others, and subtracted from its own when it is itemised again.
//! So its counts are "since it is itemised".

use crate::model::process::ProcessId;
use crate::model::sample::OTHERS_PID;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::columns::Row;
use crate::model::sample::{Comm, Counts, HostFacts, Sample, TaskRaw};
use crate::snapshot::{RowKind, Task, derive};

/// The processes that are itemised; all conditions must hold.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Keep {
    /// The number of busiest processes of an interval.
    pub top: Option<usize>,
    /// Processes that ran for at least this share of an interval, in percent of one CPU.
    pub min_cpu_pct: Option<f64>,
}

impl Keep {
    /// True when nothing is left out.
    pub fn is_everything(&self) -> bool {
        *self == Keep::default()
    }

    /// For the head of a recording; empty when nothing is left out.
    pub fn describe(&self) -> String {
        let top = self.top.map(|top| format!("the {top} busiest processes"));
        let min = self.min_cpu_pct.map(|pct| format!("processes above {pct} % of a CPU"));
        let words: Vec<String> = top.into_iter().chain(min).collect();
        if words.is_empty() { String::new() } else { format!("only {}", words.join(" and ")) }
    }
}

/// Counts of an itemised process that are not its own here, but were added to the others.
#[derive(Clone, Default)]
struct Offset {
    by_serial: HashMap<u64, Counts>,
    /// Of threads that ended since.
    ended: Counts,
}

impl Offset {
    fn sum(&self) -> Counts {
        let mut sum = self.ended.clone();
        self.by_serial.values().for_each(|counts| sum += counts);
        sum
    }
}

/// Folds one sample after the other.
pub struct Fold {
    keep: Keep,
    /// The sample that was recorded last, as it was taken.
    previous: Option<Sample>,
    /// The processes that were itemised in it.
    kept: HashMap<ProcessId, Offset>,
    others: TaskRaw,
}

/// A sample that is ready to be written, and the state after it is.
pub struct Folded {
    pub sample: Sample,
    next: Fold,
}

impl Fold {
    pub fn new(keep: Keep) -> Fold {
        let others =
            TaskRaw { serial: u64::MAX, pid: OTHERS_PID, comm: Comm::new("(others)"), ..TaskRaw::zero() };
        Fold { keep, previous: None, kept: HashMap::new(), others }
    }

    /// The sample was written.
    pub fn commit(&mut self, folded: Folded) {
        *self = folded.next;
    }

    /// The part of `sample` to write. The first sample, which ends no interval, is itemised in full.
    pub fn fold(&self, host: &Arc<HostFacts>, sample: &Sample) -> Folded {
        let mut next = Fold {
            keep: self.keep,
            previous: Some(sample.clone()),
            kept: HashMap::new(),
            others: self.others.clone(),
        };
        let Some(previous) = &self.previous else {
            next.kept = sample.tasks.iter().map(|task| (task.process(), Offset::default())).collect();
            let mut first = sample.clone();
            first.tasks.push(Arc::new(next.others.clone()));
            return Folded { sample: first, next };
        };
        let rows = derive(host, Some(previous), sample, RowKind::Processes);
        let mut chosen: Vec<&Task> = rows.tasks.iter().collect();
        chosen.sort_by_key(|task| (std::cmp::Reverse(task.run_ns()), task.raw.pid));
        let least_ns =
            self.keep.min_cpu_pct.map_or(0.0, |pct| pct / 100.0 * rows.interval_ns.unwrap_or(0) as f64);
        let enough = chosen.iter().take_while(|task| task.run_ns() as f64 >= least_ns).count();
        let rest = chosen.split_off(enough.min(self.keep.top.unwrap_or(usize::MAX)));

        next.others.rss_bytes = 0;
        for task in rest {
            next.others.counts += &task.delta;
            next.others.rss_bytes += task.rss_bytes;
        }
        for task in chosen {
            let process = task.raw.process();
            let offset = match self.kept.get(&process) {
                Some(offset) => offset.clone(),
                None => everything_before(previous, process),
            };
            next.kept.insert(process, offset);
        }
        let mut folded = Sample { tasks: Default::default(), exited: Vec::new(), ..sample.clone() };
        self.itemise_live(previous, sample, &mut next, &mut folded);
        self.itemise_exited(previous, sample, &mut next, &mut folded);
        next.others.exec_ns = next.others.counts.cpu_ns();
        let mut placement = BTreeMap::clone(&folded.placement);
        placement.retain(|pid, raw| next.kept.contains_key(&(*pid as u32, raw.start_ns)));
        folded.placement = Arc::new(placement);
        if let Some(uses) = &mut folded.memory_use {
            Arc::make_mut(uses).processes.retain(|process, _| next.kept.contains_key(process));
        }
        folded.tasks.push(Arc::new(next.others.clone()));
        Folded { sample: folded, next }
    }

    fn itemise_live(&self, previous: &Sample, sample: &Sample, next: &mut Fold, folded: &mut Sample) {
        // Threads that ended take their offset to the row of ended threads.
        let alive: std::collections::HashSet<u64> = sample.tasks.iter().map(|task| task.serial).collect();
        for offset in next.kept.values_mut() {
            let Offset { by_serial, ended } = offset;
            by_serial.retain(|serial, counts| {
                let stays = alive.contains(serial);
                if !stays {
                    *ended += counts;
                }
                stays
            });
        }
        for task in &sample.tasks {
            let Some(offset) = next.kept.get(&task.process()) else { continue };
            let off = if task.tid == 0 { Some(&offset.ended) } else { offset.by_serial.get(&task.serial) };
            let row = less(task, off);
            // Readers meet it for the first time, and cannot tell that the kernel's counts begin here.
            if !self.kept.contains_key(&task.process()) && off.is_some() && is_older(task, previous) {
                next.others.counts += &lifetime(&row.counts);
            }
            folded.tasks.push(row);
        }
    }

    fn itemise_exited(&self, previous: &Sample, sample: &Sample, next: &mut Fold, folded: &mut Sample) {
        for task in &sample.exited {
            let Some(offset) = next.kept.get(&task.process()) else { continue };
            let row = less(task, Some(&offset.sum()));
            let was_known =
                previous.tasks.iter().chain(&previous.exited).any(|old| old.process() == task.process());
            if !self.kept.contains_key(&task.process()) && was_known && is_older(task, previous) {
                next.others.counts += &lifetime(&row.counts);
            }
            folded.exited.push(row);
        }
    }
}

/// All counts of a process up to the previous sample: they belong to the others.
fn everything_before(previous: &Sample, process: ProcessId) -> Offset {
    let mut offset = Offset::default();
    for task in previous.tasks.iter().chain(&previous.exited).filter(|task| task.process() == process) {
        // Rows of ended threads, and of processes that ended, are sums.
        if task.tid == 0 || previous.exited.iter().any(|exited| Arc::ptr_eq(exited, task)) {
            offset.ended += &task.counts;
        } else {
            offset.by_serial.insert(task.serial, task.counts.clone());
        }
    }
    offset
}

fn less(task: &Arc<TaskRaw>, offset: Option<&Counts>) -> Arc<TaskRaw> {
    match offset {
        Some(offset) if *offset != Counts::default() => {
            let mut row = TaskRaw::clone(task);
            row.counts -= offset;
            Arc::new(row)
        }
        _ => Arc::clone(task),
    }
}

/// True for a row born before the previous sample: [`derive()`] drops the counts of its lifetime.
fn is_older(task: &TaskRaw, previous: &Sample) -> bool {
    task.tid != 0 && task.start_ns < previous.boot_ns
}

fn lifetime(counts: &Counts) -> Counts {
    let mut rest = counts.clone();
    rest -= &counts.without_lifetime();
    rest
}
