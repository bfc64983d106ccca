//! Use of disks, by cgroup and by process.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use super::coded::{Copied, Key, coded};
use super::process::ProcessId;
use super::sums::sums;
use super::units::NodeId;

/// Bytes and requests of one disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskUse {
    /// Read and written.
    pub bytes: u64,
    /// Of both kinds.
    pub requests: u64,
}

coded!(DiskUse { bytes, requests });
sums!(DiskUse { bytes, requests });

impl DiskUse {
    /// The difference since `before`.
    pub fn since(self, before: DiskUse) -> DiskUse {
        DiskUse {
            bytes: self.bytes.saturating_sub(before.bytes),
            requests: self.requests.saturating_sub(before.requests),
        }
    }
}

/// By the address of the disks' PCI function, in the form of [`crate::model::topology::Device::pci`]. Empty
/// for disks without one, such as network disks.
pub type DisksUsed = BTreeMap<String, DiskUse>;

/// The sender of requests to disks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct DiskSender {
    /// Id of the process; 0: a cgroup, for which kernel threads write pages back.
    pub pid: u32,
    /// Start of the process, ns since boot; of a cgroup its id.
    pub id: u64,
}

coded!(DiskSender { pid, id });
impl Copied for DiskSender {}
impl Key for DiskSender {}

impl DiskSender {
    /// All senders that are cgroups.
    pub const CGROUPS: RangeInclusive<DiskSender> =
        DiskSender { pid: 0, id: 0 }..=DiskSender { pid: 0, id: u64::MAX };
}

impl From<ProcessId> for DiskSender {
    fn from((pid, id): ProcessId) -> DiskSender {
        DiskSender { pid, id }
    }
}

/// Traffic of one sender.
pub type DiskTraffic = BTreeMap<DiskRoute, DiskUse>;

/// The way from the CPUs of a node to a disk.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DiskRoute {
    /// Address of the PCI function of the disk, as in [`DisksUsed`].
    pub disk: String,
    /// Node of the CPU that submits the requests.
    pub from: NodeId,
}

coded!(DiskRoute { disk, from }, most MAX_ROUTES, "routes to disks");

/// Routes of one sender at most.
pub const MAX_ROUTES: usize = 1 << 16;

/// The traffic of a sender since `before`. A route that was left out meanwhile begins at 0.
pub fn traffic_since(now: &DiskTraffic, before: Option<&DiskTraffic>) -> DiskTraffic {
    let since = |(route, now): (&DiskRoute, &DiskUse)| {
        let known = before.and_then(|before| before.get(route));
        let known = known.filter(|old| old.bytes <= now.bytes && old.requests <= now.requests);
        (route.clone(), now.since(known.copied().unwrap_or_default()))
    };
    now.iter().map(since).filter(|(_, used)| used.requests > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_that_returns_begins_at_nothing() {
        let traffic = |routes: &[(&str, u32, u64, u64)]| -> DiskTraffic {
            let route = |(disk, from, bytes, requests): &(&str, u32, u64, u64)| {
                let route = DiskRoute { disk: (*disk).into(), from: NodeId(*from) };
                (route, DiskUse { bytes: *bytes, requests: *requests })
            };
            routes.iter().map(route).collect()
        };
        let before = traffic(&[("a", 0, 100, 10), ("b", 0, 7, 7), ("c", 1, 5, 1)]);
        let now = traffic(&[("a", 0, 150, 11), ("a", 1, 8, 2), ("b", 0, 3, 1), ("c", 1, 5, 1)]);
        let sent = traffic(&[("a", 0, 50, 1), ("a", 1, 8, 2), ("b", 0, 3, 1)]);
        assert_eq!(traffic_since(&now, Some(&before)), sent);
        assert_eq!(traffic_since(&now, None), now);
    }
}
