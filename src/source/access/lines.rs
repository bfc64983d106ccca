//! Contended lines of the processes that are sampled: samples on their way to lines, and the names of their code.

use std::collections::BTreeMap;

use super::names::Names;
use crate::access::lines::{LineBatch, LineSample, LineWindow, PlacedLines, place};
use crate::access::sample::EventAccess;
use crate::access::window::Places;
use crate::model::access::lines::ContendedLines;
use crate::model::process::ProcessId;
use crate::model::stacks::Place;
use crate::model::units::NodeId;
use crate::pmu::data_src;

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
        names.ask(code.map(|(process, code)| (Place::Address(process, code), process)));
        (found, left_out)
    }

    /// Adds the window up, a sum over up to ten seconds of samples: once an interval.
    fn sum(&mut self, names: &Names) -> BTreeMap<ProcessId, ContendedLines> {
        #[cfg(test)]
        {
            self.sums += 1;
        }
        self.window.sum(|process, code| names.get(&Place::Address(process, code)))
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
        names.learn([(Place::Address(process, code), name.clone().into())]);
        assert_eq!((listed(&mut lines, &mut names, 2).as_deref(), lines.sums), (Some(&name), 2));
        // Functions of their code were asked for.
        assert!(names.has_asked());
    }
}
