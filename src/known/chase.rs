//! Latency of a load: a random walk through lines of memory, each of which is loaded from memory and not from a cache.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::asm::{Cycle, LOADS};
use super::random::Random;
use crate::sys::{self, Region};

/// Loads between two looks at the clock, at least.
const SAMPLE: u64 = 1024;

/// Samples are this long or longer, where the walk is: a look at the clock takes some tens of ns.
const LEAST: Duration = Duration::from_micros(50);

/// A stretch of memory with one line of the walk in it, in bytes: prefetchers fetch neighbours of 64 and 128 bytes.
pub const STRETCH: usize = 256;

/// Memory in which lines follow each other before the walk goes on to other memory: a huge page, so that few page tables
/// are walked, and too many pages of 4 KiB for prefetchers that follow streams.
pub const GROUP: usize = 2 << 20;

/// The same where pages are small: few enough for the page tables to stay in caches.
pub const SMALL_GROUP: usize = 64 << 12;

/// Lines of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of a cache line: a power of two from 8 to 4096.
    pub line: usize,
    /// Bytes with one line of the walk in them.
    pub stretch: usize,
    /// Bytes whose lines follow each other.
    pub group: usize,
}

impl Shape {
    /// The shape for lines of so many bytes, on huge pages or on small ones.
    pub fn of(line: usize, huge: bool) -> Shape {
        Shape { line, stretch: STRETCH.max(4 * line), group: if huge { GROUP } else { SMALL_GROUP } }
    }

    /// The indices of the words of a walk through `bytes` of memory, in its order: groups in random order, in each group one
    /// line of each stretch, at a random place of it (a fixed place would use a quarter of the sets of caches), in random
    /// order. Empty where there is no room for a stretch.
    pub fn order(&self, bytes: usize, seed: u64) -> Vec<u32> {
        let mut random = Random::new(seed);
        let places = (self.stretch / self.line).max(1);
        let mut groups: Vec<usize> = (0..bytes.div_ceil(self.group)).collect();
        random.shuffle(&mut groups);
        let mut order = Vec::with_capacity(bytes / self.stretch);
        for group in groups {
            let begin = order.len();
            let (from, end) = (group * self.group, ((group + 1) * self.group).min(bytes));
            let stretches = (from..end).step_by(self.stretch).filter(|at| at + self.stretch <= end);
            order.extend(
                stretches.map(|at| ((at + random.below(places) * self.line) / size_of::<u64>()) as u32),
            );
            random.shuffle(&mut order[begin..]);
        }
        order
    }
}

/// Latency over one round of samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// Median of the samples that count, ns a load; 0 without samples.
    pub ns: f64,
    /// Samples that count.
    pub samples: u32,
    /// Samples in which another task ran on this CPU: thrown away.
    pub disturbed: u32,
}

/// Walks for about `time`, in passes of which each begins with lines that are in no cache (`flush`). One pass is made at
/// least; four times `time` is the limit, however many samples were disturbed.
pub fn measure(cycle: &mut Cycle, flush: bool, time: Duration) -> Round {
    let (begin, mut walked) = (Instant::now(), Duration::ZERO);
    let (mut times, mut disturbed, mut sample) = (Vec::new(), 0, SAMPLE);
    while walked < time && begin.elapsed() < 4 * time || times.is_empty() && begin.elapsed() < 8 * time {
        if flush && !cycle.flush() {
            break;
        }
        // A pass takes no line twice: the second time it would be in a cache.
        let mut left = cycle.length().max(sample);
        while left >= sample {
            left -= sample;
            let switches = sys::thread_events().involuntary;
            let before = Instant::now();
            cycle.walk(sample / LOADS);
            let took = before.elapsed();
            walked += took;
            if took < LEAST && 2 * sample <= cycle.length() {
                sample *= 2;
            } else if sys::thread_events().involuntary == switches {
                times.push(took.as_nanos() as f64 / sample as f64);
            } else {
                disturbed += 1;
            }
        }
    }
    times.sort_by(f64::total_cmp);
    Round { ns: times.get(times.len() / 2).copied().unwrap_or(0.0), samples: times.len() as u32, disturbed }
}

/// A walk through all of `region`, whose pages are there already. `None` where it is too small.
pub fn cycle(region: Region, shape: Shape, seed: u64) -> Option<Cycle> {
    let order = shape.order(region.bytes(), seed);
    Cycle::new(region, order)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_stretch_has_one_line_and_groups_stay_together() {
        let shape = Shape::of(64, true);
        let bytes = 4 * GROUP;
        let order = shape.order(bytes, 1);
        assert_eq!(order.len(), bytes / STRETCH);
        let stretch = |word: &u32| *word as usize * 8 / STRETCH;
        assert_eq!(order.iter().map(stretch).collect::<BTreeSet<_>>().len(), order.len());
        let groups: Vec<usize> = order.iter().map(|word| *word as usize * 8 / GROUP).collect();
        assert_eq!(groups.chunk_by(|a, b| a == b).count(), 4);
        let places: BTreeSet<usize> = order.iter().map(|word| *word as usize * 8 % STRETCH).collect();
        assert_eq!(places, [0, 64, 128, 192].into());
        let steps = order.windows(2).filter(|pair| pair[1] > pair[0] && pair[1] - pair[0] < 64).count();
        assert!(steps < order.len() / 100, "{steps} steps to a neighbour");
        assert_eq!(order, shape.order(bytes, 1));
        assert_ne!(order, shape.order(bytes, 2));
        assert!(shape.order(STRETCH - 1, 1).is_empty());
    }

    #[test]
    fn long_lines_have_longer_stretches() {
        let shape = Shape::of(256, false);
        assert_eq!((shape.stretch, shape.group), (1024, SMALL_GROUP));
        assert_eq!(shape.order(GROUP, 1).len(), GROUP / 1024);
    }

    #[test]
    fn a_flushed_walk_is_slower_than_one_in_a_cache() {
        let shape = Shape::of(64, true);
        let mut region = Region::new(GROUP).unwrap();
        region.words_mut().fill(1);
        let mut cycle = cycle(region, Shape { group: 64 << 10, ..shape }, 1).unwrap();
        let time = Duration::from_millis(5);
        let best = |flush, cycle: &mut Cycle| {
            (0..5).map(|_| measure(cycle, flush, time).ns).min_by(f64::total_cmp).unwrap()
        };
        let (flushed, cached) = (best(true, &mut cycle), best(false, &mut cycle));
        assert!(cached > 0.0 && flushed > 1.5 * cached, "{flushed} and {cached} ns");
    }
}
