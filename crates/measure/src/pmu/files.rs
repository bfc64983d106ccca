//! Files that counters take: an open event is a descriptor on each CPU. Pure.

use crate::model::event::Event;
use crate::model::sample::Missing;
use crate::model::units::CpuId;

/// Files that are open beside those of counters, with room: programs, maps, files of /proc and of cgroups, helpers.
pub const OTHERS: u64 = 256;

/// Files needed for `events` events on `cpus` CPUs, including all others.
pub fn needed(events: u64, cpus: u64) -> u64 {
    events.saturating_mul(cpus).saturating_add(OTHERS)
}

/// Events for which `limit` leaves no room on these CPUs, and the reason, ready to be shown. Room goes to the
/// first events, on all CPUs: half of the CPUs of an event would give half its count. `None` is no limit.
pub fn without_room(events: &[Event], cpus: &[CpuId], limit: Option<u64>) -> Vec<(String, Missing)> {
    let Some(limit) = limit else { return Vec::new() };
    let files = |event: &Event| cpus.iter().filter(|cpu| event.is_on(**cpu)).count() as u64;
    let all = events.iter().map(files).sum::<u64>() + OTHERS;
    let mut taken = OTHERS;
    let mut refused = Vec::new();
    for event in events {
        let more = files(event);
        if taken + more <= limit {
            taken += more;
            continue;
        }
        let why = format!(
            "{} is not counted: it needs an open file on each of {more} CPUs, and this process may open no \
             more than {limit}; all events need {all} (ulimit -n {all}, or LimitNOFILE={all} in the unit \
             of a service)",
            event.name
        );
        refused.push((event.name.clone(), Missing::NotPermitted(why)));
    }
    refused
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(events: &[&str], cpus: u32, limit: Option<u64>) -> Vec<(String, Missing)> {
        let events: Vec<Event> = events.iter().map(|name| Event::named(name).unwrap()).collect();
        let cpus: Vec<CpuId> = (0..cpus).map(CpuId).collect();
        without_room(&events, &cpus, limit)
    }

    const EVENTS: [&str; 4] = ["cycles", "instructions", "branches", "cache-misses"];

    #[test]
    fn whole_events_are_left_out_the_last_ones_first() {
        let names = |limit| -> Vec<String> {
            refused(&EVENTS, 1024, limit).into_iter().map(|(name, _)| name).collect()
        };
        assert!(names(None).is_empty() && names(Some(needed(4, 1024))).is_empty());
        assert_eq!(names(Some(needed(4, 1024) - 1)), ["cache-misses"]);
        assert_eq!(names(Some(needed(2, 1024) + 1000)), ["branches", "cache-misses"]);
        assert_eq!(names(Some(1024)), EVENTS);
    }

    #[test]
    fn the_reason_says_how_many_and_what_to_type() {
        let (_, why) = refused(&EVENTS, 1024, Some(4096)).pop().unwrap();
        let why = why.to_string();
        for word in
            ["cache-misses", "each of 1024 CPUs", "no more than 4096", "ulimit -n 4352", "LimitNOFILE=4352"]
        {
            assert!(why.contains(word), "'{word}' is not in: {why}");
        }
    }

    #[test]
    fn the_limit_of_a_login_shell_is_enough_for_small_machines() {
        assert!(refused(&EVENTS, 64, Some(1024)).is_empty());
    }
}
