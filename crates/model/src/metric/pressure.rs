//! The metrics of time in which tasks are held up: of the machine and of containers (pressure stall information).

use super::host::HostMetric;
use super::over::Better;
use super::{Group, Metric, Order, Traits, Unit, Value};
use crate::model::facility::Facility;
use crate::model::sample::{Missing, Pressure, Reading};
use crate::snapshot::{Container, Snapshot};

pub const HOST_CPU_SOME: HostMetric = HostMetric {
    id: "pressure_cpu_some_pct",
    title: "CPU SOME%",
    help: "Share of the interval in which some task waited for a CPU (/proc/pressure/cpu).",
    value: |snapshot| of_host(snapshot, |pressure| pressure.cpu_some_us),
    share_of_time: Some(Better::Low),
    needs: &[Facility::HostState],
};

pub const HOST_MEMORY_SOME: HostMetric = HostMetric {
    id: "pressure_memory_some_pct",
    title: "MEM SOME%",
    help: "Share of the interval in which some task waited for memory: for reclaim, swap, or pages that were \
           dropped shortly before (/proc/pressure/memory).",
    value: |snapshot| of_host(snapshot, |pressure| pressure.memory_some_us),
    share_of_time: Some(Better::Low),
    needs: &[Facility::HostState],
};

pub const HOST_MEMORY_FULL: HostMetric = HostMetric {
    id: "pressure_memory_full_pct",
    title: "MEM FULL%",
    help: "Share of the interval in which all non-idle tasks waited for memory, so that no work was done.",
    value: |snapshot| of_host(snapshot, |pressure| pressure.memory_full_us),
    share_of_time: Some(Better::Low),
    needs: &[Facility::HostState],
};

pub const CPU_SOME: Metric<Container> = of_containers(
    "pressure_cpu_some_pct",
    "CPUSOME%",
    Group::Running,
    "Share of time in which some of its tasks waited for a CPU. Between the last two readings of cpu.pressure.",
    |row, _| of_container(row, |pressure| pressure.cpu_some_us),
);

pub const MEMORY_SOME: Metric<Container> = of_containers(
    "pressure_memory_some_pct",
    "MEMSOME%",
    Group::Memory,
    "Share of time in which some of its tasks waited for memory, due to its own limit or the machine's. Between \
     the last two readings of memory.pressure.",
    |row, _| of_container(row, |pressure| pressure.memory_some_us),
);

pub const MEMORY_FULL: Metric<Container> = of_containers(
    "pressure_memory_full_pct",
    "MEMFULL%",
    Group::Memory,
    "Share of time in which all of its non-idle tasks waited for memory. Between the last two readings of memory.pressure.",
    |row, _| of_container(row, |pressure| pressure.memory_full_us),
);

/// Microseconds in an interval of nanoseconds, in percent.
fn share(us: u64, interval_ns: u64) -> f64 {
    us as f64 * 1e5 / interval_ns as f64
}

fn of_host(snapshot: &Snapshot, kind: fn(&Pressure) -> u64) -> Reading<Value> {
    let interval_ns = snapshot.interval_ns.filter(|ns| *ns > 0).ok_or(Missing::FirstInterval)?;
    let pressure = snapshot.counts.pressure.as_ref().ok_or_else(|| {
        Missing::Unsupported("the kernel does not measure pressure (CONFIG_PSI, psi=1)".into())
    })?;
    Ok(Value::F64(share(kind(pressure), interval_ns)))
}

fn of_container(row: &Container, kind: fn(&Pressure) -> u64) -> Reading<Value> {
    let delta = super::container::delta(row)?;
    let pressure = delta.pressure.clone()?;
    Ok(Value::F64(share(kind(&pressure), delta.interval_ns)))
}

const fn of_containers(
    id: &'static str,
    title: &'static str,
    group: Group,
    help: &'static str,
    value: fn(&Container, &Snapshot) -> Reading<Value>,
) -> Metric<Container> {
    let traits = Traits::NONE.needs(&[Facility::CgroupLimits]).better(Better::Low);
    Metric::new(id, (title, 8), (group, Unit::Percent, Order::Descending), help, value).with(traits)
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn a_stall_of_the_whole_interval_is_all_of_it() {
        assert_eq!([share(2_000_000, 2_000_000_000), share(500, 1_000_000_000)], [100.0, 0.05]);
    }
}
