//! Contended lines and first touches of the processes that are sampled, and the names of their code, which come an interval later.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::access::lines::{LineBatch, LineSample, LineWindow, PlacedLines, place};
use crate::access::objects::{ObjectWindow, PlacedObjects};
use crate::access::sample::{EventAccess, Touch};
use crate::access::touches::Touches;
use crate::access::window::Places;
use crate::hot::frame_names::KnownNames;
use crate::model::access::lines::{ContendedLines, Object};
use crate::model::process::ProcessId;
use crate::model::stacks::{CodePlace, Function};
use crate::model::units::NodeId;
use crate::pmu::data_src;
use crate::program::helper::OWN_PROGRAM;
use crate::symbolize::Namer;

/// Samples of the last ten seconds.
#[derive(Default)]
pub(super) struct Lines {
    /// Samples since pages were last asked about.
    pub(super) fresh: LineBatch,
    window: LineWindow,
    /// Times that the window was added up.
    #[cfg(test)]
    sums: usize,
}

/// An access that may be one side of a contended line, according to its event.
pub(super) fn line_sample(
    event: &EventAccess,
    cpu_node: Option<NodeId>,
    page_node: Option<NodeId>,
) -> Option<LineSample> {
    let (address, source) = (event.address?, event.source?);
    let transfer = data_src::transfer(source);
    let is_side = transfer.is_some() || data_src::is_store(source);
    is_side.then_some(LineSample { address, code: event.code, cpu_node, page_node, transfer })
}

impl Lines {
    /// Adds a sampled access of a process.
    pub(super) fn add(&mut self, process: ProcessId, sample: LineSample) {
        self.fresh.entry(process).or_default().push(sample);
    }

    /// Takes the samples of an interval that ended at `to_ns`, with known `places` of their pages, and
    /// returns the contended lines. The functions of new code are requested, and come with a later interval.
    /// Also returns the number of samples without room.
    pub(super) fn finish(
        &mut self,
        to_ns: u64,
        batch: LineBatch,
        mut placed: BTreeMap<ProcessId, PlacedLines>,
        page_shift: u32,
        names: &mut Names,
    ) -> (BTreeMap<ProcessId, ContendedLines>, u64) {
        for (process, samples) in batch {
            placed.insert(process, place(samples, &Places::default(), page_shift));
        }
        let left_out = self.window.add(to_ns, placed);
        let found = self.sum(names);
        let is_listed =
            |process: &ProcessId| found.get(process).is_some_and(|lines| !lines.listed.is_empty());
        let code = self.window.code().filter(|(process, _)| is_listed(process));
        names.ask(code.map(|(process, code)| (CodePlace::Address(process, code), process)));
        (found, left_out)
    }

    /// Adds the window up, a sum over up to ten seconds of samples: once an interval.
    fn sum(&mut self, names: &Names) -> BTreeMap<ProcessId, ContendedLines> {
        #[cfg(test)]
        {
            self.sums += 1;
        }
        self.window.sum(|process, code| names.get(&CodePlace::Address(process, code)))
    }
}

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

/// Names that have come, and the thread that is asked for more.
pub(super) struct Names {
    /// numatop-ng itself, which names code.
    program: PathBuf,
    /// There from the first question on.
    namer: Option<Namer>,
    known: KnownNames,
}

impl Default for Names {
    fn default() -> Names {
        Names::of_program(PathBuf::from(OWN_PROGRAM))
    }
}

impl Names {
    pub(super) fn of_program(program: PathBuf) -> Names {
        Names { program, namer: None, known: KnownNames::default() }
    }

    /// Takes the names that have come, and waits for none: the others come with a later interval.
    pub(super) fn take(&mut self) {
        let answers = self.namer.as_mut().map(|namer| namer.answers(Duration::ZERO));
        self.known.extend(answers.into_iter().flatten());
    }

    /// The function at a place, if its name has come.
    pub(super) fn get(&self, place: &CodePlace) -> Option<Arc<Function>> {
        self.known.get(place).cloned()
    }

    /// Asks for places that were not asked for before. Without a thread for it they have no names.
    pub(super) fn ask(&mut self, places: impl IntoIterator<Item = (CodePlace, ProcessId)>) {
        let mut places = places.into_iter().peekable();
        if places.peek().is_none() {
            return;
        }
        self.namer = self.namer.take().or_else(|| Namer::start(self.program.clone()).ok());
        if let Some(namer) = &mut self.namer {
            namer.ask(places);
        }
    }

    /// Whether anything was asked for.
    #[cfg(test)]
    pub(super) fn has_asked(&self) -> bool {
        self.namer.is_some()
    }

    /// Adds names as if they were answers.
    #[cfg(test)]
    pub(super) fn learn(&mut self, names: impl IntoIterator<Item = (CodePlace, Arc<Function>)>) {
        self.known.extend(names);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::access::lines::Transfer;
    use crate::model::stacks::Function;

    #[test]
    fn an_interval_is_added_up_once_with_the_names_that_have_come() {
        let mut lines = Lines::default();
        let mut names = Names::of_program("/nonexistent".into());
        let process = (7, 1);
        let (address, code, transfer) = (0x1040, 0x10, Some(Transfer::Near));
        let load = LineSample { address, code, cpu_node: None, page_node: None, transfer };
        let listed = |lines: &mut Lines, names: &mut Names, to_ns| {
            let batch = LineBatch::from([(process, vec![load; 3])]);
            let (found, left_out) = lines.finish(to_ns, batch, BTreeMap::new(), 12, names);
            assert_eq!(left_out, 0);
            found[&process].listed[0].sides[0].function.clone()
        };
        assert_eq!((listed(&mut lines, &mut names, 1), lines.sums), (None, 1));
        let name = Function { name: Some("pop".into()), module: "queue".into(), kernel: false };
        names.learn([(CodePlace::Address(process, code), name.clone().into())]);
        assert_eq!((listed(&mut lines, &mut names, 2).as_deref(), lines.sums), (Some(&name), 2));
        // Functions of their code were asked for.
        assert!(names.has_asked());
    }
}
