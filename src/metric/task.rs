//! The metrics of a task: thread, process, or anything that is a sum of them.

use super::{Group, Metric, Order, Several, Stands, Traits, Unit, Value, no};
use super::{
    access, allowed, balancing, counters, identity, interference, mempolicy, on_demand, page_migrations,
    pages, placement, resident, smt,
};
use crate::model::counters::Counter;
use crate::model::event::Role;
use crate::model::facility::Facility;
use crate::model::sample::Reading;
use crate::snapshot::{Snapshot, Task};

use Group::{Efficiency, Memory, Running};
use Order::{Ascending, Descending};

/// All metrics of a task, in the order in which help and JSON list them.
pub static TASK_METRICS: &[Metric<Task>] = &[
    identity::PID,
    identity::TID,
    identity::PPID,
    identity::USER,
    identity::STATE,
    identity::POLICY,
    identity::NICE,
    identity::THREADS,
    identity::START_NS,
    identity::CGROUP,
    identity::CONTAINER,
    identity::POD,
    identity::COMM,
    on_demand::CMDLINE,
    CPU_NS,
    CPU_PCT,
    CPU,
    on_demand::CPUS_ALLOWED,
    allowed::NODES_ALLOWED,
    HOME_NODE,
    RUN_PCT_BY_NODE,
    SWITCHES_PER_S,
    INVOLUNTARY_PER_S,
    RUNQ_WAIT_PCT,
    RUNQ_WAIT_US,
    interference::RUNQ_WAIT_THROTTLED_PCT,
    interference::RUNQ_WAIT_BOUND_PCT,
    interference::RUNQ_WAIT_IDLE_ELSEWHERE_PCT,
    CPU_MIGRATIONS_PER_S,
    LLC_MIGRATIONS_PER_S,
    NODE_MIGRATIONS_PER_S,
    SMT_BUSY_PCT,
    interference::IRQ_PCT,
    CYCLES_TOTAL,
    INSTRUCTIONS_TOTAL,
    IPC,
    CPI,
    GHZ,
    IPC_BY_NODE,
    smt::IPC_SMT_IDLE,
    smt::IPC_SMT_BUSY,
    STALL_FRONTEND_PCT,
    STALL_BACKEND_PCT,
    LLC_MPKI,
    DTLB_MPKI,
    ITLB_MPKI,
    BRANCH_MPKI,
    LMA_PER_S,
    RMA_PER_S,
    RMA_LMA,
    LPI,
    RPI,
    COUNTERS_RUNNING_PCT,
    RSS_BYTES,
    resident::ANON,
    resident::FILE,
    resident::SHMEM,
    resident::SWAP,
    mempolicy::POLICY,
    allowed::MEMS_ALLOWED,
    on_demand::HUGE_PCT,
    placement::MEM_PCT_BY_NODE,
    placement::MEM_BYTES_BY_NODE,
    placement::MEM_ERROR_POINTS,
    placement::MEM_AGE_MS,
    placement::OWN_POLICY_PCT,
    placement::REMOTE_PCT,
    placement::REMOTE_SOURCE,
    placement::REMOTE_ERROR_POINTS,
    placement::REMOTE_LOW_PCT,
    placement::REMOTE_HIGH_PCT,
    placement::REMOTE_BEST_PCT,
    MINOR_FAULTS_PER_S,
    MAJOR_FAULTS_PER_S,
    pages::ALLOC_PCT_BY_NODE,
    pages::CROSS_NODE_FAULTS,
    pages::CROSS_NODE_FAULT_PCT,
    pages::PAGES_MIGRATED,
    pages::PAGES_MIGRATE_FAILED,
    page_migrations::BALANCING,
    page_migrations::ASKED,
    page_migrations::OTHER,
    PREFERRED_NODE,
    SCAN_PERIOD_MS,
    balancing::NUMA_GROUP,
    balancing::NUMA_MOVES,
    balancing::NUMA_SWAPS,
    balancing::NUMA_STUCK,
    balancing::HINT_FAULTS,
    balancing::HINT_REMOTE_PCT,
    balancing::BALANCING_PCT,
    access::MEM_TIME_PCT,
    access::MEM_TIME_REMOTE_PCT,
    access::MEM_TIME_ERROR_POINTS,
    access::MEM_TIME_PCT_BY_NODE,
    access::ACCESS_SOURCE,
    access::ACCESS_SAMPLES,
    access::DRAM_REMOTE_PCT,
    access::LOAD_LATENCY_NS_LOCAL,
    access::LOAD_LATENCY_NS_REMOTE,
];

