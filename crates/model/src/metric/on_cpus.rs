//! Efficiency of everything that ran on some CPUs: those of a node, or of the host.
//!
//! The ids and meanings of tasks, with the counters of CPUs. Counters stop while a CPU is idle, so idle time
//! dilutes nothing.

use super::counters::{self, Formula, lma, rma, running_pct};
use super::over::{Over, Quotient};
use super::task;
use super::{Group, Metric, Value};
use crate::model::sample::Reading;
use crate::snapshot::{Node, Snapshot};

/// A metric of nodes for each, and all of them by id for the host.
macro_rules! on_cpus {
    ($($name:ident = $formula:path;)*) => {
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
                    $formula(&node.on_cpus.slots, node.on_cpus.busy_ns, snapshot).map(Quotient::value).map(Value::F64)
                },
                over: Over::Quotient(|node, snapshot| $formula(&node.on_cpus.slots, node.on_cpus.busy_ns, snapshot)),
                traits: task::$name.traits,
            }
        };)*

        /// By metric id.
        const FORMULAS: &[(&str, Formula)] = &[$((task::$name.id, $formula)),*];
    };
}

on_cpus! {
    CPI = counters::cpi;
    GHZ = counters::ghz;
    STALL_FRONTEND_PCT = counters::stall_frontend;
    STALL_BACKEND_PCT = counters::stall_backend;
    LLC_MPKI = counters::llc_mpki;
    DTLB_MPKI = counters::dtlb_mpki;
    ITLB_MPKI = counters::itlb_mpki;
    BRANCH_MPKI = counters::branch_mpki;
    RMA_LMA = counters::rma_lma;
    LPI = counters::lpi;
    RPI = counters::rpi;
}

pub const COUNTERS_RUNNING_PCT: Metric<Node> = Metric {
    id: task::COUNTERS_RUNNING_PCT.id,
    title: task::COUNTERS_RUNNING_PCT.title,
    width: task::COUNTERS_RUNNING_PCT.width,
    group: Group::Node,
    unit: task::COUNTERS_RUNNING_PCT.unit,
    order: task::COUNTERS_RUNNING_PCT.order,
    help: task::COUNTERS_RUNNING_PCT.help,
    value: |node, snapshot| running_pct(&node.on_cpus.slots, snapshot).map(Value::F64),
    over: Over::Level,
    traits: task::COUNTERS_RUNNING_PCT.traits,
};

/// Every metric of this kind for the whole host, by id, including those for which [`super::node`] has a
/// separate formula.
pub fn of_host(snapshot: &Snapshot) -> impl Iterator<Item = (&'static str, Reading<f64>)> {
    let slots = &snapshot.on_cpus.slots;
    let quotient = |formula: Formula| formula(slots, snapshot.on_cpus.busy_ns, snapshot).map(Quotient::value);
    let own = [
        (task::IPC.id, quotient(counters::ipc)),
        (task::LMA_PER_S.id, lma(slots, snapshot).and_then(|count| snapshot.rate_f64(count))),
        (task::RMA_PER_S.id, rma(slots, snapshot).and_then(|count| snapshot.rate_f64(count))),
    ];
    let shared = FORMULAS.iter().map(move |(id, formula)| (*id, quotient(*formula)));
    let running = (COUNTERS_RUNNING_PCT.id, running_pct(slots, snapshot));
    own.into_iter().chain(shared).chain([running]).map(|(id, reading)| match snapshot.host_missing(id) {
        Some(why) => (id, Err(why.clone())),
        None => (id, reading),
    })
}
