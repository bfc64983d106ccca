//! The metrics of a task's efficiency on CPUs, from hardware counters, and of the speed that it loses to the other hardware
//! thread of its core.

use super::Group::{self, Efficiency};
use super::Order::{self, Ascending, Descending};
use super::counters::{self, Formula, ipc_by_sibling};
use super::over::{self, Better, Over, Quotient};
use super::{Metric, Stands, Traits, Unit, Value};
use crate::model::event::{Role, names};
use crate::model::facility::Facility;
use crate::model::sample::{Reading, Slot};
use crate::snapshot::{Snapshot, Task};

/// A metric whose value is a formula over the counters of the interval.
macro_rules! quotient {
    ($id:literal, ($title:literal, $width:literal), ($unit:expr, $order:expr), $help:literal, $traits:expr, $formula:path) => {{
        const FORMULA: Formula = $formula;
        Metric {
            id: $id,
            title: $title,
            width: $width,
            group: Efficiency,
            unit: $unit,
            order: $order,
            help: $help,
            value: |task, snapshot| {
                FORMULA(&task.delta.slots, task.run_ns(), snapshot).map(Quotient::value).map(Value::F64)
            },
            over: Over::Quotient(|task, snapshot| FORMULA(&task.delta.slots, task.run_ns(), snapshot)),
            traits: $traits,
        }
    }};
}

pub const CYCLES_TOTAL: Metric<Task> = Metric {
    id: "cycles_total",
    title: "CYCLES",
    width: 8,
    group: Efficiency,
    unit: Unit::Count,
    order: Descending,
    help: "Core cycles, user and kernel, since numatop-ng first saw the task.",
    value: |task, snapshot| total(task, snapshot, Role::Cycles),
    over: Over::Total,
    traits: Traits::NONE.needs(&[Facility::CYCLES]),
};

pub const INSTRUCTIONS_TOTAL: Metric<Task> = Metric {
    id: "instructions_total",
    title: "INSTR",
    width: 8,
    group: Efficiency,
    unit: Unit::Count,
    order: Descending,
    help: "Retired instructions, user and kernel, since numatop-ng first saw the task.",
    value: |task, snapshot| total(task, snapshot, Role::Instructions),
    over: Over::Total,
    traits: Traits::NONE.needs(&[Facility::INSTRUCTIONS]),
};

pub const IPC: Metric<Task> = quotient!(
    "ipc",
    ("IPC", 5),
    (Unit::Ratio, Ascending),
    "Instructions per cycle in the interval. Below about 0.5 a CPU mostly waits, often for memory.",
    Traits::NONE
        .stands(Stands::Harm(|ipc| ipc < 0.5))
        .needs(&[Facility::CYCLES, Facility::INSTRUCTIONS])
        .better(Better::High),
    counters::ipc
);

pub const CPI: Metric<Task> = quotient!(
    "cpi",
    ("CPI", 6),
    (Unit::Ratio, Descending),
    "Cycles per instruction in the interval: 1 / ipc.",
    Traits::NONE.needs(&[Facility::CYCLES, Facility::INSTRUCTIONS]).better(Better::Low),
    counters::cpi
);

pub const GHZ: Metric<Task> = quotient!(
    "ghz",
    ("GHz", 5),
    (Unit::Gigahertz, Ascending),
    "Cycles per nanosecond of on-CPU time: the average clock frequency while it ran.",
    Traits::NONE.needs(&[Facility::CYCLES]),
    counters::ghz
);

pub const IPC_BY_NODE: Metric<Task> = Metric {
    id: "ipc_by_node",
    title: "IPC BY NODE",
    width: 14,
    group: Efficiency,
    unit: Unit::Ratio,
    order: Ascending,
    help: "Instructions per cycle on each node where it ran in the interval.",
    value: |task, snapshot| counters::ipc_by_node(&task.delta, snapshot).map(over::values).map(Value::ByNode),
    over: Over::ByNode(|task, snapshot| counters::ipc_by_node(&task.delta, snapshot)),
    traits: Traits::NONE.needs(&[Facility::CYCLES, Facility::INSTRUCTIONS]),
};

pub const STALL_FRONTEND_PCT: Metric<Task> = quotient!(
    "stall_frontend_pct",
    ("FE%", 5),
    (Unit::Percent, Descending),
    "Cycles (on some CPUs, issue slots) in which the front end delivered nothing, because of instruction \
     cache or TLB misses, or branches. Needs --events stalls.",
    Traits::NONE.needs(&[Facility::Counter(Role::StallFrontend), Facility::CYCLES]).better(Better::Low),
    counters::stall_frontend
);

