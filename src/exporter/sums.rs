//! Amounts that rows of tasks add up to: one table, for programs and for containers.

use crate::metric::located::Located;
use crate::metric::{counters, events};
use crate::model::counters::Counter;
use crate::model::event::Role;
use crate::snapshot::{Snapshot, Task};

use super::top::Sum;

/// An amount of an interval that only goes up.
pub(super) struct Amount {
    /// Families of containers and of programs, without `_total`; `None`: programs have none.
    pub container: &'static str,
    pub program: Option<&'static str>,
    pub help: &'static str,
    /// The amount of a task in the interval; `None` where that is not known.
    of: fn(&Interval) -> Option<f64>,
}

/// The interval of a task.
struct Interval<'a> {
    task: &'a Task,
    snapshot: &'a Snapshot,
    /// `None` where it is not known where its memory is.
    located: Option<Located>,
}

impl Interval<'_> {
    fn cpu_s(&self) -> f64 {
        self.task.run_ns() as f64 * NS
    }

    fn scalar(&self, counter: Counter) -> Option<f64> {
        Some(self.task.delta.scalars[counter] as f64)
    }

    fn counted(&self, role: Role) -> Option<f64> {
        if self.task.run_ns() == 0 {
            return None;
        }
        counters::count(&self.task.delta.slots, self.snapshot, role).ok()
    }
}

/// Seconds of a number of nanoseconds.
pub(super) const NS: f64 = 1e-9;

/// All amounts. CPU time is the first.
pub(super) const AMOUNTS: [Amount; 10] = [
    Amount {
        container: "numatop_container_cpu_seconds",
        program: Some("numatop_program_cpu_seconds"),
        help: "CPU time of its tasks.",
        of: |interval| Some(interval.cpu_s()),
    },
    Amount {
        container: "numatop_container_located_cpu_seconds",
        program: Some("numatop_program_located_cpu_seconds"),
        help: "CPU time of tasks whose memory is located.",
        of: |interval| interval.located.map(|located| located.run_ns * NS),
    },
    Amount {
        container: "numatop_container_remote_cpu_seconds",
        program: Some("numatop_program_remote_cpu_seconds"),
        help: "Part of the located CPU time that uses memory of other nodes.",
        of: |interval| interval.located.map(|located| located.remote_ns * NS),
    },
    Amount {
        container: "numatop_container_runqueue_wait_seconds",
        program: Some("numatop_program_runqueue_wait_seconds"),
        help: "Time its runnable tasks waited for a CPU.",
        of: |interval| interval.scalar(Counter::RunDelayNs).map(|ns| ns * NS),
    },
    Amount {
        container: "numatop_container_cycles",
        program: Some("numatop_program_cycles"),
        help: "CPU cycles of its tasks.",
        of: |interval| interval.counted(Role::Cycles),
    },
    Amount {
        container: "numatop_container_instructions",
        program: Some("numatop_program_instructions"),
        help: "Instructions of its tasks.",
        of: |interval| interval.counted(Role::Instructions),
    },
    Amount {
        container: "numatop_container_node_migrations",
        program: None,
        help: "Moves of its tasks between nodes.",
        of: |interval| interval.scalar(Counter::NodeMoves),
    },
    Amount {
        container: "numatop_container_pages_migrated",
        program: None,
        help: "Pages that were moved between nodes while its tasks ran, by them or for them.",
        of: |interval| interval.scalar(Counter::MigratedPages),
    },
    Amount {
        container: "numatop_container_minor_faults",
        program: None,
        help: "Minor page faults: without a disk read.",
        of: |interval| interval.scalar(Counter::MinFlt),
    },
    Amount {
        container: "numatop_container_major_faults",
        program: None,
        help: "Major page faults: with a disk read.",
        of: |interval| interval.scalar(Counter::MajFlt),
    },
];

/// Amounts of a row: CPU time by node, and each amount as far as it was ever known.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sums {
    pub cpu_s_by_node: Vec<f64>,
    pub amounts: [Option<f64>; AMOUNTS.len()],
    /// Events that were asked for by name, in their order.
    pub events: Vec<Option<f64>>,
}

impl Sums {
    /// The amounts of a task in the interval, with its time for which the place of memory is known.
    pub(super) fn of(task: &Task, located: Option<Located>, snapshot: &Snapshot) -> Sums {
        let mut sums = Sums {
            cpu_s_by_node: task.delta.run_ns.iter().map(|ns| *ns as f64 * NS).collect(),
            events: snapshot.host.asked.iter().map(|name| events::count(name, task, snapshot).ok()).collect(),
            ..Sums::default()
        };
        let interval = Interval { task, snapshot, located };
        for (sum, amount) in sums.amounts.iter_mut().zip(&AMOUNTS) {
            *sum = (amount.of)(&interval);
        }
        sums
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
        if self.events.len() < other.events.len() {
            self.events.resize(other.events.len(), None);
        }
        let mine = self.amounts.iter_mut().chain(&mut self.events);
        for (mine, theirs) in mine.zip(other.amounts.iter().chain(&other.events)) {
            if let Some(theirs) = theirs {
                *mine.get_or_insert(0.0) += theirs;
            }
        }
    }

    fn weight(&self) -> f64 {
        self.amounts[0].unwrap_or(0.0)
    }
}
