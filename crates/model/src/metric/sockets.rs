//! The metrics of IP sockets that processes and containers use.

use super::over::{Better, Over, Quotient};
use super::{Group, Metric, Order, Several, Traits, Unit, Value, no};
use crate::model::facility::Facility;
use crate::model::sample::Reading;
use crate::model::sockets::{SocketSums, SocketTraffic};
use crate::snapshot::{Container, Snapshot, Task};

const NEEDS: Traits = Traits::NONE.needs(&[Facility::SocketTraffic]);

/// A rate of a process, and the same of a container.
macro_rules! rates {
    ($($metric:ident, $of_container:ident: $id:literal, $title:literal, $help:literal, $of:expr;)*) => {$(
        pub const $metric: Metric<Task> = rate($id, $title, $help, |task, snapshot| {
            let of: fn(&SocketSums) -> u64 = $of;
            snapshot.rate(of(&sums(task, snapshot)?)).map(Value::F64)
        });
        pub const $of_container: Metric<Container> = rate($id, $title, $help, |row, snapshot| {
            let of: fn(&SocketSums) -> u64 = $of;
            snapshot.rate(of(&row.sockets)).map(Value::F64)
        });
    )*};
}

rates! {
    RECEIVED, CONTAINER_RECEIVED: "net_recv_bytes_per_s", "RECVB/s",
        "Bytes per second received from IP sockets, without loopback. Excludes splice(2).",
        |sums| sums.all.received;
    READS, CONTAINER_READS: "net_reads_per_s", "RECV/s",
        "Calls per second that received bytes from IP sockets, without loopback.",
        |sums| sums.all.reads;
    SENT, CONTAINER_SENT: "net_sent_bytes_per_s", "SENTB/s",
        "Bytes per second sent through IP sockets, without loopback. Excludes sendfile(2) and splice(2).",
        |sums| sums.all.sent;
}

pub const FAR_PCT: Metric<Task> = far(
    "net_far_pct",
    |task, snapshot| share(&sums(task, snapshot)?, snapshot).map(Quotient::value).map(Value::F64),
    |task, snapshot| share(&sums(task, snapshot)?, snapshot),
);
pub const CONTAINER_FAR_PCT: Metric<Container> = far(
    FAR_PCT.id,
    |row, snapshot| share(&row.sockets, snapshot).map(Quotient::value).map(Value::F64),
    |row, snapshot| share(&row.sockets, snapshot),
);

const fn rate<R>(
    id: &'static str,
    title: &'static str,
    help: &'static str,
    value: fn(&R, &Snapshot) -> Reading<Value>,
) -> Metric<R> {
    let kind = (Group::Running, Unit::PerSecond, Order::Descending);
    Metric::new(id, (title, 8), kind, help, value).with(NEEDS)
}

const fn far<R>(
    id: &'static str,
    value: fn(&R, &Snapshot) -> Reading<Value>,
    of: fn(&R, &Snapshot) -> Reading<Quotient>,
) -> Metric<R> {
    const HELP: &str = "Share of received bytes whose packets were processed (softirq) on a node other than the reader's. \
                        Excludes unconnected UDP sockets.";
    let kind = (Group::Running, Unit::Percent, Order::Descending);
    let metric = Metric::new(id, ("NETFAR%", 7), kind, HELP, value).over(Over::Quotient(of));
    metric.with(NEEDS.several(Several::Nodes).better(Better::Low))
}

/// Traffic of a process in the interval by route.
///
/// # Errors
/// The row is a thread: traffic is counted by process.
pub fn traffic<'s>(task: &Task, snapshot: &'s Snapshot) -> Reading<&'s SocketTraffic> {
    static NONE: SocketTraffic = SocketTraffic::new();
    if task.tid.is_some() {
        return Err(no("socket traffic is counted by process"));
    }
    Ok(snapshot.socket_traffic.get(&task.raw.process()).unwrap_or(&NONE))
}

/// Traffic of a process in the interval.
///
/// # Errors
/// As [`traffic`].
pub fn sums(task: &Task, snapshot: &Snapshot) -> Reading<SocketSums> {
    traffic(task, snapshot).map(SocketSums::of)
}

fn share(sums: &SocketSums, snapshot: &Snapshot) -> Reading<Quotient> {
    snapshot.rate(0)?;
    if sums.known == 0 {
        return Err(no("the process received no bytes from connected IP sockets"));
    }
    Ok(Quotient::pct(sums.far as f64, sums.known as f64))
}
