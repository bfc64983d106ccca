//! Sockets that were open before this program was.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use super::owned;

/// The sockets that a service manager opened for this process (sd_listen_fds(3)); none where it did not, and at each call after
/// the first. To be called before this process opens anything: until then what is open beyond the standard streams was
/// inherited, whatever the environment says.
///
/// # Errors
/// LISTEN_PID is this process and LISTEN_FDS is no number, or a descriptor that it names is not open.
pub fn inherited_sockets() -> io::Result<Vec<OwnedFd>> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    if TAKEN.swap(true, Ordering::SeqCst) {
        return Ok(Vec::new());
    }
    // Whatever else it says is not about this process.
    let own = std::process::id().to_string();
    if std::env::var_os("LISTEN_PID").is_none_or(|pid| pid != own.as_str()) {
        return Ok(Vec::new());
    }
    // SAFETY: the descriptors are open, or listen_fds had failed, and they are from 3 on; they were inherited, so that nothing
    // in this process owns them, and the flag has them taken once.
    Ok(sd_notify::listen_fds()?.map(|fd| unsafe { owned(fd) }).collect())
}
