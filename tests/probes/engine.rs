//! A real engine: containers of podman, whose image is made here from busybox, found by name, shown with
//! their limits, and chosen on the screen.

use std::io::{BufRead, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::program;
use crate::terminal::Terminal;
use crate::until::until;

const IMAGE: &str = "localhost/numatop-ng-test";
/// Flags with which podman runs without systemd, network and permission to raise limits.
const RUN: [&str; 6] = [
    "--cgroup-manager=cgroupfs",
    "--runtime=runc",
    "run",
    "--detach",
    "--network=none",
    "--ulimit=nofile=1024:1024",
];

/// Why podman cannot be used here, if it cannot.
pub fn obstacle() -> Option<&'static str> {
    if !works("podman") || !works("runc") {
        return Some("podman or runc is not installed");
    }
    no_busybox()
}

pub fn podman(words: &[&str]) -> Result<String> {
    let output =
        Command::new("podman").args(words).stdin(Stdio::null()).output().context("starting podman")?;
    ensure!(output.status.success(), "podman {words:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?.trim().to_string())
}

/// Makes `dir` a root with one program, busybox.
pub fn root(dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir.join("bin"))?;
    std::fs::copy("/bin/busybox", dir.join("bin/busybox")).map(drop).context("copying busybox")
}

/// An archive beside `dir`, which becomes such a root.
pub fn image(dir: &Path) -> Result<PathBuf> {
    root(dir)?;
    let archive = dir.with_extension("tar");
    let tar = Command::new("tar").arg("-cf").arg(&archive).arg("-C").arg(dir).arg(".").status()?;
    ensure!(tar.success(), "tar: {tar}");
    Ok(archive)
}

/// Why no image can be made here, if none can.
pub fn no_busybox() -> Option<&'static str> {
    (!Path::new("/bin/busybox").exists())
        .then_some("there is no /bin/busybox (package busybox-static) to make an image of")
}

/// Whether a program exists and runs.
pub fn works(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// An image of one file, removed with its containers when dropped.
pub struct Engine {
    prefix: String,
}

impl Engine {
    pub fn start() -> Result<Engine> {
        let dir = std::env::temp_dir().join(format!("numatop-ng-image-{}", std::process::id()));
        let archive = image(&dir)?;
        podman(&["import", archive.to_str().context("a temporary directory in UTF-8")?, IMAGE])?;
        std::fs::remove_dir_all(&dir)?;
        std::fs::remove_file(&archive)?;
        Ok(Engine { prefix: format!("nt{}", std::process::id()) })
    }

    pub fn run(&self, name: &str, flags: &[&str], command: &[&str]) -> Result<String> {
        let name = format!("{}-{name}", self.prefix);
        let words = [
            &RUN[..],
            &["--ulimit=nproc=1024:1024", "--name", &name],
            flags,
            &[IMAGE, "/bin/busybox"],
            command,
        ];
        podman(&words.concat())?;
        Ok(name)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let ours = format!("name=^{}-", self.prefix);
        if let Ok(ids) = podman(&["ps", "--all", "--quiet", "--filter", &ours]) {
            for id in ids.lines() {
                let _ = podman(&["rm", "--force", "--time", "0", id]);
            }
        }
        let _ = podman(&["rmi", "--force", IMAGE]);
    }
}

/// The row of a container that is chosen by its name or id.
pub fn row_of(chosen: &str, name: &str) -> Result<Value> {
    let mut rows = rows_in(chosen, name)?.into_iter();
    rows.find(|row| row["container"] == name).context("no row for the container")
}

/// The rows of containers where one is chosen by its name or id. All tasks in scope are in that one.
fn rows_in(chosen: &str, name: &str) -> Result<Vec<Value>> {
    let output = Command::new(program::path())
        .args(["-b", "-n", "1", "-d", "2", "--json-full", "--container", chosen])
        .output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut line: Value = serde_json::from_slice(&output.stdout)?;
    let tasks = line["tasks"].as_array().context("tasks")?;
    ensure!(!tasks.is_empty() && tasks.iter().all(|task| task["container"] == name), "{tasks:?}");
    Ok(std::mem::take(line["containers"].as_array_mut().context("containers")?))
}

/// Starts a daemon with this log, which is ended by [`end`].
pub fn daemon(program: &str, words: &[&str], log: &Path) -> Result<Child> {
    Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(log)?)
        .spawn()
        .with_context(|| format!("starting {program}"))
}

