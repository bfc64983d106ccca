//! Efficiency of everything that ran on some CPUs: those of a node, or of the host.
//!
//! The ids and meanings of tasks, with the counters of CPUs. They stand still while a CPU is idle, so what is idle
//! dilutes nothing.

use super::counters::{count, ipc, lma, mpki, per_kilo_instructions, rma, rma_lma, running_pct, stall_pct};
use super::task;
use super::{Group, Metric, Value};
use crate::model::event::Role;
use crate::model::sample::{Missing, Reading, Slot};
use crate::snapshot::{Node, Snapshot};

/// From counters in the interval and the time in which the CPUs were busy, in nanoseconds.
type Formula = fn(&[Slot], u64, &Snapshot) -> Reading<f64>;

/// A metric of nodes for each, and all of them by id for the host.
macro_rules! on_cpus {
    ($($name:ident = $formula:expr;)*) => {
        $(pub const $name: Metric<Node> = {
            Metric {
                id: task::$name.id,
                title: task::$name.title,
                width: task::$name.width,
                group: Group::Node,
                unit: task::$name.unit,
                order: task::$name.order,
                help: task::$name.help,
                value: |node: &Node, snapshot: &Snapshot| {
                    let formula: Formula = $formula;
                    formula(&node.slots, node.busy_ns, snapshot).map(Value::F64)
                },
                traits: task::$name.traits,
            }
        };)*

        /// By metric id.
        const FORMULAS: &[(&str, Formula)] = &[$((task::$name.id, $formula)),*];
    };
}

on_cpus! {
    CPI = |slots, _, snapshot| Ok(per_kilo_instructions(count(slots, snapshot, Role::Cycles)?, slots, snapshot)? / 1e3);
    GHZ = |slots, busy_ns, snapshot| {
        let cycles = count(slots, snapshot, Role::Cycles)?;
        if busy_ns > 0 { Ok(cycles / busy_ns as f64) } else { Err(idle()) }
    };
    STALL_FRONTEND_PCT = |slots, _, snapshot| stall_pct(slots, snapshot, Role::StallFrontend);
    STALL_BACKEND_PCT = |slots, _, snapshot| stall_pct(slots, snapshot, Role::StallBackend);
    LLC_MPKI = |slots, _, snapshot| mpki(slots, snapshot, Role::Llc);
    DTLB_MPKI = |slots, _, snapshot| mpki(slots, snapshot, Role::Dtlb);
    ITLB_MPKI = |slots, _, snapshot| mpki(slots, snapshot, Role::Itlb);
    BRANCH_MPKI = |slots, _, snapshot| mpki(slots, snapshot, Role::Branch);
    RMA_LMA = |slots, _, snapshot| rma_lma(slots, snapshot);
    LPI = |slots, _, snapshot| per_kilo_instructions(lma(slots, snapshot)?, slots, snapshot);
    RPI = |slots, _, snapshot| per_kilo_instructions(rma(slots, snapshot)?, slots, snapshot);
    COUNTERS_RUNNING_PCT = |slots, _, snapshot| running_pct(slots, snapshot);
}

fn idle() -> Missing {
    Missing::NotCollected("its CPUs were idle".into())
}

/// Every metric of this kind for the whole host, by id: with those that [`super::node`] has a formula of its own for.
pub fn of_host(snapshot: &Snapshot) -> impl Iterator<Item = (&'static str, Reading<f64>)> {
    let own: [(&str, Formula); 3] = [
        (task::IPC.id, |slots, _, snapshot| ipc(slots, snapshot)),
        (task::LMA_PER_S.id, |slots, _, snapshot| snapshot.rate_f64(lma(slots, snapshot)?)),
        (task::RMA_PER_S.id, |slots, _, snapshot| snapshot.rate_f64(rma(slots, snapshot)?)),
    ];
    own.into_iter().chain(FORMULAS.iter().copied()).map(|(id, formula)| match snapshot.host_missing(id) {
        Some(why) => (id, Err(why.clone())),
        None => (id, formula(&snapshot.slots, snapshot.busy_ns, snapshot)),
    })
}
