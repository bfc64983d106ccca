//! Start and open files of the process that measures, beside its samples.

use std::fs;

use rustix::time::ClockId;

use super::page::Family;
use crate::host::clock::clock;

/// This process since it began.
pub(super) struct Own {
    /// Since 1970, seconds.
    started: f64,
}

impl Own {
    pub(super) fn begin() -> Own {
        Own { started: clock(ClockId::Realtime).as_secs_f64() }
    }

    /// In the names that Prometheus has for them; without what /proc does not say.
    pub(super) fn families(&self) -> Vec<Family> {
        let start = Family::gauge("process_start_time_seconds", "Unix time of the start of numatop-ng.");
        // The directory is open while it is read.
        let files = fs::read_dir("/proc/self/fd").ok().map(|open| open.count().saturating_sub(1) as f64);
        let files =
            files.map(|open| Family::gauge("process_open_fds", "Open files of numatop-ng itself.").of(open));
        [start.of(self.started)].into_iter().chain(files).collect()
    }
}
