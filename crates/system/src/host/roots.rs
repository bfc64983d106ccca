//! Roots below which files of a machine are found: our own, the host's as seen in a container, or the copy of
//! a reported machine.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};

/// Places of files, by subject. All are "/" without `--host-root`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roots<'a> {
    /// This process, its privileges, what the running kernel can do, and files of processes by the ids that we know them by.
    pub own: &'a Path,
    /// Users, engines and mounts of cgroups.
    pub host: &'a Path,
    /// CPUs, nodes, caches and devices in sysfs, and machine-wide counts in /proc. It is `host` where `host` has both: containers
    /// that mount the host's files, and copied trees. Else it is `own`.
    pub machine: &'a Path,
}

impl<'a> Roots<'a> {
    pub fn new(own: &'a Path, host: &'a Path) -> Roots<'a> {
        let files = ["sys/devices/system/cpu/online", "proc/stat"];
        let described = files.iter().all(|file| host.join(file).exists());
        Roots { own, host, machine: if described { host } else { own } }
    }

    /// The note that `host` has no files of a machine, where it was named for them.
    pub fn undescribed(self) -> Option<String> {
        let other = self.host != self.own && self.machine == self.own;
        let root = crate::text::clean_str(&self.host.to_string_lossy());
        other.then(|| {
            format!("{root} has no /sys and /proc of a machine (--host-root): those mounted here are used")
        })
    }
}

impl<'a> From<&'a Path> for Roots<'a> {
    fn from(root: &'a Path) -> Roots<'a> {
        Roots { own: root, host: root, machine: root }
    }
}

impl<'a> From<&'a PathBuf> for Roots<'a> {
    fn from(root: &'a PathBuf) -> Roots<'a> {
        Roots::from(root.as_path())
    }
}

/// The place of `path` below `root`. Links on the way are followed as on a machine with that root: an
/// absolute one begins at `root` again. The plain path if nothing exists there, and before Linux 5.6.
pub fn below(root: &Path, path: impl AsRef<Path>) -> PathBuf {
    let path = path.as_ref();
    let path = path.strip_prefix("/").unwrap_or(path);
    let plain = root.join(path);
    if root == Path::new("/") { plain } else { resolved(root, path).unwrap_or(plain) }
}

fn resolved(root: &Path, path: &Path) -> io::Result<PathBuf> {
    let place = OFlags::PATH | OFlags::CLOEXEC;
    let root = openat(CWD, root, place | OFlags::DIRECTORY, Mode::empty())?;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let found = openat2(&root, path, place, Mode::empty(), resolve)?;
    fs::read_link(format!("/proc/self/fd/{}", found.as_raw_fd()))
}

/// The root of a host that `--host-root` names, as an absolute path without links.
///
/// # Errors
/// It is not there, or is no directory.
pub fn of_host(path: &Path) -> io::Result<PathBuf> {
    let root = path.canonicalize()?;
    if root.is_dir() { Ok(root) } else { Err(io::Error::from(io::ErrorKind::NotADirectory)) }
}

/// Entries of a copied tree, and bytes of one of its files: real ones have some 50,000, and 4 KiB.
const ENTRIES_MAX: usize = 500_000;
const FILE_MAX: u64 = 4 << 20;
/// Bytes of the list of users.
const PASSWD_MAX: u64 = 64 << 20;

/// sysfs and procfs (statfs(2)): the kernel makes their files.
const OF_KERNEL: [u32; 2] = [0x6265_6572, 0x9fa0];

/// Refuses a copy of a machine's files with entries that no machine has there: pipes and devices, files
/// without end, links that lead out. Mounted sysfs and procfs are not checked.
///
/// # Errors
/// Names the file.
pub fn check_copy(root: &Path) -> Result<(), String> {
    for (file, most) in [("etc/passwd", PASSWD_MAX), ("etc/hostname", FILE_MAX)] {
        if let Ok(meta) = fs::metadata(below(root, file)) {
            check_file(&root.join(file), &meta, most)?;
        }
    }
    let mut left = ENTRIES_MAX;
    for part in ["sys", "proc"].map(|part| root.join(part)) {
        let Ok(meta) = fs::symlink_metadata(&part) else { continue };
        let of_kernel =
            rustix::fs::statfs(&part).is_ok_and(|found| OF_KERNEL.contains(&(found.f_type as u32)));
        if meta.is_symlink() {
            check_link(root, &part)?;
        } else if !of_kernel {
            check_folder(root, &part, meta.dev(), &mut left)?;
        }
    }
    Ok(())
}

fn check_folder(root: &Path, folder: &Path, device: u64, left: &mut usize) -> Result<(), String> {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        *left = left.checked_sub(1).ok_or_else(|| format!("{} has too many files", root.display()))?;
        // Processes of a copied /proc are not read.
        let is_process = entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit);
        let Ok(meta) = fs::symlink_metadata(&path) else { continue };
        if meta.is_symlink() {
            check_link(root, &path)?;
        } else if !meta.is_dir() {
            check_file(&path, &meta, FILE_MAX)?;
        } else if meta.dev() == device && !(is_process && folder.ends_with("proc")) {
            check_folder(root, &path, device, left)?;
        }
    }
    Ok(())
}

