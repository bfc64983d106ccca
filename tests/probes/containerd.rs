//! A real containerd with its own folders: names come from the annotations of containers, and the engine is not asked.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::engine::{daemon, end, no_busybox, root, row_of, works};
use crate::until::until;

/// Why containerd cannot be used here, if it cannot.
pub fn obstacle() -> Option<&'static str> {
    if !works("containerd") || !works("ctr") {
        return Some("containerd is not installed (package docker.io or containerd)");
    }
    no_busybox()
}

/// A daemon that is ended and cleaned up when dropped.
struct Daemon {
    dir: PathBuf,
    process: Child,
    containers: Vec<String>,
}

impl Daemon {
    fn start() -> Result<Daemon> {
        let dir = std::env::temp_dir().join(format!("numatop-ng-containerd-{}", std::process::id()));
        root(&dir.join("image"))?;
        let path = |name: &str| dir.join(name).display().to_string();
        let settings = format!(
            "version = 2\nroot = {:?}\nstate = {:?}\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n[grpc]\naddress = {:?}\n",
            path("root"),
            path("state"),
            path("socket")
        );
        fs::write(dir.join("config.toml"), settings)?;
        let process = daemon("containerd", &["--config", &path("config.toml")], &dir.join("log"))?;
        let daemon = Daemon { dir, process, containers: Vec::new() };
        until("containerd answers", || Ok(daemon.ctr(&["version"]).is_ok()))?;
        Ok(daemon)
    }

    fn ctr(&self, words: &[&str]) -> Result<()> {
        let socket = self.dir.join("socket").display().to_string();
        let output = Command::new("ctr")
            .args(["--address", &socket, "--namespace", "k8s.io"])
            .args(words)
            .stdin(Stdio::null())
            .output()?;
        ensure!(output.status.success(), "ctr {words:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    /// A container that computes, as the kubelet would have it made.
    fn run(&mut self, id: &str, name: &str) -> Result<()> {
        self.containers.push(id.to_owned());
        let image = self.dir.join("image").display().to_string();
        let cri = |key: &str, value: &str| format!("--annotation=io.kubernetes.cri.{key}={value}");
        let (name, pod, space) =
            (cri("container-name", name), cri("sandbox-name", "shop-0"), cri("sandbox-namespace", "prod"));
        let limits = ["--memory-limit=67108864", "--cpu-quota=50000", "--cpu-period=100000"];
        let words = [
            &["run", "--detach", "--rootfs", &name, &pod, &space],
            &limits[..],
            &[&image, id, "/bin/busybox", "sh", "-c", "while :; do :; done"],
        ];
        self.ctr(&words.concat())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        for id in &self.containers {
            let _ = self.ctr(&["task", "rm", "--force", id]);
            let _ = self.ctr(&["container", "rm", id]);
        }
        end(&mut self.process);
        let _ = fs::remove_dir_all(&self.dir);
    }
}

pub fn a_container_of_containerd_has_the_names_in_its_annotations() -> Result<()> {
    let mut daemon = Daemon::start()?;
    let id = format!("{:064x}", u128::from(std::process::id()) << 64 | 0x5ca1e);
    let name = format!("shop-{}", std::process::id());
    daemon.run(&id, &name)?;
    for chosen in [name.as_str(), &id[..]] {
        let row = row_of(chosen, &name).with_context(|| format!("chosen as {chosen}"))?;
        ensure!(row["engine"] == "containerd" && row["container_id"] == id.as_str(), "{row}");
        ensure!(row["pod"] == "shop-0" && row["namespace"] == "prod", "{row}");
        ensure!(row["cpu_quota_pct"] == 50.0 && row["mem_limit_bytes"] == 64 << 20, "{row}");
    }
    Ok(())
}
