//! The metrics of a task: thread, process, or anything that is a sum of them.

use super::container::summed;
use super::over::{self, Better, Over, Quotient};
use super::{
    Group, Metric, Order, Several, Stands, Traits, Unit, Value, accelerators, access, allowed, balancing,
    disks, efficiency, identity, interrupts, no, pages, placement, places, resident, sockets, tiers,
};
use crate::model::counters::Counter;
use crate::model::facility::Facility;
use crate::model::sample::Reading;
use crate::snapshot::{Container, Snapshot, Task};
use Group::{Memory, Running};
use Order::{Ascending, Descending};

pub use super::efficiency::{
    BRANCH_MISS_PCT, BRANCH_MPKI, COUNTERS_RUNNING_PCT, CPI, CYCLES_TOTAL, DTLB_MISS_PCT, DTLB_MPKI, GHZ,
    INSTRUCTIONS_TOTAL, IPC, IPC_BY_NODE, ITLB_MISS_PCT, ITLB_MPKI, L1D_MISS_PCT, L1I_MISS_PCT, LLC_MISS_PCT,
    LLC_MPKI, LMA_PER_S, LPI, RMA_LMA, RMA_PER_S, RPI, STALL_BACKEND_PCT, STALL_FRONTEND_PCT,
};

/// Makes the table of tasks, and the one of those metrics that containers have as sums over their tasks: lines with
/// `=> summed`.
macro_rules! metrics {
    ($($metric:path $(=> $summed:ident)?),* $(,)?) => {
        /// All metrics of a task, in the order in which help and JSON list them.
        pub static TASK_METRICS: &[Metric<Task>] = &[$($metric),*];

        /// Task metrics that containers have, too.
        pub(super) const SUMMED: &[Metric<Container>] = &[$($($summed!($metric),)?)*];
    };
}

metrics! {
    identity::PID,
    identity::TID,
    identity::PPID,
    identity::USER,
    identity::STATE,
    identity::POLICY,
    identity::NICE,
    identity::THREADS => summed,
    identity::START_NS,
    identity::CGROUP,
    identity::CONTAINER,
    identity::POD,
    identity::COMM,
    identity::CMDLINE,
    CPU_NS => summed,
    CPU_PCT => summed,
    CPU,
    identity::CPUS_ALLOWED,
    allowed::NODES_ALLOWED,
    HOME_NODE => summed,
    RUN_PCT_BY_NODE => summed,
    places::HOME_LLC => summed,
    places::RUN_PCT_BY_LLC => summed,
    places::HOME_SOCKET => summed,
    places::RUN_PCT_BY_SOCKET => summed,
    SWITCHES_PER_S => summed,
    INVOLUNTARY_PER_S => summed,
    RUNQ_WAIT_PCT => summed,
    RUNQ_WAIT_US => summed,
    interrupts::RUNQ_WAIT_THROTTLED_PCT,
    interrupts::RUNQ_WAIT_BOUND_PCT,
    interrupts::RUNQ_WAIT_IDLE_ELSEWHERE_PCT,
    CPU_MIGRATIONS_PER_S => summed,
    LLC_MIGRATIONS_PER_S => summed,
    NODE_MIGRATIONS_PER_S => summed,
    SMT_BUSY_PCT => summed,
    interrupts::IRQ_PCT,
    CYCLES_TOTAL => summed,
    INSTRUCTIONS_TOTAL => summed,
    IPC => summed,
    CPI => summed,
    GHZ => summed,
    IPC_BY_NODE => summed,
    efficiency::IPC_SMT_IDLE => summed,
    efficiency::IPC_SMT_BUSY => summed,
    STALL_FRONTEND_PCT => summed,
    STALL_BACKEND_PCT => summed,
    LLC_MPKI => summed,
    DTLB_MPKI => summed,
    ITLB_MPKI => summed,
    BRANCH_MPKI => summed,
    L1D_MISS_PCT,
    L1I_MISS_PCT,
    LLC_MISS_PCT,
    DTLB_MISS_PCT,
    ITLB_MISS_PCT,
    BRANCH_MISS_PCT,
    LMA_PER_S => summed,
    RMA_PER_S => summed,
    RMA_LMA => summed,
    LPI => summed,
    RPI => summed,
    COUNTERS_RUNNING_PCT => summed,
    RSS_BYTES,
    resident::ANON,
    resident::FILE,
    resident::SHMEM,
    resident::SWAP,
    allowed::POLICY,
    allowed::MEMS_ALLOWED,
    identity::HUGE_PCT,
    placement::MEM_PCT_BY_NODE,
    placement::MEM_BYTES_BY_NODE,
    placement::MEM_ERROR_POINTS,
    placement::MEM_AGE_MS,
    placement::OWN_POLICY_PCT,
    placement::OWN_POLICY_ERROR_POINTS,
    placement::HUGETLB_BYTES,
    placement::REMOTE_PCT,
    placement::REMOTE_SOURCE,
    placement::REMOTE_ERROR_POINTS,
    placement::REMOTE_LOW_PCT,
    placement::REMOTE_HIGH_PCT,
    placement::REMOTE_BEST_PCT,
    MINOR_FAULTS_PER_S => summed,
    MAJOR_FAULTS_PER_S => summed,
    pages::ALLOC_PCT_BY_NODE => summed,
    pages::CROSS_NODE_FAULTS => summed,
    pages::CROSS_NODE_FAULT_PCT => summed,
    pages::PAGES_MIGRATED => summed,
    pages::PAGES_MIGRATE_FAILED => summed,
    pages::BALANCING => summed,
    pages::ASKED => summed,
    pages::OTHER => summed,
    tiers::TASK_PROMOTED,
    disks::PROCESS_BYTES_PER_S,
    disks::PROCESS_REQUESTS_PER_S,
    disks::PROCESS_FAR_PCT,
    disks::PROCESS_FAR_SOURCE,
    sockets::RECEIVED,
    sockets::READS,
    sockets::SENT,
    sockets::FAR_PCT,
    accelerators::ACCELERATORS,
    accelerators::ACCELERATOR_NODES,
    accelerators::ACCELERATOR_FAR_PCT,
    PREFERRED_NODE,
    SCAN_PERIOD_MS,
    balancing::NUMA_GROUP,
    balancing::NUMA_MOVES => summed,
    balancing::NUMA_SWAPS => summed,
    balancing::NUMA_STUCK => summed,
    balancing::HINT_FAULTS => summed,
    balancing::HINT_REMOTE_PCT => summed,
    balancing::BALANCING_PCT => summed,
    access::MEM_TIME_PCT,
    access::MEM_TIME_REMOTE_PCT,
    access::MEM_TIME_ERROR_POINTS,
    access::MEM_TIME_PCT_BY_NODE,
    access::ACCESS_SOURCE,
    access::ACCESS_SAMPLES,
    access::DRAM_REMOTE_PCT,
    access::LOAD_LATENCY_NS_LOCAL,
    access::LOAD_LATENCY_NS_REMOTE,
}

