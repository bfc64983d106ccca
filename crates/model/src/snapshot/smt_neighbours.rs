//! Tasks on the other hardware threads of the cores that a process ran on. An estimate, from the last CPU of
//! each thread and its run time: two CPUs are never observed at once.

use std::collections::HashMap;
use std::sync::Arc;

use super::changes::join;
use super::rows::newcomer;
use crate::model::sample::{Comm, Sample, TaskRaw};
use crate::model::topology::Topology;
use crate::model::units::CpuId;

/// A process beside another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SmtNeighbour {
    /// Process id and start of its leader.
    pub process: (u32, u64),
    /// Of its main thread; of one of its threads that ran there, where the main thread is not listed.
    pub comm: Comm,
    /// Share of the other's on-CPU time in which this one is likely to have been on the sibling, in percent.
    pub pct: f64,
}

/// The work of a thread in the interval, on the CPU it was on last.
struct Ran<'a> {
    task: &'a TaskRaw,
    ns: f64,
}

/// The processes that shared cores with `process` between two samples, the most present first; itself among them, when
/// it has threads on siblings. Two threads are taken to meet by chance: each for the share of time that it ran.
pub fn beside(
    topology: &Topology,
    previous: &Sample,
    current: &Sample,
    process: (u32, u64),
) -> Vec<SmtNeighbour> {
    let interval = current.mono_ns.saturating_sub(previous.mono_ns) as f64;
    let by_cpu = ran_by_cpu(previous, current);
    let mut found: HashMap<(u32, u64), SmtNeighbour> = HashMap::new();
    let mut all = 0.0;
    for (cpu, threads) in &by_cpu {
        let own: f64 = threads.iter().filter(|ran| ran.task.process() == process).map(|ran| ran.ns).sum();
        if own == 0.0 {
            continue;
        }
        all += own;
        let siblings = topology.cpu(CpuId(*cpu)).map_or(&[][..], |cpu| &cpu.siblings);
        let others = siblings.iter().filter(|other| other.0 != *cpu).filter_map(|other| by_cpu.get(&other.0));
        let others: Vec<&Ran<'_>> = others.flatten().collect();
        // Threads that moved away count where they were last: together they may have more than the interval.
        let most = others.iter().map(|ran| ran.ns).sum::<f64>().max(interval);
        for ran in others {
            let (process, comm) = (ran.task.process(), ran.task.comm);
            let beside = found.entry(process).or_insert(SmtNeighbour { process, comm, pct: 0.0 });
            beside.pct += own * ran.ns / most;
        }
    }
    for leader in current.tasks.iter().filter(|task| task.tid == task.pid) {
        if let Some(beside) = found.get_mut(&leader.process()) {
            beside.comm = leader.comm;
        }
    }
    let mut list: Vec<SmtNeighbour> = found.into_values().collect();
    list.iter_mut().for_each(|beside| beside.pct *= 100.0 / all);
    list.sort_by(|a, b| b.pct.total_cmp(&a.pct).then(a.process.cmp(&b.process)));
    list
}

/// Threads that ran in the interval, by the CPU they ran on last.
fn ran_by_cpu<'a>(previous: &'a Sample, current: &'a Sample) -> HashMap<u32, Vec<Ran<'a>>> {
    let mut by_cpu: HashMap<u32, Vec<Ran<'_>>> = HashMap::new();
    join(&previous.tasks, &current.tasks, |old, new| {
        let Some(new) = new.filter(|new| new.tid != 0) else { return };
        let ns = match old {
            Some(old) if Arc::ptr_eq(old, new) => 0,
            Some(old) => new.counts.cpu_ns().saturating_sub(old.counts.cpu_ns()),
            None => newcomer(new, previous).cpu_ns(),
        };
        if ns > 0 {
            by_cpu.entry(new.cpu).or_default().push(Ran { task: new, ns: ns as f64 });
        }
    });
    by_cpu
}
