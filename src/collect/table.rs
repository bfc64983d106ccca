//! The table of tasks: rows of the walk and final rows are applied to it. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;

use super::overdue::Overdue;
use crate::model::counters::Scalars;
use crate::model::process::ProcessId;
use crate::model::sample::{Comm, Counts, MemPolicy, Resident, Slot, TaskRaw};
use crate::model::units::{CpuId, NodeId};
use crate::model::wire::{REC_CROSSED, ROW_KTHREAD, ROW_LEFT, ROW_NO_NUMA, Row};

/// Serials of rows we make ourselves, for the ended threads of a process. The kernel counts up from one.
const ENDED_THREADS: u64 = 1 << 63;

/// Samples for which an ended process is remembered: its last threads may be reported after its leader.
const REMEMBER: u32 = 3;

/// Processes outside the scope whose totals are kept, for the case that they come back.
const OUTSIDE_MAX: usize = 4096;

/// State and exit state of a task that is no more (include/linux/sched.h).
const TASK_DEAD: u32 = 0x80;
const EXIT_DEAD: u32 = 0x10;

/// A thread: its id and its start.
type Thread = (u32, u64);

/// The tasks of the machine as of the last rows.
#[derive(Default)]
pub struct TaskTable {
    /// Ascending by serial.
    live: Vec<Arc<TaskRaw>>,
    /// Places in `live` of rows that are no more: they are taken out together, because each moves all rows behind it.
    removed: BTreeSet<usize>,
    /// Counts of threads that ended, or left the scope, of a process that lives on. They stay while all of the process
    /// is outside the scope: should it come back, its totals go on from there.
    ended: BTreeMap<ProcessId, Arc<TaskRaw>>,
    /// Threads that left the scope and live on outside.
    outside: HashMap<ProcessId, HashSet<Thread>>,
    /// By serial, of threads that left the scope and came back: what the kernel had counted when they did. All up to
    /// when they left is in `ended`, and what they did outside is nobody's.
    back_at: HashMap<u64, Counts>,
    /// Processes that ended.
    gone: HashMap<ProcessId, Gone>,
    /// Processes to report with the next sample.
    exited: Vec<ProcessId>,
    /// The number of rows of `live` that each process has.
    members: HashMap<ProcessId, u32>,
    next_ended: u64,
    overdue: Overdue,
    /// See [`TaskTable::given_up`].
    given_up: Vec<u64>,
}

/// A process that ended.
struct Gone {
    /// Final total.
    total: Arc<TaskRaw>,
    /// Samples since.
    age: u32,
    /// It is reported with the next sample.
    is_due: bool,
}

/// A row of the wire, taken apart.
#[derive(Clone, Debug)]
pub struct Parsed {
    pub task: TaskRaw,
    /// It left the scope: no further rows until it returns. In a final row: it had left before.
    pub leaves: bool,
    /// Threads of its process that had not begun to exit.
    pub group_live: u32,
    /// `None` where all that it ran is charged, or a scope ended in what is not.
    pub uncharged: Option<Uncharged>,
}

/// Time that a task has run by the scheduler's account, and that no switch or flush has charged yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uncharged {
    /// Where it runs.
    pub cpu: CpuId,
    pub ns: u64,
}

fn thread(task: &TaskRaw) -> Thread {
    (task.tid, task.start_ns)
}

/// Adds a thread to what ended threads left. The process goes by the name of its leader.
fn add_ended(sum: &mut TaskRaw, task: &TaskRaw) {
    sum.counts += &task.counts;
    sum.exec_ns += task.exec_ns;
    if task.tid == task.pid {
        sum.comm = task.comm;
        sum.uid = task.uid;
        sum.ppid = task.ppid;
        sum.start_ns = task.start_ns;
        sum.cgroup_id = task.cgroup_id;
        (sum.state, sum.exit_state) = (task.state, task.exit_state);
    }
}

