//! Files by handle, and sockets that were open before this program was.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

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

/// The sockets that a service manager opened for this process (sd_listen_fds(3)); none if it did not, and at
/// each call after the first. Must be called before this process opens anything. At that point, every open
/// file beyond the standard streams was inherited, whatever the environment claims.
///
/// # Errors
/// LISTEN_PID is this process and LISTEN_FDS is no number, or a descriptor that it names is not open.
pub fn inherited_sockets() -> io::Result<Vec<OwnedFd>> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    if TAKEN.swap(true, Ordering::SeqCst) {
        return Ok(Vec::new());
    }
    // Anything else in it is not about this process.
    let own = std::process::id().to_string();
    if std::env::var_os("LISTEN_PID").is_none_or(|pid| pid != own.as_str()) {
        return Ok(Vec::new());
    }
    // SAFETY: the descriptors are open, or listen_fds would have failed, and they are from 3 on. They were
    // inherited, so nothing in this process owns them, and the flag makes sure that they are taken once.
    Ok(sd_notify::listen_fds()?.map(|fd| unsafe { owned(fd) }).collect())
}
