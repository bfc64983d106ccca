//! Placement of memory, and /proc fields of processes: asked with one sample, there with one of the next.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::LiveSource;
use crate::collect::mm_reader::wire::{PlacementTurn, Turn};
use crate::host::processes;
use crate::model::process::ProcFieldsOf;
use crate::model::sample::{PlacementRaw, TaskRaw};

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
