//! Memory in the live view. Placement, and /proc fields of processes, are asked with one sample and there with one of the next.
//! Memory use is sampled for all processes on request, and otherwise for the processes on the screen. The sampler is loaded
//! only while it has a process to sample.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use anyhow::Result;

use super::LiveSource;
use crate::access::self_check::Verdict;
use crate::collect::access::self_check::OVERRULED;
use crate::collect::mm_reader::wire::{PlacementTurn, Turn};
use crate::host::{clock, processes};
use crate::model::access::MemoryUses;
use crate::model::process::{ProcFieldsOf, ProcessId};
use crate::model::sample::{HostFacts, Missing, PlacementRaw, TaskRaw};
use crate::model::units::CpuId;
use crate::source::access::{Access, Sampled};

/// By process id.
type Placed = Arc<BTreeMap<u64, Arc<PlacementRaw>>>;

impl LiveSource {
    /// Takes new answers, asks for more, and returns the current knowledge. `now_ns` is CLOCK_MONOTONIC.
    /// Never waits.
    pub(super) fn look_at_memory(
        &mut self,
        tasks: &[Arc<TaskRaw>],
        now_ns: u64,
    ) -> (Placed, Arc<ProcFieldsOf>) {
        let mut came = self.mm_reader.take();
        for answer in &mut came.answers {
            self.placements.take(answer);
            if answer.end.is_some() {
                self.placements.take_drawn(self.probes.drawn(), now_ns);
            }
            self.about.take(answer);
        }
        if came.broken {
            self.placements.take_broken();
        }
        if let Some((process, why)) = &came.locked {
            self.placements.take_locked(*process, now_ns, why);
            self.about.take_locked(processes::root(), *process, why);
            self.notes.push(format!("process {}: {why}", process.0));
        }
        let leaders = || tasks.iter().filter(|task| !task.kthread && task.tid == task.pid);
        self.mm_reader.retain_alive(|| leaders().map(|task| task.process()).collect());
        // With one node there is nothing to locate.
        let nodes = &self.host.topology.nodes;
        let sizes: BTreeMap<u32, u64> = nodes.iter().map(|node| (node.id.0, node.mem_total_bytes)).collect();
        let several = nodes.len() > 1;
        let turn = several.then(|| self.placements.turn(tasks, &sizes, now_ns, &self.mm_reader));
        let mut placement = turn.flatten();
        let iterators = placement.as_mut().map_or_else(Vec::new, |turn| self.iterators_of(turn));
        if placement.is_some() {
            self.probes.draw(self.placements.wanted());
        }
        let about = self.about.turn(leaders().map(|task| (task.process(), task.uid)), &self.mm_reader);
        self.mm_reader.ask(Turn { placement, about, pages: None }, &iterators);
        self.notes.extend(self.mm_reader.trouble());
        (self.placements.known(), self.about.known())
    }

    /// Iterators over the mappings of processes of the turn, which keeps the processes with one.
    fn iterators_of(&self, turn: &mut PlacementTurn) -> Vec<OwnedFd> {
        let wanted = turn.iterators.drain(..);
        let made = wanted.filter_map(|(process, tid)| {
            Some(((process, tid), self.probes.mappings_of(processes::own_id(processes::root(), tid)?)?))
        });
        let (kept, iterators) = made.unzip();
        turn.iterators = kept;
        iterators
    }
}

/// The sampler stays loaded for this time without a process to sample, ns: rows come and go.
const LINGER_NS: u64 = 10_000_000_000;

/// The sampler, and the processes that are to be sampled.
#[derive(Default)]
pub(super) struct Accesses {
    /// There while it is loaded.
    pub(super) running: Option<Access>,
    /// Why memory use is not sampled, though it was asked for.
    pub(super) refused: Option<Missing>,
    /// The result of the self-check, which is made once.
    checked: Option<Result<Verdict, Missing>>,
    /// All processes are to be sampled.
    all: bool,
    /// The processes that matter on the screen; `None`: not wanted.
    wanted: Option<Vec<ProcessId>>,
    /// The time since which there are none, CLOCK_MONOTONIC in ns.
    idle_since_ns: Option<u64>,
}

impl Accesses {
    /// Samples these CPUs from now on, as far as they are wanted.
    ///
    /// # Errors
    /// The clock cannot be sampled on one of them.
    pub(super) fn follow(&mut self, online: &[CpuId], host: &HostFacts) -> Result<()> {
        match &mut self.running {
            Some(access) => access.follow(&sampled_cpus(self.all, online, host)),
            None => Ok(()),
        }
    }
}

