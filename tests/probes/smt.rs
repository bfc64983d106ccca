//! Counts beside an idle sibling are counted as such, on a machine whose cores are made up.

use std::path::Path;

use anyhow::{Result, ensure};

use numatop_ng::model::counters::Counter;
use numatop_ng::model::event::Role;
use numatop_ng::model::topology::Topology;
use numatop_ng::model::units::CpuId;

use crate::raw_probes::{ByHand, in_role};
use crate::workload::{Workload, allowed_cpus};

/// Time on CPU compared with which the stretch from before the start is short.
const ENOUGH_NS: u64 = 500_000_000;

/// This machine, with cores of another make.
fn machine(change: impl FnOnce(&mut Topology)) -> Result<Topology> {
    let mut topology = numatop_ng::host::topology::read(Path::new("/"))?;
    change(&mut topology);
    Ok(topology)
}

/// Each CPU has a core and a sibling that is not there, so it never runs anything.
fn cores_of_one(topology: &mut Topology) {
    for (cpu, core) in topology.cpus.iter_mut().zip(0..) {
        cpu.siblings = vec![cpu.id, CpuId(cpu.id.0 + 1000)];
        cpu.core = core;
    }
}

pub fn beside_an_idle_sibling_all_counts_are_idle() -> Result<()> {
    let topology = machine(cores_of_one)?;

    let hog = Workload::start("hog")?;
    let events = vec![in_role("cpu-clock", Role::Cycles)?, in_role("task-clock", Role::Instructions)?];
    let mut probes = ByHand::start(&topology, events)?;

    let counts = probes.counts(&[hog.pid()], 0, ENOUGH_NS)?.remove(0);

    let [idle, busy] = counts.by_sibling;
    ensure!((busy.cycles, busy.instructions, counts[Counter::SmtBusyNs]) == (0, 0, 0), "{counts:?}");
    // The first stretch of each CPU began before the probe started.
    ensure!(idle.cycles <= counts.slots[0].count, "{counts:?}");
    ensure!(idle.cycles * 100 >= counts.slots[0].count * 90, "{counts:?}");
    Ok(())
}

/// Why no two CPUs can be made one core.
pub fn obstacle() -> Option<&'static str> {
    (allowed_cpus().len() < 2).then_some("there is one CPU, or we may use no other")
}

/// A CPU that was busy before its place was set.
pub fn a_cpu_that_was_not_placed_yet_is_on_no_core() -> Result<()> {
    let topology = machine(cores_of_one)?;
    let hogs = allowed_cpus().into_iter().take(2).map(pinned).collect::<Result<Vec<_>>>()?;
    let events = vec![in_role("cpu-clock", Role::Cycles)?, in_role("task-clock", Role::Instructions)?];
    let mut probes = ByHand::start_after(&topology, events, |sched, online| {
        online.iter().try_for_each(|cpu| sched.flush(*cpu))
    })?;

    let counts = probes.counts(&hogs.iter().map(Workload::pid).collect::<Vec<_>>(), 0, ENOUGH_NS)?;

    for counts in counts {
        ensure!((counts.by_sibling[1].cycles, counts[Counter::SmtBusyNs]) == (0, 0), "{counts:?}");
    }
    Ok(())
}

fn pinned(cpu: usize) -> Result<Workload> {
    Workload::start_with("pinned", |command| _ = command.env("NUMATOP_NG_TEST_CPU", cpu.to_string()))
}

/// Two CPUs count as threads of one core here, whatever they are: the probe uses the places it is given.
pub fn counts_by_sibling_follow_what_it_does() -> Result<()> {
    let cpus = allowed_cpus();
    let topology = machine(|topology| {
        let two: Vec<CpuId> = cpus[..2].iter().map(|cpu| CpuId(*cpu as u32)).collect();
        for (cpu, core) in topology.cpus.iter_mut().zip(1..) {
            let is_one = two.contains(&cpu.id);
            cpu.core = if is_one { 0 } else { core };
            cpu.siblings = if is_one { two.clone() } else { vec![cpu.id] };
        }
    })?;
    let hogs = [pinned(cpus[0])?, pinned(cpus[1])?];
    let events = vec![in_role("cpu-clock", Role::Cycles)?, in_role("task-clock", Role::Instructions)?];
    let mut probes = ByHand::start(&topology, events)?;

    let counts = probes.counts(&hogs.each_ref().map(Workload::pid), 0, ENOUGH_NS)?;

    for counts in counts {
        let ([idle, busy], whole) = (counts.by_sibling, counts.slots[0].count);
        println!("idle {}, busy {}, of {whole}", idle.cycles, busy.cycles);
        ensure!(idle.cycles + busy.cycles <= whole, "the parts are more than the whole");
        // The other one always runs, except for the moments in which its CPU ran another task.
        ensure!(busy.cycles * 10 > whole * 9 && idle.cycles * 20 < whole, "{idle:?} {busy:?} of {whole}");
        ensure!(busy.instructions.abs_diff(busy.cycles) * 20 < whole, "two clocks differ: {busy:?}");
    }
    Ok(())
}
