//! Starts one guest and sees it through to its end: console, results, deadline.

use std::fs::DirBuilder;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use vmtests_protocol::{Event, Line, Machine, parse_line};

use crate::kernels::Arch;
use crate::qemu::{self, Files, Lines, Start};

/// Of a disk with a file system; only its metadata takes place.
const DISK_SIZE: &str = "256M";

/// The process that is started.
pub struct Guest<'a> {
    pub start: Start<'a>,
    pub initramfs: &'a [u8],
}

/// For what hangs: how long a guest may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// From the start to its ready line.
    pub boot: Duration,
    /// From then on, for each case, and for its end.
    pub case: Duration,
}

impl Limits {
    /// The rest of the current limit, `elapsed` after the start of a guest. `stepped` is the time when it
    /// became ready, or began or ended a case. Also the kind of end when nothing is left.
    fn left(self, stepped: Option<Duration>, elapsed: Duration) -> (Duration, End) {
        match stepped {
            None => (self.boot.saturating_sub(elapsed), End::BootDeadline(self.boot)),
            Some(stepped) => ((stepped + self.case).saturating_sub(elapsed), End::Deadline(self.case)),
        }
    }
}

/// The result.
#[derive(Debug)]
pub struct Ran {
    pub end: End,
    pub ready: bool,
    pub console: String,
    pub seconds: f64,
}

#[derive(Debug, PartialEq)]
pub enum End {
    /// The guest reported EXIT and this code.
    Exit(i32),
    /// QEMU ended and the guest had not reported EXIT.
    Died(String),
    /// It did not get ready in this time.
    BootDeadline(Duration),
    /// One case took longer than this.
    Deadline(Duration),
    /// A line on the result channel was not a result.
    Noise(String),
}

/// Runs a guest, handing each event over as it comes.
pub fn run(guest: &Guest, limits: Limits, mut on_event: impl FnMut(Event)) -> Result<Ran, String> {
    let scratch = Scratch::new()?;
    let initrd = scratch.path("initrd");
    std::fs::write(&initrd, guest.initramfs)
        .map_err(|error| format!("writing {}: {error}", initrd.display()))?;
    let socket = scratch.path("results");
    let listener =
        UnixListener::bind(&socket).map_err(|error| format!("listening on {}: {error}", socket.display()))?;
    let lines = Lines::Test { results: &socket };
    let started = Instant::now();
    let disk = scratch.disk(guest.start.machine)?;
    let arguments = qemu::arguments(&guest.start, Files { initrd: &initrd, disk: disk.as_deref() }, &lines);
    let mut qemu = start(guest.start.arch, arguments, Stdio::null(), Stdio::piped())?;
    let console = qemu.drain();
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let Ok((stream, _)) = listener.accept() else { return };
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if !line.trim().is_empty() && sender.send(line).is_err() {
                return;
            }
        }
    });

    let mut stepped = None;
    let mut exit = None;
    let end = loop {
        let (left, too_late) = limits.left(stepped, started.elapsed());
        match receiver.recv_timeout(left.min(Duration::from_millis(500))) {
            Ok(line) => match parse_line(&line) {
                Ok(Line::Event(event)) => {
                    if let Event::Ready { .. } = event {
                        // QEMU has read it; nothing of its size is left behind if we are ended now.
                        let _ = std::fs::remove_file(&initrd);
                    }
                    if let Event::Ready { .. } | Event::Begin { .. } | Event::End { .. } = event {
                        stepped = Some(started.elapsed());
                    }
                    on_event(event);
                }
                Ok(Line::Exit(code)) => exit = Some(code),
                Err(why) => break End::Noise(why),
            },
            Err(_) if left.is_zero() => break too_late,
            // No result line for a while, or none to come: QEMU may have ended.
            Err(reason) => {
                let ended = qemu.ended()?;
                match (ended, exit) {
                    (Some(_), Some(code)) => break End::Exit(code),
                    // The last output of QEMU may still be on its way through the thread.
                    (Some(status), None) if reason == RecvTimeoutError::Disconnected || stepped.is_none() => {
                        break End::Died(status);
                    }
                    (None, _) if reason == RecvTimeoutError::Disconnected => {
                        thread::sleep(Duration::from_millis(50));
                    }
                    _ => {}
                }
            }
        }
    };
    qemu.stop();
    let console = console.join().unwrap_or_default();
    Ok(Ran { end, ready: stepped.is_some(), console, seconds: started.elapsed().as_secs_f64() })
}

