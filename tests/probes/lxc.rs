//! A real container of LXC, whose root has busybox only.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::engine::{self, no_busybox, row_of, works};

/// Why LXC cannot be used here, if it cannot.
pub fn obstacle() -> Option<&'static str> {
    if !works("lxc-start") {
        return Some("lxc-start is not installed (package lxc)");
    }
    no_busybox()
}

/// A container that computes; ended and removed when dropped.
struct Container {
    dir: PathBuf,
    name: String,
}

impl Container {
    fn start() -> Result<Container> {
        let name = format!("nt{}", std::process::id());
        let dir = std::env::temp_dir().join(format!("numatop-ng-lxc-{}", std::process::id()));
        let root = dir.join("root");
        engine::root(&root)?;
        for folder in ["dev", "proc", "sys", "tmp"] {
            fs::create_dir(root.join(folder))?;
        }
        fs::create_dir_all(dir.join(&name))?;
        let settings = format!(
            "lxc.uts.name = {name}\nlxc.rootfs.path = dir:{}\nlxc.net.0.type = none\nlxc.autodev = 0\n\
             lxc.apparmor.profile = unconfined\nlxc.cgroup.cpuset.cpus = 0\nlxc.cgroup2.cpuset.cpus = 0\n",
            root.display()
        );
        fs::write(dir.join(&name).join("config"), settings)?;
        let container = Container { dir, name };
        let spin = ["/bin/busybox", "sh", "-c", "while :; do :; done"];
        container.lxc("lxc-start", &[&["--daemon", "--"], &spin[..]].concat())?;
        Ok(container)
    }

    fn lxc(&self, program: &str, words: &[&str]) -> Result<()> {
        let log = self.dir.join("log");
        let status = Command::new(program)
            .arg("--lxcpath")
            .arg(&self.dir)
            .args(["--name", &self.name, "--logfile"])
            .arg(&log)
            .args(words)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .with_context(|| format!("starting {program}"))?;
        ensure!(status.success(), "{program}: {status}: {}", fs::read_to_string(&log).unwrap_or_default());
        Ok(())
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.lxc("lxc-stop", &["--kill"]);
        let _ = fs::remove_dir_all(&self.dir);
    }
}

pub fn a_container_of_lxc_is_found_by_its_name() -> Result<()> {
    let container = Container::start()?;
    let row = row_of(&container.name, &container.name)?;
    ensure!(row["engine"] == "lxc" && row["kind"] == "machine" && row["cpus_allowed"] == "0", "{row}");
    Ok(())
}
