//! The cgroup hierarchy that tells tasks apart here, and the paths of its ids.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::model::cgroup_path;
use crate::model::sample::{CgroupFacts, CgroupMode};

/// Directories visited at most when the tree is read.
const WALK_LIMIT: usize = 100_000;

/// The way cgroups are mounted, in the words of systemd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Only cgroup v2.
    Unified,
    /// v1 controllers, and v2 without controllers.
    Hybrid,
    /// Only v1 controllers.
    Legacy,
    /// No cgroup filesystem is mounted.
    None,
}

/// The hierarchy whose ids and paths are used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hierarchy {
    pub mode: Mode,
    /// The v1 controller, or `None` for v2.
    pub controller: Option<String>,
    pub mount: Option<PathBuf>,
}

/// v1 controllers in the order of preference: the memory controller is the one that engines always use.
const CONTROLLERS: [&str; 6] = ["memory", "cpuacct", "cpu", "pids", "devices", "freezer"];

/// Chooses the hierarchy from `proc/self/mountinfo` below `root`.
pub fn choose(root: &Path) -> Hierarchy {
    let mounts = mounts(root);
    let v2 = mounts.iter().find(|mount| mount.controllers.is_none()).map(|mount| mount.at.clone());
    let v1 = CONTROLLERS.iter().find_map(|controller| {
        let has = |mount: &&Mount| {
            mount.controllers.as_ref().is_some_and(|all| all.iter().any(|one| one == controller))
        };
        mounts.iter().find(has).map(|mount| ((*controller).to_string(), mount.at.clone()))
    });
    match (v1, v2) {
        (Some((controller, at)), v2) => Hierarchy {
            mode: if v2.is_some() { Mode::Hybrid } else { Mode::Legacy },
            controller: Some(controller),
            mount: Some(at),
        },
        (None, Some(at)) => Hierarchy { mode: Mode::Unified, controller: None, mount: Some(at) },
        (None, None) => Hierarchy { mode: Mode::None, controller: None, mount: None },
    }
}

/// A mounted hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    pub at: PathBuf,
    /// Controllers of v1, `name=…` among them; `None` for cgroup v2.
    pub controllers: Option<Vec<String>>,
}

/// All hierarchies, from `proc/self/mountinfo` below `root`.
pub fn mounts(root: &Path) -> Vec<Mount> {
    parse_mounts(&fs::read_to_string(root.join("proc/self/mountinfo")).unwrap_or_default())
}

/// Facts about the cgroups of the host, from the mounts that `proc/self/mountinfo` below `root` lists; `None` without any.
pub fn facts(root: &Path) -> Option<CgroupFacts> {
    let mode = match choose(root).mode {
        Mode::Unified => CgroupMode::V2,
        Mode::Hybrid => CgroupMode::Hybrid,
        Mode::Legacy => CgroupMode::V1,
        Mode::None => return None,
    };
    let has_cpusets =
        |mount: &Mount| mount.controllers.iter().flatten().any(|controller| controller == "cpuset");
    let cpusets = mounts(root).into_iter().find(has_cpusets);
    // With the mount option noprefix the files are called without "cpuset.".
    let flag = |name: &str| {
        let at = &cpusets.as_ref()?.at;
        let text = fs::read_to_string(at.join(format!("cpuset.{name}")))
            .or_else(|_| fs::read_to_string(at.join(name)));
        match text.ok()?.trim() {
            "0" => Some(false),
            "1" => Some(true),
            _ => None,
        }
    };
    Some(CgroupFacts {
        mode,
        memory_migrate: flag("memory_migrate"),
        memory_spread_page: flag("memory_spread_page"),
        memory_spread_slab: flag("memory_spread_slab"),
    })
}

/// The hierarchy that `path` lies in, and what remains of the path; `None` when it lies in none whose
/// ids the kernel programs can see (a v1 hierarchy without a controller).
pub fn containing<'a>(root: &Path, path: &'a Path) -> Option<(Hierarchy, &'a Path)> {
    let mode = choose(root).mode;
    let lies_in = |mount: &Mount| path.starts_with(&mount.at);
    let mount = mounts(root).into_iter().filter(lies_in).max_by_key(|mount| mount.at.as_os_str().len())?;
    let controller = match &mount.controllers {
        None => None,
        Some(all) => {
            Some(all.iter().find(|name| !name.contains('=') && !OPTIONS.contains(&name.as_str()))?.clone())
        }
    };
    let rest = path.strip_prefix(&mount.at).ok()?;
    Some((Hierarchy { mode, controller, mount: Some(mount.at) }, rest))
}

/// Mount options that stand among the controllers.
const OPTIONS: [&str; 8] =
    ["rw", "ro", "none", "noprefix", "xattr", "clone_children", "cpuset_v2_mode", "favordynmods"];

