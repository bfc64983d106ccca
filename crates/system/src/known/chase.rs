//! Latency of a load: a random walk through lines of memory, each loaded from memory and not from a cache.

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

/// Memory in which lines follow each other before the walk moves to other memory. It is a huge page, so few
/// page tables are walked, and has too many pages of 4 KiB for prefetchers that follow streams.
pub const GROUP: usize = 2 << 20;

/// The same where pages are small: few enough for the page tables to stay in caches.
pub const SMALL_GROUP: usize = 64 << 12;

/// Orders in which a walk visits its lines, one after the other, where a prefetcher may learn an order. Each
/// order has its own word of each line (multichase, `-L`).
pub const ORDERS: usize = 8;

/// Lines of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of a cache line: a power of two from 8 to 4096.
    pub line: usize,
    /// Bytes with one line of the walk in them.
    pub stretch: usize,
    /// Bytes whose lines follow each other.
    pub group: usize,
    /// Orders that follow each other, from 1 to the words of a line.
    pub orders: usize,
}

impl Shape {
    /// The shape for lines of `line` bytes, on huge pages or on small ones.
    pub fn of(line: usize, huge: bool) -> Shape {
        let group = if huge { GROUP } else { SMALL_GROUP };
        Shape { line, stretch: STRETCH.max(4 * line), group, orders: 1 }
    }

    /// Lines of a walk through `bytes` of memory.
    pub fn lines(&self, bytes: usize) -> usize {
        let (whole, rest) = (bytes / self.group, bytes % self.group);
        whole * (self.group / self.stretch) + rest / self.stretch
    }

    /// Bytes of memory whose lines take up `bytes` of a cache: one line of each stretch does.
    pub fn memory_for(&self, bytes: u64) -> u64 {
        bytes.saturating_mul((self.stretch / self.line).max(1) as u64)
    }

