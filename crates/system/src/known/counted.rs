//! Loads whose counts are known by construction: branches, misses, page walks, lines from other caches.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use serde::{Deserialize, Serialize};

use super::asm::{self, Calls, Cycle, Far, LOADS, Work};
use super::chase::{self, GROUP, SMALL_GROUP, Shape};
use super::random::Random;
use crate::sys::{self, Mirror, Region};

/// Pages of [`Load::Pages`]: every eighth of 4 GiB of addresses, so that entries of a TLB that cover 4 or 8 neighbours do not
/// help. It keeps 4,096 of them at most.
const FAR_PAGES: u32 = 131_072;

/// Bytes of the loads that stay in caches: a quarter of the smallest L2 of a server, and pages that one huge page holds.
const IN_CACHE: usize = 128 << 10;
const ONE_PAGE: usize = 1 << 20;

/// Functions of [`Load::FarCalls`], and the bytes of a page with which they take too much memory.
const FAR_CALLS: usize = 8192;
const LARGE_PAGE: usize = 8192;

/// Lines that another core writes before each pass of [`Load::Written`].
const WRITTEN: usize = 4096;

/// Orders of walks are the same in every run.
const SEED: u64 = 22;

/// A load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Load {
    /// A subtraction and a jump: two instructions a round.
    Loop,
    /// 64 dependent additions, and a loop.
    Additions,
    /// A jump on a bit that no predictor knows.
    Coin,
    /// Instructions that do nothing.
    Nops,
    /// One line of each 256 bytes, flushed before each pass.
    Single,
    /// Both lines of each 128 bytes, one after the other, flushed before each pass.
    Pairs,
    /// A walk that caches hold.
    InCache,
    /// A word of each of 131,072 pages that all show the same memory.
    Pages,
    /// As many words of one huge page.
    OnePage,
    /// Lines that a core of another node has just written.
    Written,
    /// Calls of 8,192 functions of one instruction, a page each.
    FarCalls,
}

impl Load {
    /// All loads.
    pub const ALL: [Load; 11] = [
        Load::Loop,
        Load::Additions,
        Load::Coin,
        Load::Nops,
        Load::Single,
        Load::Pairs,
        Load::InCache,
        Load::Pages,
        Load::OnePage,
        Load::Written,
        Load::FarCalls,
    ];

    /// Its name in reports.
    pub fn word(self) -> &'static str {
        match self {
            Load::Loop => "loop",
            Load::Additions => "additions",
            Load::Coin => "coin",
            Load::Nops => "nops",
            Load::Single => "single",
            Load::Pairs => "pairs",
            Load::InCache => "in cache",
            Load::Pages => "pages",
            Load::OnePage => "one page",
            Load::Written => "written",
            Load::FarCalls => "far calls",
        }
    }

    /// The shorter of the two lengths that are compared: rounds of a loop, or passes of a walk.
    pub fn rounds(self) -> u64 {
        match self {
            Load::Loop => 2_000_000,
            Load::Coin => 200_000,
            Load::Additions | Load::Nops => 50_000,
            Load::Single | Load::Pairs | Load::Pages => 1,
            Load::InCache => 64,
            Load::OnePage | Load::Written | Load::FarCalls => 8,
        }
    }

    /// Bytes of memory of a node that it walks through.
    pub fn bytes(self) -> u64 {
        match self {
            Load::Single | Load::Pairs => 16 << 20,
            Load::InCache | Load::OnePage | Load::Written => GROUP as u64,
            Load::Loop | Load::Additions | Load::Coin | Load::Nops | Load::Pages | Load::FarCalls => 0,
        }
    }

    /// Whether its memory has a node that matters.
    pub fn has_node(self) -> bool {
        matches!(self, Load::Single | Load::Pairs | Load::Written)
    }

    fn work(self) -> Option<Work> {
        Some(match self {
            Load::Loop => Work::Loop,
            Load::Additions => Work::Additions,
            Load::Coin => Work::Coin,
            Load::Nops => Work::Nops,
            _ => return None,
        })
    }
}

/// A load that is ready to be done.
pub enum Ready {
    /// A loop in registers.
    Loop(Work),
    /// A walk, and whether its lines are flushed before each pass.
    Walk { cycle: Cycle, flush: bool },
    /// A walk through pages.
    Far(Far),
    /// Calls of functions that are pages apart.
    Calls(Calls),
    /// A walk whose lines CPU `writer` writes before each pass.
    Written { cycle: Cycle, writer: u32 },
}

