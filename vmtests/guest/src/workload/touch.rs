//! New memory wherever the policy of the process puts it, and CPU time on any allowed CPU. It does not wait
//! for a line: the tool starts it.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::burn;
use super::pages::{PAGE, Pages};
use crate::affinity;

/// Instructions between two looks at the clock, by two.
const ROUNDS: u64 = 1_000_000;

/// Touches `mib` MiB in small pages, and uses `ms` of CPU time with `threads` threads. Returns the CPU time
/// used, and the pages by node.
pub fn run(mib: u64, ms: u64, threads: u64) -> Result<Value, String> {
    // Before that it was the process that becomes this one.
    let begin = affinity::process_time();
    let pages = Pages::take((mib as usize) << 20)?;
    let work = || {
        while affinity::process_time() < Duration::from_millis(ms) {
            burn(ROUNDS);
        }
    };
    thread::scope(|scope| {
        (1..threads).for_each(|_| drop(scope.spawn(work)));
        work();
    });
    let by_node = nodes_of(&pages)?;
    Ok(json!({
        "pages": pages.bytes() / PAGE,
        "pages_by_node": by_node,
        "cpu_ns": affinity::process_time().as_nanos() as u64,
        "cpu_ns_before": begin.as_nanos() as u64,
    }))
}

/// The number of pages on each node, as move_pages(2) has them.
fn nodes_of(pages: &Pages) -> Result<BTreeMap<i32, usize>, String> {
    let at: Vec<usize> = pages.at().collect();
    let mut status = vec![-libc::ENOENT; at.len()];
    let nodes = std::ptr::null::<libc::c_int>();
    // SAFETY: both arrays have the given length; without nodes nothing is moved.
    let asked = unsafe {
        libc::syscall(libc::SYS_move_pages, 0, at.len(), at.as_ptr(), nodes, status.as_mut_ptr(), 0)
    };
    if asked < 0 {
        return Err(format!("asking where pages are: {}", std::io::Error::last_os_error()));
    }
    let mut by_node = BTreeMap::new();
    status.iter().for_each(|node| *by_node.entry(*node).or_insert(0) += 1);
    Ok(by_node)
}
