//! The metrics of memory controllers: bytes that they read and wrote, by node and by socket.

use super::over::{Over, Quotient};
use super::{Group, Metric, Order, Traits, Unit, Value, hardware, no};
use crate::model::facility::Facility;
use crate::model::sample::{Missing, Reading};
use crate::model::sums::KnownSum;
use crate::model::turns::{DramBytes, DramCount, DramTraffic};
use crate::model::units::NodeId;
use crate::snapshot::{CpuSet, Node, SetKind, Snapshot};

const READ_HELP: &str = "Bytes per second that memory controllers read from DRAM, for devices and the CPUs \
                         of all nodes. Not verified on hardware.";
const WRITE_HELP: &str = "Bytes per second that memory controllers wrote to DRAM, for devices and the CPUs \
                          of all nodes. Not verified on hardware.";
const BUSY_HELP: &str = "Bytes that memory controllers read and wrote, in % of bandwidth_gbs of the node to \
                         its own memory. It can exceed 100, because calibrate measures only reads. Not \
                         verified on hardware.";

pub const READ: Metric<Node> = rate("dram_read_bytes_per_s", "DRAMRD/s", READ_HELP, |node, snapshot| {
    per_second(read(of_node(node, snapshot)?, &node.counts.dram), snapshot)
});

pub const WRITE: Metric<Node> = rate("dram_write_bytes_per_s", "DRAMWR/s", WRITE_HELP, |node, snapshot| {
    per_second(write(of_node(node, snapshot)?, &node.counts.dram), snapshot)
});

pub const BUSY: Metric<Node> = Metric {
    over: Over::Quotient(node_busy),
    ..share("dram_busy_pct", BUSY_HELP, |node, snapshot| {
        node_busy(node, snapshot).map(Quotient::value).map(Value::F64)
    })
};

pub const SET_READ: Metric<CpuSet> = rate(READ.id, READ.title, READ_HELP, |set, snapshot| {
    per_second(read(of_socket(set, snapshot)?, &set.dram), snapshot)
});

pub const SET_WRITE: Metric<CpuSet> = rate(WRITE.id, WRITE.title, WRITE_HELP, |set, snapshot| {
    per_second(write(of_socket(set, snapshot)?, &set.dram), snapshot)
});

pub const SET_BUSY: Metric<CpuSet> = Metric {
    over: Over::Quotient(socket_busy),
    ..share(BUSY.id, BUSY_HELP, |set, snapshot| {
        socket_busy(set, snapshot).map(Quotient::value).map(Value::F64)
    })
};

/// Traffic of the node.
fn of_node<'s>(node: &Node, snapshot: &'s Snapshot) -> Reading<&'s DramTraffic> {
    let traffic = snapshot.inputs.node_dram.get(&NodeId(node.raw.id));
    traffic.map(|traffic| &**traffic).ok_or_else(|| no("no memory controller of the node is counted"))
}

/// Traffic of the socket; caches have none.
fn of_socket<'s>(set: &CpuSet, snapshot: &'s Snapshot) -> Reading<&'s DramTraffic> {
    if set.kind != SetKind::Socket {
        return Err(no("memory controllers count by node and by socket, not by cache"));
    }
    let traffic = snapshot.inputs.socket_dram.get(&set.id);
    traffic.map(|traffic| &**traffic).ok_or_else(|| no("no memory controller of the socket is counted"))
}

fn read(traffic: &DramTraffic, bytes: &DramBytes) -> Reading<u64> {
    known(&traffic.read, bytes.read)
}

fn write(traffic: &DramTraffic, bytes: &DramBytes) -> Reading<u64> {
    known(&traffic.write, bytes.write)
}

/// Bytes in the interval.
fn known(count: &DramCount, bytes: KnownSum) -> Reading<u64> {
    if let Some(why) = &count.why {
        return Err(why.clone());
    }
    let unknown = || Missing::Lost("this is the first reading, or a reading failed in the interval".into());
    bytes.get().ok_or_else(unknown)
}

fn per_second(bytes: Reading<u64>, snapshot: &Snapshot) -> Reading<Value> {
    snapshot.rate(0)?;
    snapshot.rate(bytes?).map(Value::F64)
}

fn node_busy(node: &Node, snapshot: &Snapshot) -> Reading<Quotient> {
    busy(of_node(node, snapshot)?, &node.counts.dram, || own_gbs(NodeId(node.raw.id), snapshot), snapshot)
}

fn socket_busy(set: &CpuSet, snapshot: &Snapshot) -> Reading<Quotient> {
    let topology = &snapshot.host.topology;
    let is_elsewhere = |node: u32| {
        let mut cpus = topology.cpus.iter().filter(|cpu| cpu.online && cpu.node == Some(NodeId(node)));
        cpus.any(|cpu| !set.cpus.contains(&cpu.id.0))
    };
    let gbs = || {
        if set.nodes.iter().any(|node| is_elsewhere(*node)) {
            return Err(no("calibrate measures nodes, and a node has CPUs of several sockets"));
        }
        set.nodes.iter().map(|node| own_gbs(NodeId(*node), snapshot)).sum()
    };
    busy(of_socket(set, snapshot)?, &set.dram, gbs, snapshot)
}

/// Reads of a node by its own cores, GB/s.
fn own_gbs(node: NodeId, snapshot: &Snapshot) -> Reading<f64> {
    hardware::bandwidth_gbs(&snapshot.host.topology, node, node).map(|measured| measured.value)
}

/// The bytes moved as a share of what the bandwidth `gbs` allows in the interval.
fn busy(
    traffic: &DramTraffic,
    bytes: &DramBytes,
    gbs: impl Fn() -> Reading<f64>,
    snapshot: &Snapshot,
) -> Reading<Quotient> {
    snapshot.rate(0)?;
    let moved = read(traffic, bytes)? as f64 + write(traffic, bytes)? as f64;
    // One GB/s is a byte per ns.
    let most = gbs()? * snapshot.interval_ns.unwrap_or(0) as f64;
    if most > 0.0 { Ok(Quotient::pct(moved, most)) } else { Err(no("the measured bandwidth is 0")) }
}

const fn rate<R>(
    id: &'static str,
    title: &'static str,
    help: &'static str,
    value: fn(&R, &Snapshot) -> Reading<Value>,
) -> Metric<R> {
    let kind = (Group::Node, Unit::PerSecond, Order::Descending);
    Metric::new(id, (title, 8), kind, help, value).with(Traits::NONE.needs(&[Facility::MemoryControllers]))
}

const fn share<R>(
    id: &'static str,
    help: &'static str,
    value: fn(&R, &Snapshot) -> Reading<Value>,
) -> Metric<R> {
    let kind = (Group::Node, Unit::Percent, Order::Descending);
    Metric::new(id, ("DRAM%", 6), kind, help, value).with(Traits::NONE.needs(&[Facility::MemoryControllers]))
}
