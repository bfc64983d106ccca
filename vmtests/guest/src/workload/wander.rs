//! One busy thread that moves itself from CPU to CPU: on-CPU time per CPU, and moves, both known and by the kernel's
//! own count.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{burn, stop_flag, wait_for_go};
use crate::{affinity, procfs};

const ROUNDS: u64 = 5_000;

pub fn run(cpus: &[u32], pause_ms: u64) -> Result<Value, String> {
    if cpus.is_empty() {
        return Err("no CPU to run on".to_owned());
    }
    go(cpus[0])?;
    let pid = std::process::id() as i32;
    let kernel_moves = procfs::cpu_moves(pid)?;
    wait_for_go(&json!({"pid": pid}));
    let stop = stop_flag();
    let mut spent = vec![Duration::ZERO; cpus.len()];
    let mut since = affinity::thread_time();
    let before = since;
    let (mut at, mut moves) = (0, 0u64);
    let mut moving = Duration::ZERO;
    while !stop.load(Ordering::Relaxed) {
        let until = Instant::now() + Duration::from_millis(pause_ms);
        while Instant::now() < until && !stop.load(Ordering::Relaxed) {
            burn(ROUNDS);
        }
        let next = (at + 1) % cpus.len();
        // The system call that moves us begins on one CPU and ends on the other; charged to the first.
        let began = affinity::thread_time();
        go(cpus[next])?;
        let now = affinity::thread_time();
        moving += now - began;
        spent[at] += now - since;
        since = now;
        moves += u64::from(next != at);
        at = next;
    }
    let kernel_moves = procfs::cpu_moves(pid)? - kernel_moves;
    let places: Vec<Value> = cpus
        .iter()
        .zip(&spent)
        .map(|(cpu, spent)| json!({"cpu": cpu, "cpu_ns": spent.as_nanos() as u64}))
        .collect();
    Ok(
        json!({"places": places, "moves": moves, "kernel_moves": kernel_moves, "moving_ns": moving.as_nanos() as u64, "cpu_ns": (since - before).as_nanos() as u64}),
    )
}

fn go(cpu: u32) -> Result<(), String> {
    affinity::pin(&[cpu]).map_err(|error| format!("moving to CPU {cpu}: {error}"))
}
