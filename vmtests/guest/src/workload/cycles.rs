//! Memory that is written from beginning to end, again and again: a working set of known size. Also memory
//! that is new each time, allocated as quickly as a program can.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::pages::Pages;
use super::{burn, stop_flag, wait_for_go};
use crate::affinity;

/// Twice as many instructions follow each write.
const ROUNDS: u64 = 2_000;

/// `mib` MiB, bound to `node` if given: by a policy of the mapping, which the process does not know.
pub fn run(mib: u64, node: Option<u32>) -> Result<Value, String> {
    let pages = Pages::map((mib as usize) << 20)?;
    if let Some(node) = node {
        pages.bind(0..pages.bytes(), node)?;
    }
    wait_for_go(&json!({"pid": std::process::id()}));
    let stop = stop_flag();
    let mut writes = 0u64;
    while !stop.load(Ordering::Relaxed) {
        for page in pages.at().take_while(|_| !stop.load(Ordering::Relaxed)) {
            pages.touch(page);
            burn(ROUNDS);
            writes += 1;
        }
    }
    Ok(json!({"writes": writes, "cpu_ns": affinity::process_time().as_nanos() as u64}))
}

/// `mib` MiB on `node` are taken, written to and given back.
pub fn renew(mib: u64, node: u32) -> Result<Value, String> {
    wait_for_go(&json!({"pid": std::process::id()}));
    let stop = stop_flag();
    let mut rounds = 0u64;
    while !stop.load(Ordering::Relaxed) {
        let pages = Pages::map((mib as usize) << 20)?;
        pages.bind(0..pages.bytes(), node)?;
        pages.at().take_while(|_| !stop.load(Ordering::Relaxed)).for_each(|page| pages.touch(page));
        rounds += 1;
    }
    Ok(json!({"rounds": rounds}))
}
