//! The metrics that are one for the whole machine, and of no row.

use super::over::Better;
use super::{Value, pressure, scheduler, tiers};
use crate::model::facility::Facility;
use crate::model::sample::{MachineRaw, Missing, Reading};
use crate::snapshot::{CpuDelta, Snapshot, Swapped};

/// A metric of the host: a key in JSON.
pub struct HostMetric {
    pub id: &'static str,
    /// Its name in help.
    pub title: &'static str,
    /// Its meaning, with its unit.
    pub help: &'static str,
    pub(super) value: fn(&Snapshot) -> Reading<Value>,
    /// Its values are shares of an interval, which have a mean by time: the direction that is better.
    pub share_of_time: Option<Better>,
    /// Facilities that it needs beside those of every live view.
    pub needs: &'static [Facility],
}

impl HostMetric {
    /// Whether its value is of the interval; others are as of its end.
    pub fn is_of_interval(&self) -> bool {
        self.share_of_time.is_some() || self.id.ends_with("_per_s")
    }

    /// The value.
    ///
    /// # Errors
    /// The reason why it is missing.
    pub fn read(&self, snapshot: &Snapshot) -> Reading<Value> {
        match snapshot.host_missing(self.id) {
            Some(missing) => Err(missing.clone()),
            None => (self.value)(snapshot),
        }
    }
}

/// All of them, in the order in which lists show them.
pub static HOST_METRICS: [HostMetric; 19] = [
    BUSY,
    IRQ,
    STEAL,
    SWAP,
    SWAP_IN,
    SWAP_OUT,
    SWAP_TOTAL,
    SWAP_FREE,
    SWAPPINESS,
    ZONE_RECLAIM_MODE,
    NUMA_BALANCING,
    tiers::DEMOTION_ENABLED,
    tiers::PROMOTE_RATE_LIMIT,
    scheduler::NAME,
    scheduler::SWITCH_ALL,
    scheduler::REJECTED,
    pressure::HOST_CPU_SOME,
    pressure::HOST_MEMORY_SOME,
    pressure::HOST_MEMORY_FULL,
];

pub const BUSY: HostMetric = HostMetric {
    id: "busy_pct",
    title: "BUSY%",
    help: "On-CPU time of all tasks on all CPUs in the interval; 100 is one CPU.",
    value: |snapshot| snapshot.share(snapshot.on_cpus.busy_ns).map(Value::F64),
    share_of_time: Some(Better::Neither),
    needs: &[],
};

pub const IRQ: HostMetric = HostMetric {
    id: "irq_pct",
    title: "IRQ%",
    help: "Time of all CPUs in hard and soft interrupts in the interval; 100 is one CPU.",
    value: |snapshot| {
        snapshot.rate(0)?;
        let ns = snapshot.on_cpus.irq_ns.get().ok_or_else(|| no_irq(snapshot, |_| true))?;
        snapshot.share(ns).map(Value::F64)
    },
    share_of_time: Some(Better::Low),
    needs: &[Facility::Irq],
};

pub const STEAL: HostMetric = HostMetric {
    id: "steal_pct",
    title: "STEAL%",
    help: "Time in which the hypervisor ran other guests although the CPUs had work (steal); 100 is one \
           CPU. From /proc/stat, in steps of 10 ms per CPU.",
    value: |snapshot| {
        snapshot.rate(0)?;
        let ns = snapshot.on_cpus.steal_ns.get().ok_or_else(|| Missing::Unsupported(NO_STEAL.into()))?;
        snapshot.share(ns).map(Value::F64)
    },
    share_of_time: Some(Better::Low),
    needs: &[Facility::Steal],
};

/// The reason why time in interrupts is missing. One of these CPUs has no line in /proc/stat, as in a
/// container's view of that file, or came online in the interval.
pub(super) fn no_irq(snapshot: &Snapshot, of: impl Fn(&CpuDelta) -> bool) -> Missing {
    let cpu = snapshot.cpus.iter().find(|cpu| cpu.online && cpu.irq_ns.is_none() && of(cpu));
    let of_cpu = cpu.map_or_else(|| "a CPU".into(), |cpu| format!("CPU {}", cpu.id));
    Missing::Unsupported(format!(
        "/proc/stat had no lines for {of_cpu} at the start or the end of the interval"
    ))
}

/// The reason for which stolen time is missing.
pub(super) const NO_STEAL: &str = "/proc/stat has no steal time";

