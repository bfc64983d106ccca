//! The metrics of a task: thread, process, or anything that is a sum of them.

use super::{Group, Metric, Order, Unit, Value};
use super::{balancing, counters, interference, moved, on_demand, pages, placement, smt};
use crate::container::group::Kind;
use crate::pmu::event::Role;
use crate::sample::{Missing, Reading};
use crate::snapshot::{Snapshot, Task};
use crate::text;

use Group::{Efficiency, Identity, Memory, Running};
use Order::{Ascending, Descending};

/// All metrics of a task, in the order in which help and JSON list them.
pub static TASK_METRICS: &[Metric<Task>] = &[
    Metric {
        id: "pid",
        title: "PID",
        width: 8,
        group: Identity,
        unit: Unit::Id,
        order: Ascending,
        help: "Process id (thread group) in the host's pid namespace.",
        value: |task, _| Ok(Value::U64(task.raw.pid.into())),
    },
    Metric {
        id: "tid",
        title: "TID",
        width: 8,
        group: Identity,
        unit: Unit::Id,
        order: Ascending,
        help: "Thread id; 0 is the sum of a process's ended threads. Only in the view of threads.",
        value: |task, _| {
            task.tid.map(|tid| Value::U64(tid.into())).ok_or_else(|| no("the row is a process, not a thread"))
        },
    },
    Metric {
        id: "ppid",
        title: "PPID",
        width: 8,
        group: Identity,
        unit: Unit::Id,
        order: Ascending,
        help: "Parent process id.",
        value: |task, _| Ok(Value::U64(task.raw.ppid.into())),
    },
    Metric {
        id: "user",
        title: "USER",
        width: 9,
        group: Identity,
        unit: Unit::Text,
        order: Ascending,
        help: "Owner (real user id), by name where /etc/passwd has one.",
        value: |task, snapshot| Ok(Value::Text(user(task.raw.uid, snapshot))),
    },
    Metric {
        id: "state",
        title: "S",
        width: 1,
        group: Identity,
        unit: Unit::Text,
        order: Ascending,
        help: "Scheduler state as in ps(1): R running or runnable, S sleeping, D uninterruptible, T stopped, t traced, \
               I idle kernel thread, Z zombie, X ended.",
        value: |task, _| Ok(Value::Text(state(task).to_string())),
    },
    Metric {
        id: "policy",
        title: "POLICY",
        width: 8,
        group: Identity,
        unit: Unit::Text,
        order: Ascending,
        help: "Scheduling policy, as in sched(7).",
        value: |task, _| Ok(Value::Text(policy(task.raw.policy))),
    },
    Metric {
        id: "nice",
        title: "NI",
        width: 3,
        group: Identity,
        unit: Unit::Id,
        order: Ascending,
        help: "Nice value, -20 (favoured) to 19.",
        value: |task, _| Ok(Value::I64(task.raw.nice.into())),
    },
    Metric {
        id: "threads",
        title: "THR",
        width: 5,
        group: Identity,
        unit: Unit::Count,
        order: Descending,
        help: "Live threads of the process.",
        value: |task, _| Ok(Value::U64(task.threads.into())),
    },
    Metric {
        id: "start_ns",
        title: "START",
        width: 10,
        group: Identity,
        unit: Unit::Nanoseconds,
        order: Descending,
        help: "Start time since boot (CLOCK_BOOTTIME). pid and start_ns identify a process for ever.",
        value: |task, _| Ok(Value::U64(task.raw.start_ns)),
    },
    Metric {
        id: "cgroup",
        title: "CGROUP",
        width: 24,
        group: Identity,
        unit: Unit::Text,
        order: Ascending,
        help: "Control group path.",
        value: |task, snapshot| match snapshot.names.cgroups.get(&task.raw.cgroup_id) {
            Some(path) => Ok(Value::Text(text::clean_str(path))),
            None => Err(Missing::Lost(format!(
                "cgroup {} was removed before its path was read",
                task.raw.cgroup_id
            ))),
        },
    },
    Metric {
        id: "container",
        title: "CONTAINER",
        width: 16,
        group: Identity,
        unit: Unit::Text,
        order: Ascending,
        help: "Name of the container it is in, or else its short id.",
        value: |task, snapshot| match snapshot.names.groups.get(&task.raw.cgroup_id) {
            Some(group) if matches!(group.kind, Kind::Container | Kind::Machine) => {
                Ok(Value::Text(group.name.clone()))
            }
            _ => Err(no("it is in no container")),
        },
    },
    Metric {
        id: "pod",
        title: "POD",
        width: 20,
        group: Identity,
        unit: Unit::Text,
        order: Ascending,
        help: "Kubernetes or podman pod it is in: its name where the kubelet's files have it, else its uid.",
        value: |task, snapshot| {
            let group = snapshot.names.groups.get(&task.raw.cgroup_id);
            let pod = group.and_then(|group| group.pod.clone());
            pod.map(Value::Text).ok_or_else(|| no("it is in no pod"))
        },
    },
    Metric {
        id: "comm",
        title: "COMMAND",
        width: 16,
        group: Identity,
        unit: Unit::Text,
        order: Ascending,
        help: "Name of the task as the kernel keeps it: up to 15 bytes; unprintable ones are escaped.",
        value: |task, _| Ok(Value::Text(text::clean(task.raw.comm.bytes()))),
    },
    on_demand::CMDLINE,
    Metric {
        id: "cpu_ns",
        title: "TIME",
        width: 9,
        group: Running,
        unit: Unit::Nanoseconds,
        order: Descending,
        help: "On-CPU time since numatop-ng first saw the task.",
        value: |task, _| Ok(Value::U64(task.total.cpu_ns())),
    },
    Metric {
        id: "cpu_pct",
        title: "CPU%",
        width: 6,
        group: Running,
        unit: Unit::Percent,
        order: Descending,
        help: "On-CPU time in the interval; 100 is one CPU.",
        value: |task, snapshot| snapshot.share(task.run_ns()).map(Value::F64),
    },
    Metric {
        id: "cpu",
        title: "CPU",
        width: 4,
        group: Running,
        unit: Unit::Id,
        order: Ascending,
        help: "CPU it ran on last. For a process: its main thread.",
        value: |task, _| Ok(Value::U64(task.raw.cpu.into())),
    },
    on_demand::CPUS_ALLOWED,
    Metric {
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
    },
    Metric {
        id: "run_pct_by_node",
        title: "RUN BY NODE",
        width: 14,
        group: Running,
        unit: Unit::Percent,
        order: Descending,
        help: "Share of its on-CPU time per node in the interval; sums to 100.",
        value: |task, _| task.run_pct_by_node().map(Value::ByNode),
    },
    Metric {
        id: "switches_per_s",
        title: "CSW/s",
        width: 7,
        group: Running,
        unit: Unit::PerSecond,
        order: Descending,
        help: "Context switches away from it, voluntary and not.",
        value: |task, snapshot| {
            snapshot.rate(task.delta.nvcsw.wrapping_add(task.delta.nivcsw)).map(Value::F64)
        },
    },
    Metric {
        id: "involuntary_per_s",
        title: "ICSW/s",
        width: 7,
        group: Running,
        unit: Unit::PerSecond,
        order: Descending,
        help: "Context switches it did not ask for: it was preempted.",
        value: |task, snapshot| snapshot.rate(task.delta.nivcsw).map(Value::F64),
    },
    Metric {
        id: "runq_wait_pct",
        title: "WAIT%",
        width: 6,
        group: Running,
        unit: Unit::Percent,
        order: Descending,
        help: "Time it was runnable but waited for a CPU, as a share of the interval (sched_info.run_delay). A wait counts \
               when it ends.",
        value: |task, snapshot| snapshot.share(task.delta.run_delay_ns).map(Value::F64),
    },
    Metric {
        id: "runq_wait_us",
        title: "WAITus",
        width: 7,
        group: Running,
        unit: Unit::Microseconds,
        order: Descending,
        help: "Mean wait for a CPU per dispatch in the interval.",
        value: |task, _| {
            ratio(task.delta.run_delay_ns, task.delta.run_count, "was not dispatched in this interval")
                .map(|ns| Value::F64(ns / 1e3))
        },
    },
    interference::RUNQ_WAIT_IDLE_ELSEWHERE_PCT,
    Metric {
        id: "cpu_migrations_per_s",
        title: "MIG/s",
        width: 6,
        group: Running,
        unit: Unit::PerSecond,
        order: Descending,
        help: "Moves between CPUs (se.nr_migrations).",
        value: |task, snapshot| snapshot.rate(task.delta.cpu_migrations).map(Value::F64),
    },
    Metric {
        id: "llc_migrations_per_s",
        title: "LLCMIG/s",
        width: 8,
        group: Running,
        unit: Unit::PerSecond,
        order: Descending,
        help: "Moves that left the last-level cache: it ran next under another one.",
        value: |task, snapshot| snapshot.rate(task.delta.llc_moves).map(Value::F64),
    },
    Metric {
        id: "node_migrations_per_s",
        title: "NODMIG/s",
        width: 8,
        group: Running,
        unit: Unit::PerSecond,
        order: Descending,
        help: "Moves that left the node: it ran next on another one.",
        value: |task, snapshot| snapshot.rate(task.delta.node_moves).map(Value::F64),
    },
    Metric {
        id: "smt_busy_pct",
        title: "SMT%",
        width: 5,
        group: Running,
        unit: Unit::Percent,
        order: Descending,
        help: "Share of its on-CPU time in which another thread of the same core was busy too.",
        value: |task, _| {
            ratio(task.delta.smt_busy_ns, task.run_ns(), "did not run in this interval")
                // Two clocks meet here: the scheduler's for time on CPU, the monotonic one for siblings.
                .map(|share| Value::F64((share * 100.0).min(100.0)))
        },
    },
    interference::IRQ_PCT,
    Metric {
        id: "cycles_total",
        title: "CYCLES",
        width: 8,
        group: Efficiency,
        unit: Unit::Count,
        order: Descending,
        help: "Core cycles, user and kernel, since numatop-ng first saw the task.",
        value: |task, snapshot| total(task, snapshot, Role::Cycles),
    },
    Metric {
        id: "instructions_total",
        title: "INSTR",
        width: 8,
        group: Efficiency,
        unit: Unit::Count,
        order: Descending,
        help: "Retired instructions, user and kernel, since numatop-ng first saw the task.",
        value: |task, snapshot| total(task, snapshot, Role::Instructions),
    },
    Metric {
        id: "ipc",
        title: "IPC",
        width: 5,
        group: Efficiency,
        unit: Unit::Ratio,
        order: Ascending,
        help: "Instructions per cycle in the interval. Below about 0.5 a CPU mostly waits, often for memory.",
        value: |task, snapshot| counters::ipc(&task.delta.slots, snapshot).map(Value::F64),
    },
    Metric {
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
    },
    Metric {
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
    },
    Metric {
        id: "ipc_by_node",
        title: "IPC BY NODE",
        width: 14,
        group: Efficiency,
        unit: Unit::Ratio,
        order: Ascending,
        help: "Instructions per cycle on each node it ran on in the interval.",
        value: |task, snapshot| counters::ipc_by_node(&task.delta, snapshot).map(Value::ByNode),
    },
    smt::IPC_SMT_IDLE,
    smt::IPC_SMT_BUSY,
    Metric {
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
    },
    Metric {
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
    },
    Metric {
        id: "llc_mpki",
        title: "LLCMPKI",
        width: 7,
        group: Efficiency,
        unit: Unit::Ratio,
        order: Descending,
        help: "Misses of the last-level cache per thousand instructions. Needs --events cache.",
        value: |task, snapshot| counters::mpki(&task.delta.slots, snapshot, Role::Llc).map(Value::F64),
    },
    Metric {
        id: "dtlb_mpki",
        title: "DTLBMPKI",
        width: 8,
        group: Efficiency,
        unit: Unit::Ratio,
        order: Descending,
        help: "Page walks for data per thousand instructions; huge pages need fewer. Needs --events tlb.",
        value: |task, snapshot| counters::mpki(&task.delta.slots, snapshot, Role::Dtlb).map(Value::F64),
    },
    Metric {
        id: "itlb_mpki",
        title: "ITLBMPKI",
        width: 8,
        group: Efficiency,
        unit: Unit::Ratio,
        order: Descending,
        help: "Page walks for instructions per thousand instructions. Needs --events tlb.",
        value: |task, snapshot| counters::mpki(&task.delta.slots, snapshot, Role::Itlb).map(Value::F64),
    },
    Metric {
        id: "branch_mpki",
        title: "BRMPKI",
        width: 7,
        group: Efficiency,
        unit: Unit::Ratio,
        order: Descending,
        help: "Mispredicted branches per thousand instructions. Needs --events cache.",
        value: |task, snapshot| counters::mpki(&task.delta.slots, snapshot, Role::Branch).map(Value::F64),
    },
    Metric {
        id: "lma_per_s",
        title: "LMA/s",
        width: 7,
        group: Efficiency,
        unit: Unit::PerSecond,
        order: Descending,
        help: "Accesses that memory of the node it ran on answered. What is counted exactly depends on the CPU: \
               numatop-ng list events says it.",
        value: |task, snapshot| {
            counters::lma(&task.delta.slots, snapshot)
                .and_then(|count| snapshot.rate_f64(count))
                .map(Value::F64)
        },
    },
    Metric {
        id: "rma_per_s",
        title: "RMA/s",
        width: 7,
        group: Efficiency,
        unit: Unit::PerSecond,
        order: Descending,
        help: "Accesses that memory of another node answered. What is counted exactly depends on the CPU: numatop-ng list \
               events says it.",
        value: |task, snapshot| {
            counters::rma(&task.delta.slots, snapshot)
                .and_then(|count| snapshot.rate_f64(count))
                .map(Value::F64)
        },
    },
    Metric {
        id: "rma_lma",
        title: "RMA/LMA",
        width: 7,
        group: Efficiency,
        unit: Unit::Ratio,
        order: Descending,
        help: "Remote per local memory access: 0 is all local, inf all remote.",
        value: |task, snapshot| counters::rma_lma(&task.delta.slots, snapshot).map(Value::F64),
    },
    Metric {
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
    },
    Metric {
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
    },
    Metric {
        id: "counters_running_pct",
        title: "CNT%",
        width: 5,
        group: Efficiency,
        unit: Unit::Percent,
        order: Ascending,
        help: "Share of the time its hardware counters were on the PMU; 100 means never multiplexed. Counts are scaled up by it.",
        value: |task, snapshot| counters::running_pct(&task.delta.slots, snapshot).map(Value::F64),
    },
    Metric {
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
    },
    on_demand::MEMS_ALLOWED,
    on_demand::HUGE_PCT,
    placement::MEM_PCT_BY_NODE,
    placement::MEM_BYTES_BY_NODE,
    placement::MEM_ERROR_POINTS,
    placement::MEM_AGE_MS,
    placement::REMOTE_PCT,
    placement::REMOTE_SOURCE,
    placement::REMOTE_ERROR_POINTS,
    placement::REMOTE_BEST_PCT,
    Metric {
        id: "minor_faults_per_s",
        title: "MINF/s",
        width: 7,
        group: Memory,
        unit: Unit::PerSecond,
        order: Descending,
        help: "Page faults that needed no disk.",
        value: |task, snapshot| snapshot.rate(task.delta.min_flt).map(Value::F64),
    },
    Metric {
        id: "major_faults_per_s",
        title: "MAJF/s",
        width: 7,
        group: Memory,
        unit: Unit::PerSecond,
        order: Descending,
        help: "Page faults that waited for a disk.",
        value: |task, snapshot| snapshot.rate(task.delta.maj_flt).map(Value::F64),
    },
    pages::ALLOC_PCT_BY_NODE,
    pages::CROSS_NODE_FAULTS,
    pages::CROSS_NODE_FAULT_PCT,
    pages::PAGES_MIGRATED,
    pages::PAGES_MIGRATE_FAILED,
    moved::BALANCING,
    moved::ASKED,
    moved::OTHER,
    Metric {
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
    },
    Metric {
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
    },
    balancing::NUMA_GROUP,
    balancing::NUMA_MOVES,
    balancing::NUMA_SWAPS,
    balancing::NUMA_STUCK,
    balancing::HINT_FAULTS,
    balancing::HINT_REMOTE_PCT,
    balancing::BALANCING_PCT,
];

