//! Lanes of the timeline: metrics of the machine and of its nodes over time.

use super::track::{Cell, Grid, Track};
use crate::metric::node::{self, NODE_METRICS};
use crate::metric::over::Quotient;
use crate::metric::{Metric, Unit, Value, Witness, host, pages, placement, task};
use crate::model::sample::Reading;
use crate::snapshot::{Node, Snapshot};

/// Nodes that lanes have rows of at most: a recording may name any.
pub const NODES_MAX: usize = 128;

/// The lanes, in the order in which they are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Id {
    Cpu,
    Remote,
    Ipc,
    Free,
    Pages,
    Tasks,
    Wait,
}

impl Id {
    /// All of them.
    pub const ALL: [Id; 7] = [Id::Cpu, Id::Remote, Id::Ipc, Id::Free, Id::Pages, Id::Tasks, Id::Wait];

    /// The word in JSON and in names of elements.
    pub fn id(self) -> &'static str {
        match self {
            Id::Cpu => "cpu",
            Id::Remote => "remote",
            Id::Ipc => "ipc",
            Id::Free => "free",
            Id::Pages => "pages_moved",
            Id::Tasks => "tasks_moved",
            Id::Wait => "waiting",
        }
    }

    /// The metric that a host may say is missing.
    pub fn metric(self) -> &'static str {
        match self {
            Id::Cpu => node::CPU_PCT.id,
            Id::Remote => placement::NODE_REMOTE_PCT.id,
            Id::Ipc => node::IPC.id,
            Id::Free => node::MEM_FREE_BYTES.id,
            Id::Pages => pages::PAGES_IN.id,
            Id::Tasks => task::NODE_MIGRATIONS_PER_S.id,
            Id::Wait => task::RUNQ_WAIT_PCT.id,
        }
    }

    /// The unit of its values. Waiting is a number of tasks.
    pub fn unit(self) -> Unit {
        match self {
            Id::Cpu | Id::Remote => Unit::Percent,
            Id::Ipc => Unit::Ratio,
            Id::Free => Unit::Bytes,
            Id::Pages | Id::Tasks => Unit::PerSecond,
            Id::Wait => Unit::Count,
        }
    }

    /// A low value is bad, not a high one.
    pub fn least_is_worst(self) -> bool {
        matches!(self, Id::Ipc | Id::Free)
    }

    /// It is meaningless with a single node.
    pub fn needs_nodes(self) -> bool {
        matches!(self, Id::Remote | Id::Pages | Id::Tasks)
    }

    /// The metric of nodes, if nodes have it.
    fn of_node(self) -> Option<&'static Metric<Node>> {
        let id = match self {
            Id::Cpu | Id::Remote | Id::Ipc | Id::Free => self.metric(),
            Id::Pages | Id::Tasks | Id::Wait => return None,
        };
        NODE_METRICS.iter().find(|metric| metric.id == id)
    }
}

/// One metric over time: of the machine, and of each node where nodes have it.
#[derive(Clone, Debug)]
pub struct Lane {
    pub id: Id,
    pub machine: Track,
    /// By node id, ascending; empty if only the machine has it.
    pub nodes: Vec<(u32, Track)>,
    /// The reason for which it has no value at all.
    pub missing: Option<String>,
    /// Time of all nodes by the source of their values, ns; see [`Witness`].
    pub sources: Sources,
}

impl Lane {
    /// A lane of these nodes.
    pub fn new(id: Id, nodes: &[u32], grid: &Grid) -> Lane {
        let several = nodes.len() > 1 && id.of_node().is_some();
        let nodes = if several { nodes } else { &[] };
        Lane {
            id,
            machine: Track::new(grid),
            nodes: nodes.iter().take(NODES_MAX).map(|node| (*node, Track::new(grid))).collect(),
            missing: None,
            sources: Sources::default(),
        }
    }

    /// Adds an interval.
    pub fn take(&mut self, snapshot: &Snapshot, shares: &[(usize, f64)], is_whole: bool) {
        match snapshot.host_missing(self.id.metric()) {
            Some(why) if self.missing.is_none() => {
                self.missing = Some(crate::text::one_line(&why.to_string()));
            }
            _ => {}
        }
        if let Some(sums) = self.machine_sums(snapshot) {
            self.machine.add(sums, shares, is_whole);
        }
        let Some(metric) = self.id.of_node() else { return };
        for node in &snapshot.nodes {
            // No other metric has sources.
            if self.id == Id::Remote {
                self.sources.note(metric.read(node, snapshot), node, snapshot);
            }
            let Some(Ok(sums)) = metric.sums(node, snapshot).filter(|_| !self.nodes.is_empty()) else {
                continue;
            };
            let place = match self.nodes.binary_search_by_key(&node.raw.id, |(id, _)| *id) {
                Ok(place) => place,
                Err(_) if self.nodes.len() >= NODES_MAX => continue,
                // Memory may be plugged in at any time.
                Err(place) => {
                    let none = Cell { low: f32::INFINITY, high: f32::NEG_INFINITY, ..Cell::default() };
                    let cells = vec![none; self.machine.cells.len()];
                    self.nodes.insert(place, (node.raw.id, Track { cells }));
                    place
                }
            };
            self.nodes[place].1.add(sums, shares, is_whole);
        }
    }

