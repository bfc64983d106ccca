//! The metrics of sockets and L3 domains: sums over their CPUs, with the ids and meanings that nodes have.

use super::cache_use;
use super::counters::{self, Formula};
use super::host::no_irq;
use super::over::{Over, Quotient};
use super::{Group, Metric, Order, Stands, Traits, Unit, Value, dram, no, node, on_cpus, task};
use crate::model::facility::Facility;
use crate::model::sample::Reading;
use crate::model::topology::format_cpulist;
use crate::snapshot::{CpuSet, SetKind, SetMoves, Snapshot};

/// All metrics of a set, in the order in which help and JSON list them.
pub static CPU_SET_METRICS: &[Metric<CpuSet>] = &[
    PLACE,
    NODES,
    SOCKETS,
    CPU_LIST,
    CPUS,
    CORES,
    LLC_SIZE_BYTES,
    TASKS,
    MOVES_IN_PER_S,
    MOVES_OUT_PER_S,
    CPU_PCT,
    IRQ_PCT,
    IPC,
    GHZ,
    LLC_MPKI,
    LMA_PER_S,
    RMA_PER_S,
    cache_use::OCCUPANCY,
    cache_use::MBM,
    cache_use::MBM_LOCAL,
    dram::SET_READ,
    dram::SET_WRITE,
    dram::SET_BUSY,
];

const fn set(
    id: &'static str,
    title: &'static str,
    width: u16,
    unit: Unit,
    help: &'static str,
    value: fn(&CpuSet, &Snapshot) -> Reading<Value>,
) -> Metric<CpuSet> {
    Metric::new(id, (title, width), (Group::Node, unit, Order::Descending), help, value)
}

pub const PLACE: Metric<CpuSet> = Metric {
    order: Order::Ascending,
    ..set("place", "PLACE", 10, Unit::Text, "Number of the socket or last-level cache (L3).", |set, _| {
        Ok(Value::Text(match (set.kind, set.llc_level) {
            (SetKind::Socket, _) => format!("socket {}", set.id),
            (SetKind::Llc, level) => format!("L{} {}", level.unwrap_or(3), set.id),
        }))
    })
};

pub const NODES: Metric<CpuSet> =
    set("node", "NODE", 5, Unit::Text, "Nodes of the CPUs of this socket or L3 domain.", |set, _| {
        Ok(Value::Text(format_cpulist(set.nodes.iter().copied())))
    })
    .with(Traits::NONE.stands(Stands::Plain));

pub const SOCKETS: Metric<CpuSet> =
    set("socket", "SOCKET", 6, Unit::Text, "Sockets of the CPUs of this L3 domain.", |set, _| {
        match set.sockets.as_slice() {
            [] => Err(no("sysfs does not list sockets")),
            sockets => Ok(Value::Text(format_cpulist(sockets.iter().copied()))),
        }
    });

pub const CPU_LIST: Metric<CpuSet> =
    set("cpu_list", "CPU LIST", 14, Unit::Text, "List of its online CPUs.", |set, _| {
        Ok(Value::Text(format_cpulist(set.cpus.iter().copied())))
    });

pub const CPUS: Metric<CpuSet> =
    set("cpus", "CPUS", 5, Unit::Count, "Number of online CPUs of this socket or L3 domain.", |set, _| {
        Ok(Value::U64(set.cpus.len() as u64))
    });

pub const CORES: Metric<CpuSet> = set(
    "cores",
    "CORES",
    5,
    Unit::Count,
    "Number of physical cores of this socket or L3 domain.",
    |set, _| Ok(Value::U64(set.cores.into())),
);

pub const LLC_SIZE_BYTES: Metric<CpuSet> =
    set("llc_size_bytes", "LLC", 7, Unit::Bytes, "Size of the last-level cache, from sysfs.", |set, _| {
        match set.kind {
            SetKind::Llc => {
                set.llc_size_bytes.map(Value::U64).ok_or_else(|| no("sysfs does not give the cache size"))
            }
            SetKind::Socket => Err(no("a socket can have several L3 caches")),
        }
    });

pub const TASKS: Metric<CpuSet> =
    set("tasks", "TASKS", 5, Unit::Count, "Tasks that ran mostly on its CPUs in the interval.", |set, _| {
        match set.tasks {
            Some(tasks) => Ok(Value::U64(tasks.into())),
            None => Err(no("CPU time is recorded per node only (use --places l3)")),
        }
    });

