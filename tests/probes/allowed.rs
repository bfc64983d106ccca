//! Allowed nodes of tasks, and resident memory by kind: compared with /proc for the same tasks.

use std::fs;

use anyhow::{Context, Result, ensure};
use numatop_ng::model::topology::{Topology, parse_cpulist};
use numatop_ng::model::units::NodeId;

use crate::raw_probes::ByHand;
use crate::until::until;
use crate::workload::{Workload, allowed_cpus};

/// This machine with its CPUs on two nodes, in turns.
fn two_nodes() -> Result<Topology> {
    let mut topology = numatop_ng::host::topology::read("/".as_ref())?;
    for cpu in &mut topology.cpus {
        cpu.node = Some(NodeId(cpu.id.0 % 2));
    }
    topology.possible_nodes = topology.possible_nodes.max(2);
    Ok(topology)
}

/// The value of a line of /proc/PID/status.
fn status(pid: u32, name: &str) -> Result<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    Ok(line.with_context(|| format!("status of {pid} has no {name}"))?.trim().to_owned())
}

fn bits(list: &str) -> Result<u64> {
    Ok(parse_cpulist(list)?.into_iter().fold(0, |bits, node| bits | 1 << node))
}

pub fn nodes_that_a_task_may_use_are_those_of_its_masks() -> Result<()> {
    let mut probe = ByHand::start(&two_nodes()?, vec![])?;
    let free = Workload::start("sleeper")?;
    let mut pinned = Vec::new();
    for cpu in allowed_cpus().into_iter().take(2) {
        let on = |command: &mut std::process::Command| {
            command.env("NUMATOP_NG_TEST_CPU", cpu.to_string());
        };
        pinned.push((Workload::start_with("pinned", on)?, cpu));
    }
    for (workload, cpu) in &pinned {
        until("a pinned task is on its node only", || {
            let task = probe.task(workload.pid())?;
            Ok(task.is_some_and(|task| task.cpu_nodes == Some(1 << (cpu % 2))))
        })?;
    }
    let task = probe.task(free.pid())?.context("a task that sleeps was listed when it was born")?;
    let cpus = bits(&status(free.pid(), "Cpus_allowed_list")?)?;
    let expected = [0, 1].iter().filter(|node| cpus & (0x5555_5555_5555_5555 << **node) != 0);
    let expected = expected.fold(0, |bits, node| bits | 1u64 << node);
    ensure!(task.cpu_nodes == Some(expected), "{:?} of {cpus:b}", task.cpu_nodes);
    let mems = bits(&status(free.pid(), "Mems_allowed_list")?)?;
    ensure!(task.mem_nodes == Some(mems), "{:?}, and status says {mems:b}", task.mem_nodes);
    Ok(())
}

pub fn resident_memory_is_told_by_kind() -> Result<()> {
    let topology = numatop_ng::host::topology::read("/".as_ref())?;
    // Counters are per CPU: pending parts are included in status and not in the walk.
    let slack = u64::from(topology.possible_cpus) * 32 * 4096;
    let mut probe = ByHand::start(&topology, vec![])?;
    let workload = Workload::start("sleepers")?;
    let kib = |name: &str| -> Result<u64> {
        Ok(status(workload.pid(), name)?.trim_end_matches(" kB").parse::<u64>()? * 1024)
    };
    until("the memory of the workload is known by kind", || {
        let Some(task) = probe.task(workload.pid())? else { return Ok(false) };
        let resident = task.resident.context("the walk tells it")?;
        ensure!(task.rss_bytes == resident.anon_bytes + resident.file_bytes + resident.shmem_bytes);
        let pairs = [
            (resident.anon_bytes, kib("RssAnon")?),
            (resident.file_bytes, kib("RssFile")?),
            (resident.shmem_bytes, kib("RssShmem")?),
            (resident.swap_bytes, kib("VmSwap")?),
        ];
        Ok(resident.file_bytes > 0 && pairs.iter().all(|(walk, status)| walk.abs_diff(*status) <= slack))
    })
}
