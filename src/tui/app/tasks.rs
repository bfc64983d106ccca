//! The list of tasks: what is shown of them, how it is sorted, which row is selected.

use std::collections::HashSet;

use super::cursor::Cursor;
use crate::analysis::filter::RowFilter;
use crate::metric::Metric;
use crate::metric::identity::COMM;
use crate::snapshot::{Snapshot, Task};
use crate::tui::action::{Motion, Screen};
use crate::tui::columns::{self, Columns};
use crate::tui::rows::{self, Choice, Row, RowKey};
use crate::tui::widget::table::Sort;

pub struct TaskList {
    pub choice: Choice,
    /// Chosen by hand; `None` lets the width decide.
    pub columns: Option<Vec<&'static Metric<Task>>>,
    pub threads: bool,
    pub follow: bool,
    /// The text that is searched for; empty for none.
    pub search: String,
    pub cursor: Cursor<RowKey>,
    rows: Vec<Row>,
    keys: Vec<RowKey>,
}

impl TaskList {
    pub fn new(
        sort: Sort<Task>,
        filter: RowFilter,
        columns: Option<Vec<&'static Metric<Task>>>,
        threads: bool,
    ) -> TaskList {
        TaskList {
            choice: Choice {
                sort,
                tree: false,
                folded: HashSet::new(),
                filter,
                text: String::new(),
                uid: None,
                node: None,
                container: None,
            },
            columns,
            threads,
            follow: false,
            search: String::new(),
            cursor: Cursor::new(),
            rows: Vec::new(),
            keys: Vec::new(),
        }
    }

    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Arranges the rows of a new snapshot, or of the same one after a choice changed. `height` is the
    /// number of rows in view.
    pub fn arrange(&mut self, snapshot: &Snapshot, height: usize) {
        self.rows = rows::arrange(snapshot, &self.choice);
        self.keys = self.rows.iter().map(|row| RowKey::of(&snapshot.tasks[row.task])).collect();
        let wanted = self.cursor.selected();
        self.cursor.settle(&self.keys, height);
        // What is followed has ended or is filtered out: nobody else is followed in its place.
        self.follow &= self.cursor.selected() == wanted;
        if self.follow {
            self.cursor.reveal(height);
        }
    }

    pub fn go(&mut self, motion: Motion, height: usize) {
        self.cursor.go(motion, &self.keys, height);
    }

    pub fn select(&mut self, at: usize, height: usize) {
        self.cursor.select(at, &self.keys, height);
    }

    /// The selected task.
    pub fn selected<'a>(&self, snapshot: &'a Snapshot) -> Option<&'a Task> {
        self.rows.get(self.cursor.at()).map(|row| &snapshot.tasks[row.task])
    }

    /// Follows the selected task, or no longer.
    pub fn toggle_follow(&mut self, height: usize) {
        self.follow = !self.follow;
        if self.follow {
            self.cursor.select(self.cursor.at(), &self.keys, height);
        }
    }

    /// Folds or unfolds what hangs below the selected row. False when nothing does.
    pub fn toggle_fold(&mut self) -> bool {
        let at = self.cursor.at();
        let Some(key) = self.keys.get(at) else { return false };
        if self.choice.folded.remove(key) {
            return true;
        }
        let has_children = self.rows.get(at + 1).is_some_and(|next| next.depth() > self.rows[at].depth());
        has_children && self.choice.folded.insert(*key)
    }

    /// Selects the next match (`step` 1), the one before (-1), or the first from the selected row on (0).
    /// False when there is none.
    pub fn find(&mut self, snapshot: &Snapshot, step: isize, height: usize) -> bool {
        let len = self.rows.len();
        if self.search.is_empty() || len == 0 {
            return false;
        }
        let start = self.cursor.at().min(len - 1);
        let found = (0..len)
            .map(|i| match step {
                -1 => (start + len - 1 - i) % len,
                step => (start + i + step as usize) % len,
            })
            .find(|at| rows::matches(&snapshot.tasks[self.rows[*at].task], snapshot, &self.search));
        if let Some(at) = found {
            self.select(at, height);
        }
        found.is_some()
    }

    /// The columns at this width.
    pub fn columns_at(&self, width: u16, snapshot: &Snapshot) -> Columns<Task> {
        let sorted = self.choice.sort.metric.id;
        match &self.columns {
            Some(chosen) => columns::place(chosen, width, COMM.id),
            None => {
                let metrics = columns::tasks_for(width, &snapshot.host, self.threads, sorted);
                columns::place(&metrics, width, COMM.id)
            }
        }
    }

    /// Drops search, filter and user, and returns whether there was any of them.
    pub fn drop_filters(&mut self) -> bool {
        let choice = &mut self.choice;
        let any = !choice.text.is_empty() || choice.uid.is_some() || !self.search.is_empty();
        choice.text.clear();
        choice.uid = None;
        self.search.clear();
        any
    }

    /// Shows tasks of all containers, or of all nodes, again. Returns where the one was chosen.
    pub fn leave(&mut self) -> Option<Screen> {
        if self.choice.container.take().is_some() {
            return Some(Screen::Containers);
        }
        self.choice.node.take().map(|_| Screen::Nodes)
    }
}
