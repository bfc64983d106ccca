//! Names of containers and pods: from the files that engines leave behind, and from an engine itself only
//! when the user has named its socket. The content is untrusted: sizes are limited and text is cleaned.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};
use std::{fmt, fs};

use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::data_roots::DataRoots;
use super::files::{list, read_below, read_of_user};
use super::patterns::capped;
use super::runtime::Runtime;
use crate::host::{roots, users};
use crate::model::group::{Engine, is_id};

/// Bytes of a file about one container, and of an engine's list of all its containers.
const ONE_MAX: u64 = 1 << 20;
const ALL_MAX: u64 = 16 << 20;
/// Bytes read in one home for one question: a list has some 500 bytes for each container.
const HOME_MAX: u64 = 1 << 20;
/// Entries kept of lists that have not changed.
const KEPT_MAX: usize = 4096;
/// Entries of a directory looked at.
const ENTRIES_MAX: usize = 20_000;
/// containerd's namespaces.
const NAMESPACES_MAX: usize = 64;

/// A name that was found. All text is clean and at most 128 characters long.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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

/// Names of containers below one root. Reads files of users and waits for runtimes: only a helper process may use it on
/// this machine (`asked.rs`).
pub struct ContainerNames {
    root: PathBuf,
    /// Names by the directory of logs, until it changes.
    logs: HashMap<PathBuf, Kept<HashMap<String, Name>>>,
    /// Names in lists, by the ids that were looked for, until the list changes.
    lists: HashMap<PathBuf, Kept<HashMap<String, Option<Name>>>>,
    homes: Option<Vec<(u32, PathBuf)>>,
    /// With the time at which they were read.
    data_roots: Option<(Instant, DataRoots)>,
    /// Bytes that may still be read of each home.
    left: HashMap<u32, u64>,
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

/// `None` if one of the words is empty: engines never make such names.
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
            logs: HashMap::new(),
            lists: HashMap::new(),
            homes: None,
            data_roots: None,
            left: HashMap::new(),
            runtimes: Vec::new(),
            troubles: Vec::new(),
        }
    }

    /// The runtimes listening on these sockets are asked for names that no file has.
    pub fn asking(mut self, sockets: &[PathBuf]) -> ContainerNames {
        self.runtimes = sockets.iter().cloned().map(Runtime::new).collect();
        self
    }

    /// True when names may be found now that a runtime was not asked for before.
    pub fn is_due(&self) -> bool {
        self.runtimes.iter().any(Runtime::is_due)
    }

    /// Why names are missing, since the call before: a runtime was not asked, or a home has too much to read.
    pub fn take_troubles(&mut self) -> Vec<String> {
        std::mem::take(&mut self.troubles)
    }

    /// The name of a container by its full id, wherever it is found; `uid` is whose it is when its engine runs rootless.
    pub fn container(&mut self, engine: Engine, id: &str, uid: Option<u32>) -> Option<Name> {
        self.in_files(engine, id, None)
            .or_else(|| self.in_files(engine, id, Some(uid?)))
            .or_else(|| self.of_runtimes(id))
    }

    /// The name of a container as files have it. Of a user's container only those in the home of that user are read.
    pub fn in_files(&mut self, engine: Engine, id: &str, uid: Option<u32>) -> Option<Name> {
        if !is_id(id) {
            return None;
        }
        match uid.filter(|uid| *uid != 0) {
            Some(uid) => self.in_home(engine, id, uid),
            None => self.filed(engine, id),
        }
    }

    /// The name of a container as runtimes have it.
    pub fn of_runtimes(&mut self, id: &str) -> Option<Name> {
        if is_id(id) { self.asked(id) } else { None }
    }

    /// Homes may be read again as much as at first.
    pub fn renew_budgets(&mut self) {
        self.left.clear();
        self.homes = None;
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

    fn filed(&mut self, engine: Engine, id: &str) -> Option<Name> {
        match engine {
            Engine::Docker => self.docker(id).or_else(|| self.log(id)),
            Engine::Podman => self.podman(id),
            Engine::CriO => self.crio(id).or_else(|| self.podman(id)).or_else(|| self.log(id)),
            Engine::Containerd | Engine::Nerdctl => self.containerd(id).or_else(|| self.log(id)),
            Engine::Unknown => self
                .docker(id)
                .or_else(|| self.podman(id))
                .or_else(|| self.containerd(id))
                .or_else(|| self.log(id)),
            _ => None,
        }
    }

    /// Name and namespace of a pod by its uid, from the directories of /var/log/pods.
    pub fn pod(&mut self, uid: &str) -> Option<Name> {
        self.logged(&self.below("var/log/pods"), pod_logs)?.get(uid).cloned()
    }

    /// `config.v2.json` of docker.
    fn docker(&mut self, id: &str) -> Option<Name> {
        let file = format!("{id}/config.v2.json");
        let found = self
            .data_roots()
            .docker
            .iter()
            .find_map(|root| parse::<DockerContainer>(&root.join("containers"), &file, ONE_MAX))?;
        Name::new(&found.name)
    }

    /// The lists that podman and CRI-O keep of their containers.
    fn podman(&mut self, id: &str) -> Option<Name> {
        let folders = self.data_roots().storage.clone();
        folders.iter().find_map(|storage| {
            storage_lists().find_map(|file| {
                self.in_list(&storage.join(&file), id, || read_below(storage, &file, ALL_MAX).ok())
            })
        })
    }

    /// The name of a user's container: in the files of an engine that runs rootless.
    fn in_home(&mut self, engine: Engine, id: &str, uid: u32) -> Option<Name> {
        let home = self.home(uid)?;
        let docker = |book: &mut ContainerNames| {
            let file = format!(".local/share/docker/containers/{id}/config.v2.json");
            let bytes = book.read_home(&home, &file, uid)?;
            Name::new(&serde_json::from_slice::<DockerContainer>(&bytes).ok()?.name)
        };
        let podman = |book: &mut ContainerNames| {
            storage_lists().find_map(|list| {
                let file = format!(".local/share/containers/storage/{list}");
                find_in_list(&book.read_home(&home, &file, uid)?, id)
            })
        };
        match engine {
            Engine::Docker => docker(self),
            Engine::Podman => podman(self),
            Engine::Unknown => docker(self).or_else(|| podman(self)),
            _ => None,
        }
    }

    /// A file of a user, within what may be read of the home.
    fn read_home(&mut self, home: &Path, file: &str, uid: u32) -> Option<Vec<u8>> {
        let left = *self.left.entry(uid).or_insert(HOME_MAX);
        match read_of_user(home, file, left, uid) {
            Ok(bytes) => {
                self.left.insert(uid, left - bytes.len() as u64);
                Some(bytes)
            }
            Err(error) if error.kind() == ErrorKind::FileTooLarge => {
                let why = format!(
                    "names of containers of user {uid} are missing: the container lists exceed {} KiB in total",
                    HOME_MAX >> 10
                );
                if !self.troubles.contains(&why) {
                    self.troubles.push(why);
                }
                None
            }
            Err(_) => None,
        }
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
    fn containerd(&mut self, id: &str) -> Option<Name> {
        for state in &self.data_roots().containerd {
            let dir = state.join("io.containerd.runtime.v2.task");
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
        self.logged(&self.below("var/log/containers"), container_logs)?.get(id).cloned()
    }

    /// The result of `read` on the directory `path`, which is read again only when it has changed.
    fn logged(
        &mut self,
        path: &Path,
        read: fn(&Path) -> HashMap<String, Name>,
    ) -> Option<&HashMap<String, Name>> {
        let changed = Some(fs::metadata(path).ok()?.modified().ok()?);
        let kept =
            self.logs.entry(path.to_owned()).or_insert_with(|| Kept { changed: None, value: HashMap::new() });
        if kept.changed != changed {
            *kept = Kept { changed, value: read(path) };
        }
        Some(&kept.value)
    }

    /// The name that the list at `path` has for one id. The list is read when it has changed, or was not read for this id.
    fn in_list(&mut self, path: &Path, id: &str, read: impl FnOnce() -> Option<Vec<u8>>) -> Option<Name> {
        let changed = Some(fs::metadata(path).ok()?.modified().ok()?);
        let kept = self
            .lists
            .entry(path.to_owned())
            .or_insert_with(|| Kept { changed: None, value: HashMap::new() });
        if kept.changed != changed || kept.value.len() >= KEPT_MAX {
            *kept = Kept { changed, value: HashMap::new() };
        }
        if let Some(known) = kept.value.get(id) {
            return known.clone();
        }
        let found = read().and_then(|bytes| find_in_list(&bytes, id));
        kept.value.insert(id.to_owned(), found.clone());
        found
    }

    fn below(&self, path: impl AsRef<Path>) -> PathBuf {
        roots::below(&self.root, path)
    }

    /// Folders of engines, read again once a minute: a daemon may start with other ones.
    fn data_roots(&mut self) -> &DataRoots {
        const KEPT: Duration = Duration::from_secs(60);
        self.data_roots.take_if(|(read, _)| read.elapsed() > KEPT);
        &self.data_roots.get_or_insert_with(|| (Instant::now(), DataRoots::read(&self.root))).1
    }

    /// The home of this user.
    fn home(&mut self, uid: u32) -> Option<PathBuf> {
        let homes = self.homes.get_or_insert_with(|| users::homes(&self.root));
        let home = homes.iter().find(|(user, _)| *user == uid).map(|(_, home)| home.clone())?;
        Some(self.below(home))
    }
}

/// Docker's file about a container.
#[derive(Deserialize)]
struct DockerContainer {
    #[serde(rename = "Name", default)]
    name: String,
}

/// Lists of containers/storage. Containers that are removed when they end are in the second of each driver only.
fn storage_lists() -> impl Iterator<Item = String> {
    ["overlay", "vfs", "btrfs", "zfs"].into_iter().flat_map(|driver| {
        ["containers.json", "volatile-containers.json"].map(|file| format!("{driver}-containers/{file}"))
    })
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

/// A sandbox has no separate name: it is the pod.
fn of_annotations(found: &HashMap<String, String>, name: &str, pod: &str, namespace: &str) -> Option<Name> {
    let text = |key: &str| found.get(key).filter(|text| !text.is_empty()).map(|text| capped(text));
    let pod = text(pod);
    Some(Name {
        name: text(name).or_else(|| pod.as_ref().map(|_| "(pause)".to_string()))?,
        pod,
        namespace: text(namespace),
    })
}

/// The name of one container in a list of containers/storage. Nothing else of the list is kept.
fn find_in_list(bytes: &[u8], id: &str) -> Option<Name> {
    struct First(Option<String>);

    impl<'de> Deserialize<'de> for First {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<First, D::Error> {
            struct Names;
            impl<'de> Visitor<'de> for Names {
                type Value = First;
                fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str("names")
                }
                fn visit_unit<E>(self) -> Result<First, E> {
                    Ok(First(None))
                }
                fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<First, A::Error> {
                    let first = all.next_element()?;
                    while all.next_element::<IgnoredAny>()?.is_some() {}
                    Ok(First(first))
                }
            }
            deserializer.deserialize_any(Names)
        }
    }

    #[derive(Deserialize)]
    struct Entry {
        #[serde(default)]
        id: String,
        #[serde(default = "none")]
        names: First,
    }

    fn none() -> First {
        First(None)
    }

    struct Wanted<'a>(&'a str);
    impl<'de> Visitor<'de> for Wanted<'_> {
        type Value = Option<Name>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of containers")
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Option<Name>, A::Error> {
            let mut found = None;
            // To the end: half of a list is invalid.
            while let Some(entry) = all.next_element::<Entry>()? {
                if entry.id == self.0 {
                    found = entry.names.0.as_deref().and_then(Name::new);
                }
            }
            Ok(found)
        }
    }
    serde_json::Deserializer::from_slice(bytes).deserialize_seq(Wanted(id)).ok().flatten()
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
