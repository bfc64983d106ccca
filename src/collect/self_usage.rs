//! Resources that numatop-ng itself uses: its clock of CPU time and /proc/self/statm.

use std::fs;

use rustix::time::ClockId;

use crate::host::clock::clock;
use crate::model::sample::SelfUsage;

/// CPU time and memory of this process. `sample_ns` is left at zero.
pub fn read(page_size: u64) -> SelfUsage {
    let cpu_ns = clock(ClockId::ProcessCPUTime).as_nanos() as u64;
    SelfUsage { cpu_ns, rss_bytes: rss_pages().unwrap_or(0) * page_size, sample_ns: 0 }
}

fn rss_pages() -> Option<u64> {
    fs::read_to_string("/proc/self/statm").ok()?.split_whitespace().nth(1)?.parse().ok()
}

/// Bytes of a page on this machine.
pub fn page_size() -> u64 {
    rustix::param::page_size() as u64
}
