//! The metrics of disks that processes and containers use.

use std::collections::BTreeMap;

use super::container::delta;
use super::over::{Better, Over, Quotient};
use super::{Group, Metric, Order, Traits, Unit, Value, no};
use crate::model::disks::{DiskSender, DiskTraffic, DiskUse};
use crate::model::facility::Facility;
use crate::model::sample::Reading;
use crate::model::sums::Sum;
use crate::model::topology::Topology;
use crate::model::traffic::total;
use crate::model::units::NodeId;
use crate::snapshot::{Container, GroupDelta, Snapshot, Task};

pub const DISK_BYTES_PER_S: Metric<Container> = per_second(
    "disk_bytes_per_s",
    "DISKB/s",
    "Bytes per second that it and groups below it read from and write to disks, between the last two readings of \
     io.stat (cgroup v2). Reads from the page cache do not count.",
    |row, _| rate(row, |used| used.bytes),
);

pub const DISK_REQUESTS_PER_S: Metric<Container> = per_second(
    "disk_requests_per_s",
    "DISKRQ/s",
    "Disk requests per second of it and groups below it, between the last two readings of io.stat (cgroup v2).",
    |row, _| rate(row, |used| used.requests),
);

pub const DISK_FAR_PCT: Metric<Container> = Metric {
    id: "disk_far_pct",
    title: "DISKFAR%",
    width: 8,
    group: Group::Running,
    unit: Unit::Percent,
    order: Order::Descending,
    help: "Share of disk_bytes_per_s on disks of nodes other than the one where it runs most. Disks with an \
           unknown node, such as network disks, count only in the total.",
    value: |row, snapshot| {
        let home = row.sum.home_node().ok_or_else(|| no("the group has not run"))?;
        let by_node = by_node(delta(row)?, &snapshot.host.topology)?;
        let all = by_node.values().fold(0u64, |sum, used| sum.saturating_add(used.bytes));
        if all == 0 {
            return Err(no("the group did not use a disk"));
        }
        let far = by_node.iter().filter(|(node, _)| node.is_some_and(|node| node != home));
        let far = far.fold(0u64, |sum, (_, used)| sum.saturating_add(used.bytes));
        Ok(Value::F64(far as f64 * 100.0 / all as f64))
    },
    over: Over::Level,
    traits: Traits::NONE.needs(&[Facility::CgroupLimits]).better(Better::Low),
};

/// The kinds of [`DISK_FAR_PCT`], as `disk_far_source` names them.
const FROM_IO_STAT: &str = "io.stat";
const FROM_SUBMISSION: &str = "submitted";

pub const DISK_FAR_SOURCE: Metric<Container> = Metric::new(
    "disk_far_source",
    ("DISKSRC", 9),
    (Group::Running, Unit::Text, Order::Ascending),
    "Origin of disk_far_pct. submitted: nodes of the CPUs that submit requests (processes). io.stat: the node where \
     the group runs most (containers).",
    |row, snapshot| (DISK_FAR_PCT.value)(row, snapshot).map(|_| Value::Text(FROM_IO_STAT.into())),
)
.with(Traits::NONE.needs(&[Facility::CgroupLimits]));

pub const WRITEBACK_BYTES_PER_S: Metric<Container> = Metric {
    traits: OF_PROCESS,
    ..per_second(
        "writeback_bytes_per_s",
        "WBACKB/s",
        "Bytes per second that kernel threads write to disks for it and groups below it: write-back after \
         the write call returned, and swapped-out pages. With cgroup v1 only the root group has a value. \
         Excludes cgroups without tasks.",
        |row, snapshot| snapshot.rate(row.written_back).map(Value::F64),
    )
};

/// Bytes of the interval that kernel threads wrote to a disk, by the address of its PCI function. Disks without any are left out.
///
/// # Errors
/// The host does not count them.
pub fn written_back(snapshot: &Snapshot) -> Reading<BTreeMap<&str, u64>> {
    if let Some(missing) = snapshot.host_missing(WRITEBACK_BYTES_PER_S.id) {
        return Err(missing.clone());
    }
    let mut sums = BTreeMap::<&str, u64>::new();
    for traffic in snapshot.disk_traffic.range(DiskSender::CGROUPS).map(|(_, traffic)| traffic) {
        for (route, used) in traffic.iter().filter(|(route, _)| !route.disk.is_empty()) {
            sums.entry(&route.disk).or_default().add(&used.bytes);
        }
    }
    Ok(sums)
}

const fn per_second(
    id: &'static str,
    title: &'static str,
    help: &'static str,
    value: fn(&Container, &Snapshot) -> Reading<Value>,
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
    Ok(Value::F64(of(&total(disks.values())) as f64 * 1e9 / delta.interval_ns as f64))
}

pub const PROCESS_BYTES_PER_S: Metric<Task> = of_process(
    DISK_BYTES_PER_S.id,
    DISK_BYTES_PER_S.title,
    "Bytes per second that it reads from and writes to disks, counted on submission: direct and synchronous \
     requests, reads, fsync. Later write-back by the kernel and reads from the page cache do not count.",
    "process_disk_bytes_per_s",
    |task, snapshot| process_rate(task, snapshot, |used| used.bytes),
);

