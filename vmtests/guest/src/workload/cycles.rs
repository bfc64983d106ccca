//! Memory that is written from beginning to end, again and again: a working set of known size. Also memory
//! that is new each time, allocated as quickly as a program can.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::pages::Pages;
use super::{burn, say, stop_flag, wait_for_go, wait_for_line};
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
    write(&pages)
}

/// `mib` MiB that are touched on `node` by a policy of the thread, which then has none: the kernel may move them. They are
/// used on `cpu`, once there was a second line.
pub fn sweep(cpu: u32, mib: u64, node: u32) -> Result<Value, String> {
    affinity::pin(&[cpu]).map_err(|error| format!("pinning to CPU {cpu}: {error}"))?;
    wait_for_go(&json!({"pid": std::process::id()}));
    let pages = Pages::map((mib as usize) << 20)?;
    prefer(Some(node))?;
    pages.at().for_each(|page| pages.touch(page));
    prefer(None)?;
    say(&json!({"pages": pages.at().count()}));
    wait_for_line();
    write(&pages)
}

/// Binds new memory of this thread to a node, or to none.
fn prefer(node: Option<u32>) -> Result<(), String> {
    const MPOL_DEFAULT: libc::c_int = 0;
    const MPOL_BIND: libc::c_int = 2;
    let mask = node.map_or(0u64, |node| 1 << node);
    // SAFETY: the mask has the given number of bits; the default has none.
    let set = unsafe {
        match node {
            Some(_) => libc::syscall(libc::SYS_set_mempolicy, MPOL_BIND, &mask, 64),
            None => libc::syscall(libc::SYS_set_mempolicy, MPOL_DEFAULT, std::ptr::null::<u64>(), 0),
        }
    };
    match set {
        0 => Ok(()),
        _ => Err(format!("a policy for node {node:?}: {}", std::io::Error::last_os_error())),
    }
}

/// Writes to all pages in turn until its input ends.
fn write(pages: &Pages) -> Result<Value, String> {
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