impl TaskTable {
    /// Takes in rows of one round: final rows first (`ends`), then the walk. Counts of a task
    /// that leaves the scope become a row of its process; `forget` says that the scope itself was changed, and that those
    /// which leave now are of no interest any more.
    pub fn apply(&mut self, ends: Vec<Parsed>, walk: Vec<Parsed>, forget: bool) {
        for mut row in ends {
            if self.overdue.is_too_late(row.task.serial) {
                continue;
            }
            if row.leaves {
                self.end_outside(&row.task);
                continue;
            }
            self.come_back(&mut row.task);
            self.end(row);
        }
        self.take_out();
        // Only a whole walk tells who is missing.
        let whole = self.overdue.is_whole();
        let walked = whole.then(|| walk.iter().map(|row| row.task.serial).collect());
        let mut new = Vec::new();
        let mut left = Vec::new();
        for mut row in walk {
            self.come_back(&mut row.task);
            if row.leaves {
                left.push(row);
                continue;
            }
            match self.find(row.task.serial) {
                // A walk may hand out rows in which nothing changed: they stay shared with samples before.
                Some(at) if *self.live[at] == row.task => {}
                Some(at) => self.live[at] = Arc::new(row.task),
                None => new.push(Arc::new(row.task)),
            }
        }
        if !new.is_empty() {
            for task in &new {
                *self.members.entry(task.process()).or_default() += 1;
            }
            new.sort_unstable_by_key(|task| task.serial);
            // Serials count up: only a task that came back into the scope belongs further down.
            let follows = self.live.last().is_none_or(|last| last.serial < new[0].serial);
            self.live.append(&mut new);
            if !follows {
                self.live.sort_by_key(|task| task.serial);
            }
        }
        for row in left {
            if forget {
                self.forget(&row.task);
            } else {
                self.end(row);
            }
        }
        self.take_out();
        self.given_up.clear();
        if let Some(walked) = walked {
            self.give_up(&walked, forget);
        }
        if forget {
            // Counts of ended threads go with the last thread that lives.
            self.ended.retain(|process, _| self.members.contains_key(process));
            self.outside.clear();
        }
    }

    /// Whether the walk of the next round must hand out every task, because last words were lost: `lost` since the start.
    pub fn wants_all(&mut self, lost: u64) -> bool {
        self.overdue.wants_all(lost)
    }

    /// CPU time by node that no row has, of tasks whose last words were lost; `lost_ns` is that of all of them.
    pub fn in_no_row(&mut self, lost_ns: Vec<u64>) -> Vec<u64> {
        self.overdue.in_no_row(lost_ns)
    }

    /// Serials of rows that this round ended because their last word did not come.
    pub fn given_up(&self) -> &[u64] {
        &self.given_up
    }

    /// Ends rows whose last word does not come, with what is known of them, and processes of which nothing else is left.
    fn give_up(&mut self, walked: &HashSet<u64>, forget: bool) {
        for task in self.overdue.missed(&self.live, walked) {
            self.given_up.push(task.serial);
            if forget {
                self.forget(&task);
                continue;
            }
            let task = TaskRaw { state: TASK_DEAD, exit_state: EXIT_DEAD, ..Arc::unwrap_or_clone(task) };
            let group_live = u32::from(self.outside.contains_key(&task.process()));
            self.end(Parsed { task, leaves: false, group_live, uncharged: None });
        }
        self.take_out();
        if !self.overdue.confirms() {
            return;
        }
        // Their last thread was born and ended between two walks, and its word was lost.
        let is_left =
            |process: &ProcessId| !self.members.contains_key(process) && !self.outside.contains_key(process);
        let left: Vec<ProcessId> = self.ended.keys().filter(|process| is_left(process)).copied().collect();
        for process in left {
            if let Some(mut total) = self.ended.remove(&process) {
                let raw = Arc::make_mut(&mut total);
                (raw.state, raw.exit_state) = (TASK_DEAD, EXIT_DEAD);
                self.report_end(process, total);
            }
        }
    }

