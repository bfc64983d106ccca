//! Rows of threads and of processes, and what each did between two samples.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::waits::is_bound;
use super::{RowKind, Tally, Task, Waits};
use crate::model::counters::Counter;
use crate::model::sample::{Counts, Sample, TaskRaw};

/// A task seen for the first time: counts of its own, and counts of the kernel from before we looked.
pub(super) fn newcomer(task: &TaskRaw, previous: &Sample) -> Counts {
    let born_since = task.start_ns >= previous.boot_ns;
    // Rows of ended threads have always been seen before, as those threads.
    if born_since || task.tid == 0 { task.counts.clone() } else { task.counts.without_lifetime() }
}

/// Calls `each` with the rows of both samples that have the same serial. Both are sorted by it.
pub(super) fn join<'a>(
    previous: &'a [Arc<TaskRaw>],
    current: &'a [Arc<TaskRaw>],
    mut each: impl FnMut(Option<&'a Arc<TaskRaw>>, Option<&'a Arc<TaskRaw>>),
) {
    let (mut old, mut new) = (previous.iter().peekable(), current.iter().peekable());
    loop {
        match (old.peek(), new.peek()) {
            (None, None) => return,
            // Most are unchanged: the pointers tell it without a look at the tasks.
            (Some(a), Some(b)) if Arc::ptr_eq(a, b) || a.serial == b.serial => each(old.next(), new.next()),
            (Some(a), Some(b)) if a.serial < b.serial => each(old.next(), None),
            (Some(_), None) => each(old.next(), None),
            (_, Some(_)) => each(None, new.next()),
        }
    }
}

pub(super) fn threads(previous: Option<&Sample>, current: &Sample, only: Option<u32>) -> Vec<Task> {
    let mut rows: Vec<Task> = Vec::new();
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
                let mut delta = Tally::Of(Arc::clone(new));
                delta -= &old.counts;
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
    // The sum of ended threads grows by their whole life when they end: only the last of it is new.
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
    let inside: HashSet<(u32, u64)> =
        rows.iter().filter(|row| row.threads > 0).map(|row| row.raw.process()).collect();
    rows.retain_mut(|row| {
        if row.threads > 0 || inside.contains(&row.raw.process()) {
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

/// Adds the processes that ended in the interval to `rows`. `gone` is what threads that are no more had
/// done before, by process.
pub(super) fn add_exited<'a>(
    rows: &mut Vec<Task>,
    grain: RowKind,
    previous: Option<&Sample>,
    exited: impl Iterator<Item = &'a Arc<TaskRaw>>,
    mut gone: HashMap<(u32, u64), Counts>,
) {
    // Reported before, and now again with what a thread did that ended late.
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

/// Nodes of one or of both, as far as they are known.
fn either(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one | other),
        _ => one.or(other),
    }
}

pub(super) fn processes(previous: Option<&Sample>, current: &Sample) -> Vec<Task> {
    let mut rows: Vec<Task> = Vec::new();
    let mut index: HashMap<(u32, u64), usize> = HashMap::new();
    // Live processes first: their rows take part in the sums below.
    for task in &current.tasks {
        let row = match index.entry(task.process()) {
            Entry::Occupied(at) => {
                let row = &mut rows[*at.get()];
                row.total += &task.counts;
                row
            }
            Entry::Vacant(at) => {
                at.insert(rows.len());
                rows.push(Task { total: Tally::Of(Arc::clone(task)), ..Task::new(Arc::clone(task)) });
                rows.last_mut().expect("it was pushed above")
            }
        };
        row.threads += u32::from(task.tid != 0);
        // All threads share the memory, and those that ended have none.
        if task.rss_bytes >= row.rss_bytes {
            row.rss_bytes = task.rss_bytes;
            row.resident = task.resident.or(row.resident);
        }
        row.cpu_nodes = either(row.cpu_nodes, task.cpu_nodes);
        row.mem_nodes = either(row.mem_nodes, task.mem_nodes);
        if task.tid == task.pid {
            row.raw = Arc::clone(task);
        }
    }
    let mut gone: HashMap<(u32, u64), Counts> = HashMap::new();
    let online = online(current);
    if let Some(previous) = previous {
        join(&previous.tasks, &current.tasks, |old, new| match (old, new) {
            (Some(old), Some(new)) if Arc::ptr_eq(old, new) => {}
            (Some(old), Some(new)) => {
                let row = &mut rows[index[&new.process()]];
                row.delta += &new.counts;
                row.delta -= &old.counts;
                if is_bound(new, online) {
                    let [now, before] = [new, old].map(|task| task.counts[Counter::RunDelayNs]);
                    row.waits.bound_ns = row.waits.bound_ns.saturating_add(now.saturating_sub(before));
                }
            }
            (None, Some(new)) => rows[index[&new.process()]].delta += &newcomer(new, previous),
            // Its final counts are in the row of ended threads, or it went with its process.
            (Some(old), None) => match index.get(&old.process()) {
                Some(at) => rows[*at].delta -= &old.counts,
                None => *gone.entry(old.process()).or_default() += &old.counts,
            },
            (None, None) => {}
        });
        for row in &mut rows {
            row.delta.clamp();
        }
    }
    rows = show_left(rows);
    add_exited(&mut rows, RowKind::Processes, previous, current.exited.iter(), gone);
    rows
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::model::sample::SelfUsage;

    fn thread(serial: u64, tid: u32, ns: u64) -> Arc<TaskRaw> {
        Arc::new(TaskRaw {
            serial,
            pid: 10,
            tid,
            counts: Counts { run_ns: vec![ns], ..Counts::default() },
            ..TaskRaw::default()
        })
    }

    #[test]
    fn ended_threads_count_what_they_did_in_the_interval_only() {
        let before = [thread(1, 10, 50), thread(2, 11, 7_000), thread(3, 12, 300)];
        // Threads 11 and 12 ended after 5 and 1 more ns; their sum is a new row.
        let after = [thread(1, 10, 60), thread(9, 0, 7_306)];
        let sample = |tasks: &[Arc<TaskRaw>], mono_ns| Sample {
            wall_ns: 0,
            mono_ns,
            boot_ns: 100,
            tasks: tasks.to_vec(),
            exited: vec![],
            cpus: vec![],
            nodes: vec![],
            vm: None,
            machine: None,
            flows: vec![],
            page_flows: vec![],
            lost: BTreeMap::new(),
            exit_lost_ns: vec![],
            own: SelfUsage::default(),
            groups: BTreeMap::new(),
            placement: Default::default(),
            about: Default::default(),
            memory_use: None,
            hot: None,
            names: Arc::default(),
            notes: vec![],
        };
        let (before, after) = (sample(&before, 1), sample(&after, 2));
        let rows = threads(Some(&before), &after, None);
        let ran: Vec<(u32, u64)> = rows.iter().map(|row| (row.raw.tid, row.run_ns())).collect();
        assert_eq!(ran, [(10, 10), (0, 6)]);
        assert_eq!(processes(Some(&before), &after)[0].run_ns(), 16);
    }
}
