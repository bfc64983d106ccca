//! Readings of the files of a cgroup: limits, memory, counters.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::disks::DisksUsed;
use super::machine::Pressure;
use super::sample::{Missing, Reading};
use super::tiers::TierPages;

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
