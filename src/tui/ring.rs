//! A bounded ring of recent samples, from which any recent interval can be shown again.
//!
//! The newest samples stay unpacked, and older ones are packed. So a machine with a thousand busy threads has
//! minutes of history, not seconds.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;

use crate::collect::proc_fields;
use crate::model::access::MemoryUse;
use crate::model::sample::{GroupRaw, Names, PlacementRaw, Sample, TaskRaw, TaskRows};
use crate::record::pack::{Malformed, Pack, Packer, Rows, Unpacker, share};

/// Samples kept at most: ten minutes at one a second.
pub const MAX_SAMPLES: usize = 600;
/// Bytes kept at most, as estimated, beside the two samples of the newest interval.
pub const MAX_BYTES: usize = 5 << 20;
/// Bytes of samples as they came from which on the oldest are packed.
const MAX_LOOSE: usize = 1 << 20;
/// Samples that are packed at once where all are within their bytes: the next refresh does not wait for more.
const PACKED_AT_ONCE: usize = 4;
/// Tasks of a sample that is packed, at most: a keyframe of more takes tens of milliseconds.
const MAX_PACKED_TASKS: usize = 32_768;

/// Maximum samples of a pack. Where most tasks are idle, a keyframe takes as long as hundreds of samples. But
/// samples are dropped by packs, and a paused view jumps by as many.
const FULL_LEN: usize = 64;
/// Bytes beside its keyframe from which on a pack is full, including bytes that other parts keep for its
/// samples.
const FULL_BYTES: usize = 512 << 10;
/// Bytes of its keyframe that no other sample has, from which on a pack is full.
const FULL_HELD: usize = 2 << 20;

/// Bytes that the allocator and a reference count add to a row.
const PER_ROW: usize = 4 * size_of::<usize>();

/// A sample as it came, and the bytes that dropping it gives back. Parts that it shares with the one after it are that one's.
#[derive(Debug)]
struct Loose {
    sample: Arc<Sample>,
    bytes: usize,
}

/// A pack, and where it is among the samples.
#[derive(Clone, Debug)]
struct Stretch {
    /// Number of its first sample.
    first: u64,
    pack: Arc<Pack>,
    /// Bytes of parts that are not packed, and that only its samples have.
    unpacked: usize,
    /// Bytes that others kept for these when they were packed.
    conclusions: usize,
}

impl Stretch {
    fn end(&self) -> u64 {
        self.first + self.pack.len() as u64
    }

    fn bytes(&self) -> usize {
        self.pack.bytes() + self.unpacked
    }

    fn is_full(&self) -> bool {
        self.pack.len() >= FULL_LEN || self.bytes() - self.pack.key_bytes() + self.conclusions >= FULL_BYTES
    }
}

/// The times of a sample, and the bytes that other parts keep as long as the sample is kept.
#[derive(Clone, Copy, Debug)]
struct Entry {
    wall_ns: i64,
    mono_ns: u64,
    conclusions: usize,
}

/// Samples by ascending number. Rows that did not change are shared between them.
#[derive(Default)]
pub struct Ring {
    /// Number of the oldest sample kept; numbers go up by one and are never used again.
    first: u64,
    /// One for each sample.
    entries: VecDeque<Entry>,
    /// The oldest samples.
    packed: VecDeque<Stretch>,
    /// Fills the last of these.
    packer: Option<Packer>,
    /// Bytes of its keyframe that no other sample has, without lists of pointers.
    held: usize,
    /// Number of the last sample that could not be packed.
    refused: Option<u64>,
    /// The unpacked samples, after the packed ones.
    loose: VecDeque<Loose>,
    /// Bytes of all of these.
    loose_bytes: usize,
    /// Bytes that others keep for all of them.
    conclusions: usize,
}

impl Ring {
    /// Adds the newest sample. Its rows do not count: the source holds them, too.
    pub fn push(&mut self, sample: Sample) {
        if let Some(before) = self.loose.back_mut() {
            let more = last_of(&before.sample, &sample) + not_packed(&before.sample, &sample);
            before.bytes += more;
            self.loose_bytes += more;
        }
        let bytes = of_its_own(&sample);
        self.loose_bytes += bytes;
        self.entries.push_back(Entry { wall_ns: sample.wall_ns, mono_ns: sample.mono_ns, conclusions: 0 });
        self.loose.push_back(Loose { sample: Arc::new(sample), bytes });
        while self.entries.len() > MAX_SAMPLES {
            self.drop_before(self.first + 1);
        }
        // Samples of a recording that is read at full speed come in long rows.
        if self.bytes() > MAX_BYTES {
            self.tidy();
        }
    }

