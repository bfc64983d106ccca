//! Resources that numatop-ng itself uses: its clock of CPU time and /proc/self/statm.

use std::fs;

use rustix::time::ClockId;

use crate::host::clock::clock;
use crate::model::sample::SelfUsage;
use crate::program::helper::resident_pages;

/// CPU time and memory of this process. `sample_ns` is left at zero.
pub fn read(page_size: u64) -> SelfUsage {
    let cpu_ns = clock(ClockId::ProcessCPUTime).as_nanos() as u64;
    let statm = fs::read_to_string("/proc/self/statm").ok();
    let pages = statm.and_then(|statm| resident_pages(&statm));
    let rss_bytes = pages.map_or(0, |[resident, _]| resident * page_size);
    SelfUsage { cpu_ns, rss_bytes, sample_ns: 0 }
}

/// Bytes of a page on this machine.
pub fn page_size() -> u64 {
    rustix::param::page_size() as u64
}