pub const CPU_NS: Metric<Task> = Metric {
    id: "cpu_ns",
    title: "TIME",
    width: 9,
    group: Running,
    unit: Unit::Nanoseconds,
    order: Descending,
    help: "On-CPU time since numatop-ng first saw the task.",
    value: |task, _| Ok(Value::U64(task.total.cpu_ns())),
    over: Over::Total,
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
    over: Over::Time,
    traits: Traits::NONE,
};

pub const CPU: Metric<Task> = Metric {
    id: "cpu",
    title: "CPU",
    width: 4,
    group: Running,
    unit: Unit::Id,
    order: Ascending,
    help: "The CPU where it ran last. A process shows that of its main thread.",
    value: |task, _| Ok(Value::U64(task.raw.cpu.into())),
    over: Over::Newest,
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
        None => Err(no("the task has not run yet")),
    },
    over: Over::Newest,
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
    over: Over::ByNode(|task, _| task.run_pct_by_node().map(|_| over::shares(&task.delta.run_ns))),
    traits: Traits::NONE.several(Several::Nodes).least_width(11),
};

pub const SWITCHES_PER_S: Metric<Task> = Metric {
    id: "switches_per_s",
    title: "CSW/s",
    width: 7,
    group: Running,
    unit: Unit::PerSecond,
    order: Descending,
    help: "Context switches away from it, voluntary and involuntary.",
    value: |task, snapshot| {
        snapshot.rate(task.delta[Counter::Nvcsw].wrapping_add(task.delta[Counter::Nivcsw])).map(Value::F64)
    },
    over: Over::Time,
    traits: Traits::NONE,
};

pub const INVOLUNTARY_PER_S: Metric<Task> = Metric {
    id: "involuntary_per_s",
    title: "ICSW/s",
    width: 7,
    group: Running,
    unit: Unit::PerSecond,
    order: Descending,
    help: "Involuntary context switches, in which it was preempted.",
    value: |task, snapshot| snapshot.rate(task.delta[Counter::Nivcsw]).map(Value::F64),
    over: Over::Time,
    traits: Traits::NONE.better(Better::Low),
};

pub const RUNQ_WAIT_PCT: Metric<Task> = Metric {
    id: "runq_wait_pct",
    title: "WAIT%",
    width: 6,
    group: Running,
    unit: Unit::Percent,
    order: Descending,
    help: "Time in which it was runnable but waited for a CPU, as a share of the interval (sched_info.run_delay). \
           A wait counts when it ends.",
    value: |task, snapshot| snapshot.share(task.delta[Counter::RunDelayNs]).map(Value::F64),
    over: Over::Time,
    traits: Traits::NONE.stands(Stands::Harm(|pct| pct >= 20.0)).better(Better::Low),
};

pub const RUNQ_WAIT_US: Metric<Task> = Metric {
    id: "runq_wait_us",
    title: "WAITus",
    width: 7,
    group: Running,
    unit: Unit::Microseconds,
    order: Descending,
    help: "Mean wait for a CPU per dispatch in the interval.",
    value: |task, _| wait_us(task).map(Quotient::value).map(Value::F64),
    over: Over::Quotient(|task, _| wait_us(task)),
    traits: Traits::NONE.better(Better::Low),
};

