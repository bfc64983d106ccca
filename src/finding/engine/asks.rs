//! The processes of which rules would like to know their accesses.

use super::super::State;
use super::Engine;
use crate::model::process::ProcessId;

impl Engine {
    /// Processes for which a condition about nodes holds now, whether or not for long enough, those with findings first:
    /// samples of their accesses would say whether it matters.
    pub fn asks(&self) -> Vec<ProcessId> {
        let states = self.rules.iter().zip(&self.states).filter(|(rule, _)| rule.group.needs_nodes());
        let open = states.flat_map(|(_, states)| states).filter(|(_, episode)| !episode.gone);
        let mut asks: Vec<(bool, ProcessId)> = open
            .filter_map(|(subject, episode)| Some((episode.state == State::Pending, subject.process()?)))
            .collect();
        asks.sort_unstable();
        let mut processes: Vec<ProcessId> = Vec::new();
        for (_, process) in asks {
            if !processes.contains(&process) {
                processes.push(process);
            }
        }
        processes
    }
}
