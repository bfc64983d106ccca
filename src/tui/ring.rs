//! A bounded ring of recent samples, from which any recent interval can be shown again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::collect::proc_fields;
use crate::model::access::MemoryUse;
use crate::model::sample::{GroupRaw, Names, PlacementRaw, Sample, TaskRaw};

/// Samples kept at most: ten minutes at one a second.
pub const MAX_SAMPLES: usize = 600;
/// Bytes kept at most, as estimated; the two samples of the newest interval stay whatever they take.
pub const MAX_BYTES: usize = 8 << 20;

/// Bytes that the allocator and a reference count add to a row.
const PER_ROW: usize = 4 * size_of::<usize>();

/// A sample, and the bytes that dropping it gives back. Parts that it shares with the one after it are that one's.
#[derive(Debug)]
struct Kept {
    sample: Sample,
    bytes: usize,
    /// Bytes that others keep for it.
    beside: usize,
}

/// Samples by ascending number. Rows that did not change are shared between them.
#[derive(Debug, Default)]
pub struct Ring {
    samples: VecDeque<Kept>,
    /// Number of the oldest sample kept; numbers go up by one and are never used again.
    first: u64,
    bytes: usize,
}

impl Ring {
    /// Adds the newest sample and drops the oldest that there is no room for. Rows of the newest sample do not count: the
    /// source has them, too.
    pub fn push(&mut self, sample: Sample) {
        if let Some(before) = self.samples.back_mut() {
            let more = last_of(&before.sample, &sample);
            before.bytes += more;
            self.bytes += more;
        }
        let bytes = of_its_own(&sample);
        self.bytes += bytes;
        self.samples.push_back(Kept { sample, bytes, beside: 0 });
        self.fit();
    }

    /// Counts bytes that others keep as long as this sample is kept, in place of those that were counted for it before.
    pub fn keep_beside(&mut self, number: u64, bytes: usize) {
        let at = number.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        if let Some(kept) = at.and_then(|at| self.samples.get_mut(at)) {
            self.bytes = self.bytes - kept.beside + bytes;
            kept.beside = bytes;
            self.fit();
        }
    }