    /// Reports with the next sample that a process ended.
    fn report_end(&mut self, process: ProcessId, mut total: Arc<TaskRaw>) {
        Arc::make_mut(&mut total).tid = total.pid;
        self.gone.insert(process, Gone { total, age: 0, is_due: true });
        self.exited.push(process);
    }

    fn find(&self, serial: u64) -> Option<usize> {
        self.live.binary_search_by_key(&serial, |task| task.serial).ok()
    }

    fn remove(&mut self, serial: u64) {
        let Some(at) = self.find(serial).filter(|at| !self.removed.contains(at)) else { return };
        self.removed.insert(at);
        let process = self.live[at].process();
        if let Some(left) = self.members.get_mut(&process) {
            *left -= 1;
            if *left == 0 {
                self.members.remove(&process);
            }
        }
    }

    /// Takes the rows out that were removed.
    fn take_out(&mut self) {
        if self.removed.is_empty() {
            return;
        }
        let mut removed = std::mem::take(&mut self.removed).into_iter().peekable();
        let mut at = 0;
        self.live.retain(|_| {
            let is_removed = removed.next_if_eq(&at).is_some();
            at += 1;
            !is_removed
        });
    }

    /// A task of a scope that is of no interest any more. With the last one goes what ended threads left: nobody
    /// would report that their process ended.
    fn forget(&mut self, task: &TaskRaw) {
        self.remove(task.serial);
        let process = task.process();
        if !self.members.contains_key(&process) {
            self.ended.remove(&process);
        }
    }

    /// Takes off a thread that came back into the scope what the kernel counted before and outside.
    fn come_back(&mut self, task: &mut TaskRaw) {
        if self.outside.is_empty() && self.back_at.is_empty() {
            return;
        }
        let process = task.process();
        if let Some(threads) = self.outside.get_mut(&process)
            && threads.remove(&thread(task))
        {
            if threads.is_empty() {
                self.outside.remove(&process);
            }
            self.back_at.insert(task.serial, task.counts.lifetime());
        }
        if let Some(before) = self.back_at.get(&task.serial) {
            task.counts -= before;
        }
    }

    /// A thread ended that had left the scope before. With the last one its process does, which nobody saw.
    fn end_outside(&mut self, task: &TaskRaw) {
        let process = task.process();
        let Some(threads) = self.outside.get_mut(&process) else { return };
        threads.remove(&thread(task));
        if threads.is_empty() {
            self.outside.remove(&process);
            if !self.members.contains_key(&process) {
                self.ended.remove(&process);
            }
        }
    }

    /// Notes that a thread is outside. Of very many processes those that left first are forgotten.
    fn leave(&mut self, task: &TaskRaw) {
        self.outside.entry(task.process()).or_default().insert(thread(task));
        if self.outside.len() <= OUTSIDE_MAX {
            return;
        }
        let kept = self.ended.iter().filter(|(process, _)| !self.members.contains_key(process));
        if let Some(process) = kept.min_by_key(|(_, row)| row.serial).map(|(process, _)| *process) {
            self.ended.remove(&process);
            self.outside.remove(&process);
        }
    }

    /// A thread ended or left the scope. With the last one its process does.
    fn end(&mut self, row: Parsed) {
        let Parsed { task, leaves, group_live, uncharged: _ } = row;
        self.remove(task.serial);
        self.back_at.remove(&task.serial);
        let process = task.process();
        if leaves {
            self.leave(&task);
        }
        if let Some(gone) = self.gone.get_mut(&process) {
            // Threads of a process that exits end on many CPUs, in no order.
            add_ended(Arc::make_mut(&mut gone.total), &task);
            gone.age = 0;
            if !std::mem::replace(&mut gone.is_due, true) {
                self.exited.push(process);
            }
            return;
        }
        let next = &mut self.next_ended;
        let ended = self.ended.entry(process).or_insert_with(|| {
            *next += 1;
            let serial = ENDED_THREADS | *next;
            Arc::new(TaskRaw {
                serial,
                tid: 0,
                counts: Counts::default(),
                exec_ns: 0,
                rss_bytes: 0,
                resident: None,
                ..task.clone()
            })
        });
        add_ended(Arc::make_mut(ended), &task);
        // Processes that are outside may come back.
        if group_live == 0
            && !leaves
            && !self.members.contains_key(&process)
            && let Some(total) = self.ended.remove(&process)
        {
            self.report_end(process, total);
        }
    }