pub const CPU_NS: Metric<Task> = Metric {
    id: "cpu_ns",
    title: "TIME",
    width: 9,
    group: Running,
    unit: Unit::Nanoseconds,
    order: Descending,
    help: "On-CPU time since numatop-ng first saw the task.",
    value: |task, _| Ok(Value::U64(task.total.cpu_ns())),
    traits: Traits::NONE,
};

pub const CPU_PCT: Metric<Task> = Metric {
    id: "cpu_pct",
    title: "CPU%",
    width: 6,
    group: Running,
    unit: Unit::Percent,
    order: Descending,
    help: "On-CPU time in the interval; 100 is one CPU.",
    value: |task, snapshot| snapshot.share(task.run_ns()).map(Value::F64),
    traits: Traits::NONE,
};

pub const CPU: Metric<Task> = Metric {
    id: "cpu",
    title: "CPU",
    width: 4,
    group: Running,
    unit: Unit::Id,
    order: Ascending,
    help: "CPU it ran on last. For a process: its main thread.",
    value: |task, _| Ok(Value::U64(task.raw.cpu.into())),
    traits: Traits::NONE.stands(Stands::Plain),
};

pub const HOME_NODE: Metric<Task> = Metric {
    id: "home_node",
    title: "NODE",
    width: 4,
    group: Running,
    unit: Unit::Id,
    order: Ascending,
    help: "Node with the largest share of its on-CPU time.",
    value: |task, _| match task.home_node() {
        Some(node) => Ok(Value::U64(node.0.into())),
        None => Err(no("has not run yet")),
    },
    traits: Traits::NONE.several(Several::Nodes).stands(Stands::Home),
};

pub const RUN_PCT_BY_NODE: Metric<Task> = Metric {
    id: "run_pct_by_node",
    title: "RUN BY NODE",
    width: 14,
    group: Running,
    unit: Unit::Percent,
    order: Descending,
    help: "Share of its on-CPU time per node in the interval; sums to 100.",
    value: |task, _| task.run_pct_by_node().map(Value::ByNode),
    traits: Traits::NONE.several(Several::Nodes).least_width(11),
};

pub const SWITCHES_PER_S: Metric<Task> = Metric {
    id: "switches_per_s",
    title: "CSW/s",
    width: 7,
    group: Running,
    unit: Unit::PerSecond,
    order: Descending,
    help: "Context switches away from it, voluntary and not.",
    value: |task, snapshot| {
        snapshot.rate(task.delta[Counter::Nvcsw].wrapping_add(task.delta[Counter::Nivcsw])).map(Value::F64)
    },
    traits: Traits::NONE,
};

pub const INVOLUNTARY_PER_S: Metric<Task> = Metric {
    id: "involuntary_per_s",
    title: "ICSW/s",
    width: 7,
    group: Running,
    unit: Unit::PerSecond,
    order: Descending,
    help: "Context switches it did not ask for: it was preempted.",
    value: |task, snapshot| snapshot.rate(task.delta[Counter::Nivcsw]).map(Value::F64),
    traits: Traits::NONE,
};

pub const RUNQ_WAIT_PCT: Metric<Task> = Metric {
    id: "runq_wait_pct",
    title: "WAIT%",
    width: 6,
    group: Running,
    unit: Unit::Percent,
    order: Descending,
    help: "Time it was runnable but waited for a CPU, as a share of the interval (sched_info.run_delay). A wait counts \
               when it ends.",
    value: |task, snapshot| snapshot.share(task.delta[Counter::RunDelayNs]).map(Value::F64),
    traits: Traits::NONE.stands(Stands::Harm(|pct| pct >= 20.0)),
};