/// Moves per second, where they are counted by sets of its kind.
fn moves(set: &CpuSet, snapshot: &Snapshot, of: fn(&SetMoves) -> u64) -> Reading<Value> {
    snapshot.rate(0)?;
    let moves = set.moves.as_ref().ok_or_else(|| no("task CPU time is recorded per node only"))?;
    snapshot.rate(of(moves)).map(Value::F64)
}

pub const MOVES_IN_PER_S: Metric<CpuSet> = set(
    "moves_in_per_s",
    "IN/s",
    7,
    Unit::PerSecond,
    "Times per second that a task moved here from another socket (or L3 domain).",
    |set, snapshot| moves(set, snapshot, |moves| moves.into),
)
.with(Traits::NONE.needs(&[Facility::PlaceMoves]));

pub const MOVES_OUT_PER_S: Metric<CpuSet> = set(
    "moves_out_per_s",
    "OUT/s",
    7,
    Unit::PerSecond,
    "Times per second that a task moved from here to another socket (or L3 domain).",
    |set, snapshot| moves(set, snapshot, |moves| moves.out),
)
.with(Traits::NONE.needs(&[Facility::PlaceMoves]));

fn of_cpus(ns: u64, set: &CpuSet, snapshot: &Snapshot) -> Reading<Value> {
    snapshot.share(ns).map(|pct| Value::F64(pct / set.cpus.len() as f64))
}

pub const CPU_PCT: Metric<CpuSet> = set(
    node::CPU_PCT.id,
    node::CPU_PCT.title,
    node::CPU_PCT.width,
    Unit::Percent,
    "Busy time of its CPUs in the interval; 100 means that all are busy.",
    |set, snapshot| of_cpus(set.on_cpus.busy_ns, set, snapshot),
);

pub const IRQ_PCT: Metric<CpuSet> = set(
    node::IRQ_PCT.id,
    node::IRQ_PCT.title,
    node::IRQ_PCT.width,
    Unit::Percent,
    "Time of its CPUs in interrupts; 100 means all CPUs. From /proc/stat, in steps of 10 ms per CPU.",
    |set, snapshot| {
        snapshot.rate(0)?;
        let ns =
            set.on_cpus.irq_ns.get().ok_or_else(|| no_irq(snapshot, |cpu| set.cpus.contains(&cpu.id)))?;
        of_cpus(ns, set, snapshot)
    },
)
.with(node::IRQ_PCT.traits);

/// A quotient of counters of CPUs, with the words of tasks.
macro_rules! quotient {
    ($name:ident = $of:path, $formula:path) => {
        pub const $name: Metric<CpuSet> = Metric {
            over: Over::Quotient(|set, snapshot| $formula(&set.on_cpus.slots, set.on_cpus.busy_ns, snapshot)),
            traits: $of.traits,
            ..set($of.id, $of.title, $of.width, $of.unit, $of.help, |set, snapshot| {
                let formula: Formula = $formula;
                formula(&set.on_cpus.slots, set.on_cpus.busy_ns, snapshot)
                    .map(Quotient::value)
                    .map(Value::F64)
            })
        };
    };
}

quotient!(IPC = task::IPC, counters::ipc);
quotient!(GHZ = on_cpus::GHZ, counters::ghz);
quotient!(LLC_MPKI = on_cpus::LLC_MPKI, counters::llc_mpki);

pub const LMA_PER_S: Metric<CpuSet> = set(
    node::LMA_PER_S.id,
    node::LMA_PER_S.title,
    node::LMA_PER_S.width,
    Unit::PerSecond,
    "Accesses by its CPUs that were served by memory of the CPU's own node.",
    |set, snapshot| {
        counters::lma(&set.on_cpus.slots, snapshot).and_then(|count| snapshot.rate_f64(count)).map(Value::F64)
    },
)
.with(node::LMA_PER_S.traits);

pub const RMA_PER_S: Metric<CpuSet> = set(
    node::RMA_PER_S.id,
    node::RMA_PER_S.title,
    node::RMA_PER_S.width,
    Unit::PerSecond,
    "Accesses by its CPUs that were served by memory of another node.",
    |set, snapshot| {
        counters::rma(&set.on_cpus.slots, snapshot).and_then(|count| snapshot.rate_f64(count)).map(Value::F64)
    },
)
.with(node::RMA_PER_S.traits);