    /// Counts bytes that other parts keep as long as this sample is kept, replacing its earlier number.
    pub fn keep_beside(&mut self, number: u64, bytes: usize) {
        let at = number.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        if let Some(entry) = at.and_then(|at| self.entries.get_mut(at)) {
            self.conclusions = self.conclusions - entry.conclusions + bytes;
            entry.conclusions = bytes;
        }
    }

    /// Bytes that dropping all but the newest interval would give back.
    fn bytes(&self) -> usize {
        let newest: usize = self.loose.iter().rev().take(2).map(|kept| kept.bytes).sum();
        let packed: usize = self.packed.iter().map(Stretch::bytes).sum();
        packed + self.held + self.conclusions + self.loose_bytes - newest
    }

    /// Drops samples with lower numbers than this one.
    fn drop_before(&mut self, number: u64) {
        while self.first < number
            && let Some(entry) = self.entries.pop_front()
        {
            self.conclusions -= entry.conclusions;
            self.first += 1;
            if self.packed.is_empty()
                && let Some(kept) = self.loose.pop_front()
            {
                self.loose_bytes -= kept.bytes;
            }
            if self.packed.front().is_some_and(|stretch| stretch.end() <= self.first) {
                self.packed.pop_front();
            }
        }
        if self.packed.is_empty() {
            self.end_pack();
        }
    }

    /// Packs the oldest unpacked samples while they take too much, and drops samples that do not fit. To be
    /// called after the newest interval is on its way to the screen.
    pub fn tidy(&mut self) {
        let mut packed = 0;
        while packed < PACKED_AT_ONCE || self.bytes() > MAX_BYTES {
            let Some(oldest) = self.loose.front().filter(|_| self.loose.len() > 2) else { break };
            let is_small = oldest.sample.tasks.len() <= MAX_PACKED_TASKS;
            if !is_small || self.refused == Some(self.first_loose()) || self.loose_bytes <= MAX_LOOSE {
                break;
            }
            let sample = Arc::clone(&oldest.sample);
            if self.pack(&sample).is_err() {
                self.refused = Some(self.first_loose());
            }
            packed += 1;
        }
        while self.entries.len() > 2 && self.bytes() > MAX_BYTES {
            // Samples of a pack take their bytes with them when all of them go.
            self.drop_before(self.packed.front().map_or(self.first + 1, Stretch::end));
        }
    }

    /// Packs the oldest sample that is not.
    fn pack(&mut self, sample: &Sample) -> io::Result<()> {
        let is_in = match (&mut self.packer, self.packed.back_mut()) {
            (Some(packer), Some(stretch)) => packer.push(Arc::make_mut(&mut stretch.pack), sample)?,
            _ => false,
        };
        if !is_in {
            let first = self.first_loose();
            let (packer, pack) = Packer::begin(sample)?;
            self.packed.push_back(Stretch { first, pack: Arc::new(pack), unpacked: 0, conclusions: 0 });
            self.packer = Some(packer);
        }
        let conclusions = self.entries[self.entries.len() - self.loose.len()].conclusions;
        if let Some(kept) = self.loose.pop_front() {
            self.loose_bytes -= kept.bytes;
        }
        if let (Some(packer), Some(stretch), Some(after)) =
            (&self.packer, self.packed.back_mut(), self.loose.front())
        {
            stretch.unpacked += not_packed(sample, &after.sample);
            stretch.conclusions += conclusions;
            self.held = last_of(packer.key(), &after.sample);
            if stretch.is_full() || self.held >= FULL_HELD {
                self.end_pack();
            }
        }
        Ok(())
    }

    /// The next sample to be packed begins a new pack.
    fn end_pack(&mut self) {
        (self.packer, self.held) = (None, 0);
    }

