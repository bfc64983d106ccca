//! Files by handle.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use super::{checked, owned};

/// `FILEID_KERNFS` of include/linux/exportfs.h: the handle is the id of a file of kernfs.
const KERNFS: libc::c_int = 0xfe;

/// `struct file_handle` with the 8 bytes of an id.
#[repr(C)]
struct Handle {
    bytes: libc::c_uint,
    kind: libc::c_int,
    id: [u8; 8],
}

/// The directory of the cgroup with this id, in the hierarchy that `mount` is a directory of.
///
/// # Errors
/// The errno of open_by_handle_at(2): ESTALE for an unknown cgroup, EPERM without CAP_DAC_READ_SEARCH.
pub fn open_cgroup(mount: impl AsFd, id: u64) -> io::Result<OwnedFd> {
    let mut handle = Handle { bytes: 8, kind: KERNFS, id: id.to_ne_bytes() };
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: the handle has the length in its header, and outlives the call.
    let fd = checked(unsafe {
        libc::syscall(libc::SYS_open_by_handle_at, mount.as_fd().as_raw_fd(), &raw mut handle, flags)
    })?;
    // SAFETY: the call has made it.
    Ok(unsafe { owned(fd as libc::c_int) })
}
