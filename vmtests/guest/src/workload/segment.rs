//! Processes that share one segment of memory, as the backends of a database do.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use serde_json::{Value, json};

use super::{wait_for_end, wait_for_go};
use crate::{affinity, sysfs};

/// `mib` MiB of shared memory, touched on the node by the first process, and `children` forked from it. All
/// of them read the whole segment again and again on the other node, the last child a quarter, and may run
/// everywhere. They sleep most of the time: processes that never wait for a CPU stay where they are.
/// `is_meant`: a process interleaves the segment over nodes 0 and 1, and ends.
pub fn run(mib: u64, node: u32, children: u64, is_meant: bool) -> Result<Value, String> {
    let home = Home { here: sysfs::node_cpus(1 - node)?, all: sysfs::online_cpus()? };
    let len = (mib as usize) << 20;
    // SAFETY: a new, unowned mapping; it lives as long as the processes.
    let start = unsafe {
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
    };
    if start == libc::MAP_FAILED {
        return Err(format!("mapping {mib} MiB: {}", std::io::Error::last_os_error()));
    }
    let pin = |cpus: &[u32]| affinity::pin(cpus).map_err(|error| format!("pinning: {error}"));
    pin(&sysfs::node_cpus(node)?)?;
    // SAFETY: inside the mapping, which is aligned; other processes write nothing.
    let words = unsafe { std::slice::from_raw_parts(start.cast::<AtomicU64>(), len / 8) };
    words.iter().step_by(512).for_each(|word| word.store(1, Relaxed));
    pin(&sysfs::online_cpus()?)?;
    if is_meant {
        interleave(start, len)?;
    }
    let mut pids = vec![std::process::id() as i32];
    for child in 1..=children {
        // SAFETY: the process has one thread.
        match unsafe { libc::fork() } {
            -1 => return Err(format!("forking: {}", std::io::Error::last_os_error())),
            0 => {
                // SAFETY: asks for a signal at the end of the parent.
                unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
                read(if child == children { &words[..words.len() / 4] } else { words }, &home);
            }
            child => pids.push(child),
        }
    }
    wait_for_go(&json!({ "pids": pids }));
    std::thread::spawn(move || read(words, &home));
    wait_for_end();
    for child in &pids[1..] {
        // SAFETY: our own children, which have not been waited for.
        unsafe {
            libc::kill(*child, libc::SIGKILL);
            libc::waitpid(*child, std::ptr::null_mut(), 0);
        }
    }
    Ok(json!({ "bytes": len }))
}

/// Gives the mapping a policy over nodes 0 and 1, by a process that ends. Pages stay where they are.
fn interleave(start: *mut libc::c_void, len: usize) -> Result<(), String> {
    const MPOL_INTERLEAVE: libc::c_int = 3;
    let nodes = 0b11u64;
    // SAFETY: the process has one thread; the child makes two system calls on a mapping and a number that live.
    let status = unsafe {
        let child = libc::fork();
        if child == 0 {
            let failed =
                libc::syscall(libc::SYS_mbind, start, len, MPOL_INTERLEAVE, &raw const nodes, 64, 0) != 0;
            libc::_exit(i32::from(failed));
        }
        let mut status = -1;
        libc::waitpid(child, &raw mut status, 0);
        status
    };
    if status == 0 { Ok(()) } else { Err(format!("a process that interleaves the segment: status {status}")) }
}

/// CPUs on which a process runs, and those on which it may.
struct Home {
    here: Vec<u32>,
    all: Vec<u32>,
}

impl Home {
    /// Goes back where the scheduler took it elsewhere.
    fn stay(&self) {
        // SAFETY: takes nothing.
        let cpu = unsafe { libc::sched_getcpu() };
        if !u32::try_from(cpu).is_ok_and(|cpu| self.here.contains(&cpu)) {
            // A process that cannot be moved makes a case fail that waits for a finding.
            let _ = affinity::pin(&self.here).and_then(|()| affinity::pin(&self.all));
        }
    }
}

/// Reads a word of each page for a fifth of the time, for ever.
fn read(words: &[AtomicU64], home: &Home) -> ! {
    loop {
        home.stay();
        let began = Instant::now();
        let sum: u64 = words.iter().step_by(512).map(|word| word.load(Relaxed)).sum();
        std::hint::black_box(sum);
        std::thread::sleep(began.elapsed() * 4);
    }
}
