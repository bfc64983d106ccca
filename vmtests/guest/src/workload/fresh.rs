//! New pages on two nodes, touched from one CPU; then those of the first node move to the second, but for some that
//! cannot.

use std::io::PipeWriter;
use std::os::fd::AsRawFd;

use serde_json::{Value, json};

use super::{say, wait_for_end, wait_for_go};
use crate::affinity;

const PAGE: usize = 4096;
const MPOL_BIND: libc::c_int = 2;
const MPOL_MF_MOVE: libc::c_int = 1 << 1;

/// As many pages as fit into a pipe, unless somebody asks for a longer one.
const STUCK: usize = 16;

/// On `cpu`, as many MiB on node 0 as on node 1, in small pages. Says how many pages were touched, how many moved, and
/// how many could not; stays until its input ends.
pub fn run(cpu: u32, mib: u64) -> Result<Value, String> {
    affinity::pin(&[cpu]).map_err(|error| format!("pinning to CPU {cpu}: {error}"))?;
    let half = (mib as usize) << 20;
    wait_for_go(&json!({}));
    // SAFETY: a new mapping, nobody else's.
    let start = unsafe {
        let (all, private) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        libc::mmap(std::ptr::null_mut(), 2 * half, all, private, -1, 0)
    };
    if start == libc::MAP_FAILED {
        return Err(format!("mapping memory: {}", std::io::Error::last_os_error()));
    }
    let start = start as usize;
    // SAFETY: within the mapping. Refused where there are no huge pages.
    unsafe { libc::madvise(start as *mut _, 2 * half, libc::MADV_NOHUGEPAGE) };
    for (from, node) in [(start, 0), (start + half, 1)] {
        bind(from, half, node)?;
        for page in (from..from + half).step_by(PAGE) {
            // SAFETY: mapped for writing, and nobody else knows of it.
            unsafe { std::ptr::write_volatile(page as *mut u8, 1) };
        }
    }
    let touched = half / PAGE;
    say(&json!({"touched_on_each": touched}));
    let (_reader, writer) = std::io::pipe().map_err(|error| format!("making a pipe: {error}"))?;
    hold(&writer, start, STUCK * PAGE)?;
    let there = move_to(start, STUCK * PAGE, 1)?;
    if there > 0 {
        return Err(format!("{there} pages moved that a pipe holds"));
    }
    let moved = move_to(start + STUCK * PAGE, half - STUCK * PAGE, 1)?;
    say(&json!({"moved": moved, "stuck": STUCK}));
    wait_for_end();
    Ok(json!({}))
}

/// Binds memory that is not touched yet to a node.
fn bind(from: usize, len: usize, node: u32) -> Result<(), String> {
    let mask = 1u64 << node;
    // SAFETY: the range is ours, and mask has the number of bits that is said.
    let bound = unsafe { libc::syscall(libc::SYS_mbind, from, len, MPOL_BIND, &mask, 64, 0) };
    if bound < 0 {
        return Err(format!("binding to node {node}: {}", std::io::Error::last_os_error()));
    }
    Ok(())
}

/// Has a pipe hold pages: what somebody has a reference to cannot be moved.
fn hold(pipe: &PipeWriter, from: usize, len: usize) -> Result<(), String> {
    let pages = libc::iovec { iov_base: from as *mut _, iov_len: len };
    // SAFETY: one range, which is mapped as long as the process lives.
    let held = unsafe { libc::vmsplice(pipe.as_raw_fd(), &pages, 1, 0) };
    match usize::try_from(held) {
        Ok(held) if held == len => Ok(()),
        Ok(held) => Err(format!("the pipe holds {held} of {len} bytes")),
        Err(_) => Err(format!("giving pages to a pipe: {}", std::io::Error::last_os_error())),
    }
}

/// Moves pages as NUMA balancing does, asking for places on that node only; returns how many are there then.
fn move_to(from: usize, len: usize, node: i32) -> Result<usize, String> {
    let pages: Vec<usize> = (from..from + len).step_by(PAGE).collect();
    let (nodes, mut status) = (vec![node; pages.len()], vec![-libc::ENOENT; pages.len()]);
    // SAFETY: all arrays have the length that is said.
    let moved = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            0,
            pages.len(),
            pages.as_ptr(),
            nodes.as_ptr(),
            status.as_mut_ptr(),
            MPOL_MF_MOVE,
        )
    };
    if moved < 0 {
        return Err(format!("moving pages to node {node}: {}", std::io::Error::last_os_error()));
    }
    Ok(status.iter().filter(|there| **there == node).count())
}
