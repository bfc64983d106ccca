//! The metrics that are one for the whole machine, and of no row.

use super::Value;
use crate::model::facility::Facility;
use crate::model::sample::{Missing, Reading};
use crate::snapshot::{Snapshot, Swapped};

/// A metric of the host: a key in JSON.
pub struct HostMetric {
    pub id: &'static str,
    /// Its name in help.
    pub title: &'static str,
    /// Its meaning, with its unit.
    pub help: &'static str,
    value: fn(&Snapshot) -> Reading<Value>,
    /// Facilities that it needs beside those of every live view.
    pub needs: &'static [Facility],
}

impl HostMetric {
    /// The value.
    ///
    /// # Errors
    /// Why there is none.
    pub fn read(&self, snapshot: &Snapshot) -> Reading<Value> {
        match snapshot.host_missing(self.id) {
            Some(missing) => Err(missing.clone()),
            None => (self.value)(snapshot),
        }
    }
}

/// All of them, in the order in which lists show them.
pub static HOST_METRICS: [HostMetric; 6] = [BUSY, IRQ, SWAP, SWAP_IN, SWAP_OUT, ZONE_RECLAIM_MODE];

pub const BUSY: HostMetric = HostMetric {
    id: "busy_pct",
    title: "BUSY%",
    help: "On-CPU time of all tasks on all CPUs in the interval; 100 is one CPU.",
    value: |snapshot| snapshot.share(snapshot.busy_ns).map(Value::F64),
    needs: &[],
};

pub const IRQ: HostMetric = HostMetric {
    id: "irq_pct",
    title: "IRQ%",
    help: "Time of all CPUs in hard and soft interrupts in the interval; 100 is one CPU.",
    value: |snapshot| snapshot.share(snapshot.irq_ns).map(Value::F64),
    needs: &[Facility::Irq],
};

pub const SWAP: HostMetric = HostMetric {
    id: "swap_pages_per_s",
    title: "SWAP/s",
    help: "Pages per second that the machine reads from swap and writes to it. The kernel does not count them by node.",
    value: |snapshot| swap(snapshot, |swapped| swapped.pages_in.saturating_add(swapped.pages_out)),
    needs: &[Facility::HostMemory],
};

pub const SWAP_IN: HostMetric = HostMetric {
    id: "swap_in_pages_per_s",
    title: "SWAPIN/s",
    help: "Of these, the pages that are read (pswpin in /proc/vmstat), with those that are read ahead.",
    value: |snapshot| swap(snapshot, |swapped| swapped.pages_in),
    needs: &[Facility::HostMemory],
};

pub const SWAP_OUT: HostMetric = HostMetric {
    id: "swap_out_pages_per_s",
    title: "SWAPOUT/s",
    help: "Of these, the pages that are written (pswpout in /proc/vmstat), to make room.",
    value: |snapshot| swap(snapshot, |swapped| swapped.pages_out),
    needs: &[Facility::HostMemory],
};

/// Bits as in the kernel's Documentation/admin-guide/sysctl/vm.rst.
pub const ZONE_RECLAIM_MODE: HostMetric = HostMetric {
    id: "zone_reclaim_mode",
    title: "ZRECLAIM",
    help: "vm.zone_reclaim_mode: with 0, what a node has no room for is placed on another node. With 1 the node is \
           reclaimed first, with 2 added dirty pages are written for that, with 4 added pages are swapped.",
    value: |snapshot| {
        let mode = snapshot.zone_reclaim_mode.map(|mode| Value::U64(mode.into()));
        mode.ok_or_else(|| Missing::Unsupported("only a kernel with CONFIG_NUMA has this switch".into()))
    },
    needs: &[Facility::HostMemory],
};

fn swap(snapshot: &Snapshot, pages: fn(Swapped) -> u64) -> Reading<Value> {
    // In a first sample there is nothing to compare with.
    snapshot.rate(0)?;
    let swapped =
        snapshot.swapped.ok_or_else(|| Missing::NotCollected("/proc/vmstat was not read".into()))?;
    snapshot.rate(pages(swapped)).map(Value::F64)
}
