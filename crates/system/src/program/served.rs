//! Filesystems that answer when a server does: a network, or a process of a user.

use std::path::{Path, PathBuf};

/// Types of such filesystems begin so.
const TYPES: [&str; 14] = [
    "fuse", "nfs", "cifs", "smb", "ceph", "9p", "afs", "autofs", "coda", "orangefs", "lustre", "virtiofs",
    "vboxsf", "gfs2",
];

/// A mount, of a line of `/proc/PID/mountinfo` (proc(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Major and minor number.
    pub device: (u32, u32),
    pub at: PathBuf,
    /// Type of the file system.
    pub kind: String,
    /// A server has its files. False for the root file system, since the whole system depends on it.
    pub served: bool,
}

/// All mounts of a `mountinfo`: `id parent major:minor root mountpoint options … - type source options`.
pub fn mounts(mountinfo: &str) -> Vec<Mount> {
    let mount = |line: &str| {
        let (front, back) = line.split_once(" - ")?;
        let mut words = front.split(' ').skip(2);
        let (major, minor) = words.next()?.split_once(':')?;
        let (at, kind) = (unescaped(words.nth(1)?), back.split(' ').next()?);
        Some(Mount {
            device: (major.parse().ok()?, minor.parse().ok()?),
            served: at != "/" && TYPES.iter().any(|served| kind.starts_with(served)),
            at: at.into(),
            kind: kind.to_owned(),
        })
    };
    mountinfo.lines().filter_map(mount).collect()
}

/// The mounts that this process sees.
pub fn own_mounts() -> Vec<Mount> {
    mounts(&std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())
}

/// The mount that a path without links is on: of two at one place the later one is seen.
pub fn mount_of<'a>(path: &Path, mounts: &'a [Mount]) -> Option<&'a Mount> {
    mounts
        .iter()
        .filter(|mount| path.starts_with(&mount.at))
        .max_by_key(|mount| mount.at.components().count())
}

/// mountinfo writes space, tab, newline and backslash as octal escapes.
fn unescaped(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_of_a_path_is_the_deepest_and_the_last() {
        let mounts = mounts(
            "22 1 254:1 / / rw - ext4 /dev/vda1 rw\n\
             30 22 0:45 / /home/m/my\\040files rw - fuse.sshfs m@h:/ rw\n\
             31 22 0:46 / /srv rw - ext4 /dev/b rw\n\
             32 22 0:47 / /srv rw - nfs4 h:/ rw\n",
        );
        let served = |path: &str| mount_of(Path::new(path), &mounts).map(|mount| mount.served);
        assert_eq!(served("/home/m/my files/x"), Some(true));
        assert_eq!(
            (served("/home/m/my"), served("/srv/a"), served("/srvx")),
            (Some(false), Some(true), Some(false))
        );
    }

    #[test]
    fn the_root_is_no_server_of_others() {
        assert!(!mounts("22 1 0:20 / / rw - 9p root rw\n")[0].served);
    }
}
