//! Two CPUs: how long a line takes from one to the other, and how much of a loop both get done beside each other.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::asm::{self, Cycle, LOADS, Work};
use crate::sys::{self, PageAdvice, Region};

/// Round trips between two looks at the clock.
const TRIPS: u64 = 1000;

/// Time before the first sample: frequencies rise, caches fill.
const WARM: Duration = Duration::from_millis(5);

/// Words of the two lines: so far apart that no prefetcher brings the neighbour of one.
const APART: usize = 4096 / size_of::<u64>();

/// Numbers of a thread, in a line of their own.
#[derive(Default)]
#[repr(align(256))]
struct Tally {
    /// Pieces of work.
    done: AtomicU64,
    /// Time in which they were done, ns.
    ns: AtomicU64,
}

/// The way a line goes to and fro.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Both threads exchange one word in turn: one transaction each way.
    Exchange,
    /// Each thread writes one word and reads that of the other: two transactions each way.
    TwoLines,
}

/// Memory for lines with pages on the node of CPU `first`: a thread that runs there touches them first.
/// `None` if it cannot run there, or memory is lacking.
fn lines_of(first: u32) -> Option<Region> {
    let mut region = Region::new(2 * APART * size_of::<u64>()).ok()?;
    // A kernel without huge pages has small ones anyway.
    let _ = region.advise(PageAdvice::Small);
    thread::scope(|scope| {
        let touching = scope.spawn(|| {
            sys::run_on(&[first]).ok()?;
            region.words_mut().iter_mut().step_by(APART).take(2).for_each(|word| *word = 0);
            Some(())
        });
        touching.join().ok().flatten()
    })?;
    Some(region)
}

/// Half the round trip of a line between two CPUs, ns, of each sample of 1,000 round trips in `time`. The line is in memory of
/// the first one's node. `None` where the two are one CPU, one cannot be run on, or they never ran at the same time.
pub fn line_ns(first: u32, second: u32, way: Way, time: Duration) -> Option<Vec<f64>> {
    if first == second {
        return None;
    }
    let mut region = lines_of(first)?;
    let words = region.atomics();
    let (to, fro) = (&words[0], &words[APART]);
    let (stop, failed) = (AtomicBool::new(false), AtomicBool::new(false));
    let begin = Instant::now();
    // Two threads that never run together would wait for each other for good.
    let limit = 4 * (time + WARM);
    let ended = || stop.load(Ordering::Relaxed) || failed.load(Ordering::Relaxed);
    thread::scope(|scope| {
        scope.spawn(|| {
            failed.fetch_or(sys::run_on(&[second]).is_err(), Ordering::Relaxed);
            let mut turn = 0;
            while !ended() {
                answer(way, to, fro, &mut turn, &ended);
            }
        });
        let asking = scope.spawn(|| {
            let mut times = Vec::new();
            failed.fetch_or(sys::run_on(&[first]).is_err(), Ordering::Relaxed);
            let (mut turn, mut until) = (0, None);
            while !ended() && until.is_none_or(|until| Instant::now() < until) && begin.elapsed() < limit {
                let before = Instant::now();
                let mut tries = 0u32;
                let gone = (0..TRIPS).all(|_| {
                    ask(way, to, fro, &mut turn, &mut || {
                        tries = tries.wrapping_add(1);
                        ended() || tries.is_multiple_of(1 << 16) && begin.elapsed() > limit
                    })
                });
                let took = before.elapsed();
                if !gone {
                    break;
                }
                match until {
                    None if begin.elapsed() > WARM => until = Some(Instant::now() + time),
                    None => {}
                    Some(_) => times.push(took.as_nanos() as f64 / (2 * TRIPS) as f64),
                }
            }
            stop.store(true, Ordering::Relaxed);
            times
        });
        asking.join().ok()
    })
    .filter(|times| !times.is_empty())
}

/// One round trip. False if `ended` is set.
fn ask(way: Way, to: &AtomicU64, fro: &AtomicU64, turn: &mut u64, ended: &mut dyn FnMut() -> bool) -> bool {
    *turn += 1;
    match way {
        Way::Exchange => {
            // Even: it is our turn.
            while to
                .compare_exchange(2 * (*turn - 1), 2 * *turn - 1, Ordering::AcqRel, Ordering::Relaxed)
                .is_err()
            {
                if ended() {
                    return false;
                }
            }
        }
        Way::TwoLines => {
            to.store(*turn, Ordering::Release);
            while fro.load(Ordering::Acquire) != *turn {
                if ended() {
                    return false;
                }
            }
        }
    }
    true
}

/// The other side of one round trip.
fn answer(way: Way, to: &AtomicU64, fro: &AtomicU64, turn: &mut u64, ended: &dyn Fn() -> bool) {
    *turn += 1;
    match way {
        Way::Exchange => {
            while to.compare_exchange(2 * *turn - 1, 2 * *turn, Ordering::AcqRel, Ordering::Relaxed).is_err()
            {
                if ended() {
                    return;
                }
            }
        }
        Way::TwoLines => {
            while to.load(Ordering::Acquire) != *turn {
                if ended() {
                    return;
                }
            }
            fro.store(*turn, Ordering::Release);
        }
    }
}

/// Work of a thread in [`rates`].
pub enum Task {
    /// A loop in registers.
    Loop(Work),
    /// A walk through memory, whose lines are flushed before each pass.
    Walk(Cycle),
}

impl Task {
    /// Loads between two looks at the clock.
    const LOADS: u64 = 256;

