//! The metrics of a container: its own, and those of tasks summed over it.

use std::collections::BTreeMap;

use super::over::{Better, Over};
use super::task::SUMMED;
use super::{
    Group, Metric, Order, Several, Traits, Unit, Value, accelerators, disks, identity, interrupts, no,
    placement, pressure, sockets, tiers,
};
use crate::model::facility::Facility;
use crate::model::group;
use crate::model::sample::{GroupRaw, Missing, Reading};
use crate::model::topology::parse_cpulist;
use crate::model::units::{CpuId, NodeId};
use crate::snapshot::{Container, GroupDelta, Snapshot};
use Group::{Identity, Memory, Running};
use Order::{Ascending, Descending};

/// This task metric, taken of the sum of a container's tasks.
macro_rules! summed {
    ($metric:path) => {
        Metric {
            id: $metric.id,
            title: $metric.title,
            width: $metric.width,
            group: $metric.group,
            unit: $metric.unit,
            order: $metric.order,
            help: $metric.help,
            value: |row: &Container, snapshot: &Snapshot| ($metric.value)(&row.sum, snapshot),
            over: match $metric.over {
                Over::Time => Over::Time,
                Over::Quotient(_) => Over::Quotient(|row, snapshot| match $metric.over {
                    Over::Quotient(of) => of(&row.sum, snapshot),
                    _ => unreachable!("it is one"),
                }),
                Over::ByNode(_) => Over::ByNode(|row, snapshot| match $metric.over {
                    Over::ByNode(of) => of(&row.sum, snapshot),
                    _ => unreachable!("it is one"),
                }),
                Over::Level => Over::Level,
                Over::Total => Over::Total,
                Over::Newest => Over::Newest,
            },
            traits: $metric.traits,
        }
    };
}
pub(super) use summed;

const fn own(
    id: &'static str,
    title: &'static str,
    width: u16,
    kind: (Group, Unit, Order),
    help: &'static str,
    value: fn(&Container, &Snapshot) -> Reading<Value>,
) -> Metric<Container> {
    Metric::new(id, (title, width), kind, help, value)
}

const TEXT: (Group, Unit, Order) = (Identity, Unit::Text, Ascending);

pub const CGROUP: Metric<Container> = own(
    identity::CGROUP.id,
    identity::CGROUP.title,
    identity::CGROUP.width,
    TEXT,
    identity::CGROUP.help,
    |row, snapshot| identity::cgroup_path_of(row.id, snapshot),
);

/// All metrics of a container, in the order in which help and JSON list them: by group. In each group sums over its tasks come
/// before the other metrics.
pub static CONTAINER_METRICS: &[Metric<Container>] =
    &by_group::<{ NAMES.len() + SUMMED.len() + OWN.len() }>([NAMES, SUMMED, OWN]);

/// Its names and kind.
const NAMES: &[Metric<Container>] =
    &[CONTAINER, KIND, ENGINE, CONTAINER_ID, USER, POD, NAMESPACE, PARENT, CGROUP, CGROUP_ID, PROCESSES];

/// Metrics that are not sums over its tasks. The table of tasks marks the others.
const OWN: &[Metric<Container>] = &[
    interrupts::CONTAINER_IRQ_PCT,
    CPU_QUOTA_PCT,
    THROTTLED_PCT,
    THROTTLED_PERIODS_PCT,
    pressure::CPU_SOME,
    disks::DISK_BYTES_PER_S,
    disks::DISK_REQUESTS_PER_S,
    disks::DISK_FAR_PCT,
    disks::DISK_FAR_SOURCE,
    disks::WRITEBACK_BYTES_PER_S,
    sockets::CONTAINER_RECEIVED,
    sockets::CONTAINER_READS,
    sockets::CONTAINER_SENT,
    sockets::CONTAINER_FAR_PCT,
    accelerators::CONTAINER_ACCELERATORS,
    accelerators::CONTAINER_NODES,
    accelerators::CONTAINER_FAR_PCT,
    tiers::CONTAINER_PROMOTED,
    tiers::CONTAINER_DEMOTED,
    CPUS_ALLOWED,
    NODES_ALLOWED,
    SMT_SHARED_CPUS,
    MEM_BYTES,
    MEM_BYTES_BY_NODE,
    CACHE_BYTES_BY_NODE,
    placement::CONTAINER_MEM_PCT_BY_NODE,
    placement::CONTAINER_REMOTE_PCT,
    placement::CONTAINER_REMOTE_SOURCE,
    placement::CONTAINER_REMOTE_ERROR_POINTS,
    placement::CONTAINER_REMOTE_LOW_PCT,
    placement::CONTAINER_REMOTE_HIGH_PCT,
    placement::CONTAINER_REMOTE_BEST_PCT,
    MEM_LIMIT_BYTES,
    MEMS_ALLOWED,
    RSS_BYTES,
    pressure::MEMORY_SOME,
    pressure::MEMORY_FULL,
];

