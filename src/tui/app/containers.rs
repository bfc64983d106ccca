//! The list of containers: flat or as a tree, how it is sorted, which one is selected.

use std::collections::{HashMap, HashSet};

use super::cursor::Cursor;
use crate::metric::container::CONTAINER;
use crate::metric::container::by_id;
use crate::metric::task;
use crate::metric::{Metric, Value};
use crate::model::group::Kind;
use crate::snapshot::{Container, Snapshot};
use crate::tui::action::Motion;
use crate::tui::columns::{self, Columns};
use crate::tui::rows::{self, Row};
use crate::tui::widget::table::Sort;

pub struct ContainerList {
    pub sort: Sort<Container>,
    /// By cgroup hierarchy, each row with the total of those below.
    pub tree: bool,
    pub cursor: Cursor<u64>,
    rows: Vec<Row>,
    keys: Vec<u64>,
    folded: HashSet<u64>,
}

impl Default for ContainerList {
    /// Flat, the busiest first.
    fn default() -> ContainerList {
        let metric: &'static Metric<Container> = by_id(task::CPU_PCT.id).expect("containers have it, too");
        ContainerList {
            sort: Sort { metric, reversed: false },
            tree: false,
            cursor: Cursor::new(),
            rows: Vec::new(),
            keys: Vec::new(),
            folded: HashSet::new(),
        }
    }
}

impl ContainerList {
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Sorts the rows; those without a value come last, ties by name.
    pub fn arrange(&mut self, snapshot: &Snapshot, height: usize) {
        let all = &snapshot.containers;
        let key = |at: &usize| self.sort.metric.read(&all[*at], snapshot).ok();
        let mut keyed: Vec<(usize, Option<Value>)> =
            (0..all.len()).filter(|at| self.tree || is_listed(&all[*at])).map(|at| (at, key(&at))).collect();
        let descending = self.sort.descending();
        keyed.sort_by(|(a, va), (b, vb)| {
            let by_value = match (va, vb) {
                (Some(a), Some(b)) if descending => crate::analysis::filter::compare(b, a),
                (Some(a), Some(b)) => crate::analysis::filter::compare(a, b),
                (a, b) => b.is_some().cmp(&a.is_some()),
            };
            by_value.then_with(|| all[*a].id.cmp(&all[*b].id))
        });
        let order: Vec<usize> = keyed.into_iter().map(|(at, _)| at).collect();
        self.rows = if self.tree {
            let mut children: HashMap<usize, Vec<usize>> = HashMap::new();
            let mut roots = Vec::new();
            for at in order {
                match all[at].parent {
                    Some(parent) => children.entry(parent).or_default().push(at),
                    None => roots.push(at),
                }
            }
            rows::forest(&roots, &children, &|at| self.folded.contains(&all[at].id))
        } else {
            order.into_iter().map(Row::flat).collect()
        };
        self.keys = self.rows.iter().map(|row| all[row.task].id).collect();
        self.cursor.settle(&self.keys, height);
    }

    /// Groups whose rows are among the `height` that are shown, by the ids of their tops.
    pub fn in_view(&self, height: usize) -> Vec<u64> {
        self.keys.iter().skip(self.cursor.offset()).take(height).copied().collect()
    }

    pub fn go(&mut self, motion: Motion, height: usize) {
        self.cursor.go(motion, &self.keys, height);
    }

    pub fn select(&mut self, at: usize, height: usize) {
        self.cursor.select(at, &self.keys, height);
    }

    /// The selected container.
    pub fn selected<'a>(&self, snapshot: &'a Snapshot) -> Option<&'a Container> {
        self.rows.get(self.cursor.at()).and_then(|row| snapshot.containers.get(row.task))
    }

    /// Folds or unfolds what hangs below the selected row.
    pub fn toggle_fold(&mut self) {
        if let Some(key) = self.keys.get(self.cursor.at())
            && !self.folded.remove(key)
        {
            self.folded.insert(*key);
        }
    }

    pub fn columns_at(&self, width: u16, snapshot: &Snapshot) -> Columns<Container> {
        let metrics = columns::containers_for(width, &snapshot.host, self.sort.metric.id);
        columns::place(&metrics, width, CONTAINER.id)
    }
}

/// A flat list leaves out what only holds other rows; of pods both are of interest.
fn is_listed(row: &Container) -> bool {
    row.own_tasks || row.kind() == Kind::Pod
}
