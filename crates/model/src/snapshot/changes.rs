//! Rows of tasks that differ between two samples. Most tasks rest, and a row that did not change is the same allocation.

use std::sync::Arc;

use crate::model::sample::{Sample, TaskRaw};

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

/// Rows of two samples that are not the same in both, each kind in the order of serials.
#[derive(Default)]
pub(super) struct Changes<'a> {
    /// The row of the earlier sample, and that of the later one.
    pub(super) changed: Vec<(&'a Arc<TaskRaw>, &'a Arc<TaskRaw>)>,
    /// Rows of the later sample only.
    pub(super) came: Vec<&'a Arc<TaskRaw>>,
    /// Rows of the earlier sample only.
    pub(super) went: Vec<&'a Arc<TaskRaw>>,
}

impl<'a> Changes<'a> {
    pub(super) fn between(previous: &'a Sample, current: &'a Sample) -> Changes<'a> {
        let mut changes = Changes::default();
        join(&previous.tasks, &current.tasks, |old, new| match (old, new) {
            (Some(old), Some(new)) if Arc::ptr_eq(old, new) => {}
            (Some(old), Some(new)) => changes.changed.push((old, new)),
            (None, Some(new)) => changes.came.push(new),
            (Some(old), None) => changes.went.push(old),
            (None, None) => {}
        });
        changes
    }
}
