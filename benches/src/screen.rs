//! A full-screen program in a separate terminal: its content, and the times at which it draws.

use std::io::{Read, Write};
use std::num::NonZero;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};

use crate::process::cpu_time;

const ROWS: NonZero<u16> = NonZero::new(50).expect("not zero");
const COLUMNS: NonZero<u16> = NonZero::new(160).expect("not zero");

/// A pause in the output this long separates two refreshes.
const PAUSE: Duration = Duration::from_millis(200);

/// A running program. It is killed when this goes away.
pub struct Screen {
    child: Box<dyn Child + Send + Sync>,
    shared: Arc<Mutex<Shared>>,
    began: Instant,
    keys: Box<dyn Write + Send>,
    // Closing it hangs up the terminal: keep it as long as the program.
    _master: Box<dyn MasterPty + Send>,
}

struct Shared {
    parser: vt100::Parser,
    last: Option<Instant>,
    /// When a refresh began to be drawn, and the CPU time of the program at that moment.
    refreshes: Vec<(Instant, Duration)>,
}

impl Screen {
    /// Runs `program` with `args` and extra environment in a terminal of 160 by 50.
    ///
    /// # Errors
    /// No terminal could be opened, or the program could not be executed.
    pub fn start(program: &str, args: &[&str], env: &[(&str, &str)]) -> Result<Screen> {
        let size = PtySize { rows: ROWS.get(), cols: COLUMNS.get(), pixel_width: 0, pixel_height: 0 };
        let pty = native_pty_system().openpty(size).map_err(error).context("opening a terminal")?;
        let mut command = CommandBuilder::new(program);
        command.args(args);
        command.cwd(std::env::current_dir()?);
        command.env("TERM", "xterm-256color");
        for (name, value) in env {
            command.env(name, value);
        }
        let mut reader = pty.master.try_clone_reader().map_err(error)?;
        let keys = pty.master.take_writer().map_err(error)?;
        let began = Instant::now();
        let child = pty.slave.spawn_command(command).map_err(error).context(format!("starting {program}"))?;
        drop(pty.slave);
        let pid = child.process_id().context("the program has no process id")?;
        let parser = vt100::Parser::new(ROWS, COLUMNS, 0);
        let shared = Arc::new(Mutex::new(Shared { parser, last: None, refreshes: Vec::new() }));
        let sink = Arc::clone(&shared);
        // Ends with the program.
        thread::spawn(move || {
            let mut bytes = [0; 1 << 16];
            while let Ok(got @ 1..) = reader.read(&mut bytes) {
                let now = Instant::now();
                let cpu = cpu_time(pid);
                let mut shared = sink.lock().unwrap_or_else(PoisonError::into_inner);
                if shared.last.is_none_or(|last| now - last > PAUSE)
                    && let Ok(cpu) = cpu
                {
                    shared.refreshes.push((now, cpu));
                }
                shared.last = Some(now);
                shared.parser.process(&bytes[..got]);
            }
        });
        Ok(Screen { child, shared, began, keys, _master: pty.master })
    }

    pub fn pid(&self) -> u32 {
        self.child.process_id().unwrap_or(0)
    }

    /// The text on the screen. A program that only prints, without taking the whole screen, shows nothing.
    pub fn text(&self) -> String {
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let screen = shared.parser.screen();
        if screen.alternate_screen() { screen.contents() } else { String::new() }
    }

    /// Types these keys.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn press(&mut self, keys: &str) -> Result<()> {
        self.keys.write_all(keys.as_bytes()).and_then(|()| self.keys.flush()).context("pressing a key")
    }

    /// Waits until the screen is as `wanted`; the time since the start.
    ///
    /// # Errors
    /// It was not within `patience`, or the program ended.
    pub fn wait_for(&mut self, wanted: fn(&str) -> bool, patience: Duration) -> Result<Duration> {
        loop {
            let now = self.began.elapsed();
            if wanted(&self.text()) {
                return Ok(now);
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("the program ended ({status}) and left on the screen: {}", self.text());
            }
            if now > patience {
                bail!("not on the screen within {patience:?}; the screen shows: {}", self.text());
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits for `count` whole refreshes from now on; the CPU time of each, and the seconds from one to the next.
    ///
    /// # Errors
    /// They did not come within `patience`.
    pub fn refreshes(&mut self, count: usize, patience: Duration) -> Result<(Duration, f64)> {
        let began = Instant::now();
        let first = self.shared.lock().unwrap_or_else(PoisonError::into_inner).refreshes.len();
        loop {
            {
                let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
                if let [from, .., to] = &shared.refreshes[first..]
                    && shared.refreshes.len() - first > count
                {
                    return Ok((
                        (to.1 - from.1) / count as u32,
                        (to.0 - from.0).as_secs_f64() / count as f64,
                    ));
                }
            }
            if began.elapsed() > patience {
                bail!("no {count} refreshes within {patience:?}; the screen shows: {}", self.text());
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Gone already is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The library's error type is a separate version of anyhow.
fn error(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("{error:#}")
}
