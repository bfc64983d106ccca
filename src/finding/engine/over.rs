//! The question to a rule over a longer window than an interval, and how shares changed in it.

use std::collections::BTreeMap;

use super::super::history::{RowSums, Series, container_over, task_over};
use super::super::rule::{Blindness, Look, Seen};
use super::super::view::{Of, View};
use super::super::{Identity, Subject, Told};
use super::rows;
use crate::snapshot::{Remote, Task};

/// The result of a rule over a longer window, with its text.
pub(super) type Conclusion = (Seen, Told, Identity);

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
    let look = |of: &Of<'_>| match (view.rule.look)(view, of) {
        Look::Seen(seen) => {
            let told = (view.rule.tell)(view, of, &seen);
            Ok((*seen, told, view.identity(of)))
        }
        Look::Blind(why) => Err(Some(why)),
        Look::Quiet | Look::Excused(_) => Err(None),
    };
    match subject {
        Subject::Host => look(&Of::Host),
        Subject::Node(id) => look(&Of::Node(view.node(*id).ok_or(None)?)),
        Subject::Process(..) => {
            let task: &Task = &view.snapshot.tasks[*view.rows.processes.get(subject).ok_or(None)?];
            look(&Of::Process(&task_over(task, sums.get(subject).ok_or(None)?, since)))
        }
        Subject::Group(..) => {
            let group = view.rows.groups.get(subject).ok_or(None)?;
            look(&Of::Group(&task_over(&group.row, sums.get(subject).ok_or(None)?, since), group))
        }
        Subject::Container(id) => {
            let row = &view.snapshot.containers[*view.rows.containers.get(id).ok_or(None)?];
            look(&Of::Container(&container_over(row, sums.get(subject).ok_or(None)?, since)))
        }
        Subject::Device(name) => {
            let mut devices = rows::devices(view.snapshot);
            let (device, node) = devices.find(|(device, _)| device.name == *name).ok_or(None)?;
            look(&Of::Device(device, node))
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
