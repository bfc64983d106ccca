//! The table of tasks: rows of the walk and final rows are applied to it. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;

use super::overdue::Overdue;
use super::parsed::Parsed;
use crate::model::process::ProcessId;
use crate::model::sample::{Counts, TaskRaw};
use crate::model::wire::LOOK_EVERY;
use crate::program::slack::is_roomy;

/// Serials of rows we make ourselves, for the ended threads of a process. The kernel counts up from one.
const ENDED_THREADS: u64 = 1 << 63;

/// Samples for which an ended process is remembered: its last threads may be reported after its leader.
const REMEMBER: u32 = 3;

/// Rows with serials in as long a piece are due together.
const NEIGHBOURS: u64 = 64;

/// Processes outside the scope whose totals are kept, for the case that they come back.
const OUTSIDE_MAX: usize = 4096;

/// State and exit state of a dead task (include/linux/sched.h).
const TASK_DEAD: u32 = 0x80;
const EXIT_DEAD: u32 = 0x10;

/// A thread: its id and its start.
type Thread = (u32, u64);

/// The tasks of the machine as of the last rows.
#[derive(Default)]
pub struct TaskTable {
    /// Ascending by serial.
    live: Vec<Arc<TaskRaw>>,
    /// Places in `live` of removed rows. They are taken out together, because each removal moves all rows
    /// behind it.
    removed: BTreeSet<usize>,
    /// Counts of threads that ended, or left the scope, of a process that lives on. They stay while all of the process
    /// is outside the scope: should it come back, its totals go on from there.
    ended: BTreeMap<ProcessId, Arc<TaskRaw>>,
    /// Threads that left the scope and live on outside.
    outside: HashMap<ProcessId, HashSet<Thread>>,
    /// By serial, for threads that left the scope and came back: the kernel's counts when they came back.
    /// Everything up to their leaving is in `ended`; their counts outside belong to no one.
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
    /// Takes in rows of one round: final rows first (`ends`), then the walk. Counts of a task that leaves the
    /// scope become a row of its process. `forget`: the scope itself has changed, and tasks that leave now
    /// are dropped.
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
        // Only a whole walk shows which tasks are missing.
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

    /// Thread ids of the rows whose turn it is, this one of [`LOOK_EVERY`]. Neighbours have the same, so that all others are
    /// jumped over.
    pub fn due(&self, turn: u32) -> impl Iterator<Item = u32> {
        let every = u64::from(LOOK_EVERY);
        let mut at = 0;
        std::iter::from_fn(move || {
            loop {
                let task = self.live.get(at)?;
                let block = task.serial / NEIGHBOURS;
                let ahead = (u64::from(turn) + every - block % every) % every;
                if ahead == 0 {
                    at += 1;
                    return Some(task.tid);
                }
                let from = (block + ahead) * NEIGHBOURS;
                // No two rows have the same serial.
                let most = self.live.len().min(at + (from - task.serial) as usize);
                at += self.live[at..most].partition_point(|task| task.serial < from);
            }
        })
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

    /// Ends rows whose final row does not come, with their known values, and processes of which nothing else
    /// is left.
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

    /// A task of an abandoned scope. The last one takes the row of ended threads with it: the end of their
    /// process would not be reported.
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

    /// A thread ended after it left the scope. The last one ends its process, which no other row reports.
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

    /// Notes that a thread is outside. With very many processes, the ones that left first are forgotten.
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

    /// Frees the memory of a burst of tasks: tables keep that of their largest size.
    fn shrink(&mut self) {
        if is_roomy(self.live.capacity(), self.live.len(), ROOM_MIN) {
            self.live.shrink_to(2 * self.live.len());
        }
        if is_roomy(self.exited.capacity(), self.exited.len(), ROOM_MIN) {
            self.exited.shrink_to(2 * self.exited.len());
        }
        shrink(&mut self.outside);
        shrink(&mut self.back_at);
        shrink(&mut self.gone);
        shrink(&mut self.members);
    }
}

/// Rows for which a table may have room whatever it has.
const ROOM_MIN: usize = 1024;

fn shrink<K: Eq + Hash, V>(map: &mut HashMap<K, V>) {
    if is_roomy(map.capacity(), map.len(), ROOM_MIN) {
        map.shrink_to(2 * map.len());
    }
}

#[cfg(test)]
mod tests;
