//! The cgroup hierarchy used to group tasks here, the paths of its ids, programs that manage it, and pressure stall
//! information: the `total` of /proc/pressure and of the pressure files of cgroup v2.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::{Deserialize, Serialize};

use super::roots::Roots;
use crate::model::sample::{CgroupFacts, CgroupMode, Managers, Pressure};

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

/// v1 controllers in the order of preference. The memory controller comes first because engines always use
/// it.
const CONTROLLERS: [&str; 6] = ["memory", "cpuacct", "cpu", "pids", "devices", "freezer"];

/// Chooses the hierarchy from [`mounts`].
pub fn choose<'a>(roots: impl Into<Roots<'a>>) -> Hierarchy {
    let mounts = mounts(roots);
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

/// All hierarchies, from `proc/self/mountinfo` below our own root. Where some are mounted below the root of the host, only those:
/// those of a container may show a part of the tree.
pub fn mounts<'a>(roots: impl Into<Roots<'a>>) -> Vec<Mount> {
    let roots = roots.into();
    let text = fs::read_to_string(roots.own.join("proc/self/mountinfo")).unwrap_or_default();
    let (of_host, others): (Vec<Mount>, _) =
        parse_mounts(&text).into_iter().partition(|mount| mount.at.starts_with(roots.host));
    if of_host.is_empty() { others } else { of_host }
}

/// Whether a hierarchy is mounted below the root of the host.
pub fn has_mounts_of_host(roots: Roots<'_>) -> bool {
    mounts(roots).iter().any(|mount| mount.at.starts_with(roots.host))
}

/// Facts about the cgroups of the host, from its [`mounts`]; `None` without any.
pub fn facts<'a>(roots: impl Into<Roots<'a>>) -> Option<CgroupFacts> {
    let roots = roots.into();
    let mode = match choose(roots).mode {
        Mode::Unified => CgroupMode::V2,
        Mode::Hybrid => CgroupMode::Hybrid,
        Mode::Legacy => CgroupMode::V1,
        Mode::None => return None,
    };
    let has_cpusets =
        |mount: &Mount| mount.controllers.iter().flatten().any(|controller| controller == "cpuset");
    let cpusets = mounts(roots).into_iter().find(has_cpusets);
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

/// The hierarchy that contains `path`, and the rest of the path. `None` if the kernel programs cannot see its
/// ids (a v1 hierarchy without a controller). The path may also be that of the host.
pub fn containing<'a, 'p>(roots: impl Into<Roots<'a>>, path: &'p Path) -> Option<(Hierarchy, &'p Path)> {
    let roots = roots.into();
    let mode = choose(roots).mode;
    let mounts = mounts(roots);
    let here = |mount: &Mount| path.strip_prefix(&mount.at).ok();
    let on_host = |mount: &Mount| {
        let at = Path::new("/").join(mount.at.strip_prefix(roots.host).ok()?);
        path.strip_prefix(at).ok()
    };
    let deepest = |rest: &dyn Fn(&Mount) -> Option<&'p Path>| {
        let lying_in = mounts.iter().filter_map(|mount| Some((mount, rest(mount)?)));
        lying_in.max_by_key(|(mount, _)| mount.at.as_os_str().len())
    };
    let (mount, rest) = deepest(&here).or_else(|| deepest(&on_host))?;
    let controller = match &mount.controllers {
        None => None,
        Some(all) => {
            Some(all.iter().find(|name| !name.contains('=') && !OPTIONS.contains(&name.as_str()))?.clone())
        }
    };
    Some((Hierarchy { mode, controller, mount: Some(mount.at.clone()) }, rest))
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
    /// True when the mount shows only a part of the tree, as in a container with a separate cgroup namespace.
    /// The root of every hierarchy has inode number 1.
    pub fn is_partial(&self) -> bool {
        let ino = |at: &PathBuf| fs::metadata(at).map(|meta| meta.ino()).ok();
        self.mount.as_ref().and_then(ino).is_some_and(|ino| ino != 1)
    }
}

/// The managers whose processes `proc` below `root` lists: those of the pid namespace that it was mounted in.
pub fn managers(root: &Path) -> Managers {
    let proc = root.join("proc");
    let runs = |pid: &Path, name: &str| {
        fs::read_to_string(pid.join("comm")).is_ok_and(|comm| comm.trim_end_matches('\n') == name)
    };
    let user = |pid: &Path| fs::metadata(pid).ok().map(|meta| meta.uid());
    let system = user(&proc.join("1"));
    let is_process = |name: &std::ffi::OsStr| name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
    let mut processes = fs::read_dir(&proc).into_iter().flatten().flatten();
    Managers {
        systemd: runs(&proc.join("1"), "systemd"),
        // Anybody may call a process so: it has the user of process 1.
        kubelet: processes.any(|entry| {
            is_process(&entry.file_name()) && user(&entry.path()) == system && runs(&entry.path(), "kubelet")
        }),
    }
}

