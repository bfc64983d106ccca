//! Ends of the modes that need no privilege: by each signal, and by a terminal that is closed.

use std::fs;
use std::io::{Read, Write, pipe};
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::program;
use crate::terminal;
use portable_pty::{CommandBuilder, PtySize, SlavePty, native_pty_system};
use terminal::Terminal;

const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/recordings/format-1.nrec");

/// A limit for hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// From the signal to the end: documented are two seconds, and a machine with other work takes longer.
const PROMPT: Duration = Duration::from_secs(5);

/// Signals that end runs without a screen in good order, with 0.
const ASKING: [i32; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];

/// All that end the program.
fn ending() -> Vec<i32> {
    let others = [
        libc::SIGUSR2,
        libc::SIGALRM,
        libc::SIGVTALRM,
        libc::SIGPROF,
        libc::SIGXCPU,
        libc::SIGIO,
        libc::SIGPWR,
        libc::SIGSTKFLT,
        libc::SIGRTMIN(),
        libc::SIGRTMAX(),
    ];
    [&ASKING[..], &others].concat()
}

fn until(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is() {
        assert!(Instant::now() < end, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

fn send(pid: u32, signal: i32) {
    // SAFETY: kill has no memory to go wrong with; the child is ours and not yet waited for.
    assert_eq!(unsafe { libc::kill(pid as libc::pid_t, signal) }, 0);
}

/// Whether a process has a handler for a signal.
fn catches(pid: u32, signal: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:\t"));
    let caught = caught.and_then(|hex| u64::from_str_radix(hex, 16).ok()).unwrap_or(0);
    caught >> (signal - 1) & 1 == 1
}

/// A thread of it writes, or waits for room to write. To a pipe without room, it does so once nothing else is
/// left to do.
fn writes(pid: u32) -> bool {
    let calls = [libc::SYS_write.to_string(), libc::SYS_ppoll.to_string()];
    fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten().any(|task| {
        let call = fs::read_to_string(task.path().join("syscall")).unwrap_or_default();
        call.split(' ').next().is_some_and(|call| calls.iter().any(|one| one == call))
    })
}

/// A run without a terminal.
struct Run(Child);

impl Run {
    fn start(words: &[&str], stdout: impl Into<Stdio>) -> Run {
        let child = Command::new(program::path()).args(words).stdin(Stdio::null()).stdout(stdout).spawn();
        Run(child.unwrap())
    }

    /// The exit code after a signal, or the signal if it was not caught.
    fn ended_by(&mut self, signal: i32) -> (Option<i32>, Option<i32>) {
        send(self.0.id(), signal);
        let sent = Instant::now();
        let mut status = None;
        until("the program ends", || {
            status = self.0.try_wait().unwrap();
            status.is_some()
        });
        assert!(sent.elapsed() < PROMPT, "signal {signal}: it took {:?}", sent.elapsed());
        let status = status.unwrap();
        (status.code(), status.signal())
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The documented exit code of a run without a screen.
fn code(signal: i32) -> i32 {
    if ASKING.contains(&signal) { 0 } else { 128 + signal }
}

/// A pipe that has no room for another byte.
fn full_pipe() -> (std::io::PipeReader, std::io::PipeWriter) {
    let (reader, mut writer) = pipe().unwrap();
    // SAFETY: a plain call on a descriptor that is open.
    unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
    while writer.write(&[0; 4096]).is_ok() {}
    // SAFETY: as above.
    unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETFL, 0) };
    (reader, writer)
}

/// Does the same with all signals at once: where nothing is read, each takes a second.
fn with_each(test: impl Fn(i32) + Sync) {
    thread::scope(|scope| {
        for signal in ending() {
            let test = &test;
            scope.spawn(move || test(signal));
        }
    });
}

#[test]
fn each_signal_ends_batch_output_of_a_recording_with_its_code() {
    with_each(|signal| {
        let mut run = Run::start(&["replay", "--follow", "-b", "--format", "json", FIXTURE], Stdio::piped());
        let mut out = run.0.stdout.take().unwrap();
        out.read_exact(&mut [0]).unwrap();
        let reading = thread::spawn(move || {
            let mut text = String::new();
            out.read_to_string(&mut text).map(|_| text)
        });
        assert_eq!(run.ended_by(signal), (Some(code(signal)), None), "signal {signal}");
        let text = reading.join().unwrap().unwrap();
        assert!(text.ends_with('\n'), "signal {signal}: the last line is torn");
    });
}

#[test]
fn each_signal_ends_an_export_that_nobody_reads() {
    with_each(|signal| {
        let (_reader, writer) = full_pipe();
        let mut run = Run::start(&["export", "--format", "json", FIXTURE], writer);
        until("signals are caught", || catches(run.0.id(), signal));
        assert_eq!(run.ended_by(signal), (Some(code(signal)), None), "signal {signal}");
    });
}

/// A page is written at once, and after the last look at signals.
#[test]
fn a_page_that_nobody_reads_ends_with_a_signal() {
    let modes = [
        vec!["report", FIXTURE],
        vec!["diff", FIXTURE, FIXTURE],
        vec!["report", "--format", "json", FIXTURE],
    ];
    for mode in modes {
        let (_reader, writer) = full_pipe();
        let mut run = Run::start(&mode, writer);
        until("it writes", || writes(run.0.id()));
        assert_eq!(run.ended_by(libc::SIGTERM), (Some(0), None), "{mode:?}");
    }
}

#[test]
fn each_signal_ends_modes_that_only_tell_something_at_once() {
    with_each(|signal| {
        let (_reader, writer) = full_pipe();
        let mut run = Run::start(&["list", "metrics"], writer);
        until("it writes", || writes(run.0.id()));
        if signal == libc::SIGHUP {
            send(run.0.id(), libc::SIGUSR1);
        }
        assert_eq!(run.ended_by(signal), (None, Some(signal)));
    });
}

#[test]
fn a_signal_right_after_the_start_ends_it_in_good_order() {
    with_each(|signal| {
        for words in [&["replay", "--follow", "-b", FIXTURE][..], &["export", "--format", "csv", FIXTURE]] {
            let (_reader, writer) = full_pipe();
            let mut run = Run::start(words, writer);
            until("signals are caught", || catches(run.0.id(), signal));
            assert_eq!(run.ended_by(signal), (Some(code(signal)), None), "{words:?}, signal {signal}");
        }
    });
}

/// Bytes that were written to a terminal and can be read from its other side.
fn unread(terminal: i32) -> i32 {
    let mut bytes = 0;
    // SAFETY: the descriptor is open, and the number outlives the call.
    assert_eq!(unsafe { libc::ioctl(terminal, libc::FIONREAD, &mut bytes) }, 0);
    bytes
}

#[test]
fn each_signal_ends_batch_output_on_a_terminal_that_is_no_longer_read() {
    with_each(|signal| {
        let format = if signal % 2 == 0 { "text" } else { "json" };
        let size = PtySize { rows: 24, cols: 80, pixel_width: 0, pixel_height: 0 };
        let pty = native_pty_system().openpty(size).unwrap();
        let mut command = CommandBuilder::new(program::path());
        command.args(["--demo", "-b", "-n", "1000000", "--format", format]);
        let mut child = pty.slave.spawn_command(command).unwrap();
        let mut reader = pty.master.try_clone_reader().unwrap();
        reader.read_exact(&mut [0; 10_000]).unwrap();
        let master = pty.master.as_raw_fd().unwrap();
        // The kernel keeps more data than is ready to be read.
        let (mut ready, mut since) = (0, Instant::now());
        until("nothing more fits into the terminal", || {
            let now = unread(master);
            if now != ready || now == 0 {
                (ready, since) = (now, Instant::now());
            }
            since.elapsed() > Duration::from_secs(1)
        });
        send(child.process_id().unwrap(), signal);
        let sent = Instant::now();
        let mut status = None;
        until("the program ends", || {
            status = child.try_wait().unwrap();
            status.is_some()
        });
        assert!(sent.elapsed() < PROMPT, "signal {signal}: it took {:?}", sent.elapsed());
        assert_eq!(status.unwrap().exit_code(), code(signal) as u32, "signal {signal}");
    });
}

/// A view in a pseudo-terminal.
struct View {
    terminal: Terminal,
    /// Kept, because the modes of a terminal go with its last user.
    _slave: Box<dyn SlavePty + Send>,
}

const ENTER: &[u8] = b"\x1b[?1049h";
const LEAVE: &[u8] = b"\x1b[?1049l";

impl View {
    fn start(words: &[&str]) -> View {
        let (terminal, slave) = Terminal::start_and_keep(words, 24, 80).unwrap();
        View { terminal, _slave: slave }
    }

    fn pid(&self) -> u32 {
        self.terminal.pid().unwrap()
    }

    fn last(&self, wanted: &[u8]) -> Option<usize> {
        self.terminal.raw.windows(wanted.len()).rposition(|window| window == wanted)
    }

    fn take_in(&mut self) {
        self.terminal.take_in(Duration::ZERO);
    }

    fn until_shown(&mut self) {
        until("the screen is taken", || {
            self.take_in();
            self.last(ENTER).is_some() && self.terminal.is_raw()
        });
    }

    /// The exit code after a signal; the terminal must be as it was.
    fn ended_by(&mut self, signal: i32) -> u32 {
        send(self.pid(), signal);
        let sent = Instant::now();
        let mut status = None;
        until("the program ends", || {
            self.take_in();
            status = self.terminal.status().unwrap();
            status.is_some()
        });
        assert!(sent.elapsed() < PROMPT, "signal {signal}: it took {:?}", sent.elapsed());
        if self.last(ENTER).is_some() {
            until("the screen is given back", || {
                self.take_in();
                self.last(LEAVE) > self.last(ENTER)
            });
        }
        assert!(!self.terminal.is_raw(), "signal {signal}: the terminal is left raw");
        status.unwrap().exit_code()
    }
}

#[test]
fn each_signal_ends_a_replay_with_its_code_and_restores_the_terminal() {
    with_each(|signal| {
        for words in [&["replay", FIXTURE][..], &["replay", "--follow", FIXTURE]] {
            let mut view = View::start(words);
            view.until_shown();
            send(view.pid(), libc::SIGUSR1);
            assert_eq!(view.ended_by(signal), 128 + signal as u32, "{words:?}, signal {signal}");
        }
    });
}

#[test]
fn a_signal_before_the_screen_leaves_the_terminal_as_it_was() {
    with_each(|signal| {
        let mut view = View::start(&["replay", FIXTURE]);
        let pid = view.pid();
        until("signals are caught", || catches(pid, signal));
        assert_eq!(view.ended_by(signal), 128 + signal as u32, "signal {signal}");
    });
}

#[test]
fn a_closed_terminal_ends_a_replay_without_a_panic() {
    let size = PtySize { rows: 24, cols: 80, pixel_width: 0, pixel_height: 0 };
    let pty = native_pty_system().openpty(size).unwrap();
    let mut command = CommandBuilder::new(program::path());
    command.args(["replay", FIXTURE]);
    command.env("TERM", "xterm-256color");
    let mut child = pty.slave.spawn_command(command).unwrap();
    drop(pty.slave);
    let mut reader = pty.master.try_clone_reader().unwrap();
    let mut raw = Vec::<u8>::new();
    while !raw.windows(ENTER.len()).any(|window| window == ENTER) {
        let mut buffer = [0; 4096];
        let got = reader.read(&mut buffer).unwrap();
        raw.extend(&buffer[..got]);
    }
    drop((reader, pty.master));
    let mut status = None;
    until("the program ends", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.unwrap().exit_code(), 128 + libc::SIGHUP as u32);
}