    /// Drops the oldest samples that there is no room for.
    fn fit(&mut self) {
        while self.samples.len() > MAX_SAMPLES || (self.bytes > MAX_BYTES && self.samples.len() > 2) {
            if let Some(kept) = self.samples.pop_front() {
                self.bytes -= kept.bytes + kept.beside;
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
        self.samples.iter().map(|kept| &kept.sample)
    }

    /// The sample of this number and the one before it.
    pub fn pair(&self, number: u64) -> Option<(Option<&Sample>, &Sample)> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let current = &self.samples.get(at)?.sample;
        let previous = at.checked_sub(1).map(|before| &self.samples[before].sample);
        Some((previous, current))
    }
}

/// Bytes of a sample that no other one shares: its lists, and the rows of processes that ended.
fn of_its_own(sample: &Sample) -> usize {
    let exited: usize = sample.exited.iter().map(|task| row_bytes(task)).sum();
    exited
        + (sample.tasks.len() + sample.exited.len()) * size_of::<usize>()
        + size_of::<Sample>()
        + size_of_val(&sample.cpus[..])
        + size_of_val(&sample.nodes[..])
        + size_of_val(&sample.flows[..])
        + size_of_val(&sample.page_flows[..])
        + (sample.groups.len() + sample.lost.len()) * PER_ENTRY
}

/// Bytes that are in `sample` and not in the one `after` it any more: dropping `sample` gives them back, because what is
/// shared with samples before it went with those. Lists of tasks are sorted by serial.
fn last_of(sample: &Sample, after: &Sample) -> usize {
    let mut rows = 0;
    let mut new = after.tasks.iter().peekable();
    for task in &sample.tasks {
        // Most are shared: the pointers tell it without a look at the rows.
        if new.next_if(|new| Arc::ptr_eq(new, task)).is_some() {
            continue;
        }
        while new.next_if(|new| new.serial < task.serial).is_some() {}
        if new.next_if(|new| Arc::ptr_eq(new, task)).is_none() {
            rows += row_bytes(task);
        }
    }
    let groups = gone(&sample.groups, &after.groups, |_| GROUP_BYTES);
    let mut placement = 0;
    if !Arc::ptr_eq(&sample.placement, &after.placement) {
        let looks = gone(&sample.placement, &after.placement, |_| PLACEMENT_BYTES);
        placement = sample.placement.len() * PER_ENTRY + looks;
    }
    let later = after.memory_use.as_ref();
    let memory_use = match &sample.memory_use {
        Some(uses) if !later.is_some_and(|later| Arc::ptr_eq(uses, later)) => {
            let none = BTreeMap::new();
            let later = later.map_or(&none, |later| &later.processes);
            uses.processes.len() * PER_ENTRY + gone(&uses.processes, later, MemoryUse::heap_bytes)
        }
        _ => 0,
    };
    let names = if Arc::ptr_eq(&sample.names, &after.names) { 0 } else { name_bytes(&sample.names) };
    rows + groups + placement + memory_use + names + proc_fields::own_bytes(&sample.about, Some(&after.about))
}

/// Bytes of an entry of a map: a key, a pointer, and the empty part of its node.
const PER_ENTRY: usize = 4 * size_of::<usize>();

/// Bytes of the limits of a cgroup, and of a look at the memory of a process, with their texts and lists.
const GROUP_BYTES: usize = size_of::<GroupRaw>() + 256;
const PLACEMENT_BYTES: usize = size_of::<PlacementRaw>() + 128;

/// Bytes of the values of a map that another map does not share.
fn gone<K: Ord, V>(
    map: &BTreeMap<K, Arc<V>>,
    after: &BTreeMap<K, Arc<V>>,
    bytes: impl Fn(&V) -> usize,
) -> usize {
    let is_gone =
        |(key, value): &(&K, &Arc<V>)| !after.get(*key).is_some_and(|after| Arc::ptr_eq(after, value));
    map.iter().filter(is_gone).map(|(_, value)| bytes(value)).sum()
}

fn row_bytes(task: &TaskRaw) -> usize {
    let counts = &task.counts;
    size_of::<TaskRaw>()
        + size_of_val(&counts.run_ns[..])
        + size_of_val(&counts.pages[..])
        + size_of_val(&counts.by_node[..])
        + counts.slots.heap_bytes()
        + PER_ROW
}

fn name_bytes(names: &Names) -> usize {
    let texts: usize =
        names.users.values().chain(names.cgroups.values()).map(|text| text.len() + 2 * PER_ENTRY).sum();
    texts + names.groups.len() * PER_ENTRY
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::sample::Counts;
    use crate::source::merge::tests::sample;

    const BURST: u64 = 20_000;

    fn rows(serials: std::ops::Range<u64>) -> Vec<Arc<TaskRaw>> {
        let row = |serial| {
            let counts = Counts { run_ns: vec![1], ..Counts::default() };
            Arc::new(TaskRaw { serial, counts, ..TaskRaw::default() })
        };
        serials.map(row).collect()
    }

    fn of(tasks: &[Arc<TaskRaw>]) -> Sample {
        Sample { tasks: tasks.to_vec().into(), ..sample(&[], &[], &[]) }
    }

    #[test]
    fn rows_of_a_burst_that_is_over_are_not_kept() {
        let mut ring = Ring::default();
        let (some, burst) = (rows(1..50), rows(50..50 + BURST));
        let all: Vec<Arc<TaskRaw>> = some.iter().chain(&burst).cloned().collect();
        ring.push(of(&some));
        // The samples after the first share its rows: they keep them, whatever becomes of the first.
        (0..5).for_each(|_| ring.push(of(&all)));
        let watched = Arc::downgrade(&burst[0]);
        drop((all, burst));
        ring.push(of(&some));
        assert!(watched.upgrade().is_some(), "the two samples of the newest interval stay");
        ring.push(of(&some));
        assert!(watched.upgrade().is_none());
        assert!(ring.bytes < MAX_BYTES / 8, "{} bytes", ring.bytes);
        (0..100).for_each(|_| ring.push(of(&some)));
        assert_eq!(ring.samples.len(), 102);
    }

    #[test]
    fn rows_that_the_newest_sample_has_take_no_room() {
        let mut ring = Ring::default();
        let many = rows(1..BURST);
        (0..20).for_each(|_| ring.push(of(&many)));
        // Only the lists of pointers are their own.
        assert_eq!(ring.samples.len(), 20);
        assert!(ring.bytes < 20 * (BURST as usize + 1_000) * size_of::<usize>(), "{} bytes", ring.bytes);
    }

    #[test]
    fn what_others_keep_beside_a_sample_has_its_part() {
        let mut ring = Ring::default();
        let some = rows(1..5);
        for number in 0..30 {
            ring.push(of(&some));
            // The second one takes the place of the first.
            ring.keep_beside(number, 1 << 20);
            ring.keep_beside(number, 1 << 20);
        }
        assert_eq!(ring.samples.len(), 7);
        assert_eq!(ring.newest(), Some(29));
        ring.keep_beside(2, 1 << 20);
        assert!(ring.bytes <= MAX_BYTES);
        ring.clear();
        assert_eq!(ring.bytes, 0);
    }
}
