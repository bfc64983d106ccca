//! Containers, pods, units and other cgroups, as rows name them; readings of their files; and their paths as text.
//!
//! Names in a path are bytes that need not be UTF-8. A byte that is not part of a character is kept as a NUL and its two
//! hexadecimal digits.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::disks::DisksUsed;
use super::machine::Pressure;
use super::sample::{Missing, Reading};
use super::turns::TierPages;
use crate::text;

/// The maker of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// Docker.
    Docker,
    /// containerd, without nerdctl.
    Containerd,
    /// nerdctl, which uses containerd.
    Nerdctl,
    /// CRI-O.
    CriO,
    /// Podman.
    Podman,
    /// runc or crun by itself.
    Runc,
    /// Amazon ECS.
    Ecs,
    /// LXC and Incus.
    Lxc,
    /// systemd-nspawn.
    Nspawn,
    /// A virtual machine of libvirt or Proxmox.
    Qemu,
    /// Garden of Cloud Foundry.
    Garden,
    /// An id in the form of container engines, at a path that names no engine.
    Unknown,
}

impl Engine {
    /// The name on screen.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Docker => "docker",
            Engine::Containerd => "containerd",
            Engine::Nerdctl => "nerdctl",
            Engine::CriO => "cri-o",
            Engine::Podman => "podman",
            Engine::Runc => "runc",
            Engine::Ecs => "ecs",
            Engine::Lxc => "lxc",
            Engine::Nspawn => "nspawn",
            Engine::Qemu => "qemu",
            Engine::Garden => "garden",
            Engine::Unknown => "container",
        }
    }

    /// True for a group with an operating system and a name instead of an id: `--machine`.
    pub fn is_machine(self) -> bool {
        matches!(self, Engine::Lxc | Engine::Nspawn | Engine::Qemu)
    }
}

/// Characters of an id that are enough to tell it from others, as engines shorten it.
pub const SHORT_ID: usize = 12;

/// Levels of cgroups that are followed upwards, here as in the kernel programs.
pub const DEPTH_MAX: usize = 64;

/// The kind of a row of the containers view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GroupKind {
    /// A container of an engine.
    Container,
    /// It runs a whole operating system: LXC, nspawn, virtual machines.
    Machine,
    /// A pod of Kubernetes or Podman.
    Pod,
    /// A service, scope or session of systemd.
    Unit,
    /// Any other cgroup.
    Group,
}

impl GroupKind {
    /// The name on screen.
    pub fn name(self) -> &'static str {
        match self {
            GroupKind::Container => "container",
            GroupKind::Machine => "machine",
            GroupKind::Pod => "pod",
            GroupKind::Unit => "unit",
            GroupKind::Group => "group",
        }
    }
}

/// One cgroup. All text is clean.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// The kind of its row.
    pub kind: GroupKind,
    /// The maker of the container; `None` outside of containers.
    pub engine: Option<Engine>,
    /// The name people use; else the short id; else the last component of the path. With `@` and [`Group::user`] where that
    /// is known, so that it is no name of the system.
    pub name: String,
    /// The user who made it, by name or number; `None`: the system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Full id of the container.
    pub id: Option<String>,
    /// Name of the pod, or its uid.
    pub pod: Option<String>,
    /// Uid of the pod; `None` outside of Kubernetes.
    pub pod_uid: Option<String>,
    /// Kubernetes namespace.
    pub namespace: Option<String>,
    /// systemd unit that is not inside a container.
    pub unit: Option<String>,
    /// Cgroup id of the top of the group that this cgroup is a part of: itself, or one above it.
    pub top: u64,
    /// Cgroup id of the directory above; `None` at the root.
    pub parent: Option<u64>,
}

impl Group {
    /// True for a container that goes by its id, or a pod that goes by its uid, because no file named it.
    pub fn is_nameless(&self) -> bool {
        let own_name = |id: &String| named(&short(id), self.user.as_deref());
        let is_container =
            self.kind == GroupKind::Container && self.id.as_ref().is_some_and(|id| own_name(id) == self.name);
        is_container || self.pod_uid.is_some() && self.pod == self.pod_uid
    }
}

/// The name of a group made by `user`: distinct from names of the system and of other users.
pub fn named(name: &str, user: Option<&str>) -> String {
    match user {
        Some(user) => format!("{}@{user}", name.replace('@', "_")),
        None => name.to_owned(),
    }
}

/// The first characters of an id of 64 digits; a name in full.
pub fn short(id: &str) -> String {
    if is_id(id) { id[..SHORT_ID].to_string() } else { id.to_string() }
}

