//! Samples that are not shown one by one: what an earlier one has and a later one has not goes into the later one.

use std::collections::HashSet;

use crate::model::sample::Sample;
use crate::model::stacks::StackBatch;

/// Ends of processes that are carried along: some 40 MB.
const EXITS_KEPT: usize = 1 << 16;

/// The name of the loss of ends of processes that were too many to be carried along.
const EXITS_NOT_SHOWN: &str = "exits_not_shown";

/// Notes that are carried along.
const NOTES_KEPT: usize = 100;

/// Stacks and names that are carried along.
const STACKS_KEPT: usize = 1 << 16;
const NAMES_KEPT: usize = 100_000;

/// The name of the loss of samples of stacks that were too many to be carried along.
const STACKS_NOT_SHOWN: &str = "stacks_not_shown";

/// Makes one interval of several. Counters only go up, so the difference over the longer interval is right by
/// itself. Ends of processes and notes are in one sample only.
#[derive(Debug, Default)]
pub struct Merger {
    /// Ends of processes that no sample has, since the beginning.
    not_kept: u64,
    /// Samples of stacks that no news have, since the beginning.
    stacks_not_kept: u64,
}

impl Merger {
    /// Puts what `earlier` alone has into `later`, which is then shown in its place.
    pub fn merge(&mut self, earlier: Sample, later: &mut Sample) {
        if !earlier.exited.is_empty() {
            // One that is reported again, or is back, has its counts in the later row.
            let again: HashSet<_> =
                later.exited.iter().chain(&later.tasks).map(|task| task.process()).collect();
            let mut exited = earlier.exited;
            exited.retain(|task| !again.contains(&task.process()));
            let room = EXITS_KEPT.saturating_sub(later.exited.len());
            self.not_kept += exited.len().saturating_sub(room) as u64;
            exited.truncate(room);
            later.exited.splice(..0, exited);
        }
        let mut notes = earlier.notes;
        notes.retain(|note| !later.notes.contains(note));
        let many = (notes.len() + later.notes.len()).saturating_sub(NOTES_KEPT).min(notes.len());
        later.notes.splice(..0, notes.drain(many..));
    }

    /// Puts `later` behind `earlier`.
    pub fn merge_news(&mut self, earlier: &mut StackBatch, later: StackBatch) {
        let room = STACKS_KEPT.saturating_sub(earlier.stacks.len());
        self.stacks_not_kept += later.stacks.iter().skip(room).map(|stack| stack.samples).sum::<u64>();
        earlier.stacks.extend(later.stacks.into_iter().take(room));
        let many = (earlier.names.len() + later.names.len()).saturating_sub(NAMES_KEPT);
        earlier.names.drain(..many.min(earlier.names.len()));
        earlier.names.extend(later.names);
        (earlier.event, earlier.hz, earlier.lost) = (later.event, later.hz, later.lost);
    }

    /// Adds what could not be carried along to the losses of a sample that is shown.
    pub fn count_losses(&self, sample: &mut Sample) {
        if self.not_kept > 0 {
            sample.lost.insert(EXITS_NOT_SHOWN.into(), self.not_kept);
        }
    }

    /// As [`Merger::count_losses`], for stacks.
    pub fn count_lost_stacks(&self, news: &mut StackBatch) {
        if self.stacks_not_kept > 0 {
            *news.lost.entry(STACKS_NOT_SHOWN.into()).or_default() += self.stacks_not_kept;
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::sample::{Comm, TaskRaw};
    use crate::model::stacks::Stack;

    /// A sample with only this in it.
    pub(crate) fn sample(tasks: &[u32], exited: &[u32], notes: &[&str]) -> Sample {
        let task = |pid: &u32| Arc::new(TaskRaw { pid: *pid, tid: *pid, start_ns: 1, ..TaskRaw::default() });
        Sample {
            tasks: tasks.iter().map(task).collect(),
            exited: exited.iter().map(task).collect(),
            notes: notes.iter().map(ToString::to_string).collect(),
            ..Sample::default()
        }
    }

    /// Stacks with this number of samples, one of each process.
    pub(crate) fn news(pids: std::ops::Range<u32>, samples: u64) -> StackBatch {
        let comm = Comm::new("x");
        let stack = |pid| Stack { process: (pid, 1), tid: pid, cgroup_id: 0, comm, samples, frames: vec![] };
        StackBatch { stacks: pids.map(stack).collect(), ..StackBatch::default() }
    }

    fn pids(rows: &[Arc<TaskRaw>]) -> Vec<u32> {
        rows.iter().map(|row| row.pid).collect()
    }

    #[test]
    fn ends_and_notes_of_a_sample_that_is_not_shown_are_in_the_next() {
        let mut later = sample(&[1], &[5], &["late", "same"]);
        Merger::default().merge(sample(&[1, 5], &[3, 4], &["early", "same"]), &mut later);
        assert_eq!(pids(&later.exited), [3, 4, 5]);
        assert_eq!(later.notes, ["early", "late", "same"]);
    }

    #[test]
    fn a_process_that_is_reported_again_counts_once() {
        // 3 ends a second time, with the counts of a last thread; 4 left the scope and is back.
        let mut later = sample(&[4], &[3], &[]);
        Merger::default().merge(sample(&[], &[2, 3, 4], &[]), &mut later);
        assert_eq!(pids(&later.exited), [2, 3]);
    }

    #[test]
    fn too_many_are_counted_as_lost() {
        const MANY: u32 = EXITS_KEPT as u32;
        let mut merger = Merger::default();
        let earlier: Vec<u32> = (0..MANY).collect();
        let mut later = sample(&[], &[MANY, MANY + 1, MANY + 2], &[]);
        merger.merge(sample(&[], &earlier, &[]), &mut later);
        merger.count_losses(&mut later);
        assert_eq!((later.exited.len(), later.lost[EXITS_NOT_SHOWN]), (EXITS_KEPT, 3));

        let mut together = news(0..MANY, 2);
        merger.merge_news(&mut together, news(0..5, 2));
        merger.count_lost_stacks(&mut together);
        assert_eq!((together.stacks.len(), together.lost[STACKS_NOT_SHOWN]), (STACKS_KEPT, 10));
    }

    #[test]
    fn notes_do_not_pile_up() {
        let mut merger = Merger::default();
        let mut shown = sample(&[], &[], &[]);
        for at in 0..10 * NOTES_KEPT {
            let earlier = std::mem::replace(&mut shown, sample(&[], &[], &[&at.to_string()]));
            merger.merge(earlier, &mut shown);
        }
        assert_eq!((shown.notes.len(), &*shown.notes[NOTES_KEPT - 1]), (NOTES_KEPT, "999"));
    }
}