impl Ready {
    /// Prepares a load. `region` is its memory with present pages, if it needs any; `line` the bytes of a
    /// cache line; `writer` a CPU of another node.
    ///
    /// # Errors
    /// It cannot be done here, in words.
    pub fn new(
        load: Load,
        region: Option<Region>,
        huge: bool,
        line: usize,
        writer: Option<u32>,
    ) -> Result<Ready, String> {
        if let Some(work) = load.work() {
            return Ok(Ready::Loop(work));
        }
        if load == Load::Pages {
            let (views, words) = far_words();
            let mirror = Mirror::new(views).map_err(|error| format!("mapping pages: {error}"))?;
            return Far::new(mirror, &words).map(Ready::Far).ok_or_else(|| "no walk".into());
        }
        if load == Load::FarCalls {
            if rustix::param::page_size() > LARGE_PAGE {
                return Err("the pages of this kernel are too large for this many functions".into());
            }
            let calls = Calls::new(FAR_CALLS, SEED);
            return calls.map(Ready::Calls).map_err(|error| format!("making memory executable: {error}"));
        }
        let region = region.ok_or("the load got no memory")?;
        let shape = Shape::of(line, huge);
        let dense = Shape { stretch: line, group: SMALL_GROUP, ..shape };
        let order = match load {
            Load::Pairs => pairs(&shape.order(region.bytes(), SEED), line),
            Load::InCache => dense.order(IN_CACHE, SEED),
            Load::OnePage => dense.order(ONE_PAGE, SEED),
            Load::Written => {
                let mut order = shape.order(region.bytes(), SEED);
                order.truncate(WRITTEN);
                order
            }
            _ => {
                let cycle = chase::cycle(region, shape, SEED).ok_or("no walk")?;
                return Ok(Ready::Walk { cycle, flush: true });
            }
        };
        let lines = order.len();
        let cycle = Cycle::new(region, order, lines).ok_or("no walk")?;
        Ok(match (load, writer) {
            (Load::Written, Some(writer)) => Ready::Written { cycle, writer },
            (Load::Written, None) => return Err("no CPU of another node can be used".into()),
            _ => Ready::Walk { cycle, flush: load == Load::Pairs },
        })
    }

    /// The amount that `rounds` come to: rounds of a loop, loads of a walk, calls.
    pub fn amount(&self, rounds: u64) -> u64 {
        rounds
            * match self {
                Ready::Loop(_) => 1,
                Ready::Walk { cycle, .. } | Ready::Written { cycle, .. } => whole(cycle.lines()),
                Ready::Far(far) => whole(far.loads()),
                Ready::Calls(calls) => calls.count(),
            }
    }

    /// Memory of the walk, to look up where it is.
    pub fn region(&self) -> Option<&Region> {
        match self {
            Ready::Walk { cycle, .. } | Ready::Written { cycle, .. } => Some(cycle.region()),
            Ready::Loop(_) | Ready::Far(_) | Ready::Calls(_) => None,
        }
    }

    /// Does `rounds` rounds on this thread.
    ///
    /// # Errors
    /// The CPU that writes cannot be run on.
    pub fn run(&mut self, rounds: u64) -> Result<(), String> {
        match self {
            Ready::Loop(work) => drop(asm::work(*work, rounds)),
            Ready::Far(far) => (0..rounds).for_each(|_| far.walk(far.loads() / LOADS)),
            Ready::Calls(calls) => (0..rounds).for_each(|_| calls.pass()),
            Ready::Walk { cycle, flush } => {
                for _ in 0..rounds {
                    if *flush && !cycle.flush() {
                        return Err("cache lines cannot be flushed on this CPU".into());
                    }
                    cycle.walk(cycle.lines() / LOADS);
                }
            }
            Ready::Written { cycle, writer } => return written(cycle, *writer, rounds),
        }
        Ok(())
    }
}

/// Loads of a pass: walks do [`LOADS`] at a time.
fn whole(loads: u64) -> u64 {
    loads / LOADS * LOADS
}