const fn by_group<const N: usize>(lists: [&[Metric<Container>]; 3]) -> [Metric<Container>; N] {
    let mut all = [CONTAINER; N];
    let (mut filled, mut group) = (0, 0);
    while filled < N {
        let mut list = 0;
        while list < lists.len() {
            let mut at = 0;
            while at < lists[list].len() {
                if lists[list][at].group as u8 == group {
                    all[filled] = lists[list][at];
                    filled += 1;
                }
                at += 1;
            }
            list += 1;
        }
        group += 1;
    }
    all
}

// Trees of cgroups are deep: their names are indented.
pub const CONTAINER: Metric<Container> = own(
    "container",
    "CONTAINER",
    16,
    TEXT,
    "Name of the container, pod, machine or unit; if unknown, its short id or the name of the cgroup.",
    |row, _| {
        Ok(Value::Text(row.group.as_ref().map_or_else(|| row.id.to_string(), |group| group.name.clone())))
    },
)
.with(Traits::NONE.least_width(identity::NAME_LEAST + 6).needs(&[Facility::CgroupNames]));

pub const KIND: Metric<Container> = own(
    "kind",
    "KIND",
    9,
    TEXT,
    "Kind: container, machine, pod, unit (of systemd) or group (any other cgroup).",
    |row, _| Ok(Value::Text(row.kind().name().into())),
)
.with(Traits::NONE.needs(&[Facility::CgroupNames]));

pub const ENGINE: Metric<Container> = own(
    "engine",
    "ENGINE",
    10,
    TEXT,
    "The engine or service that made the container, derived from its cgroup path.",
    |row, _| {
        let engine = row.group.as_ref().and_then(|group| group.engine);
        engine
            .map(|engine| Value::Text(engine.name().into()))
            .ok_or_else(|| no("this group is not a container"))
    },
)
.with(Traits::NONE.needs(&[Facility::CgroupNames]));

pub const CONTAINER_ID: Metric<Container> =
    own("container_id", "ID", 12, TEXT, "Full id of the container.", |row, _| {
        text_of(row.group.as_ref().and_then(|group| group.id.as_ref()), "the group has no id")
    })
    .with(Traits::NONE.needs(&[Facility::CgroupNames]));

pub const USER: Metric<Container> = own(
    "user",
    "USER",
    10,
    TEXT,
    "User whose rootless engine made the container; absent for system engines.",
    |row, _| {
        text_of(
            row.group.as_ref().and_then(|group| group.user.as_ref()),
            "a system engine made the container",
        )
    },
)
.with(Traits::NONE.needs(&[Facility::CgroupNames]));

pub const CGROUP_ID: Metric<Container> = own(
    "cgroup_id",
    "CGID",
    10,
    (Identity, Unit::Id, Ascending),
    "Cgroup id: the inode number of its directory in /sys/fs/cgroup (stat -c %i). Findings use this id.",
    |row, _| Ok(Value::U64(row.id)),
);

pub const POD: Metric<Container> = own(
    "pod",
    "POD",
    20,
    TEXT,
    "Kubernetes or podman pod: its name if the kubelet's files contain it, otherwise its uid.",
    |row, _| text_of(row.group.as_ref().and_then(|group| group.pod.as_ref()), "the container is in no pod"),
)
.with(Traits::NONE.needs(&[Facility::CgroupNames]));

