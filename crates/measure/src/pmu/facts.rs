//! Performance counters that this machine offers, and whether they count.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::host::fact::{self, Fact};
use crate::model::event::TableInUse;
use crate::model::event::{Event, Role};
use crate::model::sample::{Missing, Reading};
use crate::pmu::open::try_event;
use crate::pmu::sets::Choice;

/// The PMUs the kernel knows, and how the wanted events did when they were tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PmuFacts {
    /// Names below /sys/bus/event_source/devices, sorted. Some are no hardware: software, tracepoint, …
    pub sources: Fact<Vec<String>>,
    /// The maker of the machine, virtual ones included: "Google", "Amazon EC2", "QEMU", … (DMI).
    pub platform: Fact<String>,
    /// Where the meaning of events is from: one for each kind of core.
    pub tables: Vec<TableInUse>,
    pub trials: Vec<Trial>,
    /// Roles that were asked for and have no event here.
    pub absent: BTreeMap<Role, Missing>,
    /// Events requested by name that do not exist here.
    pub unknown: BTreeMap<String, Missing>,
}

/// One event opened on this thread and let count for a moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Trial {
    pub event: Event,
    pub outcome: Reading<()>,
}

impl PmuFacts {
    /// Lists the PMUs below `root` and tries the events of `choice` on the running kernel.
    pub fn read(root: &Path, choice: &Choice) -> PmuFacts {
        let trial = |event: &Event| Trial { event: event.clone(), outcome: try_event(event) };
        PmuFacts {
            sources: sources(root),
            platform: fact::text(root, "sys/class/dmi/id/sys_vendor").into(),
            tables: choice.tables.clone(),
            trials: choice.events.iter().map(trial).collect(),
            absent: choice.absent.clone(),
            unknown: choice.refused.clone(),
        }
    }

    /// Takes a choice whose events were tried already, while nothing else was open.
    pub fn choose(&mut self, choice: &Choice) {
        self.trials =
            choice.events.iter().map(|event| Trial { event: event.clone(), outcome: Ok(()) }).collect();
        self.absent.clone_from(&choice.absent);
        self.unknown.clone_from(&choice.refused);
    }

    /// The events that count.
    pub fn working(&self) -> Vec<Event> {
        let works = |trial: &&Trial| trial.outcome.is_ok();
        self.trials.iter().filter(works).map(|trial| trial.event.clone()).collect()
    }

    /// The events that do not, by name, and why.
    pub fn refused(&self) -> impl Iterator<Item = (String, Missing)> {
        let failed = |trial: &Trial| Some((trial.event.name.clone(), trial.outcome.clone().err()?));
        self.trials.iter().filter_map(failed).chain(self.unknown.clone())
    }

    /// Notes that an event that counted when it was tried could not be opened on every CPU: what the others
    /// count would be too low. Returns whether this is news.
    pub fn refuse(&mut self, event: &str, why: &Missing) -> bool {
        let mut counting =
            self.trials.iter_mut().filter(|trial| trial.event.name == event && trial.outcome.is_ok());
        match counting.next() {
            Some(trial) => {
                trial.outcome = Err(why.clone());
                true
            }
            None => false,
        }
    }

    /// The trials of the events that a role is counted with: for LMA on some CPUs those of two others.
    pub fn trials_of(&self, role: Role) -> Vec<&Trial> {
        let of = |role: Role| self.trials.iter().filter(move |trial| trial.event.role == role);
        let own: Vec<&Trial> = of(role).collect();
        if role == Role::Lma && own.is_empty() && self.tables.iter().any(|table| table.lma_is_llc_less_rma) {
            let rma: Vec<&Trial> = of(Role::Rma).collect();
            return if rma.is_empty() { rma } else { of(Role::Llc).chain(rma).collect() };
        }
        own
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
        let facts = PmuFacts::read(Path::new("/nonexistent"), &Choice::default());
        assert!(matches!(facts.sources, Fact::Unknown { unknown } if unknown.contains("event_source")));
    }
}
