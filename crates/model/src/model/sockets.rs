//! Bytes that processes receive from and send to IP sockets.

use super::coded::coded;
use super::sums::{Sum, sums};
use super::traffic::{Routes, traffic_counts};
use super::units::NodeId;
use super::wire::SocketMoved;

/// Traffic of one route. Loopback does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketUse {
    /// Bytes received.
    pub received: u64,
    /// Calls that received some.
    pub reads: u64,
    /// Bytes sent, where the route is from a node to itself.
    pub sent: u64,
}

coded!(SocketUse { received, reads, sent });
traffic_counts!(SocketUse { received, reads, sent });

impl From<SocketMoved> for SocketUse {
    fn from(SocketMoved { received, reads, sent }: SocketMoved) -> SocketUse {
        SocketUse { received, reads, sent }
    }
}

/// The way of a packet to the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SocketRoute {
    /// Node of the CPU whose softirq processed the last packet; `None` where it is unknown, as for unconnected UDP sockets.
    pub from: Option<NodeId>,
    /// Node of the CPU that read or sent.
    pub to: NodeId,
}

coded!(SocketRoute { from, to }, most MAX_ROUTES, "routes of packets");

/// Routes of one process at most.
const MAX_ROUTES: usize = 1 << 16;

/// Traffic of one process.
pub type SocketTraffic = Routes<SocketRoute, SocketUse>;

/// Sums over routes and processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketSums {
    /// All of it.
    pub all: SocketUse,
    /// Bytes received whose softirq ran on a known CPU.
    pub known: u64,
    /// Bytes of `known` whose softirq ran on another node than the reader.
    pub far: u64,
}

sums!(SocketSums { all, known, far });

impl SocketSums {
    /// The sums over the routes of one process.
    pub fn of(traffic: &SocketTraffic) -> SocketSums {
        let mut sums = SocketSums::default();
        for (route, used) in traffic {
            sums.all.add(used);
            if let Some(from) = route.from {
                sums.known.add(&used.received);
                sums.far.add(if from == route.to { &0 } else { &used.received });
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_an_unknown_cpu_are_in_no_share() {
        let route = |from: Option<u32>, to| SocketRoute { from: from.map(NodeId), to: NodeId(to) };
        let received = |received| SocketUse { received, reads: 1, sent: 0 };
        let traffic = SocketTraffic::from([
            (route(None, 0), received(1000)),
            (route(Some(0), 0), SocketUse { sent: 7, ..received(100) }),
            (route(Some(1), 0), received(10)),
        ]);
        let all = SocketUse { received: 1110, reads: 3, sent: 7 };
        assert_eq!(SocketSums::of(&traffic), SocketSums { all, known: 110, far: 10 });
    }
}
