//! How does a signal end a run whose output nobody reads? A write to a full pipe has no end, and what is asked to stop
//! meanwhile would never hear of it.

use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, AsRawFd, RawFd};

/// A pipe that has room at all has room for so many bytes (pipe(7), `PIPE_BUF`), so that writing them waits for nobody.
const ROOM: usize = libc::PIPE_BUF;

/// Output that is waited for until `stop` becomes readable. What is writable is written then too: a line that somebody
/// reads is not cut.
pub struct Stoppable<W> {
    out: W,
    stop: RawFd,
}

impl<W: Write + AsFd> Stoppable<W> {
    /// `out` must not buffer: more than [`ROOM`] at a time could have to wait.
    pub fn new(out: W, stop: RawFd) -> Stoppable<W> {
        Stoppable { out, stop }
    }

    /// Waits until there is room.
    ///
    /// # Errors
    /// `BrokenPipe` when there is none and we are to stop; `Interrupted`, or another errno of poll(2).
    fn wait(&self) -> io::Result<()> {
        let fd = |fd, events| libc::pollfd { fd, events, revents: 0 };
        let mut fds = [fd(self.out.as_fd().as_raw_fd(), libc::POLLOUT), fd(self.stop, libc::POLLIN)];
        // SAFETY: an array of two valid entries; both descriptors outlive the call.
        if unsafe { libc::poll(fds.as_mut_ptr(), 2, -1) } < 0 {
            return Err(io::Error::last_os_error());
        }
        match fds[0].revents {
            0 => Err(io::Error::new(ErrorKind::BrokenPipe, "stopped while nobody read the output")),
            // An error is for the write to tell.
            _ => Ok(()),
        }
    }
}

impl<W: Write + AsFd> Write for Stoppable<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.wait()?;
        self.out.write(&bytes[..bytes.len().min(ROOM)])
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What all of `bytes` become, written to a pipe of 64 KiB that nobody reads.
    fn written(bytes: usize, stopped: bool) -> io::Result<()> {
        let (_reader, out) = io::pipe()?;
        let (stop, mut asked) = io::pipe()?;
        if stopped {
            asked.write_all(b"x")?;
        }
        Stoppable::new(out, stop.as_raw_fd()).write_all(&vec![b'x'; bytes])
    }

    #[test]
    fn nobody_waits_for_a_reader_when_it_is_time_to_stop() {
        let error = written(1 << 20, true).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    }

    #[test]
    fn what_there_is_room_for_is_written() {
        for stopped in [false, true] {
            written(ROOM + 1, stopped).unwrap();
        }
    }

    #[test]
    fn a_reader_that_went_away_is_a_broken_pipe() {
        let (reader, out) = io::pipe().unwrap();
        let (stop, _asked) = io::pipe().unwrap();
        drop(reader);
        let error = Stoppable::new(out, stop.as_raw_fd()).write_all(b"x").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    }
}
