//! The tool's side of the symbolizer: starts it, asks it, and ends it when it does not answer.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use serde::de::DeserializeOwned;

use super::child;
use super::wire::{self, Answer, Question};

/// An answer that takes longer has none: a file of half a gigabyte takes a tenth of it, unless it comes from a slow disk.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// Failures after which a file is not looked at any more.
const FAILURES_MAX: u32 = 3;
/// Files whose failures are remembered.
const FILES_MAX: usize = 65_536;

/// After the symbolizer could not be started it is not tried again for so long.
const PAUSE: Duration = Duration::from_secs(10);

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The file made it end.
    Died,
    /// The file kept it busy for [`ANSWER_MAX`].
    Slow,
    /// It is not there.
    NotStarted,
    /// The file had no answer [`FAILURES_MAX`] times.
    GivenUp,
}

impl Failure {
    /// Whether there may be an answer later.
    pub fn may_pass(self) -> bool {
        matches!(self, Failure::Died | Failure::Slow)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Failure::Died => "cannot be read: the symbolizer ended",
            Failure::Slow => "takes too long to read",
            Failure::NotStarted => "no symbolizer could be started",
            Failure::GivenUp => "cannot be read: given up",
        })
    }
}

/// The symbolizer, started when it is first asked. Dropped, it is ended.
pub struct Helper {
    program: PathBuf,
    running: Option<Running>,
    not_before: Option<Instant>,
    /// Those that were killed and have not ended yet.
    ending: Vec<Child>,
    /// Files that had no answer, by device and inode, and how often.
    failures: HashMap<(u64, u64), u32>,
}

struct Running {
    child: Child,
    socket: OwnedFd,
}

impl Helper {
    /// `program` is numatop-ng itself.
    pub fn new(program: PathBuf) -> Helper {
        Helper { program, running: None, not_before: None, ending: Vec::new(), failures: HashMap::new() }
    }

    /// Asks about `file`, and waits for the answer.
    ///
    /// # Errors
    /// There is no answer. The symbolizer begins anew with the next question.
    pub fn ask(&mut self, question: &Question, file: &File) -> Result<Answer, Failure> {
        let meta = file.metadata().map_err(|_| Failure::Died)?;
        let key = (meta.dev(), meta.ino());
        if self.failures.get(&key).is_some_and(|failures| *failures >= FAILURES_MAX) {
            return Err(Failure::GivenUp);
        }
        self.start().map_err(|_| Failure::NotStarted)?;
        let running = self.running.as_ref().ok_or(Failure::NotStarted)?;
        let told = wire::send(&running.socket, question, Some(file)).and_then(|()| answer(&running.socket));
        let failure = match told {
            Ok(Some(answer)) => return Ok(answer),
            Ok(None) => Failure::Slow,
            Err(_) => Failure::Died,
        };
        self.end();
        if self.failures.len() >= FILES_MAX {
            self.failures.clear();
        }
        *self.failures.entry(key).or_default() += 1;
        Err(failure)
    }

    fn start(&mut self) -> io::Result<()> {
        self.ending.retain_mut(|child| !matches!(child.try_wait(), Ok(Some(_)) | Err(_)));
        if self.running.is_some() {
            return Ok(());
        }
        if self.not_before.is_some_and(|moment| Instant::now() < moment) {
            return Err(io::ErrorKind::NotConnected.into());
        }
        self.not_before = Some(Instant::now() + PAUSE);
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let child = Command::new(&self.program)
            .arg0(child::NAME)
            .env_clear()
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        self.running = Some(Running { child, socket: ours });
        let ready = self.running.as_ref().map(|running| answer::<String>(&running.socket));
        if !matches!(ready, Some(Ok(Some(word))) if word == child::READY) {
            // No file is to blame: none was looked at.
            self.end();
            return Err(io::ErrorKind::NotConnected.into());
        }
        self.not_before = None;
        Ok(())
    }

    fn end(&mut self) {
        if let Some(Running { mut child, .. }) = self.running.take() {
            let _ = child.kill();
            // It may be in a read that cannot be interrupted; then it ends later.
            if !matches!(child.try_wait(), Ok(Some(_))) {
                self.ending.push(child);
            }
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.end();
        for child in &mut self.ending {
            let until = Instant::now() + Duration::from_millis(200);
            while matches!(child.try_wait(), Ok(None)) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }
}

/// Waits for a packet of the symbolizer. `None`: there is none in time.
fn answer<T: DeserializeOwned>(socket: &OwnedFd) -> io::Result<Option<T>> {
    let until = Instant::now() + ANSWER_MAX;
    loop {
        let left = Timespec::try_from(until.saturating_duration_since(Instant::now())).ok();
        let mut fds = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)];
        match rustix::event::poll(&mut fds, left.as_ref()) {
            Ok(0) => return Ok(None),
            Ok(_) => break,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    match wire::receive::<T>(socket)? {
        Some((answer, _)) => Ok(Some(answer)),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
