//! Tables of sockets and of L3 domains, where they are not the nodes.

use std::sync::Arc;

use super::cells::RowGroup;
use super::column::columns;
use super::interval::Interval;
use crate::metric::amounts::events;
use crate::model::event::Role;
use crate::model::topology::format_cpulist;
use crate::snapshot::{CpuSet, SetKind};

/// A socket or an L3 domain in the interval.
pub(super) struct PlaceRow {
    interval: Arc<Interval>,
    at: usize,
}

impl PlaceRow {
    fn set(&self) -> &CpuSet {
        &self.interval.snapshot.cpu_sets[self.at]
    }

    fn events(&self, role: Role) -> Option<f64> {
        events(&self.set().on_cpus.slots, &self.interval.snapshot, role)
    }
}

/// The columns of either table: its id, and the same amounts.
macro_rules! places {
    ($table:ident, $id:literal) => {
        columns! {
            pub(super) $table of PlaceRow: row => {
                $id Int row.set().id;
                "nodes" Text Some(format_cpulist(row.set().nodes.iter().copied()));
                "cpu_list" Text Some(format_cpulist(row.set().cpus.iter().copied()));
                "cpus" Int row.set().cpus.len();
                "cores" Int row.set().cores;
                "llc_size_bytes" Int row.set().llc_size_bytes;
                "moves_in" Int row.set().moves.map(|moves| moves.into);
                "moves_out" Int row.set().moves.map(|moves| moves.out);
                "busy_ns" Int row.set().on_cpus.busy_ns;
                "irq_ns" Int row.set().on_cpus.irq_ns.get();
                "cycles" Int row.events(Role::Cycles);
                "instructions" Int row.events(Role::Instructions);
                "llc_misses" Int row.events(Role::Llc);
                "lma" Int row.events(Role::Lma);
                "rma" Int row.events(Role::Rma);
            }
        }
    };
}

places!(SOCKETS, "socket");
places!(LLCS, "llc");

/// Adds the rows of an interval to the tables that are wanted.
pub(super) fn add(
    interval: &Arc<Interval>,
    mut sockets: Option<&mut RowGroup>,
    mut llcs: Option<&mut RowGroup>,
) {
    for (at, set) in interval.snapshot.cpu_sets.iter().enumerate() {
        let (rows, columns) = match set.kind {
            SetKind::Socket => (sockets.as_deref_mut(), SOCKETS),
            SetKind::Llc => (llcs.as_deref_mut(), LLCS),
        };
        if let Some(rows) = rows {
            rows.push(&interval.stamp, columns, &PlaceRow { interval: Arc::clone(interval), at });
        }
    }
}
