//! Contended lines of the processes that are sampled: samples on their way to lines, and the names of their code.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::access::lines::{LineBatch, LineSample, LineWindow, PlacedLines, place};
use crate::access::sample::EventAccess;
use crate::access::window::Places;
use crate::hot::known_names::KnownNames;
use crate::model::access::lines::ContendedLines;
use crate::model::process::ProcessId;
use crate::model::stacks::Place;
use crate::model::units::NodeId;
use crate::pmu::data_src;
use crate::program::helper::OWN_PROGRAM;
use crate::symbolize::Namer;

/// Samples of the last ten seconds, and what is known of them.
#[derive(Default)]
pub(super) struct Lines {
    /// Samples since pages were last asked about.
    pub(super) fresh: LineBatch,
    window: LineWindow,
    /// There from the first sample of a contended line on.
    namer: Option<Namer>,
    names: KnownNames,
}

/// An access that may be one side of a contended line, as far as its event says.
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

    /// Takes the samples of an interval that ended at `to_ns`, of whose pages the `places` are known, and says which lines
    /// are contended. The functions of new code are asked for, and come with a later interval. Returns how many samples
    /// had no room, too.
    pub(super) fn finish(
        &mut self,
        to_ns: u64,
        batch: LineBatch,
        mut placed: BTreeMap<ProcessId, PlacedLines>,
        page_shift: u32,
    ) -> (BTreeMap<ProcessId, ContendedLines>, u64) {
        for (process, samples) in batch {
            placed.insert(process, place(samples, &Places::default(), page_shift));
        }
        let left_out = self.window.add(to_ns, placed);
        let names = &self.names;
        let name = |process, code| names.get(&Place::Address(process, code)).cloned();
        let mut found = self.window.sum(name);
        let is_listed =
            |process: &ProcessId| found.get(process).is_some_and(|lines| !lines.listed.is_empty());
        if found.values().any(|lines| !lines.listed.is_empty()) {
            let places = self.window.code().filter(|(process, _)| is_listed(process));
            let places: Vec<_> =
                places.map(|(process, code)| (Place::Address(process, code), process)).collect();
            // Without a thread for it lines have no names.
            self.namer = self.namer.take().or_else(|| Namer::start(PathBuf::from(OWN_PROGRAM)).ok());
            if let Some(namer) = &mut self.namer {
                namer.ask(places.into_iter());
                self.names.extend(namer.answers(Duration::ZERO));
            }
            let names = &self.names;
            found = self.window.sum(|process, code| names.get(&Place::Address(process, code)).cloned());
        }
        (found, left_out)
    }
}
