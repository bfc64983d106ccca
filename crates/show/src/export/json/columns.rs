//! Columns of each kind of rows: a metric, or a key that rows of JSON alone have.

use serde_json::json;

use super::facts::Reasons;
use super::text::{self, Style};
use crate::export::access::{self, Why};
use crate::metric::access::DRAM_REMOTE_PCT;
use crate::metric::container::{self, CONTAINER_METRICS};
use crate::metric::cpu_set::{self, CPU_SET_METRICS};
use crate::metric::identity::{COMM, PID, TID};
use crate::metric::node::{self, NODE_METRICS};
use crate::metric::over::Over;
use crate::metric::{Metric, counters};
use crate::model::access::lines::{CONTENDED_LINES, OBJECTS};
use crate::snapshot::{Container, CpuSet, Node, SetKind, Snapshot, Task};

/// A column of rows of type `R`.
pub(super) struct Column<R: 'static> {
    pub id: &'static str,
    pub cell: Cell<R>,
    pub lasts: Lasts,
    /// Its value where nothing is known of any row.
    pub usual: &'static str,
}

/// The source of a column's values.
pub(super) enum Cell<R: 'static> {
    Metric(&'static Metric<R>),
    Made(fn(&R, &mut Context<'_, '_>) -> Said),
}

/// The place for a value, and what it is made from.
pub(super) struct Context<'a, 's> {
    pub out: &'a mut Vec<u8>,
    pub snapshot: &'a Snapshot,
    pub reasons: &'a mut Reasons<'s>,
    pub style: Style,
}

/// The outcome of asking for a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// It is in [`Context::out`].
    Value,
    /// There is none, and the reason is noted.
    Null,
    /// The row has no such key.
    Nothing,
}

/// The time for which a value of the short form holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lasts {
    /// It names the row, and is always written.
    Key,
    /// For one interval: it is written unless it says nothing.
    Interval,
    /// Until another one is written for the row.
    Held,
}

impl<R> Column<R> {
    fn metric(metric: &'static Metric<R>) -> Column<R> {
        // A measurement is written in each interval; a state only when it changes.
        let lasts = match metric.over {
            Over::Time | Over::Quotient(_) | Over::ByNode(_) => Lasts::Interval,
            Over::Level | Over::Total | Over::Newest => Lasts::Held,
        };
        let usual = match metric.over {
            Over::Newest | Over::ByNode(_) => "null",
            Over::Time | Over::Quotient(_) | Over::Level | Over::Total => "0",
        };
        Column { id: metric.id, cell: Cell::Metric(metric), lasts, usual }
    }

    fn made(id: &'static str, lasts: Lasts, made: fn(&R, &mut Context<'_, '_>) -> Said) -> Column<R> {
        Column { id, cell: Cell::Made(made), lasts, usual: "null" }
    }

    /// The same column, which names rows.
    fn key(self) -> Column<R> {
        Column { lasts: Lasts::Key, usual: "null", ..self }
    }

    /// The same column, which is written with each row so that people know it.
    fn in_each(self) -> Column<R> {
        Column { lasts: Lasts::Interval, usual: "null", ..self }
    }
}

/// Columns of tasks with these metrics. `named`: rows have their ids, chosen or not.
pub(super) fn of_tasks(metrics: &[&'static Metric<Task>], named: bool) -> Vec<Column<Task>> {
    let tid = || {
        // A process has no thread id: that is what the row is, not something missing.
        let tid = |task: &Task, context: &mut Context<'_, '_>| {
            task.tid.map_or(Said::Nothing, |tid| context.plain(&tid))
        };
        Column::made(TID.id, Lasts::Key, tid)
    };
    let pid = || Column::made(PID.id, Lasts::Key, |task: &Task, context| context.plain(&task.raw.pid));
    let mut columns: Vec<Column<Task>> = Vec::new();
    if named {
        columns.extend([pid(), tid()]);
    }
    for metric in metrics {
        match metric.id {
            id if id == PID.id || id == TID.id => {
                if !named {
                    columns.push(if id == PID.id { pid() } else { tid() });
                }
            }
            id if id == COMM.id => columns.push(Column::metric(metric).in_each()),
            _ => columns.push(Column::metric(metric)),
        }
    }
    columns.push(Column::made("counters", Lasts::Held, counts));
    columns.push(Column::made("access", Lasts::Interval, sampled));
    columns.push(Column { usual: "false", ..Column::made("exited", Lasts::Interval, exited) });
    columns.push(Column::made("left_scope", Lasts::Interval, left));
    columns
}

/// Columns of nodes.
pub(super) fn of_nodes() -> Vec<Column<Node>> {
    let column = |metric: &'static Metric<Node>| {
        let column = Column::metric(metric);
        if metric.id == node::NODE.id { column.key() } else { column }
    };
    NODE_METRICS.iter().map(column).collect()
}