pub const RUNQ_WAIT_US: Metric<Task> = Metric {
    id: "runq_wait_us",
    title: "WAITus",
    width: 7,
    group: Running,
    unit: Unit::Microseconds,
    order: Descending,
    help: "Mean wait for a CPU per dispatch in the interval.",
    value: |task, _| {
        ratio(
            task.delta[Counter::RunDelayNs],
            task.delta[Counter::RunCount],
            "was not dispatched in this interval",
        )
        .map(|ns| Value::F64(ns / 1e3))
    },
    traits: Traits::NONE,
};

pub const CPU_MIGRATIONS_PER_S: Metric<Task> = Metric {
    id: "cpu_migrations_per_s",
    title: "MIG/s",
    width: 6,
    group: Running,
    unit: Unit::PerSecond,
    order: Descending,
    help: "Moves between CPUs (se.nr_migrations).",
    value: |task, snapshot| snapshot.rate(task.delta[Counter::CpuMigrations]).map(Value::F64),
    traits: Traits::NONE,
};

pub const LLC_MIGRATIONS_PER_S: Metric<Task> = Metric {
    id: "llc_migrations_per_s",
    title: "LLCMIG/s",
    width: 8,
    group: Running,
    unit: Unit::PerSecond,
    order: Descending,
    help: "Moves that left the last-level cache: it ran next under another one.",
    value: |task, snapshot| snapshot.rate(task.delta[Counter::LlcMoves]).map(Value::F64),
    traits: Traits::NONE.several(Several::Caches),
};

pub const NODE_MIGRATIONS_PER_S: Metric<Task> = Metric {
    id: "node_migrations_per_s",
    title: "NODMIG/s",
    width: 8,
    group: Running,
    unit: Unit::PerSecond,
    order: Descending,
    help: "Moves that left the node: it ran next on another one.",
    value: |task, snapshot| snapshot.rate(task.delta[Counter::NodeMoves]).map(Value::F64),
    traits: Traits::NONE.several(Several::Nodes).stands(Stands::Remote(|rate| rate > 0.0)),
};

pub const SMT_BUSY_PCT: Metric<Task> = Metric {
    id: "smt_busy_pct",
    title: "SMT%",
    width: 5,
    group: Running,
    unit: Unit::Percent,
    order: Descending,
    help: "Share of its on-CPU time in which another thread of the same core was busy too.",
    value: |task, _| {
        ratio(task.delta[Counter::SmtBusyNs], task.run_ns(), "did not run in this interval")
            // Two clocks meet here: the scheduler's for time on CPU, the monotonic one for siblings.
            .map(|share| Value::F64((share * 100.0).min(100.0)))
    },
    traits: Traits::NONE.needs(&[Facility::SmtTime]),
};

pub const CYCLES_TOTAL: Metric<Task> = Metric {
    id: "cycles_total",
    title: "CYCLES",
    width: 8,
    group: Efficiency,
    unit: Unit::Count,
    order: Descending,
    help: "Core cycles, user and kernel, since numatop-ng first saw the task.",
    value: |task, snapshot| total(task, snapshot, Role::Cycles),
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
    traits: Traits::NONE.needs(&[Facility::INSTRUCTIONS]),
};

pub const IPC: Metric<Task> = Metric {
    id: "ipc",
    title: "IPC",
    width: 5,
    group: Efficiency,
    unit: Unit::Ratio,
    order: Ascending,
    help: "Instructions per cycle in the interval. Below about 0.5 a CPU mostly waits, often for memory.",
    value: |task, snapshot| counters::ipc(&task.delta.slots, snapshot).map(Value::F64),
    traits: Traits::NONE
        .stands(Stands::Harm(|ipc| ipc < 0.5))
        .needs(&[Facility::CYCLES, Facility::INSTRUCTIONS]),
};