/// Starts a guest whose console is this terminal and waits for its end.
pub fn shell(guest: &Guest) -> Result<(), String> {
    let scratch = Scratch::new()?;
    let initrd = scratch.path("initrd");
    std::fs::write(&initrd, guest.initramfs)
        .map_err(|error| format!("writing {}: {error}", initrd.display()))?;
    let disk = scratch.disk(guest.start.machine)?;
    let files = Files { initrd: &initrd, disk: disk.as_deref() };
    let arguments = qemu::arguments(&guest.start, files, &Lines::Shell);
    let mut qemu = start(guest.start.arch, arguments, Stdio::inherit(), Stdio::inherit())?;
    let status = qemu.child.wait().map_err(|error| format!("waiting for QEMU: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("QEMU ended with {status}")) }
}

/// A QEMU that ends when this goes out of scope.
struct Qemu {
    child: Child,
}

fn start(
    arch: Arch,
    arguments: Vec<std::ffi::OsString>,
    stdin: Stdio,
    stdout: Stdio,
) -> Result<Qemu, String> {
    let program = qemu::program(arch);
    // setpriv becomes QEMU (same pid) and asks the kernel to kill it should the runner be killed.
    let child = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "--", program])
        .args(arguments)
        .stdin(stdin)
        .stderr(Stdio::inherit())
        .stdout(stdout)
        .spawn()
        .map_err(|error| format!("setpriv {program} cannot be run: {error}; see vmtests/install-deps"))?;
    Ok(Qemu { child })
}

impl Qemu {
    /// Collects the console until QEMU closes it.
    fn drain(&mut self) -> thread::JoinHandle<String> {
        let mut stdout = self.child.stdout.take().expect("stdout was asked for");
        thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = stdout.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        })
    }

    fn ended(&mut self) -> Result<Option<String>, String> {
        let status = self.child.try_wait().map_err(|error| format!("waiting for QEMU: {error}"))?;
        Ok(status.map(|status| format!("QEMU ended with {status} and no EXIT line")))
    }

    /// Kills this child only, by its pid.
    fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A directory that only we may read, removed when this goes out of scope.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self, String> {
        // Short, because the path of a socket ends at 108 bytes.
        static MADE: AtomicU32 = AtomicU32::new(0);
        loop {
            let (pid, nth) = (std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
            let path = std::env::temp_dir().join(format!("numatop-vm.{pid}.{nth}"));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Scratch(path)),
                // From a process that ended long ago, or one of another user that reused its number: not
                // ours.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(format!("creating {}: {error}", path.display())),
            }
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The file with the file system of a machine's disk, if it begins with one. Nothing is left for the kernel to write later.
    fn disk(&self, machine: &Machine) -> Result<Option<PathBuf>, String> {
        let Some(format) = &machine.disk_format else { return Ok(None) };
        let disk = self.path("disk");
        let made = Command::new("mke2fs")
            .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
            .args(["-q", "-F", "-t", format, "-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0"])
            .arg(&disk)
            .arg(DISK_SIZE)
            .output()
            .map_err(|error| format!("mke2fs cannot be run: {error}; see vmtests/install-deps"))?;
        if !made.status.success() {
            return Err(format!("mke2fs: {}", String::from_utf8_lossy(&made.stderr).trim()));
        }
        Ok(Some(disk))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_that_never_gets_ready_has_the_limit_of_a_boot() {
        let seconds = Duration::from_secs;
        let limits = Limits { boot: seconds(180), case: seconds(310) };
        let (boot, case) = (End::BootDeadline(seconds(180)), End::Deadline(seconds(310)));
        assert_eq!(limits.left(None, seconds(170)), (seconds(10), boot));
        assert_eq!(limits.left(None, seconds(200)).0, seconds(0));
        assert_eq!(limits.left(Some(seconds(12)), seconds(200)), (seconds(122), case));
        assert_eq!(limits.left(Some(seconds(900)), seconds(1000)).0, seconds(210));
        assert_eq!(limits.left(Some(seconds(12)), seconds(400)).0, seconds(0));
    }
}