/// Columns of containers.
pub(super) fn of_containers() -> Vec<Column<Container>> {
    let column = |metric: &'static Metric<Container>| {
        let column = Column::metric(metric);
        match metric.id {
            id if id == container::CGROUP_ID.id => column.key(),
            id if id == container::CONTAINER.id => column.in_each(),
            _ => column,
        }
    };
    let own = |row: &Container, context: &mut Context<'_, '_>| context.plain(&row.own_tasks);
    let own = Column { usual: "false", ..Column::made("own_tasks", Lasts::Held, own) };
    CONTAINER_METRICS.iter().map(column).chain([own]).collect()
}

/// Columns of sockets or L3 domains. Numbers stand in place of the words of the screen: `socket`, `llc`, and `node`, a list where there
/// are several.
pub(super) fn of_sets(kind: SetKind) -> Vec<Column<CpuSet>> {
    let column = |metric: &'static Metric<CpuSet>| match metric.id {
        id if id == cpu_set::NODES.id => {
            Column::made(id, Lasts::Held, |set: &CpuSet, context| context.ids(&set.nodes))
        }
        id if id == cpu_set::SOCKETS.id => {
            let lasts = if kind == SetKind::Socket { Lasts::Key } else { Lasts::Held };
            Column::made(id, lasts, |set: &CpuSet, context| {
                if let Err(why) = cpu_set::SOCKETS.read(set, context.snapshot) {
                    context.reasons.note(cpu_set::SOCKETS.id, &why);
                }
                context.ids(&set.sockets)
            })
        }
        _ => Column::metric(metric),
    };
    let shown = CPU_SET_METRICS.iter().filter(|metric| metric.id != cpu_set::PLACE.id);
    let id = || Column::made("llc", Lasts::Key, |set: &CpuSet, context| context.plain(&set.id));
    shown.map(column).chain((kind == SetKind::Llc).then(id)).collect()
}

impl Context<'_, '_> {
    fn plain<T: serde::Serialize>(&mut self, value: &T) -> Said {
        text::plain(self.out, value);
        Said::Value
    }

    /// One number, or a list of several.
    fn ids(&mut self, ids: &[u32]) -> Said {
        match ids {
            [] => Said::Null,
            [one] => self.plain(one),
            all => self.plain(&all),
        }
    }
}

/// Totals of the events of the host, by name.
fn counts(task: &Task, context: &mut Context<'_, '_>) -> Said {
    let Context { out, snapshot, reasons, .. } = context;
    let events = &snapshot.host.events;
    if events.is_empty() {
        return Said::Nothing;
    }
    let mut order: Vec<usize> = (0..events.len()).collect();
    order.sort_by_key(|at| &events[*at].name);
    out.push(b'{');
    for (i, at) in order.into_iter().enumerate() {
        let name = &events[at].name;
        text::label(out, i == 0, name);
        match counters::slot(&task.total.slots, snapshot, at) {
            Ok(count) => text::plain(out, &(count as u64)),
            Err(why) => {
                reasons.note(name, &why);
                out.extend(b"null");
            }
        }
    }
    out.push(b'}');
    Said::Value
}

/// Memory that a process uses, from samples.
fn sampled(task: &Task, context: &mut Context<'_, '_>) -> Said {
    let snapshot = context.snapshot;
    let Some(sampled) = task.memory_use().filter(|_| task.leads()) else { return Said::Nothing };
    let why = Why {
        no_event: snapshot.host_missing(DRAM_REMOTE_PCT.id),
        no_lines: snapshot.host_missing(CONTENDED_LINES),
        no_touches: snapshot.host_missing(OBJECTS),
    };
    let nodes = snapshot.host.topology.nodes.len();
    text::json(context.out, &access::object(sampled, nodes, why), context.style);
    Said::Value
}

fn exited(task: &Task, context: &mut Context<'_, '_>) -> Said {
    context.plain(&task.ended())
}

fn left(task: &Task, context: &mut Context<'_, '_>) -> Said {
    if task.left() { context.plain(&json!(true)) } else { Said::Nothing }
}