pub const CPI: Metric<Task> = Metric {
    id: "cpi",
    title: "CPI",
    width: 6,
    group: Efficiency,
    unit: Unit::Ratio,
    order: Descending,
    help: "Cycles per instruction in the interval: 1 / ipc.",
    value: |task, snapshot| {
        let cycles = counters::count(&task.delta.slots, snapshot, Role::Cycles)?;
        let instructions = counters::count(&task.delta.slots, snapshot, Role::Instructions)?;
        if instructions > 0.0 {
            Ok(Value::F64(cycles / instructions))
        } else {
            Err(no("no instruction was counted in this interval"))
        }
    },
    traits: Traits::NONE.needs(&[Facility::CYCLES, Facility::INSTRUCTIONS]),
};

pub const GHZ: Metric<Task> = Metric {
    id: "ghz",
    title: "GHz",
    width: 5,
    group: Efficiency,
    unit: Unit::Gigahertz,
    order: Ascending,
    help: "Cycles per nanosecond of on-CPU time: the clock frequency it got.",
    value: |task, snapshot| {
        let cycles = counters::count(&task.delta.slots, snapshot, Role::Cycles)?;
        let ns = task.run_ns();
        if ns > 0 { Ok(Value::F64(cycles / ns as f64)) } else { Err(no("did not run in this interval")) }
    },
    traits: Traits::NONE.needs(&[Facility::CYCLES]),
};

pub const IPC_BY_NODE: Metric<Task> = Metric {
    id: "ipc_by_node",
    title: "IPC BY NODE",
    width: 14,
    group: Efficiency,
    unit: Unit::Ratio,
    order: Ascending,
    help: "Instructions per cycle on each node it ran on in the interval.",
    value: |task, snapshot| counters::ipc_by_node(&task.delta, snapshot).map(Value::ByNode),
    traits: Traits::NONE.needs(&[Facility::CYCLES, Facility::INSTRUCTIONS]),
};

pub const STALL_FRONTEND_PCT: Metric<Task> = Metric {
    id: "stall_frontend_pct",
    title: "FE%",
    width: 5,
    group: Efficiency,
    unit: Unit::Percent,
    order: Descending,
    help: "Cycles (on some CPUs issue slots) in which the front end delivered nothing: code that misses caches or TLB, or \
               branches. Needs --events stalls.",
    value: |task, snapshot| {
        counters::stall_pct(&task.delta.slots, snapshot, Role::StallFrontend).map(Value::F64)
    },
    traits: Traits::NONE.needs(&[Facility::Counter(Role::StallFrontend), Facility::CYCLES]),
};

pub const STALL_BACKEND_PCT: Metric<Task> = Metric {
    id: "stall_backend_pct",
    title: "BE%",
    width: 5,
    group: Efficiency,
    unit: Unit::Percent,
    order: Descending,
    help: "Cycles (on some CPUs issue slots) in which the back end took nothing: mostly data that has to be waited for. \
               Needs --events stalls.",
    value: |task, snapshot| {
        counters::stall_pct(&task.delta.slots, snapshot, Role::StallBackend).map(Value::F64)
    },
    traits: Traits::NONE.needs(&[Facility::Counter(Role::StallBackend), Facility::CYCLES]),
};

pub const LLC_MPKI: Metric<Task> = Metric {
    id: "llc_mpki",
    title: "LLCMPKI",
    width: 7,
    group: Efficiency,
    unit: Unit::Ratio,
    order: Descending,
    help: "Misses of the last-level cache per thousand instructions. Needs --events cache.",
    value: |task, snapshot| counters::mpki(&task.delta.slots, snapshot, Role::Llc).map(Value::F64),
    traits: Traits::NONE.needs(&[Facility::Counter(Role::Llc), Facility::INSTRUCTIONS]),
};

pub const DTLB_MPKI: Metric<Task> = Metric {
    id: "dtlb_mpki",
    title: "DTLBMPKI",
    width: 8,
    group: Efficiency,
    unit: Unit::Ratio,
    order: Descending,
    help: "Page walks for data per thousand instructions; huge pages need fewer. Needs --events tlb.",
    value: |task, snapshot| counters::mpki(&task.delta.slots, snapshot, Role::Dtlb).map(Value::F64),
    traits: Traits::NONE.needs(&[Facility::Counter(Role::Dtlb), Facility::INSTRUCTIONS]),
};

