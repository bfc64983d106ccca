//! A home whose file system never answers: every mode continues, reports missing data, and ends at SIGTERM.
//! Needs root and FUSE.
#![expect(unsafe_code, reason = "mounts")]

#[path = "common/program.rs"]
mod program;
#[path = "common/scratch.rs"]
mod scratch;
#[path = "common/terminal.rs"]
mod terminal;

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use libtest_mimic::{Arguments, Trial};
use numatop_ng::host::cgroup_walk::{Walk, find_ids};
use numatop_ng::host::cgroups;
use portable_pty::CommandBuilder;
use rustix::process::{Pid, Signal, kill_process};
use scratch::Scratch;
use terminal::Terminal;

const UID: u32 = 54_242;

/// A limit for hangs.
const PATIENCE: Duration = Duration::from_secs(60);

fn until(what: &str, mut is: impl FnMut() -> bool) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    while !is() {
        if Instant::now() >= end {
            bail!("waited in vain: {what}");
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// A file system that describes its root and answers nothing else.
struct Silent {
    at: PathBuf,
    device: Arc<File>,
}

impl Silent {
    fn mount(at: &Path) -> Result<Silent> {
        let device = OpenOptions::new().read(true).write(true).open("/dev/fuse")?;
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", device.as_raw_fd());
        let words = [at.to_str().context("a path in UTF-8")?, &options].map(CString::new);
        let [place, options] = words;
        let (place, options) = (place?, options?);
        // SAFETY: all four texts end with a zero and outlive the call.
        let mounted = unsafe {
            libc::mount(c"silent".as_ptr(), place.as_ptr(), c"fuse".as_ptr(), 0, options.as_ptr().cast())
        };
        ensure!(mounted == 0, "mounting: {}", std::io::Error::last_os_error());
        let device = Arc::new(device);
        let server = Arc::clone(&device);
        thread::spawn(move || serve(&server));
        Ok(Silent { at: at.to_owned(), device })
    }
}

/// Answers FUSE_INIT, and FUSE_GETATTR of the root (include/uapi/linux/fuse.h), until the mount is gone.
fn serve(device: &File) {
    let mut request = vec![0; 1 << 18];
    let mut device = device;
    while let Ok(length) = device.read(&mut request) {
        let word = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().unwrap());
        let node = u64::from_ne_bytes(request[16..24].try_into().unwrap());
        if length < 40 {
            continue;
        }
        let body = match (word(4), node) {
            (26, _) => {
                let mut body = vec![0; 64];
                body[..4].copy_from_slice(&7_u32.to_ne_bytes());
                body[4..8].copy_from_slice(&31_u32.to_ne_bytes());
                body[20..24].copy_from_slice(&4096_u32.to_ne_bytes());
                body
            }
            (3, 1) => {
                let mut body = vec![0; 104];
                body[16..24].copy_from_slice(&1_u64.to_ne_bytes());
                body[76..80].copy_from_slice(&0o40_755_u32.to_ne_bytes());
                body[80..84].copy_from_slice(&2_u32.to_ne_bytes());
                body
            }
            // FUSE_ACCESS: not implemented, which lets all users in.
            (34, 1) => Vec::new(),
            _ => continue,
        };
        let error = if word(4) == 34 { -libc::ENOSYS } else { 0 };
        let mut answer = ((16 + body.len()) as u32).to_ne_bytes().to_vec();
        answer.extend(error.to_ne_bytes());
        answer.extend_from_slice(&request[8..16]);
        answer.extend(body);
        let _ = device.write(&answer);
    }
}

impl Drop for Silent {
    /// Processes that wait for an answer get an error.
    fn drop(&mut self) {
        if let Ok(place) = CString::new(self.at.as_os_str().as_encoded_bytes()) {
            // SAFETY: the text ends with a zero and outlives the call.
            unsafe { libc::umount2(place.as_ptr(), libc::MNT_FORCE | libc::MNT_DETACH) };
        }
        let _ = &self.device;
    }
}

/// A host with a user whose home does not answer and who has a container.
struct World {
    root: Scratch,
    cgroups: Vec<PathBuf>,
    inside: Child,
    silent: Option<Silent>,
}

impl World {
    fn new() -> Result<World> {
        let root = Scratch::new();
        fs::create_dir_all(root.join("etc"))?;
        fs::write(
            root.join("etc/passwd"),
            format!("root:x:0:0::/root:/bin/sh\nmallory:x:{UID}:{UID}::/home/mallory:/bin/sh\n"),
        )?;
        let home = root.join("home/mallory");
        let storage = home.join(".local/share/containers/storage");
        fs::create_dir_all(&storage)?;
        let mount = cgroups::choose(Path::new("/")).mount.context("no cgroups")?;
        let mut at = mount;
        let mut cgroups = Vec::new();
        let scope = format!("libpod-{}.scope", "a7".repeat(32));
        let slice = format!("user-{UID}.slice");
        let manager = format!("user@{UID}.service");
        for part in ["user.slice", &slice, &manager, "user.slice", &scope] {
            at.push(part);
            if !at.exists() {
                fs::create_dir(&at)?;
                cgroups.push(at.clone());
            }
        }
        let inside = Command::new("sleep").arg("600").spawn()?;
        fs::write(at.join("cgroup.procs"), inside.id().to_string())?;
        let silent = Some(Silent::mount(&storage)?);
        Ok(World { root, cgroups, inside, silent })
    }

    fn words<'a>(&'a self, words: &[&'a str]) -> Vec<&'a str> {
        [words, &["--host-root", self.root.path().to_str().unwrap_or_default()]].concat()
    }

    fn start(&self, words: &[&str], out: &File) -> Result<Run> {
        let mut command = Command::new(program::path());
        command.args(self.words(words)).stdin(Stdio::null());
        Ok(Run(command.stdout(out.try_clone()?).stderr(out.try_clone()?).spawn()?))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.silent = None;
        let _ = self.inside.kill();
        let _ = self.inside.wait();
        for cgroup in self.cgroups.iter().rev() {
            let end = Instant::now() + PATIENCE;
            while fs::remove_dir(cgroup).is_err() && cgroup.exists() && Instant::now() < end {
                thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

struct Run(Child);

impl Run {
    fn terminated(&mut self) -> Result<()> {
        kill_process(Pid::from_child(&self.0), Signal::TERM)?;
        until("the end after SIGTERM", || matches!(self.0.try_wait(), Ok(Some(_))))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.0.kill();
    }
}

const REASON: &str = "that user's home directory does not respond";

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn batch() -> Result<()> {
    let world = World::new()?;
    let path = world.root.join("out");
    let out = File::create(&path)?;
    let mut run = world.start(&["-b", "-d", "0.2", "--format", "json"], &out)?;
    until("intervals, and a reason", || text(&path).contains(REASON) && text(&path).lines().count() > 5)?;
    ensure!(text(&path).contains("@mallory"), "the container has no user");
    run.terminated()
}

fn recorder() -> Result<()> {
    let world = World::new()?;
    let (path, file) = (world.root.join("out"), world.root.join("a.nrec"));
    let out = File::create(&path)?;
    let mut run = world.start(&["record", file.to_str().context("UTF-8")?, "-d", "0.2"], &out)?;
    until("a reason", || text(&path).contains(REASON))?;
    let size = || file.metadata().map_or(0, |meta| meta.len());
    let before = size();
    until("samples", || size() > before + 2_000)?;
    run.terminated()
}

fn exporter() -> Result<()> {
    let world = World::new()?;
    let path = world.root.join("out");
    let out = File::create(&path)?;
    let mut run = world.start(&["exporter", "--listen", "127.0.0.1:0", "-d", "0.5"], &out)?;
    until("an address, and a reason", || {
        let said = text(&path);
        said.contains("/metrics") && said.contains(REASON)
    })?;
    let said = text(&path);
    let address =
        said.split("http://").nth(1).and_then(|rest| rest.split('/').next()).context("no address")?;
    until("health", || {
        let asked = TcpStream::connect(address).and_then(|mut stream| {
            stream.write_all(b"GET /-/healthy HTTP/1.1\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).map(|_| answer)
        });
        asked.is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
    })?;
    run.terminated()
}

fn live_view() -> Result<()> {
    let world = World::new()?;
    let words = world.words(&["-d", "0.5"]);
    let mut terminal = Terminal::start(&words, 30, 150)?;
    terminal.until("table of tasks", |text| text.contains("COMMAND"))?;
    terminal.press("3")?;
    terminal.until("the container", |text| text.contains("a7a7a7a7a7a7@mallory"))?;
    terminal.press("q")?;
    ensure!(terminal.ended()?.success());
    Ok(())
}

/// Settings on it: the view starts without them.
fn settings() -> Result<()> {
    let root = Scratch::new();
    let folder = root.join("config");
    fs::create_dir(&folder)?;
    let _silent = Silent::mount(&folder)?;
    let mut command = CommandBuilder::new(program::path());
    command.args(["--demo"]);
    command.env("NUMATOP_NG_CONFIG", folder.join("numatop-ng/config.toml"));
    let mut terminal = Terminal::run(command, 24, 120)?.0;
    terminal.until("table", |text| text.contains("postgres"))?;
    terminal.press("q")?;
    ensure!(terminal.ended()?.success());
    Ok(())
}

/// Every place that is typed, and the home of the caller: each run ends by itself, with a reason where the place was typed.
fn typed() -> Result<()> {
    const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/recordings/format-1.nrec");
    let root = Scratch::new();
    let folder = root.join("silent");
    fs::create_dir(&folder)?;
    let _silent = Silent::mount(&folder)?;
    let link = root.join("link");
    std::os::unix::fs::symlink(&folder, &link)?;
    // At the same time: each waits for the place for a second.
    let mut runs = Vec::new();
    for place in [&folder, &link] {
        let inside = place.join("a.nrec");
        let inside = inside.to_str().context("UTF-8")?;
        let socket = format!("unix:{inside}");
        let out = format!("--output={inside}");
        for words in [
            &["record", inside][..],
            &["replay", inside],
            &["report", inside],
            &["verify", inside],
            &["diff", FIXTURE, inside],
            &["export", FIXTURE, "--format", "json", "-o", inside],
            &["report", FIXTURE, &out],
            &["exporter", "--listen", &socket],
            &["exporter", "--textfile", inside],
            &["--host-root", inside, "-b", "-n", "1"],
            &["run", "--", inside],
        ] {
            let mut run = Command::new(program::path());
            run.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
            runs.push((format!("{words:?}"), Run(run.spawn()?)));
        }
    }
    for (words, mut run) in runs {
        until(&format!("the end of {words}"), || matches!(run.0.try_wait(), Ok(Some(_))))?;
        let mut said = String::new();
        run.0.stderr.take().context("no standard error")?.read_to_string(&mut said)?;
        ensure!(said.contains("file system does not respond"), "{words}: {said}");
    }
    let mut run = Command::new(program::path());
    run.args(["run", "--", "numatop-ng-no-program"]).env("PATH", &folder).stdin(Stdio::null());
    let mut run = Run(run.stderr(Stdio::piped()).spawn()?);
    until("the end of a program that is looked for there", || matches!(run.0.try_wait(), Ok(Some(_))))?;
    // Words that are no places are not looked for in the working directory.
    let mut run = Command::new(program::path());
    run.args(["-b", "-n", "1", "-d", "0.2", "--top", "1"]).current_dir(&folder);
    let mut run = Run(run.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?);
    until("the end of a run in it", || matches!(run.0.try_wait(), Ok(Some(_))))?;
    ensure!(run.0.wait()?.success());
    for place in [folder, link] {
        let mut run = Command::new(program::path());
        run.args(["-b", "-n", "1", "-d", "0.2"]).env("HOME", &place).env_remove("XDG_STATE_HOME");
        let mut run = Run(run.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?);
        until("the end of a run from there", || matches!(run.0.try_wait(), Ok(Some(_))))?;
        ensure!(run.0.wait()?.success());
    }
    Ok(())
}

/// A cgroup that a walk left out is found by the id that its tasks have.
fn by_id() -> Result<()> {
    use std::os::unix::fs::MetadataExt;
    let mount = cgroups::choose(Path::new("/")).mount.context("no cgroups")?;
    let name = format!("numatop-hold-{}", std::process::id());
    let at = mount.join(&name);
    fs::create_dir(&at)?;
    fs::create_dir(at.join("inside"))?;
    let id = at.join("inside").metadata()?.ino();
    let mut found = Walk::default();
    find_ids(&mount, &[id, 1 << 60], &mut found);
    fs::remove_dir(at.join("inside"))?;
    fs::remove_dir(at)?;
    ensure!(found.paths.get(&id) == Some(&format!("/{name}/inside")), "{:?}", found.paths);
    ensure!(found.paths.len() == 2, "and the one above: {:?}", found.paths);
    Ok(())
}

/// A runtime that never accepts.
fn runtime() -> Result<()> {
    let world = World::new()?;
    let socket = world.root.join("docker.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&socket)?;
    let path = world.root.join("out");
    let out = File::create(&path)?;
    let words =
        ["-b", "-d", "0.2", "--format", "json", "--runtime-socket", socket.to_str().context("UTF-8")?];
    let mut run = world.start(&words, &out)?;
    until("intervals, and reasons", || {
        let said = text(&path);
        said.contains("docker.sock provides no names of containers") && said.lines().count() > 5
    })?;
    let intervals = text(&path);
    let longest = intervals
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok()?["interval_ns"].as_u64());
    // The answer is waited for two seconds, but not by the sampling thread.
    ensure!(longest.max().is_some_and(|longest| longest < 1_900_000_000), "an interval was waited for");
    run.terminated()
}

type Test = fn() -> Result<()>;

fn main() {
    let arguments = Arguments::from_args();
    let is_root = rustix::process::geteuid().is_root();
    let can = is_root && {
        let root = Scratch::new();
        Silent::mount(root.path()).is_ok()
    };
    if !can {
        eprintln!("tests/hangs: not root, or no FUSE file system can be mounted: all of them are ignored");
    }
    // Each has the cgroup of the same user.
    let alone = Arc::new(Mutex::new(()));
    let tests: [(&str, Test); 8] = [
        ("a_place_that_does_not_answer_is_a_reason", typed),
        ("a_cgroup_that_was_left_out_is_found_by_its_id", by_id),
        ("batch_output_goes_on", batch),
        ("a_recorder_goes_on", recorder),
        ("an_exporter_goes_on", exporter),
        ("the_live_view_goes_on", live_view),
        ("the_live_view_starts_without_its_settings", settings),
        ("a_runtime_that_never_accepts_is_not_waited_for", runtime),
    ];
    let trial = |(name, run): (&str, Test)| {
        let alone = Arc::clone(&alone);
        let run = move || {
            let _alone = alone.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            run().map_err(|error| format!("{error:#}").into())
        };
        Trial::test(name, run).with_ignored_flag(!can)
    };
    let conclusion = libtest_mimic::run(&arguments, tests.map(trial).into());
    if let Some(path) = std::env::var_os("NUMATOP_IGNORED").filter(|_| !can) {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let line = b"ignored tests/hangs: not root, or no FUSE file system can be mounted\n";
        file.and_then(|mut file| file.write_all(line)).expect("the list of ignored tests is written");
    }
    conclusion.exit();
}
