//! Which cgroup hierarchy tells tasks apart here, and what the ids in it are called.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Directories visited at most when the tree is read.
const WALK_LIMIT: usize = 100_000;

/// How cgroups are mounted, in the words of systemd.
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
    let mountinfo = fs::read_to_string(root.join("proc/self/mountinfo")).unwrap_or_default();
    let mounts = parse_mounts(&mountinfo);
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

struct Mount {
    at: PathBuf,
    /// `None` for cgroup v2.
    controllers: Option<Vec<String>>,
}

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
    /// Id → path for every cgroup that exists now. The id is the directory's inode number; the root is "/".
    pub fn paths(&self) -> BTreeMap<u64, String> {
        let mut paths = BTreeMap::new();
        let Some(mount) = &self.mount else { return paths };
        let mut stack = vec![(mount.clone(), String::new())];
        while let Some((dir, path)) = stack.pop() {
            let Ok(meta) = fs::symlink_metadata(&dir) else { continue };
            paths.insert(meta.ino(), if path.is_empty() { "/".to_string() } else { path.clone() });
            if paths.len() >= WALK_LIMIT {
                break;
            }
            for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    let name = entry.file_name();
                    stack.push((entry.path(), format!("{path}/{}", name.to_string_lossy())));
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
    fn a_unified_host_uses_v2() {
        let hierarchy = host("30 25 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n");
        assert_eq!((hierarchy.mode, hierarchy.controller), (Mode::Unified, None));
    }

    #[test]
    fn no_cgroups_is_no_error() {
        assert_eq!(host("").mode, Mode::None);
    }
}
