//! Threads that all work at the same time for a moment, and then all wait: little CPU time on average, much at once.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{burn, stop_flag, wait_for_go};
use crate::affinity;

const ROUNDS: u64 = 20_000;

/// `threads` threads, each with `work_ms` of CPU time in every `every_ms`; one that is late begins at the next time.
pub fn run(threads: u64, work_ms: u64, every_ms: u64) -> Result<Value, String> {
    wait_for_go(&json!({"pid": std::process::id()}));
    let stop = stop_flag();
    let (began, every) = (Instant::now(), Duration::from_millis(every_ms.max(1)));
    let workers: Vec<_> = (0..threads)
        .map(|_| {
            let stop = Arc::clone(&stop);
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let until = affinity::thread_time() + Duration::from_millis(work_ms);
                    while affinity::thread_time() < until && !stop.load(Ordering::Relaxed) {
                        burn(ROUNDS);
                    }
                    let past = began.elapsed().as_nanos() % every.as_nanos();
                    thread::sleep(every - Duration::from_nanos(past as u64));
                }
            })
        })
        .collect();
    for worker in workers {
        worker.join().map_err(|_| "a thread panicked".to_owned())?;
    }
    Ok(json!({"cpu_ns": affinity::process_time().as_nanos() as u64}))
}
