//! What numatop-ng itself uses: getrusage(2) and /proc/self/statm.

use std::fs;
use std::mem::MaybeUninit;

use crate::sample::OwnRaw;

/// CPU time and memory of this process. `sample_ns` is left at zero.
pub fn read(page_size: u64) -> OwnRaw {
    OwnRaw { cpu_ns: cpu_ns(), rss_bytes: rss_pages().unwrap_or(0) * page_size, sample_ns: 0 }
}

fn cpu_ns() -> u64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: getrusage fills the struct it is given; a zeroed rusage is a valid one should it fail.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000;
    ns(usage.ru_utime) + ns(usage.ru_stime)
}

fn rss_pages() -> Option<u64> {
    fs::read_to_string("/proc/self/statm").ok()?.split_whitespace().nth(1)?.parse().ok()
}

/// Bytes of a page on this machine.
pub fn page_size() -> u64 {
    // SAFETY: sysconf has no preconditions.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as u64 }
}