pub const STALL_BACKEND_PCT: Metric<Task> = quotient!(
    "stall_backend_pct",
    ("BE%", 5),
    (Unit::Percent, Descending),
    "Cycles (on some CPUs, issue slots) in which the back end accepted nothing, mostly because it waited for \
     data. Needs --events stalls.",
    Traits::NONE.needs(&[Facility::Counter(Role::StallBackend), Facility::CYCLES]).better(Better::Low),
    counters::stall_backend
);

pub const LLC_MPKI: Metric<Task> = quotient!(
    "llc_mpki",
    ("LLCMPKI", 7),
    (Unit::Ratio, Descending),
    "Misses of the last-level cache per thousand instructions. Needs --events cache.",
    Traits::NONE.needs(&[Facility::Counter(Role::Llc), Facility::INSTRUCTIONS]).better(Better::Low),
    counters::llc_mpki
);

pub const DTLB_MPKI: Metric<Task> = quotient!(
    "dtlb_mpki",
    ("DTLBMPKI", 8),
    (Unit::Ratio, Descending),
    "Data-TLB page walks per thousand instructions. Huge pages reduce them. Needs --events tlb.",
    Traits::NONE.needs(&[Facility::Counter(Role::Dtlb), Facility::INSTRUCTIONS]).better(Better::Low),
    counters::dtlb_mpki
);

pub const ITLB_MPKI: Metric<Task> = quotient!(
    "itlb_mpki",
    ("ITLBMPKI", 8),
    (Unit::Ratio, Descending),
    "Instruction-TLB page walks per thousand instructions. Needs --events tlb.",
    Traits::NONE.needs(&[Facility::Counter(Role::Itlb), Facility::INSTRUCTIONS]).better(Better::Low),
    counters::itlb_mpki
);

pub const BRANCH_MPKI: Metric<Task> = quotient!(
    "branch_mpki",
    ("BRMPKI", 7),
    (Unit::Ratio, Descending),
    "Mispredicted branches per thousand instructions. Needs --events cache.",
    Traits::NONE.needs(&[Facility::Counter(Role::Branch), Facility::INSTRUCTIONS]).better(Better::Low),
    counters::branch_mpki
);

/// A miss ratio in percent: of the first pair of events that is counted.
macro_rules! miss_pct {
    ($name:ident, $id:literal, $title:literal, $help:literal, $pairs:expr) => {
        pub const $name: Metric<Task> = {
            const PAIRS: &[[(u32, u64); 2]] = $pairs;
            fn formula(slots: &[Slot], _: u64, snapshot: &Snapshot) -> Reading<Quotient> {
                counters::miss_pct(slots, snapshot, PAIRS)
            }
            quotient!(
                $id,
                ($title, 6),
                (Unit::Percent, Descending),
                $help,
                Traits::NONE.better(Better::Low),
                formula
            )
        };
    };
}

miss_pct!(
    L1D_MISS_PCT,
    "l1d_miss_pct",
    "L1DMS%",
    "Loads that missed the first-level data cache, in % of all loads. Needs --events \
     L1-dcache-loads,L1-dcache-load-misses.",
    &[names::loads_and_misses(0)]
);

miss_pct!(
    L1I_MISS_PCT,
    "l1i_miss_pct",
    "L1IMS%",
    "Fetches that missed the first-level instruction cache, in % of all fetches. Needs --events \
     L1-icache-loads,L1-icache-load-misses.",
    &[names::loads_and_misses(1)]
);

miss_pct!(
    LLC_MISS_PCT,
    "llc_miss_pct",
    "LLCMS%",
    "Loads that missed the last-level cache, in % of loads that reached it. Needs --events \
     LLC-loads,LLC-load-misses, or cache-references,cache-misses.",
    &[names::loads_and_misses(2), [names::hardware(2), names::hardware(3)]]
);

miss_pct!(
    DTLB_MISS_PCT,
    "dtlb_miss_pct",
    "DTBMS%",
    "Loads that missed the data TLB, in % of all loads. Needs --events dTLB-loads,dTLB-load-misses.",
    &[names::loads_and_misses(3)]
);

miss_pct!(
    ITLB_MISS_PCT,
    "itlb_miss_pct",
    "ITBMS%",
    "Fetches that missed the instruction TLB, in % of all fetches. Needs --events iTLB-loads,iTLB-load-misses.",
    &[names::loads_and_misses(4)]
);

miss_pct!(
    BRANCH_MISS_PCT,
    "branch_miss_pct",
    "BRMS%",
    "Mispredicted branches, in % of all branches. Needs --events branches,branch-misses.",
    &[[names::hardware(4), names::hardware(5)], names::loads_and_misses(5)]
);

