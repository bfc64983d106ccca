//! Which counters can be named, and what each of them counts.
//!
//! Only what every kernel names itself: the generic hardware events and the software events of
//! perf_event_open(2). Events of one CPU model come from tables and are another matter.

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

/// What a counter is good for besides being shown under its own name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Core cycles while not halted, user and kernel.
    Cycles,
    /// Retired instructions, user and kernel.
    Instructions,
    /// Shown by name only.
    Other,
}

/// What one counter slot counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    pub name: String,
    /// `perf_event_attr.type`.
    pub kind: u32,
    /// `perf_event_attr.config`.
    pub config: u64,
    pub role: Role,
}

const HARDWARE: u32 = 0;
const SOFTWARE: u32 = 1;

/// Name, type, config, role; numbers from include/uapi/linux/perf_event.h.
const NAMED: &[(&str, u32, u64, Role)] = &[
    ("cycles", HARDWARE, 0, Role::Cycles),
    ("instructions", HARDWARE, 1, Role::Instructions),
    ("cache-references", HARDWARE, 2, Role::Other),
    ("cache-misses", HARDWARE, 3, Role::Other),
    ("branches", HARDWARE, 4, Role::Other),
    ("branch-misses", HARDWARE, 5, Role::Other),
    ("cpu-clock", SOFTWARE, 0, Role::Other),
    ("task-clock", SOFTWARE, 1, Role::Other),
    ("page-faults", SOFTWARE, 2, Role::Other),
    ("context-switches", SOFTWARE, 3, Role::Other),
    ("cpu-migrations", SOFTWARE, 4, Role::Other),
    ("minor-faults", SOFTWARE, 5, Role::Other),
    ("major-faults", SOFTWARE, 6, Role::Other),
];

impl Event {
    /// True for events that the kernel counts itself and that work without a PMU.
    pub fn is_software(&self) -> bool {
        self.kind == SOFTWARE
    }

    /// Every event that can be named.
    pub fn all() -> Vec<Event> {
        NAMED
            .iter()
            .map(|&(name, kind, config, role)| Event { name: name.into(), kind, config, role })
            .collect()
    }

    /// The event called `name` (as in perf-list(1)).
    ///
    /// # Errors
    /// Lists the known names.
    pub fn named(name: &str) -> Result<Event> {
        match Event::all().into_iter().find(|event| event.name == name) {
            Some(event) => Ok(event),
            None => {
                let known: Vec<&str> = NAMED.iter().map(|(name, ..)| *name).collect();
                bail!("unknown event '{name}'; known: {}", known.join(", "))
            }
        }
    }

    /// The events of `list`, names separated by commas; `basic` stands for cycles and instructions.
    ///
    /// # Errors
    /// Unknown names, a name given twice, more than [`super::open::SLOTS`] events.
    pub fn parse_list(list: &str) -> Result<Vec<Event>> {
        let mut events: Vec<Event> = Vec::new();
        for word in list.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let names: &[&str] = if word == "basic" { &["cycles", "instructions"] } else { &[word] };
            for name in names {
                let event = Event::named(name)?;
                if events.contains(&event) {
                    bail!("event '{name}' is named twice");
                }
                events.push(event);
            }
        }
        if events.len() > super::open::SLOTS {
            bail!("{} events, but only {} can be read at a context switch", events.len(), super::open::SLOTS);
        }
        Ok(events)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn basic_is_what_ipc_needs() {
        let events = Event::parse_list("basic").unwrap();
        assert_eq!(
            events.iter().map(|event| event.role).collect::<Vec<_>>(),
            [Role::Cycles, Role::Instructions]
        );
    }

    #[test]
    fn names_mix_with_sets() {
        let events = Event::parse_list("basic, page-faults").unwrap();
        assert_eq!(events[2].name, "page-faults");
        assert!(events[2].is_software());
    }

    #[test]
    fn mistakes_are_named() {
        assert!(Event::parse_list("cyclse").unwrap_err().to_string().contains("'cyclse'"));
        assert!(Event::parse_list("cycles,basic").unwrap_err().to_string().contains("twice"));
        let nine = NAMED.iter().take(9).map(|(name, ..)| *name).collect::<Vec<_>>().join(",");
        assert!(Event::parse_list(&nine).unwrap_err().to_string().contains('9'));
    }
}
