//! The tasks that are shown: filters, of the command line and typed.

use super::is_below;
use crate::analysis::filter::RowFilter;
use crate::metric::Metric;
use crate::metric::identity::user;
use crate::metric::task::TASK_METRICS;
use crate::model::units::NodeId;
use crate::snapshot::{Snapshot, Task};
use crate::text;
use crate::tui::input::Rows;

/// The tasks to show.
#[derive(Clone, Default)]
pub struct Choice {
    /// From the command line.
    pub filter: RowFilter,
    /// Typed: see [`matches()`].
    pub text: String,
    pub uid: Option<u32>,
    pub node: Option<NodeId>,
    /// Cgroup id of a container: tasks in it and below it.
    pub container: Option<u64>,
    /// Rows that are hidden.
    pub hidden: Hidden,
}

/// Kinds of rows that are hidden.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hidden {
    pub kernel: bool,
    pub idle: bool,
    pub ended: bool,
}

impl Hidden {
    /// Hides rows of a kind, or shows them again. Whether they are hidden now.
    pub fn toggle(&mut self, rows: Rows) -> bool {
        let hidden = match rows {
            Rows::Kernel => &mut self.kernel,
            Rows::Idle => &mut self.idle,
            Rows::Ended => &mut self.ended,
        };
        *hidden = !*hidden;
        *hidden
    }

    /// In the words of the header.
    pub fn facts(self) -> impl Iterator<Item = String> {
        let all = [(self.kernel, Rows::Kernel), (self.idle, Rows::Idle), (self.ended, Rows::Ended)];
        all.into_iter().filter(|(hidden, _)| *hidden).map(|(_, rows)| format!("no {}", words(rows)))
    }

    fn hides(self, task: &Task) -> bool {
        self.kernel && task.raw.kthread || self.idle && task.run_ns() == 0 || self.ended && task.exited
    }
}

/// Rows of a kind, in words.
pub(super) fn words(rows: Rows) -> &'static str {
    match rows {
        Rows::Kernel => "kernel threads",
        Rows::Idle => "idle tasks",
        Rows::Ended => "ended tasks",
    }
}

impl Choice {
    /// Whether `task` is to be shown.
    pub fn keeps(&self, task: &Task, snapshot: &Snapshot) -> bool {
        let here = RowFilter { node: self.node, ..RowFilter::default() };
        self.filter.keeps(task)
            && !self.hidden.hides(task)
            && self.uid.is_none_or(|uid| uid == task.raw.uid)
            && here.keeps(task)
            && self.container.is_none_or(|top| is_below(task.raw.cgroup_id, top, snapshot))
            && (self.text.is_empty() || matches(task, snapshot, &self.text))
    }
}

/// Whether a task has all words of `text`: `user:ada`, `node:2` where it ran, `ipc<0.5` or `rss>1e9` of a metric, and others as
/// of [`contains`].
pub(super) fn matches(task: &Task, snapshot: &Snapshot, text: &str) -> bool {
    text.split_whitespace().all(|word| match condition(task, snapshot, word) {
        Some(holds) => holds,
        None => contains(task, snapshot, word),
    })
}

/// Whether the condition that a word states holds; `None` where it states none.
fn condition(task: &Task, snapshot: &Snapshot, word: &str) -> Option<bool> {
    if let Some(name) = word.strip_prefix("user:") {
        return Some(user(task.raw.uid, snapshot) == name);
    }
    if let Some(node) = word.strip_prefix("node:") {
        let filter = RowFilter { node: Some(NodeId(node.parse().ok()?)), ..RowFilter::default() };
        return Some(filter.keeps(task));
    }
    let at = word.find(['<', '>'])?;
    let (name, limit) = (&word[..at], word[at + 1..].parse::<f64>().ok()?);
    let is_it = |metric: &&Metric<Task>| {
        metric.id.eq_ignore_ascii_case(name) || metric.title.eq_ignore_ascii_case(name)
    };
    let metric = TASK_METRICS.iter().find(is_it)?;
    // A row without a value is neither below a limit nor above it.
    let value = metric.read(task, snapshot).ok().and_then(|value| value.number());
    Some(value.is_some_and(|value| if word[at..].starts_with('<') { value < limit } else { value > limit }))
}

/// Whether `needle` is part of the task's name, cgroup or user, or is its pid or tid. Capital letters
/// count when there are any in `needle`.
fn contains(task: &Task, snapshot: &Snapshot, needle: &str) -> bool {
    let exact = needle.chars().any(char::is_uppercase);
    let contains = |text: &str| {
        if exact { text.contains(needle) } else { text.to_lowercase().contains(needle) }
    };
    contains(&text::clean(task.raw.comm.bytes()))
        || needle.parse().is_ok_and(|id: u32| id == task.raw.pid || Some(id) == task.tid)
        || user(task.raw.uid, snapshot) == needle
        || snapshot.names.cgroups.get(&task.raw.cgroup_id).is_some_and(|path| contains(path))
}
