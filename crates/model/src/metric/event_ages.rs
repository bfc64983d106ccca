//! Ages of the counts of events that are open in turns. Pure.

use std::collections::HashMap;
use std::hash::Hash;
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
    /// Takes the next interval. Returns events with their ages at its end: zero for one that was open in it,
    /// `None` for one that has not been open yet. Empty if events do not take turns.
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

/// Values are kept for this time after their turn.
const KEPT: Duration = Duration::from_secs(600);

/// Values of the last turns, by row and metric. Each row has its own `K`.
#[derive(Debug)]
pub struct Held<K>(HashMap<(K, &'static str), (Value, u64)>);

impl<K> Default for Held<K> {
    fn default() -> Held<K> {
        Held(HashMap::new())
    }
}

impl<K: Eq + Hash + Copy> Held<K> {
    /// Keeps the value of a row in this interval, if it has one and events have turns. Newer values stay.
    pub fn keep<R>(&mut self, row: K, metric: &Metric<R>, of: &R, snapshot: &Snapshot) {
        let newest = |(_, open_ns): &(Value, u64)| *open_ns > snapshot.mono_ns;
        let key = (row, metric.id);
        if snapshot.host.event_turns.is_empty() || self.0.get(&key).is_some_and(newest) {
            return;
        }
        if let Ok(value) = metric.read(of, snapshot) {
            self.0.insert(key, (value, snapshot.mono_ns));
        }
    }

    /// The reading of a row in this interval, or the one of the last turn of its events with its age.
    ///
    /// # Errors
    /// As of [`Metric::read`]; none of a turn is kept.
    pub fn read<R>(
        &self,
        row: K,
        metric: &Metric<R>,
        of: &R,
        snapshot: &Snapshot,
    ) -> Reading<(Value, Duration)> {
        match metric.read(of, snapshot) {
            Err(why) if counters::waits(&why) => {
                let (value, open_ns) = self.0.get(&(row, metric.id)).ok_or_else(|| why.clone())?;
                let age_ns = snapshot.mono_ns.checked_sub(*open_ns).ok_or(why)?;
                Ok((value.clone(), Duration::from_nanos(age_ns)))
            }
            reading => reading.map(|value| (value, Duration::ZERO)),
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

/// The mark of a value that is from an earlier interval; empty for one of this interval.
pub fn mark(age: Duration) -> String {
    if age.is_zero() { String::new() } else { format!("@{:.0}s", age.as_secs_f64().max(1.0)) }
}
