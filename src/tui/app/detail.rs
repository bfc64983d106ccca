//! One process looked at closely: its threads, what it did lately, and what /proc says about it.

use std::collections::VecDeque;
use std::sync::Arc;

use super::maps::Maps;
use crate::filter::{self, RowFilter};
use crate::metric::Value;
use crate::metric::{Metric, task};
use crate::model::process::Details;
use crate::model::sample::{HostFacts, Sample};
use crate::snapshot::{Beside, Grain, Snapshot, Task, beside, derive};
use crate::tui::action::Motion;
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

pub struct Detail {
    /// Process id and start of its leader.
    pub process: (u32, u64),
    /// Its row, and its threads, in the interval shown; `None` when it was not there.
    pub task: Option<Task>,
    pub threads: Option<Snapshot>,
    /// Indexes into the threads' rows, busiest first.
    pub order: Vec<usize>,
    /// First thread in view.
    pub offset: usize,
    /// Points by sample number, ascending.
    history: VecDeque<(u64, Point)>,
    /// Who ran on the SMT siblings of its CPUs; empty without siblings.
    pub beside: Vec<Beside>,
    /// The last details from /proc, or why there are none.
    pub details: Option<Result<Details, String>>,
    /// Its mappings, while they are shown.
    pub maps: Option<Maps>,
}

impl Detail {
    /// Looks at `process` as of sample `shown`, with as much history as the ring has.
    pub fn open(process: (u32, u64), host: &Arc<HostFacts>, ring: &Ring, shown: u64) -> Detail {
        let mut detail = Detail {
            process,
            task: None,
            threads: None,
            order: Vec::new(),
            offset: 0,
            history: VecDeque::new(),
            beside: Vec::new(),
            details: None,
            maps: None,
        };
        if let (Some(oldest), Some(newest)) = (ring.oldest(), ring.newest()) {
            for number in oldest.max((newest + 1).saturating_sub(HISTORY as u64))..=newest {
                detail.extend(host, ring, number);
            }
        }
        detail.show(host, ring, shown);
        detail
    }

    /// Adds what happened in the interval that sample `number` ends.
    pub fn extend(&mut self, host: &Arc<HostFacts>, ring: &Ring, number: u64) {
        let Some((previous, current)) = ring.pair(number) else { return };
        let snapshot = derive_one(host, previous, current, self.process, Grain::Processes);
        let read = |metric: &Metric<Task>| {
            let task = own_row(&snapshot, self.process)?;
            metric.read(task, &snapshot).ok().as_ref().and_then(Value::number)
        };
        let point = Point {
            cpu_pct: read(&task::CPU_PCT),
            ipc: read(&task::IPC),
            node_migrations: read(&task::NODE_MIGRATIONS_PER_S),
        };
        self.history.push_back((number, point));
        if self.history.len() > HISTORY {
            self.history.pop_front();
        }
    }

    /// Shows the interval that sample `number` ends.
    pub fn show(&mut self, host: &Arc<HostFacts>, ring: &Ring, number: u64) {
        let Some((previous, current)) = ring.pair(number) else { return };
        let whole = derive_one(host, previous, current, self.process, Grain::Processes);
        let threads = derive_one(host, previous, current, self.process, Grain::ThreadsOf(self.process.0));
        self.task = own_row(&whole, self.process).cloned();
        self.order = filter::select(&threads, &RowFilter::default(), &task::CPU_PCT, false);
        self.threads = Some(threads);
        self.beside = previous
            .map_or_else(Vec::new, |previous| beside(&host.topology, previous, current, self.process));
    }

    /// Intervals of the process up to sample `shown`, newest last.
    pub fn history(&self, shown: u64) -> Vec<Point> {
        self.history.iter().filter(|(number, _)| *number <= shown).map(|(_, point)| *point).collect()
    }

    /// Moves the view over the threads, or the mappings.
    pub fn go(&mut self, motion: Motion, height: usize) {
        match &mut self.maps {
            Some(maps) => maps.go(motion, height),
            None => self.offset = motion.of_view(self.offset, self.order.len(), height),
        }
    }

    /// Keeps the view inside the list.
    pub fn settle(&mut self, height: usize) {
        self.offset = self.offset.min(self.order.len().saturating_sub(height.max(1)));
    }
}

fn own_row(snapshot: &Snapshot, process: (u32, u64)) -> Option<&Task> {
    snapshot.tasks.iter().find(|task| task.raw.process() == process)
}

/// A snapshot of one process only: cheap, whatever else runs.
fn derive_one(
    host: &Arc<HostFacts>,
    previous: Option<&Sample>,
    current: &Sample,
    process: (u32, u64),
    grain: Grain,
) -> Snapshot {
    derive(host, previous.map(|sample| only(sample, process)).as_ref(), &only(current, process), grain)
}

fn only(sample: &Sample, process: (u32, u64)) -> Sample {
    let pick = |tasks: &[Arc<crate::model::sample::TaskRaw>]| {
        tasks.iter().filter(|task| task.process() == process).cloned().collect()
    };
    Sample {
        wall_ns: sample.wall_ns,
        mono_ns: sample.mono_ns,
        boot_ns: sample.boot_ns,
        tasks: pick(&sample.tasks),
        exited: pick(&sample.exited),
        cpus: sample.cpus.clone(),
        vm: None,
        flows: vec![],
        page_flows: vec![],
        nodes: Vec::new(),
        lost: Default::default(),
        exit_lost_ns: Vec::new(),
        own: sample.own.clone(),
        groups: Default::default(),
        placement: Arc::clone(&sample.placement),
        about: Arc::default(),
        memory_use: None,
        hot: None,
        names: Arc::clone(&sample.names),
        notes: Vec::new(),
    }
}
