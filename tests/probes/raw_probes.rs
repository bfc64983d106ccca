//! Counts of the probes on a machine whose layout is made up. Started by hand: a source would read what
//! this machine really is.

use std::collections::BTreeMap;

use anyhow::Result;

use crate::until::until;
use numatop_ng::collect::maps::{self, RecordLayout};
use numatop_ng::collect::parsed::parse;
use numatop_ng::collect::round::Round;
use numatop_ng::collect::sched::SchedProbe;
use numatop_ng::collect::tasks::{CgroupView, TaskProbe};
use numatop_ng::container::scope::Scope;
use numatop_ng::model::event::{Event, Role};
use numatop_ng::model::sample::{Counts, TaskRaw};
use numatop_ng::model::topology::Topology;
use numatop_ng::model::units::CpuId;
use numatop_ng::model::wire::Scoped;

/// An event that every machine has, in the role of another.
pub fn in_role(name: &str, role: Role) -> Result<Event> {
    Ok(Event { role, ..Event::named(name)? })
}

/// Probes that count everything, from their start on.
pub struct ByHand {
    sched: SchedProbe,
    tasks: TaskProbe,
    online: Vec<CpuId>,
    /// The last row of each task, by its id.
    seen: BTreeMap<u32, TaskRaw>,
}

impl ByHand {
    /// On the machine of `topology`, with `events` in the slots.
    pub fn start(topology: &Topology, events: Vec<Event>) -> Result<ByHand> {
        ByHand::start_after(topology, events, |_, _| Ok(()))
    }

    /// As [`ByHand::start`], after `meanwhile` was done with a running probe that does not know the places of
    /// its CPUs.
    pub fn start_after(
        topology: &Topology,
        events: Vec<Event>,
        meanwhile: impl FnOnce(&SchedProbe, &[CpuId]) -> Result<()>,
    ) -> Result<ByHand> {
        let nodes = topology.possible_nodes;
        let layout = RecordLayout::new(nodes, topology.smt(), &events);
        let store = maps::create(layout)?;
        let mut sched = SchedProbe::start(topology, (&store, layout), events, Scoped::Not, None)?;
        let online: Vec<CpuId> = topology.online_cpus().map(|cpu| cpu.id).collect();
        meanwhile(&sched, &online)?;
        for cpu in &online {
            sched.online(topology, *cpu)?;
        }
        let cgroups = CgroupView::default();
        let findable = Err("not requested".into());
        let mut tasks = TaskProbe::start(&sched, &store, topology, &Scope::default(), cgroups, findable)?;
        tasks.walk(&Round::unknown(false), |_| {})?;
        Ok(ByHand { sched, tasks, online, seen: BTreeMap::new() })
    }

    /// The counts of these tasks, when each has at least `enough` in `slot`: a busy machine lets them wait.
    pub fn counts(&mut self, tids: &[u32], slot: usize, enough: u64) -> Result<Vec<Counts>> {
        let mut counts = Vec::new();
        until("the workloads run", || {
            counts = self.look(tids)?;
            Ok(counts.iter().all(|counts| counts.slots[slot].count >= enough))
        })?;
        Ok(counts)
    }

    /// The current row of the task of this id; `None` if it has none.
    pub fn task(&mut self, tid: u32) -> Result<Option<TaskRaw>> {
        self.look(&[])?;
        Ok(self.seen.get(&tid).cloned())
    }

    fn look(&mut self, tids: &[u32]) -> Result<Vec<Counts>> {
        for cpu in &self.online {
            self.sched.flush(*cpu)?;
        }
        // A task that did nothing since the last look has no row, and one that did nothing at all never had
        // one.
        let seen = &mut self.seen;
        self.tasks.walk(&Round::unknown(false), |row| {
            let task = parse(&row, 4096, &[]).task;
            seen.insert(task.tid, task);
        })?;
        Ok(tids.iter().map(|tid| seen.get(tid).map(|task| task.counts.clone()).unwrap_or_default()).collect())
    }
}
