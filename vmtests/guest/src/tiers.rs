//! A machine with a slow memory tier: its switches, and the kernel's counts of pages that move between tiers.

use vmtests_protocol::Plan;

use crate::cases::Stop;
use crate::setting::Setting;
use crate::sysfs;

const DEBUG: &str = "/sys/kernel/debug/sched/numa_balancing";

/// The node with slow memory, and one with CPUs that is near it.
pub struct Tiers {
    /// Without CPUs.
    pub slow: u32,
    /// The latency of its memory by QEMU's options, ns.
    pub ns: u64,
    /// Bandwidth in the HMAT, 10^6 bytes per second.
    pub mbs: u64,
}

impl Tiers {
    /// # Errors
    /// The firmware describes no slow memory.
    pub fn of(plan: &Plan) -> Result<Tiers, Stop> {
        let slow = plan.machine.nodes.iter().position(|node| node.cpus.is_empty());
        let slow = slow.ok_or_else(|| Stop::skip("needs a node without CPUs"))? as u32;
        let rows = plan.machine.hmat.iter().filter(|row| row.to == slow);
        let nearest = rows.min_by_key(|row| row.ns).ok_or_else(|| Stop::skip("needs an HMAT"))?;
        // QEMU writes MiB/s where the table has MB/s.
        Ok(Tiers { slow, ns: nearest.ns, mbs: nearest.gib_per_s * 1024 })
    }
}

/// Demotion is on, and NUMA balancing looks at all memory several times a second. Pages that were used in the last ten seconds
/// are hot: an emulator is slow. Balancing itself is in the mode that is given.
pub fn fast(mode: &str) -> Result<Vec<Setting>, String> {
    let debug = |name: &str| format!("{DEBUG}/{name}");
    [
        (debug("scan_delay_ms"), "100"),
        (debug("scan_period_min_ms"), "100"),
        (debug("scan_period_max_ms"), "200"),
        (debug("hot_threshold_ms"), "10000"),
        ("/sys/kernel/mm/numa/demotion_enabled".to_owned(), "1"),
        (BALANCING.to_owned(), mode),
    ]
    .into_iter()
    .map(|(path, value)| Setting::begin(path, value))
    .collect()
}

pub const BALANCING: &str = "/proc/sys/kernel/numa_balancing";

/// Pages promoted to a node from slow memory, and pages demoted from it.
pub fn pages(node: u32) -> Result<[u64; 2], String> {
    let text = sysfs::read(format!("/sys/devices/system/node/node{node}/vmstat"))?;
    let sum = |is: &dyn Fn(&str) -> bool| {
        let lines = text.lines().filter_map(|line| line.split_once(' '));
        lines.filter(|(name, _)| is(name)).filter_map(|(_, count)| count.parse::<u64>().ok()).sum()
    };
    Ok([sum(&|name| name == "pgpromote_success"), sum(&|name| name.starts_with("pgdemote_"))])
}
