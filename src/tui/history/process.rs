//! One process in the intervals that are kept: its threads, and what it did lately.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::analysis::filter::{self, RowFilter};
use crate::metric::{Metric, Value, task};
use crate::model::process::ProcessId;
use crate::model::sample::{HostFacts, Sample, TaskRaw};
use crate::record::pack::Rows;
use crate::snapshot::{RowKind, SmtNeighbour, Snapshot, Task, beside, derive_tasks};
use crate::tui::ring::Ring;

/// Intervals that the history shows at most.
const HISTORY: usize = 240;

/// One interval of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    pub cpu_pct: Option<f64>,
    pub ipc: Option<f64>,
    pub node_migrations: Option<f64>,
}

/// The process in one interval.
#[derive(Clone, Debug)]
pub struct ProcessSnapshot {
    pub process: ProcessId,
    /// Its row; `None` when it was not there.
    pub task: Option<Task>,
    pub threads: Snapshot,
    /// Indexes into the rows of its threads, busiest first.
    pub order: Vec<usize>,
    /// Processes on the SMT siblings of its CPUs; empty without siblings.
    pub beside: Vec<SmtNeighbour>,
    /// Intervals up to this one, newest last.
    pub history: Vec<Point>,
}

/// Intervals of the process.
pub struct ProcessHistory {
    process: ProcessId,
    /// Points by sample number, ascending.
    points: VecDeque<(u64, Point)>,
    /// The last answer, and the number of its sample.
    shown: Option<(u64, Arc<ProcessSnapshot>)>,
}

impl ProcessHistory {
    /// As much history as the ring has.
    pub fn open(process: ProcessId, host: &Arc<HostFacts>, ring: &Ring) -> ProcessHistory {
        let mut opened = ProcessHistory { process, points: VecDeque::new(), shown: None };
        let (Some(oldest), Some(newest)) = (ring.oldest(), ring.newest()) else { return opened };
        let number = oldest.max((newest + 1).saturating_sub(HISTORY as u64));
        let mut samples = ring.samples(number.saturating_sub(1), Rows::All);
        // The only sample has none before it.
        let mut previous = if ring.times().nth(1).is_some() { samples.next() } else { None };
        for (number, current) in (number..).zip(samples) {
            opened.add(host, number, previous.as_deref(), &current);
            previous = Some(current);
        }
        opened
    }

    /// Adds what happened in the interval that sample `number` ends.
    pub fn extend(&mut self, host: &Arc<HostFacts>, ring: &Ring, number: u64) {
        if let Some((previous, current)) = ring.pair(number) {
            self.add(host, number, previous.as_deref(), &current);
        }
    }

    fn add(&mut self, host: &Arc<HostFacts>, number: u64, previous: Option<&Sample>, current: &Sample) {
        let snapshot = Pair::of(self.process, previous, current).derive(host, RowKind::Processes);
        let read = |metric: &Metric<Task>| {
            let task = own_row(&snapshot, self.process)?;
            metric.read(task, &snapshot).ok().as_ref().and_then(Value::number)
        };
        let point = Point {
            cpu_pct: read(&task::CPU_PCT),
            ipc: read(&task::IPC),
            node_migrations: read(&task::NODE_MIGRATIONS_PER_S),
        };
        self.points.push_back((number, point));
        if self.points.len() > HISTORY {
            self.points.pop_front();
        }
    }

    /// The interval that sample `number` ends; `None` when it is not kept.
    pub fn show(&mut self, host: &Arc<HostFacts>, ring: &Ring, number: u64) -> Option<Arc<ProcessSnapshot>> {
        if let Some((_, known)) = self.shown.as_ref().filter(|(at, _)| *at == number) {
            return Some(Arc::clone(known));
        }
        let (previous, current) = ring.pair(number)?;
        let (previous, current) = (previous.as_deref(), &*current);
        let pair = Pair::of(self.process, previous, current);
        let whole = pair.derive(host, RowKind::Processes);
        let threads = pair.derive(host, RowKind::ThreadsOf(self.process.0));
        let beside = previous
            .map_or_else(Vec::new, |previous| beside(&host.topology, previous, current, self.process));
        let points = self.points.iter().filter(|(at, _)| *at <= number);
        let shown = Arc::new(ProcessSnapshot {
            process: self.process,
            task: own_row(&whole, self.process).cloned(),
            order: filter::select(&threads, &RowFilter::default(), &task::CPU_PCT, false),
            threads,
            beside,
            history: points.map(|(_, point)| *point).collect(),
        });
        self.shown = Some((number, Arc::clone(&shown)));
        Some(shown)
    }
}

fn own_row(snapshot: &Snapshot, process: ProcessId) -> Option<&Task> {
    snapshot.tasks.iter().find(|task| task.raw.process() == process)
}

/// One process in two samples: cheap to derive, whatever else runs.
struct Pair {
    previous: Option<Sample>,
    current: Sample,
}

impl Pair {
    fn of(process: ProcessId, previous: Option<&Sample>, current: &Sample) -> Pair {
        Pair { previous: previous.map(|sample| only(sample, process)), current: only(current, process) }
    }

    fn derive(&self, host: &Arc<HostFacts>, grain: RowKind) -> Snapshot {
        derive_tasks(host, self.previous.as_ref(), &self.current, grain)
    }
}

fn only(sample: &Sample, process: ProcessId) -> Sample {
    let is_its = |task: &&Arc<TaskRaw>| task.process() == process;
    Sample {
        tasks: sample.tasks.iter().filter(is_its).cloned().collect(),
        exited: sample.exited.iter().filter(is_its).cloned().collect(),
        cpus: sample.cpus.clone(),
        own: sample.own.clone(),
        placement: Arc::clone(&sample.placement),
        memory_use: sample.memory_use.clone(),
        ..times(sample)
    }
}

/// The machine as a whole in a sample, without the rows of tasks.
pub fn without_tasks(sample: &Sample) -> Sample {
    Sample {
        cpus: sample.cpus.clone(),
        vm: sample.vm,
        machine: sample.machine,
        lost: sample.lost.clone(),
        exit_lost_ns: sample.exit_lost_ns.clone(),
        own: sample.own.clone(),
        ..times(sample)
    }
}

/// A sample of nothing at the same moment, with the same names.
fn times(sample: &Sample) -> Sample {
    Sample {
        wall_ns: sample.wall_ns,
        mono_ns: sample.mono_ns,
        boot_ns: sample.boot_ns,
        names: Arc::clone(&sample.names),
        ..Sample::default()
    }
}
