//! numatop-ng in a pseudo-terminal, with a model of the screen behind it.

#![allow(dead_code, reason = "each test target uses a part")]

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::num::NonZero;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use portable_pty::{Child, CommandBuilder, ExitStatus, MasterPty, PtySize, SlavePty, native_pty_system};

use crate::program;

/// A limit for hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Dropping it ends the program.
pub struct Terminal {
    master: Box<dyn MasterPty + Send>,
    child: Box<dyn Child + Send + Sync>,
    keys: Box<dyn Write + Send>,
    output: Receiver<Vec<u8>>,
    pub screen: vt100::Parser,
    /// All that the program wrote, as far as it was taken in.
    pub raw: Vec<u8>,
}

fn size(rows: u16, cols: u16) -> PtySize {
    PtySize { rows, cols, pixel_width: 0, pixel_height: 0 }
}

fn cells(cells: u16) -> Result<NonZero<u16>> {
    NonZero::new(cells).context("a screen has cells")
}

/// A screen with nothing on it.
pub fn model(rows: u16, cols: u16) -> Result<vt100::Parser> {
    Ok(vt100::Parser::new(cells(rows)?, cells(cols)?, 0))
}

impl Terminal {
    /// A terminal that is gone once the program is.
    pub fn start<S: AsRef<OsStr>>(words: &[S], rows: u16, cols: u16) -> Result<Terminal> {
        Ok(Terminal::start_and_keep(words, rows, cols)?.0)
    }

    /// The same with the side that the program writes to: the modes of a terminal go with its last user.
    pub fn start_and_keep<S: AsRef<OsStr>>(
        words: &[S],
        rows: u16,
        cols: u16,
    ) -> Result<(Terminal, Box<dyn SlavePty + Send>)> {
        let mut command = CommandBuilder::new(program::path());
        command.args(words);
        // Settings of the user who runs the tests must not apply.
        command.env("NUMATOP_NG_CONFIG", "/nonexistent/config.toml");
        Terminal::run(command, rows, cols)
    }

    /// Any command.
    pub fn run(
        mut command: CommandBuilder,
        rows: u16,
        cols: u16,
    ) -> Result<(Terminal, Box<dyn SlavePty + Send>)> {
        let pty = native_pty_system().openpty(size(rows, cols))?;
        command.env("TERM", "xterm-256color");
        command.env_remove("NO_COLOR");
        let child = pty.slave.spawn_command(command)?;
        let mut reader = pty.master.try_clone_reader()?;
        let (sender, output) = channel();
        thread::spawn(move || {
            let mut buffer = [0; 16 * 1024];
            // A terminal whose other side is closed ends in EIO.
            while let Ok(got @ 1..) = reader.read(&mut buffer) {
                if sender.send(buffer[..got].to_vec()).is_err() {
                    return;
                }
            }
        });
        let keys = pty.master.take_writer()?;
        let screen = model(rows, cols)?;
        Ok((Terminal { master: pty.master, child, keys, output, screen, raw: Vec::new() }, pty.slave))
    }

    /// Reads the next output, for which it waits this time. False at the end: the program and its terminal
    /// are gone.
    pub fn take_in(&mut self, wait: Duration) -> bool {
        let got = self.output.recv_timeout(wait);
        if let Ok(bytes) = &got {
            self.raw.extend(bytes);
            self.screen.process(bytes);
        }
        got != Err(RecvTimeoutError::Disconnected)
    }

    pub fn text(&self) -> String {
        self.screen.screen().contents()
    }

    /// Waits until the screen fulfils `wanted`.
    pub fn until(&mut self, what: &str, wanted: impl Fn(&str) -> bool) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        while !wanted(&self.text()) {
            ensure!(Instant::now() < end, "no {what} on the screen:\n{}", self.text());
            ensure!(self.take_in(Duration::from_millis(50)), "it ended without {what}:\n{}", self.text());
        }
        Ok(())
    }

    /// The line that is shown in reverse: the selected row.
    pub fn selected(&self) -> Option<String> {
        let screen = self.screen.screen();
        let (rows, cols) = screen.size();
        let is_reverse = |row: &u16| screen.cell(*row, 2).is_some_and(vt100::Cell::inverse);
        (0..rows.get()).rfind(is_reverse).map(|row| screen.contents_between(row, 0, row, cols.get()))
    }

    /// Presses a key until the selected row is a wanted one, and gives up when the selection stops moving.
    pub fn select(&mut self, key: &str, wanted: impl Fn(&str) -> bool) -> Result<bool> {
        loop {
            let before = self.selected();
            if before.as_deref().is_some_and(&wanted) {
                return Ok(true);
            }
            self.press(key)?;
            let started = Instant::now();
            while self.selected() == before {
                if !self.take_in(Duration::from_millis(500)) || started.elapsed() > Duration::from_secs(5) {
                    return Ok(false);
                }
            }
        }
    }

    pub fn press(&mut self, keys: &str) -> Result<()> {
        self.keys.write_all(keys.as_bytes())?;
        self.keys.flush().context("pressing a key")
    }

    pub fn resize(&mut self, rows: u16, cols: u16) -> Result<()> {
        self.master.resize(size(rows, cols))?;
        self.screen.screen_mut().set_size(cells(rows)?, cells(cols)?);
        Ok(())
    }

    /// Whether keys are not handled by the kernel.
    pub fn is_raw(&self) -> bool {
        self.master.get_termios().is_some_and(|modes| modes.local_flags.bits() & libc::ICANON == 0)
    }

    pub fn pid(&self) -> Result<u32> {
        self.child.process_id().context("the child has ended")
    }

    /// Its exit status, once it has ended.
    pub fn status(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Waits for its end, and collects all of its output up to it.
    pub fn ended(&mut self) -> Result<ExitStatus> {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if !self.take_in(Duration::from_millis(20)) {
                return Ok(self.child.wait()?);
            }
        }
        self.child.kill()?;
        bail!("it did not end; the screen:\n{}", self.text())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Another process may have the pid of one that was waited for.
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