pub const SWAP: HostMetric = HostMetric {
    id: "swap_pages_per_s",
    title: "SWAP/s",
    help: "Pages read from and written to swap per second. The kernel does not count them by node.",
    value: |snapshot| swap(snapshot, |swapped| swapped.pages_in.saturating_add(swapped.pages_out)),
    share_of_time: None,
    needs: &[Facility::HostMemory],
};

pub const SWAP_IN: HostMetric = HostMetric {
    id: "swap_in_pages_per_s",
    title: "SWAPIN/s",
    help: "Pages read from swap (pswpin in /proc/vmstat), including read-ahead.",
    value: |snapshot| swap(snapshot, |swapped| swapped.pages_in),
    share_of_time: None,
    needs: &[Facility::HostMemory],
};

pub const SWAP_OUT: HostMetric = HostMetric {
    id: "swap_out_pages_per_s",
    title: "SWAPOUT/s",
    help: "Pages written to swap (pswpout in /proc/vmstat).",
    value: |snapshot| swap(snapshot, |swapped| swapped.pages_out),
    share_of_time: None,
    needs: &[Facility::HostMemory],
};

pub const SWAP_TOTAL: HostMetric = HostMetric {
    id: "swap_total_bytes",
    title: "SWAP",
    help: "Size of all swap (SwapTotal of /proc/meminfo), in bytes.",
    value: |snapshot| state(snapshot, |state| state.swap_total_bytes, "/proc/meminfo lacks it"),
    share_of_time: None,
    needs: &[Facility::HostState],
};

pub const SWAP_FREE: HostMetric = HostMetric {
    id: "swap_free_bytes",
    title: "SWAPFREE",
    help: "Free swap (SwapFree), in bytes.",
    value: |snapshot| state(snapshot, |state| state.swap_free_bytes, "/proc/meminfo lacks it"),
    share_of_time: None,
    needs: &[Facility::HostState],
};

pub const SWAPPINESS: HostMetric = HostMetric {
    id: "swappiness",
    title: "SWAPPINESS",
    help: "vm.swappiness, 0 to 200: how strongly reclaim prefers swapping anonymous memory to dropping file pages.",
    value: |snapshot| {
        state(
            snapshot,
            |state| state.swappiness.map(u64::from),
            "only a kernel with CONFIG_SWAP has this setting",
        )
    },
    share_of_time: None,
    needs: &[Facility::HostState],
};

/// Bits as in the kernel's Documentation/admin-guide/sysctl/kernel.rst.
pub const NUMA_BALANCING: HostMetric = HostMetric {
    id: "numa_balancing",
    title: "BALANCING",
    help: "kernel.numa_balancing: 0 off, 1 on, 2 moves hot pages to faster memory, 3 both.",
    value: |snapshot| {
        let why = "only a kernel with CONFIG_NUMA_BALANCING has this setting";
        state(snapshot, |state| state.numa_balancing.map(u64::from), why)
    },
    share_of_time: None,
    needs: &[Facility::HostState],
};

/// Bits as in the kernel's Documentation/admin-guide/sysctl/vm.rst.
pub const ZONE_RECLAIM_MODE: HostMetric = HostMetric {
    id: "zone_reclaim_mode",
    title: "ZRECLAIM",
    help: "vm.zone_reclaim_mode, a bit mask: 0 uses another node when one is full; 1 reclaims the full node first; \
           2 also writes dirty pages; 4 also swaps.",
    value: |snapshot| {
        let mode = snapshot.zone_reclaim_mode.map(|mode| Value::U64(mode.into()));
        mode.ok_or_else(|| Missing::Unsupported("only a kernel with CONFIG_NUMA has this setting".into()))
    },
    share_of_time: None,
    needs: &[Facility::HostMemory],
};

fn state(snapshot: &Snapshot, of: fn(&MachineRaw) -> Option<u64>, why: &str) -> Reading<Value> {
    let state = snapshot
        .machine
        .as_ref()
        .ok_or_else(|| Missing::NotCollected("the settings in /proc were not read".into()))?;
    of(state).map(Value::U64).ok_or_else(|| Missing::Unsupported(why.into()))
}

fn swap(snapshot: &Snapshot, pages: fn(Swapped) -> u64) -> Reading<Value> {
    // A first sample has nothing to compare with.
    snapshot.rate(0)?;
    let swapped =
        snapshot.counts.swapped.ok_or_else(|| Missing::NotCollected("/proc/vmstat was not read".into()))?;
    snapshot.rate(pages(swapped)).map(Value::F64)
}
