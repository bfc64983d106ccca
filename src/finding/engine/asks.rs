//! The processes of which rules would like to know more.

use super::super::State;
use super::super::rule::Rule;
use super::Engine;
use crate::model::process::ProcessId;

impl Engine {
    /// Processes for which a condition about nodes holds now, whether or not for long enough, those with findings first:
    /// samples of their accesses would say whether it matters.
    pub fn asks(&self) -> Vec<ProcessId> {
        self.open(|rule| rule.group.needs_nodes())
    }

    /// Processes for which any condition holds now, those with findings first: severities and commands are about the CPUs and
    /// nodes that they may use, which are read of these.
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
