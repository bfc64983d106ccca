//! Names of containers and pods: from the files that engines leave behind, and from an engine itself only when the user
//! has named its socket. All of it is written by strangers: sizes are limited and text is cleaned.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::Deserialize;

use super::component::capped;
use super::files::{list, read_below};
use super::runtime::Runtime;
use crate::host::{roots, users};
use crate::model::group::Engine;
use crate::model::group::is_id;

/// Bytes of a file about one container, and of a file about all of them.
const ONE_MAX: u64 = 1 << 20;
const ALL_MAX: u64 = 16 << 20;
/// Entries of a directory looked at.
const ENTRIES_MAX: usize = 20_000;
/// containerd's namespaces.
const NAMESPACES_MAX: usize = 64;

/// A name that was found. All text is clean and at most 128 characters long.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Name {
    pub name: String,
    pub pod: Option<String>,
    pub namespace: Option<String>,
}

impl Name {
    /// An engine's name of a container; `None` for nothing.
    pub(super) fn new(name: &str) -> Option<Name> {
        let name = name.trim_start_matches('/');
        (!name.is_empty()).then(|| kubernetes(name).unwrap_or(Name { name: capped(name), ..Name::default() }))
    }
}

/// Names of containers below one root. Lists of all containers are kept until their file changes.
pub struct ContainerNames {
    root: PathBuf,
    lists: HashMap<PathBuf, Kept<HashMap<String, Name>>>,
    homes: Option<Vec<(u32, PathBuf)>>,
    runtimes: Vec<Runtime>,
    troubles: Vec<String>,
}

struct Kept<T> {
    changed: Option<SystemTime>,
    value: T,
}

/// `k8s_<container>_<pod>_<namespace>_<uid>_<attempt>`, as dockershim and CRI-O name containers.
fn kubernetes(name: &str) -> Option<Name> {
    let mut words = name.strip_prefix("k8s_")?.split('_');
    let (container, pod, namespace) = (words.next()?, words.next()?, words.next()?);
    words.next()?;
    in_pod(container, pod, namespace)
}

/// `None` when one of the words is empty: that is none of the names that engines make.
fn in_pod(name: &str, pod: &str, namespace: &str) -> Option<Name> {
    let words = [name, pod, namespace];
    let [name, pod, namespace] = words.map(|word| (!word.is_empty()).then(|| capped(word)));
    Some(Name { name: name?, pod: Some(pod?), namespace: Some(namespace?) })
}

impl ContainerNames {
    /// Names from the files below `root` ("/" for this machine); links there begin at `root` again.
    pub fn new(root: &Path) -> ContainerNames {
        ContainerNames {
            root: root.to_owned(),
            lists: HashMap::new(),
            homes: None,
            runtimes: Vec::new(),
            troubles: Vec::new(),
        }
    }

    /// The runtimes listening on these sockets are asked for what no file names.
    pub fn asking(mut self, sockets: &[PathBuf]) -> ContainerNames {
        self.runtimes = sockets.iter().cloned().map(Runtime::new).collect();
        self
    }

    /// True when names may be found now that a runtime was not asked for before.
    pub fn is_due(&self) -> bool {
        self.runtimes.iter().any(Runtime::is_due)
    }

    /// Why runtimes could not be asked, since the call before.
    pub fn take_troubles(&mut self) -> Vec<String> {
        std::mem::take(&mut self.troubles)
    }

    /// The name of a container by its full id; `uid` is whose it is when its engine runs rootless.
    pub fn container(&mut self, engine: Engine, id: &str, uid: Option<u32>) -> Option<Name> {
        if !is_id(id) {
            return None;
        }
        self.filed(engine, id, uid).or_else(|| self.asked(id))
    }

    fn asked(&mut self, id: &str) -> Option<Name> {
        for runtime in &mut self.runtimes {
            match runtime.name(id) {
                Ok(Some(name)) => return Some(name),
                Ok(None) => {}
                Err(why) => self.troubles.push(why),
            }
        }
        None
    }

