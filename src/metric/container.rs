//! The metrics of a container: what is its own, and those of tasks summed over it.

use super::task::TASK_METRICS;
use super::{Group, Metric, Order, Traits, Unit, Value, interference, no, placement};
use crate::container::path;
use crate::host::topology::parse_cpulist;
use crate::model::facility::Facility;
use crate::sample::{GroupRaw, Missing, Reading};
use crate::snapshot::{Container, Snapshot};
use crate::units::{CpuId, Nid};

use Group::{Identity, Memory, Running};
use Order::{Ascending, Descending};

/// Where `id` is in [`TASK_METRICS`]. At compile time: a wrong id does not build.
pub(super) const fn position(id: &str) -> usize {
    let mut at = 0;
    while at < TASK_METRICS.len() {
        if same(TASK_METRICS[at].id, id) {
            return at;
        }
        at += 1;
    }
    panic!("there is no such task metric")
}

const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    let mut at = 0;
    while at < a.len() {
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// The task metric of this id, taken of the sum of a container's tasks.
macro_rules! summed {
    ($id:literal) => {{
        const AT: usize = position($id);
        Metric {
            id: TASK_METRICS[AT].id,
            title: TASK_METRICS[AT].title,
            width: TASK_METRICS[AT].width,
            group: TASK_METRICS[AT].group,
            unit: TASK_METRICS[AT].unit,
            order: TASK_METRICS[AT].order,
            help: TASK_METRICS[AT].help,
            value: |row: &Container, snapshot: &Snapshot| (TASK_METRICS[AT].value)(&row.sum, snapshot),
            traits: TASK_METRICS[AT].traits,
        }
    }};
}

const fn own(
    id: &'static str,
    title: &'static str,
    width: u16,
    kind: (Group, Unit, Order),
    help: &'static str,
    value: fn(&Container, &Snapshot) -> Reading<Value>,
) -> Metric<Container> {
    Metric { id, title, width, group: kind.0, unit: kind.1, order: kind.2, help, value, traits: Traits::NONE }
}

const TEXT: (Group, Unit, Order) = (Identity, Unit::Text, Ascending);

/// All metrics of a container, in the order in which help and JSON list them.
pub static CONTAINER_METRICS: &[Metric<Container>] = &[
    own(
        "container",
        "CONTAINER",
        16,
        TEXT,
        "Name of the container, pod, machine or unit, or else its short id, or the name of the cgroup.",
        |row, _| {
            Ok(Value::Text(row.group.as_ref().map_or_else(|| row.id.to_string(), |group| group.name.clone())))
        },
    ).needs(&[Facility::CgroupNames]),
    own(
        "kind",
        "KIND",
        9,
        TEXT,
        "container, machine, pod, unit (of systemd) or group (any other cgroup).",
        |row, _| Ok(Value::Text(row.kind().name().into())),
    ).needs(&[Facility::CgroupNames]),
    own("engine", "ENGINE", 10, TEXT, "Who made the container, as its cgroup path says.", |row, _| {
        let engine = row.group.as_ref().and_then(|group| group.engine);
        engine.map(|engine| Value::Text(engine.name().into())).ok_or_else(|| no("it is no container"))
    }).needs(&[Facility::CgroupNames]),
    own("container_id", "ID", 12, TEXT, "Full id of the container.", |row, _| {
        text_of(row.group.as_ref().and_then(|group| group.id.as_ref()), "it has no id")
    }).needs(&[Facility::CgroupNames]),
    own(
        "pod",
        "POD",
        20,
        TEXT,
        "Kubernetes or podman pod: its name where the kubelet's files have it, else its uid.",
        |row, _| text_of(row.group.as_ref().and_then(|group| group.pod.as_ref()), "it is in no pod"),
    ).needs(&[Facility::CgroupNames]),
    own("namespace", "NAMESPACE", 14, TEXT, "Kubernetes namespace.", |row, _| {
        text_of(row.group.as_ref().and_then(|group| group.namespace.as_ref()), "no file says its namespace")
    }).needs(&[Facility::CgroupNames]),
    own(
        "parent",
        "PARENT",
        24,
        TEXT,
        "Cgroup path of the row that this one is a part of.",
        |row, snapshot| {
            let parent = row.parent.and_then(|at| snapshot.containers.get(at)).map(|parent| parent.id);
            let path = parent.and_then(|id| snapshot.names.cgroups.get(&id));
            path.map(|path| Value::Text(path::show(path))).ok_or_else(|| no("it is at the top"))
        },
    ),
    summed!("cgroup"),
    own(
        "processes",
        "PROCS",
        6,
        (Identity, Unit::Count, Descending),
        "Live processes in it and below.",
        |row, _| Ok(Value::U64(row.processes.into())),
    ),
    summed!("threads"),
    summed!("cpu_ns"),
    summed!("cpu_pct"),
    summed!("home_node"),
    summed!("run_pct_by_node"),
    summed!("switches_per_s"),
    summed!("involuntary_per_s"),
    summed!("runq_wait_pct"),
    summed!("runq_wait_us"),
    summed!("cpu_migrations_per_s"),
    summed!("llc_migrations_per_s"),
    summed!("node_migrations_per_s"),
    summed!("hint_faults_per_s"),
    summed!("hint_remote_pct"),
    summed!("balancing_pct"),
    summed!("numa_moves_per_s"),
    summed!("numa_swaps_per_s"),
    summed!("numa_stuck_per_s"),
    summed!("smt_busy_pct"),
    interference::CONTAINER_IRQ_PCT,
    own(
        "cpu_quota_pct",
        "QUOTA%",
        7,
        (Running, Unit::Percent, Ascending),
        "CPU time that it may use (cpu.max, cfs_quota_us); 100 is one CPU. Its own limit: one above it may be lower.",
        |row, _| match (raw(row)?.cpu_quota_milli.clone())? {
            Some(milli) => Ok(Value::F64(milli as f64 / 10.0)),
            None => Err(no("it has no quota")),
        },
    ).needs(&[Facility::CgroupLimits]),
    own(
        "throttled_pct",
        "THROT%",
        7,
        (Running, Unit::Percent, Descending),
        "Time in which its CPU quota kept it from running, between the last two readings of cpu.stat; summed over CPUs.",
        |row, _| {
            let raw = raw(row)?;
            let now = raw.throttled_ns.clone()?;
            match raw.throttled_before {
                Some((at, before)) if raw.read_ns > at => {
                    let share = now.saturating_sub(before) as f64 / (raw.read_ns - at) as f64;
                    Ok(Value::F64(share * 100.0))
                }
                _ => Err(Missing::FirstInterval),
            }
        },
    ).needs(&[Facility::CgroupLimits]),
    own(
        "cpus_allowed",
        "CPUS",
        12,
        (Running, Unit::Text, Ascending),
        "CPUs that it may use (cpuset), as a list.",
        |row, _| raw(row)?.cpus.clone().map(Value::Text),
    ).needs(&[Facility::CgroupLimits]),
    own(
        "nodes_allowed",
        "CPUNODES",
        8,
        (Running, Unit::Text, Ascending),
        "Nodes that the CPUs it may use belong to, as a list.",
        |row, snapshot| {
            let cpus = parse_cpulist(&raw(row)?.cpus.clone()?).map_err(|error| no(&error.to_string()))?;
            let topology = &snapshot.host.topology;
            let node = |cpu| topology.cpu(CpuId(cpu)).and_then(|cpu| cpu.node).map(|node| node.0);
            let nodes: std::collections::BTreeSet<u32> = cpus.into_iter().filter_map(node).collect();
            Ok(Value::Text(crate::host::topology::format_cpulist(nodes)))
        },
    ).needs(&[Facility::CgroupLimits]),
    own(
        "smt_shared_cpus",
        "SMTSHR",
        6,
        (Running, Unit::Count, Descending),
        "CPUs of its cpuset that share a core with a CPU of another container's cpuset. Only among containers that may \
         not use all CPUs.",
        |row, _| {
            row.smt_shared_cpus
                .map(|cpus| Value::U64(cpus.into()))
                .ok_or_else(|| no("it has no CPUs of its own (cpuset)"))
        },
    ).needs(&[Facility::CgroupLimits]),
    summed!("cycles_total"),
    summed!("instructions_total"),
    summed!("ipc"),
    summed!("cpi"),
    summed!("ipc_smt_idle"),
    summed!("ipc_smt_busy"),
    summed!("ipc_by_node"),
    summed!("ghz"),
    summed!("stall_frontend_pct"),
    summed!("stall_backend_pct"),
    summed!("llc_mpki"),
    summed!("dtlb_mpki"),
    summed!("itlb_mpki"),
    summed!("branch_mpki"),
    summed!("lma_per_s"),
    summed!("rma_per_s"),
    summed!("rma_lma"),
    summed!("lpi"),
    summed!("rpi"),
    summed!("counters_running_pct"),
    own(
        "mem_bytes",
        "MEM",
        7,
        (Memory, Unit::Bytes, Descending),
        "Memory charged to it and all below (memory.current): page cache and kernel memory included.",
        |row, _| raw(row)?.mem_bytes.clone().map(Value::U64),
    ).needs(&[Facility::CgroupLimits]),
    own(
        "mem_bytes_by_node",
        "MEM BY NODE",
        14,
        (Memory, Unit::Bytes, Descending),
        "Where its memory is, exactly (memory.numa_stat): anonymous, file, and in cgroup v2 kernel memory.",
        |row, _| {
            let nodes = raw(row)?.mem_bytes_by_node.clone()?;
            let used = nodes.into_iter().filter(|(_, bytes)| *bytes > 0);
            Ok(Value::ByNode(used.map(|(node, bytes)| (Nid(node), bytes as f64)).collect()))
        },
    ).needs(&[Facility::CgroupLimits]),
    placement::CONTAINER_MEM_PCT_BY_NODE,
    placement::CONTAINER_REMOTE_PCT,
    placement::CONTAINER_REMOTE_SOURCE,
    placement::CONTAINER_REMOTE_ERROR_POINTS,
    placement::CONTAINER_REMOTE_BEST_PCT,
    own(
        "mem_limit_bytes",
        "LIMIT",
        7,
        (Memory, Unit::Bytes, Ascending),
        "Memory it may use (memory.max). Its own limit: one above it may be lower.",
        |row, _| match raw(row)?.mem_limit_bytes.clone()? {
            Some(bytes) => Ok(Value::U64(bytes)),
            None => Err(no("it has no limit")),
        },
    ).needs(&[Facility::CgroupLimits]),
    own(
        "mems_allowed",
        "MEMS",
        8,
        (Memory, Unit::Text, Ascending),
        "Nodes that it may take memory from (cpuset), as a list.",
        |row, _| raw(row)?.mems.clone().map(Value::Text),
    ).needs(&[Facility::CgroupLimits]),
    own(
        "rss_bytes",
        "RSS",
        7,
        (Memory, Unit::Bytes, Descending),
        "Resident memory of its processes. What they share counts for each of them; mem_bytes is what it really takes.",
        |row, _| Ok(Value::U64(row.sum.rss_bytes)),
    ),
    summed!("minor_faults_per_s"),
    summed!("major_faults_per_s"),
    summed!("alloc_pct_by_node"),
    summed!("cross_node_faults_per_s"),
    summed!("cross_node_fault_pct"),
    summed!("pages_migrated_per_s"),
    summed!("pages_migrate_failed_per_s"),
    summed!("pages_migrated_balancing_per_s"),
    summed!("pages_migrated_asked_per_s"),
    summed!("pages_migrated_other_per_s"),
];

/// The metric called `id`.
pub fn by_id(id: &str) -> Option<&'static Metric<Container>> {
    CONTAINER_METRICS.iter().find(|metric| metric.id == id)
}

fn text_of(text: Option<&String>, otherwise: &str) -> Reading<Value> {
    text.map(|text| Value::Text(text.clone())).ok_or_else(|| no(otherwise))
}

fn raw(row: &Container) -> Reading<&GroupRaw> {
    row.raw
        .as_deref()
        .ok_or_else(|| no("its files have not been read yet: with many cgroups they are read in turns"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_means_the_same_for_tasks_and_containers() {
        for metric in CONTAINER_METRICS {
            assert!(
                metric.help.ends_with('.') && metric.title.len() <= usize::from(metric.width),
                "{}",
                metric.id
            );
            if let Some(task) = super::super::task::by_id(metric.id) {
                assert_eq!((task.unit, task.order), (metric.unit, metric.order), "{}", metric.id);
            }
        }
    }
}
