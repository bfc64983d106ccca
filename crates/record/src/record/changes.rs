//! The rows that have changed of late: what a frame between keyframes holds. Pure.
//!
//! Rows that changed since the previous sample would be the least to write, but then one damaged frame would
//! spoil all later ones. Rows that changed since the keyframe can always be read, but are twice as many. Rows
//! of the last few samples can be read unless that many frames in a row are damaged.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::sample::{Sample, TaskRaw, TaskRows};

/// Samples that a frame looks back at least, so that it can be read where one less of those before it are damaged. Readers
/// of all versions rely on it.
pub const REACH: u32 = 4;
/// One sample in this many looks back further: if four frames in a row are damaged, one of the next ones is
/// such a sample.
pub const FAR_EVERY: u32 = 5;
pub const FAR: u32 = 4 + FAR_EVERY;

/// Changes up to a sample since its keyframe.
#[derive(Default)]
pub struct Changes {
    tick: u32,
    /// Rows of the sample.
    tasks: TaskRows,
    /// Serial → when the row last changed or came, and when it went.
    changed: BTreeMap<u64, u32>,
    gone: BTreeMap<u64, u32>,
}

impl Changes {
    /// None yet: the sample is a keyframe.
    pub fn since(key: &Sample) -> Changes {
        Changes { tasks: key.tasks.clone(), ..Changes::default() }
    }

    /// With those of the next sample. `None` if rows are not in the order of their serials.
    pub fn after(&self, sample: &Sample) -> Option<Changes> {
        let sorted = |tasks: &[Arc<TaskRaw>]| tasks.windows(2).all(|pair| pair[0].serial < pair[1].serial);
        if !sorted(&self.tasks) || !sorted(&sample.tasks) {
            return None;
        }
        let tick = self.tick + 1;
        let mut next = Changes {
            tick,
            tasks: sample.tasks.clone(),
            changed: self.changed.clone(),
            gone: self.gone.clone(),
        };
        let mut before = self.tasks.iter().peekable();
        for task in &sample.tasks {
            // Most are shared: the pointers tell it without a look at the rows.
            if before.next_if(|old| Arc::ptr_eq(old, task)).is_some() {
                continue;
            }
            while let Some(old) = before.next_if(|old| old.serial < task.serial) {
                next.went(old.serial);
            }
            match before.next_if(|old| old.serial == task.serial) {
                Some(old) if Arc::ptr_eq(old, task) || old == task => {}
                _ => {
                    next.changed.insert(task.serial, tick);
                    next.gone.remove(&task.serial);
                }
            }
        }
        before.for_each(|old| next.went(old.serial));
        Some(next)
    }

    fn went(&mut self, serial: u64) {
        self.gone.insert(serial, self.tick);
        self.changed.remove(&serial);
    }

    /// Samples since the keyframe.
    pub fn tick(&self) -> u32 {
        self.tick
    }

    /// Changes of the last `reach` samples: a frame of them is read on top of any sample that is no further back.
    pub fn of_the_last(&self, reach: u32) -> Recent<'_> {
        Recent { changes: self, reach: reach.min(self.tick) }
    }
}

/// Changes in the last few samples.
#[derive(Clone, Copy)]
pub struct Recent<'a> {
    changes: &'a Changes,
    reach: u32,
}

impl Recent<'_> {
    /// Samples since the keyframe.
    pub fn tick(&self) -> u32 {
        self.changes.tick
    }

    /// The number of samples back that one may be which this one is read on top of.
    pub fn reach(&self) -> u32 {
        self.reach
    }

    fn is_recent(&self, at: u32) -> bool {
        at + self.reach > self.changes.tick
    }

    /// Serials in one of the samples within reach that have ended since; ascending.
    pub fn gone(&self) -> impl Iterator<Item = u64> {
        self.changes.gone.iter().filter(|(_, at)| self.is_recent(**at)).map(|(serial, _)| *serial)
    }

    /// The rows of `sample` that differ from those in one of the samples within reach; by serial.
    pub fn rows<'a>(&self, sample: &'a Sample) -> impl Iterator<Item = &'a TaskRaw> {
        let recent = self.changes.changed.iter().filter(|(_, at)| self.is_recent(**at));
        let mut changed = recent.map(|(serial, _)| *serial).peekable();
        sample.tasks.iter().filter_map(move |task| {
            while changed.next_if(|serial| *serial < task.serial).is_some() {}
            changed.next_if(|serial| *serial == task.serial).map(|_| &**task)
        })
    }
}
