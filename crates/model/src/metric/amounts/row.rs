//! Amounts of tasks and of containers.

use super::{NS, Number, events};
use crate::metric::located::Located;
use crate::metric::{accelerators, counted, placement, sockets};
use crate::model::counters::{COUNTERS, Counter, NR_COUNTERS};
use crate::model::event::Role;
use crate::model::sockets::SocketSums;
use crate::snapshot::{Container, Snapshot, Task};

/// A task, a sum of tasks, or a container in an interval.
#[derive(Clone, Copy)]
pub struct RowNow<'a> {
    pub row: Row<'a>,
    pub snapshot: &'a Snapshot,
    /// Of the host of the snapshot.
    pub counted: &'a Counted,
    /// CPU time for which the place of its memory is known.
    pub located: Option<Located>,
}

/// The owner of an amount.
#[derive(Clone, Copy)]
pub enum Row<'a> {
    Task(&'a Task),
    Container(&'a Container),
}

/// The counters that a host counts, found once for all rows.
pub struct Counted([bool; NR_COUNTERS]);

impl Counted {
    /// The counters of the host of a snapshot.
    pub fn of(snapshot: &Snapshot) -> Counted {
        Counted(std::array::from_fn(|at| {
            counted::missing(COUNTERS[at].counter, &snapshot.host.missing).is_none()
        }))
    }

    /// The count of a task or of a sum of tasks; `None` where it was not counted.
    pub fn count(&self, task: &Task, counter: Counter) -> Option<u64> {
        self.0[counter as usize].then(|| task.delta[counter])
    }
}

impl<'a> RowNow<'a> {
    /// The task, or the sum of the tasks of the container.
    fn task(self) -> &'a Task {
        match self.row {
            Row::Task(task) => task,
            Row::Container(container) => &container.sum,
        }
    }
}

fn run_ns(now: RowNow<'_>) -> Option<Number> {
    Some(Number::Whole(now.task().run_ns()))
}

fn located_ns(now: RowNow<'_>) -> Option<Number> {
    now.located.map(|located| Number::Scaled(located.run_ns))
}

fn remote_ns(now: RowNow<'_>) -> Option<Number> {
    now.located.map(|located| Number::Scaled(located.remote_ns))
}

/// The least part of its located time that moving could make remote, ns.
fn remote_best_ns(now: RowNow<'_>) -> Option<Number> {
    let located = now.located?;
    let snapshot = now.snapshot;
    let best = match now.row {
        Row::Task(task) => placement::REMOTE_BEST_PCT.read(task, snapshot),
        Row::Container(row) => placement::CONTAINER_REMOTE_BEST_PCT.read(row, snapshot),
    };
    let best = best.ok()?.number()?;
    Some(Number::Scaled((best / 100.0 * located.run_ns).min(located.remote_ns)))
}

/// Traffic of IP sockets; not of threads.
fn sockets(now: RowNow<'_>, of: fn(&SocketSums) -> u64) -> Option<Number> {
    let sums = match now.row {
        Row::Task(task) => {
            sockets::RECEIVED.read(task, now.snapshot).ok()?;
            sockets::sums(task, now.snapshot).ok()?
        }
        Row::Container(row) => {
            sockets::CONTAINER_RECEIVED.read(row, now.snapshot).ok()?;
            row.sockets
        }
    };
    Some(Number::Whole(of(&sums)))
}

/// Throttled time of the interval, ns. Files of groups are read in turns: the time between two readings is
/// spread over the intervals that it covers.
fn throttled_ns(now: RowNow<'_>) -> Option<Number> {
    let Row::Container(row) = now.row else { return None };
    let raw = row.raw.as_deref()?;
    let (then, before) = raw.throttled_before?;
    let over = raw.read_ns.checked_sub(then).filter(|over| *over > 0)?;
    let throttled = raw.throttled_ns.as_ref().ok()?.saturating_sub(before);
    let interval_ns = now.snapshot.interval_ns?;
    Some(Number::Scaled(throttled as f64 * interval_ns as f64 / over as f64))
}

/// Time on other nodes than those of the accelerators that are held, ns.
fn accelerator_far_ns(now: RowNow<'_>) -> Option<Number> {
    let far = match now.row {
        Row::Task(task) => accelerators::far_ns(task, now.snapshot),
        Row::Container(row) => accelerators::container_far_ns(row),
    };
    far.ok().map(Number::Whole)
}

