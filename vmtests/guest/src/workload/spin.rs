//! One busy thread pinned to each CPU of a list: on-CPU time whose place is known.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use serde_json::{Value, json};

use super::{burn, raise_at_end, wait_for_go};
use crate::affinity;

const ROUNDS: u64 = 20_000;

pub fn run(cpus: &[u32]) -> Result<Value, String> {
    let stop = Arc::new(AtomicBool::new(false));
    let ready = Arc::new(Barrier::new(cpus.len() + 1));
    let threads: Vec<_> = cpus
        .iter()
        .map(|&cpu| {
            let (stop, ready) = (Arc::clone(&stop), Arc::clone(&ready));
            thread::spawn(move || -> Result<Value, String> {
                affinity::name(&format!("spin-{cpu}"));
                let pinned = affinity::pin(&[cpu]).map_err(|error| format!("pinning to CPU {cpu}: {error}"));
                ready.wait();
                ready.wait();
                pinned?;
                while !stop.load(Ordering::Relaxed) {
                    burn(ROUNDS);
                }
                Ok(json!({"tid": affinity::tid(), "cpu": cpu, "cpu_ns": affinity::thread_time().as_nanos() as u64}))
            })
        })
        .collect();
    // All are where they belong before the first one begins.
    ready.wait();
    wait_for_go(&json!({"pid": std::process::id()}));
    ready.wait();
    raise_at_end(&stop);
    let threads: Result<Vec<Value>, String> = threads
        .into_iter()
        .map(|thread| thread.join().map_err(|_| "a thread panicked".to_owned())?)
        .collect();
    Ok(json!({"threads": threads?, "cpu_ns": affinity::process_time().as_nanos() as u64}))
}