/// Lines of proc(5): `id parent dev root mountpoint options … - fstype source super-options`.
fn parse_mounts(mountinfo: &str) -> Vec<Mount> {
    let parse = |line: &str| {
        let (front, back) = line.split_once(" - ")?;
        let at = PathBuf::from(unescape(front.split(' ').nth(4)?));
        let mut back = back.split(' ');
        match back.next()? {
            "cgroup2" => Some(Mount { at, controllers: None }),
            "cgroup" => {
                let options = back.nth(1)?;
                Some(Mount { at, controllers: Some(options.split(',').map(str::to_string).collect()) })
            }
            _ => None,
        }
    };
    mountinfo.lines().filter_map(parse).collect()
}

/// mountinfo writes space, tab, newline and backslash as octal escapes.
fn unescape(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

impl Hierarchy {
    /// True when the mount shows a part of the tree only, as in a container with a cgroup namespace of
    /// its own: the root of every hierarchy has inode number 1.
    pub fn is_partial(&self) -> bool {
        let ino = |at: &PathBuf| fs::metadata(at).map(|meta| meta.ino()).ok();
        self.mount.as_ref().and_then(ino).is_some_and(|ino| ino != 1)
    }

    /// Id → path (as [`crate::model::cgroup_path`] writes it) for every cgroup that exists now. The id is the directory's inode number; the root is "/".
    pub fn paths(&self) -> BTreeMap<u64, String> {
        let mut paths = BTreeMap::new();
        let Some(mount) = &self.mount else { return paths };
        let mut stack = vec![(mount.clone(), String::new())];
        while let Some((dir, below)) = stack.pop() {
            let Ok(meta) = fs::symlink_metadata(&dir) else { continue };
            paths.insert(meta.ino(), if below.is_empty() { "/".to_string() } else { below.clone() });
            if paths.len() >= WALK_LIMIT {
                break;
            }
            for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    let name = entry.file_name();
                    stack.push((
                        entry.path(),
                        format!("{below}/{}", cgroup_path::from_bytes(name.as_bytes())),
                    ));
                }
            }
        }
        paths
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
30 25 0:26 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
31 25 0:27 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
32 25 0:28 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
33 25 0:29 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";

    fn host(mountinfo: &str) -> Hierarchy {
        let dir =
            std::env::temp_dir().join(format!("numatop-cgroups-{}-{}", std::process::id(), mountinfo.len()));
        fs::create_dir_all(dir.join("proc/self")).unwrap();
        fs::write(dir.join("proc/self/mountinfo"), mountinfo).unwrap();
        let hierarchy = choose(&dir);
        fs::remove_dir_all(&dir).unwrap();
        hierarchy
    }

    #[test]
    fn a_hybrid_host_is_told_apart_by_a_v1_controller() {
        let hierarchy = host(HYBRID);
        assert_eq!(hierarchy.mode, Mode::Hybrid);
        assert_eq!(hierarchy.controller.as_deref(), Some("memory"));
        assert_eq!(hierarchy.mount.as_deref(), Some(Path::new("/sys/fs/cgroup/memory")));
    }

    #[test]
    fn a_full_path_selects_the_hierarchy_it_lies_in() {
        let dir = std::env::temp_dir().join(format!("numatop-containing-{}", std::process::id()));
        fs::create_dir_all(dir.join("proc/self")).unwrap();
        fs::write(dir.join("proc/self/mountinfo"), HYBRID).unwrap();
        let find = |path: &'static str| containing(&dir, Path::new(path));
        let (cpu, rest) = find("/sys/fs/cgroup/cpu/docker/web").unwrap();
        assert_eq!((cpu.controller.as_deref(), rest), (Some("cpu"), Path::new("docker/web")));
        assert_eq!(find("/sys/fs/cgroup/unified/x").unwrap().0.controller, None);
        assert!(find("/sys/fs/cgroup/systemd/x").is_none() && find("/docker/web").is_none());
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_unified_host_uses_v2() {
        let hierarchy = host("30 25 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n");
        assert_eq!((hierarchy.mode, hierarchy.controller), (Mode::Unified, None));
    }

    #[test]
    fn flags_of_cpusets_are_those_of_cgroup_v1() {
        let root = std::env::temp_dir().join(format!("numatop-cgroup-facts-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            fs::write(root.join(path), text).unwrap();
        };
        write("cpuset/cpuset.memory_migrate", "1\n");
        write("cpuset/cpuset.memory_spread_page", "0\n");
        let line = format!("30 25 0:26 / {}/cpuset rw - cgroup cgroup rw,cpuset,memory\n", root.display());
        write("proc/self/mountinfo", &line);
        let v1 = facts(&root);
        write("proc/self/mountinfo", "30 25 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        let v2 = facts(&root);
        write("proc/self/mountinfo", "");
        let none = facts(&root);
        fs::remove_dir_all(&root).unwrap();
        let flags =
            |facts: CgroupFacts| (facts.memory_migrate, facts.memory_spread_page, facts.memory_spread_slab);
        assert_eq!(
            v1.map(|facts| (facts.mode, flags(facts))),
            Some((CgroupMode::V1, (Some(true), Some(false), None)))
        );
        assert_eq!(v2.map(|facts| (facts.mode, flags(facts))), Some((CgroupMode::V2, (None, None, None))));
        assert_eq!(none, None);
    }

    #[test]
    fn no_cgroups_is_no_error() {
        assert_eq!(host("").mode, Mode::None);
    }
}