/// The pressure that `read` gives the files of, by their name: "cpu" or "memory".
///
/// # Errors
/// The first file that cannot be read: with `psi=0` the files exist, and opening them fails with EOPNOTSUPP.
/// A text in another format is [`io::ErrorKind::InvalidData`].
pub fn read_pressure(mut read: impl FnMut(&str) -> io::Result<String>) -> io::Result<Pressure> {
    let (cpu, memory) = (read("cpu")?, read("memory")?);
    let known = |total: Option<u64>| {
        total.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a pressure file cannot be parsed"))
    };
    Ok(Pressure {
        cpu_some_us: known(total(&cpu, "some"))?,
        memory_some_us: known(total(&memory, "some"))?,
        memory_full_us: known(total(&memory, "full"))?,
    })
}

/// The total of a line such as `some avg10=0.12 avg60=0.05 avg300=0.01 total=123456`, in microseconds.
fn total(text: &str, kind: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(kind)?.strip_prefix(' '))?;
    line.split(' ').find_map(|word| word.strip_prefix("total=")?.parse().ok())
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
    fn a_container_looks_at_the_hierarchies_of_its_host() {
        let dir = std::env::temp_dir().join(format!("numatop-host-mounts-{}", std::process::id()));
        fs::create_dir_all(dir.join("proc/self")).unwrap();
        let own = "40 25 0:30 /../.. /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n";
        let of_host = HYBRID.replace("/sys/fs/cgroup", "/host/sys/fs/cgroup");
        let write = |text: &str| fs::write(dir.join("proc/self/mountinfo"), text).unwrap();
        let roots = Roots::new(&dir, Path::new("/host"));
        write(&format!("{own}{of_host}"));
        let seen = (choose(roots), has_mounts_of_host(roots));
        let find = |path: &'static str| {
            containing(roots, Path::new(path)).map(|(hierarchy, rest)| (hierarchy.mount.unwrap(), rest))
        };
        let mount = PathBuf::from("/host/sys/fs/cgroup/cpu");
        for path in ["/sys/fs/cgroup/cpu/docker/web", "/host/sys/fs/cgroup/cpu/docker/web"] {
            assert_eq!(find(path), Some((mount.clone(), Path::new("docker/web"))), "{path}");
        }
        assert_eq!(find("/sys/fs/cgroup/docker/web"), None, "that is the hierarchy of the container");
        // The host is not there: what the container sees is better than nothing.
        write(own);
        let alone = (choose(roots), has_mounts_of_host(roots));
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(seen.0.mount.as_deref(), Some(Path::new("/host/sys/fs/cgroup/memory")));
        assert_eq!((seen.0.mode, seen.1), (Mode::Hybrid, true));
        assert_eq!(alone.0.mount.as_deref(), Some(Path::new("/sys/fs/cgroup")));
        assert_eq!((alone.0.mode, alone.1), (Mode::Unified, false));
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

    #[test]
    fn managers_are_known_by_the_names_of_their_processes() {
        let root = std::env::temp_dir().join(format!("numatop-managers-{}", std::process::id()));
        let process = |pid: &str, comm: &str| {
            fs::create_dir_all(root.join("proc").join(pid)).unwrap();
            fs::write(root.join("proc").join(pid).join("comm"), comm).unwrap();
        };
        process("1", "init\n");
        process("self", "kubelet\n");
        process("77", "kubelet-bench\n");
        assert_eq!(managers(&root), Managers::default());
        process("1", "systemd\n");
        process("812", "kubelet\n");
        assert_eq!(managers(&root), Managers { systemd: true, kubelet: true });
        // Handing it over needs a privilege.
        if std::os::unix::fs::chown(root.join("proc/812"), Some(54_321), None).is_ok() {
            assert_eq!(
                managers(&root),
                Managers { systemd: true, kubelet: false },
                "a name that a user chose"
            );
        }
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(managers(&root), Managers::default());
    }

    const CPU: &str =
        "some avg10=1.00 avg60=0.50 avg300=0.10 total=700\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1\n";

    const MEMORY: &str =
        "some avg10=0.00 avg60=0.00 avg300=0.00 total=20\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=3\n";

    #[test]
    fn totals_are_taken_and_averages_are_not() {
        let text = |name: &str| Ok(if name == "cpu" { CPU } else { MEMORY }.to_string());
        let pressure = Pressure { cpu_some_us: 700, memory_some_us: 20, memory_full_us: 3 };
        assert_eq!(read_pressure(text).unwrap(), pressure);
    }

    #[test]
    fn a_file_without_a_total_is_an_error() {
        for text in ["", "some", "some total=x", "something total=3"] {
            assert_eq!(
                read_pressure(|_| Ok(text.into())).unwrap_err().kind(),
                io::ErrorKind::InvalidData,
                "{text}"
            );
        }
        assert!(read_pressure(|_| Err(io::ErrorKind::NotFound.into())).is_err());
    }
}
