//! Filesystems whose files are opened: those of the system at once, and others after everything else, because they may not
//! answer. Which one a file is on is known from lists of procfs, without asking the file.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// Types of filesystems that answer when a server does.
const SERVED: [&str; 14] = [
    "fuse", "nfs", "cifs", "smb", "ceph", "9p", "afs", "autofs", "coda", "orangefs", "lustre", "virtiofs",
    "vboxsf", "gfs2",
];
/// A list of mounts is read again after this, where a device is not in it.
const AGE: Duration = Duration::from_secs(1);

/// What a batch may open.
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

/// Devices of filesystems that the system has mounted and that nobody serves, as `/proc/PID/maps` writes them.
#[derive(Default)]
pub(super) struct Mounts {
    own: HashSet<String>,
    read: Option<Instant>,
}

impl Mounts {
    /// Whether a file on this device is served by nobody.
    pub(super) fn has(&mut self, device: &str) -> bool {
        if !self.own.contains(device) && self.read.is_none_or(|read| read.elapsed() >= AGE) {
            let text = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
            (self.own, self.read) = (own_devices(&text), Some(Instant::now()));
        }
        self.own.contains(device)
    }
}

/// Lines of proc(5): `id parent major:minor root mountpoint options … - type source options`.
fn own_devices(mountinfo: &str) -> HashSet<String> {
    let device = |line: &str| {
        let (front, back) = line.split_once(" - ")?;
        let mut words = front.split(' ').skip(2);
        let (major, minor) = words.next()?.split_once(':')?;
        let (at, kind) = (words.nth(1)?, back.split(' ').next()?);
        // The system runs from its root, whoever serves that.
        let is_own = at == "/" || !SERVED.iter().any(|served| kind.starts_with(served));
        let [major, minor] = [major, minor].map(|number| number.parse::<u32>().ok());
        is_own.then_some(format!("{:02x}:{:02x}", major?, minor?))
    };
    mountinfo.lines().filter_map(device).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_a_server_has_are_known_by_their_device() {
        let own = own_devices(
            "22 1 254:1 / / rw - ext4 /dev/vda1 rw\n\
             30 22 0:45 / /home/m/x rw - fuse.sshfs m@h:/ rw\n\
             31 22 0:46 / /srv rw - nfs4 h:/ rw\n\
             32 22 0:47 / /var/lib/docker/overlay2/1/merged rw - overlay overlay rw\n",
        );
        assert_eq!(own, HashSet::from(["fe:01".to_owned(), "00:2f".to_owned()]));
        assert_eq!(own_devices("22 1 0:20 / / rw - 9p root rw\n").len(), 1);
    }

    #[test]
    fn the_file_of_this_test_is_on_a_device_of_the_system() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let device = maps.lines().next().unwrap().split(' ').nth(3).unwrap();
        let served = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(Mounts::default().has(device) || SERVED.iter().any(|kind| served.contains(kind)));
    }
}
