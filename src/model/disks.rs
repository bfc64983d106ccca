//! Use of disks, by cgroup and by process.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::coded::{Copied, Key, coded};
use super::process::ProcessId;
use super::sums::Sum;
use super::units::NodeId;

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

impl From<ProcessId> for DiskSender {
    fn from((pid, id): ProcessId) -> DiskSender {
        DiskSender { pid, id }
    }
}

/// Traffic of one sender.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskTraffic {
    /// By disk and by node of the CPU, in ascending order.
    pub routes: Vec<DiskRoute>,
}

coded!(DiskTraffic { routes });

/// Traffic from the CPUs of one node to one disk.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DiskRoute {
    /// Address of the PCI function of the disk, as in [`DisksUsed`].
    pub disk: String,
    /// Node of the CPU that submits the requests.
    pub from: NodeId,
    /// Bytes read and written.
    pub bytes: u64,
    /// Requests of all kinds: flushes and discards, too.
    pub requests: u64,
}

coded!(DiskRoute { disk, from, bytes, requests }, most MAX_ROUTES, "routes to disks");

/// Routes of one sender at most.
pub const MAX_ROUTES: usize = 1 << 16;

impl DiskTraffic {
    /// The traffic since `before`. A route that was left out meanwhile begins at 0.
    pub fn since(&self, before: Option<&DiskTraffic>) -> DiskTraffic {
        let known = |route: &DiskRoute| {
            let old = before?.routes.iter().find(|old| (&old.disk, old.from) == (&route.disk, route.from))?;
            (old.bytes <= route.bytes && old.requests <= route.requests).then_some(old)
        };
        let since = |route: &DiskRoute| {
            let (bytes, requests) = known(route).map_or((0, 0), |old| (old.bytes, old.requests));
            DiskRoute { bytes: route.bytes - bytes, requests: route.requests - requests, ..route.clone() }
        };
        let routes = self.routes.iter().map(since).filter(|route| route.requests > 0);
        DiskTraffic { routes: routes.collect() }
    }
}

impl Sum for DiskTraffic {
    fn add(&mut self, more: &DiskTraffic) {
        for route in &more.routes {
            match self.routes.iter_mut().find(|sum| (&sum.disk, sum.from) == (&route.disk, route.from)) {
                Some(sum) => {
                    sum.bytes.add(&route.bytes);
                    sum.requests.add(&route.requests);
                }
                None => self.routes.push(route.clone()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_that_returns_begins_at_nothing() {
        let route = |disk: &str, from, bytes, requests| DiskRoute {
            disk: disk.into(),
            from: NodeId(from),
            bytes,
            requests,
        };
        let before =
            DiskTraffic { routes: vec![route("a", 0, 100, 10), route("b", 0, 7, 7), route("c", 1, 5, 1)] };
        let now = DiskTraffic {
            routes: vec![
                route("a", 0, 150, 11),
                route("a", 1, 8, 2),
                route("b", 0, 3, 1),
                route("c", 1, 5, 1),
            ],
        };
        let sent =
            DiskTraffic { routes: vec![route("a", 0, 50, 1), route("a", 1, 8, 2), route("b", 0, 3, 1)] };
        assert_eq!(now.since(Some(&before)), sent);
        assert_eq!(now.since(None), now);
    }
}
