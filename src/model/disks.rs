//! Use of disks by a cgroup.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Bytes and requests of one disk, cumulative; discards are in neither.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskUse {
    /// Read and written.
    pub bytes: u64,
    /// Of both kinds.
    pub requests: u64,
}

impl DiskUse {
    /// The difference since `before`.
    pub fn since(self, before: DiskUse) -> DiskUse {
        DiskUse {
            bytes: self.bytes.saturating_sub(before.bytes),
            requests: self.requests.saturating_sub(before.requests),
        }
    }

    /// The sum of both.
    pub fn plus(self, other: DiskUse) -> DiskUse {
        DiskUse {
            bytes: self.bytes.saturating_add(other.bytes),
            requests: self.requests.saturating_add(other.requests),
        }
    }
}

/// By the address of the disks' PCI function, in the form of [`crate::model::topology::Device::pci`]. Empty
/// for disks without one, such as network disks.
pub type DisksUsed = BTreeMap<String, DiskUse>;
