//! The time at which a program finished writing the text of a refresh, and the true state at that moment.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::process::Process;

/// The first line of a refresh.
pub struct Frame<T> {
    pub at: Instant,
    pub line: String,
    /// The answer of `probe` when the line arrived.
    pub probed: T,
}

/// A running program and its refreshes.
pub struct Frames<T> {
    pub process: Process,
    frames: Receiver<Frame<T>>,
    what: String,
}

impl<T: Send + 'static> Frames<T> {
    /// Starts `command`. For each line of its output that `begins` a refresh, `probe` is called with
    /// the process id at once; other lines are read and dropped.
    ///
    /// # Errors
    /// The program could not be started.
    pub fn start(
        command: &mut Command,
        begins: fn(&str) -> bool,
        mut probe: impl FnMut(u32) -> T + Send + 'static,
    ) -> Result<Frames<T>> {
        let mut process = Process::start(command.stdout(Stdio::piped()).stderr(Stdio::inherit()))?;
        let out = process.child().stdout.take().context("standard output was asked for as a pipe")?;
        let pid = process.pid();
        let (send, frames) = channel();
        // Ends with the program, or when the receiver is gone.
        thread::spawn(move || {
            let mut out = BufReader::with_capacity(1 << 20, out);
            let mut bytes = Vec::new();
            loop {
                bytes.clear();
                if !matches!(out.read_until(b'\n', &mut bytes), Ok(1..)) {
                    return;
                }
                let at = Instant::now();
                let line = String::from_utf8_lossy(&bytes);
                if !begins(&line) {
                    continue;
                }
                let probed = probe(pid);
                let frame = Frame { at, line: line.into_owned(), probed };
                if send.send(frame).is_err() {
                    return;
                }
            }
        });
        Ok(Frames { process, frames, what: format!("{command:?}") })
    }

    /// The next refresh.
    ///
    /// # Errors
    /// None came within `patience`, or the program ended.
    pub fn next(&mut self, patience: Duration) -> Result<Frame<T>> {
        match self.frames.recv_timeout(patience) {
            Ok(frame) => Ok(frame),
            Err(RecvTimeoutError::Timeout) => bail!("no output within {patience:?} from {}", self.what),
            Err(RecvTimeoutError::Disconnected) => bail!("{} ended too early", self.what),
        }
    }
}

/// A line of JSON Lines.
pub fn any_line(_: &str) -> bool {
    true
}
