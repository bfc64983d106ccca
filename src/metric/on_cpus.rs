//! How efficient was all that ran on some CPUs: those of a node, or of the host?
//!
//! The ids and meanings of tasks, with the counters of CPUs. Those stand still while a CPU is idle, so what is idle
//! dilutes nothing.

use super::container::position;
use super::counters::{count, ipc, lma, mpki, per_kilo_instructions, rma, rma_lma, running_pct, stall_pct};
use super::task::TASK_METRICS;
use super::{Group, Metric, Value};
use crate::pmu::event::Role;
use crate::sample::{Missing, Reading, Slot};
use crate::snapshot::{Node, Snapshot};

/// From counters in the interval and the time in which the CPUs were busy, in nanoseconds.
type Formula = fn(&[Slot], u64, &Snapshot) -> Reading<f64>;

/// A metric of nodes for each, and all of them by id for the host.
macro_rules! on_cpus {
    ($($name:ident: $id:literal = $formula:expr;)*) => {
        $(pub const $name: Metric<Node> = {
            const AT: usize = position($id);
            Metric {
                id: TASK_METRICS[AT].id,
                title: TASK_METRICS[AT].title,
                width: TASK_METRICS[AT].width,
                group: Group::Node,
                unit: TASK_METRICS[AT].unit,
                order: TASK_METRICS[AT].order,
                help: TASK_METRICS[AT].help,
                value: |node: &Node, snapshot: &Snapshot| {
                    let formula: Formula = $formula;
                    formula(&node.slots, node.busy_ns, snapshot).map(Value::F64)
                },
                traits: TASK_METRICS[AT].traits,
            }
        };)*

        /// By metric id.
        const FORMULAS: &[(&str, Formula)] = &[$(($id, $formula)),*];
    };
}

on_cpus! {
    CPI: "cpi" = |slots, _, snapshot| Ok(per_kilo_instructions(count(slots, snapshot, Role::Cycles)?, slots, snapshot)? / 1e3);
    GHZ: "ghz" = |slots, busy_ns, snapshot| {
        let cycles = count(slots, snapshot, Role::Cycles)?;
        if busy_ns > 0 { Ok(cycles / busy_ns as f64) } else { Err(idle()) }
    };
    STALL_FRONTEND: "stall_frontend_pct" = |slots, _, snapshot| stall_pct(slots, snapshot, Role::StallFrontend);
    STALL_BACKEND: "stall_backend_pct" = |slots, _, snapshot| stall_pct(slots, snapshot, Role::StallBackend);
    LLC: "llc_mpki" = |slots, _, snapshot| mpki(slots, snapshot, Role::Llc);
    DTLB: "dtlb_mpki" = |slots, _, snapshot| mpki(slots, snapshot, Role::Dtlb);
    ITLB: "itlb_mpki" = |slots, _, snapshot| mpki(slots, snapshot, Role::Itlb);
    BRANCH: "branch_mpki" = |slots, _, snapshot| mpki(slots, snapshot, Role::Branch);
    RMA_LMA: "rma_lma" = |slots, _, snapshot| rma_lma(slots, snapshot);
    LPI: "lpi" = |slots, _, snapshot| per_kilo_instructions(lma(slots, snapshot)?, slots, snapshot);
    RPI: "rpi" = |slots, _, snapshot| per_kilo_instructions(rma(slots, snapshot)?, slots, snapshot);
    RUNNING: "counters_running_pct" = |slots, _, snapshot| running_pct(slots, snapshot);
}

fn idle() -> Missing {
    Missing::NotCollected("its CPUs were idle".into())
}

/// Every metric of this kind for the whole host, by id: with those that [`super::node`] has a formula of its own for.
pub fn of_host(snapshot: &Snapshot) -> impl Iterator<Item = (&'static str, Reading<f64>)> {
    let own: [(&str, Formula); 3] = [
        ("ipc", |slots, _, snapshot| ipc(slots, snapshot)),
        ("lma_per_s", |slots, _, snapshot| snapshot.rate_f64(lma(slots, snapshot)?)),
        ("rma_per_s", |slots, _, snapshot| snapshot.rate_f64(rma(slots, snapshot)?)),
    ];
    own.into_iter().chain(FORMULAS.iter().copied()).map(|(id, formula)| match snapshot.host_missing(id) {
        Some(why) => (id, Err(why.clone())),
        None => (id, formula(&snapshot.slots, snapshot.busy_ns, snapshot)),
    })
}
