//! The state of each CPU, in memory that the kernel programs write to. A sample reads it several times, and
//! only the parts it needs: with a thousand CPUs, a copy of everything would take most of its time.

use std::collections::BTreeMap;
use std::io;
use std::mem::offset_of;
use std::os::fd::AsFd;
use std::sync::Arc;

use super::host_state::CpuTimes;
use crate::model::sample::{CpuRaw, Slot};
use crate::model::topology::{Cpu, Topology};
use crate::model::units::CpuId;
use crate::model::wire::{CpuState, LOSSES_MAX, Loss};
use crate::sys::Mapping;

/// The mapped array of the states.
pub struct CpuStates {
    states: Mapping,
}

/// The task that a CPU runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Running {
    /// `enum nt_cpu_state`: how far the stretch that runs now is known.
    pub state: u32,
    /// Its thread id; 0 for the idle task.
    pub pid: u32,
}

impl CpuStates {
    /// Maps the array behind `fd`, which has a state for each possible CPU.
    ///
    /// # Errors
    /// The errno of mmap(2).
    pub fn new(fd: impl AsFd, possible_cpus: u32) -> io::Result<CpuStates> {
        Ok(CpuStates { states: Mapping::new(fd, size_of::<CpuState>() * possible_cpus as usize)? })
    }

    /// The state of one CPU, as of its last switch or flush; `None` for one that is not possible.
    pub fn get(&self, cpu: CpuId) -> Option<CpuState> {
        self.states.get(cpu.index() * size_of::<CpuState>())
    }

    /// The task that it runs.
    pub fn running(&self, cpu: CpuId) -> Option<Running> {
        const FIRST: usize = offset_of!(CpuState, state);
        const { assert!(offset_of!(CpuState, in_pid) == FIRST + 12) };
        let [state, _, _, pid] = self.states.get::<[u32; 4]>(cpu.index() * size_of::<CpuState>() + FIRST)?;
        Some(Running { state, pid })
    }

    /// Its losses since the start, by [`Loss`].
    pub fn losses(&self, cpu: CpuId) -> Option<[u64; LOSSES_MAX]> {
        self.states.get(cpu.index() * size_of::<CpuState>() + offset_of!(CpuState, lost))
    }

    /// Losses of all present CPUs since the start, by [`Loss::id`].
    pub fn lost(&self, topology: &Topology) -> BTreeMap<String, u64> {
        let sums = self.sums_of_losses(topology);
        Loss::ALL.into_iter().map(|cause| (cause.id().to_string(), sums[cause as usize])).collect()
    }

    /// The same by [`Loss`].
    pub fn sums_of_losses(&self, topology: &Topology) -> [u64; LOSSES_MAX] {
        let mut sums = [0u64; LOSSES_MAX];
        for lost in topology.cpus.iter().filter_map(|cpu| self.losses(cpu.id)) {
            sums.iter_mut().zip(lost).for_each(|(sum, lost)| *sum += lost);
        }
        sums
    }

    /// On-CPU time of tasks in the scope by CPU id, ns since the start; without CPUs that ran none.
    pub fn scope_ns(&self, topology: &Topology) -> BTreeMap<u32, Arc<u64>> {
        let at = |cpu: CpuId| cpu.index() * size_of::<CpuState>() + offset_of!(CpuState, scope_ns);
        let time = |cpu: &Cpu| Some((cpu.id.0, self.states.get::<u64>(at(cpu.id)).filter(|ns| *ns > 0)?));
        topology.cpus.iter().filter_map(time).map(|(cpu, ns)| (cpu, Arc::new(ns))).collect()
    }

    /// The present CPUs as samples have them. `online` is ascending; `times` are those of /proc/stat.
    pub fn rows(
        &self,
        topology: &Topology,
        online: &[CpuId],
        times: &BTreeMap<CpuId, CpuTimes>,
    ) -> Vec<CpuRaw> {
        let row = |cpu: &Cpu| {
            let state = self.get(cpu.id)?;
            let times = times.get(&cpu.id).copied();
            let slot = |at: usize| Slot {
                count: state.slot_total[at],
                enabled_ns: state.slot_enabled_ns[at],
                running_ns: state.slot_running_ns[at],
            };
            Some(CpuRaw {
                id: cpu.id.0,
                node: cpu.node.map_or(0, |node| node.0),
                online: online.binary_search(&cpu.id).is_ok(),
                busy_ns: state.busy_ns,
                switches: state.switches,
                irq_ns: times.map(|times| times.irq_ns),
                steal_ns: times.and_then(|times| times.steal_ns),
                hints: None,
                slots: std::array::from_fn(slot),
            })
        };
        topology.cpus.iter().filter_map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use bytemuck::Zeroable;

    use super::*;
    use crate::model::wire::SLOTS;

    /// Maps these states, as the kernel has them in an array.
    fn mapped(states: &[CpuState]) -> CpuStates {
        let file = rustix::fs::memfd_create("states", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mut file = std::fs::File::from(file);
        file.write_all(bytemuck::cast_slice(states)).unwrap();
        // Whole pages are mapped.
        let page = rustix::param::page_size();
        file.set_len((size_of_val(states)).next_multiple_of(page) as u64).unwrap();
        CpuStates::new(&file, states.len() as u32).unwrap()
    }

    fn state(cpu: u32) -> CpuState {
        let mut state = CpuState { busy_ns: 100 + u64::from(cpu), ..CpuState::zeroed() };
        (state.state, state.in_pid, state.switches) = (1, 1000 + cpu, 7);
        (state.in_busy, state.slots_valid) = (77, 78);
        state.lost[Loss::Exit as usize] = u64::from(cpu);
        state.slot_total[SLOTS - 1] = 5;
        state.slot_enabled_ns[SLOTS - 1] = 6;
        state.slot_running_ns[SLOTS - 1] = 4;
        state
    }

    #[test]
    fn parts_are_those_of_the_whole() {
        let all: Vec<CpuState> = (0..70).map(state).collect();
        let states = mapped(&all);
        for cpu in 0..70 {
            let whole = states.get(CpuId(cpu)).unwrap();
            let running = Running { state: whole.state, pid: whole.in_pid };
            assert_eq!(states.running(CpuId(cpu)), Some(running));
            assert_eq!((running.state, running.pid), (1, 1000 + cpu));
            assert_eq!(states.losses(CpuId(cpu)), Some(whole.lost));
        }
        assert_eq!(states.running(CpuId(9999)), None);
    }

    #[test]
    fn rows_are_of_present_cpus_and_losses_of_all() {
        let mut topology = crate::model::demo::facts().topology;
        topology.cpus.truncate(4);
        let all: Vec<CpuState> = (0..8).map(state).collect();
        let states = mapped(&all);
        let times = BTreeMap::from([(CpuId(2), CpuTimes { irq_ns: 30, steal_ns: Some(0) })]);
        let rows = states.rows(&topology, &[CpuId(0), CpuId(2), CpuId(3)], &times);
        assert_eq!(rows.len(), 4);
        assert_eq!(rows.iter().map(|row| row.online).collect::<Vec<_>>(), [true, false, true, true]);
        assert_eq!((rows[2].busy_ns, rows[2].irq_ns, rows[1].irq_ns), (102, Some(30), None));
        assert_eq!(rows[3].slots[SLOTS - 1], Slot { count: 5, enabled_ns: 6, running_ns: 4 });
        let lost = states.lost(&topology);
        assert_eq!(lost.len(), Loss::ALL.len());
        assert_eq!(lost[Loss::Exit.id()], 6);
        assert_eq!(lost[Loss::Storage.id()], 0);
    }
}