pub const LMA_PER_S: Metric<Task> = Metric {
    id: "lma_per_s",
    title: "LMA/s",
    width: 7,
    group: Efficiency,
    unit: Unit::PerSecond,
    order: Descending,
    help: "Accesses served by memory of its current node. The exact event depends on the CPU (numatop-ng \
           list events).",
    value: |task, snapshot| {
        counters::lma(&task.delta.slots, snapshot).and_then(|count| snapshot.rate_f64(count)).map(Value::F64)
    },
    over: Over::Time,
    traits: Traits::NONE.needs(&[Facility::Counter(Role::Lma)]),
};

pub const RMA_PER_S: Metric<Task> = Metric {
    id: "rma_per_s",
    title: "RMA/s",
    width: 7,
    group: Efficiency,
    unit: Unit::PerSecond,
    order: Descending,
    help: "Accesses served by memory of another node. The exact event depends on the CPU (numatop-ng list \
           events).",
    value: |task, snapshot| {
        counters::rma(&task.delta.slots, snapshot).and_then(|count| snapshot.rate_f64(count)).map(Value::F64)
    },
    over: Over::Time,
    traits: Traits::NONE.needs(&[Facility::Counter(Role::Rma)]),
};

pub const RMA_LMA: Metric<Task> = quotient!(
    "rma_lma",
    ("RMA/LMA", 7),
    (Unit::Ratio, Descending),
    "Remote accesses per local memory access: 0 means all local, inf all remote.",
    Traits::NONE.needs(&[Facility::Counter(Role::Lma), Facility::Counter(Role::Rma)]).better(Better::Low),
    counters::rma_lma
);

pub const LPI: Metric<Task> = quotient!(
    "lpi",
    ("LPI", 6),
    (Unit::Ratio, Descending),
    "Local memory accesses per thousand instructions.",
    Traits::NONE.needs(&[Facility::Counter(Role::Lma), Facility::INSTRUCTIONS]),
    counters::lpi
);

pub const RPI: Metric<Task> = quotient!(
    "rpi",
    ("RPI", 6),
    (Unit::Ratio, Descending),
    "Remote memory accesses per thousand instructions.",
    Traits::NONE.needs(&[Facility::Counter(Role::Rma), Facility::INSTRUCTIONS]).better(Better::Low),
    counters::rpi
);

pub const COUNTERS_RUNNING_PCT: Metric<Task> = Metric {
    id: "counters_running_pct",
    title: "CNT%",
    width: 5,
    group: Efficiency,
    unit: Unit::Percent,
    order: Ascending,
    help: "Share of the time in which its hardware counters were on the PMU; 100 means never multiplexed. Counts \
           are scaled up accordingly.",
    value: |task, snapshot| counters::running_pct(&task.delta.slots, snapshot).map(Value::F64),
    over: Over::Level,
    traits: Traits::NONE.stands(Stands::Harm(|pct| pct < 99.95)).needs(&[Facility::Counters]),
};

fn total(task: &Task, snapshot: &Snapshot, role: Role) -> Reading<Value> {
    counters::count(&task.total.slots, snapshot, role).map(|count| Value::U64(count as u64))
}

pub const IPC_SMT_IDLE: Metric<Task> = Metric {
    id: "ipc_smt_idle",
    title: "IPC IDLE",
    width: 8,
    group: Group::Efficiency,
    unit: Unit::Ratio,
    order: Order::Ascending,
    help: "Instructions per cycle while the SMT siblings were idle. Uses only time slices in which they \
           were idle for at least 95 % of the time.",
    value: |task, snapshot| ipc_by_sibling(&task.delta, snapshot, 0).map(Quotient::value).map(Value::F64),
    over: Over::Quotient(|task, snapshot| ipc_by_sibling(&task.delta, snapshot, 0)),
    traits: Traits::NONE
        .needs(&[Facility::SmtTime, Facility::CYCLES, Facility::INSTRUCTIONS, Facility::CountersBySibling])
        .better(Better::High),
};

pub const IPC_SMT_BUSY: Metric<Task> = Metric {
    id: "ipc_smt_busy",
    title: "IPC BUSY",
    width: 8,
    group: Group::Efficiency,
    unit: Unit::Ratio,
    order: Order::Ascending,
    help: "Instructions per cycle while an SMT sibling was busy. If this is far below the value with idle \
           siblings, the two threads slow each other down.",
    value: |task, snapshot| ipc_by_sibling(&task.delta, snapshot, 1).map(Quotient::value).map(Value::F64),
    over: Over::Quotient(|task, snapshot| ipc_by_sibling(&task.delta, snapshot, 1)),
    traits: Traits::NONE
        .needs(&[Facility::SmtTime, Facility::CYCLES, Facility::INSTRUCTIONS, Facility::CountersBySibling])
        .better(Better::High),
};