    /// Sums of the whole machine over an interval; `None` where it has none.
    fn machine_sums(&self, snapshot: &Snapshot) -> Option<Quotient> {
        let ns = snapshot.interval_ns.filter(|ns| *ns > 0)? as f64;
        if snapshot.host_missing(self.id.metric()).is_some() {
            return None;
        }
        let per_second = |count: f64| Quotient { num: count, den: ns, scale: 1e9 };
        match self.id {
            // BUSY is 100 for one CPU.
            Id::Cpu => {
                let pct = host::BUSY.read(snapshot).ok()?.number()?;
                Some(Quotient::of(pct * ns, f64::from(snapshot.online_cpus) * ns))
            }
            Id::Remote | Id::Ipc => {
                let metric = self.id.of_node()?;
                let quotients =
                    snapshot.nodes.iter().filter_map(|node| metric.quotient(node, snapshot)?.ok());
                quotients.reduce(|mut all, one| {
                    all.add(one);
                    all
                })
            }
            // The node with the least: where it runs out is where it hurts.
            Id::Free => {
                let has_memory = |node: &&Node| node.raw.mem_total_bytes > 0;
                let free =
                    snapshot.nodes.iter().filter(has_memory).map(|node| node.raw.mem_free_bytes).min()?;
                Some(Quotient::of(free as f64 * ns, ns))
            }
            Id::Pages => {
                let pages: f64 = snapshot.nodes.iter().map(|node| node.counts.pages_in as f64).sum();
                Some(per_second(pages))
            }
            Id::Tasks => Some(per_second(snapshot.flows.iter().map(|flow| flow.count as f64).sum())),
            Id::Wait => {
                // It is known to be measured.
                let wait = task::RUNQ_WAIT_PCT.value;
                let waits = snapshot.tasks.iter().filter_map(|task| wait(task, snapshot).ok()?.number());
                // In per cent of the interval: 100 is one task that waited all the time.
                Some(Quotient::of(crate::metric::sum(waits) / 100.0 * ns, ns))
            }
        }
    }
}

/// Time by the source of a share, and its error.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sources {
    by_witness: [f64; WITNESSES.len()],
    error: (f64, f64),
}

/// Sources in the order of [`Sources::by_witness`].
const WITNESSES: [Witness; 5] =
    [Witness::Counted, Witness::Estimate, Witness::Time, Witness::Memory, Witness::Hints];

impl Sources {
    /// Notes the source of a value that covers `ns` of time, and its error in points.
    pub fn add(&mut self, value: &Value, error: Option<f64>, ns: f64) {
        if let Value::Share { witness, .. } = value
            && let Some(at) = WITNESSES.iter().position(|known| known == witness)
        {
            self.by_witness[at] += ns;
            if let Some(error) = error.filter(|error| error.is_finite()) {
                self.error = (self.error.0 + error * ns, self.error.1 + ns);
            }
        }
    }

    /// Adds those of another row.
    pub fn join(&mut self, other: &Sources) {
        self.by_witness.iter_mut().zip(other.by_witness).for_each(|(mine, theirs)| *mine += theirs);
        self.error = (self.error.0 + other.error.0, self.error.1 + other.error.1);
    }

    fn note(&mut self, value: Reading<Value>, node: &Node, snapshot: &Snapshot) {
        let Ok(value @ Value::Share { .. }) = value else { return };
        let error = placement::NODE_REMOTE_ERROR_POINTS.read(node, snapshot).ok();
        self.add(&value, error.and_then(|error| error.number()), node.on_cpus.busy_ns as f64);
    }

    /// The source of most of the time; `None` where no value was a share.
    pub fn most(&self) -> Option<Witness> {
        let most = (0..WITNESSES.len()).max_by(|a, b| self.by_witness[*a].total_cmp(&self.by_witness[*b]))?;
        (self.by_witness[most] > 0.0).then(|| WITNESSES[most])
    }

    /// The mean distance that the truth may have, in points; `None` where it is counted or not known.
    pub fn error_points(&self) -> Option<f64> {
        (self.error.1 > 0.0).then(|| self.error.0 / self.error.1).filter(|error| *error >= 0.05)
    }
}