pub const PROCESS_REQUESTS_PER_S: Metric<Task> = of_process(
    DISK_REQUESTS_PER_S.id,
    DISK_REQUESTS_PER_S.title,
    "Its disk requests per second, counted on submission.",
    "process_disk_requests_per_s",
    |task, snapshot| process_rate(task, snapshot, |used| used.requests),
);

pub const PROCESS_FAR_PCT: Metric<Task> = Metric {
    unit: DISK_FAR_PCT.unit,
    over: Over::Quotient(far),
    traits: OF_PROCESS.better(Better::Low).missing_as("process_disk_far_pct"),
    ..of_process(
        DISK_FAR_PCT.id,
        DISK_FAR_PCT.title,
        "Share of its disk bytes that it submits on a node other than that of the disk. Disks with an unknown \
         node, such as network disks, count only in the total.",
        "process_disk_far_pct",
        |task, snapshot| far(task, snapshot).map(Quotient::value).map(Value::F64),
    )
};

pub const PROCESS_FAR_SOURCE: Metric<Task> = Metric::new(
    DISK_FAR_SOURCE.id,
    (DISK_FAR_SOURCE.title, DISK_FAR_SOURCE.width),
    (DISK_FAR_SOURCE.group, DISK_FAR_SOURCE.unit, DISK_FAR_SOURCE.order),
    DISK_FAR_SOURCE.help,
    |task, snapshot| far(task, snapshot).map(|_| Value::Text(FROM_SUBMISSION.into())),
)
.with(OF_PROCESS.missing_as("process_disk_far_source"));

/// Containers have the same metrics from their files.
const OF_PROCESS: Traits = Traits::NONE.needs(&[Facility::DiskTraffic]);

const fn of_process(
    id: &'static str,
    title: &'static str,
    help: &'static str,
    missing_as: &'static str,
    value: fn(&Task, &Snapshot) -> Reading<Value>,
) -> Metric<Task> {
    let kind = (Group::Running, Unit::PerSecond, Order::Descending);
    Metric::new(id, (title, 8), kind, help, value).with(OF_PROCESS.missing_as(missing_as))
}

/// Traffic of a process in the interval.
///
/// # Errors
/// It is counted of whole processes that are no kernel threads.
pub fn traffic<'a>(task: &Task, snapshot: &'a Snapshot) -> Reading<&'a DiskTraffic> {
    static NONE: DiskTraffic = BTreeMap::new();
    if task.tid.is_some() {
        return Err(no("disk traffic is counted by process"));
    }
    if task.raw.kthread {
        return Err(no("kernel threads write for other tasks"));
    }
    Ok(snapshot.disk_traffic.get(&task.raw.process().into()).unwrap_or(&NONE))
}

/// Use of disks by a process, by their node; `None` is the node of those whose node is not known.
///
/// # Errors
/// As [`traffic`].
pub fn process_by_node(task: &Task, snapshot: &Snapshot) -> Reading<ByNode> {
    let used = traffic(task, snapshot)?.iter().map(|(route, used)| (&route.disk, used));
    Ok(add_up(used, &snapshot.host.topology))
}

fn far(task: &Task, snapshot: &Snapshot) -> Reading<Quotient> {
    snapshot.rate(0)?;
    let (mut far, mut all) = (0u64, 0u64);
    for (route, used) in traffic(task, snapshot)? {
        all.add(&used.bytes);
        if node_of(&route.disk, &snapshot.host.topology).is_some_and(|node| node != route.from) {
            far.add(&used.bytes);
        }
    }
    if all == 0 {
        Err(no("the process did not use a disk"))
    } else {
        Ok(Quotient::pct(far as f64, all as f64))
    }
}

fn process_rate(task: &Task, snapshot: &Snapshot, of: fn(&DiskUse) -> u64) -> Reading<Value> {
    snapshot.rate(of(&total(traffic(task, snapshot)?.values()))).map(Value::F64)
}

/// The node of a disk by the address of its PCI function; `None` where the firmware does not give it.
fn node_of(address: &str, topology: &Topology) -> Option<NodeId> {
    let has = |node: &&crate::model::topology::Node| {
        node.devices.iter().any(|device| device.pci.as_deref() == Some(address))
    };
    topology.nodes.iter().find(has).map(|node| node.id)
}

/// Use of disks by their node; `None` is the node of those whose node is not known.
pub type ByNode = BTreeMap<Option<NodeId>, DiskUse>;

fn add_up<'a>(used: impl Iterator<Item = (&'a String, &'a DiskUse)>, topology: &Topology) -> ByNode {
    let mut sums = ByNode::new();
    for (address, used) in used {
        sums.entry(node_of(address, topology)).or_default().add(used);
    }
    sums
}

/// Use of disks by a container, by their node.
///
/// # Errors
/// Why their use is not known.
pub fn by_node(delta: &GroupDelta, topology: &Topology) -> Reading<ByNode> {
    Ok(add_up(delta.disks.as_ref().map_err(Clone::clone)?.iter(), topology))
}
