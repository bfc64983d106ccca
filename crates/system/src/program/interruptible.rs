//! Output that a signal can end while its reader has stalled: a write to a full pipe may block for ever, and
//! would keep the signal waiting. A terminal has to be open in non-blocking mode: room for a byte in it is not room for a
//! line. A write to it blocks although poll(2) reported room, and the promise of pipes (pipe(7), `PIPE_BUF`) does not hold.

use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};

/// A pipe with any room has room for this many bytes (pipe(7), `PIPE_BUF`), so writing them does not block.
const ROOM: usize = rustix::pipe::PIPE_BUF;

/// A reader that takes nothing for this time after the request to stop counts as gone.
const PATIENCE: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// A terminal that has room, but not for the next character, is tried again after this: poll(2) would not wait for more.
const AGAIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// Output that is waited for until `stop` becomes readable, and after that as long as its reader makes
/// progress. So a line is not cut because the pipe is full for a moment.
pub struct Interruptible<'a, W> {
    out: W,
    stop: BorrowedFd<'a>,
    /// Nothing was read in time: what a buffer in front still tries to write is not waited for again.
    given_up: bool,
}

impl<'a, W: Write + AsFd> Interruptible<'a, W> {
    /// `out` must not buffer: more than [`ROOM`] at a time could have to wait.
    pub fn new(out: W, stop: BorrowedFd<'a>) -> Interruptible<'a, W> {
        Interruptible { out, stop, given_up: false }
    }

    /// Waits for room.
    ///
    /// # Errors
    /// `BrokenPipe` if `stop` is set and no room appears for [`PATIENCE`]; `Interrupted`, or another errno of
    /// poll(2).
    fn wait(&mut self) -> io::Result<()> {
        let out = PollFd::new(&self.out, PollFlags::OUT);
        let mut fds = [out, PollFd::from_borrowed_fd(self.stop, PollFlags::IN)];
        rustix::event::poll(&mut fds, self.given_up.then_some(&Timespec::default()))?;
        if fds[0].revents().is_empty() && !self.given_up {
            rustix::event::poll(&mut fds[..1], Some(&PATIENCE))?;
        }
        if fds[0].revents().is_empty() {
            self.given_up = true;
            return Err(unread());
        }
        // An error is for the write to tell.
        Ok(())
    }

    /// Waits a moment. Since `stopped` we are to stop.
    ///
    /// # Errors
    /// As those of [`Interruptible::wait`].
    fn pause(&mut self, stopped: &mut Option<Instant>) -> io::Result<()> {
        let mut stop = [PollFd::from_borrowed_fd(self.stop, PollFlags::IN)];
        rustix::event::poll(&mut stop, Some(&AGAIN))?;
        if stop[0].revents().is_empty() {
            return Ok(());
        }
        rustix::event::poll(&mut [], Some(&AGAIN))?;
        let since = *stopped.get_or_insert_with(Instant::now);
        if self.given_up || since.elapsed().as_secs() >= PATIENCE.tv_sec as u64 {
            self.given_up = true;
            return Err(unread());
        }
        Ok(())
    }
}

impl<W: Write + AsFd> Write for Interruptible<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut stopped = None;
        loop {
            self.wait()?;
            match self.out.write(&bytes[..bytes.len().min(ROOM)]) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.pause(&mut stopped)?,
                written => return written,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn unread() -> io::Error {
    io::Error::new(ErrorKind::BrokenPipe, "stopped while waiting for the reader of the output")
}

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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The output of all of `bytes`, written to a pipe of 64 KiB without a reader.
    fn written(bytes: usize, stopped: bool) -> io::Result<()> {
        let (_reader, out) = io::pipe()?;
        let (stop, mut asked) = io::pipe()?;
        if stopped {
            asked.write_all(b"x")?;
        }
        Interruptible::new(out, stop.as_fd()).write_all(&vec![b'x'; bytes])
    }

    #[test]
    fn nobody_waits_for_a_reader_when_it_is_time_to_stop() {
        let error = written(1 << 20, true).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    }

    #[test]
    fn a_reader_that_takes_nothing_is_waited_for_once() {
        let (_reader, out) = io::pipe().unwrap();
        let (stop, mut asked) = io::pipe().unwrap();
        asked.write_all(b"x").unwrap();
        let mut out = Interruptible::new(out, stop.as_fd());
        assert!(out.write_all(&vec![b'x'; 1 << 20]).is_err());
        let began = std::time::Instant::now();
        assert!((0..100).all(|_| out.write(b"x").is_err()));
        assert!(began.elapsed() < 100 * Duration::try_from(PATIENCE).unwrap(), "waited for each of them");
    }

    #[test]
    fn a_reader_who_is_behind_gets_it_whole() {
        const BYTES: usize = 1 << 20;
        let (mut reader, out) = io::pipe().unwrap();
        let (stop, mut asked) = io::pipe().unwrap();
        asked.write_all(b"x").unwrap();
        let reading = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            io::copy(&mut reader, &mut io::sink())
        });
        Interruptible::new(out, stop.as_fd()).write_all(&vec![b'x'; BYTES]).unwrap();
        assert_eq!(reading.join().unwrap().unwrap(), BYTES as u64);
    }

    #[test]
    fn what_there_is_room_for_is_written() {
        for stopped in [false, true] {
            written(ROOM + 1, stopped).unwrap();
        }
    }

    /// An output that always has room, but never for the next character.
    struct Narrow(io::PipeWriter);

    impl AsFd for Narrow {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }

    impl Write for Narrow {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(ErrorKind::WouldBlock.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn room_that_is_too_narrow_for_a_character_is_given_up() {
        let (_reader, out) = io::pipe().unwrap();
        let (stop, mut asked) = io::pipe().unwrap();
        asked.write_all(b"x").unwrap();
        let mut out = Interruptible::new(Narrow(out), stop.as_fd());
        assert_eq!(out.write_all(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
    }

    #[test]
    fn a_reader_that_went_away_is_a_broken_pipe() {
        let (reader, out) = io::pipe().unwrap();
        let (stop, _asked) = io::pipe().unwrap();
        drop(reader);
        let error = Interruptible::new(out, stop.as_fd()).write_all(b"x").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    }
}