/// An amount of tasks or of containers in an interval.
#[derive(Clone, Copy)]
pub struct RowAmount {
    /// Its column in tables.
    pub column: &'static str,
    /// Tables that have the column.
    tables: Tables,
    value: Value,
    /// Its series in the exporter.
    pub family: Option<RowFamily>,
}

/// Tables of rows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tables {
    Tasks,
    Containers,
    Both,
}

#[derive(Clone, Copy)]
enum Value {
    Counter(Counter),
    Events(Role),
    Of(for<'a> fn(RowNow<'a>) -> Option<Number>),
}

/// Families of series, which are counters.
#[derive(Clone, Copy)]
pub struct RowFamily {
    /// Of containers, without `_total`.
    pub container: &'static str,
    /// Of programs; `None`: they have none.
    pub program: Option<&'static str>,
    pub help: &'static str,
    /// The amount times this is the value.
    pub factor: f64,
}

const fn amount(tables: Tables, column: &'static str, value: Value) -> RowAmount {
    RowAmount { column, tables, value, family: None }
}

const fn both(column: &'static str, value: Value) -> RowAmount {
    amount(Tables::Both, column, value)
}

const fn tasks(column: &'static str, value: Value) -> RowAmount {
    amount(Tables::Tasks, column, value)
}

impl RowAmount {
    const fn of_programs(
        self,
        container: &'static str,
        program: &'static str,
        factor: f64,
        help: &'static str,
    ) -> RowAmount {
        RowAmount { family: Some(RowFamily { container, program: Some(program), help, factor }), ..self }
    }

    const fn of_containers(self, container: &'static str, help: &'static str) -> RowAmount {
        RowAmount { family: Some(RowFamily { container, program: None, help, factor: 1.0 }), ..self }
    }

    /// In the interval; `None` where it is not known.
    pub fn value(&self, now: RowNow<'_>) -> Option<Number> {
        match self.value {
            Value::Counter(counter) => now.counted.count(now.task(), counter).map(Number::Whole),
            Value::Events(role) => events(&now.task().delta.slots, now.snapshot, role).map(Number::Scaled),
            Value::Of(of) => of(now),
        }
    }

    /// It is in the table of tasks.
    pub fn is_of_tasks(&self) -> bool {
        self.tables != Tables::Containers
    }

    /// It is in the table of containers.
    pub fn is_of_containers(&self) -> bool {
        self.tables != Tables::Tasks
    }
}

use Value::{Events, Of};

