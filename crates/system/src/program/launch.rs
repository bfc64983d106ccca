//! A command of the user that is held before its first instruction, until everything that watches it is attached.
//!
//! The tool starts itself under another name ([`main`]). That process reports that it is ready, waits for a
//! byte, and executes the command in its own place. So its id is that of the command from the start.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use rustix::io::FdFlags;
use rustix::process::{Pid, PidfdFlags};
use serde::{Deserialize, Serialize};

use super::helper::OWN_PROGRAM;
use super::signals;
use crate::program::output;
use crate::sys::{self, CpuTimes};

/// The place of a command, and as whom it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Allowed CPUs; empty: those of the tool.
    pub cpus: Vec<u32>,
    /// Nodes that it takes memory from; empty: as the tool.
    pub nodes: Vec<u32>,
    /// The user as whom it runs.
    pub user: Option<User>,
}

/// A user of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
    /// The name by which its groups are found; `None`: it has its first group only.
    pub name: Option<String>,
}

/// Messages of the process on its way to the command, a line of JSON each.
#[derive(Debug, Serialize, Deserialize)]
enum Word {
    /// It has its place.
    Ready,
    /// It executes the command next. CPU times until now, µs: they are not the command's.
    Executes { user_us: u64, system_us: u64 },
    /// It ends without the command.
    Failed { doing: String, errno: i32 },
}

/// Why a command did not run.
#[derive(Debug, thiserror::Error)]
#[error("{doing}: {}", io::Error::from_raw_os_error(*errno))]
pub struct NotStarted {
    /// The action that failed.
    pub doing: String,
    pub errno: i32,
    /// The command is to blame, and not its place.
    pub is_of_command: bool,
}

impl NotStarted {
    fn of_tool(doing: &str, error: &io::Error) -> NotStarted {
        let errno = error.raw_os_error().unwrap_or(libc::EIO);
        NotStarted { doing: doing.into(), errno, is_of_command: false }
    }

    /// The exit code of a shell, env(1) and time(1): 127 if the command does not exist, 126 if it cannot be
    /// executed, 125 if the tool failed.
    pub fn exit_code(&self) -> u8 {
        match (self.is_of_command, self.errno) {
            (false, _) => 125,
            (true, libc::ENOENT | libc::ENOTDIR) => 127,
            (true, _) => 126,
        }
    }
}

/// A command that is held. Dropped, it never runs.
pub struct Held {
    pid: u32,
    socket: BufReader<UnixStream>,
    /// It was waited for.
    is_gone: bool,
}

/// A command that runs.
pub struct Running {
    pub pid: u32,
    /// Readable when it has ended.
    pub end: OwnedFd,
    began: Instant,
    before: CpuTimes,
}

/// A command that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub elapsed: Duration,
    /// Of the command, and of its descendants that were waited for.
    pub times: CpuTimes,
}

impl Held {
    /// Starts the process that becomes the command, and waits until it has its place.
    ///
    /// # Errors
    /// It has no such place here, or no process could be made.
    pub fn start(order: &Order, command: &[OsString]) -> Result<Held, NotStarted> {
        let of_tool = |error| NotStarted::of_tool("starting a process for the command", &error);
        let (ours, theirs) = UnixStream::pair().map_err(of_tool)?;
        let words = serde_json::to_string(order).map_err(|error| of_tool(error.into()))?;
        let ignored = signals::ignored_at_start().iter().map(i32::to_string).collect::<Vec<_>>().join(",");
        rustix::io::fcntl_setfd(&theirs, FdFlags::empty()).map_err(|error| of_tool(error.into()))?;
        let child = Command::new(OWN_PROGRAM)
            .arg0(NAME)
            .args([theirs.as_raw_fd().to_string(), ignored, words])
            .args(command)
            .spawn();
        drop(theirs);
        let pid = child.map_err(of_tool)?.id();
        let mut held = Held { pid, socket: BufReader::new(ours), is_gone: false };
        match held.next() {
            Ok(Some(Word::Ready)) => Ok(held),
            Ok(Some(Word::Failed { doing, errno })) => Err(NotStarted { doing, errno, is_of_command: false }),
            Ok(_) => Err(of_tool(io::ErrorKind::UnexpectedEof.into())),
            Err(error) => Err(of_tool(error)),
        }
    }

    /// The id of its process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Lets it run.
    ///
    /// # Errors
    /// It cannot be executed.
    pub fn go(mut self) -> Result<Running, NotStarted> {
        let of_tool = |error| NotStarted::of_tool("executing the command", &error);
        let pid = Pid::from_raw(self.pid as i32).ok_or_else(|| of_tool(io::ErrorKind::NotFound.into()))?;
        let end = rustix::process::pidfd_open(pid, PidfdFlags::empty());
        let end = end.map_err(|error| of_tool(error.into()))?;
        let began = Instant::now();
        match self.socket.get_mut().write_all(&[1]) {
            // A signal ended it while it waited: its status shows this.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            written => written.map_err(of_tool)?,
        }
        let mut before = CpuTimes::default();
        loop {
            match self.next().map_err(of_tool)? {
                // Its end was closed: the command has begun.
                None => break,
                Some(Word::Ready) => {}
                Some(Word::Executes { user_us, system_us }) => {
                    before.user = Duration::from_micros(user_us);
                    before.system = Duration::from_micros(system_us);
                }
                Some(Word::Failed { doing, errno }) => {
                    return Err(NotStarted { doing, errno, is_of_command: true });
                }
            }
        }
        self.is_gone = true;
        Ok(Running { pid: self.pid, end, began, before })
    }

