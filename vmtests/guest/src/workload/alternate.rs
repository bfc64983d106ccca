//! Two processes that take turns on one CPU, each executing a known number of instructions a turn. A tool
//! that mixes up the counters of two tasks fails here at once. With a counter of instructions each process
//! counts its own, including the kernel's on its behalf.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::count::{Event, INSTRUCTIONS};
use super::{burn, stop_flag, wait_for_go};
use crate::affinity;

pub fn run(cpu: u32, ours: u64, theirs: u64) -> Result<Value, String> {
    affinity::pin(&[cpu]).map_err(|error| format!("pinning to CPU {cpu}: {error}"))?;
    let (mut to_child_read, mut to_child) = pipe()?;
    let (mut from_child, mut from_child_write) = pipe()?;
    // SAFETY: no other thread runs yet, so the child may do anything.
    let child = unsafe { libc::fork() };
    if child < 0 {
        return Err(format!("fork: {}", std::io::Error::last_os_error()));
    }
    if child == 0 {
        drop((to_child, from_child));
        affinity::name("turn-b");
        let counter = Event::open(INSTRUCTIONS, 0);
        let mut byte = [0];
        while matches!(to_child_read.read(&mut byte), Ok(1)) {
            burn(theirs / 2);
            if from_child_write.write_all(&byte).is_err() {
                break;
            }
        }
        let counted = counter.and_then(|counter| counter.read()).unwrap_or(0);
        let _ = from_child_write.write_all(&counted.to_ne_bytes());
        // SAFETY: ends this process only; the parent's buffers must not be flushed twice.
        unsafe { libc::_exit(0) };
    }
    drop((to_child_read, from_child_write));
    affinity::name("turn-a");
    let counter = Event::open(INSTRUCTIONS, 0);
    wait_for_go(&json!({"pid": std::process::id(), "child": child}));
    let stop = stop_flag();
    let mut turns = 0u64;
    let mut byte = [1];
    while !stop.load(Ordering::Relaxed) {
        burn(ours / 2);
        to_child.write_all(&byte).map_err(|error| format!("giving the turn: {error}"))?;
        from_child.read_exact(&mut byte).map_err(|error| format!("getting the turn: {error}"))?;
        turns += 1;
    }
    let counted = counter.and_then(|counter| counter.read()).unwrap_or(0);
    drop(to_child);
    let mut child_counted = [0; 8];
    from_child.read_exact(&mut child_counted).map_err(|error| format!("what the child counted: {error}"))?;
    let mut status = 0;
    // SAFETY: a zeroed rusage is a valid place for the answer, as is status.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    unsafe { libc::wait4(child, &mut status, 0, &mut usage) };
    Ok(json!({
        "turns": turns,
        "instructions": turns * (ours / 2) * 2,
        "child_instructions": turns * (theirs / 2) * 2,
        // Zero without such a counter.
        "counted": counted,
        "child_counted": u64::from_ne_bytes(child_counted),
        "child_switches": usage.ru_nvcsw + usage.ru_nivcsw,
    }))
}

fn pipe() -> Result<(File, File), String> {
    let mut ends = [0; 2];
    // SAFETY: ends has room for the two descriptors, which are unowned.
    unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) < 0 {
            return Err(format!("pipe: {}", std::io::Error::last_os_error()));
        }
        Ok((OwnedFd::from_raw_fd(ends[0]).into(), OwnedFd::from_raw_fd(ends[1]).into()))
    }
}
