//! Amounts of rows of tasks, added up: of programs and of containers.

use crate::metric::amounts::row::{Counted, Row, RowNow, families};
use crate::metric::amounts::{NS, Number};
use crate::metric::events;
use crate::metric::located::Located;
use crate::snapshot::{Snapshot, Task};

use super::top::Sum;

/// Amounts of a row: CPU time by node, and each amount as far as it was ever known.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sums {
    pub cpu_s_by_node: Vec<f64>,
    /// In the order of [`families`].
    pub amounts: Vec<Option<f64>>,
    /// Events that were asked for by name, in their order.
    pub events: Vec<Option<f64>>,
}

impl Sums {
    /// The amounts of a task in the interval, with its time for which the place of memory is known.
    pub(super) fn of(task: &Task, located: Option<Located>, snapshot: &Snapshot, counted: &Counted) -> Sums {
        let now = RowNow { row: Row::Task(task), snapshot, counted, located };
        let amounts = families()
            .map(|(amount, family)| amount.value(now).map(Number::as_f64).map(|value| value * family.factor));
        Sums {
            cpu_s_by_node: task.delta.run_ns.iter().map(|ns| *ns as f64 * NS).collect(),
            amounts: amounts.collect(),
            events: snapshot.host.asked.iter().map(|name| events::count(name, task, snapshot).ok()).collect(),
        }
    }
}

impl Sum for Sums {
    fn add(&mut self, other: &Sums) {
        if self.cpu_s_by_node.len() < other.cpu_s_by_node.len() {
            self.cpu_s_by_node.resize(other.cpu_s_by_node.len(), 0.0);
        }
        for (mine, theirs) in self.cpu_s_by_node.iter_mut().zip(&other.cpu_s_by_node) {
            *mine += theirs;
        }
        for (mine, theirs) in [(&mut self.amounts, &other.amounts), (&mut self.events, &other.events)] {
            if mine.len() < theirs.len() {
                mine.resize(theirs.len(), None);
            }
            for (mine, theirs) in mine.iter_mut().zip(theirs) {
                if let Some(theirs) = theirs {
                    *mine.get_or_insert(0.0) += theirs;
                }
            }
        }
    }

    fn weight(&self) -> f64 {
        self.amounts.first().copied().flatten().unwrap_or(0.0)
    }
}
