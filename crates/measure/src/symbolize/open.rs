//! Opening files that other users choose: regular files of real filesystems only, with no effect on anything else.
//!
//! A path of a process may be a link to a device or a pipe of the host, and opening one of those has effects.
//! So each file is found without being opened (`O_PATH`) and checked. Then that very file is opened. Files of the filesystems of
//! the system are opened at once, and others after everything else, because they may not answer. The filesystem of a file is
//! known from lists of procfs, without asking the file.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, FsWord, Mode, OFlags, ResolveFlags, open, openat2};
use serde::{Deserialize, Serialize};

use crate::program::served::{self, Mount};

/// Filesystems whose files are made by code that runs when they are read (statfs(2), linux/magic.h): procfs,
/// sysfs, debugfs, tracefs, securityfs, cgroup v1 and v2, bpf, pstore, efivarfs, configfs, selinuxfs,
/// binfmt_misc, nsfs. Their files appear as regular files.
const MADE_BY_CODE: [FsWord; 14] = [
    0x9fa0,
    0x6265_6572,
    0x6462_6720,
    0x7472_6163,
    0x7363_6673,
    0x0027_e0eb,
    0x6367_7270,
    0xcafe_4a11,
    0x6165_676c,
    0xde5e_81e4,
    0x6265_6570,
    0xf97c_ff8c,
    0x4249_4e4d,
    0x6e73_6673,
];

/// Whether a link may be the last part of a path.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LastLink {
    Followed,
    Refused,
}

/// Opens `path` below `root`, a directory. Links are followed as in a process whose root that is, and links of procfs
/// to what a process has open are not.
///
/// # Errors
/// The file does not exist or is not regular; `ENOSYS` before Linux 5.6.
pub(super) fn below(root: BorrowedFd<'_>, path: &Path, last: LastLink) -> io::Result<File> {
    let no_follow = if last == LastLink::Refused { OFlags::NOFOLLOW } else { OFlags::empty() };
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let found = openat2(root, path, OFlags::PATH | OFlags::CLOEXEC | no_follow, Mode::empty(), resolve)?;
    regular(found)
}

