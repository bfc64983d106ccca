//! Columns of events that a user named: one metric for each name, made when it is first asked for; and the ages of the counts
//! of events that are open in turns. Pure.
//!
//! A metric is a constant with functions, so that the name of an event is found by the number of its column.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::OnceLock;
use std::time::Duration;

use super::over::Over;
use super::{Group, Metric, Order, Traits, Unit, Value, counters, no};
use crate::model::event::Event;
use crate::model::sample::{HostFacts, Reading};
use crate::model::wire::SLOTS;
use crate::snapshot::{Snapshot, Task};

/// Columns of one run: twice as many as events can be counted, as the names of a list may be refused.
const MOST: usize = 2 * SLOTS;

/// Cells of a title; a longer name is cut in its middle.
const TITLE: usize = 14;

static METRICS: [OnceLock<Metric<Task>>; MOST] = [const { OnceLock::new() }; MOST];

/// The column of the event with this name: how often it happened per second in the interval. `None` where a run has
/// [as many](MOST) already.
pub fn column(name: &str) -> Option<&'static Metric<Task>> {
    let find = |at: usize| {
        let metric = METRICS[at].get_or_init(|| metric(name.to_owned(), VALUES[at]));
        (metric.id == name).then_some(metric)
    };
    (0..MOST).find_map(find)
}

/// The columns of the events that were asked for by name.
pub fn asked(host: &HostFacts) -> impl Iterator<Item = &'static Metric<Task>> + '_ {
    host.asked.iter().filter_map(|name| column(name))
}

fn metric(name: String, value: fn(&Task, &Snapshot) -> Reading<Value>) -> Metric<Task> {
    // They live as long as the columns, which are as many as there are places for.
    let title: &'static str = Box::leak(title(&name).into_boxed_str());
    Metric {
        id: Box::leak(name.into_boxed_str()),
        title,
        width: title.chars().count().max(7) as u16,
        group: Group::Efficiency,
        unit: Unit::PerSecond,
        order: Order::Descending,
        help: "Events of this name per second in the interval.",
        value,
        over: Over::Time,
        traits: Traits::NONE,
    }
}

/// The name, or its ends, with a dot in place of the omitted part.
fn title(name: &str) -> String {
    let chars: Vec<char> = name.chars().collect();
    if chars.len() <= TITLE {
        return name.to_owned();
    }
    let (head, tail) = (TITLE / 2, TITLE - TITLE / 2 - 2);
    chars[..head].iter().chain(&['.', '.']).chain(&chars[chars.len() - tail..]).collect()
}

const VALUES: [fn(&Task, &Snapshot) -> Reading<Value>; MOST] = [
    value::<0>,
    value::<1>,
    value::<2>,
    value::<3>,
    value::<4>,
    value::<5>,
    value::<6>,
    value::<7>,
    value::<8>,
    value::<9>,
    value::<10>,
    value::<11>,
    value::<12>,
    value::<13>,
    value::<14>,
    value::<15>,
];

fn value<const AT: usize>(task: &Task, snapshot: &Snapshot) -> Reading<Value> {
    let name = METRICS[AT].get().map_or("", |metric| metric.id);
    snapshot.rate_f64(count(name, task, snapshot)?).map(Value::F64)
}

/// The count of the event with this name in the interval.
///
/// # Errors
/// It is not counted here, or not in this interval.
pub fn count(name: &str, task: &Task, snapshot: &Snapshot) -> Reading<f64> {
    match snapshot.host.events.iter().position(|event| event.name == name) {
        Some(slot) => counters::slot(&task.delta.slots, snapshot, slot),
        None => Err(no("its counter was not requested (--events)")),
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_keeps_its_ends() {
        assert_eq!(title("page-faults"), "page-faults");
        assert_eq!(title("stalled-cycles-frontend"), "stalled..ntend");
    }

    #[test]
    fn a_name_has_one_column_and_its_title_is_the_name() {
        let first = column("page-faults").unwrap();
        assert!(std::ptr::eq(first, column("page-faults").unwrap()));
        assert_eq!((first.id, first.title, first.width), ("page-faults", "page-faults", 11));
    }
}