/// Exactly `len` lower-case hexadecimal digits.
pub fn is_hex(text: &str, len: usize) -> bool {
    text.len() == len && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// An id as docker, podman, containerd and CRI-O make them.
pub fn is_id(text: &str) -> bool {
    is_hex(text, 64)
}

/// Input that the kernel takes in `memory.reclaim` of a cgroup v2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupReclaim {
    /// The file does not exist (before Linux 5.19).
    Absent,
    /// An amount.
    Amount,
    /// An amount and `swappiness=` (since Linux 6.9).
    Swappiness,
}

/// The limits of a cgroup, and the memory it charged to it. Read in turns when there are many.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupRaw {
    /// CLOCK_MONOTONIC when it was read; its settings (CPUs, nodes, quota, limit) may be five seconds older.
    pub read_ns: u64,
    /// CPUs and nodes that its tasks may use, as lists.
    pub cpus: Reading<String>,
    /// See `cpus`.
    pub mems: Reading<String>,
    /// CPU time it may use, in thousandths of a CPU; `None` without a limit.
    pub cpu_quota_milli: Reading<Option<u64>>,
    /// Time in which it was not let run because of the quota, ns, cumulative over its CPUs.
    pub throttled_ns: Reading<u64>,
    /// The same at the previous reading, and the time of that.
    pub throttled_before: Option<(u64, u64)>,
    /// `None` without a limit.
    pub mem_limit_bytes: Reading<Option<u64>>,
    /// Memory charged to it and all below.
    pub mem_bytes: Reading<u64>,
    /// Of that, by node (memory.numa_stat).
    pub mem_bytes_by_node: Reading<BTreeMap<u32, u64>>,
    /// Page cache by node, it and all below, in bytes: `active_file` and `inactive_file` of memory.numa_stat. Of cgroup v1 it is
    /// an upper bound: its file has no lists, and shared memory is taken off in proportion.
    #[serde(default = "not_kept", skip_serializing_if = "is_not_kept")]
    pub cache_by_node: Reading<BTreeMap<u32, u64>>,
    /// Periods of its CPU quota in which it was runnable, cumulative (`nr_periods` of cpu.stat).
    #[serde(default = "not_kept", skip_serializing_if = "is_not_kept")]
    pub periods: Reading<u64>,
    /// Of these, periods in which the quota was used up (`nr_throttled`).
    #[serde(default = "not_kept", skip_serializing_if = "is_not_kept")]
    pub throttled_periods: Reading<u64>,
    /// Time in which its tasks were held up (cpu.pressure and memory.pressure of cgroup v2).
    #[serde(default = "not_kept", skip_serializing_if = "is_not_kept")]
    pub pressure: Reading<Pressure>,
    /// Times it was at its memory limit or at memory.high, it and all below, cumulative (`max` and `high` of memory.events, `failcnt`
    /// of cgroup v1).
    #[serde(default = "not_kept", skip_serializing_if = "is_not_kept")]
    pub memory_max_events: Reading<u64>,
    /// Times an allocation failed at that limit, cumulative (`oom` of memory.events).
    #[serde(default = "not_kept", skip_serializing_if = "is_not_kept")]
    pub oom_events: Reading<u64>,
    /// Pages that moved between memory tiers, it and all below, cumulative (memory.stat of cgroup v2).
    #[serde(default = "not_kept", skip_serializing_if = "is_not_kept")]
    pub tier_pages: Reading<TierPages>,
    /// The counters of the reading before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counters_before: Option<GroupCounters>,
    /// Its use of disks, it and all below (io.stat of cgroup v2).
    #[serde(default = "not_kept", skip_serializing_if = "is_not_kept")]
    pub disks: Reading<DisksUsed>,
    /// The same at the reading before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disks_before: Option<DisksUsed>,
}

impl Default for GroupRaw {
    /// Nothing was read.
    fn default() -> GroupRaw {
        GroupRaw {
            read_ns: 0,
            cpus: not_kept(),
            mems: not_kept(),
            cpu_quota_milli: not_kept(),
            throttled_ns: not_kept(),
            throttled_before: None,
            mem_limit_bytes: not_kept(),
            mem_bytes: not_kept(),
            mem_bytes_by_node: not_kept(),
            cache_by_node: not_kept(),
            periods: not_kept(),
            throttled_periods: not_kept(),
            pressure: not_kept(),
            memory_max_events: not_kept(),
            oom_events: not_kept(),
            tier_pages: not_kept(),
            counters_before: None,
            disks: not_kept(),
            disks_before: None,
        }
    }
}

