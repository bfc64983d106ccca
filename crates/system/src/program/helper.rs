//! A process that the tool starts from itself to ask it: it may end or hang at any time, and is left behind then.
//!
//! Packets are messages with open files. One packet of a `SOCK_SEQPACKET` socket is one message, so that neither side can be
//! left in the middle of one.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::program::output;
use crate::sys;

/// The program that runs, also when its file was replaced.
pub const OWN_PROGRAM: &str = "/proc/self/exe";

/// The first packet of such a process.
const READY: &str = "ready";

/// A process that is started has to be ready within this.
const READY_MAX: Duration = Duration::from_secs(2);

/// After a failed start, the next attempt waits for this time.
const PAUSE: Duration = Duration::from_secs(10);

/// Processes that were killed and have not ended yet. While this many exist, no other is started. A process
/// in a system call of a filesystem that does not answer cannot be ended. See
/// [`HelperProcess::with_left_behind_max`].
const LEFT_BEHIND_MAX: usize = 4;

/// The reason why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The question made it end.
    Died,
    /// The question kept it busy for too long.
    Slow,
    /// It is not there.
    NotStarted,
    /// The same question got no answer earlier.
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
            Failure::Slow => "reading takes too long",
            Failure::NotStarted => "the symbolizer could not be started",
            Failure::GivenUp => "cannot be read: too many attempts failed",
        })
    }
}

/// Such a process, started when it is first asked. Dropped, it is ended.
pub struct HelperProcess {
    program: PathBuf,
    name: &'static str,
    answer_max: Duration,
    left_behind_max: usize,
    variable: Option<(&'static str, OsString)>,
    running: Option<Running>,
    not_before: Option<Instant>,
    /// Children that were killed and have not ended yet, with the user who is to blame.
    ending: Vec<(Child, Option<u32>)>,
    /// CPU time of processes left behind, as far as it was read.
    cpu_ns: u64,
}

struct Running {
    child: Child,
    socket: OwnedFd,
    since: Instant,
    /// It has reported that it is ready.
    ready: bool,
    /// Of its CPU time.
    seen_ns: u64,
}

impl HelperProcess {
    /// `program` is numatop-ng itself, which is another under this `name`. An answer that takes longer than `answer_max`
    /// has none.
    pub fn new(program: PathBuf, name: &'static str, answer_max: Duration) -> HelperProcess {
        HelperProcess {
            program,
            name,
            answer_max,
            left_behind_max: LEFT_BEHIND_MAX,
            variable: None,
            running: None,
            not_before: None,
            ending: Vec::new(),
            cpu_ns: 0,
        }
    }

    /// Starts no other process while this many left behind have not ended; the default is 4. For callers that
    /// stop asking about a user before all of these belong to that user.
    pub fn with_left_behind_max(mut self, most: usize) -> HelperProcess {
        self.left_behind_max = most;
        self
    }

    /// The child has this variable in its environment, which is empty otherwise.
    pub fn with_variable(mut self, variable: Option<(&'static str, OsString)>) -> HelperProcess {
        self.variable = variable;
        self
    }

    /// Asks, with an open file if one is given, and waits for the answer.
    ///
    /// # Errors
    /// No answer. The process is restarted with the next question.
    pub fn ask<A: DeserializeOwned>(
        &mut self,
        question: &impl Serialize,
        file: Option<&File>,
    ) -> Result<A, Failure> {
        self.ask_within(question, file, self.answer_max)
    }

    /// As [`HelperProcess::ask`], with another limit for this answer.
    ///
    /// # Errors
    /// No answer. The process is restarted with the next question.
    pub fn ask_within<A: DeserializeOwned>(
        &mut self,
        question: &impl Serialize,
        file: Option<&File>,
        most: Duration,
    ) -> Result<A, Failure> {
        self.ask_blaming(question, file, most, None)
    }

    /// As [`HelperProcess::ask_within`]. Should the process not end when it is left, `to_blame` is: a user or a device
    /// (see [`HelperProcess::left_behind`]).
    ///
    /// # Errors
    /// No answer. The process is restarted with the next question.
    pub fn ask_blaming<A: DeserializeOwned>(
        &mut self,
        question: &impl Serialize,
        file: Option<&File>,
        most: Duration,
        to_blame: Option<u32>,
    ) -> Result<A, Failure> {
        let files: Vec<_> = file.iter().map(|file| file.as_fd()).collect();
        self.tell(question, &files)?;
        self.next_within(most, to_blame)
    }

    /// Waits for the next answer to a question sent by [`HelperProcess::tell`].
    ///
    /// # Errors
    /// No answer. The process is restarted with the next question.
    pub fn next_within<A: DeserializeOwned>(
        &mut self,
        most: Duration,
        to_blame: Option<u32>,
    ) -> Result<A, Failure> {
        let (mut since, mut was_ready) = (Instant::now(), self.is_ready());
        loop {
            if let Some(answer) = self.heard()? {
                return Ok(answer);
            }
            // The time until it was ready is not that of the question.
            if !std::mem::replace(&mut was_ready, self.is_ready()) && was_ready {
                since = Instant::now();
            }
            let Some(running) = &self.running else { return Err(Failure::NotStarted) };
            let most = if was_ready { most } else { READY_MAX };
            if !until_heard(&running.socket, most.saturating_sub(since.elapsed())) && was_ready {
                self.leave(to_blame);
                return Err(Failure::Slow);
            }
        }
    }

    fn is_ready(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.ready)
    }

