//! Interrupts of devices, by the nodes whose CPUs handled them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::coded::coded;
use crate::model::units::NodeId;

/// Message-signalled interrupts of one PCI function between two readings of their counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceInterrupts {
    /// CLOCK_MONOTONIC of the later reading.
    pub read_ns: u64,
    /// Time since the earlier one, ns.
    pub over_ns: u64,
    /// Interrupts in that time; nodes without any are left out.
    pub by_node: BTreeMap<NodeId, u64>,
}

coded!(DeviceInterrupts { read_ns, over_ns, by_node });

impl DeviceInterrupts {
    /// All interrupts per second.
    pub fn all_per_second(&self) -> f64 {
        self.per_second(|_| true)
    }

    /// Interrupts per second that CPUs of this node handled.
    pub fn per_second_on(&self, node: NodeId) -> f64 {
        self.per_second(|of| of == node)
    }

    /// Interrupts per second that CPUs of these nodes handled; 0 where no time went by.
    pub fn per_second(&self, of: impl Fn(NodeId) -> bool) -> f64 {
        if self.over_ns == 0 {
            return 0.0;
        }
        // A sum of nothing would be -0.
        let of = self.by_node.iter().filter(|(node, _)| of(**node));
        let count = of.fold(0.0, |sum, (_, count)| sum + *count as f64);
        count * 1e9 / self.over_ns as f64
    }
}

/// By the address of the PCI function, in the form of [`crate::model::topology::Device::pci`]. A function
/// appears once its counts were read twice.
pub type Interrupts = BTreeMap<String, Arc<DeviceInterrupts>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_by_node() {
        let by_node = [(NodeId(0), 500), (NodeId(1), u64::MAX)].into();
        let read = DeviceInterrupts { read_ns: 9, over_ns: 2_000_000_000, by_node };
        assert_eq!(read.per_second(|node| node == NodeId(0)), 250.0);
        assert!(read.per_second(|_| true) > 9e18, "sums do not overflow");
        assert!(read.per_second(|node| node == NodeId(2)).is_sign_positive(), "0, not -0");
        assert_eq!(DeviceInterrupts::default().per_second(|_| true), 0.0);
    }
}