    fn filed(&mut self, engine: Engine, id: &str, uid: Option<u32>) -> Option<Name> {
        match engine {
            Engine::Docker => self.docker(id, uid).or_else(|| self.log(id)),
            Engine::Podman => self.podman(id, uid),
            Engine::CriO => self.crio(id).or_else(|| self.podman(id, None)).or_else(|| self.log(id)),
            Engine::Containerd | Engine::Nerdctl => self.containerd(id).or_else(|| self.log(id)),
            Engine::Unknown => self
                .docker(id, uid)
                .or_else(|| self.podman(id, uid))
                .or_else(|| self.containerd(id))
                .or_else(|| self.log(id)),
            _ => None,
        }
    }

    /// Name and namespace of a pod by its uid, from the directories of /var/log/pods.
    pub fn pod(&mut self, uid: &str) -> Option<Name> {
        self.listed(&self.below("var/log/pods"), pod_logs)?.get(uid).cloned()
    }

    /// `config.v2.json` of docker, where `/etc/docker/daemon.json` or its default says.
    fn docker(&mut self, id: &str, uid: Option<u32>) -> Option<Name> {
        #[derive(Deserialize)]
        struct Daemon {
            #[serde(rename = "data-root")]
            data_root: Option<String>,
        }
        #[derive(Deserialize)]
        struct Container {
            #[serde(rename = "Name", default)]
            name: String,
        }
        let moved = parse::<Daemon>(&self.below("etc/docker"), "daemon.json", ONE_MAX)
            .and_then(|daemon| daemon.data_root)
            .map(|data| self.below(&data));
        let home = self.below_home(uid, ".local/share/docker");
        let roots = [moved, Some(self.below("var/lib/docker")), home];
        let file = format!("{id}/config.v2.json");
        let found = roots
            .into_iter()
            .flatten()
            .find_map(|root| parse::<Container>(&root.join("containers"), &file, ONE_MAX))?;
        Name::new(&found.name)
    }

    /// The lists that podman and CRI-O keep of their containers.
    fn podman(&mut self, id: &str, uid: Option<u32>) -> Option<Name> {
        let home = self.below_home(uid, ".local/share/containers/storage");
        let storage = [Some(self.below("var/lib/containers/storage")), home];
        for storage in storage.into_iter().flatten() {
            for driver in ["overlay", "vfs", "btrfs", "zfs"] {
                // Containers that are removed when they end are in the second one only.
                for file in ["containers.json", "volatile-containers.json"] {
                    let path = storage.join(format!("{driver}-containers")).join(file);
                    if let Some(name) = self.listed(&path, storage_list).and_then(|all| all.get(id)) {
                        return Some(name.clone());
                    }
                }
            }
        }
        None
    }

    /// Annotations in the OCI configuration that CRI-O runs a container with.
    fn crio(&self, id: &str) -> Option<Name> {
        let dir = self.below("run/containers/storage/overlay-containers");
        let annotations = annotations(&dir, &format!("{id}/userdata/config.json"))?;
        of_annotations(
            &annotations,
            "io.kubernetes.container.name",
            "io.kubernetes.pod.name",
            "io.kubernetes.pod.namespace",
        )
    }

    /// Annotations in the OCI configuration that containerd runs a container with.
    fn containerd(&self, id: &str) -> Option<Name> {
        for state in ["run/containerd", "run/k3s/containerd"] {
            let dir = self.below(state).join("io.containerd.runtime.v2.task");
            for namespace in list(&dir, NAMESPACES_MAX) {
                let Some(found) = annotations(&dir, &format!("{namespace}/{id}/config.json")) else {
                    continue;
                };
                let cri = "io.kubernetes.cri.";
                return of_annotations(
                    &found,
                    &format!("{cri}container-name"),
                    &format!("{cri}sandbox-name"),
                    &format!("{cri}sandbox-namespace"),
                )
                .or_else(|| Name::new(found.get("nerdctl/name")?));
            }
        }
        None
    }

