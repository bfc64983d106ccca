//! A program in a pseudo terminal, and the content of its screen.

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZero;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::cases::Stop;
use crate::tty;

pub struct Screen {
    child: Child,
    keys: File,
    parser: Arc<Mutex<vt100::Parser>>,
    /// Ends when the program and its terminal are gone.
    reader: Option<JoinHandle<()>>,
}

impl Screen {
    /// Starts the program with a terminal of this size as its only one.
    pub fn start(mut command: Command, rows: NonZero<u16>, cols: NonZero<u16>) -> Result<Self, Stop> {
        let (ours, theirs) = tty::pair(rows.get(), cols.get())
            .map_err(|error| format!("opening a pseudo terminal: {error}"))?;
        let copy = || theirs.try_clone().map_err(|error| format!("copying a descriptor: {error}"));
        command
            .stdin(copy()?)
            .stdout(copy()?)
            .stderr(copy()?)
            .env("TERM", "xterm-256color")
            .env("LANG", "C.UTF-8");
        let fd = theirs.as_raw_fd();
        // SAFETY: the closure makes two system calls and allocates nothing; theirs lives until after spawn.
        unsafe {
            command.pre_exec(move || tty::take_as_terminal(fd));
        }
        let child = command.spawn().map_err(|error| format!("starting the tool: {error}"))?;
        drop((command, theirs));
        let keys = File::from(ours);
        let mut output = keys.try_clone().map_err(|error| format!("copying a descriptor: {error}"))?;
        let parser = Arc::new(Mutex::new(vt100::Parser::new(rows, cols, 0)));
        let fill = Arc::clone(&parser);
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // A pseudo terminal with no open end left gives EIO.
            while let Ok(count) = output.read(&mut buffer) {
                if count == 0 {
                    return;
                }
                fill.lock().expect("nobody panics with the lock").process(&buffer[..count]);
            }
        });
        Ok(Screen { child, keys, parser, reader: Some(reader) })
    }

    /// The text on the screen now, line by line.
    pub fn text(&self) -> String {
        self.look(vt100::Screen::contents)
    }

    pub fn alternate(&self) -> bool {
        self.look(vt100::Screen::alternate_screen)
    }

    pub fn cursor_hidden(&self) -> bool {
        self.look(vt100::Screen::hide_cursor)
    }

    fn look<T>(&self, what: impl Fn(&vt100::Screen) -> T) -> T {
        what(self.parser.lock().expect("nobody panics with the lock").screen())
    }

    /// Waits until the screen is as wanted; returns whether that happened before the program ended.
    pub fn wait_for(&mut self, limit: Duration, wanted: impl Fn(&str) -> bool) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            if wanted(&self.text()) {
                return true;
            }
            let ended = matches!(self.child.try_wait(), Ok(Some(_)));
            if ended || Instant::now() > deadline {
                return wanted(&self.text());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub fn type_keys(&mut self, keys: &str) -> Result<(), Stop> {
        self.keys.write_all(keys.as_bytes()).map_err(|error| Stop::fail(format!("typing {keys:?}: {error}")))
    }

    /// Waits for the program to end; its exit code, or what killed it.
    pub fn end(&mut self, limit: Duration) -> Result<String, Stop> {
        let deadline = Instant::now() + limit;
        loop {
            match self.child.try_wait().map_err(|error| format!("waiting for the tool: {error}"))? {
                Some(status) => {
                    // The last output may still be on its way.
                    if let Some(reader) = self.reader.take() {
                        reader.join().map_err(|_| "the reader of the screen panicked".to_owned())?;
                    }
                    return Ok(status.code().map_or_else(|| status.to_string(), |code| code.to_string()));
                }
                None if Instant::now() > deadline => return Ok("it did not end".to_owned()),
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
