//! Safe functions for the system calls and C functions that no crate wraps safely. All unsafe code of the crate is here and in
//! known/asm.rs: the lint table denies it elsewhere.
#![expect(unsafe_code, reason = "calls C")]

mod bpf;
mod chain;
mod children;
mod files;
mod memory;
mod pages;
mod perf;
mod thread;

use std::ffi::c_int;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

pub use self::files::*;
pub use self::memory::*;
pub use self::thread::*;
pub use bpf::*;
pub use chain::*;
pub use children::*;
pub use pages::*;
pub use perf::*;

const WORD: usize = size_of::<u64>();

/// The result of a C function that returns -1 and sets errno.
fn checked(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The result of a function of libbpf, which returns a negative errno.
fn checked_by_libbpf(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(result) }
}

/// The descriptor that a system call returned.
///
/// # Safety
/// The call has made it, so that nothing else owns it.
unsafe fn owned(fd: c_int) -> OwnedFd {
    // SAFETY: promised by the caller.
    unsafe { OwnedFd::from_raw_fd(fd) }
}
