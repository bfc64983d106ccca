//! Counters of the demo machine: an event for each role, in the sets of `--events`.

use crate::model::demo;
use crate::model::event::{Event, Role};
use crate::model::sample::{HostFacts, Missing};
use crate::model::wire::SLOTS;
use crate::pmu::sets::{Choice, SETS};

/// The demo machine, with a PMU that counts cycles, instructions and memory accesses.
pub(super) fn host() -> HostFacts {
    let mut host = demo::facts();
    count(&mut host, &set_of("auto"));
    host
}

const EVENTS: [(&str, Role); 11] = [
    ("cycles", Role::Cycles),
    ("instructions", Role::Instructions),
    ("local-accesses", Role::Lma),
    ("remote-accesses", Role::Rma),
    ("remote-cache-hits", Role::RemoteCache),
    ("frontend-stalls", Role::StallFrontend),
    ("backend-stalls", Role::StallBackend),
    ("llc-misses", Role::Llc),
    ("dtlb-walks", Role::Dtlb),
    ("itlb-walks", Role::Itlb),
    ("branch-misses", Role::Branch),
];

/// Metrics of roles that some sets do not count, and the set that does.
const BY_ROLE: [(&str, Role, &str); 6] = [
    ("llc_mpki", Role::Llc, "cache"),
    ("branch_mpki", Role::Branch, "cache"),
    ("dtlb_mpki", Role::Dtlb, "tlb"),
    ("itlb_mpki", Role::Itlb, "tlb"),
    ("stall_frontend_pct", Role::StallFrontend, "stalls"),
    ("stall_backend_pct", Role::StallBackend, "stalls"),
];

/// All sets, and what each counts.
pub fn sets() -> Vec<(&'static str, Choice)> {
    SETS.iter().map(|(set, ..)| (*set, Choice::from(set_of(set)))).collect()
}

/// The events of a set; none of an unknown one.
pub fn set_of(set: &str) -> Vec<Event> {
    let found = SETS.iter().find(|(name, ..)| *name == set);
    let roles = found.map_or(&[][..], |(_, roles, _)| roles);
    let event = |role: &Role| {
        let (name, role) = EVENTS.iter().find(|(_, of)| of == role)?;
        Some(Event { name: (*name).into(), role: *role, ..Event::default() })
    };
    roles.iter().filter_map(event).collect()
}

/// Counts these events from now on, and no others. Each keeps its slot until no slot is left: then it takes that of an event which
/// is not counted.
pub fn count(host: &mut HostFacts, wanted: &[Event]) {
    let names: Vec<&str> = wanted.iter().map(|event| event.name.as_str()).collect();
    for event in wanted {
        let is_known = host.events.iter().any(|known| known.name == event.name);
        let free = host.events.iter().position(|known| !names.contains(&known.name.as_str()));
        match free {
            _ if is_known => {}
            Some(slot) if host.events.len() == SLOTS => host.events[slot] = event.clone(),
            _ => host.events.push(event.clone()),
        }
    }
    let not_now = Missing::NotCollected("a different set of events is counted now (key E)".into());
    let closed = host.events.iter().filter(|event| !names.contains(&event.name.as_str()));
    let closed = closed.map(|event| (event.name.clone(), not_now.clone()));
    let counts = |role: Role| wanted.iter().any(|event| event.role == role);
    let metrics = BY_ROLE.iter().filter(|(_, role, _)| !counts(*role)).map(|(id, _, set)| {
        let why = format!("not counted: select '{set}' with the key E, or with --events {set}");
        ((*id).to_owned(), Missing::NotCollected(why))
    });
    host.missing = closed.chain(metrics).collect();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_set_counts_its_roles_whatever_was_counted_before() {
        let mut host = host();
        for (set, roles, _) in SETS.iter().chain(&SETS) {
            count(&mut host, &set_of(set));
            assert!(host.events.len() <= SLOTS);
            let open = |slot: usize| !host.missing.contains_key(&host.events[slot].name);
            assert!(roles.iter().all(|role| host.slots(*role).any(open)), "{set}: {:?}", host.events);
            let closed = (0..host.events.len()).filter(|slot| !open(*slot)).count();
            assert_eq!(host.events.len() - closed, roles.len(), "{set}");
        }
    }
}