fn check_file(path: &Path, meta: &fs::Metadata, most: u64) -> Result<(), String> {
    match meta.is_file() {
        true if meta.len() <= most => Ok(()),
        true => Err(format!("{} has {} bytes, too many for a file of its kind", path.display(), meta.len())),
        false => Err(format!("{} is not a regular file", path.display())),
    }
}

/// A relative link stays below the root, whatever it names there.
fn check_link(root: &Path, path: &Path) -> Result<(), String> {
    let outside = || format!("{} is a symbolic link that leads out of {}", path.display(), root.display());
    let target = fs::read_link(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut depth = path.strip_prefix(root).map_or(0, |below| below.components().count() as i64) - 1;
    for part in target.components() {
        depth += match part {
            Component::Normal(_) => 1,
            Component::ParentDir => -1,
            Component::CurDir => 0,
            Component::RootDir | Component::Prefix(_) => return Err(outside()),
        };
        if depth < 0 {
            return Err(outside());
        }
    }
    Ok(())
}

/// The name that a host gives itself in `etc/hostname` below `root`; none if the file is missing or empty.
pub fn host_name(root: &Path) -> Option<String> {
    let text = fs::read_to_string(below(root, "etc/hostname")).ok()?;
    // hostname(5): comments are lines that begin with '#'.
    let name = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
    name.map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::FileType;
    use std::os::unix::fs::symlink;

    /// A directory of a test's own, removed at its end.
    struct Host(PathBuf);

    impl Host {
        fn new(name: &str) -> Host {
            let root = std::env::temp_dir().join(format!("numatop-roots-{}-{name}", std::process::id()));
            fs::create_dir_all(root.join("etc")).unwrap();
            Host(root.canonicalize().unwrap())
        }
    }

    impl Drop for Host {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn links_stay_below_the_root() {
        let host = Host::new("links");
        let root = host.0.as_path();
        fs::create_dir_all(root.join("data/docker")).unwrap();
        fs::create_dir_all(root.join("var/lib")).unwrap();
        symlink("/data/docker", root.join("var/lib/docker")).unwrap();
        symlink("../../../../../../data", root.join("var/up")).unwrap();
        symlink("/proc/self/root", root.join("var/out")).unwrap();
        assert_eq!(below(root, "var/lib/docker"), root.join("data/docker"));
        assert_eq!(below(root, "/var/lib/docker"), root.join("data/docker"));
        assert_eq!(below(root, "var/up"), root.join("data"));
        assert_eq!(below(root, "var/out"), root.join("var/out"), "there is no proc below this root");
        assert_eq!(below(root, "var/lib/podman"), root.join("var/lib/podman"));
        assert_eq!(below(Path::new("/"), "etc/passwd"), Path::new("/etc/passwd"));
    }

    #[test]
    fn a_host_has_the_name_in_its_file() {
        let host = Host::new("name");
        let name = |text: &str| {
            fs::write(host.0.join("etc/hostname"), text).unwrap();
            host_name(&host.0)
        };
        assert_eq!(name("# comment\n\n db-7 \nother\n").as_deref(), Some("db-7"));
        assert_eq!(name("\n"), None);
        assert_eq!(host_name(Path::new("/nonexistent")), None);
    }

    #[test]
    fn a_copy_has_what_a_machine_has_and_nothing_else() {
        let host = Host::new("copy");
        let root = host.0.as_path();
        fs::create_dir_all(root.join("sys/devices/system/cpu/cpu0")).unwrap();
        fs::create_dir_all(root.join("proc/17")).unwrap();
        fs::write(root.join("proc/stat"), "cpu 1\n").unwrap();
        symlink("../cpu0", root.join("sys/devices/system/cpu/cpu0/itself")).unwrap();
        symlink("/etc", root.join("proc/17/cwd")).unwrap();
        assert_eq!(check_copy(root), Ok(()));
        assert_eq!(check_copy(Path::new("/")), Ok(()), "the kernel's own");
        let refused = |make: &dyn Fn(&Path), path: &str| {
            make(&root.join(path));
            let why = check_copy(root).unwrap_err();
            fs::remove_file(root.join(path)).unwrap();
            assert!(why.contains(path), "{why}");
            why
        };
        let pipe = |path: &Path| rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert!(refused(&pipe, "proc/vmstat").ends_with("is not a regular file"));
        assert!(refused(&pipe, "etc/hostname").ends_with("is not a regular file"));
        let endless = |path: &Path| fs::File::create(path).unwrap().set_len(FILE_MAX + 1).unwrap();
        assert!(refused(&endless, "sys/devices/system/cpu/online").contains("too many"));
        for target in ["/sys/devices/system/cpu", "../../../../../etc", "/dev/zero"] {
            assert!(
                refused(&|path| symlink(target, path).unwrap(), "sys/devices/node").contains("leads out")
            );
        }
    }

    #[test]
    fn a_root_is_a_directory() {
        let host = Host::new("directory");
        fs::write(host.0.join("file"), "").unwrap();
        symlink(&host.0, host.0.join("self")).unwrap();
        assert_eq!(of_host(&host.0.join("self")).unwrap(), host.0);
        assert_eq!(of_host(&host.0.join("file")).unwrap_err().kind(), io::ErrorKind::NotADirectory);
        assert_eq!(of_host(&host.0.join("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