    /// The next word; `None` at the end.
    fn next(&mut self) -> io::Result<Option<Word>> {
        let mut line = String::new();
        match self.socket.read_line(&mut line)? {
            0 => Ok(None),
            _ => Ok(Some(serde_json::from_str(&line)?)),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.is_gone {
            // It reads the end, and ends.
            let _ = self.socket.get_mut().shutdown(std::net::Shutdown::Both);
            let _ = sys::wait_for(self.pid);
        }
    }
}

impl Running {
    /// Waits for its end.
    ///
    /// # Errors
    /// Another has waited for it.
    pub fn wait(&self) -> io::Result<Ended> {
        let (status, times) = sys::wait_for(self.pid)?;
        let elapsed = self.began.elapsed();
        let times = CpuTimes {
            user: times.user.saturating_sub(self.before.user),
            system: times.system.saturating_sub(self.before.system),
        };
        Ok(Ended { status, elapsed, times })
    }

    /// Hands a signal on to it. One that has ended gets none.
    pub fn signal(&self, signal: i32) {
        if let Some(signal) = rustix::process::Signal::from_named_raw(signal) {
            let _ = rustix::process::pidfd_send_signal(&self.end, signal);
        }
    }
}

/// The name under which the tool starts itself for this.
pub const NAME: &str = "numatop-ng-launch";

/// The exit code of a process that was not let go, or has no place.
const NOT_RUN: u8 = 125;

/// Becomes the command.
pub fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [fd, ignored, order, command @ ..] = words.as_slice() else { return wrong() };
    let Some(fd) = fd.to_str().and_then(|fd| fd.parse().ok()) else { return wrong() };
    let Ok(socket) = sys::inherited(fd) else { return wrong() };
    let mut socket = UnixStream::from(socket);
    if let Err((doing, error)) = take_place(&order.to_string_lossy(), &ignored.to_string_lossy()) {
        let _ = tell(&mut socket, &failed(doing, &error));
        return NOT_RUN.into();
    }
    let mut byte = [0];
    let is_let_go = tell(&mut socket, &Word::Ready).is_ok() && socket.read_exact(&mut byte).is_ok();
    let ([program, arguments @ ..], true) = (command, is_let_go) else { return NOT_RUN.into() };
    let mut command = Command::new(program);
    command.args(arguments);
    let times = sys::own_cpu_times();
    let (user_us, system_us) = (times.user.as_micros() as u64, times.system.as_micros() as u64);
    if tell(&mut socket, &Word::Executes { user_us, system_us }).is_err() {
        return NOT_RUN.into();
    }
    let error = command.exec();
    let _ = tell(&mut socket, &failed(program.to_string_lossy().into_owned(), &error));
    NOT_RUN.into()
}

fn wrong() -> ExitCode {
    output::message(format!("{NAME} is internal: only numatop-ng starts it"));
    ExitCode::from(2)
}

fn failed(doing: String, error: &io::Error) -> Word {
    Word::Failed { doing, errno: error.raw_os_error().unwrap_or(libc::EINVAL) }
}

fn tell(socket: &mut UnixStream, word: &Word) -> io::Result<()> {
    let mut line = serde_json::to_vec(word)?;
    line.push(b'\n');
    socket.write_all(&line)
}

fn take_place(order: &str, ignored: &str) -> Result<(), (String, io::Error)> {
    let order: Order =
        serde_json::from_str(order).map_err(|error| ("reading the command to run".into(), error.into()))?;
    // The tool ignores some for itself, and nohup(1) some for all its children.
    [libc::SIGUSR1, libc::SIGXFSZ].into_iter().for_each(sys::default_signal);
    ignored.split(',').filter_map(|signal| signal.parse().ok()).for_each(sys::ignore_signal);
    if !order.cpus.is_empty() {
        let list = || {
            format!(
                "limiting the process to CPUs {}",
                crate::model::topology::format_cpulist(order.cpus.iter().copied())
            )
        };
        sys::run_on(&order.cpus).map_err(|error| (list(), error))?;
    }
    if !order.nodes.is_empty() {
        let list = || {
            format!(
                "limiting memory to nodes {}",
                crate::model::topology::format_cpulist(order.nodes.iter().copied())
            )
        };
        sys::allocate_on(&order.nodes).map_err(|error| (list(), error))?;
    }
    if let Some(user) = &order.user {
        let doing = || format!("becoming user {}", user.uid);
        sys::become_user(user.name.as_deref(), user.uid, user.gid).map_err(|error| (doing(), error))?;
    }
    Ok(())
}
