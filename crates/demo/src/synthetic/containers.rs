//! The cgroups of the demo machine: services, containers, a pod, a virtual machine, and what they are limited to.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::story::{file_bytes, memory_on};
use super::{Actor, BOOT_NS, SECOND};
use crate::container::group::describe;
use crate::container::names::ContainerNames;
use crate::model::demo::NODES;
use crate::model::group::Group;
use crate::model::sample::{GroupRaw, Missing, Names, Pressure};

pub(super) const INIT: u64 = 10;
pub(super) const POSTGRES: u64 = 11;
pub(super) const SSH: u64 = 12;
pub(super) const SESSION: u64 = 13;
pub(super) const CACHE: u64 = 14;
pub(super) const BACKUP: u64 = 15;
pub(super) const REPORT: u64 = 16;
pub(super) const NGINX: u64 = 17;
pub(super) const ORDERS: u64 = 18;
pub(super) const GUEST: u64 = 19;
pub(super) const CI: u64 = 20;

/// Id, path, and names where files of engines would say them: container, pod, namespace.
type Cgroup = (u64, &'static str, Option<&'static str>, Option<(&'static str, &'static str)>);

const CGROUPS: [Cgroup; 18] = [
    (1, "/", None, None),
    (2, "/system.slice", None, None),
    (3, "/user.slice", None, None),
    (4, "/docker", None, None),
    (5, "/kubepods.slice", None, None),
    (6, "/machine.slice", None, None),
    (
        8,
        "/kubepods.slice/kubepods-pod7c1e4a90_52b3_4d0e_9f6a_1b2c3d4e5f60.slice",
        Some("orders-5d9c7"),
        Some(("orders-5d9c7", "shop")),
    ),
    (INIT, "/init.scope", None, None),
    (POSTGRES, "/system.slice/postgresql.service", None, None),
    (SSH, "/system.slice/ssh.service", None, None),
    (SESSION, "/user.slice/user-1000.slice/session-3.scope", None, None),
    (CACHE, "/system.slice/memcached.service", None, None),
    (BACKUP, "/system.slice/backup.service", None, None),
    (
        REPORT,
        "/docker/3c0f6a4c2b9f1e8d7a6b5c4d3e2f1a0b9c8d7e6f5a4b3c2d1e0f9a8b7c6d5e4f",
        Some("report"),
        None,
    ),
    (NGINX, "/docker/9f8e7d6c5b4a39281706f5e4d3c2b1a09f8e7d6c5b4a39281706f5e4d3c2b1a0", Some("web"), None),
    (
        ORDERS,
        "/kubepods.slice/kubepods-pod7c1e4a90_52b3_4d0e_9f6a_1b2c3d4e5f60.slice/\
         cri-containerd-5a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9.scope",
        Some("orders"),
        Some(("orders-5d9c7", "shop")),
    ),
    (GUEST, "/machine.slice/machine-qemu\\x2d1\\x2dwindows.scope", None, None),
    (CI, "/system.slice/ci-runner.service", None, None),
];

/// Milliseconds of throttling in each second of the container with too small a quota.
const THROTTLED_MS: u64 = 640;
const REPORT_QUOTA_MILLI: u64 = 1500;
/// The default period of `cpu.max`.
const PERIOD_NS: u64 = SECOND / 10;

/// Names of users and cgroups.
pub(super) fn names() -> Names {
    let cgroups: BTreeMap<u64, String> =
        CGROUPS.iter().map(|(id, path, ..)| (*id, path.to_string())).collect();
    // Names come from the table above, not from files of this machine.
    let mut groups =
        describe(&cgroups, &BTreeMap::new(), &mut ContainerNames::new(Path::new("/nonexistent")));
    for (id, _, name, pod) in CGROUPS {
        let group: &mut Group = Arc::make_mut(groups.get_mut(&id).expect("every cgroup is described"));
        if let Some(name) = name {
            group.name = name.into();
        }
        if let Some((pod, namespace)) = pod {
            (group.pod, group.namespace) = (Some(pod.into()), Some(namespace.into()));
        }
    }
    let users =
        [(0, "root"), (26, "postgres"), (33, "www-data"), (112, "memcache"), (1000, "ada"), (64055, "qemu")];
    Names { users: users.map(|(id, name)| (id, name.into())).into(), cgroups, groups }
}

/// Limits and memory of those cgroups that actors are in, read `elapsed_ns` after the first sample; `before` is the
/// reading before.
pub(super) fn groups(
    actors: &[Actor],
    before: &BTreeMap<u64, Arc<GroupRaw>>,
    elapsed_ns: u64,
) -> BTreeMap<u64, Arc<GroupRaw>> {
    let mut memory: BTreeMap<u64, [BTreeMap<u32, u64>; 2]> = BTreeMap::new();
    for actor in actors.iter().filter(|actor| actor.cgroup != 1) {
        let [all, files] = memory.entry(actor.cgroup).or_default();
        for node in 0..NODES {
            let (own, shared) = memory_on(actor, node);
            *all.entry(node).or_default() += own + shared;
            *files.entry(node).or_default() += file_bytes(actor, own);
        }
    }
    let raw = |(id, [by_node, cache_by_node]): (u64, [BTreeMap<u32, u64>; 2])| {
        let read_ns = BOOT_NS + elapsed_ns;
        let (cpus, mems, quota, limit, throttled_ms) = match id {
            REPORT => ("0-31", "0-3", Some(REPORT_QUOTA_MILLI), Some(4 << 30), THROTTLED_MS),
            NGINX => ("0-3,16-19", "0", None, Some(2 << 30), 0),
            ORDERS => ("0-31", "0-3", Some(4000), Some(16 << 30), 0),
            _ => ("0-31", "0-3", None, None, 0),
        };
        let throttled_ns = throttled_ms * (elapsed_ns / 1000) + 3600 * SECOND * u64::from(throttled_ms > 0);
        let periods = if quota.is_some() { elapsed_ns / PERIOD_NS } else { 0 };
        let earlier = before.get(&id).and_then(|raw| Some((raw.read_ns, *raw.throttled_ns.as_ref().ok()?)));
        let raw = GroupRaw {
            read_ns,
            cpus: Ok(cpus.into()),
            mems: Ok(mems.into()),
            cpu_quota_milli: Ok(quota),
            throttled_ns: Ok(throttled_ns),
            throttled_before: earlier,
            mem_limit_bytes: Ok(limit),
            mem_bytes: Ok(by_node.values().sum()),
            cache_by_node: Ok(cache_by_node),
            mem_bytes_by_node: Ok(by_node),
            periods: Ok(periods),
            // Where time is lost to the quota, all periods end with it.
            throttled_periods: Ok(if throttled_ms > 0 { periods } else { 0 }),
            pressure: Ok(Pressure { cpu_some_us: throttled_ns / 1000, ..Pressure::default() }),
            memory_max_events: Ok(0),
            oom_events: Ok(0),
            tier_pages: Err(Missing::NotCollected("the machine has only one memory tier".into())),
            counters_before: before.get(&id).map(|raw| raw.counters()),
            disks: Err(Missing::Unsupported("the cgroup has no io.stat file".into())),
            disks_before: None,
        };
        (id, Arc::new(raw))
    };
    memory.into_iter().map(raw).collect()
}
