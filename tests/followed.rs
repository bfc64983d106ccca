//! A recording that is followed on the screen, and what becomes of its file meanwhile.

use std::fs::{self, OpenOptions};
use std::io::Read;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use portable_pty::{CommandBuilder, MasterPty, PtySize, native_pty_system};

const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/recordings/format-1.nrec");

/// A limit for what hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A copy of the recording in a directory of its own.
struct Copy(PathBuf);

impl Copy {
    fn new(name: &str) -> Copy {
        let dir = std::env::temp_dir().join(format!("numatop-ng-{name}-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        fs::copy(FIXTURE, dir.join("file")).unwrap();
        Copy(dir)
    }

    fn path(&self) -> PathBuf {
        self.0.join("file")
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// `replay --follow` in a pseudo-terminal of one wide screen.
struct View {
    _master: Box<dyn MasterPty + Send>,
    child: Box<dyn portable_pty::Child + Send + Sync>,
    output: Receiver<Vec<u8>>,
    screen: vt100::Parser,
}

impl View {
    fn follow(path: &Path) -> View {
        let (rows, cols) = (30, 250);
        let size = PtySize { rows, cols, pixel_width: 0, pixel_height: 0 };
        let pty = native_pty_system().openpty(size).unwrap();
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_numatop-ng"));
        command.args(["replay", "--follow"]);
        command.arg(path);
        command.env("TERM", "xterm-256color");
        let child = pty.slave.spawn_command(command).unwrap();
        let mut reader = pty.master.try_clone_reader().unwrap();
        let (sender, output) = channel();
        thread::spawn(move || {
            let mut buffer = [0; 16 * 1024];
            while let Ok(got @ 1..) = reader.read(&mut buffer) {
                if sender.send(buffer[..got].to_vec()).is_err() {
                    return;
                }
            }
        });
        let cells = |cells| NonZero::new(cells).unwrap();
        let screen = vt100::Parser::new(cells(rows), cells(cols), 0);
        View { _master: pty.master, child, output, screen }
    }

    /// Waits until the screen has this in a row.
    fn until(&mut self, wanted: &str) {
        let end = Instant::now() + PATIENCE;
        while !self.text().contains(wanted) {
            assert!(Instant::now() < end, "no '{wanted}' on the screen:\n{}", self.text());
            if let Ok(bytes) = self.output.recv_timeout(Duration::from_millis(50)) {
                self.screen.process(&bytes);
            }
        }
    }

    fn text(&self) -> String {
        self.screen.screen().contents()
    }

    fn title(&self) -> String {
        self.text().lines().next().unwrap_or_default().to_string()
    }
}

impl Drop for View {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_screen_says_that_the_file_it_follows_was_removed() {
    let copy = Copy::new("removed");
    let mut view = View::follow(&copy.path());
    view.until("follows");
    fs::remove_file(copy.path()).unwrap();
    view.until("was removed while it was followed: no more can come");
    assert!(!view.title().contains("follows"), "{}", view.title());
}

#[test]
fn the_screen_says_that_the_file_it_follows_was_emptied_and_goes_on_with_it() {
    let copy = Copy::new("emptied");
    let whole = fs::read(copy.path()).unwrap();
    let mut view = View::follow(&copy.path());
    view.until("follows");
    // It must be at the end before the file is emptied.
    view.until("COMMAND");
    let file = OpenOptions::new().write(true).open(copy.path()).unwrap();
    file.set_len(0).unwrap();
    view.until("was cut to 0 bytes, and is waited for to grow again");
    assert!(view.title().contains("follows"), "{}", view.title());
    fs::write(copy.path(), whole).unwrap();
    let end = Instant::now() + PATIENCE;
    while view.text().contains("was cut to 0 bytes") {
        assert!(Instant::now() < end, "it is said of a file that has grown again:\n{}", view.text());
        if let Ok(bytes) = view.output.recv_timeout(Duration::from_millis(50)) {
            view.screen.process(&bytes);
        }
    }
}
