//! The metrics of disks that containers use.

use std::collections::BTreeMap;

use super::container::delta;
use super::over::{Better, Over};
use super::{Group, Metric, Order, Traits, Unit, Value, no};
use crate::model::disks::DiskUse;
use crate::model::facility::Facility;
use crate::model::sample::Reading;
use crate::model::topology::Topology;
use crate::model::units::NodeId;
use crate::snapshot::{Container, GroupDelta};

pub const DISK_BYTES_PER_S: Metric<Container> = per_second(
    "disk_bytes_per_s",
    "DISKB/s",
    "Bytes per second that it, and all below it, read from and wrote to disks between the last two readings of io.stat (cgroup v2). \
     Reads from the page cache are not among them.",
    |row, _| rate(row, |used| used.bytes),
);

pub const DISK_REQUESTS_PER_S: Metric<Container> =
    per_second("disk_requests_per_s", "DISKRQ/s", "Its disk requests per second in that time.", |row, _| {
        rate(row, |used| used.requests)
    });

pub const DISK_FAR_PCT: Metric<Container> = Metric {
    id: "disk_far_pct",
    title: "DISKFAR%",
    width: 8,
    group: Group::Running,
    unit: Unit::Percent,
    order: Order::Descending,
    help: "Share of these bytes on disks of other nodes than the one where it runs most. Disks with an unknown \
           node, such as network disks, count in the total only.",
    value: |row, snapshot| {
        let home = row.sum.home_node().ok_or_else(|| no("it has not run"))?;
        let by_node = by_node(delta(row)?, &snapshot.host.topology)?;
        let all = by_node.values().fold(0u64, |sum, used| sum.saturating_add(used.bytes));
        if all == 0 {
            return Err(no("it used no disk"));
        }
        let far = by_node.iter().filter(|(node, _)| node.is_some_and(|node| node != home));
        let far = far.fold(0u64, |sum, (_, used)| sum.saturating_add(used.bytes));
        Ok(Value::F64(far as f64 * 100.0 / all as f64))
    },
    over: Over::Level,
    traits: Traits::NONE.needs(&[Facility::CgroupLimits]).better(Better::Low),
};

const fn per_second(
    id: &'static str,
    title: &'static str,
    help: &'static str,
    value: fn(&Container, &crate::snapshot::Snapshot) -> Reading<Value>,
) -> Metric<Container> {
    let (group, unit) = (Group::Running, Unit::PerSecond);
    let (width, order, over) = (8, Order::Descending, Over::Level);
    let traits = Traits::NONE.needs(&[Facility::CgroupLimits]);
    Metric { id, title, width, group, unit, order, help, value, over, traits }
}

/// An amount of all disks between the last two readings, per second.
fn rate(row: &Container, of: fn(&DiskUse) -> u64) -> Reading<Value> {
    let delta = delta(row)?;
    let disks = delta.disks.as_ref().map_err(Clone::clone)?;
    let sum = disks.values().fold(0u64, |sum, used| sum.saturating_add(of(used)));
    Ok(Value::F64(sum as f64 * 1e9 / delta.interval_ns as f64))
}

/// Use of disks by their node; `None` is the node of those whose node is not known.
///
/// # Errors
/// Why their use is not known.
pub fn by_node(delta: &GroupDelta, topology: &Topology) -> Reading<BTreeMap<Option<NodeId>, DiskUse>> {
    let mut sums: BTreeMap<Option<NodeId>, DiskUse> = BTreeMap::new();
    for (address, used) in delta.disks.as_ref().map_err(Clone::clone)? {
        let has = |node: &&crate::model::topology::Node| {
            node.devices.iter().any(|device| device.pci.as_ref() == Some(address))
        };
        let sum = sums.entry(topology.nodes.iter().find(has).map(|node| node.id)).or_default();
        *sum = sum.plus(*used);
    }
    Ok(sums)
}