pub const NAMESPACE: Metric<Container> =
    own("namespace", "NAMESPACE", 14, TEXT, "Kubernetes namespace.", |row, _| {
        text_of(
            row.group.as_ref().and_then(|group| group.namespace.as_ref()),
            "its namespace is in no kubelet file",
        )
    })
    .with(Traits::NONE.needs(&[Facility::CgroupNames]));

pub const PARENT: Metric<Container> =
    own("parent", "PARENT", 24, TEXT, "Cgroup path of its parent row.", |row, snapshot| {
        let parent = row.parent.and_then(|at| snapshot.containers.get(at)).map(|parent| parent.id);
        let path = parent.and_then(|id| snapshot.names.cgroups.get(&id));
        path.map(|path| Value::Text(group::show(path))).ok_or_else(|| no("the group is the root"))
    });

pub const PROCESSES: Metric<Container> = own(
    "processes",
    "PROCS",
    6,
    (Identity, Unit::Count, Descending),
    "Live processes in it and in groups below it.",
    |row, _| Ok(Value::U64(row.processes.into())),
);

pub const CPU_QUOTA_PCT: Metric<Container> = own(
    "cpu_quota_pct",
    "QUOTA%",
    7,
    (Running, Unit::Percent, Ascending),
    "Limit of its CPU time (cpu.max, cfs_quota_us); 100 is one CPU. A parent can have a lower limit.",
    |row, _| match (raw(row)?.cpu_quota_milli.clone())? {
        Some(milli) => Ok(Value::F64(milli as f64 / 10.0)),
        None => Err(no("the group has no quota")),
    },
)
.over(Over::Level)
.with(Traits::NONE.needs(&[Facility::CgroupLimits]));

pub const THROTTLED_PCT: Metric<Container> = own(
    "throttled_pct",
    "THROT%",
    7,
    (Running, Unit::Percent, Descending),
    "Time in which its CPU quota stopped it, between the last two readings of cpu.stat; summed over CPUs.",
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
)
.with(Traits::NONE.needs(&[Facility::CgroupLimits]).better(Better::Low));

pub const THROTTLED_PERIODS_PCT: Metric<Container> = own(
    "throttled_periods_pct",
    "THROTP%",
    7,
    (Running, Unit::Percent, Descending),
    "Periods in which it used up its quota, as a share of those in which it ran, between the last two \
     readings of cpu.stat.",
    |row, _| {
        let delta = delta(row)?;
        let (periods, throttled) = (delta.periods.clone()?, delta.throttled_periods.clone()?);
        if periods == 0 {
            return Err(no("the group did not run in any quota period"));
        }
        Ok(Value::F64(throttled as f64 * 100.0 / periods as f64))
    },
)
.over(Over::Level)
.with(Traits::NONE.needs(&[Facility::CgroupLimits]).better(Better::Low));

pub const CPUS_ALLOWED: Metric<Container> = own(
    "cpus_allowed",
    "CPUS",
    12,
    (Running, Unit::Text, Ascending),
    "Its allowed CPUs (cpuset), as a list.",
    |row, _| raw(row)?.cpus.clone().map(Value::Text),
)
.with(Traits::NONE.needs(&[Facility::CgroupLimits]));

pub const NODES_ALLOWED: Metric<Container> = own(
    "nodes_allowed",
    "CPUNODES",
    8,
    (Running, Unit::Text, Ascending),
    "Nodes of its allowed CPUs, as a list.",
    |row, snapshot| {
        let cpus = parse_cpulist(&raw(row)?.cpus.clone()?).map_err(|error| no(&error.to_string()))?;
        let topology = &snapshot.host.topology;
        let node = |cpu| topology.cpu(CpuId(cpu)).and_then(|cpu| cpu.node).map(|node| node.0);
        let nodes: std::collections::BTreeSet<u32> = cpus.into_iter().filter_map(node).collect();
        Ok(Value::Text(crate::model::topology::format_cpulist(nodes)))
    },
)
.with(Traits::NONE.needs(&[Facility::CgroupLimits]));