    /// The rows of a sample: live threads and ended threads, ascending by serial; and the processes
    /// that ended since the call before.
    pub fn snapshot(&mut self) -> (Vec<Arc<TaskRaw>>, Vec<Arc<TaskRaw>>) {
        let mut tasks = Vec::with_capacity(self.live.len() + self.ended.len());
        tasks.extend(self.live.iter().cloned());
        let mut ended: Vec<_> = self.ended.values().cloned().collect();
        ended.sort_by_key(|task| task.serial);
        tasks.append(&mut ended);
        let gone = &mut self.gone;
        let report = |process: ProcessId| {
            let gone = gone.get_mut(&process)?;
            gone.is_due = false;
            Some(Arc::clone(&gone.total))
        };
        let exited = self.exited.drain(..).filter_map(report).collect();
        self.gone.retain(|_, gone| {
            gone.age += 1;
            gone.age <= REMEMBER
        });
        self.shrink();
        (tasks, exited)
    }

    /// Gives back the room that a burst of tasks took: tables keep that of the most that they ever had.
    fn shrink(&mut self) {
        if is_roomy(self.live.capacity(), self.live.len()) {
            self.live.shrink_to(2 * self.live.len());
        }
        if is_roomy(self.exited.capacity(), self.exited.len()) {
            self.exited.shrink_to(2 * self.exited.len());
        }
        shrink(&mut self.outside);
        shrink(&mut self.back_at);
        shrink(&mut self.gone);
        shrink(&mut self.members);
    }
}

/// Whether a table has room for many more rows than it has. Some room always stays, so that a table that grows and shrinks
/// is not made anew over and over.
fn is_roomy(capacity: usize, len: usize) -> bool {
    capacity > ROOM_MIN && capacity / 8 > len
}

/// Rows for which a table may have room whatever it has.
const ROOM_MIN: usize = 1024;

fn shrink<K: Eq + Hash, V>(map: &mut HashMap<K, V>) {
    if is_roomy(map.capacity(), map.len()) {
        map.shrink_to(2 * map.len());
    }
}

/// The task that a row of the wire describes.
pub fn parse(row: &Row<'_>, page_size: u64) -> Parsed {
    let (task, rec) = (&row.task, &row.rec);
    let slot = |at: usize| Slot {
        count: rec.slot[at],
        enabled_ns: rec.slot_enabled_ns[at],
        running_ns: rec.slot_running_ns[at],
    };
    let counts = Counts {
        run_ns: row.run_ns().collect(),
        scalars: Scalars::new(&rec.counters, &task.lifetime),
        slots: std::array::from_fn(slot).into(),
        by_node: row.node_counts().collect(),
        pages: row.pages().collect(),
        by_sibling: row.sibling_counts().unwrap_or_default(),
    };
    let numa = task.flags & ROW_NO_NUMA == 0;
    let [file_bytes, anon_bytes, swap_bytes, shmem_bytes] = task.mm_pages.map(|pages| pages * page_size);
    let resident = Resident { anon_bytes, file_bytes, shmem_bytes, swap_bytes };
    let raw = TaskRaw {
        serial: rec.serial,
        pid: task.pid,
        tid: task.tid,
        ppid: task.ppid,
        uid: task.uid,
        start_ns: task.start_ns,
        leader_start_ns: task.leader_start_ns,
        cgroup_id: task.cgroup_id,
        comm: Comm(task.comm),
        state: task.state,
        exit_state: task.exit_state,
        policy: task.policy,
        nice: task.nice,
        cpu: if rec.last_cpu == u32::MAX { task.cpu } else { rec.last_cpu },
        cpus_allowed: task.cpus_allowed,
        cpu_nodes: known_nodes(task.cpu_nodes),
        mem_nodes: known_nodes(task.mem_nodes),
        kthread: task.flags & ROW_KTHREAD != 0,
        rss_bytes: resident.anon_bytes + resident.file_bytes + resident.shmem_bytes,
        resident: Some(resident),
        exec_ns: task.exec_ns,
        preferred_node: (numa && task.preferred_nid >= 0).then_some(NodeId(task.preferred_nid as u32)),
        scan_period_ms: task.scan_period_ms,
        numa_group: task.numa_group,
        mempolicy: MemPolicy {
            mode: task.mempolicy as u16,
            flags: (task.mempolicy >> 16) as u16,
            nodes: task.mempolicy_nodes,
        },
        counts,
    };
    let uncharged = Uncharged { cpu: CpuId(task.cpu), ns: task.exec_ns.saturating_sub(rec.exec_seen_ns) };
    Parsed {
        task: raw,
        leaves: task.flags & ROW_LEFT != 0,
        group_live: task.group_live,
        uncharged: (uncharged.ns > 0 && rec.in_scope & REC_CROSSED == 0).then_some(uncharged),
    }
}