/// Each pass of the walk after another CPU wrote all of its lines. The two wait for each other at two words.
fn written(cycle: &mut Cycle, writer: u32, rounds: u64) -> Result<(), String> {
    let (asked, done) = (AtomicU64::new(0), AtomicU64::new(0));
    /// The answer of a thread that cannot write.
    const FAILED: u64 = u64::MAX;
    // Neither waits for the lock: the two words say whose turn it is.
    let shared = Mutex::new(cycle);
    let locked = || shared.lock().unwrap_or_else(PoisonError::into_inner);
    thread::scope(|scope| {
        scope.spawn(|| {
            if sys::run_on(&[writer]).is_err() {
                return done.store(FAILED, Ordering::Release);
            }
            for round in 1..=rounds {
                while asked.load(Ordering::Acquire) < round {
                    std::hint::spin_loop();
                }
                locked().rewrite();
                done.store(round, Ordering::Release);
            }
        });
        for round in 1..=rounds {
            asked.store(round, Ordering::Release);
            while done.load(Ordering::Acquire) < round {
                std::hint::spin_loop();
            }
            if done.load(Ordering::Acquire) == FAILED {
                return Err(format!("the process cannot run on CPU {writer}"));
            }
            let mut cycle = locked();
            let loads = cycle.lines();
            cycle.walk(loads / LOADS);
        }
        Ok(())
    })
}

/// Both lines of each pair of a walk through one of them.
fn pairs(order: &[u32], line: usize) -> Vec<u32> {
    let words = (line / size_of::<u64>()) as u32;
    order.iter().flat_map(|word| [*word, *word ^ words]).collect()
}

/// Views of a mirror, and some of its words: one of each eighth page, in a random order, all different words
/// of memory.
fn far_words() -> (usize, Vec<u32>) {
    let page = rustix::param::page_size() / size_of::<u64>();
    let of_view = Region::ALIGN / size_of::<u64>();
    let far_of_view = (of_view / page / 8).max(1);
    let views = FAR_PAGES as usize / far_of_view;
    let mut words: Vec<u32> = (0..views)
        .flat_map(|view| {
            // Eight views together use all pages of the memory, and then go on to the next word of each.
            (0..far_of_view).map(move |far| {
                let page_of_view = far * 8 + view % 8;
                (view * of_view + page_of_view * page + view / 8 % page) as u32
            })
        })
        .collect();
    Random::new(SEED).shuffle(&mut words);
    (views, words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn far_words_are_of_pages_far_apart_and_of_different_memory() {
        let (views, words) = far_words();
        assert_eq!(words.len(), FAR_PAGES as usize);
        let bytes = |word: &u32| *word as usize * 8;
        assert!(words.iter().all(|word| bytes(word) < views * Region::ALIGN));
        let memory: BTreeSet<usize> = words.iter().map(|word| bytes(word) % Region::ALIGN).collect();
        assert_eq!(memory.len(), words.len(), "two pointers in one word");
        let pages: BTreeSet<usize> =
            words.iter().map(|word| bytes(word) / rustix::param::page_size()).collect();
        assert_eq!(pages.len(), words.len());
        let near = pages.iter().zip(pages.iter().skip(1)).filter(|(a, b)| *b - *a < 4).count();
        assert!(near < words.len() / 50, "{near} neighbours");
    }

    #[test]
    fn pairs_are_both_lines_of_128_bytes() {
        assert_eq!(pairs(&[0, 24], 64), [0, 8, 24, 16]);
        let order = pairs(&Shape::of(64, true).order(GROUP, 1), 64);
        assert_eq!(order.iter().collect::<BTreeSet<_>>().len(), 2 * GROUP / 256);
    }

    #[test]
    fn loads_are_done_and_come_to_what_they_say() {
        let line = 64;
        for load in Load::ALL {
            let mut region = (load.bytes() > 0).then(|| Region::new(load.bytes() as usize).unwrap());
            if let Some(region) = &mut region {
                region.words_mut().fill(1);
            }
            let cpu = sys::current_cpu().unwrap();
            let mut ready = Ready::new(load, region, false, line, Some(cpu)).unwrap();
            let expected = match load {
                Load::Single => 65_536,
                Load::Pairs | Load::Pages => 131_072,
                Load::InCache => 2048,
                Load::OnePage => 16_384,
                Load::Written => 4096,
                Load::FarCalls => 8192,
                _ => 1,
            };
            assert_eq!(ready.amount(3), 3 * expected, "{load:?}");
            ready.run(1).unwrap();
            assert_eq!(ready.region().is_some(), load.bytes() > 0);
        }
        assert!(Ready::new(Load::Written, Some(Region::new(GROUP).unwrap()), false, line, None).is_err());
        assert!(Ready::new(Load::Single, None, true, line, None).is_err());
    }
}