    /// Drops all samples; numbering continues.
    pub fn clear(&mut self) {
        let first = self.first + self.entries.len() as u64;
        *self = Ring { first, ..Ring::default() };
    }

    /// Number of the newest sample, if any.
    pub fn newest(&self) -> Option<u64> {
        (!self.entries.is_empty()).then(|| self.first + self.entries.len() as u64 - 1)
    }

    /// Number of the oldest sample that ends a known interval; of the only sample if there is just one.
    pub fn oldest(&self) -> Option<u64> {
        self.newest().map(|newest| (self.first + 1).min(newest))
    }

    /// Number of the oldest sample that is not packed.
    fn first_loose(&self) -> u64 {
        self.first + (self.entries.len() - self.loose.len()) as u64
    }

    /// Wall clock in ns since 1970 and CLOCK_MONOTONIC in ns of all samples, the oldest first.
    pub fn times(&self) -> impl Iterator<Item = (i64, u64)> {
        self.entries.iter().map(|entry| (entry.wall_ns, entry.mono_ns))
    }

    /// The sample of this number and the one before it; `None` where it is not kept, or there was no memory to unpack it.
    pub fn pair(&self, number: u64) -> Option<(Option<Arc<Sample>>, Arc<Sample>)> {
        if number < self.first {
            return None;
        }
        let before = number.checked_sub(1).filter(|before| *before >= self.first);
        let mut samples = self.samples(before.unwrap_or(number), Rows::All);
        match before {
            Some(_) => Some((Some(samples.next()?), samples.next()?)),
            None => Some((None, samples.next()?)),
        }
    }

    /// Samples from this number on, or from the oldest that is kept.
    pub fn samples(&self, from: u64, rows: Rows) -> Samples {
        let next = from.max(self.first);
        let loose = usize::try_from(next.saturating_sub(self.first_loose())).unwrap_or(usize::MAX);
        Samples {
            rows,
            next,
            packed: self.packed.iter().filter(|stretch| stretch.end() > next).cloned().collect(),
            loose: self.loose.iter().skip(loose).map(|kept| Arc::clone(&kept.sample)).collect(),
            opened: None,
            last: None,
        }
    }

    /// All samples.
    pub fn all(&self, rows: Rows) -> Samples {
        self.samples(self.first, rows)
    }
}

/// Samples in their order, one unpacked at a time. They end early when memory runs out.
pub struct Samples {
    rows: Rows,
    next: u64,
    packed: VecDeque<Stretch>,
    loose: VecDeque<Arc<Sample>>,
    /// Of the first of `packed`.
    opened: Option<Unpacker>,
    /// Rows of the previous sample, once one was unpacked.
    last: Option<TaskRows>,
}

impl Samples {
    fn unpack(&mut self, number: u64) -> Result<Option<Sample>, Malformed> {
        while self.packed.front().is_some_and(|stretch| stretch.end() <= number) {
            self.packed.pop_front();
            self.opened = None;
        }
        let Some(stretch) = self.packed.front() else { return Ok(None) };
        let opened = match self.opened.take() {
            Some(opened) => self.opened.insert(opened),
            None => self.opened.insert(Unpacker::open(&stretch.pack, self.rows)?),
        };
        opened.sample(&stretch.pack, (number - stretch.first) as usize).map(Some)
    }
}

impl Iterator for Samples {
    type Item = Arc<Sample>;

