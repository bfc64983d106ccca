//! The question to a rule over a longer window than an interval, and how shares changed in it.

use std::collections::BTreeMap;

use super::super::Subject;
use super::super::history::{RowSums, Series, container_over, task_over};
use super::super::rule::{Blindness, Conclusion, Unmet};
use super::super::view::{SubjectRef, View};
use super::rows;
use crate::snapshot::{Remote, Task};

/// Asks a rule about a longer window.
///
/// # Errors
/// The condition does not hold there; the reason where it cannot be seen.
pub(super) fn look_over(
    view: &View<'_>,
    subject: &Subject,
    sums: &BTreeMap<Subject, Series<RowSums>>,
    since: u64,
) -> Result<Conclusion, Option<Blindness>> {
    let look = |of: &SubjectRef<'_>| {
        view.rule.judge.conclude(view, of).map_err(|unmet| match unmet {
            Unmet::Blind(why) => Some(why),
            Unmet::Quiet | Unmet::Excused(_) => None,
        })
    };
    match subject {
        Subject::Host => look(&SubjectRef::Host),
        Subject::Node(id) => look(&SubjectRef::Node(view.node(*id).ok_or(None)?)),
        Subject::Socket(id) => look(&SubjectRef::Socket(view.socket(*id).ok_or(None)?)),
        Subject::Process(..) => {
            let task: &Task = &view.snapshot.tasks[*view.rows.processes.get(subject).ok_or(None)?];
            look(&SubjectRef::Process(&task_over(task, sums.get(subject).ok_or(None)?, since)))
        }
        Subject::Group(..) => {
            let group = view.rows.groups.get(subject).ok_or(None)?;
            look(&SubjectRef::Group(&task_over(&group.row, sums.get(subject).ok_or(None)?, since), group))
        }
        Subject::Container(id) => {
            let row = &view.snapshot.containers[*view.rows.containers.get(id).ok_or(None)?];
            look(&SubjectRef::Container(&container_over(row, sums.get(subject).ok_or(None)?, since)))
        }
        Subject::Device(name) => {
            let mut devices = rows::devices(view.snapshot);
            let (device, node) = devices.find(|(device, _)| device.name == *name).ok_or(None)?;
            look(&SubjectRef::Device(device, node))
        }
    }
}

/// Shares of remote accesses in the first and in the last third of a window, in percent.
pub(super) fn trend(series: &Series<RowSums>, since: u64) -> Option<(f64, f64)> {
    let third = series.end_ns().saturating_sub(since) / 3;
    let mut first = Remote::default();
    let mut last = first;
    for segment in series.since(since) {
        if segment.to_ns <= since.saturating_add(third + third / 2) {
            first += &segment.sums.remote;
        }
        if segment.from_ns.saturating_add(third + third / 2) >= series.end_ns() {
            last += &segment.sums.remote;
        }
    }
    first.pct().zip(last.pct())
}