/// The bits of nodes; none at all say nothing.
fn known_nodes(bits: u64) -> Option<u64> {
    (bits != 0).then_some(bits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::counters::Counter;

    fn task(serial: u64, pid: u32, tid: u32, ns: u64) -> TaskRaw {
        TaskRaw {
            serial,
            pid,
            tid,
            start_ns: u64::from(tid),
            leader_start_ns: u64::from(pid),
            exec_ns: ns,
            counts: Counts { run_ns: vec![ns], ..Counts::default() },
            ..TaskRaw::default()
        }
    }

    fn sum(tasks: &[Arc<TaskRaw>]) -> u64 {
        tasks.iter().map(|task| task.counts.cpu_ns()).sum()
    }

    fn live(rows: &[TaskRaw]) -> Vec<Parsed> {
        rows.iter()
            .map(|row| Parsed { task: row.clone(), leaves: false, group_live: 1, uncharged: None })
            .collect()
    }

    fn leaving(task: TaskRaw) -> Parsed {
        Parsed { task, leaves: true, group_live: 1, uncharged: None }
    }

    fn ended(task: TaskRaw, group_live: u32) -> Parsed {
        Parsed { task, leaves: false, group_live, uncharged: None }
    }

    #[test]
    fn an_ended_thread_folds_into_its_process() {
        let mut table = TaskTable::default();
        table.apply(vec![], live(&[task(1, 10, 10, 5), task(2, 10, 11, 7)]), false);
        table.apply(vec![ended(task(2, 10, 11, 9), 1)], vec![], false);
        let (tasks, exited) = table.snapshot();
        assert_eq!(sum(&tasks), 14);
        assert_eq!(tasks.iter().map(|task| task.tid).collect::<Vec<_>>(), [10, 0]);
        assert!(exited.is_empty());
    }

    #[test]
    fn an_ended_process_is_reported_once_with_all_its_threads() {
        let mut table = TaskTable::default();
        table.apply(vec![], live(&[task(1, 10, 10, 5), task(2, 10, 11, 7)]), false);
        table.apply(vec![ended(task(2, 10, 11, 9), 0), ended(task(1, 10, 10, 6), 0)], vec![], false);
        let (tasks, exited) = table.snapshot();
        assert!(tasks.is_empty());
        assert_eq!(sum(&exited), 15);
        assert!(table.snapshot().1.is_empty());
    }

    #[test]
    fn what_is_forgotten_leaves_nothing_of_its_ended_threads() {
        let mut table = TaskTable::default();
        table.apply(vec![], live(&[task(1, 10, 10, 5), task(2, 10, 11, 7), task(3, 10, 12, 1)]), false);
        table.apply(vec![ended(task(2, 10, 11, 9), 2)], vec![], false);

        table.apply(vec![ended(task(3, 10, 12, 2), 1)], vec![leaving(task(1, 10, 10, 6))], true);

        let (tasks, exited) = table.snapshot();
        assert!(tasks.is_empty() && exited.is_empty(), "{tasks:?} {exited:?}");
    }

    #[test]
    fn a_process_lives_on_without_its_leader() {
        let mut table = TaskTable::default();
        table.apply(vec![], live(&[task(1, 10, 10, 5), task(2, 10, 11, 7)]), false);
        table.apply(vec![ended(task(1, 10, 10, 6), 1)], vec![], false);
        let (tasks, exited) = table.snapshot();
        assert_eq!((sum(&tasks), exited.len()), (13, 0));
    }

    #[test]
    fn a_process_waits_for_its_last_known_thread() {
        // Both threads have begun to exit; thread 11 has not been switched out for the last time.
        let mut table = TaskTable::default();
        table.apply(vec![], live(&[task(1, 10, 10, 5), task(2, 10, 11, 7)]), false);
        table.apply(vec![ended(task(1, 10, 10, 6), 0)], vec![], false);
        let (tasks, exited) = table.snapshot();
        assert_eq!((sum(&tasks), exited.len()), (13, 0));
        table.apply(vec![ended(task(2, 10, 11, 8), 0)], vec![], false);
        assert_eq!(sum(&table.snapshot().1), 14);
    }

    #[test]
    fn a_late_thread_that_nobody_knew_is_added_to_the_total() {
        let mut table = TaskTable::default();
        table.apply(vec![ended(task(1, 10, 10, 6), 0)], vec![], false);
        assert_eq!(sum(&table.snapshot().1), 6);
        table.apply(vec![ended(task(2, 10, 11, 9), 0)], vec![], false);
        assert_eq!(sum(&table.snapshot().1), 15);
    }

    #[test]
    fn exec_by_a_thread_keeps_the_sum() {
        // Thread 11 calls exec: its task takes over tid 10, the old leader ends as tid 11.
        let mut table = TaskTable::default();
        table.apply(vec![], live(&[task(1, 10, 10, 5), task(2, 10, 11, 7)]), false);
        let old_leader = TaskRaw { tid: 11, ..task(1, 10, 10, 5) };
        let new_leader = TaskRaw { tid: 10, start_ns: 10, ..task(2, 10, 11, 8) };
        table.apply(vec![ended(old_leader, 1)], live(&[new_leader]), false);
        let (tasks, exited) = table.snapshot();
        assert_eq!(sum(&tasks), 13);
        assert!(exited.is_empty());
    }

    #[test]
    fn what_a_task_did_that_left_the_scope_is_kept() {
        let mut table = TaskTable::default();
        table.apply(vec![], live(&[task(1, 10, 10, 5), task(2, 20, 20, 7)]), false);
        table.apply(vec![], vec![leaving(task(1, 10, 10, 6))], false);
        for _ in 0..5 {
            let (tasks, exited) = table.snapshot();
            assert_eq!(
                tasks.iter().map(|task| (task.pid, task.tid)).collect::<Vec<_>>(),
                [(20, 20), (10, 0)]
            );
            assert_eq!((sum(&tasks[1..]), exited.len()), (6, 0));
        }
        // It ends outside: its totals go with it, and nobody hears of it.
        table.apply(vec![leaving(task(1, 10, 10, 6))], vec![], false);
        let (tasks, exited) = table.snapshot();
        assert_eq!((tasks.len(), exited.len()), (1, 0));
    }

    #[test]
    fn very_many_that_left_are_not_kept() {
        let mut table = TaskTable::default();
        for at in 0..2 * OUTSIDE_MAX as u32 {
            let serial = u64::from(at) + 1;
            table.apply(vec![], live(&[task(serial, at + 10, at + 10, 5)]), false);
            table.apply(vec![], vec![leaving(task(serial, at + 10, at + 10, 6))], false);
        }
        let (tasks, _) = table.snapshot();
        assert_eq!(tasks.len(), OUTSIDE_MAX);
        assert_eq!(tasks.last().map(|task| task.pid), Some(2 * OUTSIDE_MAX as u32 + 9));
    }

    #[test]
    fn a_task_that_comes_back_goes_on_from_where_it_was() {
        let switched = |task: TaskRaw, nvcsw| TaskRaw {
            counts: task.counts.clone().with([(Counter::Nvcsw, nvcsw)]),
            ..task
        };
        let mut table = TaskTable::default();
        table.apply(vec![], live(&[switched(task(1, 10, 10, 5), 100)]), false);
        table.apply(vec![], vec![leaving(switched(task(1, 10, 10, 6), 110))], false);
        // 40 switches outside, then 2 and 3 inside.
        table.apply(vec![], live(&[switched(task(2, 10, 10, 1), 150)]), false);
        table.apply(vec![], live(&[switched(task(2, 10, 10, 2), 152)]), false);
        table.apply(vec![], vec![leaving(switched(task(2, 10, 10, 3), 155))], false);
        let (tasks, exited) = table.snapshot();
        assert_eq!((sum(&tasks), exited.len()), (9, 0));
        assert_eq!(tasks[0].counts[Counter::Nvcsw], 115);
        // In and out again before anybody looked, and back once more to end.
        table.apply(vec![], vec![leaving(switched(task(3, 10, 10, 1), 170))], false);
        table.apply(vec![ended(switched(task(4, 10, 10, 4), 180), 0)], vec![], false);
        let (tasks, exited) = table.snapshot();
        assert_eq!((tasks.len(), sum(&exited), exited[0].counts[Counter::Nvcsw]), (0, 14, 115));
        assert!(table.outside.is_empty() && table.back_at.is_empty() && table.ended.is_empty());
    }

    #[test]
    fn a_task_that_comes_back_and_ends_is_reported_once() {
        let mut table = TaskTable::default();
        table.apply(vec![], live(&[task(1, 10, 10, 5)]), false);
        table.apply(vec![], vec![leaving(task(1, 10, 10, 6))], false);
        table.apply(vec![], live(&[task(2, 10, 10, 1)]), false);
        table.apply(vec![ended(task(2, 10, 10, 2), 0)], vec![], false);
        assert_eq!(sum(&table.snapshot().1), 8);
        let (tasks, exited) = table.snapshot();
        assert!(tasks.is_empty() && exited.is_empty(), "{tasks:?} {exited:?}");
    }

    #[test]
    fn a_change_of_the_scope_itself_drops_what_leaves() {
        let mut table = TaskTable::default();
        table.apply(vec![], live(&[task(1, 10, 10, 5)]), false);
        table.apply(vec![], vec![leaving(task(1, 10, 10, 6))], true);
        let (tasks, left) = table.snapshot();
        assert!(tasks.is_empty() && left.is_empty());
    }

    #[test]
    fn a_change_of_the_scope_itself_drops_what_ended_threads_left() {
        let mut table = TaskTable::default();
        table.apply(vec![], live(&[task(1, 10, 10, 5), task(2, 10, 11, 7), task(3, 20, 20, 1)]), false);
        table.apply(vec![ended(task(2, 10, 11, 9), 1)], vec![], false);
        table.apply(vec![], vec![leaving(task(1, 10, 10, 6))], true);
        let (tasks, left) = table.snapshot();
        assert_eq!(tasks.iter().map(|task| task.pid).collect::<Vec<_>>(), [20]);
        assert!(left.is_empty());
    }

    #[test]
    fn tables_are_as_large_again_as_before_once_a_burst_is_over() {
        let mut table = TaskTable::default();
        let burst: Vec<TaskRaw> = (1..20_001u32).map(|pid| task(u64::from(pid), pid, pid, 5)).collect();
        table.apply(vec![], live(&burst), false);
        let ends = burst.iter().skip(10).map(|row| ended(row.clone(), 0)).collect();
        table.apply(ends, vec![], false);
        assert_eq!(table.snapshot().1.len(), 19_990);
        for _ in 0..=REMEMBER {
            table.snapshot();
        }
        let rooms =
            [table.live.capacity(), table.exited.capacity(), table.gone.capacity(), table.members.capacity()];
        assert!(rooms.iter().all(|room| *room <= ROOM_MIN), "{rooms:?}");
        assert_eq!((table.snapshot().0.len(), table.members.len()), (10, 10));
    }

    /// Two walks over all tasks, which find these.
    fn search(table: &mut TaskTable, found: &[TaskRaw]) {
        for _ in 0..2 {
            assert!(table.wants_all(2));
            table.apply(vec![], live(found), false);
        }
    }

    #[test]
    fn threads_whose_last_word_was_lost_end_with_what_is_known_of_them() {
        let mut table = TaskTable::default();
        let rows = [task(1, 10, 10, 5), task(2, 10, 11, 7), task(3, 20, 20, 3)];
        table.apply(vec![], live(&rows), false);
        let before = table.snapshot().0;
        search(&mut table, &rows[..1]);
        assert_eq!(table.given_up(), [2, 3]);
        let (tasks, exited) = table.snapshot();
        assert_eq!(tasks.iter().map(|task| (task.pid, task.tid)).collect::<Vec<_>>(), [(10, 10), (10, 0)]);
        assert!(Arc::ptr_eq(&before[0], &tasks[0]), "a row in which nothing changed is a new one");
        assert_eq!((sum(&tasks), exited[0].pid, exited[0].tid, sum(&exited)), (12, 20, 20, 3));
        assert_ne!(exited[0].exit_state, 0, "it did not leave the scope: it ended");
        assert!(!table.wants_all(2));
        // A walk of those that changed says nothing about the others, and a word that comes late is told already.
        table.apply(vec![ended(task(2, 10, 11, 9), 1), ended(task(3, 20, 20, 4), 0)], vec![], false);
        let (tasks, exited) = table.snapshot();
        assert_eq!((sum(&tasks), exited.len()), (12, 0));
    }

    #[test]
    fn a_process_ends_when_only_its_ended_threads_are_left() {
        let mut table = TaskTable::default();
        // Thread 12 was born and ended between two walks, and its word was lost.
        table.apply(vec![ended(task(1, 10, 10, 5), 2), ended(task(2, 10, 11, 7), 1)], vec![], false);
        table.apply(vec![], live(&[task(4, 20, 20, 1), task(5, 30, 30, 1)]), false);
        search(&mut table, &[task(4, 20, 20, 1)]);
        let (tasks, exited) = table.snapshot();
        let mut ended: Vec<_> =
            exited.iter().map(|task| (task.pid, task.exit_state, task.counts.cpu_ns())).collect();
        ended.sort_unstable();
        assert_eq!((tasks.len(), ended), (1, vec![(10, EXIT_DEAD, 12), (30, EXIT_DEAD, 1)]));
    }

    #[test]
    fn a_process_of_which_a_thread_lives_outside_is_kept() {
        let mut table = TaskTable::default();
        let rows = [task(1, 10, 10, 5), task(2, 10, 11, 7)];
        table.apply(vec![], live(&rows), false);
        table.apply(vec![], vec![leaving(task(2, 10, 11, 8))], false);
        search(&mut table, &[]);
        let (tasks, exited) = table.snapshot();
        assert_eq!(
            (tasks.iter().map(|task| task.tid).collect::<Vec<_>>(), sum(&tasks), exited.len()),
            (vec![0], 13, 0)
        );
    }

    #[test]
    fn rows_stay_sorted_by_serial() {
        let mut table = TaskTable::default();
        table.apply(vec![], live(&[task(5, 5, 5, 0), task(2, 2, 2, 0)]), false);
        table.apply(vec![], live(&[task(3, 3, 3, 0), task(9, 9, 9, 0)]), false);
        let serials: Vec<u64> = table.snapshot().0.iter().map(|task| task.serial).collect();
        assert_eq!(serials, [2, 3, 5, 9]);
    }
}
