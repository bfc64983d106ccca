//! CPUs that come online and go offline while the machine is watched.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};

use super::LiveSource;
use crate::calibrate::store;
use crate::host::kernel;
use crate::model::topology::{Topology, parse_cpulist};
use crate::model::units::CpuId;
use crate::model::wire::Loss;

impl LiveSource {
    /// Opens counters on CPUs that came online, closes those of CPUs that left.
    pub(super) fn follow_hotplug(&mut self) -> Result<()> {
        let now = online_now(&self.files, &self.host.topology)?;
        let silent = self.silent_cpus();
        if now == self.online && silent.is_empty() {
            return Ok(());
        }
        for cpu in self.online.iter().filter(|cpu| !now.contains(cpu)) {
            self.sched.offline(*cpu)?;
            self.notes.push(format!("CPU {cpu} went offline"));
        }
        // A CPU that was never online before has no place in the topology yet.
        let mut topology = crate::host::topology::read(&self.files)?;
        topology.divide_as(&self.host.topology.places);
        for cpu in &now {
            let came = !self.online.contains(cpu);
            if !came && !silent.contains(cpu) {
                continue;
            }
            let failed = self.sched.online(&topology, *cpu)?;
            let what = if came { "came online" } else { "lost its counters: reopening them" };
            self.notes.push(format!("CPU {cpu} {what}"));
            self.note_refused(failed);
        }
        self.tasks.follow(&topology)?;
        Arc::make_mut(&mut self.host).topology = store::with_costs(&self.profile, topology);
        self.turns.begin_again();
        self.say_missing();
        if let Some(hot) = &mut self.hot {
            hot.follow(&now)?;
        }
        self.accesses.follow(&now, &self.host)?;
        self.online = now;
        Ok(())
    }

    /// CPUs on which counters could not be read since the previous call: they were lost when a CPU was
    /// offline too briefly for any sample to notice.
    fn silent_cpus(&mut self) -> Vec<CpuId> {
        let mut silent = Vec::new();
        for cpu in &self.online {
            let lost = self.sched.states().losses(*cpu);
            let failed = lost.map_or(0, |lost| lost[Loss::Counter as usize]);
            if failed > 0 && failed > self.failed_reads.insert(*cpu, failed).unwrap_or(0) {
                silent.push(*cpu);
            }
        }
        silent
    }
}

/// The CPUs that are online now. A CPU that the list leaves out, and that was online when the topology was
/// read, is checked itself: the list may be that of a container (lxcfs).
pub(super) fn online_now(root: &Path, topology: &Topology) -> Result<Vec<CpuId>> {
    let text = kernel::read_trimmed(root.join("sys/devices/system/cpu/online"));
    let mut online: Vec<CpuId> =
        parse_cpulist(&text).context("reading cpu/online")?.into_iter().map(CpuId).collect();
    let listed = online.len();
    let known = topology.online_cpus().map(|cpu| cpu.id);
    let left_out: Vec<CpuId> = known.filter(|cpu| !online[..listed].contains(cpu)).collect();
    online.extend(left_out.into_iter().filter(|cpu| crate::host::topology::is_online(root, *cpu)));
    online.sort_unstable();
    Ok(online)
}
