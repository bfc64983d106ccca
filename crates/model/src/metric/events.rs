//! Columns of events that a user named: one metric for each name, made when it is first asked for.
//!
//! A metric is a constant with functions, so that the name of an event is found by the number of its column.

use std::sync::OnceLock;

use super::counters;
use super::over::Over;
use super::{Group, Metric, Order, Traits, Unit, Value, no};
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