/// All of them but counters without a line ([`others`]), in the order of columns and of families.
pub static ROW_AMOUNTS: &[RowAmount] = &[
    both("cpu_ns", Of(run_ns)).of_programs(
        "numatop_container_cpu_seconds",
        "numatop_program_cpu_seconds",
        NS,
        "CPU time of its tasks.",
    ),
    both("wait_ns", Value::Counter(Counter::RunDelayNs)).of_programs(
        "numatop_container_runqueue_wait_seconds",
        "numatop_program_runqueue_wait_seconds",
        NS,
        "Time its runnable tasks waited for a CPU.",
    ),
    amount(Tables::Containers, "throttled_ns", Of(throttled_ns)),
    tasks("dispatches", Value::Counter(Counter::RunCount)),
    tasks("voluntary", Value::Counter(Counter::Nvcsw)),
    tasks("involuntary", Value::Counter(Counter::Nivcsw)),
    tasks("cpu_moves", Value::Counter(Counter::CpuMigrations)),
    tasks("llc_moves", Value::Counter(Counter::LlcMoves)),
    both("node_moves", Value::Counter(Counter::NodeMoves))
        .of_containers("numatop_container_node_migrations", "Moves of its tasks between nodes."),
    tasks("smt_busy_ns", Value::Counter(Counter::SmtBusyNs)),
    both("cycles", Events(Role::Cycles)).of_programs(
        "numatop_container_cycles",
        "numatop_program_cycles",
        1.0,
        "CPU cycles of its tasks.",
    ),
    both("instructions", Events(Role::Instructions)).of_programs(
        "numatop_container_instructions",
        "numatop_program_instructions",
        1.0,
        "Instructions of its tasks.",
    ),
    both("lma", Events(Role::Lma)),
    both("rma", Events(Role::Rma)),
    tasks("stall_frontend", Events(Role::StallFrontend)),
    tasks("stall_backend", Events(Role::StallBackend)),
    tasks("llc_misses", Events(Role::Llc)),
    both("located_ns", Of(located_ns)).of_programs(
        "numatop_container_located_cpu_seconds",
        "numatop_program_located_cpu_seconds",
        NS,
        "CPU time of tasks whose memory is located.",
    ),
    both("remote_ns", Of(remote_ns)).of_programs(
        "numatop_container_remote_cpu_seconds",
        "numatop_program_remote_cpu_seconds",
        NS,
        "CPU time of tasks whose memory is located, times the share of it on other nodes.",
    ),
    both("remote_best_ns", Of(remote_best_ns)),
    tasks("minor_faults", Value::Counter(Counter::MinFlt))
        .of_containers("numatop_container_minor_faults", "Minor page faults: without a disk read."),
    tasks("major_faults", Value::Counter(Counter::MajFlt))
        .of_containers("numatop_container_major_faults", "Major page faults: with a disk read."),
    tasks("allocs", Value::Counter(Counter::UserAllocs)),
    tasks("cross_allocs", Value::Counter(Counter::CrossAllocs)),
    both("pages_migrated", Value::Counter(Counter::MigratedPages)).of_containers(
        "numatop_container_pages_migrated",
        "Pages that were moved between nodes while its tasks ran, by them or for them.",
    ),
    tasks("pages_balanced", Value::Counter(Counter::BalancedPages)),
    tasks("pages_asked", Value::Counter(Counter::AskedPages)),
    tasks("hint_faults", Value::Counter(Counter::HintFaults)),
    tasks("hint_remote", Value::Counter(Counter::HintRemote)),
    tasks("balancing_ns", Value::Counter(Counter::BalancingNs)),
    both("accelerator_far_ns", Of(accelerator_far_ns)),
    both("net_recv_bytes", Of(|now| sockets(now, |sums| sums.all.received))).of_containers(
        "numatop_container_net_receive_bytes",
        "Bytes that its processes received from IP sockets, without loopback.",
    ),
    both("net_reads", Of(|now| sockets(now, |sums| sums.all.reads))),
    both("net_sent_bytes", Of(|now| sockets(now, |sums| sums.all.sent))).of_containers(
        "numatop_container_net_send_bytes",
        "Bytes that its processes sent to IP sockets, without loopback.",
    ),
    both("net_known_bytes", Of(|now| sockets(now, |sums| sums.known))),
    both("net_far_bytes", Of(|now| sockets(now, |sums| sums.far))).of_containers(
        "numatop_container_net_far_receive_bytes",
        "Bytes received whose packets were processed on another node than that of the reader.",
    ),
];

/// Counters of tasks without a line in [`ROW_AMOUNTS`], under the names that they have in recordings.
pub fn others() -> impl Iterator<Item = RowAmount> {
    let has_line = |counter: Counter| {
        ROW_AMOUNTS.iter().any(|amount| matches!(amount.value, Value::Counter(own) if own == counter))
    };
    let others = COUNTERS.iter().filter(move |info| !has_line(info.counter));
    others.map(|info| tasks(info.name, Value::Counter(info.counter)))
}

/// The amounts with families in the exporter. CPU time is the first.
pub fn families() -> impl Iterator<Item = (&'static RowAmount, RowFamily)> {
    ROW_AMOUNTS.iter().filter_map(|amount| Some((amount, amount.family?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_counter_has_one_column() {
        let mut columns: Vec<&str> = ROW_AMOUNTS
            .iter()
            .map(|amount| amount.column)
            .chain(others().map(|other| other.column))
            .collect();
        columns.sort_unstable();
        assert!(columns.windows(2).all(|two| two[0] != two[1]), "{columns:?}");
        let counters = ROW_AMOUNTS.iter().copied().chain(others());
        let counters = counters.filter(|amount| matches!(amount.value, Value::Counter(_)));
        assert_eq!(counters.count(), NR_COUNTERS);
    }

    #[test]
    fn time_on_cpus_ranks_rows() {
        assert_eq!(families().next().unwrap().0.column, "cpu_ns");
    }
}
