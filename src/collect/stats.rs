//! How often and how long do BPF programs run? The kernel's own statistics, which cost some 70 ns per run of every
//! program on the machine: on only while somebody looks.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use anyhow::{Context, Result};
use libbpf_rs::libbpf_sys as sys;

use crate::overhead::Runs;

/// Keeps statistics on until it is dropped. Others may keep them on too.
pub struct Recording {
    _on: OwnedFd,
}

impl Recording {
    /// # Errors
    /// EPERM without CAP_SYS_ADMIN.
    pub fn start() -> Result<Recording> {
        // SAFETY: no pointers are given.
        let fd = unsafe { sys::bpf_enable_stats(sys::BPF_STATS_RUN_TIME) };
        if fd < 0 {
            return Err(io::Error::from_raw_os_error(-fd))
                .context("switching on the statistics of BPF programs (needs CAP_SYS_ADMIN)");
        }
        // SAFETY: the kernel has just given us this descriptor.
        Ok(Recording { _on: unsafe { OwnedFd::from_raw_fd(fd) } })
    }
}

/// What was counted of a program while statistics were on.
///
/// # Errors
/// The kernel refused to tell.
pub fn runs(program: BorrowedFd<'_>) -> Result<Runs> {
    let mut info = sys::bpf_prog_info::default();
    let mut size = size_of::<sys::bpf_prog_info>() as u32;
    // SAFETY: info is a valid struct of the size that is stated, and asks for no arrays.
    let err = unsafe { sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &mut info, &mut size) };
    if err < 0 {
        return Err(io::Error::from_raw_os_error(-err)).context("reading the statistics of a BPF program");
    }
    Ok(Runs { count: info.run_cnt, ns: info.run_time_ns })
}
