//! The folders in which system engines keep files about their containers: from their settings, the command
//! lines of their daemons, or their defaults.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::files::{list, read_below};
use crate::host::roots;

/// Bytes of a file of settings or of a command line.
const MAX: u64 = 1 << 20;
/// Processes and files of settings that are looked at.
const PROCESSES_MAX: usize = 100_000;
const FILES_MAX: usize = 64;

/// Folders by engine, the configured ones first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DataRoots {
    /// Docker's `data-root`.
    pub(super) docker: Vec<PathBuf>,
    /// `graphroot` of containers/storage, which podman and CRI-O use.
    pub(super) storage: Vec<PathBuf>,
    /// containerd's `state`.
    pub(super) containerd: Vec<PathBuf>,
}

#[derive(Default, Deserialize)]
struct DockerSettings {
    #[serde(rename = "data-root", alias = "graph")]
    data_root: Option<String>,
}

#[derive(Default, Deserialize)]
struct StorageSettings {
    #[serde(default)]
    storage: Storage,
}

#[derive(Default, Deserialize)]
struct Storage {
    graphroot: Option<String>,
}

#[derive(Default, Deserialize)]
struct ContainerdSettings {
    state: Option<String>,
}

#[derive(Default, Deserialize)]
struct CrioSettings {
    #[serde(default)]
    crio: Crio,
}

#[derive(Default, Deserialize)]
struct Crio {
    root: Option<String>,
}

impl DataRoots {
    /// Reads settings and command lines below `root`.
    pub(super) fn read(root: &Path) -> DataRoots {
        let below = |path: &str| roots::below(root, path);
        let settings = |path: &str| {
            let path = Path::new(path);
            let (folder, name) = (path.parent()?.to_str()?, path.file_name()?.to_str()?);
            String::from_utf8(read_below(&below(folder), name, MAX).ok()?).ok()
        };
        let mut found = DataRoots::default();
        let (mut dockerd, mut containerd) =
            (vec!["/etc/docker/daemon.json".to_owned()], vec!["/etc/containerd/config.toml".to_owned()]);
        for (name, words) in daemons(&below("proc")) {
            if name == "dockerd" {
                found.docker.extend(option(&words, &["--data-root", "--graph", "-g"]).map(|at| below(&at)));
                dockerd.extend(option(&words, &["--config-file"]));
            } else {
                found.containerd.extend(option(&words, &["--state"]).map(|at| below(&at)));
                containerd.extend(option(&words, &["--config", "-c"]));
            }
        }
        let of_docker = dockerd
            .iter()
            .filter_map(|file| serde_json::from_str::<DockerSettings>(&settings(file)?).ok()?.data_root);
        found.docker.extend(of_docker.map(|at| below(&at)));
        let of_containerd = containerd
            .iter()
            .filter_map(|file| toml::from_str::<ContainerdSettings>(&settings(file)?).ok()?.state);
        found.containerd.extend(of_containerd.map(|at| below(&at)));
        let storage = ["/etc/containers/storage.conf", "/usr/share/containers/storage.conf"];
        let of_storage = storage
            .iter()
            .filter_map(|file| toml::from_str::<StorageSettings>(&settings(file)?).ok()?.storage.graphroot);
        let parts = list(&below("etc/crio/crio.conf.d"), FILES_MAX);
        let crio = parts.iter().map(|name| format!("/etc/crio/crio.conf.d/{name}"));
        let of_crio = crio
            .chain(["/etc/crio/crio.conf".to_owned()])
            .filter_map(|file| toml::from_str::<CrioSettings>(&settings(&file)?).ok()?.crio.root);
        found.storage.extend(of_storage.chain(of_crio).map(|at| below(&at)));
        for (folders, usual) in [
            (&mut found.docker, &["var/lib/docker"][..]),
            (&mut found.storage, &["var/lib/containers/storage"]),
            (&mut found.containerd, &["run/containerd", "run/k3s/containerd"]),
        ] {
            // A link of another user leads where that user wants.
            folders.retain(|folder| fs::metadata(folder).is_ok_and(|folder| folder.uid() == 0));
            folders.extend(usual.iter().map(|folder| below(folder)));
            let mut seen = Vec::new();
            folders.retain(|folder| {
                !seen.contains(folder) && {
                    seen.push(folder.clone());
                    true
                }
            });
        }
        found
    }
}

