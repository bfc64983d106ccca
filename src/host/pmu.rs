//! Which performance counters does this machine offer, and do they count?

use std::fs;
use std::path::Path;

use serde::Serialize;

use super::fact::Fact;
use crate::pmu::event::Event;
use crate::pmu::open::try_event;
use crate::sample::{Missing, Reading};

/// The PMUs the kernel knows, and how the wanted events did when they were tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PmuFacts {
    /// Names below /sys/bus/event_source/devices, sorted. Some are no hardware: software, tracepoint, …
    pub sources: Fact<Vec<String>>,
    pub trials: Vec<Trial>,
}

/// One event opened on this thread and let count for a moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Trial {
    pub event: Event,
    pub outcome: Reading<()>,
}

impl PmuFacts {
    /// Lists the PMUs below `root` and tries `events` on the running kernel.
    pub fn read(root: &Path, events: &[Event]) -> PmuFacts {
        let trial = |event: &Event| Trial { event: event.clone(), outcome: try_event(event) };
        PmuFacts { sources: sources(root), trials: events.iter().map(trial).collect() }
    }

    /// The events that count.
    pub fn working(&self) -> Vec<Event> {
        let works = |trial: &&Trial| trial.outcome.is_ok();
        self.trials.iter().filter(works).map(|trial| trial.event.clone()).collect()
    }

    /// The events that do not, by name, and why.
    pub fn refused(&self) -> impl Iterator<Item = (String, Missing)> {
        self.trials.iter().filter_map(|trial| Some((trial.event.name.clone(), trial.outcome.clone().err()?)))
    }
}

fn sources(root: &Path) -> Fact<Vec<String>> {
    let dir = root.join("sys/bus/event_source/devices");
    let read = || -> std::io::Result<Vec<String>> {
        let mut names: Vec<String> = fs::read_dir(&dir)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<std::io::Result<_>>()?;
        names.sort_unstable();
        Ok(names)
    };
    read().map_err(|error| format!("{}: {error}", dir.display())).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_without_the_bus_says_so() {
        let facts = PmuFacts::read(Path::new("/nonexistent"), &[]);
        assert!(matches!(facts.sources, Fact::Unknown { unknown } if unknown.contains("event_source")));
    }
}