    /// The indices of the words of a walk through `bytes` of memory, in its order. Groups come in random
    /// order, and in each group one line of each stretch, in random order. A line is at a random place of its
    /// stretch: a fixed place would use only a quarter of the sets of caches. Each further order has the same
    /// lines, and the next word of each. Empty if no stretch fits.
    pub fn order(&self, bytes: usize, seed: u64) -> Vec<u32> {
        let mut random = Random::new(seed);
        let places = (self.stretch / self.line).max(1);
        let mut groups: Vec<Vec<u32>> = (0..bytes.div_ceil(self.group))
            .map(|group| {
                let (from, end) = (group * self.group, ((group + 1) * self.group).min(bytes));
                let stretches = (from..end).step_by(self.stretch).filter(|at| at + self.stretch <= end);
                stretches
                    .map(|at| ((at + random.below(places) * self.line) / size_of::<u64>()) as u32)
                    .collect()
            })
            .collect();
        let orders = self.orders.clamp(1, (self.line / size_of::<u64>()).max(1)) as u32;
        let mut words = Vec::with_capacity(bytes / self.stretch * orders as usize);
        for order in 0..orders {
            random.shuffle(&mut groups);
            for group in &mut groups {
                random.shuffle(group);
                words.extend(group.iter().map(|word| word + order));
            }
        }
        words
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

/// Walks for about `time`, in passes that each begin with uncached lines (`flush`). At least one pass is
/// made; the limit is four times `time`, however many samples were disturbed.
pub fn measure(cycle: &mut Cycle, flush: bool, time: Duration) -> Round {
    let begin = Instant::now();
    let mut samples = Samples { times: Vec::new(), disturbed: 0, length: SAMPLE, walked: Duration::ZERO };
    loop {
        if flush && !cycle.flush() {
            break;
        }
        samples.pass(cycle);
        let (spent, without) = (begin.elapsed(), samples.times.is_empty());
        if !without && (samples.walked >= time || spent >= 4 * time) || spent >= 8 * time {
            break;
        }
    }
    let Samples { mut times, disturbed, .. } = samples;
    times.sort_by(f64::total_cmp);
    Round { ns: times.get(times.len() / 2).copied().unwrap_or(0.0), samples: times.len() as u32, disturbed }
}

struct Samples {
    /// ns a load.
    times: Vec<f64>,
    disturbed: u32,
    /// Loads of the next one.
    length: u64,
    walked: Duration,
}

impl Samples {
    /// A pass takes no line twice: the second time it would be in a cache.
    fn pass(&mut self, cycle: &mut Cycle) {
        let mut left = cycle.lines().max(self.length);
        while left >= self.length {
            let loads = self.length;
            left -= loads;
            let (took, alone) = timed(cycle, loads);
            self.walked += took;
            if took < LEAST && 2 * loads <= cycle.lines() {
                self.length *= 2;
            } else if alone {
                self.times.push(took.as_nanos() as f64 / loads as f64);
            } else {
                self.disturbed += 1;
            }
        }
    }
}

/// Walks `loads` loads: the time, and whether no other task ran on this CPU during it.
fn timed(cycle: &mut Cycle, loads: u64) -> (Duration, bool) {
    let switches = sys::thread_events().involuntary;
    let before = Instant::now();
    cycle.walk(loads / LOADS);
    (before.elapsed(), sys::thread_events().involuntary == switches)
}

/// Latency of each group of a walk whose groups have `loads` lines each: the least of `passes` passes, ns a
/// load, in arbitrary order. Groups in which another task ran each time are left out.
pub fn each_group(cycle: &mut Cycle, loads: u64, passes: u32) -> Vec<f64> {
    let groups = cycle.lines().checked_div(loads).unwrap_or(0) as usize;
    let mut least = vec![f64::INFINITY; groups];
    for _ in 0..passes {
        if !cycle.flush() {
            break;
        }
        for least in &mut least {
            let (took, alone) = timed(cycle, loads);
            if alone {
                *least = least.min(took.as_nanos() as f64 / loads as f64);
            }
        }
    }
    least.retain(|ns| ns.is_finite());
    least
}

/// A walk through all of `region`, whose pages are already present. `None` if it is too small.
pub fn cycle(region: Region, shape: Shape, seed: u64) -> Option<Cycle> {
    let lines = shape.lines(region.bytes());
    let order = shape.order(region.bytes(), seed);
    Cycle::new(region, order, lines)
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
    fn orders_that_follow_each_other_have_the_same_lines_and_words_of_their_own() {
        let shape = Shape { orders: ORDERS, ..Shape::of(64, true) };
        let bytes = GROUP + GROUP / 2;
        let order = shape.order(bytes, 3);
        assert_eq!((order.len(), shape.lines(bytes)), (ORDERS * bytes / STRETCH, bytes / STRETCH));
        assert_eq!(order.iter().collect::<BTreeSet<_>>().len(), order.len(), "no word is come to twice");
        let lines = |order: &[u32]| order.iter().map(|word| word / 8).collect::<Vec<_>>();
        let passes: Vec<Vec<u32>> = order.chunks(bytes / STRETCH).map(lines).collect();
        let sorted = |pass: &Vec<u32>| pass.iter().copied().collect::<BTreeSet<_>>();
        assert!(passes.iter().all(|pass| sorted(pass) == sorted(&passes[0])));
        assert!(passes.windows(2).all(|two| two[0] != two[1]));
        assert_eq!(shape.memory_for(1 << 20), 4 << 20, "a line of each four");
    }

    #[test]
    fn one_pass_is_made_however_short_the_time_is() {
        let mut cycle = cycle(Region::new(GROUP).unwrap(), Shape::of(64, true), 1).unwrap();
        assert_eq!(cycle.lines(), (GROUP / STRETCH) as u64);
        // A pass is a hundred looks at the clock: another task may run in some of them, and not in all.
        let found = (0..200).any(|_| measure(&mut cycle, true, Duration::from_nanos(1)).samples > 0);
        assert!(found);
    }

    #[test]
    fn each_group_has_a_latency() {
        let mut cycle = cycle(Region::new(4 * GROUP).unwrap(), Shape::of(64, true), 1).unwrap();
        let loads = (GROUP / STRETCH) as u64;
        let found = (0..50).map(|_| each_group(&mut cycle, loads, 3)).find(|ns| ns.len() == 4);
        assert!(found.unwrap().iter().all(|ns| (0.5..1e5).contains(ns)));
        assert_eq!(each_group(&mut cycle, 0, 1), [0.0; 0]);
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
