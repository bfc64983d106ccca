//! First touches of the sampled processes, and the use of the memory that they touched.

use std::collections::{BTreeMap, HashSet};

use super::names::Names;
use crate::access::objects::{ObjectWindow, PlacedObjects};
use crate::access::sample::Touch;
use crate::access::touches::Touches;
use crate::model::access::objects::Object;
use crate::model::process::ProcessId;
use crate::model::units::NodeId;

/// Processes whose first touches are kept, 1.5 MB of each at most: without room the one with the fewest touches goes.
const PROCESSES_MAX: usize = 128;

/// First touches by process, and samples of the last ten seconds in that memory.
#[derive(Default)]
pub(super) struct Objects {
    touches: BTreeMap<ProcessId, Touches>,
    window: ObjectWindow,
}

impl Objects {
    /// Takes a touch of a thread on a CPU of this node.
    pub(super) fn add(
        &mut self,
        (process, tid): (ProcessId, u32),
        touch: &Touch,
        node: Option<NodeId>,
        page_shift: u32,
    ) {
        if self.touches.len() >= PROCESSES_MAX && !self.touches.contains_key(&process) {
            let fewest = self.touches.iter().min_by_key(|(_, touches)| touches.count());
            if let Some(fewest) = fewest.map(|(process, _)| *process) {
                self.touches.remove(&fewest);
            }
        }
        self.touches.entry(process).or_default().add(process, tid, touch, node, page_shift);
    }

    /// Takes the names that have come by `now_ns` of CLOCK_MONOTONIC, and asks for those of new stacks. Processes without a row
    /// have ended.
    pub(super) fn settle(&mut self, rows: &HashSet<ProcessId>, now_ns: u64, names: &mut Names) {
        self.touches.retain(|process, _| rows.contains(process));
        for (process, touches) in &mut self.touches {
            names.ask(touches.places().map(|place| (place, *process)));
            touches.settle(now_ns, |place| names.get(place));
        }
    }

    /// First touches of a process, where there are any.
    pub(super) fn of(&self, process: ProcessId) -> Option<&Touches> {
        self.touches.get(&process)
    }

    /// Takes the samples of an interval that ended at `to_ns`, and returns the used objects.
    pub(super) fn finish(
        &mut self,
        to_ns: u64,
        placed: BTreeMap<ProcessId, PlacedObjects>,
    ) -> BTreeMap<ProcessId, Vec<Object>> {
        self.window.add(to_ns, placed);
        self.window.sum(&self.touches)
    }
}
