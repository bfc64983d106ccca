//! Bandwidth: memory read or written in order by one thread a CPU, counted while all of them run.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::asm;
use crate::sys;

/// Bytes between two looks at the flag that ends the threads.
const CHUNK: usize = 256 << 10;

/// Time in which all threads have come to run.
const BEGIN: Duration = Duration::from_millis(20);

/// Arrays begin this many bytes apart within a page: a load waits for a store whose address has the same low
/// 12 bits.
const APART: usize = 1088;

/// The way memory is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// Each byte is read.
    Read,
    /// Each byte is written; caches read the line first, so that memory moves twice as much.
    Write,
    /// Each byte is written past the caches.
    WriteNt,
    /// One half is copied to the other; bytes read and written count. Memory moves 1.5 times as much.
    Copy,
    /// STREAM's a = b + 3c; bytes of all three count. Memory moves 4/3 times as much.
    Triad,
}

impl Stream {
    /// Arrays that it needs.
    fn arrays(self) -> usize {
        match self {
            Stream::Read | Stream::Write | Stream::WriteNt => 1,
            Stream::Copy => 2,
            Stream::Triad => 3,
        }
    }
}

/// A separate line for the counter of each thread.
#[derive(Default)]
#[repr(align(256))]
struct Done(AtomicU64);

/// GB/s (10^9 bytes) in each of `windows` windows of `window`, by threads pinned to `cpus` that share
/// `memory` equally. Bytes are those that the program accesses.
///
/// # Errors
/// A CPU cannot be run on, with its number; or the memory is too small for a thread's chunk.
pub fn measure(
    kind: Stream,
    cpus: &[u32],
    memory: &mut [u64],
    windows: usize,
    window: Duration,
) -> Result<Vec<f64>, String> {
    let share = memory.len() / cpus.len().max(1) / 16 * 16;
    let array = share / kind.arrays();
    if array * size_of::<u64>() < 2 * CHUNK {
        return Err("too little memory for each thread".into());
    }
    let stop = AtomicBool::new(false);
    let done: Vec<Done> = cpus.iter().map(|_| Done::default()).collect();
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for ((cpu, words), done) in cpus.iter().zip(memory.chunks_mut(share)).zip(&done) {
            let (stop, words) = (&stop, &mut words[..share]);
            threads.push(scope.spawn(move || {
                sys::run_on(&[*cpu]).map_err(|error| format!("CPU {cpu}: {error}"))?;
                while !stop.load(Ordering::Relaxed) {
                    pass(kind, words, array, &mut |bytes| {
                        done.0.fetch_add(bytes as u64, Ordering::Relaxed);
                        !stop.load(Ordering::Relaxed)
                    });
                }
                Ok::<(), String>(())
            }));
        }
        let look = || {
            let bytes = done.iter().map(|done| done.0.load(Ordering::Relaxed)).sum::<u64>();
            (Instant::now(), bytes)
        };
        thread::sleep(BEGIN);
        let mut before = look();
        let mut speeds = Vec::with_capacity(windows);
        for _ in 0..windows {
            thread::sleep(window);
            let now = look();
            let took = now.0.duration_since(before.0).as_nanos().max(1) as f64;
            speeds.push((now.1 - before.1) as f64 / took);
            before = now;
        }
        stop.store(true, Ordering::Relaxed);
        let joined = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or(Err("a measuring thread ended early".into())));
        joined.collect::<Result<Vec<()>, String>>()?;
        Ok(speeds)
    })
}

/// Goes once through the memory of a thread, in chunks; `go_on` gets the bytes of each, and ends it.
fn pass(kind: Stream, words: &mut [u64], array: usize, go_on: &mut dyn FnMut(usize) -> bool) {
    let chunk = CHUNK / size_of::<u64>();
    let apart = APART / size_of::<u64>();
    // Arrays end early by the offset at which they begin.
    let length = array - (kind.arrays() - 1) * apart;
    let (first, rest) = words.split_at_mut(array);
    let (second, third) = rest.split_at_mut(rest.len().min(array));
    let mut at = 0;
    while at + chunk <= length {
        let range = at..at + chunk;
        match kind {
            Stream::Read => asm::read(&first[range]),
            Stream::Write => asm::write(&mut first[range]),
            Stream::WriteNt => drop(asm::write_past_caches(&mut first[range])),
            Stream::Copy => asm::copy(&first[range], &mut second[apart..][at..at + chunk]),
            Stream::Triad => {
                let (left, right) = (&first[range.clone()], &second[apart..][range.clone()]);
                asm::triad(left, right, &mut third[2 * apart..][range]);
            }
        }
        at += chunk;
        if !go_on(CHUNK * kind.arrays()) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::Region;

    const KINDS: [Stream; 5] = [Stream::Read, Stream::Write, Stream::WriteNt, Stream::Copy, Stream::Triad];

    #[test]
    fn a_pass_goes_through_nearly_all_memory() {
        let mut region = Region::new(8 << 20).unwrap();
        for kind in KINDS {
            let (words, mut bytes) = (region.words_mut(), 0);
            let array = words.len() / kind.arrays() / 16 * 16;
            pass(kind, words, array, &mut |chunk| {
                bytes += chunk;
                true
            });
            let all = 8 << 20;
            assert!(bytes <= all && bytes + 4 * CHUNK >= all, "{kind:?}: {bytes}");
        }
    }

    #[test]
    fn each_window_has_a_speed() {
        let cpu = sys::current_cpu().unwrap();
        let mut region = Region::new(4 << 20).unwrap();
        for kind in KINDS {
            // On a busy machine the thread may not run in a window.
            let mut windows = (0..200).flat_map(|_| {
                let speeds = measure(kind, &[cpu], region.words_mut(), 2, Duration::from_millis(10)).unwrap();
                assert_eq!(speeds.len(), 2);
                speeds
            });
            let speed = windows.find(|speed| *speed > 0.0).expect("the thread never ran");
            assert!((0.01..10_000.0).contains(&speed), "{kind:?}: {speed}");
        }
        let small = measure(Stream::Triad, &[cpu; 9], region.words_mut(), 1, Duration::ZERO);
        assert!(small.unwrap_err().contains("too little memory"));
        let nowhere = measure(Stream::Read, &[1 << 20], region.words_mut(), 1, Duration::ZERO);
        assert!(nowhere.unwrap_err().starts_with("CPU 1048576: "));
    }
}
