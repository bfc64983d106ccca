//! A task as a row of a list: its identity, its order and its parent.

use std::collections::HashMap;

use crate::metric::Metric;
use crate::metric::identity::{COMM, PID, TID};
use crate::metric::task::TASK_METRICS;
use crate::model::process::ProcessId;
use crate::snapshot::{RowKind, Snapshot, Task, Tie};
use crate::tui::widgets::columns;
use crate::tui::widgets::list::Row;

/// The identity of a row, for as long as the task lives and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RowKey {
    pub process: ProcessId,
    pub tid: Option<u32>,
}

impl Row for Task {
    type Key = RowKey;
    type Tie = Tie;
    const NAME: &'static str = COMM.id;
    const FIXED: &'static [&'static str] = &[PID.id, TID.id];

    fn metrics() -> &'static [Metric<Task>] {
        TASK_METRICS
    }

    fn all(snapshot: &Snapshot) -> &[Task] {
        &snapshot.tasks
    }

    fn key(&self) -> RowKey {
        RowKey { process: self.raw.process(), tid: self.tid }
    }

    fn tie(&self) -> Tie {
        Task::tie(self)
    }

    fn columns(width: u16, snapshot: &Snapshot, sorted: &str) -> Vec<&'static Metric<Task>> {
        columns::tasks_for(width, &snapshot.host, snapshot.grain != RowKind::Processes, sorted)
    }

    /// Threads are below their process, and a process is below its parent. A process whose parent is not
    /// shown is a root.
    fn parents(snapshot: &Snapshot, order: &[usize]) -> HashMap<usize, usize> {
        // Live tasks win over an ended one with the same id.
        let mut leaders: HashMap<u32, usize> = HashMap::with_capacity(order.len());
        for at in order {
            let task = &snapshot.tasks[*at];
            if task.leads() && (!task.exited || !leaders.contains_key(&task.raw.pid)) {
                leaders.insert(task.raw.pid, *at);
            }
        }
        let parent = |at: &usize| {
            let task = &snapshot.tasks[*at];
            let id = if task.leads() { task.raw.ppid } else { task.raw.pid };
            Some((*at, leaders.get(&id).copied().filter(|parent| parent != at)?))
        };
        order.iter().filter_map(parent).collect()
    }
}