    /// Asks, with open files, and waits for nothing: [`HelperProcess::heard`] has the answer later.
    ///
    /// # Errors
    /// The process does not exist, or accepts nothing.
    pub fn tell(&mut self, question: &impl Serialize, files: &[BorrowedFd<'_>]) -> Result<(), Failure> {
        let running = match self.start() {
            Ok(running) => running,
            Err(_) => return Err(Failure::NotStarted),
        };
        if send(&running.socket, question, files).is_err() {
            self.leave(None);
            return Err(Failure::Died);
        }
        Ok(())
    }

    /// The next answer, if it has come. Waits for nothing.
    ///
    /// # Errors
    /// There will be no answer. The process is restarted with the next question.
    pub fn heard<A: DeserializeOwned>(&mut self) -> Result<Option<A>, Failure> {
        let Some(running) = &mut self.running else { return Err(Failure::NotStarted) };
        if !running.ready {
            match received::<String>(&running.socket) {
                Ok(Some(word)) if word == READY => running.ready = true,
                Ok(None) if running.since.elapsed() < READY_MAX => return Ok(None),
                // No question is to blame: none was answered ever.
                _ => {
                    self.leave(None);
                    return Err(Failure::NotStarted);
                }
            }
            self.not_before = None;
        }
        let answer = received(&running.socket);
        answer.map_err(|_| {
            self.leave(None);
            Failure::Died
        })
    }

    /// Starts it where it is not there.
    fn start(&mut self) -> io::Result<&mut Running> {
        self.reap();
        if self.running.is_none() {
            let too_soon = self.not_before.is_some_and(|moment| Instant::now() < moment);
            if too_soon || self.ending.len() >= self.left_behind_max {
                return Err(io::ErrorKind::NotConnected.into());
            }
            self.not_before = Some(Instant::now() + PAUSE);
            let (ours, theirs) = rustix::net::socketpair(
                AddressFamily::UNIX,
                SocketType::SEQPACKET,
                SocketFlags::CLOEXEC,
                None,
            )?;
            rustix::io::ioctl_fionbio(&ours, true)?;
            // Descriptors that the tool was started with and does not know of would be in reach of the child, and
            // count against its limits.
            sys::close_on_exec();
            // Whose files they are to be (`guard.rs`).
            let caller = ["SUDO_UID", "SUDO_GID"].map(|name| Some((name, std::env::var_os(name)?)));
            let child = Command::new(&self.program)
                .arg0(self.name)
                .env_clear()
                .envs(caller.into_iter().flatten())
                .envs(self.variable.clone())
                .stdin(Stdio::from(theirs))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()?;
            let since = Instant::now();
            self.running = Some(Running { child, socket: ours, since, ready: false, seen_ns: 0 });
        }
        self.running.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Ends it and does not wait for that. Should it not end at once, `user` is to blame.
    pub fn leave(&mut self, user: Option<u32>) {
        if let Some(Running { mut child, seen_ns, .. }) = self.running.take() {
            self.cpu_ns += seen_ns;
            let _ = child.kill();
            if !matches!(child.try_wait(), Ok(Some(_))) {
                self.ending.push((child, user));
            }
        }
    }

    /// Processes left behind that had not ended at the last check: all, or the ones that this user caused.
    pub fn left_behind(&self, user: Option<u32>) -> usize {
        self.ending.iter().filter(|(_, blamed)| user.is_none() || *blamed == user).count()
    }

    /// Forgets processes left behind that have ended.
    pub fn reap(&mut self) {
        self.ending.retain_mut(|(child, _)| !matches!(child.try_wait(), Ok(Some(_)) | Err(_)));
    }

    /// CPU time of this process and its predecessors, in ns. Processes left behind count until they are last
    /// read.
    pub fn cpu_ns(&mut self) -> u64 {
        let now = self.words("schedstat").and_then(|text| text.split_whitespace().next()?.parse().ok());
        if let (Some(running), Some(now)) = (&mut self.running, now) {
            running.seen_ns = now;
        }
        self.cpu_ns + self.running.as_ref().map_or(0, |running| running.seen_ns)
    }

    /// Whether it runs or waits for a CPU, and for nothing else.
    pub fn is_runnable(&self) -> bool {
        let state = self.words("stat").and_then(|text| text.rsplit_once(") ")?.1.chars().next());
        state == Some('R')
    }

    /// Its resident memory without that of files, in pages.
    pub fn private_pages(&self) -> u64 {
        let pages = self.words("statm").and_then(|text| resident_pages(&text));
        pages.map_or(0, |[resident, of_files]| resident.saturating_sub(of_files))
    }

    /// A file of the process in /proc that takes no lock.
    fn words(&self, name: &str) -> Option<String> {
        let id = self.running.as_ref()?.child.id();
        std::fs::read_to_string(format!("/proc/{id}/{name}")).ok()
    }
}

/// Resident pages of a process, and those of files among them, by the text of its /proc/PID/statm.
pub fn resident_pages(statm: &str) -> Option<[u64; 2]> {
    let mut numbers = statm.split_whitespace().skip(1).map(str::parse::<u64>);
    Some([numbers.next()?.ok()?, numbers.next()?.ok()?])
}

impl Drop for HelperProcess {
    fn drop(&mut self) {
        self.leave(None);
        let until = Instant::now() + Duration::from_millis(200);
        for (child, _) in &mut self.ending {
            while matches!(child.try_wait(), Ok(None)) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }
}

/// Waits until something can be received; false if nothing comes in time.
fn until_heard(socket: &OwnedFd, most: Duration) -> bool {
    let until = Instant::now() + most;
    loop {
        let left = Timespec::try_from(until.saturating_duration_since(Instant::now())).ok();
        let mut fds = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)];
        match rustix::event::poll(&mut fds, left.as_ref()) {
            Ok(ready) => return ready > 0,
            Err(rustix::io::Errno::INTR) => {}
            // Receiving reports it again.
            Err(_) => return true,
        }
    }
}

/// A packet that has already come.
fn received<T: DeserializeOwned>(socket: &OwnedFd) -> io::Result<Option<T>> {
    match receive::<T>(socket) {
        Ok(Some((answer, _))) => Ok(Some(answer)),
        Ok(None) => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// The other side: answers the questions on standard input until it is closed. `prepare` is called before the
/// first question; if it fails, nothing is answered. Only the standard streams may be open when this is
/// called.
pub fn serve<Q: DeserializeOwned, A: Serialize>(
    name: &str,
    prepare: impl FnOnce() -> anyhow::Result<()>,
    mut answer: impl FnMut(Q, Option<File>) -> A,
) -> ExitCode {
    serve_many(name, prepare, |question, files, reply| {
        reply.send(&answer(question, files.into_iter().next()))
    })
}

/// Sends answers.
pub struct Reply<'a>(BorrowedFd<'a>);

impl Reply<'_> {
    /// Sends one of the answers to a question.
    ///
    /// # Errors
    /// The other side is gone, or the answer is too long.
    pub fn send(&self, answer: &impl Serialize) -> io::Result<()> {
        send(self.0, answer, &[])
    }
}

/// As [`serve`], with any number of answers to a question.
pub fn serve_many<Q: DeserializeOwned>(
    name: &str,
    prepare: impl FnOnce() -> anyhow::Result<()>,
    mut answer: impl FnMut(Q, Vec<File>, &Reply<'_>) -> io::Result<()>,
) -> ExitCode {
    let socket = std::io::stdin();
    if rustix::net::sockopt::socket_type(&socket) != Ok(SocketType::SEQPACKET) {
        output::message(format!("{name} is internal: only numatop-ng starts it"));
        return ExitCode::from(2);
    }
    // The end of the asking process, in whatever way, ends this one.
    let bound = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    if bound.is_err() || prepare().is_err() || send(socket.as_fd(), &READY, &[]).is_err() {
        return ExitCode::FAILURE;
    }
    while let Ok(Some((question, files))) = receive::<Q>(socket.as_fd()) {
        if answer(question, files, &Reply(socket.as_fd())).is_err() {
            break;
        }
    }
    ExitCode::SUCCESS
}

/// Bytes of a packet: less than what a socket takes by default (`net.core.wmem_default`, 212,992).
pub const PACKET_MAX: usize = 160 * 1024;

/// Open files of a packet at most.
pub const FILES_MAX: usize = 33;

/// Sends a message with open files, at most [`FILES_MAX`]. Waits for room.
///
/// # Errors
/// The errno of sendmsg(2).
pub fn send(socket: impl AsFd, message: &impl Serialize, files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::Error::new(ErrorKind::InvalidInput, "too many files for a packet"));
    }
    rustix::io::retry_on_intr(|| {
        rustix::net::sendmsg(&socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)
    })?;
    Ok(())
}

/// Waits for a message. `None` when the other side has closed its end.
///
/// # Errors
/// The errno of recvmsg(2), or the packet is no such message.
pub fn receive<T: DeserializeOwned>(socket: impl AsFd) -> io::Result<Option<(T, Vec<File>)>> {
    let mut bytes = vec![0; PACKET_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(
            &socket,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        )
    })?;
    if received.bytes == 0 {
        return Ok(None);
    }
    if received.flags.contains(ReturnFlags::TRUNC) {
        return Err(io::Error::new(ErrorKind::InvalidData, "the packet is too long"));
    }
    let files = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => fds.map(File::from).collect::<Vec<File>>(),
        _ => Vec::new(),
    });
    let files = files.collect();
    Ok(Some((serde_json::from_slice(&bytes[..received.bytes])?, files)))
}
