//! A bounded ring of recent samples, from which any recent interval can be shown again.

use std::collections::VecDeque;
use std::mem::size_of;
use std::sync::Arc;

use crate::collect::proc_fields;
use crate::model::sample::{Sample, TaskRaw};

/// Samples kept at most: ten minutes at one a second.
pub const MAX_SAMPLES: usize = 600;
/// Bytes kept at most, as estimated; the two samples of the newest interval stay whatever they take.
pub const MAX_BYTES: usize = 8 << 20;

/// Samples by ascending number. Rows that did not change are shared between them.
#[derive(Debug, Default)]
pub struct Ring {
    samples: VecDeque<(Sample, usize)>,
    /// Number of the oldest sample kept; numbers go up by one and are never used again.
    first: u64,
    bytes: usize,
}

impl Ring {
    /// Adds the newest sample and drops the oldest that there is no room for.
    pub fn push(&mut self, sample: Sample) {
        let bytes = estimate(&sample, self.samples.back().map(|(sample, _)| sample));
        self.bytes += bytes;
        self.samples.push_back((sample, bytes));
        while self.samples.len() > MAX_SAMPLES || (self.bytes > MAX_BYTES && self.samples.len() > 2) {
            if let Some((_, bytes)) = self.samples.pop_front() {
                self.bytes -= bytes;
                self.first += 1;
            }
        }
    }

    /// Drops all samples; the numbers of those that follow go on.
    pub fn clear(&mut self) {
        self.first += self.samples.len() as u64;
        self.samples.clear();
        self.bytes = 0;
    }

    /// Number of the newest sample, if there is one.
    pub fn newest(&self) -> Option<u64> {
        (!self.samples.is_empty()).then(|| self.first + self.samples.len() as u64 - 1)
    }

    /// Number of the oldest sample that ends an interval still known; of the only sample when there is one.
    pub fn oldest(&self) -> Option<u64> {
        self.newest().map(|newest| (self.first + 1).min(newest))
    }

    /// All samples, the oldest first.
    pub fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.samples.iter().map(|(sample, _)| sample)
    }

    /// The sample of this number and the one before it.
    pub fn pair(&self, number: u64) -> Option<(Option<&Sample>, &Sample)> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let current = &self.samples.get(at)?.0;
        let previous = at.checked_sub(1).map(|before| &self.samples[before].0);
        Some((previous, current))
    }
}

/// Bytes that `sample` holds alone: its list, and the rows and texts that it does not share with the one before.
/// Both lists are sorted by serial.
fn estimate(sample: &Sample, before: Option<&Sample>) -> usize {
    let mut old = before.map_or(&[][..], |before| &before.tasks).iter().peekable();
    let mut shared = 0;
    for task in &sample.tasks {
        // Most are shared: the pointers tell it without a look at the rows.
        if old.next_if(|old| Arc::ptr_eq(old, task)).is_some() {
            shared += 1;
            continue;
        }
        while old.next_if(|old| old.serial < task.serial).is_some() {}
        shared += usize::from(old.peek().is_some_and(|old| Arc::ptr_eq(old, task)));
    }
    let own = sample.tasks.len() - shared + sample.exited.len();
    let node_times = sample.tasks.first().map_or(0, |task| task.counts.run_ns.len() * size_of::<u64>());
    own * (size_of::<TaskRaw>() + node_times + 2 * size_of::<usize>())
        + (sample.tasks.len() + sample.exited.len()) * size_of::<usize>()
        + size_of::<Sample>()
        + std::mem::size_of_val(&sample.cpus[..])
        + std::mem::size_of_val(&sample.nodes[..])
        + proc_fields::own_bytes(&sample.about, before.map(|before| &before.about))
}