pub const ITLB_MPKI: Metric<Task> = Metric {
    id: "itlb_mpki",
    title: "ITLBMPKI",
    width: 8,
    group: Efficiency,
    unit: Unit::Ratio,
    order: Descending,
    help: "Page walks for instructions per thousand instructions. Needs --events tlb.",
    value: |task, snapshot| counters::mpki(&task.delta.slots, snapshot, Role::Itlb).map(Value::F64),
    traits: Traits::NONE.needs(&[Facility::Counter(Role::Itlb), Facility::INSTRUCTIONS]),
};

pub const BRANCH_MPKI: Metric<Task> = Metric {
    id: "branch_mpki",
    title: "BRMPKI",
    width: 7,
    group: Efficiency,
    unit: Unit::Ratio,
    order: Descending,
    help: "Mispredicted branches per thousand instructions. Needs --events cache.",
    value: |task, snapshot| counters::mpki(&task.delta.slots, snapshot, Role::Branch).map(Value::F64),
    traits: Traits::NONE.needs(&[Facility::Counter(Role::Branch), Facility::INSTRUCTIONS]),
};

pub const LMA_PER_S: Metric<Task> = Metric {
    id: "lma_per_s",
    title: "LMA/s",
    width: 7,
    group: Efficiency,
    unit: Unit::PerSecond,
    order: Descending,
    help: "Accesses that memory of the node it ran on answered. What is counted exactly depends on the CPU: \
               numatop-ng list events says it.",
    value: |task, snapshot| {
        counters::lma(&task.delta.slots, snapshot).and_then(|count| snapshot.rate_f64(count)).map(Value::F64)
    },
    traits: Traits::NONE.needs(&[Facility::Counter(Role::Lma)]),
};

pub const RMA_PER_S: Metric<Task> = Metric {
    id: "rma_per_s",
    title: "RMA/s",
    width: 7,
    group: Efficiency,
    unit: Unit::PerSecond,
    order: Descending,
    help: "Accesses that memory of another node answered. What is counted exactly depends on the CPU: numatop-ng list \
               events says it.",
    value: |task, snapshot| {
        counters::rma(&task.delta.slots, snapshot).and_then(|count| snapshot.rate_f64(count)).map(Value::F64)
    },
    traits: Traits::NONE.needs(&[Facility::Counter(Role::Rma)]),
};

pub const RMA_LMA: Metric<Task> = Metric {
    id: "rma_lma",
    title: "RMA/LMA",
    width: 7,
    group: Efficiency,
    unit: Unit::Ratio,
    order: Descending,
    help: "Remote per local memory access: 0 is all local, inf all remote.",
    value: |task, snapshot| counters::rma_lma(&task.delta.slots, snapshot).map(Value::F64),
    traits: Traits::NONE.needs(&[Facility::Counter(Role::Lma), Facility::Counter(Role::Rma)]),
};

pub const LPI: Metric<Task> = Metric {
    id: "lpi",
    title: "LPI",
    width: 6,
    group: Efficiency,
    unit: Unit::Ratio,
    order: Descending,
    help: "Local memory accesses per thousand instructions.",
    value: |task, snapshot| {
        let slots = &task.delta.slots;
        counters::per_kilo_instructions(counters::lma(slots, snapshot)?, slots, snapshot).map(Value::F64)
    },
    traits: Traits::NONE.needs(&[Facility::Counter(Role::Lma), Facility::INSTRUCTIONS]),
};

pub const RPI: Metric<Task> = Metric {
    id: "rpi",
    title: "RPI",
    width: 6,
    group: Efficiency,
    unit: Unit::Ratio,
    order: Descending,
    help: "Remote memory accesses per thousand instructions.",
    value: |task, snapshot| {
        let slots = &task.delta.slots;
        counters::per_kilo_instructions(counters::rma(slots, snapshot)?, slots, snapshot).map(Value::F64)
    },
    traits: Traits::NONE.needs(&[Facility::Counter(Role::Rma), Facility::INSTRUCTIONS]),
};

