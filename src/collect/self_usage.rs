//! Resources that numatop-ng itself uses: its clock of CPU time and /proc/self/statm.

use std::fs;

use rustix::time::{ClockId, clock_gettime};

use crate::model::sample::SelfUsage;

/// CPU time and memory of this process. `sample_ns` is left at zero.
pub fn read(page_size: u64) -> SelfUsage {
    SelfUsage { cpu_ns: cpu_ns(), rss_bytes: rss_pages().unwrap_or(0) * page_size, sample_ns: 0 }
}

fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn rss_pages() -> Option<u64> {
    fs::read_to_string("/proc/self/statm").ok()?.split_whitespace().nth(1)?.parse().ok()
}

/// Bytes of a page on this machine.
pub fn page_size() -> u64 {
    rustix::param::page_size() as u64
}
