//! Rows and columns that output contains: tasks, containers, sockets and L3 domains.

use crate::analysis::filter::{self, RowFilter};
use crate::metric::identity::COMM;
use crate::metric::needs::Demand;
use crate::metric::task::TASK_METRICS;
use crate::metric::{Metric, events};
use crate::model::process::Asked;
use crate::model::process::ProcessId;
use crate::model::sample::HostFacts;
use crate::snapshot::{Container, CpuSet, SetKind, Snapshot, Task};

/// The content of output, in every format.
#[derive(Clone)]
pub struct Selection {
    pub filter: RowFilter,
    /// Task metrics in the order of output.
    pub columns: Vec<&'static Metric<Task>>,
    pub sort: &'static Metric<Task>,
    pub reversed: bool,
    /// Fields that are read on demand for these columns.
    pub asked: Asked,
    /// The columns were not named: those of events that were asked for by name come with them.
    pub with_events: bool,
}

impl Selection {
    /// The rows to write, in order.
    pub fn rows<'a>(&self, snapshot: &'a Snapshot) -> Vec<&'a Task> {
        filter::select(snapshot, &self.filter, self.sort, self.reversed)
            .into_iter()
            .map(|at| &snapshot.tasks[at])
            .collect()
    }
}

/// Rows of one kind, in the order of output.
pub trait Rows {
    type Row: 'static;
    /// The rows are those of containers.
    const CONTAINERS: bool;
    fn columns(&self) -> &[&'static Metric<Self::Row>];
    /// Adds the columns that depend on the host: called before its first interval is written.
    fn settle(&mut self, host: &HostFacts);
    fn rows<'a>(&self, snapshot: &'a Snapshot) -> Vec<&'a Self::Row>;
    /// Why this machine has no rows of this kind; `None` where it always may.
    fn why_empty(&self, _: &HostFacts) -> Option<&'static str> {
        None
    }
    /// A number that no other row has.
    fn key(row: &Self::Row) -> u64;
    /// Whether the row ended in the interval, and whether it only left the scope.
    fn ended(row: &Self::Row) -> (bool, bool);
    /// Fields for its columns that are read on demand only.
    fn asked(&self) -> Asked;
    /// The facilities that its columns and its order need.
    fn demand(&self) -> Demand;
    /// The processes of `rows` that are looked at before others; `None` when no row is left out.
    fn shown(&self, rows: &[&Self::Row]) -> Option<Vec<ProcessId>>;
}

impl Rows for Selection {
    type Row = Task;
    const CONTAINERS: bool = false;

    fn columns(&self) -> &[&'static Metric<Task>] {
        &self.columns
    }

    fn settle(&mut self, host: &HostFacts) {
        if !std::mem::take(&mut self.with_events) {
            return;
        }
        // The name of a task is longest, and stays last.
        let last = self.columns.last().is_some_and(|metric| metric.id == COMM.id);
        let at = self.columns.len() - usize::from(last);
        self.columns.splice(at..at, events::asked(host));
    }

    fn rows<'a>(&self, snapshot: &'a Snapshot) -> Vec<&'a Task> {
        Selection::rows(self, snapshot)
    }

    fn key(row: &Task) -> u64 {
        row.raw.serial
    }

    fn ended(row: &Task) -> (bool, bool) {
        (row.ended(), row.left())
    }

    fn asked(&self) -> Asked {
        self.asked
    }

    fn demand(&self) -> Demand {
        Demand::of(self.columns.iter().chain([&self.sort]))
    }

    fn shown(&self, rows: &[&Task]) -> Option<Vec<ProcessId>> {
        let RowFilter { comm, node, top } = &self.filter;
        let some = comm.is_some() || node.is_some() || top.is_some();
        some.then(|| rows.iter().take(SHOWN_MAX).map(|row| row.raw.process()).collect())
    }
}

/// The content of output with all rows of a kind.
#[derive(Clone)]
pub struct Whole<R: 'static> {
    /// Metrics in the order of output.
    pub columns: Vec<&'static Metric<R>>,
    pub sort: &'static Metric<R>,
    pub reversed: bool,
    pub top: Option<usize>,
}

impl<R> Whole<R> {
    fn ordered<'a>(&self, rows: impl Iterator<Item = &'a R>, snapshot: &Snapshot) -> Vec<&'a R> {
        let mut rows: Vec<&R> = rows.collect();
        filter::sort_rows(&mut rows, |row| self.sort.read(row, snapshot), self.sort.order, self.reversed);
        rows.truncate(self.top.unwrap_or(usize::MAX));
        rows
    }

    fn demand(&self) -> Demand {
        Demand::of(self.columns.iter().chain([&self.sort]))
    }
}

/// The content of output with rows of containers.
pub type ContainerSelection = Whole<Container>;

impl Rows for ContainerSelection {
    type Row = Container;
    const CONTAINERS: bool = true;

    fn columns(&self) -> &[&'static Metric<Container>] {
        &self.columns
    }

    fn settle(&mut self, _: &HostFacts) {}

    fn rows<'a>(&self, snapshot: &'a Snapshot) -> Vec<&'a Container> {
        self.ordered(snapshot.containers.iter(), snapshot)
    }

    fn key(row: &Container) -> u64 {
        row.id
    }

    fn ended(_: &Container) -> (bool, bool) {
        (false, false)
    }

    fn asked(&self) -> Asked {
        Asked::default()
    }

    fn demand(&self) -> Demand {
        Whole::demand(self)
    }

    fn shown(&self, _: &[&Container]) -> Option<Vec<ProcessId>> {
        None
    }
}

/// The content of output with rows of sockets or of L3 domains.
#[derive(Clone)]
pub struct PlaceSelection {
    pub kind: SetKind,
    pub of: Whole<CpuSet>,
}

impl Rows for PlaceSelection {
    type Row = CpuSet;
    const CONTAINERS: bool = false;

    fn columns(&self) -> &[&'static Metric<CpuSet>] {
        &self.of.columns
    }

    fn settle(&mut self, _: &HostFacts) {}

    fn rows<'a>(&self, snapshot: &'a Snapshot) -> Vec<&'a CpuSet> {
        self.of.ordered(snapshot.sets(self.kind), snapshot)
    }

    fn why_empty(&self, host: &HostFacts) -> Option<&'static str> {
        let topology = &host.topology;
        Some(match self.kind {
            SetKind::Socket if topology.sockets < 2 => "the machine has one socket",
            SetKind::Socket => "each socket is one node on this machine",
            SetKind::Llc => topology.no_llcs().unwrap_or("each L3 domain is one node on this machine"),
        })
    }

    fn key(row: &CpuSet) -> u64 {
        row.id.into()
    }

    fn ended(_: &CpuSet) -> (bool, bool) {
        (false, false)
    }

    fn asked(&self) -> Asked {
        Asked::default()
    }

    fn demand(&self) -> Demand {
        self.of.demand()
    }

    fn shown(&self, _: &[&CpuSet]) -> Option<Vec<ProcessId>> {
        None
    }
}

/// Every task metric, for output that a program reads.
pub fn all_columns() -> Vec<&'static Metric<Task>> {
    TASK_METRICS.iter().collect()
}

/// This many rows are checked before others; searching among them costs time.
const SHOWN_MAX: usize = 256;
