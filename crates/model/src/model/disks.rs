//! Use of disks, by cgroup and by process.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use super::coded::{Copied, Key, coded};
use super::process::ProcessId;
use super::traffic::{Routes, traffic_counts};
use super::units::NodeId;
use super::wire::DiskSent;

/// Bytes and requests of one disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskUse {
    /// Read and written.
    pub bytes: u64,
    /// Of both kinds.
    pub requests: u64,
}

coded!(DiskUse { bytes, requests });
traffic_counts!(DiskUse { bytes, requests });

impl From<DiskSent> for DiskUse {
    fn from(DiskSent { bytes, requests }: DiskSent) -> DiskUse {
        DiskUse { bytes, requests }
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
pub type DiskTraffic = Routes<DiskRoute, DiskUse>;

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
