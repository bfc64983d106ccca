//! Terminals as an output that never blocks. Room for a byte in a terminal is not room for a line. A write to
//! it blocks although poll(2) reported room, and the promise of pipes (pipe(7), `PIPE_BUF`) does not hold.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};

/// A descriptor for the same output. For a terminal it has a new, non-blocking file description: the
/// inherited one is shared with the shell, and does not change. A terminal of another user that is not our
/// controlling terminal cannot be opened, and is shared.
///
/// # Errors
/// The errno of dup(2): there are too many descriptors.
pub fn output(inherited: impl AsFd) -> io::Result<OwnedFd> {
    let inherited = inherited.as_fd();
    if rustix::termios::isatty(inherited)
        && let Some(own) = reopened(inherited)
    {
        return Ok(own);
    }
    inherited.try_clone_to_owned()
}

fn reopened(terminal: BorrowedFd<'_>) -> Option<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let open = |path: &str| rustix::fs::open(path, flags, Mode::empty()).ok();
    let by_name = || open(&format!("/proc/self/fd/{}", terminal.as_raw_fd()));
    // The kernel reveals the session of a terminal only to processes with that controlling terminal, and
    // /dev/tty may be opened by every user, after su(1) too.
    let controlling = || rustix::termios::tcgetsid(terminal).ok().and_then(|_| open("/dev/tty"));
    by_name().or_else(controlling)
}
