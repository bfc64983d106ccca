//! Rows of threads and of processes, and what each did between two samples.

use std::collections::HashMap;
use std::sync::Arc;

use super::changes::{Changes, IdMap, join};
use super::tally::Teams;
use super::task::is_bound;
use super::{RowKind, Tally, Task, Waits};
use crate::model::counters::Counter;
use crate::model::sample::{Counts, Sample, TaskRaw};

/// The counts of a task without an earlier row. If it was born before the previous sample, counts of its
/// lifetime are left out.
pub(super) fn newcomer(task: &TaskRaw, previous: &Sample) -> Counts {
    let born_since = task.start_ns >= previous.boot_ns;
    // Rows of ended threads are never new: the threads had rows.
    if born_since || task.tid == 0 { task.counts.clone() } else { task.counts.without_lifetime() }
}

pub(super) fn threads(previous: Option<&Sample>, current: &Sample, only: Option<u32>) -> Vec<Task> {
    // A list that grows by doubling would be copied over and over, and be half empty.
    let mut rows: Vec<Task> = Vec::with_capacity(if only.is_none() { current.tasks.len() } else { 0 });
    let wanted = |task: &TaskRaw| only.is_none_or(|pid| pid == task.pid);
    let before = previous.map_or(&[][..], |sample| &sample.tasks);
    let online = online(current);
    // Earlier counts of threads that ended since, by process.
    let mut gone: HashMap<(u32, u64), Counts> = HashMap::new();
    join(before, &current.tasks, |old, new| {
        if let (Some(old), None) = (old, new) {
            *gone.entry(old.process()).or_default() += &old.counts;
        }
        let Some(new) = new.filter(|new| wanted(new)) else { return };
        let delta = match (old, previous) {
            (Some(old), _) if Arc::ptr_eq(old, new) => Tally::Nothing,
            (Some(old), _) => {
                let mut delta = Tally::Nothing;
                delta.add_difference(&new.counts, &old.counts);
                delta.clamp();
                delta
            }
            (None, Some(previous)) => newcomer(new, previous).into(),
            (None, None) => Tally::Nothing,
        };
        let bound_ns = if is_bound(new, online) { delta[Counter::RunDelayNs] } else { 0 };
        rows.push(Task {
            waits: Waits { bound_ns, throttled: 0.0 },
            tid: Some(new.tid),
            threads: u32::from(new.tid != 0),
            exited: new.tid == 0,
            rss_bytes: new.rss_bytes,
            resident: new.resident,
            cpu_nodes: new.cpu_nodes,
            mem_nodes: new.mem_nodes,
            total: Tally::Of(Arc::clone(new)),
            delta,
            ..Task::new(Arc::clone(new))
        });
    });
    // The sum of ended threads grows by their whole life when they end: only the last part is new.
    for row in rows.iter_mut().filter(|row| row.raw.tid == 0) {
        if let Some(before) = gone.get(&row.raw.process()) {
            row.delta -= before;
            row.delta.clamp();
        }
    }
    let exited = current.exited.iter().filter(|task| wanted(task));
    rows = show_left(rows);
    add_exited(&mut rows, RowKind::Threads, previous, exited, gone);
    rows
}

/// Number of CPUs that are online.
fn online(sample: &Sample) -> u32 {
    sample.cpus.iter().filter(|cpu| cpu.online).count() as u32
}

/// Rows without those of processes outside the scope: what these did before they left is kept in a row without a thread.
/// It is shown once, when something was added to it, as a process that left.
fn show_left(mut rows: Vec<Task>) -> Vec<Task> {
    // Rows without a thread are few. Whether their process has one in the scope:
    let mut inside: IdMap<(u32, u64), bool> = IdMap::default();
    inside.extend(rows.iter().filter(|row| row.threads == 0).map(|row| (row.raw.process(), false)));
    if inside.is_empty() {
        return rows;
    }
    for row in rows.iter().filter(|row| row.threads > 0) {
        if let Some(inside) = inside.get_mut(&row.raw.process()) {
            *inside = true;
        }
    }
    rows.retain_mut(|row| {
        if row.threads > 0 || inside[&row.raw.process()] {
            return true;
        }
        if matches!(row.delta, Tally::Nothing) {
            return false;
        }
        row.exited = true;
        let raw = Arc::make_mut(&mut row.raw);
        raw.tid = raw.pid;
        row.tid = row.tid.map(|_| raw.tid);
        true
    });
    rows
}

