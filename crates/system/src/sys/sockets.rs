//! Sockets that were open before this program was.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use super::owned;

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
