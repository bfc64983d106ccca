//! The process that becomes the command: it takes its place, waits to be let go, and executes the command in its own place.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use super::{Order, Word};
use crate::program::output;
use crate::sys;

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
    output::message(format!("{NAME}: internal: numatop-ng starts it"));
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
        serde_json::from_str(order).map_err(|error| ("reading the order".into(), error.into()))?;
    // The tool ignores some for itself, and nohup(1) some for all its children.
    [libc::SIGUSR1, libc::SIGXFSZ].into_iter().for_each(sys::default_signal);
    ignored.split(',').filter_map(|signal| signal.parse().ok()).for_each(sys::ignore_signal);
    if !order.cpus.is_empty() {
        let list = || {
            format!("using CPUs {} only", crate::model::topology::format_cpulist(order.cpus.iter().copied()))
        };
        sys::run_on(&order.cpus).map_err(|error| (list(), error))?;
    }
    if !order.nodes.is_empty() {
        let list = || {
            format!(
                "taking memory from nodes {} only",
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