    /// The links in /var/log/containers that the kubelet makes.
    fn log(&mut self, id: &str) -> Option<Name> {
        self.listed(&self.below("var/log/containers"), container_logs)?.get(id).cloned()
    }

    /// The result of `read` on `path`, which is read again only when the file has changed.
    fn listed(
        &mut self,
        path: &Path,
        read: fn(&Path) -> HashMap<String, Name>,
    ) -> Option<&HashMap<String, Name>> {
        let changed = Some(fs::metadata(path).ok()?.modified().ok()?);
        let kept = self
            .lists
            .entry(path.to_owned())
            .or_insert_with(|| Kept { changed: None, value: HashMap::new() });
        if kept.changed != changed {
            *kept = Kept { changed, value: read(path) };
        }
        Some(&kept.value)
    }

    fn below(&self, path: impl AsRef<Path>) -> PathBuf {
        roots::below(&self.root, path)
    }

    /// The place of `path` below the home of this user.
    fn below_home(&mut self, uid: Option<u32>, path: &str) -> Option<PathBuf> {
        let uid = uid?;
        let homes = self.homes.get_or_insert_with(|| users::homes(&self.root));
        let home = homes.iter().find(|(user, _)| *user == uid).map(|(_, home)| home.join(path))?;
        Some(self.below(home))
    }
}

fn parse<T: for<'a> Deserialize<'a>>(dir: &Path, name: &str, max: u64) -> Option<T> {
    serde_json::from_slice(&read_below(dir, name, max).ok()?).ok()
}

fn annotations(dir: &Path, name: &str) -> Option<HashMap<String, String>> {
    #[derive(Deserialize)]
    struct Config {
        #[serde(default)]
        annotations: HashMap<String, String>,
    }
    parse::<Config>(dir, name, ONE_MAX).map(|config| config.annotations)
}

/// A sandbox has no name of its own: it is the pod.
fn of_annotations(found: &HashMap<String, String>, name: &str, pod: &str, namespace: &str) -> Option<Name> {
    let text = |key: &str| found.get(key).filter(|text| !text.is_empty()).map(|text| capped(text));
    let pod = text(pod);
    Some(Name {
        name: text(name).or_else(|| pod.as_ref().map(|_| "(pause)".to_string()))?,
        pod,
        namespace: text(namespace),
    })
}

/// `containers.json` of containers/storage.
fn storage_list(path: &Path) -> HashMap<String, Name> {
    #[derive(Deserialize)]
    struct Entry {
        #[serde(default)]
        id: String,
        #[serde(default)]
        names: Vec<String>,
    }
    let (Some(dir), Some(file)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return HashMap::new();
    };
    let entries: Vec<Entry> = parse(dir, file, ALL_MAX).unwrap_or_default();
    entries.into_iter().filter_map(|entry| Some((entry.id, Name::new(entry.names.first()?)?))).collect()
}

/// `<pod>_<namespace>_<container>-<id>.log`.
fn container_logs(dir: &Path) -> HashMap<String, Name> {
    let split = |file: &str| {
        let (front, id) = file.strip_suffix(".log")?.rsplit_once('-')?;
        let mut words = front.splitn(3, '_');
        let (pod, namespace, name) = (words.next()?, words.next()?, words.next()?);
        is_id(id).then_some((id.to_string(), in_pod(name, pod, namespace)?))
    };
    list(dir, ENTRIES_MAX).iter().filter_map(|file| split(file)).collect()
}

/// `<namespace>_<pod>_<uid>`.
fn pod_logs(dir: &Path) -> HashMap<String, Name> {
    let split = |file: &str| {
        let mut words = file.splitn(3, '_');
        let (namespace, pod, uid) = (words.next()?, words.next()?, words.next()?);
        Some((uid.to_string(), in_pod(pod, pod, namespace)?))
    };
    list(dir, ENTRIES_MAX).iter().filter_map(|file| split(file)).collect()
}
