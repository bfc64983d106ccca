//! A real dockerd whose data root is on its command line: containers are found by name without asking it.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::engine::{Stream, daemon, end, image, no_busybox, row_of, works};
use crate::program;
use crate::until::until;

const IMAGE: &str = "numatop-ng-docker";

/// Why docker cannot be used here, if it cannot.
pub fn obstacle() -> Option<&'static str> {
    if !works("dockerd") || !works("docker") {
        return Some("dockerd is not installed (package docker.io)");
    }
    no_busybox()
}

/// A daemon with separate folders, without a network; ended and cleaned up when dropped.
struct Daemon {
    dir: PathBuf,
    process: Child,
}

impl Daemon {
    fn start() -> Result<Daemon> {
        let dir = std::env::temp_dir().join(format!("numatop-ng-docker-{}", std::process::id()));
        let archive = image(&dir.join("image"))?;
        let path = |name: &str| dir.join(name).display().to_string();
        let host = format!("unix://{}", path("docker.sock"));
        let plain = ["--iptables=false", "--ip6tables=false", "--bridge=none", "--storage-driver=vfs"];
        let folders = [
            "--data-root",
            &path("data"),
            "--exec-root",
            &path("exec"),
            "--pidfile",
            &path("pid"),
            "--host",
            &host,
        ];
        let process = daemon("dockerd", &[&plain[..], &folders].concat(), &dir.join("log"))?;
        let daemon = Daemon { dir, process };
        until("dockerd answers", || Ok(daemon.docker(&["info"]).is_ok()))?;
        daemon.docker(&["import", &archive.display().to_string(), IMAGE])?;
        Ok(daemon)
    }

    fn docker(&self, words: &[&str]) -> Result<String> {
        let socket = format!("unix://{}", self.dir.join("docker.sock").display());
        let output =
            Command::new("docker").args(["--host", &socket]).args(words).stdin(Stdio::null()).output()?;
        ensure!(output.status.success(), "docker {words:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Ok(ids) = self.docker(&["ps", "--all", "--quiet"]) {
            for id in ids.lines() {
                let _ = self.docker(&["rm", "--force", id]);
            }
        }
        end(&mut self.process);
        let _ = fs::remove_dir_all(&self.dir);
    }
}

pub fn a_container_of_docker_is_found_below_another_data_root() -> Result<()> {
    let daemon = Daemon::start()?;
    let name = format!("shop-{}", std::process::id());
    let spin = ["/bin/busybox", "sh", "-c", "while :; do :; done"];
    let run = ["run", "--detach", "--network=none", "--cpus=0.5", "--memory=64m", "--name", &name, IMAGE];
    daemon.docker(&[&run[..], &spin].concat())?;
    let row = row_of(&name, &name)?;
    ensure!(row["engine"] == "docker" && row["cpu_quota_pct"] == 50.0, "{row}");
    ensure!(row["mem_limit_bytes"] == 64 << 20, "{row}");

    let output = Command::new(program::path())
        .args(["-b", "-n", "1", "-d", "1", "--container", "nothing-of-that-name"])
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.code() == Some(2) && said.contains(&name), "{said}");
    Ok(())
}

pub fn a_container_of_docker_keeps_its_row_when_it_is_paused_renamed_and_made_again() -> Result<()> {
    let daemon = Daemon::start()?;
    let (old, new) = (format!("old-{}", std::process::id()), format!("new-{}", std::process::id()));
    let spin = ["/bin/busybox", "sh", "-c", "while :; do :; done"];
    let run = |name: &str| {
        daemon.docker(&[&["run", "--detach", "--network=none", "--name", name, IMAGE], &spin[..]].concat())
    };
    let first = run(&old)?;
    let mut stream = Stream::start()?;
    let runs = |row: &Value| row["cpu_pct"].as_f64() > Some(1.0);
    stream.until("the first name", &first, |row| row["container"] == old.as_str() && runs(row))?;
    daemon.docker(&["pause", &old])?;
    stream.until("a row without CPU time", &first, |row| row["cpu_pct"] == 0.0)?;
    daemon.docker(&["unpause", &old])?;
    daemon.docker(&["rename", &old, &new])?;
    stream.until("the second name", &first, |row| row["container"] == new.as_str() && runs(row))?;
    daemon.docker(&["rm", "--force", &new])?;
    let second = run(&new)?;
    stream.until("the container that was made again", &second, |row| row["container"] == new.as_str())
}