/// Opens the file that a link in `/proc/PID/map_files` points to.
///
/// # Errors
/// The link does not exist, may not be followed, or its file is not regular.
pub(super) fn mapped(link: &Path) -> io::Result<File> {
    regular(open(link, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

/// A directory to find files below.
///
/// # Errors
/// It does not exist, or access is denied.
pub(super) fn directory(path: &Path) -> io::Result<OwnedFd> {
    Ok(open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// The root of the host.
///
/// # Errors
/// See [`directory`].
pub(super) fn host_root() -> io::Result<OwnedFd> {
    directory(Path::new("/"))
}

fn regular(found: OwnedFd) -> io::Result<File> {
    let stat = rustix::fs::fstat(&found)?;
    let made_by_code = || -> io::Result<bool> {
        let kind = rustix::fs::fstatfs(&found)?.f_type;
        // The type is 32 bits wide, whatever the field is.
        Ok(MADE_BY_CODE.contains(&(kind & 0xffff_ffff)))
    };
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || made_by_code()? {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    // Not blocking: another process may hold a lease on it (fcntl(2), F_SETLEASE).
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::openat(CWD, held(&found), flags, Mode::empty())?))
}

/// A path to the file behind `fd`, even if its name is reused.
pub(super) fn held(fd: impl AsFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()))
}

/// A list of mounts is read again after this, where a device is not in it.
const AGE: Duration = Duration::from_secs(1);

/// Files that a batch may open.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Reach {
    /// Files that others serve.
    pub served: bool,
    /// Paths in the root of the process.
    pub paths: bool,
    /// Devices, and paths of users, that did not answer.
    pub refused: Vec<String>,
}

impl Reach {
    pub(super) fn refuses(&self, what: &str) -> bool {
        self.refused.iter().any(|refused| refused == what)
    }
}

/// Devices of filesystems that the system has mounted and that no other program serves, in the form of
/// `/proc/PID/maps`.
#[derive(Default)]
pub(super) struct Mounts {
    own: HashSet<String>,
    read: Option<Instant>,
}

impl Mounts {
    /// Whether the filesystem of this device needs no other program.
    pub(super) fn has(&mut self, device: &str) -> bool {
        if !self.own.contains(device) && self.read.is_none_or(|read| read.elapsed() >= AGE) {
            (self.own, self.read) = (own_devices(&served::own_mounts()), Some(Instant::now()));
        }
        self.own.contains(device)
    }
}

fn own_devices(mounts: &[Mount]) -> HashSet<String> {
    let own = mounts.iter().filter(|mount| !mount.served);
    own.map(|mount| format!("{:02x}:{:02x}", mount.device.0, mount.device.1)).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// A directory of this test, and its root.
    struct Room(PathBuf);

    impl Room {
        fn new(name: &str) -> Room {
            let dir = std::env::temp_dir().join(format!("numatop-ng-open-{name}-{}", std::process::id()));
            fs::create_dir_all(dir.join("tmp")).unwrap();
            Room(dir)
        }

        fn open(&self, path: &str, last: LastLink) -> io::Result<File> {
            below(directory(&self.0).unwrap().as_fd(), Path::new(path), last)
        }
    }

    impl Drop for Room {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_link_stays_below_its_root() {
        let room = Room::new("links");
        fs::write(room.0.join("there"), "inside").unwrap();
        for (link, target) in
            [("absolute", "/there"), ("upward", "../../../there"), ("outside", "/etc/passwd")]
        {
            symlink(target, room.0.join("tmp").join(link)).unwrap();
        }
        for link in ["tmp/absolute", "/tmp/upward"] {
            let text = io::read_to_string(room.open(link, LastLink::Followed).unwrap()).unwrap();
            assert_eq!(text, "inside");
            assert!(room.open(link, LastLink::Refused).is_err());
        }
        assert!(room.open("tmp/outside", LastLink::Followed).is_err());
        assert!(room.open("../../../../../../etc/passwd", LastLink::Followed).is_err());
    }

    #[test]
    fn devices_and_pipes_are_not_opened() {
        let room = Room::new("devices");
        let pipe = room.0.join("pipe");
        rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert!(room.open("pipe", LastLink::Followed).is_err());
        let host = host_root().unwrap();
        for path in
            ["dev/null", "dev/zero", "dev/full", "dev", "proc/self/exe", "proc/self/fd/0", "proc/cmdline"]
        {
            assert!(below(host.as_fd(), Path::new(path), LastLink::Followed).is_err(), "{path}");
        }
        // A writer who waits for a reader would have been let in.
        let flags = OFlags::WRONLY | OFlags::NONBLOCK;
        assert_eq!(open(&pipe, flags, Mode::empty()).unwrap_err(), rustix::io::Errno::NXIO);
    }

    #[test]
    fn a_mapped_file_is_opened_though_it_was_removed() {
        let exe = mapped(Path::new("/proc/self/exe")).unwrap();
        assert!(exe.metadata().unwrap().len() > 0);
    }

    #[test]
    fn files_that_a_server_has_are_known_by_their_device() {
        let own = own_devices(&served::mounts(
            "22 1 254:1 / / rw - ext4 /dev/vda1 rw\n\
             30 22 0:45 / /home/m/x rw - fuse.sshfs m@h:/ rw\n\
             31 22 0:46 / /srv rw - nfs4 h:/ rw\n\
             32 22 0:47 / /var/lib/docker/overlay2/1/merged rw - overlay overlay rw\n",
        ));
        assert_eq!(own, HashSet::from(["fe:01".to_owned(), "00:2f".to_owned()]));
    }

    #[test]
    fn the_file_of_this_test_is_on_a_device_of_the_system() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let device = maps.lines().next().unwrap().split(' ').nth(3).unwrap();
        assert!(Mounts::default().has(device) || served::own_mounts().iter().any(|mount| mount.served));
    }
}
