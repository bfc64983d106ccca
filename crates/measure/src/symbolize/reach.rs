//! Filesystems whose files are opened: those of the system at once, and others after everything else, because they may not
//! answer. The filesystem of a file is known from lists of procfs, without asking the file.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::program::served::{self, Mount};

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
    use super::*;

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
