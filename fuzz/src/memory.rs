//! Files without a place, which need no cleaning up.

use std::fs::File;
use std::io::Write;
use std::os::fd::FromRawFd;

/// A file in memory with this content.
pub fn file(content: &[u8]) -> File {
    // SAFETY: the name is a C string, and the descriptor is new and owned by nothing else.
    let mut file = unsafe { File::from_raw_fd(libc::memfd_create(c"input".as_ptr(), libc::MFD_CLOEXEC)) };
    file.write_all(content).expect("memory takes it");
    file
}
