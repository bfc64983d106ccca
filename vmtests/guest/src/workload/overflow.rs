//! Memory that does not fit on a node: the node is full, and allocations on it go on.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::pages::Pages;
use super::{stop_flag, wait_for_go};
use crate::{affinity, sysfs};

/// Takes all free memory of the node of a CPU, and then, without pause, `mib` MiB more that it gives back.
pub fn run(cpu: u32, mib: u64) -> Result<Value, String> {
    affinity::pin(&[cpu]).map_err(|error| format!("pinning to CPU {cpu}: {error}"))?;
    let mut home = None;
    for node in sysfs::nodes()? {
        if sysfs::node_cpus(node)?.contains(&cpu) {
            home = Some(node);
        }
    }
    let home = home.ok_or_else(|| format!("CPU {cpu} is on no node"))?;
    wait_for_go(&json!({"pid": std::process::id(), "node": home}));
    // The last pages come from another node: the kernel leaves this one some.
    let kept = Pages::take(sysfs::node_memory_kib(home, "MemFree")? as usize * 1024)?;
    let stop = stop_flag();
    let mut rounds = 0u64;
    while !stop.load(Ordering::Relaxed) {
        Pages::take((mib as usize) << 20)?;
        rounds += 1;
    }
    Ok(json!({"rounds": rounds, "kept": kept.bytes(), "cpu_ns": affinity::process_time().as_nanos() as u64}))
}
