//! Ages of the counts of events that are open in turns. Pure.

use std::collections::HashMap;
use std::time::Duration;

use super::{Metric, Value, counters};
use crate::model::event::Event;
use crate::model::sample::Reading;
use crate::model::wire::SLOTS;
use crate::snapshot::Snapshot;

/// The ends of the last intervals in which events were open.
#[derive(Debug, Default)]
pub struct EventAges {
    open_ns: [Option<u64>; SLOTS],
}

impl EventAges {
    /// Takes the next interval. Returns events with their ages at its end: zero where one was open in it, `None` where it was not
    /// open yet. There are none where events have no turns.
    pub fn take<'a>(&mut self, snapshot: &'a Snapshot) -> Vec<(&'a Event, Option<Duration>)> {
        if snapshot.host.event_turns.is_empty() {
            return Vec::new();
        }
        let events = snapshot.host.events.iter().zip(&mut self.open_ns).enumerate();
        let age = |(at, (event, open_ns)): (usize, (&'a Event, &mut Option<u64>))| {
            if counters::has_turn(snapshot, at) {
                *open_ns = Some(snapshot.mono_ns);
            }
            (event, open_ns.map(|open| Duration::from_nanos(snapshot.mono_ns.saturating_sub(open))))
        };
        events.map(age).collect()
    }
}

/// Values are kept for so long after their turn.
const KEPT: Duration = Duration::from_secs(600);

/// Values of the last turns, by row and metric.
#[derive(Debug, Default)]
pub struct Held(HashMap<(u64, &'static str), (Value, u64)>);

impl Held {
    /// The reading of a row in this interval, or the one of the last turn of its events with its age. `row` is a number that no
    /// other row has.
    ///
    /// # Errors
    /// As of [`Metric::read`]; there is none of a turn.
    pub fn read<R>(
        &mut self,
        row: u64,
        metric: &Metric<R>,
        of: &R,
        snapshot: &Snapshot,
    ) -> Reading<(Value, Duration)> {
        let reading = metric.read(of, snapshot);
        if snapshot.host.event_turns.is_empty() {
            return reading.map(|value| (value, Duration::ZERO));
        }
        let key = (row, metric.id);
        match reading {
            Ok(value) => {
                self.0.insert(key, (value.clone(), snapshot.mono_ns));
                Ok((value, Duration::ZERO))
            }
            Err(why) if counters::waits(&why) => {
                let (value, open_ns) = self.0.get(&key).ok_or(why)?;
                let age = Duration::from_nanos(snapshot.mono_ns.saturating_sub(*open_ns));
                Ok((value.clone(), age))
            }
            Err(why) => Err(why),
        }
    }

    /// Called after each interval: forgets values that are old.
    pub fn forget(&mut self, snapshot: &Snapshot) {
        let kept_ns = KEPT.as_nanos() as u64;
        self.0.retain(|_, (_, open_ns)| snapshot.mono_ns.saturating_sub(*open_ns) < kept_ns);
    }
}

/// The ages in words: the events that were open, and the other ones with their ages.
pub fn words(ages: &[(&Event, Option<Duration>)]) -> String {
    let mut groups: Vec<(Option<Duration>, Vec<&str>)> = Vec::new();
    for (event, age) in ages {
        match groups.iter_mut().find(|(known, _)| known == age) {
            Some((_, names)) => names.push(&event.name),
            None => groups.push((*age, vec![&event.name])),
        }
    }
    // Events that were not open yet come last.
    groups.sort_by_key(|(age, _)| age.unwrap_or(Duration::MAX));
    let group = |(age, names): &(Option<Duration>, Vec<&str>)| {
        let names = names.join(", ");
        match age {
            Some(Duration::ZERO) => names,
            Some(age) => format!("{:.1} s ago: {names}", age.as_secs_f64()),
            None => format!("not yet: {names}"),
        }
    };
    groups.iter().map(group).collect::<Vec<_>>().join("; ")
}