/// All CPUs that are online where `all` processes are sampled because that was asked for. By default none that is isolated or
/// runs without a tick: its work must not be interrupted.
fn sampled_cpus(all: bool, online: &[CpuId], host: &HostFacts) -> Vec<CpuId> {
    let quiet = host.quiet_cpus();
    online.iter().copied().filter(|cpu| all || !quiet.contains(cpu)).collect()
}

impl LiveSource {
    /// Starts sampling of all processes, or returns to the ones that matter on the screen.
    pub(super) fn sample_all(&mut self, on: bool) {
        let accesses = &mut self.accesses;
        (accesses.running, accesses.refused, accesses.all) = (None, None, on);
        self.follow_wishes();
        self.say_missing();
    }

    /// Has these processes sampled, as far as the budget goes; `None`: none, and nothing stays loaded.
    pub(super) fn sample_these(&mut self, wanted: Option<Vec<ProcessId>>) {
        self.accesses.wanted = wanted;
        self.follow_wishes();
    }

    /// Loads and unloads the sampler according to the current wishes.
    pub(super) fn follow_wishes(&mut self) {
        let (accesses, now_ns) = (&mut self.accesses, clock::mono_ns());
        let has_some = accesses.wanted.as_ref().is_some_and(|wanted| !wanted.is_empty());
        if has_some || accesses.all {
            accesses.idle_since_ns = None;
        }
        let lingers = accesses.wanted.is_some()
            && now_ns.saturating_sub(*accesses.idle_since_ns.get_or_insert(now_ns)) < LINGER_NS;
        if !accesses.all && !has_some && !lingers {
            accesses.running = None;
            return;
        }
        if let (Some(running), Some(wanted)) = (&mut accesses.running, &accesses.wanted) {
            running.want(wanted);
        }
        if accesses.running.is_some() || accesses.refused.is_some() || !(accesses.all || has_some) {
            return;
        }
        let sampled = match accesses.all {
            true => Sampled::All,
            false => Sampled::Budgeted(accesses.wanted.clone().unwrap_or_default()),
        };
        let scope = (&self.records, !self.groups.scope().is_everything());
        let cpus = sampled_cpus(accesses.all, &self.online, &self.host);
        match Access::start(scope, &cpus, sampled, &mut accesses.checked, self.page_size, now_ns) {
            Ok(access) => {
                let overruled = (!access.is_checked()).then(|| format!("samples of accesses: {OVERRULED}"));
                self.notes.extend(overruled);
                accesses.running = Some(access);
            }
            Err(why) => accesses.refused = Some(why),
        }
        self.say_missing();
    }

    /// The memory that tasks used since the sample before; `None` while nothing is sampled.
    ///
    /// # Errors
    /// Requested sampling failed. Sampling by default ends with a reason instead: a view continues without
    /// it.
    pub(super) fn memory_use(
        &mut self,
        tasks: (&[Arc<TaskRaw>], &[Arc<TaskRaw>]),
        mono_ns: u64,
    ) -> Result<Option<Arc<MemoryUses>>> {
        let Some(access) = &mut self.accesses.running else { return Ok(None) };
        match access.turn(&self.host.topology, tasks, mono_ns) {
            Ok(found) => {
                if let Some(why) = access.news() {
                    self.notes.extend(why.map(|why| format!("accesses are not sampled: {why}")));
                    self.say_missing();
                }
                Ok(Some(found))
            }
            Err(error) if self.accesses.all => Err(error),
            Err(error) => {
                self.accesses.running = None;
                self.accesses.refused = Some(Missing::Lost(format!("{error:#}")));
                self.say_missing();
                Ok(None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::synthetic::demo_machine;

    #[test]
    fn quiet_cpus_are_sampled_only_where_that_is_asked_for() {
        let mut host = HostFacts::clone(&demo_machine().host);
        (host.isolated_cpus, host.nohz_full_cpus) = (vec![2], vec![2, 3]);
        let online = [0, 1, 2, 3].map(CpuId);
        assert_eq!(sampled_cpus(false, &online, &host), [0, 1].map(CpuId));
        assert_eq!(sampled_cpus(true, &online, &host), online);
    }
}
