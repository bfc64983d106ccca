//! A process that the tool starts from itself to ask it: it may end or hang at any time, and is left behind then.

pub mod packet;

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::say;
use crate::sys;

/// The first packet of such a process.
const READY: &str = "ready";

/// A process that is started has to be ready within this.
const READY_MAX: Duration = Duration::from_secs(2);

/// After one could not be started it is not tried again for so long.
const PAUSE: Duration = Duration::from_secs(10);

/// Processes that were killed and have not ended yet: as long as there are so many no other is started. A process in a
/// system call of a filesystem that does not answer cannot be ended.
const LEFT_BEHIND_MAX: usize = 4;

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The question made it end.
    Died,
    /// The question kept it busy for too long.
    Slow,
    /// It is not there.
    NotStarted,
    /// The same question had no answer before.
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

/// Such a process, started when it is first asked. Dropped, it is ended.
pub struct Remote {
    program: PathBuf,
    name: &'static str,
    answer_max: Duration,
    running: Option<Running>,
    not_before: Option<Instant>,
    /// Those that were killed and have not ended yet.
    ending: Vec<Child>,
}

struct Running {
    child: Child,
    socket: OwnedFd,
}

impl Remote {
    /// `program` is numatop-ng itself, which is another under this `name`. An answer that takes longer than `answer_max`
    /// has none.
    pub fn new(program: PathBuf, name: &'static str, answer_max: Duration) -> Remote {
        Remote { program, name, answer_max, running: None, not_before: None, ending: Vec::new() }
    }

    /// Asks, with an open file if there is one, and waits for the answer.
    ///
    /// # Errors
    /// There is no answer. The process begins anew with the next question.
    pub fn ask<A: DeserializeOwned>(
        &mut self,
        question: &impl Serialize,
        file: Option<&File>,
    ) -> Result<A, Failure> {
        self.start().map_err(|_| Failure::NotStarted)?;
        let running = self.running.as_ref().ok_or(Failure::NotStarted)?;
        let told = packet::send(&running.socket, question, file);
        let failure = match told.and_then(|()| receive(&running.socket, self.answer_max)) {
            Ok(Some(answer)) => return Ok(answer),
            Ok(None) => Failure::Slow,
            Err(_) => Failure::Died,
        };
        self.end();
        Err(failure)
    }

    fn start(&mut self) -> io::Result<()> {
        self.ending.retain_mut(|child| !matches!(child.try_wait(), Ok(Some(_)) | Err(_)));
        if self.running.is_some() {
            return Ok(());
        }
        let too_soon = self.not_before.is_some_and(|moment| Instant::now() < moment);
        if too_soon || self.ending.len() >= LEFT_BEHIND_MAX {
            return Err(io::ErrorKind::NotConnected.into());
        }
        self.not_before = Some(Instant::now() + PAUSE);
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        // What the tool was started with and does not know of would be in reach of the child, and count against its limits.
        sys::close_on_exec();
        let child = Command::new(&self.program)
            .arg0(self.name)
            .env_clear()
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        self.running = Some(Running { child, socket: ours });
        let ready = self.running.as_ref().map(|running| receive::<String>(&running.socket, READY_MAX));
        if !matches!(ready, Some(Ok(Some(word))) if word == READY) {
            // No question is to blame: none was asked.
            self.end();
            return Err(io::ErrorKind::NotConnected.into());
        }
        self.not_before = None;
        Ok(())
    }

    fn end(&mut self) {
        if let Some(Running { mut child, .. }) = self.running.take() {
            let _ = child.kill();
            if !matches!(child.try_wait(), Ok(Some(_))) {
                self.ending.push(child);
            }
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.end();
        let until = Instant::now() + Duration::from_millis(200);
        for child in &mut self.ending {
            while matches!(child.try_wait(), Ok(None)) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }
}

/// Waits for a packet. `None`: there is none in time.
fn receive<T: DeserializeOwned>(socket: &OwnedFd, most: Duration) -> io::Result<Option<T>> {
    let until = Instant::now() + most;
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
    match packet::receive::<T>(socket)? {
        Some((answer, _)) => Ok(Some(answer)),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// The other side: answers what comes over standard input until it is closed. `prepare` is called before the first
/// question; where it fails there is no answer at all. No file may be open when this is called but the standard streams.
pub fn serve<Q: DeserializeOwned, A: Serialize>(
    name: &str,
    prepare: impl FnOnce() -> anyhow::Result<()>,
    mut answer: impl FnMut(Q, Option<File>) -> A,
) -> ExitCode {
    let socket = std::io::stdin();
    if rustix::net::sockopt::socket_type(&socket) != Ok(SocketType::SEQPACKET) {
        say::message(format!("{name}: is started by numatop-ng, and of no use without it"));
        return ExitCode::from(2);
    }
    // The end of whoever asks is ours, however it comes.
    let bound = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    if bound.is_err() || prepare().is_err() || packet::send(socket.as_fd(), &READY, None).is_err() {
        return ExitCode::FAILURE;
    }
    while let Ok(Some((question, file))) = packet::receive::<Q>(socket.as_fd()) {
        if packet::send(socket.as_fd(), &answer(question, file), None).is_err() {
            break;
        }
    }
    ExitCode::SUCCESS
}
