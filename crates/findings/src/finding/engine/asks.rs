//! The processes about which rules need more data.

use super::super::State;
use super::super::rule::Rule;
use super::Engine;
use crate::model::process::ProcessId;

impl Engine {
    /// Processes for which a condition about nodes holds now, for any length of time, those with findings
    /// first. Samples of their accesses would show whether it matters.
    pub fn asks(&self) -> Vec<ProcessId> {
        self.open(|rule| rule.group.needs_nodes())
    }

    /// Processes for which any condition holds now, those with findings first. Severities and commands depend
    /// on their allowed CPUs and nodes, which are read for these processes.
    pub fn suspects(&self) -> Vec<ProcessId> {
        self.open(|_| true)
    }

    fn open(&self, wanted: impl Fn(&Rule) -> bool) -> Vec<ProcessId> {
        let states = self.rules.iter().zip(&self.states).filter(|(rule, _)| wanted(rule));
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