pub const COUNTERS_RUNNING_PCT: Metric<Task> = Metric {
    id: "counters_running_pct",
    title: "CNT%",
    width: 5,
    group: Efficiency,
    unit: Unit::Percent,
    order: Ascending,
    help: "Share of the time its hardware counters were on the PMU; 100 means never multiplexed. Counts are scaled up by it.",
    value: |task, snapshot| counters::running_pct(&task.delta.slots, snapshot).map(Value::F64),
    traits: Traits::NONE.stands(Stands::Harm(|pct| pct < 99.95)).needs(&[Facility::Counters]),
};

pub const RSS_BYTES: Metric<Task> = Metric {
    id: "rss_bytes",
    title: "RSS",
    width: 7,
    group: Memory,
    unit: Unit::Bytes,
    order: Descending,
    help: "Resident memory. From kernel 6.2 on it may lag by up to 32 pages per CPU and kind, as in /proc/PID/statm.",
    value: |task, _| {
        if task.exited { Err(no("the task has ended")) } else { Ok(Value::U64(task.rss_bytes)) }
    },
    traits: Traits::NONE,
};

pub const MINOR_FAULTS_PER_S: Metric<Task> = Metric {
    id: "minor_faults_per_s",
    title: "MINF/s",
    width: 7,
    group: Memory,
    unit: Unit::PerSecond,
    order: Descending,
    help: "Page faults that needed no disk.",
    value: |task, snapshot| snapshot.rate(task.delta[Counter::MinFlt]).map(Value::F64),
    traits: Traits::NONE,
};

pub const MAJOR_FAULTS_PER_S: Metric<Task> = Metric {
    id: "major_faults_per_s",
    title: "MAJF/s",
    width: 7,
    group: Memory,
    unit: Unit::PerSecond,
    order: Descending,
    help: "Page faults that waited for a disk.",
    value: |task, snapshot| snapshot.rate(task.delta[Counter::MajFlt]).map(Value::F64),
    traits: Traits::NONE.stands(Stands::Harm(|rate| rate > 0.0)),
};

pub const PREFERRED_NODE: Metric<Task> = Metric {
    id: "preferred_node",
    title: "PREF",
    width: 4,
    group: Memory,
    unit: Unit::Id,
    order: Ascending,
    help: "Node that the kernel's NUMA balancing would like it on.",
    value: |task, _| match task.raw.preferred_node {
        Some(node) => Ok(Value::U64(node.0.into())),
        None => Err(no("the kernel has not chosen one")),
    },
    traits: Traits::NONE.several(Several::Nodes).stands(Stands::Home).needs(&[Facility::NumaFields]),
};

pub const SCAN_PERIOD_MS: Metric<Task> = Metric {
    id: "scan_period_ms",
    title: "SCANms",
    width: 7,
    group: Memory,
    unit: Unit::Milliseconds,
    order: Ascending,
    help: "How often NUMA balancing looks at its memory now; the slower, the more settled.",
    value: |task, _| match task.raw.scan_period_ms {
        0 => Err(no("NUMA balancing does not scan it")),
        ms => Ok(Value::U64(ms.into())),
    },
    traits: Traits::NONE.needs(&[Facility::NumaFields]),
};

/// The metric called `id`.
pub fn by_id(id: &str) -> Option<&'static Metric<Task>> {
    TASK_METRICS.iter().find(|metric| metric.id == id)
}

fn ratio(part: u64, whole: u64, otherwise: &str) -> Reading<f64> {
    if whole > 0 { Ok(part as f64 / whole as f64) } else { Err(no(otherwise)) }
}

fn total(task: &Task, snapshot: &Snapshot, role: Role) -> Reading<Value> {
    counters::count(&task.total.slots, snapshot, role).map(|count| Value::U64(count as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_titles_fit() {
        for (i, metric) in TASK_METRICS.iter().enumerate() {
            assert!(TASK_METRICS[..i].iter().all(|other| other.id != metric.id), "{} is twice", metric.id);
            assert!(
                metric.title.chars().count() <= usize::from(metric.width),
                "{}: title wider than its column",
                metric.id
            );
            assert!(metric.help.ends_with('.'), "{}: help is a sentence", metric.id);
        }
    }
}
