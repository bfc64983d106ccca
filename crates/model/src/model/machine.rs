//! The machine as a whole: switches of the kernel, swap, pressure, the programs that manage it, and moves of tasks from one
//! last-level cache or socket to another.

use serde::{Deserialize, Serialize};

use super::sums::sums;
use crate::model::coded::coded;

/// Switches and gauges of the machine at the moment of a sample, and its pressure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineRaw {
    /// `kernel.numa_balancing`: 0 off, bit 0 on, bit 1 for memory tiers; `None` where the kernel has no such switch.
    pub numa_balancing: Option<u32>,
    /// `vm.swappiness`, 0..=200.
    pub swappiness: Option<u32>,
    /// `SwapTotal` of /proc/meminfo.
    pub swap_total_bytes: Option<u64>,
    /// `SwapFree` of /proc/meminfo.
    pub swap_free_bytes: Option<u64>,
    /// `None` without CONFIG_PSI, and where it is switched off.
    pub pressure: Option<Pressure>,
    /// Load averages of 1, 5 and 15 minutes (/proc/loadavg), in hundredths; `None` in recordings from before they were kept.
    pub load_hundredths: Option<[u32; 3]>,
}

/// Time in which tasks were held up for want of something, in microseconds since boot: the `total` of pressure files
/// (Documentation/accounting/psi.rst of the kernel).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pressure {
    /// Some task waited for a CPU.
    pub cpu_some_us: u64,
    /// Some task waited for memory: reclaim, refaults, swap.
    pub memory_some_us: u64,
    /// All tasks that were not idle waited for memory.
    pub memory_full_us: u64,
}

sums!(Pressure { cpu_some_us, memory_some_us, memory_full_us });

impl Pressure {
    /// The difference since `before`.
    pub fn since(self, before: Pressure) -> Pressure {
        Pressure {
            cpu_some_us: self.cpu_some_us.saturating_sub(before.cpu_some_us),
            memory_some_us: self.memory_some_us.saturating_sub(before.memory_some_us),
            memory_full_us: self.memory_full_us.saturating_sub(before.memory_full_us),
        }
    }
}

/// The way cgroups are mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CgroupMode {
    /// Controllers in hierarchies of cgroup v1, and no cgroup v2.
    V1,
    /// Controllers in hierarchies of cgroup v1, and a cgroup v2 without controllers.
    Hybrid,
    /// Only cgroup v2.
    V2,
}

/// Cgroups of the host. The flags are those of the root of the cpuset controller of cgroup v1; `None` without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupFacts {
    /// The way they are mounted.
    pub mode: CgroupMode,
    /// `cpuset.memory_migrate`: memory follows when the nodes of a cpuset change. New groups begin without it.
    #[serde(default)]
    pub memory_migrate: Option<bool>,
    /// `cpuset.memory_spread_page`: the page cache is spread over the nodes of the cpuset. New groups inherit it.
    #[serde(default)]
    pub memory_spread_page: Option<bool>,
    /// `cpuset.memory_spread_slab`: so are some slab caches.
    #[serde(default)]
    pub memory_spread_slab: Option<bool>,
}

/// Programs that manage cgroups of the host, and write their own settings again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Managers {
    /// Process 1 is systemd.
    #[serde(default)]
    pub systemd: bool,
    /// A process called kubelet runs.
    #[serde(default)]
    pub kubelet: bool,
}

/// Dispatches of tasks on a place that last ran elsewhere, and on other places of tasks that last ran here, since start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlaceMoves {
    /// From another last-level cache.
    pub llc_in: u64,
    /// To another last-level cache.
    pub llc_out: u64,
    /// From another socket.
    pub socket_in: u64,
    /// To another socket.
    pub socket_out: u64,
}

coded!(PlaceMoves { llc_in, llc_out, socket_in, socket_out });

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_of_an_interval_is_never_negative() {
        let before = Pressure { cpu_some_us: 10, memory_some_us: 20, memory_full_us: 30 };
        let after = Pressure { cpu_some_us: 15, memory_some_us: 20, memory_full_us: 2 };
        let interval = Pressure { cpu_some_us: 5, memory_some_us: 0, memory_full_us: 0 };
        assert_eq!(after.since(before), interval);
    }
}