/// Intervals of half a second of the whole machine.
pub struct Stream {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Stream {
    pub fn start() -> Result<Stream> {
        let mut process = Command::new(program::path())
            .args(["-b", "-d", "0.5", "--json-full"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let lines = BufReader::new(process.stdout.take().context("a pipe")?).lines();
        Ok(Stream { process, lines })
    }

    /// Waits until the row of a container, by its full id, is as expected.
    pub fn until(&mut self, what: &str, id: &str, is: impl Fn(&Value) -> bool) -> Result<()> {
        until(what, || {
            let line: Value = serde_json::from_str(&self.lines.next().context("it ended")??)?;
            let rows = line["containers"].as_array().context("containers")?;
            Ok(rows.iter().any(|row| row["container_id"] == id && is(row)))
        })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        end(&mut self.process);
    }
}

/// Asks a process to end, and waits until it has.
pub fn end(process: &mut Child) {
    if let Some(pid) = Pid::from_raw(process.id() as i32) {
        let _ = kill_process(pid, Signal::TERM);
    }
    let _ = process.wait();
}

pub fn a_container_of_podman_is_watched_by_name() -> Result<()> {
    let engine = Engine::start()?;
    let spin = ["sh", "-c", "while :; do :; done"];
    let web = engine.run("web", &["--cpuset-cpus=0", "--memory=64m", "--cpus=0.5"], &spin)?;
    let other = engine.run("other", &[], &spin)?;
    let rows = rows_in(&web, &web)?;
    ensure!(!rows.iter().any(|row| row["container"] == other.as_str()), "a row of what is out of scope");
    let row = rows.iter().find(|row| row["container"] == web.as_str()).context("no row for the container")?;
    for (key, wanted) in
        [("kind", "container"), ("engine", "podman"), ("cpus_allowed", "0"), ("nodes_allowed", "0")]
    {
        ensure!(row[key] == wanted, "{key} is {}, not {wanted}", row[key]);
    }
    ensure!(row["cpu_quota_pct"] == 50.0 && row["mem_limit_bytes"] == 64 << 20, "{row}");
    ensure!(row["mem_bytes"].as_u64() > Some(0) && row["mem_bytes_by_node"].is_object(), "{row}");
    let cpu = row["cpu_pct"].as_f64().context("cpu_pct")?;
    ensure!(cpu > 1.0 && cpu < 60.0, "{cpu}% with a quota of 50%");

    let id = podman(&["inspect", "--format", "{{.Id}}", &web])?;
    let output = Command::new(program::path())
        .args(["-b", "-n", "1", "-d", "0.2", "--container", &id[..10]])
        .output()?;
    ensure!(output.status.success(), "by the start of its id: {}", String::from_utf8_lossy(&output.stderr));
    let output =
        Command::new(program::path()).args(["-b", "-n", "1", "--container", &format!("{web}x")]).output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.code() == Some(2) && said.contains(&web), "{}: {said}", output.status);
    Ok(())
}

pub fn a_container_of_podman_is_chosen_on_the_screen() -> Result<()> {
    let engine = Engine::start()?;
    let name = engine.run("screen", &["--cpuset-cpus=0"], &["sh", "-c", "while :; do :; done"])?;
    let mut terminal = Terminal::start(&["-d", "0.5"], 30, 150)?;
    terminal.until("table of tasks", |text| text.contains("COMMAND"))?;
    terminal.press("3")?;
    // The monitor of the container has a row, too, and its command line has the name.
    let is_row = |line: &str| line.contains(&name) && line.contains("container");
    // Rows change places with each interval: they hold still while we go to ours, from the top.
    loop {
        terminal.until("row of the container", |text| text.lines().any(is_row))?;
        terminal.press("Zg")?;
        terminal.until("pause", |text| text.contains("PAUSED"))?;
        if terminal.select("\x1b[B", is_row)? {
            break;
        }
        // The interval that is shown was the first or the last without it.
        terminal.press("Z")?;
        terminal.until("end of the pause", |text| !text.contains("PAUSED"))?;
    }
    terminal.press("cZ")?;
    terminal.until("scope in the header", |text| text.contains(&format!("only {name}")))?;
    terminal.press("1")?;
    terminal.until("list of one task", |text| text.contains("tasks 1 "))?;
    terminal.press("C")?;
    terminal.until("list of all tasks", |text| !text.contains("only ") && !text.contains("tasks 1 "))?;
    terminal.press("q")?;
    ensure!(terminal.ended()?.success());
    Ok(())
}
