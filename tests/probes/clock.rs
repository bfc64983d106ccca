//! The clock of the recorder: neither a terminal, nor a reader, nor a stop, nor a limit costs it a sample without a word.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use numatop_ng::record::format::End;
use numatop_ng::record::verify::verify;
use numatop_ng::source::Source;
use numatop_ng::source::recording::Recording;
use portable_pty::{CommandBuilder, MasterPty, PtySize, native_pty_system};
use serde_json::Value;

use crate::command::Ours;
use crate::program;
use crate::recording::{Place, text};
use crate::terminal::model;
use crate::until::until;

/// From a signal to the end: documented are two seconds, and a machine with other work takes longer.
const PROMPT: Duration = Duration::from_secs(5);

/// Samples of the recording that must come while nothing takes the output: more than ever waited for a screen.
const MANY: u64 = 45;

/// Samples in a recording; 0 without a file.
fn samples(path: &Path) -> u64 {
    verify(path).map_or(0, |report| report.samples)
}

/// An interval that is off by more than the tenth, or the 50 ms, that need no word, and has none.
fn unexplained(length: Duration, asked: Duration, notes: &str) -> bool {
    let slack = (asked / 10).max(Duration::from_millis(50)) + Duration::from_millis(30);
    length.abs_diff(asked) > slack && !notes.contains("an interval")
}

/// The recording was ended, and each of its intervals has the requested length or a reason.
fn is_on_time(path: &Path, asked: Duration) -> Result<()> {
    let report = verify(path)?;
    ensure!(report.is_intact() && report.end == Some(End::Stopped) && report.gaps.is_empty(), "{report}");
    is_without_gaps(path, asked)
}

/// Each interval of a recording, which may be a ring, has the requested length or a reason.
fn is_without_gaps(path: &Path, asked: Duration) -> Result<()> {
    let mut recording = Recording::open(path)?;
    let mut last = recording.next()?.context("no sample")?.mono_ns;
    while let Some(sample) = recording.next()? {
        let length = Duration::from_nanos(sample.mono_ns - last);
        last = sample.mono_ns;
        ensure!(!unexplained(length, asked, &sample.notes.concat()), "{length:?}: {:?}", sample.notes);
        // The reads before the time of a sample take a moment, and not always the same.
        ensure!(
            length * 2 + Duration::from_millis(60) >= asked,
            "an interval of {length:?}: {:?}",
            sample.notes
        );
    }
    Ok(())
}

/// numatop-ng in a terminal that nothing reads.
struct Unread {
    master: Box<dyn MasterPty + Send>,
    /// The terminal's other side, which it writes to.
    slave: OwnedFd,
    child: Box<dyn portable_pty::Child + Send + Sync>,
}

impl Unread {
    fn start(words: &[&str], size: PtySize) -> Result<Unread> {
        let pty = native_pty_system().openpty(size)?;
        let name = pty.master.tty_name().context("the terminal has no name")?;
        let name = std::ffi::CString::new(name.into_os_string().into_encoded_bytes())?;
        // SAFETY: the name ends with NUL.
        let slave = unsafe { libc::open(name.as_ptr(), libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC) };
        ensure!(slave >= 0, "opening the terminal: {}", std::io::Error::last_os_error());
        // SAFETY: open has just returned it.
        let slave = unsafe { OwnedFd::from_raw_fd(slave) };
        let mut command = CommandBuilder::new(program::path());
        command.args(words);
        command.env("TERM", "xterm-256color");
        let child = pty.slave.spawn_command(command)?;
        Ok(Unread { master: pty.master, slave, child })
    }

    fn pid(&self) -> Result<u32> {
        self.child.process_id().context("the process has ended")
    }

    /// Bytes that it wrote and nothing has read.
    fn unread(&self) -> Result<i32> {
        let mut bytes: i32 = 0;
        let fd = self.master.as_raw_fd().context("no descriptor")?;
        // SAFETY: the descriptor is open, and the number outlives the call.
        let asked = unsafe { libc::ioctl(fd, libc::FIONREAD, &mut bytes) };
        ensure!(asked == 0, "FIONREAD: {}", std::io::Error::last_os_error());
        Ok(bytes)
    }

