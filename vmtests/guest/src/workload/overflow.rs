//! Memory that does not fit on a node: the node is full, and allocations on it go on.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::{stop_flag, wait_for_go};
use crate::{affinity, sysfs};

const PAGE: usize = 4096;

/// Takes all free memory of the node of a CPU, and then, without pause, `mib` MiB more that it gives back.
pub fn run(cpu: u32, mib: u64) -> Result<Value, String> {
    affinity::pin(&[cpu]).map_err(|error| format!("pinning to CPU {cpu}: {error}"))?;
    let mut home = None;
    for node in sysfs::nodes()? {
        if sysfs::node_cpus(node)?.contains(&cpu) {
            home = Some(node);
        }
    }
    let home = home.ok_or_else(|| format!("CPU {cpu} is on no node"))?;
    wait_for_go(&json!({"pid": std::process::id(), "node": home}));
    // The last pages come from another node: the kernel leaves this one some.
    let kept = Pages::take(sysfs::node_memory_kib(home, "MemFree")? as usize * 1024)?;
    let stop = stop_flag();
    let mut rounds = 0u64;
    while !stop.load(Ordering::Relaxed) {
        Pages::take((mib as usize) << 20)?;
        rounds += 1;
    }
    Ok(json!({"rounds": rounds, "kept": kept.bytes, "cpu_ns": affinity::process_time().as_nanos() as u64}))
}

/// Small pages that are touched; given back when this is dropped.
struct Pages {
    start: usize,
    bytes: usize,
}

impl Pages {
    fn take(bytes: usize) -> Result<Pages, String> {
        let (all, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, nobody else's.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, all, kind, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(format!("mapping memory: {}", std::io::Error::last_os_error()));
        }
        // SAFETY: the mapping made above.
        unsafe { libc::madvise(start, bytes, libc::MADV_NOHUGEPAGE) };
        let pages = Pages { start: start as usize, bytes };
        for at in (0..bytes).step_by(PAGE) {
            // SAFETY: within the mapping, which nobody else knows of.
            unsafe { std::ptr::write_volatile((pages.start + at) as *mut u8, 1) };
        }
        Ok(pages)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing refers to it.
        unsafe { libc::munmap(self.start as *mut _, self.bytes) };
    }
}
