//! From samples and intervals to rows of tables.

use std::sync::Arc;

use super::cells::RowGroup;
use super::host::{FINDINGS, FindingRow, HOST, HostRow, LOST, LostRow};
use super::interval::{Gap, Interval, LocatedSums, stamp};
use super::{Table, containers, hot, nodes, tasks};
use crate::finding::{Engine, Finding};
use crate::model::sample::HostFacts;
use crate::model::stacks::StackBatch;
use crate::snapshot::{RowKind, Snapshot};

/// Rows of the tables that are wanted, until they are written.
pub struct Groups(Vec<(Table, RowGroup)>);

impl Groups {
    fn of(&mut self, table: Table) -> Option<&mut RowGroup> {
        self.0.iter_mut().find(|(own, _)| *own == table).map(|(_, group)| group)
    }

    fn some<const N: usize>(&mut self, tables: [Table; N]) -> [Option<&mut RowGroup>; N] {
        let mut found = [const { None }; N];
        for (own, group) in &mut self.0 {
            if let Some(at) = tables.iter().position(|table| table == own) {
                found[at] = Some(group);
            }
        }
        found
    }

    fn wants(&self, tables: &[Table]) -> bool {
        self.0.iter().any(|(own, _)| tables.contains(own))
    }

    /// The tables with their rows.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Table, &mut RowGroup)> {
        self.0.iter_mut().map(|(table, group)| (*table, group))
    }
}

/// The time of the samples so far, and the host as it was at the last.
struct Seen {
    host: Arc<HostFacts>,
    first_wall_ns: i64,
    last_wall_ns: i64,
}

/// Makes rows of one file of each table: samples of one host in the order of time.
pub struct Fold {
    groups: Groups,
    /// Rows of tasks that rested, too.
    all: bool,
    version: String,
    engine: Option<Engine>,
    seen: Option<Seen>,
}

impl Fold {
    /// Without any rows. `version` is the version that recorded, clean.
    pub fn new(tables: &[Table], all: bool, version: String) -> Fold {
        let groups = Groups(tables.iter().map(|table| (*table, table.rows())).collect());
        let engine = groups.wants(&[Table::Findings]).then(Engine::default);
        Fold { groups, all, version, engine, seen: None }
    }

    /// Whether rows of containers are to be derived, for one of these tables or for findings.
    pub fn wants_containers(tables: &[Table]) -> bool {
        let with = [Table::Containers, Table::ContainerNodes, Table::Findings];
        tables.iter().any(|table| with.contains(table))
    }

    /// Notes the first sample of a run, which ends no interval, and the gap before it.
    pub fn begin(&mut self, host: &Arc<HostFacts>, wall_ns: i64, gap: Option<Gap>) {
        self.see(host, wall_ns);
        if let Some(engine) = &mut self.engine {
            engine.interrupt();
        }
        self.gap(host, (wall_ns, None), gap);
    }

    /// Takes the next interval: its wanted rows, its processes if those are different rows, its losses by
    /// cause, its gap, and its stacks.
    pub fn take(
        &mut self,
        snapshot: Snapshot,
        processes: Option<&Snapshot>,
        losses: Vec<(String, u64)>,
        gap: Option<Gap>,
        stacks: Option<&StackBatch>,
    ) {
        let processes = processes.or_else(|| (snapshot.grain == RowKind::Processes).then_some(&snapshot));
        if let (Some(engine), Some(processes)) = (&mut self.engine, processes) {
            engine.take(processes);
        }
        let host = Arc::clone(&snapshot.host);
        self.see(&host, snapshot.wall_ns);
        self.gap(&host, (snapshot.wall_ns, snapshot.interval_ns), gap);
        let interval = Arc::new(Interval::new(snapshot));
        if let Some(lost) = self.groups.of(Table::Lost) {
            for (cause, count) in losses {
                lost.push(&interval.stamp, LOST, &LostRow { cause, count: Some(count), gap_ns: None });
            }
        }
        if let (Some(rows), Some(stacks)) = (self.groups.of(Table::Hot), stacks) {
            hot::add(&interval.stamp, stacks, rows);
        }
        let located = LocatedSums::of(&interval.snapshot);
        let [rows, by_node, of_events] = self.groups.some([Table::Tasks, Table::TaskNodes, Table::Events]);
        tasks::add(&interval, &located.tasks, self.all, (rows, by_node, of_events));
        let [rows, by_node] = self.groups.some([Table::Containers, Table::ContainerNodes]);
        containers::add(&interval, &located.containers, rows, by_node);
        let [rows, pairs] = self.groups.some([Table::Nodes, Table::Matrix]);
        nodes::add(&interval, &located, rows, pairs);
        let [sockets, llcs] = self.groups.some([Table::Sockets, Table::Llcs]);
        nodes::add_places(&interval, sockets, llcs);
    }

    /// Adds the rows that are known at the end only.
    pub fn finish(&mut self) {
        let Some(Seen { host, first_wall_ns, last_wall_ns }) = self.seen.take() else { return };
        if let (Some(rows), Some(engine)) = (self.groups.of(Table::Findings), &self.engine) {
            for finding in engine.ended().chain(engine.findings()) {
                rows.push(&of_finding(&host, finding, last_wall_ns), FINDINGS, &FindingRow(finding.clone()));
            }
        }
        if let Some(rows) = self.groups.of(Table::Host) {
            let length = last_wall_ns.saturating_sub(first_wall_ns).max(0);
            let stamp = stamp(&host, last_wall_ns, Some(length as u64));
            rows.push(&stamp, HOST, &HostRow { host, version: self.version.clone() });
        }
    }

    /// The rows so far, to be written and cleared.
    pub fn groups(&mut self) -> &mut Groups {
        &mut self.groups
    }

    fn see(&mut self, host: &Arc<HostFacts>, wall_ns: i64) {
        let first_wall_ns = self.seen.as_ref().map_or(wall_ns, |seen| seen.first_wall_ns);
        self.seen = Some(Seen { host: Arc::clone(host), first_wall_ns, last_wall_ns: wall_ns });
    }

    fn gap(&mut self, host: &HostFacts, (wall_ns, interval_ns): (i64, Option<u64>), gap: Option<Gap>) {
        if let (Some(lost), Some(gap)) = (self.groups.of(Table::Lost), gap) {
            let row = LostRow { cause: gap.why, count: None, gap_ns: Some(gap.ns) };
            lost.push(&stamp(host, wall_ns, interval_ns), LOST, &row);
        }
    }
}

/// The time of an episode: the part of its end that is in the file, and its duration.
fn of_finding(host: &HostFacts, finding: &Finding, last_wall_ns: i64) -> super::Stamp {
    stamp(host, finding.until_wall_ns.unwrap_or(last_wall_ns), Some(finding.held_ns))
}
