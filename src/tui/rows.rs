//! Rows of the table of tasks, and their order: filters, sorting and the tree.

use std::collections::{HashMap, HashSet};

use super::theme::Glyphs;
use super::widget::table::Sort;
use crate::analysis::filter::{self, RowFilter};
use crate::metric::identity::user;
use crate::model::group::DEPTH_MAX;
use crate::model::units::NodeId;
use crate::snapshot::{Snapshot, Task};
use crate::text;

/// The identity of a row, for as long as the task lives and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RowKey {
    /// Process id and start of its leader.
    pub process: (u32, u64),
    pub tid: Option<u32>,
}

impl RowKey {
    pub fn of(task: &Task) -> RowKey {
        RowKey { process: task.raw.process(), tid: task.tid }
    }
}

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Index into `Snapshot::tasks`, or into `Snapshot::containers`.
    pub task: usize,
    /// Depth in the tree; 0 for a root, and everywhere without a tree.
    depth: u16,
    /// Bit d is set when the line of depth d goes on below this row.
    lines: u64,
    /// Descendants that are folded away.
    pub folded: usize,
}

/// The user's choices.
#[derive(Clone)]
pub struct Choice {
    pub sort: Sort<Task>,
    pub tree: bool,
    pub folded: HashSet<RowKey>,
    /// From the command line.
    pub filter: RowFilter,
    /// Typed: see [`matches()`].
    pub text: String,
    pub uid: Option<u32>,
    pub node: Option<NodeId>,
    /// Cgroup id of a container: tasks in it and below it.
    pub container: Option<u64>,
}

/// The rows of `snapshot` in the order of the screen.
pub fn arrange(snapshot: &Snapshot, choice: &Choice) -> Vec<Row> {
    let here = RowFilter { node: choice.node, ..RowFilter::default() };
    let all = RowFilter { top: None, ..choice.filter.clone() };
    let mut order = filter::select(snapshot, &all, choice.sort.metric, choice.sort.reversed);
    order.retain(|at| {
        let task = &snapshot.tasks[*at];
        choice.uid.is_none_or(|uid| uid == task.raw.uid)
            && here.keeps(task)
            && choice.container.is_none_or(|top| is_below(task.raw.cgroup_id, top, snapshot))
            && (choice.text.is_empty() || matches(task, snapshot, &choice.text))
    });
    let top = choice.filter.top.unwrap_or(usize::MAX);
    if choice.tree {
        let mut rows = tree(snapshot, &order, &choice.folded);
        rows.truncate(top);
        return rows;
    }
    order.truncate(top);
    order.into_iter().map(Row::flat).collect()
}

/// Whether a cgroup is `top` or lies below it.
pub fn is_below(cgroup: u64, top: u64, snapshot: &Snapshot) -> bool {
    let mut next = Some(cgroup);
    for _ in 0..DEPTH_MAX {
        match next {
            Some(id) if id == top => return true,
            Some(id) => next = snapshot.names.groups.get(&id).and_then(|group| group.parent),
            None => return false,
        }
    }
    false
}

/// Whether `needle` is part of the task's name, cgroup or user, or is its pid or tid. Capital letters
/// count when there are any in `needle`.
pub fn matches(task: &Task, snapshot: &Snapshot, needle: &str) -> bool {
    let exact = needle.chars().any(char::is_uppercase);
    let contains = |text: &str| {
        if exact { text.contains(needle) } else { text.to_lowercase().contains(needle) }
    };
    contains(&text::clean(task.raw.comm.bytes()))
        || needle.parse().is_ok_and(|id: u32| id == task.raw.pid || Some(id) == task.tid)
        || user(task.raw.uid, snapshot) == needle
        || snapshot.names.cgroups.get(&task.raw.cgroup_id).is_some_and(|path| contains(path))
}