pub const SMT_SHARED_CPUS: Metric<Container> = own(
        "smt_shared_cpus",
        "SMTSHR",
        6,
        (Running, Unit::Count, Descending),
        "CPUs of its cpuset that share a core with a CPU of another container's cpuset. Only containers with fewer \
         than all CPUs are compared.",
        |row, _| {
            row.smt_shared_cpus
                .map(|cpus| Value::U64(cpus.into()))
                .ok_or_else(|| no("the container has no CPUs of its own (cpuset)"))
        },
    ).with(Traits::NONE.needs(&[Facility::CgroupLimits]));

pub const MEM_BYTES: Metric<Container> = own(
    "mem_bytes",
    "MEM",
    7,
    (Memory, Unit::Bytes, Descending),
    "Memory charged to the container and groups below it (memory.current), including page cache and kernel memory.",
    |row, _| raw(row)?.mem_bytes.clone().map(Value::U64),
)
.with(Traits::NONE.needs(&[Facility::CgroupLimits]));

/// Bytes by node, without nodes that have none.
fn by_node(bytes: &Reading<BTreeMap<u32, u64>>) -> Reading<Value> {
    let nodes = bytes.as_ref().map_err(Clone::clone)?.iter();
    let used = nodes.filter(|(_, bytes)| **bytes > 0);
    Ok(Value::ByNode(used.map(|(node, bytes)| (NodeId(*node), *bytes as f64)).collect()))
}

pub const MEM_BYTES_BY_NODE: Metric<Container> = own(
    "mem_bytes_by_node",
    "MEM BY NODE",
    14,
    (Memory, Unit::Bytes, Descending),
    "Its memory by node, exact (memory.numa_stat): anonymous, file, and, in cgroup v2, kernel memory.",
    |row, _| by_node(&raw(row)?.mem_bytes_by_node),
)
.over(Over::Newest)
.with(Traits::NONE.needs(&[Facility::CgroupLimits]).several(Several::Nodes));

pub const CACHE_BYTES_BY_NODE: Metric<Container> = own(
    "cache_bytes_by_node",
    "CACHE/NODE",
    14,
    (Memory, Unit::Bytes, Descending),
    "Page cache charged to it and to groups below it, by node (memory.numa_stat: active_file and \
     inactive_file). In cgroup v1, this is an upper bound: shared memory is subtracted in proportion.",
    |row, _| by_node(&raw(row)?.cache_by_node),
)
.over(Over::Newest)
.with(Traits::NONE.needs(&[Facility::CgroupLimits]).several(Several::Nodes));

pub const MEM_LIMIT_BYTES: Metric<Container> = own(
    "mem_limit_bytes",
    "LIMIT",
    7,
    (Memory, Unit::Bytes, Ascending),
    "Limit of its memory (memory.max). A parent can have a lower limit.",
    |row, _| match raw(row)?.mem_limit_bytes.clone()? {
        Some(bytes) => Ok(Value::U64(bytes)),
        None => Err(no("the group has no memory limit")),
    },
)
.with(Traits::NONE.needs(&[Facility::CgroupLimits]));

pub const MEMS_ALLOWED: Metric<Container> = own(
    "mems_allowed",
    "MEMS",
    8,
    (Memory, Unit::Text, Ascending),
    "Nodes from which it is allowed to take memory (cpuset), as a list.",
    |row, _| raw(row)?.mems.clone().map(Value::Text),
)
.with(Traits::NONE.needs(&[Facility::CgroupLimits]));

pub const RSS_BYTES: Metric<Container> = own(
    "rss_bytes",
    "RSS",
    7,
    (Memory, Unit::Bytes, Descending),
    "Resident memory of its processes. Shared memory counts once where its objects are known (needs a BPF \
     iterator over mappings), otherwise once per process; mem_bytes always counts it once.",
    |row, _| Ok(Value::U64(row.sum.rss_bytes)),
);

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

/// Its counters between the last two readings of its files.
pub(super) fn delta(row: &Container) -> Reading<&GroupDelta> {
    raw(row)?;
    row.raw_delta().ok_or(Missing::FirstInterval)
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
