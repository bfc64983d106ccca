//! Two CPUs: how long a line takes from one to the other, and how much of a loop both get done beside each other.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::asm::{self, Cycle, LOADS, Work};
use crate::sys;

/// Round trips between two looks at the clock.
const TRIPS: u64 = 1000;

/// Time before the first sample: frequencies rise, caches fill.
const WARM: Duration = Duration::from_millis(5);

/// Words far apart from each other, so that no prefetcher brings the neighbour of one.
#[derive(Default)]
#[repr(align(4096))]
struct Line(AtomicU64);

/// The way a line goes to and fro.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Both threads exchange one word in turn: one transaction each way.
    Exchange,
    /// Each thread writes a word of its own and reads that of the other: two transactions each way.
    TwoLines,
}

/// Half the round trip of a line between two CPUs, ns, of each sample of 1,000 round trips in `time`. `None` where the two
/// are one CPU, one cannot be run on, or they never ran at the same time.
pub fn line_ns(first: u32, second: u32, way: Way, time: Duration) -> Option<Vec<f64>> {
    if first == second {
        return None;
    }
    let (to, fro, stop, failed) =
        (Line::default(), Line::default(), AtomicBool::new(false), AtomicBool::new(false));
    let begin = Instant::now();
    // Two threads that never run together would wait for each other for good.
    let limit = 4 * (time + WARM);
    let ended = || stop.load(Ordering::Relaxed) || failed.load(Ordering::Relaxed);
    thread::scope(|scope| {
        scope.spawn(|| {
            failed.fetch_or(sys::run_on(&[second]).is_err(), Ordering::Relaxed);
            let mut turn = 0;
            while !ended() {
                answer(way, &to.0, &fro.0, &mut turn, &ended);
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
                    ask(way, &to.0, &fro.0, &mut turn, &mut || {
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

/// One round trip. False when `ended` says so.
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
    /// A walk through memory.
    Walk(Cycle),
}

impl Task {
    fn some(&mut self) {
        match self {
            Task::Loop(kind) => drop(asm::work(*kind, 100)),
            Task::Walk(cycle) => cycle.walk(256 / LOADS),
        }
    }
}

/// Rounds per µs of each task, each on the CPU beside it, all at the same time, over `time`.
///
/// # Errors
/// A CPU cannot be run on, with its number.
pub fn rates(tasks: &mut [(u32, Task)], time: Duration) -> Result<Vec<f64>, String> {
    let stop = AtomicBool::new(false);
    let done: Vec<Line> = tasks.iter().map(|_| Line::default()).collect();
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for ((cpu, task), done) in tasks.iter_mut().zip(&done) {
            let stop = &stop;
            threads.push(scope.spawn(move || {
                sys::run_on(&[*cpu]).map_err(|error| format!("CPU {cpu}: {error}"))?;
                while !stop.load(Ordering::Relaxed) {
                    task.some();
                    done.0.fetch_add(1, Ordering::Relaxed);
                }
                Ok::<(), String>(())
            }));
        }
        let look =
            || (Instant::now(), done.iter().map(|done| done.0.load(Ordering::Relaxed)).collect::<Vec<u64>>());
        thread::sleep(WARM);
        let (before, first) = look();
        thread::sleep(time);
        let (after, last) = look();
        stop.store(true, Ordering::Relaxed);
        let joined = threads.into_iter().map(|thread| thread.join().unwrap_or(Err("a thread ended".into())));
        joined.collect::<Result<Vec<()>, String>>()?;
        let us = after.duration_since(before).as_secs_f64() * 1e6;
        Ok(first.iter().zip(&last).map(|(first, last)| (last - first) as f64 / us).collect())
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
    fn tasks_have_rates() {
        let cpu = cpus()[0];
        let mut tasks = [(cpu, Task::Loop(Work::Additions))];
        let rate = rates(&mut tasks, Duration::from_millis(20)).unwrap()[0];
        // 100 rounds of 64 cycles.
        assert!((0.001..10.0).contains(&rate), "{rate}");
        assert!(rates(&mut [(1 << 20, Task::Loop(Work::Nops))], Duration::ZERO).is_err());
    }
}