/// Adds the processes that ended in the interval to `rows`. `gone`: earlier counts of their ended threads, by
/// process.
pub(super) fn add_exited<'a>(
    rows: &mut Vec<Task>,
    grain: RowKind,
    previous: Option<&Sample>,
    exited: impl Iterator<Item = &'a Arc<TaskRaw>>,
    mut gone: HashMap<(u32, u64), Counts>,
) {
    // Reported earlier, and again now with the counts of a thread that ended late.
    for old in previous.iter().flat_map(|sample| &sample.exited) {
        *gone.entry(old.process()).or_default() += &old.counts;
    }
    for task in exited {
        let delta = match (previous, gone.get(&task.process())) {
            (None, _) => Tally::Nothing,
            (Some(_), Some(before)) => {
                let mut delta = Tally::Of(Arc::clone(task));
                delta -= before;
                delta.clamp();
                delta
            }
            (Some(previous), None) if task.start_ns < previous.boot_ns => {
                task.counts.without_lifetime().into()
            }
            (Some(_), None) => Tally::Of(Arc::clone(task)),
        };
        rows.push(Task {
            tid: (grain != RowKind::Processes).then_some(task.tid),
            exited: true,
            total: Tally::Of(Arc::clone(task)),
            delta,
            ..Task::new(Arc::clone(task))
        });
    }
}

/// Whether a row of ended threads has the identity of the leader, because that has ended, too.
fn is_of_leader(ended: &TaskRaw) -> bool {
    ended.start_ns == ended.leader_start_ns
}

/// The row of a thread with the identity of its leader, which ended earlier. A process keeps its name and its
/// start until its last thread has ended, as in /proc. The other fields are from a living thread.
fn named_after(thread: &TaskRaw, leader: &TaskRaw) -> TaskRaw {
    TaskRaw {
        tid: leader.pid,
        comm: leader.comm,
        uid: leader.uid,
        ppid: leader.ppid,
        start_ns: leader.start_ns,
        ..thread.clone()
    }
}

/// Nodes of one or of both, as far as they are known.
fn either(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one | other),
        _ => one.or(other),
    }
}

/// Processes of a sample, before what they did in the interval.
pub(super) struct Gathered {
    /// In the order of their first threads.
    pub(super) rows: Vec<Task>,
    /// The place of its process for each task of the sample.
    pub(super) places: Vec<u32>,
    index: IdMap<(u32, u64), u32>,
}

impl Gathered {
    pub(super) fn of(current: &Sample) -> Gathered {
        // Rows are large: a list that grows would be copied over and over. Nearly every process has its leader.
        let leaders = current.tasks.iter().filter(|task| task.tid == task.pid).count();
        let mut rows: Vec<Task> = Vec::with_capacity(leaders + 1);
        let mut places: Vec<u32> = Vec::with_capacity(current.tasks.len());
        let mut index: IdMap<(u32, u64), u32> = IdMap::default();
        for task in &current.tasks {
            let process = task.process();
            // Threads of a process often come one after the other.
            let last = places.last().copied().filter(|at| rows[*at as usize].raw.process() == process);
            let new = rows.len() as u32;
            let at = last.unwrap_or_else(|| *index.entry(process).or_insert(new));
            places.push(at);
            if at == new {
                rows.push(Task::new(Arc::clone(task)));
            }
            let row = &mut rows[at as usize];
            row.threads += u32::from(task.tid != 0);
            // All threads share the memory, and ended ones have none.
            if task.rss_bytes >= row.rss_bytes {
                row.rss_bytes = task.rss_bytes;
                row.resident = task.resident.or(row.resident);
            }
            row.cpu_nodes = either(row.cpu_nodes, task.cpu_nodes);
            row.mem_nodes = either(row.mem_nodes, task.mem_nodes);
            if task.tid == task.pid {
                row.raw = Arc::clone(task);
            } else if task.tid == 0 && row.raw.tid != row.raw.pid && is_of_leader(task) {
                row.raw = Arc::new(named_after(&row.raw, task));
            }
        }
        let teams = Arc::new(Teams::of(&current.tasks, &places, rows.len()));
        for (row, at) in rows.iter_mut().zip(0..) {
            row.total = Tally::Team(Arc::clone(&teams), at);
        }
        Gathered { rows, places, index }
    }

    /// The row of a process; `None` if it has ended.
    fn row(&mut self, process: (u32, u64)) -> Option<&mut Task> {
        self.place(process).map(|at| &mut self.rows[at])
    }

    /// The place of a process among the rows; `None` for one that is not in the sample.
    pub(super) fn place(&self, process: (u32, u64)) -> Option<usize> {
        self.index.get(&process).map(|at| *at as usize)
    }