/// The rows of `order` as a forest: children below their parent, siblings in the given order. Parents
/// that are not shown make roots of their children.
fn tree(snapshot: &Snapshot, order: &[usize], folded: &HashSet<RowKey>) -> Vec<Row> {
    // Live tasks win where an ended one had the same id.
    let mut leaders: HashMap<u32, usize> = HashMap::with_capacity(order.len());
    for at in order {
        let task = &snapshot.tasks[*at];
        if task.tid.is_none_or(|tid| tid == task.raw.pid)
            && (!task.exited || !leaders.contains_key(&task.raw.pid))
        {
            leaders.insert(task.raw.pid, *at);
        }
    }
    let parent = |at: usize| {
        let task = &snapshot.tasks[at];
        let id = if task.tid.is_some_and(|tid| tid != task.raw.pid) { task.raw.pid } else { task.raw.ppid };
        leaders.get(&id).copied().filter(|parent| *parent != at)
    };
    let mut children: HashMap<usize, Vec<usize>> = HashMap::new();
    let mut roots = Vec::new();
    for at in order {
        match parent(*at) {
            Some(parent) => children.entry(parent).or_default().push(*at),
            None => roots.push(*at),
        }
    }
    let mut rows = Vec::with_capacity(order.len());
    let mut seen = HashSet::with_capacity(order.len());
    let is_folded = |at: usize| folded.contains(&RowKey::of(&snapshot.tasks[at]));
    grow(&roots, &children, &is_folded, &mut rows, &mut seen);
    if seen.len() < order.len() {
        // Ids that were used again can make a circle, which no root leads to.
        for at in order {
            if !seen.contains(at) {
                grow(&[*at], &children, &is_folded, &mut rows, &mut seen);
            }
        }
    }
    rows
}

/// `roots` and what hangs below them, siblings in the given order; what is below a folded one is counted.
pub fn forest(
    roots: &[usize],
    children: &HashMap<usize, Vec<usize>>,
    is_folded: &dyn Fn(usize) -> bool,
) -> Vec<Row> {
    let mut rows = Vec::new();
    grow(roots, children, is_folded, &mut rows, &mut HashSet::new());
    rows
}

/// Adds `roots` and what hangs below them, without recursion: the depth is anybody's choice.
fn grow(
    roots: &[usize],
    children: &HashMap<usize, Vec<usize>>,
    is_folded: &dyn Fn(usize) -> bool,
    rows: &mut Vec<Row>,
    seen: &mut HashSet<usize>,
) {
    // Task, depth, lines to draw, and the row that it is folded into.
    let mut stack: Vec<(usize, u16, u64, Option<usize>)> =
        roots.iter().rev().map(|at| (*at, 0, 0, None)).collect();
    while let Some((at, depth, lines, mut hidden_in)) = stack.pop() {
        if !seen.insert(at) {
            continue;
        }
        if let Some(row) = hidden_in {
            rows[row].folded += 1;
        } else {
            rows.push(Row { task: at, depth, lines, folded: 0 });
            if is_folded(at) {
                hidden_in = Some(rows.len() - 1);
            }
        }
        let below = children.get(&at).map_or(&[][..], Vec::as_slice);
        for (i, child) in below.iter().enumerate().rev() {
            let depth = depth.saturating_add(1);
            let goes_on = u64::from(i + 1 < below.len()) << u32::from(depth).min(63);
            stack.push((*child, depth, lines | goes_on, hidden_in));
        }
    }
}

impl Row {
    /// A row outside of any tree.
    pub fn flat(task: usize) -> Row {
        Row { task, depth: 0, lines: 0, folded: 0 }
    }

    /// Depth in the tree.
    pub fn depth(&self) -> u16 {
        self.depth
    }

    /// The branches before the name, of at most `levels` levels.
    pub fn prefix(&self, glyphs: &Glyphs, levels: u16) -> String {
        let [child, last, line, none] = glyphs.branch;
        let goes_on = |depth: u16| self.lines >> u32::from(depth).min(63) & 1 == 1;
        let mut text = String::new();
        let from = self.depth.saturating_sub(levels);
        for depth in (from..self.depth).map(|above| above + 1) {
            text.push_str(match (depth == self.depth, goes_on(depth)) {
                (true, true) => child,
                (true, false) => last,
                (false, true) => line,
                (false, false) => none,
            });
        }
        if self.folded > 0 {
            text.push_str(&format!("[+{}] ", self.folded));
        }
        text
    }
}