pub const CPU_MIGRATIONS_PER_S: Metric<Task> = Metric {
    id: "cpu_migrations_per_s",
    title: "MIG/s",
    width: 6,
    group: Running,
    unit: Unit::PerSecond,
    order: Descending,
    help: "Its moves between CPUs (se.nr_migrations).",
    value: |task, snapshot| snapshot.rate(task.delta[Counter::CpuMigrations]).map(Value::F64),
    over: Over::Time,
    traits: Traits::NONE.better(Better::Low),
};

pub const LLC_MIGRATIONS_PER_S: Metric<Task> = Metric {
    id: "llc_migrations_per_s",
    title: "LLCMIG/s",
    width: 8,
    group: Running,
    unit: Unit::PerSecond,
    order: Descending,
    help: "Its moves to a CPU of another last-level cache.",
    value: |task, snapshot| snapshot.rate(task.delta[Counter::LlcMoves]).map(Value::F64),
    over: Over::Time,
    traits: Traits::NONE.several(Several::Caches).better(Better::Low),
};

pub const NODE_MIGRATIONS_PER_S: Metric<Task> = Metric {
    id: "node_migrations_per_s",
    title: "NODMIG/s",
    width: 8,
    group: Running,
    unit: Unit::PerSecond,
    order: Descending,
    help: "Its moves to a CPU of another node.",
    value: |task, snapshot| snapshot.rate(task.delta[Counter::NodeMoves]).map(Value::F64),
    over: Over::Time,
    traits: Traits::NONE
        .several(Several::Nodes)
        .stands(Stands::Remote(|rate| rate > 0.0))
        .better(Better::Low),
};

pub const SMT_BUSY_PCT: Metric<Task> = Metric {
    id: "smt_busy_pct",
    title: "SMT%",
    width: 5,
    group: Running,
    unit: Unit::Percent,
    order: Descending,
    help: "Share of its on-CPU time in which another thread of the same core was also busy.",
    value: |task, _| smt_busy(task).map(Quotient::value).map(Value::F64),
    over: Over::Quotient(|task, _| smt_busy(task)),
    traits: Traits::NONE.needs(&[Facility::SmtTime]),
};

pub const RSS_BYTES: Metric<Task> = Metric {
    id: "rss_bytes",
    title: "RSS",
    width: 7,
    group: Memory,
    unit: Unit::Bytes,
    order: Descending,
    help: "Resident memory. From kernel 6.2 on the value can lag by up to 32 pages per CPU and kind, as in \
           /proc/PID/statm.",
    value: |task, _| {
        if task.exited { Err(no("the task has ended")) } else { Ok(Value::U64(task.rss_bytes)) }
    },
    over: Over::Level,
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
    over: Over::Time,
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
    over: Over::Time,
    traits: Traits::NONE.stands(Stands::Harm(|rate| rate > 0.0)).better(Better::Low),
};

pub const PREFERRED_NODE: Metric<Task> = Metric {
    id: "preferred_node",
    title: "PREF",
    width: 4,
    group: Memory,
    unit: Unit::Id,
    order: Ascending,
    help: "The node preferred by the kernel's NUMA balancing.",
    value: |task, _| match task.raw.preferred_node {
        Some(node) => Ok(Value::U64(node.0.into())),
        None => Err(no("the kernel has set no preferred node")),
    },
    over: Over::Newest,
    traits: Traits::NONE.several(Several::Nodes).stands(Stands::Home).needs(&[Facility::NumaFields]),
};

pub const SCAN_PERIOD_MS: Metric<Task> = Metric {
    id: "scan_period_ms",
    title: "SCANms",
    width: 7,
    group: Memory,
    unit: Unit::Milliseconds,
    order: Ascending,
    help: "Time between scans of its memory by NUMA balancing. A long time means that the placement has \
           settled.",
    value: |task, _| match task.raw.scan_period_ms {
        0 => Err(no("NUMA balancing does not scan its memory")),
        ms => Ok(Value::U64(ms.into())),
    },
    over: Over::Level,
    traits: Traits::NONE.needs(&[Facility::NumaFields]),
};

/// The metric called `id`.
pub fn by_id(id: &str) -> Option<&'static Metric<Task>> {
    TASK_METRICS.iter().find(|metric| metric.id == id)
}

fn wait_us(task: &Task) -> Reading<Quotient> {
    match task.delta[Counter::RunCount] {
        0 => Err(no("the task was not dispatched in this interval")),
        times => Ok(Quotient::of(task.delta[Counter::RunDelayNs] as f64, times as f64).scaled(1e-3)),
    }
}

/// Two clocks meet here: the scheduler's for time on CPU, the monotonic one for siblings.
fn smt_busy(task: &Task) -> Reading<Quotient> {
    match task.run_ns() {
        0 => Err(no("the task did not run in this interval")),
        ran => Ok(Quotient::pct(task.delta[Counter::SmtBusyNs].min(ran) as f64, ran as f64)),
    }
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
