//! A fork storm: on each CPU a process that does nothing but fork children which work a little
//! and end. Whatever the tool forgets when a task ends is missing from its sums here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use serde_json::{Value, json};

use super::{burn, stop_flag, wait_for_go};
use crate::affinity;

const ROUNDS: u64 = 100_000;

pub fn run(cpus: &[u32]) -> Result<Value, String> {
    wait_for_go(&json!({"pid": std::process::id()}));
    let stop = stop_flag();
    let threads: Vec<_> = cpus
        .iter()
        .map(|&cpu| {
            let stop = Arc::clone(&stop);
            thread::spawn(move || -> Result<Vec<(libc::pid_t, u64)>, String> {
                affinity::pin(&[cpu]).map_err(|error| format!("pinning to CPU {cpu}: {error}"))?;
                let mut children = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    children.push(one_child()?);
                }
                Ok(children)
            })
        })
        .collect();
    let mut children = BTreeMap::new();
    for thread in threads {
        children.extend(thread.join().map_err(|_| "a thread panicked".to_owned())??);
    }
    Ok(json!({
        "children": children.len(),
        "children_cpu_ns": children.values().sum::<u64>(),
        "cpu_ns_by_child": children,
        "cpu_ns": affinity::process_time().as_nanos() as u64,
    }))
}

/// Its process id and the CPU time that it used by the kernel's account, in whole microseconds.
fn one_child() -> Result<(libc::pid_t, u64), String> {
    // SAFETY: between fork and _exit the child of this threaded process only burns CPU time.
    unsafe {
        match libc::fork() {
            0 => {
                burn(ROUNDS);
                libc::_exit(0);
            }
            child if child > 0 => {
                let mut usage: libc::rusage = std::mem::zeroed();
                libc::wait4(child, std::ptr::null_mut(), 0, &mut usage);
                Ok((child, affinity::cpu_time(&usage).as_nanos() as u64))
            }
            _ => Err(format!("fork: {}", std::io::Error::last_os_error())),
        }
    }
}