    /// Adds the changes since the sample before. Numbers below zero stay so until [`Gathered::finish`], so that these are
    /// sums of containers, too.
    pub(super) fn add(&mut self, changes: &Changes<'_>, previous: &Sample, current: &Sample) {
        let online = online(current);
        for (old, new) in &changes.changed {
            let Some(row) = self.row(new.process()) else { continue };
            row.delta.add_difference(&new.counts, &old.counts);
            if is_bound(new, online) {
                let [now, before] = [new, old].map(|task| task.counts[Counter::RunDelayNs]);
                row.waits.bound_ns = row.waits.bound_ns.saturating_add(now.saturating_sub(before));
            }
        }
        for new in &changes.came {
            let Some(row) = self.row(new.process()) else { continue };
            row.delta += &newcomer(new, previous);
        }
        // Their final counts are in the row of ended threads, or went with their process.
        for old in &changes.went {
            if let Some(row) = self.row(old.process()) {
                row.delta -= &old.counts;
            }
        }
    }

    /// Processes that ended in the interval.
    pub(super) fn exited(
        &self,
        changes: &Changes<'_>,
        previous: Option<&Sample>,
        current: &Sample,
    ) -> Vec<Task> {
        let mut gone: HashMap<(u32, u64), Counts> = HashMap::new();
        for old in changes.went.iter().filter(|old| self.place(old.process()).is_none()) {
            *gone.entry(old.process()).or_default() += &old.counts;
        }
        let mut exited = Vec::new();
        add_exited(&mut exited, RowKind::Processes, previous, current.exited.iter(), gone);
        exited
    }

    /// The rows that are shown, and behind them those of processes that ended.
    pub(super) fn finish(mut self, exited: Vec<Task>) -> Vec<Task> {
        self.rows.iter_mut().for_each(|row| row.delta.clamp());
        let mut rows = show_left(self.rows);
        rows.extend(exited);
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::task::Comm;

    fn thread(serial: u64, tid: u32, ns: u64) -> Arc<TaskRaw> {
        Arc::new(TaskRaw {
            serial,
            pid: 10,
            tid,
            counts: Counts { run_ns: vec![ns], ..Counts::default() },
            ..TaskRaw::default()
        })
    }

    fn sample(tasks: &[Arc<TaskRaw>], mono_ns: u64) -> Sample {
        Sample { mono_ns, boot_ns: 100, tasks: tasks.iter().cloned().collect(), ..Sample::default() }
    }

    /// A process of three threads; the leader and one other have ended, and `first` of the two ended first.
    fn without_leader(first: u64) -> TaskRaw {
        let raw = |serial, tid, start_ns, name: &str| {
            let of = TaskRaw::clone(&thread(serial, tid, 5));
            TaskRaw { start_ns, leader_start_ns: 100, comm: Comm::new(name), ppid: 7, ..of }
        };
        let ended = raw(1 << 63, 0, first, if first == 100 { "leader" } else { "worker" });
        let tasks = [raw(2, 12, 300, "worker"), ended].map(Arc::new);
        let rows = Gathered::of(&sample(&tasks, 1)).rows;
        assert_eq!((rows.len(), rows[0].threads), (1, 1));
        TaskRaw::clone(&rows[0].raw)
    }

    #[test]
    fn a_process_keeps_its_name_when_its_leader_ends_first() {
        let row = without_leader(100);
        assert_eq!((row.pid, row.tid, row.start_ns, row.comm.bytes()), (10, 10, 100, &b"leader"[..]));
        // The leader may have ended before the first sample, or unreported: nothing is known about it.
        let row = without_leader(200);
        assert_eq!((row.tid, row.start_ns, row.comm.bytes()), (12, 300, &b"worker"[..]));
    }

    #[test]
    fn ended_threads_count_what_they_did_in_the_interval_only() {
        let before = [thread(1, 10, 50), thread(2, 11, 7_000), thread(3, 12, 300)];
        // Threads 11 and 12 ended after 5 and 1 more ns; their sum is a new row.
        let after = [thread(1, 10, 60), thread(9, 0, 7_306)];
        let (before, after) = (sample(&before, 1), sample(&after, 2));
        let rows = threads(Some(&before), &after, None);
        let ran: Vec<(u32, u64)> = rows.iter().map(|row| (row.raw.tid, row.run_ns())).collect();
        assert_eq!(ran, [(10, 10), (0, 6)]);
        let changes = Changes::between(&before, &after);
        let mut processes = Gathered::of(&after);
        processes.add(&changes, &before, &after);
        assert_eq!(processes.finish(Vec::new())[0].run_ns(), 16);
    }
}