    /// A piece of a task; `left` is the rest of the pass.
    fn some(&mut self, left: &mut u64) {
        match self {
            Task::Loop(kind) => drop(asm::work(*kind, 1000)),
            Task::Walk(cycle) => {
                cycle.walk(Task::LOADS / LOADS);
                *left = left.saturating_sub(Task::LOADS);
            }
        }
    }

    /// Lines go out of the caches when a pass is over: the next one is to find none there.
    fn begin_pass(&self, left: &mut u64) {
        if let Task::Walk(cycle) = self
            && *left < Task::LOADS
        {
            cycle.flush();
            *left = cycle.lines();
        }
    }
}

/// Pieces per µs of each task, each on the CPU beside it, all at the same time, over `time`. The time of
/// flushing is excluded.
///
/// # Errors
/// A CPU cannot be run on, with its number.
pub fn rates(tasks: &mut [(u32, Task)], time: Duration) -> Result<Vec<f64>, String> {
    let stop = AtomicBool::new(false);
    let tallies: Vec<Tally> = tasks.iter().map(|_| Tally::default()).collect();
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for ((cpu, task), tally) in tasks.iter_mut().zip(&tallies) {
            let stop = &stop;
            threads.push(scope.spawn(move || {
                sys::run_on(&[*cpu]).map_err(|error| format!("CPU {cpu}: {error}"))?;
                let mut left = 0;
                while !stop.load(Ordering::Relaxed) {
                    task.begin_pass(&mut left);
                    let before = Instant::now();
                    task.some(&mut left);
                    tally.ns.fetch_add(before.elapsed().as_nanos() as u64, Ordering::Relaxed);
                    tally.done.fetch_add(1, Ordering::Relaxed);
                }
                Ok::<(), String>(())
            }));
        }
        let look = || -> Vec<(u64, u64)> {
            tallies
                .iter()
                .map(|tally| (tally.done.load(Ordering::Relaxed), tally.ns.load(Ordering::Relaxed)))
                .collect()
        };
        thread::sleep(WARM);
        let first = look();
        thread::sleep(time);
        let last = look();
        stop.store(true, Ordering::Relaxed);
        let joined = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or(Err("a measuring thread ended early".into())));
        joined.collect::<Result<Vec<()>, String>>()?;
        let rate = |(first, last): (&(u64, u64), &(u64, u64))| {
            (last.0 - first.0) as f64 * 1e3 / (last.1 - first.1).max(1) as f64
        };
        Ok(first.iter().zip(&last).map(rate).collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CPUs that this process may run on.
    fn cpus() -> Vec<u32> {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
        crate::model::topology::parse_cpulist(list.trim()).unwrap()
    }

    #[test]
    fn a_line_goes_to_and_fro() {
        let [first, second, ..] = cpus()[..] else { return };
        for way in [Way::Exchange, Way::TwoLines] {
            // On a busy machine the two may not run at the same time for a while.
            let looks = (0..200).find_map(|_| line_ns(first, second, way, Duration::from_millis(20)));
            let times = looks.expect("two threads never ran at the same time");
            let best = times.iter().copied().min_by(f64::total_cmp).unwrap();
            assert!((1.0..1e6).contains(&best), "{way:?}: {best} ns");
        }
    }

    #[test]
    fn a_line_needs_two_cpus_that_are_there() {
        let first = cpus()[0];
        assert_eq!(line_ns(first, first, Way::Exchange, Duration::from_millis(1)), None);
        assert_eq!(line_ns(first, 1 << 20, Way::Exchange, Duration::from_millis(1)), None);
    }

    #[test]
    fn lines_are_on_the_node_of_their_first_cpu() {
        let topology = crate::host::topology::read(std::path::Path::new("/")).unwrap();
        for cpu in cpus() {
            let Ok(nodes) = sys::nodes_of_pages(0, &[lines_of(cpu).unwrap().address()]) else { return };
            let node = topology.cpu(crate::model::units::CpuId(cpu)).and_then(|cpu| cpu.node);
            assert_eq!(nodes[0], node.map_or(0, |node| node.0 as i32), "CPU {cpu}");
        }
        assert!(lines_of(1 << 20).is_none());
    }

    #[test]
    fn a_walk_on_two_cpus_finds_no_line_in_a_cache() {
        use crate::known::chase::{self, Shape};
        let cpu = cpus()[0];
        let shape = Shape::of(64, true);
        let rate = |bytes: usize| {
            let cycle = chase::cycle(Region::new(bytes).unwrap(), shape, 1).unwrap();
            // The best of some: others work, too.
            let rate = |tasks: &mut [(u32, Task)]| rates(tasks, Duration::from_millis(10)).unwrap()[0];
            let mut tasks = [(cpu, Task::Walk(cycle))];
            (0..5).map(|_| rate(&mut tasks)).fold(0.0, f64::max)
        };
        // 256 loads in a cache take less than 4 µs, and from memory more than that: 15 ns a load are between them.
        let small = rate(2 << 20);
        assert!(small < 0.26, "a walk of 2 MiB: {small} pieces of 256 loads per µs");
    }

    #[test]
    fn tasks_have_rates() {
        let cpu = cpus()[0];
        let mut tasks = [(cpu, Task::Loop(Work::Additions))];
        let rate = rates(&mut tasks, Duration::from_millis(20)).unwrap()[0];
        // 1,000 rounds of 64 cycles.
        assert!((0.0001..1.0).contains(&rate), "{rate}");
        assert!(rates(&mut [(1 << 20, Task::Loop(Work::Nops))], Duration::ZERO).is_err());
    }
}