/// Counters of a cgroup at one reading; see [`GroupRaw`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupCounters {
    /// CLOCK_MONOTONIC when they were read.
    pub read_ns: u64,
    /// `None`, here and below, where they could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub periods: Option<u64>,
    /// See [`GroupRaw::throttled_periods`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttled_periods: Option<u64>,
    /// See [`GroupRaw::pressure`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pressure: Option<Pressure>,
    /// See [`GroupRaw::memory_max_events`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_max_events: Option<u64>,
    /// See [`GroupRaw::oom_events`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oom_events: Option<u64>,
    /// See [`GroupRaw::tier_pages`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier_pages: Option<TierPages>,
}

impl GroupRaw {
    /// The counters of this reading.
    pub fn counters(&self) -> GroupCounters {
        GroupCounters {
            read_ns: self.read_ns,
            periods: self.periods.clone().ok(),
            throttled_periods: self.throttled_periods.clone().ok(),
            pressure: self.pressure.clone().ok(),
            memory_max_events: self.memory_max_events.clone().ok(),
            oom_events: self.oom_events.clone().ok(),
            tier_pages: self.tier_pages.clone().ok(),
        }
    }
}

/// The value of a field that a recording is older than.
///
/// # Errors
/// Always: it was not kept.
pub fn not_kept<T>() -> Reading<T> {
    Err(Missing::NotCollected("not recorded".into()))
}

fn is_not_kept<T>(reading: &Reading<T>) -> bool {
    matches!(reading, Err(Missing::NotCollected(why)) if why == "not recorded")
}

const MARK: char = '\0';

/// `bytes` as text.
pub fn from_bytes(bytes: &[u8]) -> String {
    let mut path = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        path.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|byte| path.push_str(&format!("{MARK}{byte:02x}")));
    }
    path
}

/// The bytes that `path` was made of.
pub fn to_bytes(path: &str) -> Vec<u8> {
    let mut pieces = path.split(MARK);
    let mut bytes = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for piece in pieces {
        match piece.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte @ 0x80..) => {
                bytes.push(byte);
                bytes.extend_from_slice(&piece.as_bytes()[2..]);
            }
            // Not ours: a recording may say anything.
            _ => {
                bytes.push(MARK as u8);
                bytes.extend_from_slice(piece.as_bytes());
            }
        }
    }
    bytes
}

/// Makes `path` safe to show: [`text::clean`].
pub fn show(path: &str) -> String {
    text::clean(&to_bytes(path))
}

/// The path that is shown as `typed`; `None` when that is the path itself, or no path is shown so.
pub fn shown_as(typed: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = typed;
    while let Some(at) = rest.find('\\') {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        let code = &rest[at + 1..];
        if let Some(after) = code.strip_prefix('\\') {
            bytes.push(b'\\');
            rest = after;
        } else if let Some(hex) = code.strip_prefix('x') {
            let digits =
                hex.get(..2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &hex[2..];
        } else {
            let (hex, after) = code.strip_prefix("u{")?.split_once('}')?;
            let c = char::from_u32(u32::from_str_radix(hex, 16).ok()?)?;
            bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            rest = after;
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    (bytes != typed.as_bytes()).then(|| from_bytes(&bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bytes_that_are_no_text_stay_apart() {
        assert_eq!(from_bytes("/ä/x".as_bytes()), "/ä/x");
        assert_eq!(show(&from_bytes(b"/x/\xff")), "/x/\\xff");
        assert_eq!(show(&from_bytes(b"/x/\xfe")), "/x/\\xfe");
        assert_eq!(show(&from_bytes(br"/x/\xff")), r"/x/\\xff");
        assert_eq!(show("a\0zz\0"), "a\\x00zz\\x00");
    }

    #[test]
    fn other_escapes_are_no_path() {
        for typed in [r"/a\", r"/a\x2", r"/a\x+f", r"/a\u{zz}", r"/a\q", "/plain"] {
            assert_eq!(shown_as(typed), None, "{typed}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_leads_back(bytes in proptest::collection::vec(1..=255u8, 0..40)) {
            let path = from_bytes(&bytes);
            prop_assert_eq!(&to_bytes(&path), &bytes);
            let shown = show(&path);
            prop_assert_eq!(shown_as(&shown).unwrap_or(shown), path);
        }

        #[test]
        fn no_text_makes_trouble(text in ".{0,40}") {
            let _ = (to_bytes(&text), show(&text), shown_as(&text));
        }
    }
}
