//! Runs and run time of BPF programs: the kernel's own statistics, which cost some 70 ns per run of every program on
//! the machine. On only while the view is open.

use std::os::fd::{BorrowedFd, OwnedFd};

use anyhow::{Context, Result};

use crate::overhead::Runs;
use crate::sys;

/// Keeps statistics on until it is dropped. Others may keep them on too.
pub struct Recording {
    _on: OwnedFd,
}

impl Recording {
    /// # Errors
    /// EPERM without CAP_SYS_ADMIN.
    pub fn start() -> Result<Recording> {
        let on = sys::enable_bpf_stats()
            .context("switching on the statistics of BPF programs (needs CAP_SYS_ADMIN)")?;
        Ok(Recording { _on: on })
    }
}

/// Statistics of a program.
///
/// # Errors
/// The kernel refused to tell.
pub fn runs(program: BorrowedFd<'_>) -> Result<Runs> {
    let info = sys::bpf_program_info(program).context("reading the statistics of a BPF program")?;
    Ok(Runs { count: info.run_cnt, ns: info.run_time_ns })
}