    /// Whether one of its threads waits in write(2).
    fn waits(&self) -> Result<bool> {
        let writes = libc::SYS_write.to_string();
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid()?))?;
        Ok(tasks.flatten().any(|task| {
            let call = fs::read_to_string(task.path().join("syscall")).unwrap_or_default();
            call.split(' ').next() == Some(&writes)
        }))
    }

    /// Its exit code after a signal.
    fn ended_by(&mut self, signal: libc::c_int) -> Result<u32> {
        // SAFETY: the child is ours and not reaped yet.
        unsafe { libc::kill(self.pid()? as libc::pid_t, signal) };
        let sent = Instant::now();
        let mut status = None;
        until("the program ends", || {
            status = self.child.try_wait()?;
            Ok(status.is_some())
        })?;
        ensure!(sent.elapsed() < PROMPT, "signal {signal}: it took {:?}", sent.elapsed());
        Ok(status.context("until it has one")?.exit_code())
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn a_terminal_that_is_held_holds_up_no_recording() -> Result<()> {
    let place = Place::new("held", None)?;
    let path = place.path.join("file");
    let size = PtySize { rows: 24, cols: 80, pixel_width: 0, pixel_height: 0 };
    let mut view = Unread::start(&["-d", "0.1", "--record", text(&path)?], size)?;
    until("a table of tasks was drawn", || Ok(samples(&path) > 1 && view.unread()? > 0))?;
    // Ctrl-S, as a terminal itself does it.
    // SAFETY: a plain call on a terminal that is open.
    unsafe { libc::tcflow(view.slave.as_raw_fd(), libc::TCOOFF) };
    let before = samples(&path);
    until("the recording goes on", || Ok(samples(&path) >= before + MANY))?;
    ensure!(view.ended_by(libc::SIGTERM)? == 128 + libc::SIGTERM as u32);
    is_on_time(&path, Duration::from_millis(100))
}

pub fn a_terminal_that_is_never_read_is_restored_all_the_same() -> Result<()> {
    for signal in [libc::SIGINT, libc::SIGHUP] {
        let place = Place::new("unread", None)?;
        let path = place.path.join("file");
        let size = PtySize { rows: 200, cols: 300, pixel_width: 0, pixel_height: 0 };
        let mut view = Unread::start(&["-d", "0.1", "--record", text(&path)?], size)?;
        let mut keys = view.master.take_writer()?;
        until("nothing more fits into the terminal", || {
            std::io::Write::write_all(&mut keys, b"\x0c")?;
            Ok(view.waits()? && samples(&path) > 1)
        })?;
        let code = view.ended_by(signal)?;
        ensure!(code == 128 + signal as u32, "signal {signal}: {code}");
        let mut screen = model(200, 300)?;
        let mut reader = view.master.try_clone_reader()?;
        while view.unread()? > 0 {
            let mut bytes = [0; 4096];
            let got = reader.read(&mut bytes)?;
            screen.process(&bytes[..got]);
        }
        let screen = screen.screen();
        ensure!(!screen.alternate_screen() && !screen.hide_cursor(), "signal {signal}: it is not restored");
        is_on_time(&path, Duration::from_millis(100))?;
    }
    Ok(())
}

pub fn a_closed_terminal_ends_the_live_view_without_a_panic() -> Result<()> {
    let size = PtySize { rows: 24, cols: 80, pixel_width: 0, pixel_height: 0 };
    let pty = native_pty_system().openpty(size)?;
    let mut command = CommandBuilder::new(program::path());
    command.args(["-d", "0.1"]);
    command.env("TERM", "xterm-256color");
    let mut child = pty.slave.spawn_command(command)?;
    drop(pty.slave);
    let mut reader = pty.master.try_clone_reader()?;
    let mut screen = model(24, 80)?;
    while !screen.screen().contents().contains("COMMAND") {
        let mut bytes = [0; 4096];
        let got = reader.read(&mut bytes)?;
        screen.process(&bytes[..got]);
    }
    drop((reader, pty.master));
    let mut status = None;
    until("the program ends", || {
        status = child.try_wait()?;
        Ok(status.is_some())
    })?;
    let code = status.context("until it has one")?.exit_code();
    ensure!(code == 128 + libc::SIGHUP as u32, "{code}");
    Ok(())
}

/// The intervals that a program writes as JSON.
fn lines(child: &mut Child) -> Result<impl Iterator<Item = Result<Value>> + use<>> {
    let out = BufReader::new(child.stdout.take().context("stdout")?);
    Ok(out.lines().map(|line| serde_json::from_str(&line?).context("a line is not JSON")))
}

fn length(interval: &Value) -> Result<Duration> {
    Ok(Duration::from_nanos(interval["interval_ns"].as_u64().context("interval_ns")?))
}

pub fn a_reader_that_takes_nothing_holds_up_no_recording() -> Result<()> {
    const ASKED: Duration = Duration::from_millis(100);
    // More than fit into a pipe.
    const SOME: u64 = 15;
    let place = Place::new("slow", None)?;
    let path = place.path.join("file");
    let words = ["-b", "-d", "0.1", "--json-full", "--record", text(&path)?];
    let mut child = Ours(Command::new(program::path()).args(words).stdout(Stdio::piped()).spawn()?);
    until("the recording goes on", || Ok(samples(&path) >= SOME))?;
    let mut behind = false;
    let mut total = Duration::ZERO;
    let mut intervals = lines(&mut child.0)?;
    while !behind {
        let interval = intervals.next().context("it ended")??;
        let (length, notes) = (length(&interval)?, interval["notes"].to_string());
        behind = notes.contains("the reader of the output was too slow");
        ensure!(!unexplained(length, ASKED, &notes), "{length:?}: {notes}");
        total += length;
    }
    // Nothing is left out between the intervals: together they are as long as the recording was then.
    ensure!(total >= ASKED * (SOME as u32 - 5), "the intervals are {total:?} together");
    child.signal(libc::SIGTERM)?;
    // Output on its way is taken.
    intervals.for_each(drop);
    let status = child.ended()?;
    ensure!(status.success(), "{status}");
    is_on_time(&path, ASKED)
}

pub fn a_stopped_process_says_so_and_no_interval_is_short() -> Result<()> {
    const ASKED: Duration = Duration::from_millis(500);
    let words = ["-b", "-d", "0.5", "-n", "5", "--json-full"];
    let mut child = Ours(Command::new(program::path()).args(words).stdout(Stdio::piped()).spawn()?);
    let mut intervals = lines(&mut child.0)?;
    let mut all = vec![intervals.next().context("it ended")??];
    child.signal(libc::SIGSTOP)?;
    let stat = format!("/proc/{}/stat", child.0.id());
    until("it is stopped", || Ok(fs::read_to_string(&stat)?.contains(") T ")))?;
    // Only the length of the stop matters: nothing else is waited for.
    std::thread::sleep(ASKED * 2 + ASKED / 4);
    child.signal(libc::SIGCONT)?;
    for interval in intervals {
        all.push(interval?);
    }
    ensure!(child.ended()?.success() && all.len() == 5, "{} intervals", all.len());
    for interval in &all {
        let (length, notes) = (length(interval)?, interval["notes"].to_string());
        ensure!(length * 2 + Duration::from_millis(60) >= ASKED, "an interval of {length:?}: {notes}");
        ensure!(!unexplained(length, ASKED, &notes), "{length:?}: {notes}");
    }
    ensure!(all.iter().any(|interval| interval["notes"].to_string().contains("was stopped")), "not said");
    Ok(())
}

pub fn a_recording_has_the_samples_that_were_asked_for_while_its_notes_are_not_read() -> Result<()> {
    const INTERVALS: u64 = 20;
    let place = Place::new("notes", None)?;
    let path = place.path.join("file");
    let (_reader, mut notes) = std::io::pipe()?;
    // SAFETY: plain calls on a pipe that is open.
    ensure!(unsafe { libc::fcntl(notes.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) } == 0);
    while std::io::Write::write(&mut notes, &[0; 4096]).is_ok() {}
    // SAFETY: as above.
    ensure!(unsafe { libc::fcntl(notes.as_raw_fd(), libc::F_SETFL, 0) } == 0);
    let intervals = INTERVALS.to_string();
    let words = ["record", "-d", "0.2", "-n", &intervals, text(&path)?];
    let mut child =
        Ours(Command::new(program::path()).args(words).stdin(Stdio::null()).stderr(notes).spawn()?);
    until("the recording has samples", || Ok(samples(&path) > 1))?;
    // A stop is a note.
    child.signal(libc::SIGSTOP)?;
    std::thread::sleep(Duration::from_millis(600));
    child.signal(libc::SIGCONT)?;
    let status = child.ended()?;
    ensure!(status.success(), "{status}");
    ensure!(samples(&path) == INTERVALS + 1, "{} samples for {INTERVALS} intervals", samples(&path));
    is_on_time(&path, Duration::from_millis(200))
}

/// numatop-ng that may write files of up to `bytes` bytes.
fn limited(words: &[&str], bytes: u64) -> Result<Ours> {
    let mut command = Command::new(program::path());
    command.args(words).stdin(Stdio::null()).stderr(Stdio::piped());
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: setrlimit may be called between fork and exec, and the struct outlives the call.
    unsafe {
        command.pre_exec(move || match libc::setrlimit(libc::RLIMIT_FSIZE, &limit) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    Ok(Ours(command.spawn()?))
}

pub fn a_limit_on_files_pauses_a_recording_and_is_named() -> Result<()> {
    let place = Place::new("limit", None)?;
    let path = place.path.join("file");
    let mut child = limited(&["record", "-d", "0.1", text(&path)?], 30 << 10)?;
    let mut said = String::new();
    BufReader::new(child.0.stderr.as_mut().context("stderr")?).read_line(&mut said)?;
    for word in ["paused", "File too large", "RLIMIT_FSIZE", "30720"] {
        ensure!(said.contains(word), "'{word}' is not said: {said}");
    }
    child.signal(libc::SIGTERM)?;
    let status = child.ended()?;
    ensure!(status.signal().is_none(), "{status}");
    let report = verify(&path)?;
    ensure!(report.is_intact() && report.samples > 0, "{report}");
    Ok(())
}

pub fn a_limit_on_files_rotates_a_ring() -> Result<()> {
    let place = Place::new("limits", None)?;
    let ring = place.path.join("ring/");
    let mut child = limited(&["record", "-d", "0.1", text(&ring)?], 30 << 10)?;
    let files = || -> Result<Vec<_>> {
        let mut files = fs::read_dir(&ring)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
        files.sort();
        Ok(files)
    };
    until("the second file has samples", || {
        Ok(files().is_ok_and(|files| files.len() > 1 && samples(&files[1]) > 1))
    })?;
    child.signal(libc::SIGTERM)?;
    let status = child.ended()?;
    ensure!(status.success(), "{status}");
    for file in files()? {
        let report = verify(&file)?;
        ensure!(report.is_intact() && report.gaps.is_empty(), "{report}");
    }
    // One interval after the other, from file to file.
    is_without_gaps(&ring, Duration::from_millis(100))
}

/// The documented exit code of a run without a screen.
fn code(signal: i32) -> i32 {
    match signal {
        libc::SIGHUP | libc::SIGINT | libc::SIGQUIT | libc::SIGTERM => 0,
        signal => 128 + signal,
    }
}

fn ending() -> [i32; 5] {
    [libc::SIGINT, libc::SIGQUIT, libc::SIGUSR2, libc::SIGXCPU, libc::SIGRTMIN()]
}

pub fn each_signal_ends_what_measures_with_its_code() -> Result<()> {
    let place = Place::new("each", None)?;
    let mut runs = Vec::new();
    for signal in ending() {
        let path = place.path.join(signal.to_string());
        let batch = Command::new(program::path()).args(["-b", "-d", "0.2"]).stdout(Stdio::piped()).spawn()?;
        let record = Command::new(program::path()).args(["record", "-d", "0.2", text(&path)?]).spawn()?;
        runs.push((signal, path, Ours(batch), Ours(record)));
    }
    for (signal, path, mut batch, mut record) in runs {
        let mut out = BufReader::new(batch.0.stdout.take().context("stdout")?);
        let mut written = Vec::new();
        out.read_until(b'\n', &mut written)?;
        batch.signal(libc::SIGUSR1)?;
        batch.signal(signal)?;
        std::io::Read::read_to_end(&mut out, &mut written)?;
        let status = batch.ended()?;
        ensure!(status.code() == Some(code(signal)), "batch, signal {signal}: {status}");
        ensure!(written.ends_with(b"\n"), "signal {signal}: the last line is torn");
        until("the recording has samples", || Ok(samples(&path) > 0))?;
        record.signal(signal)?;
        let status = record.ended()?;
        ensure!(status.code() == Some(code(signal)), "record, signal {signal}: {status}");
        let report = verify(&path)?;
        ensure!(report.is_intact() && report.end == Some(End::Stopped), "signal {signal}: {report}");
    }
    Ok(())
}