/// The metric called `id`.
pub fn by_id(id: &str) -> Option<&'static Metric<Task>> {
    TASK_METRICS.iter().find(|metric| metric.id == id)
}

fn no(why: &str) -> Missing {
    Missing::NotCollected(why.into())
}

fn ratio(part: u64, whole: u64, otherwise: &str) -> Reading<f64> {
    if whole > 0 { Ok(part as f64 / whole as f64) } else { Err(no(otherwise)) }
}

fn total(task: &Task, snapshot: &Snapshot, role: Role) -> Reading<Value> {
    counters::count(&task.total.slots, snapshot, role).map(|count| Value::U64(count as u64))
}

/// The name of a user, or his number.
pub fn user(uid: u32, snapshot: &Snapshot) -> String {
    snapshot.names.users.get(&uid).map_or_else(|| uid.to_string(), |name| text::clean_str(name))
}

/// State letter as ps(1) and fs/proc/array.c give it.
pub fn state(task: &Task) -> char {
    const EXIT_DEAD: u32 = 0x10;
    const EXIT_ZOMBIE: u32 = 0x20;
    const TASK_IDLE: u32 = 0x402; // uninterruptible without load
    let (state, exit) = (task.raw.state, task.raw.exit_state);
    if (task.exited && !task.left()) || exit & EXIT_DEAD != 0 {
        return 'X';
    }
    if exit & EXIT_ZOMBIE != 0 {
        return 'Z';
    }
    if state & TASK_IDLE == TASK_IDLE {
        return 'I';
    }
    match state & 0xff {
        0 => 'R',
        bits if bits & 1 != 0 => 'S',
        bits if bits & 2 != 0 => 'D',
        bits if bits & 4 != 0 => 'T',
        bits if bits & 8 != 0 => 't',
        _ => 'S',
    }
}

/// `SCHED_*` of include/uapi/linux/sched.h without the prefix, in lower case.
pub fn policy(number: u32) -> String {
    match number {
        0 => "other".into(),
        1 => "fifo".into(),
        2 => "rr".into(),
        3 => "batch".into(),
        5 => "idle".into(),
        6 => "deadline".into(),
        7 => "ext".into(),
        other => other.to_string(),
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
