//! Serial lines and pseudo terminals.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;

/// Opens a line for reading and writing without making it the controlling terminal.
pub fn open(path: &str) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOCTTY).open(path)
}

/// No echo, no newline translation: bytes arrive unchanged.
pub fn make_raw(fd: RawFd) -> io::Result<()> {
    // SAFETY: a zeroed termios is a valid one to be filled in.
    let mut settings: libc::termios = unsafe { std::mem::zeroed() };
    // SAFETY: settings outlives the calls and is filled by the first.
    unsafe {
        check(libc::tcgetattr(fd, &mut settings))?;
        libc::cfmakeraw(&mut settings);
        check(libc::tcsetattr(fd, libc::TCSANOW, &settings))
    }
}

/// Waits until everything written has left the line.
pub fn drain(fd: RawFd) {
    // SAFETY: the call takes a descriptor only.
    unsafe { libc::tcdrain(fd) };
}

/// A pseudo terminal of the given size: the side that sees the screen, and the side programs use.
pub fn pair(rows: u16, cols: u16) -> io::Result<(OwnedFd, OwnedFd)> {
    let (mut ours, mut theirs) = (-1, -1);
    let size = window(rows, cols);
    // SAFETY: the two integers and the size live through the call; the other pointers may be null.
    unsafe {
        check(libc::openpty(&mut ours, &mut theirs, std::ptr::null_mut(), std::ptr::null(), &size))?;
        // Children get the other side as their standard streams, and nothing else.
        check(libc::fcntl(ours, libc::F_SETFD, libc::FD_CLOEXEC))?;
        check(libc::fcntl(theirs, libc::F_SETFD, libc::FD_CLOEXEC))?;
        Ok((OwnedFd::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)))
    }
}

/// Makes the calling process a new session with this line as its terminal and standard streams.
pub fn become_session_on(path: &str, rows: u16, cols: u16) -> io::Result<()> {
    let line = open(path)?;
    take_as_terminal(line.as_raw_fd())?;
    let size = window(rows, cols);
    // SAFETY: size lives through the call; dup2 takes descriptors only.
    unsafe {
        check(libc::ioctl(line.as_raw_fd(), libc::TIOCSWINSZ, &size))?;
        for stream in 0..3 {
            check(libc::dup2(line.as_raw_fd(), stream))?;
        }
    }
    Ok(())
}

/// setsid, then TIOCSCTTY.
pub fn take_as_terminal(fd: RawFd) -> io::Result<()> {
    // SAFETY: neither call touches memory of this process.
    unsafe {
        check(libc::setsid())?;
        check(libc::ioctl(fd, libc::TIOCSCTTY, 0))
    }
}

fn window(rows: u16, cols: u16) -> libc::winsize {
    libc::winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 }
}

fn check(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