    fn next(&mut self) -> Option<Arc<Sample>> {
        let mut sample = match self.unpack(self.next) {
            Err(_) => {
                // Numbers would be wrong after it.
                (self.packed, self.loose) = Default::default();
                return None;
            }
            Ok(Some(sample)) => sample,
            // Rows that were unpacked are not those of the sample that was packed.
            Ok(None) => match (self.loose.pop_front()?, &self.last) {
                (sample, None) => return Some(sample),
                (sample, Some(_)) => Sample::clone(&sample),
            },
        };
        self.next += 1;
        if let Some(last) = &self.last {
            share(last, &mut sample.tasks);
        }
        self.last = Some(sample.tasks.clone());
        Some(Arc::new(sample))
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

/// Bytes that are in `sample` but not in the one `after` it. Dropping `sample` frees them, because parts
/// shared with earlier samples went with those. Lists of tasks are sorted by serial.
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
    let names = if Arc::ptr_eq(&sample.names, &after.names) { 0 } else { name_bytes(&sample.names) };
    rows + groups + placement + names
}

/// The same for parts that are not packed.
fn not_packed(sample: &Sample, after: &Sample) -> usize {
    let later = after.memory_use.as_ref();
    let memory_use = match &sample.memory_use {
        Some(uses) if !later.is_some_and(|later| Arc::ptr_eq(uses, later)) => {
            let none = BTreeMap::new();
            let later = later.map_or(&none, |later| &later.processes);
            uses.processes.len() * PER_ENTRY + gone(&uses.processes, later, MemoryUse::heap_bytes)
        }
        _ => 0,
    };
    memory_use + proc_fields::own_bytes(&sample.about, Some(&after.about))
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
        + size_of_val(&counts.by_place[..])
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

    fn push(ring: &mut Ring, sample: Sample) {
        ring.push(sample);
        ring.tidy();
    }

    fn of(tasks: &[Arc<TaskRaw>]) -> Sample {
        Sample { tasks: tasks.to_vec().into(), ..sample(&[], &[], &[]) }
    }

    #[test]
    fn rows_of_a_burst_that_is_over_are_not_kept() {
        let mut ring = Ring::default();
        let (some, burst) = (rows(1..50), rows(50..50 + BURST));
        let all: Vec<Arc<TaskRaw>> = some.iter().chain(&burst).cloned().collect();
        push(&mut ring, of(&some));
        // The samples after the first share its rows: they keep them, whatever becomes of the first.
        (0..5).for_each(|_| push(&mut ring, of(&all)));
        let watched = Arc::downgrade(&burst[0]);
        drop((all, burst));
        push(&mut ring, of(&some));
        assert!(watched.upgrade().is_some(), "the two samples of the newest interval stay");
        push(&mut ring, of(&some));
        assert!(watched.upgrade().is_none());
        assert!(ring.bytes() < MAX_BYTES / 8, "{} bytes", ring.bytes());
        (0..100).for_each(|_| push(&mut ring, of(&some)));
        assert_eq!(ring.entries.len(), 108, "and yet the burst can be gone back to");
    }

    /// Rows with an unpredictable number.
    fn random_rows(random: &mut u64, count: u64) -> Vec<Arc<TaskRaw>> {
        let row = |serial| {
            *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            Arc::new(TaskRaw { serial, rss_bytes: *random, ..TaskRaw::default() })
        };
        (0..count).map(row).collect()
    }

    #[test]
    fn rows_that_rest_are_the_same_in_both_samples_of_an_interval() {
        let (mut ring, mut random) = (Ring::default(), 1);
        let resting = rows(1000..1010);
        for _ in 0..500 {
            let tasks: Vec<_> = random_rows(&mut random, 400).into_iter().chain(resting.clone()).collect();
            push(&mut ring, of(&tasks));
        }
        assert!(ring.packed.len() > 3 && ring.packer.is_some() && ring.loose.len() > 2);
        let shared = |previous: &Sample, sample: &Sample| {
            let is_same = |(row, before): &(&Arc<TaskRaw>, &Arc<TaskRaw>)| Arc::ptr_eq(row, before);
            sample.tasks.iter().zip(&previous.tasks).filter(is_same).count()
        };
        for number in (1..500).step_by(3) {
            let (previous, sample) = ring.pair(number).unwrap();
            assert_eq!(shared(&previous.unwrap(), &sample), 10, "{number}");
        }
        let all: Vec<_> = ring.all(Rows::All).collect();
        assert_eq!(all.len(), 500);
        assert!(all.windows(2).all(|pair| shared(&pair[0], &pair[1]) == 10));
    }

    #[test]
    fn packing_goes_on_where_it_left_off() {
        let (mut ring, mut random) = (Ring::default(), 1);
        let mut push_rows = |ring: &mut Ring, count| ring.push(of(&random_rows(&mut random, count)));
        (0..100).for_each(|_| push_rows(&mut ring, 50));
        assert!(ring.loose_bytes > 2 * MAX_LOOSE && ring.loose.len() == 100);
        ring.tidy();
        assert_eq!(ring.loose.len(), 100 - PACKED_AT_ONCE, "the next refresh does not wait for all");
        (0..100).for_each(|_| ring.tidy());
        assert!(ring.loose_bytes <= MAX_LOOSE && ring.entries.len() == 100);
        // Samples of a large machine are kept as they come.
        push_rows(&mut ring, MAX_PACKED_TASKS as u64 + 1);
        (0..2).for_each(|_| push_rows(&mut ring, 10));
        (0..100).for_each(|_| ring.tidy());
        assert_eq!((ring.loose.len(), ring.entries.len()), (2, 2));
    }

    #[test]
    fn samples_that_come_in_a_row_are_packed_before_any_is_dropped() {
        let (mut ring, mut random) = (Ring::default(), 1);
        for _ in 0..MAX_SAMPLES {
            ring.push(of(&random_rows(&mut random, 900)));
            assert!(ring.bytes() <= MAX_BYTES, "{} bytes", ring.bytes());
        }
        // Each sample takes half a megabyte before it is packed: ten would fit.
        assert!(ring.entries.len() > 300, "{}", ring.entries.len());
    }

    #[test]
    fn what_others_keep_makes_packs_shorter() {
        let (mut ring, mut random) = (Ring::default(), 1);
        let mut least = MAX_SAMPLES;
        for number in 0..300 {
            ring.push(of(&random_rows(&mut random, 400)));
            ring.keep_beside(number, 40 << 10);
            ring.tidy();
            least = if number < 200 { MAX_SAMPLES } else { least.min(ring.entries.len()) };
        }
        assert!(least > 70, "{least}: one pack at a time goes");
    }

    #[test]
    fn it_is_bounded_by_bytes_where_all_rows_change() {
        let (mut ring, mut random) = (Ring::default(), 1);
        let mut sample_of_random_rows = |count| of(&random_rows(&mut random, count));
        for _ in 0..500 {
            push(&mut ring, sample_of_random_rows(2000));
            assert!(ring.bytes() <= MAX_BYTES && ring.loose.len() <= 3, "{} bytes", ring.bytes());
        }
        // Eight bytes of each row say something new: 16 kB of each sample.
        let oldest = ring.oldest().unwrap();
        assert!((150..350).contains(&oldest), "{oldest}");
        assert!(is_there_in(&ring, oldest) && !is_there_in(&ring, oldest - 1));
        assert!(ring.pair(oldest - 1).is_some() && ring.pair(oldest - 2).is_none());
        assert!(ring.pair(499).is_some() && ring.pair(500).is_none());
        // A sample larger than the limit is kept as long as it is one of the newest two.
        push(&mut ring, sample_of_random_rows(100_000));
        push(&mut ring, sample_of_random_rows(100_000));
        assert!(ring.loose_bytes > MAX_BYTES && is_there_in(&ring, 501));
        (0..2).for_each(|_| push(&mut ring, sample_of_random_rows(10)));
        assert!(ring.bytes() <= MAX_BYTES && ring.loose.len() <= 3, "{} bytes", ring.bytes());
    }

    fn is_there_in(ring: &Ring, number: u64) -> bool {
        ring.pair(number).is_some_and(|(previous, _)| previous.is_some())
    }

    #[test]
    fn rows_that_the_newest_sample_has_take_no_room() {
        let mut ring = Ring::default();
        let many = rows(1..BURST);
        (0..20).for_each(|_| push(&mut ring, of(&many)));
        // Only the lists of pointers are their own.
        assert_eq!(ring.entries.len(), 20);
        assert!(ring.bytes() < 20 * (BURST as usize + 1_000) * size_of::<usize>(), "{} bytes", ring.bytes());
    }

    #[test]
    fn what_others_keep_beside_a_sample_has_its_part() {
        let mut ring = Ring::default();
        let some = rows(1..5);
        for number in 0..30 {
            push(&mut ring, of(&some));
            // The second one takes the place of the first.
            ring.keep_beside(number, 1 << 20);
            ring.keep_beside(number, 1 << 20);
            ring.tidy();
        }
        assert_eq!(ring.entries.len(), 4);
        assert_eq!(ring.newest(), Some(29));
        ring.keep_beside(2, 1 << 20);
        assert!(ring.bytes() <= MAX_BYTES);
        ring.clear();
        assert_eq!(ring.bytes(), 0);
    }
}
