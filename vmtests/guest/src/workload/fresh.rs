//! New pages on two nodes, touched from one CPU; then those of the first node move to the second, except some
//! that cannot.

use std::io::PipeWriter;
use std::os::fd::AsRawFd;

use serde_json::{Value, json};

use super::pages::{PAGE, Pages};
use super::{say, wait_for_end, wait_for_go};
use crate::affinity;

const MPOL_MF_MOVE: libc::c_int = 1 << 1;

/// As many pages as fit into a pipe of the default length.
const STUCK: usize = 16;

/// On `cpu`, as many MiB on node 0 as on node 1, in small pages. Reports how many pages were touched, how
/// many moved, and how many could not; stays until its input ends.
pub fn run(cpu: u32, mib: u64) -> Result<Value, String> {
    affinity::pin(&[cpu]).map_err(|error| format!("pinning to CPU {cpu}: {error}"))?;
    let half = (mib as usize) << 20;
    wait_for_go(&json!({}));
    let pages = Pages::map(2 * half)?;
    for node in [0, 1] {
        let from = half * node as usize;
        pages.bind(from..from + half, node)?;
    }
    pages.at().for_each(|page| pages.touch(page));
    let touched = half / PAGE;
    say(&json!({"touched_on_each": touched}));
    let (_reader, writer) = std::io::pipe().map_err(|error| format!("making a pipe: {error}"))?;
    let held: Vec<usize> = pages.at().take(STUCK).collect();
    let rest: Vec<usize> = pages.at().take(touched).skip(STUCK).collect();
    hold(&writer, held[0], STUCK * PAGE)?;
    let there = move_to(&held, 1)?;
    if there > 0 {
        return Err(format!("{there} pages moved that a pipe holds"));
    }
    let moved = move_to(&rest, 1)?;
    say(&json!({"moved": moved, "stuck": STUCK}));
    wait_for_end();
    Ok(json!({}))
}

/// Makes a pipe hold pages: a page with another reference cannot be moved.
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

/// Moves pages as NUMA balancing does, asking for places on that node only; returns the number of pages then
/// there.
fn move_to(pages: &[usize], node: i32) -> Result<usize, String> {
    let (nodes, mut status) = (vec![node; pages.len()], vec![-libc::ENOENT; pages.len()]);
    // SAFETY: all arrays have the given length.
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