/// Daemons with command lines that are of interest.
const DAEMONS: [&str; 2] = ["dockerd", "containerd"];

/// The daemons that run as root, with their command lines.
fn daemons(proc: &Path) -> Vec<(&'static str, Vec<String>)> {
    let daemon = |pid: String| {
        let folder = proc.join(pid);
        let comm = read_below(&folder, "comm", MAX).ok()?;
        let name = DAEMONS.into_iter().find(|name| comm.trim_ascii_end() == name.as_bytes())?;
        // Another user may give that name to a program, too.
        fs::metadata(&folder).ok().filter(|folder| folder.uid() == 0)?;
        let text = read_below(&folder, "cmdline", MAX).ok()?;
        let words = text.split(|byte| *byte == 0).take(1000);
        Some((name, words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()))
    };
    let all = list(proc, PROCESSES_MAX).into_iter();
    all.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())).filter_map(daemon).collect()
}

/// The value of the first of these options, as `--name value` or `--name=value`; only an absolute path.
fn option(words: &[String], names: &[&str]) -> Option<String> {
    let value = |(at, word): (usize, &String)| match word.split_once('=') {
        Some((name, value)) if names.contains(&name) => Some(value.to_owned()),
        _ if names.contains(&word.as_str()) => words.get(at + 1).cloned(),
        _ => None,
    };
    words.iter().enumerate().find_map(value).filter(|path| path.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A root of this test with these files.
    fn root(name: &str, files: &[(&str, &str)]) -> PathBuf {
        let root = std::env::temp_dir().join(format!("numatop-data-roots-{name}-{}", std::process::id()));
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn options_have_their_value_behind_them() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let of = |text: &str| option(&words(text), &["--data-root", "-g"]);
        assert_eq!(of("dockerd -H fd:// --data-root=/data/docker").as_deref(), Some("/data/docker"));
        assert_eq!(of("dockerd -g /srv/docker").as_deref(), Some("/srv/docker"));
        assert_eq!(of("dockerd --data-root"), None);
        assert_eq!(of("dockerd --data-root=docker"), None);
    }

    #[test]
    fn settings_and_command_lines_come_before_the_usual_place() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: files of root are made by root");
            return;
        }
        let root = root(
            "set",
            &[
                ("etc/docker/daemon.json", r#"{"data-root": "/data/docker"}"#),
                ("data/docker/x", ""),
                ("srv/docker/x", ""),
                ("proc/700/comm", "dockerd\n"),
                ("proc/700/cmdline", "/usr/bin/dockerd\0--data-root\0/srv/docker\0"),
                ("proc/701/comm", "other\n"),
                ("proc/701/cmdline", "x\0--data-root=/evil\0"),
                (
                    "etc/containers/storage.conf",
                    "[storage]\ndriver = \"overlay\"\ngraphroot = \"/pool/storage\"\n",
                ),
                ("pool/storage/x", ""),
                ("etc/containerd/config.toml", "version = 2\nstate = \"/pool/containerd\"\n"),
                ("pool/containerd/x", ""),
            ],
        );
        let found = DataRoots::read(&root);
        let at = |paths: &[&str]| paths.iter().map(|path| root.join(path)).collect::<Vec<_>>();
        assert_eq!(found.docker, at(&["srv/docker", "data/docker", "var/lib/docker"]));
        assert_eq!(found.storage, at(&["pool/storage", "var/lib/containers/storage"]));
        assert_eq!(found.containerd, at(&["pool/containerd", "run/containerd", "run/k3s/containerd"]));
        fs::remove_dir_all(&root).unwrap();
    }
}
