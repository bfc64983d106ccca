//! THE place where a metric is defined: id, title, unit, help, and how to get its value.
//!
//! One entry makes a metric a column, a sort key, a key in JSON and CSV, and a line of the help.

pub mod accelerators;
pub mod access;
pub mod allowed;
pub mod amounts;
pub mod balancing;
pub mod cache_use;
pub mod columns;
pub mod container;
pub mod counters;
pub mod cpu_set;
pub mod disks;
pub mod dram;
pub mod efficiency;
pub mod events;
pub mod format;
pub mod free_blocks;
pub mod hardware;
pub mod held_devices;
pub mod host;
pub mod identity;
pub mod interrupts;
pub mod matrix;
pub mod needs;
pub mod node;
pub mod on_cpus;
pub mod over;
pub mod pages;
pub mod placement;
pub mod places;
pub mod pressure;
pub mod resident;
pub mod scheduler;
pub mod since_boot;
pub mod sockets;
pub mod task;
pub mod tiers;

use serde_json::json;

use crate::model::facility::Facility;
use crate::model::sample::{HostFacts, Missing, Reading};
use crate::model::units::NodeId;
use crate::snapshot::Snapshot;
use crate::text::json::number;

use over::{Better, Over, Quotient};

/// The sum, and 0 of nothing: `Iterator::sum` makes that -0.0, which is shown as "-0.0".
pub fn sum(all: impl Iterator<Item = f64>) -> f64 {
    all.fold(0.0, |sum, one| sum + one)
}

/// For a row that has no value, though others have.
fn no(why: &str) -> Missing {
    Missing::NotCollected(why.into())
}

/// The meaning of a number, and so how it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// An identifier: never summed, never abbreviated.
    Id,
    Text,
    Count,
    Percent,
    PerSecond,
    Bytes,
    Nanoseconds,
    Microseconds,
    Milliseconds,
    /// A quotient of two counts.
    Ratio,
    Gigahertz,
    /// 10^9 bytes a second.
    GigabytesPerSecond,
}

/// The interesting end of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Ascending,
    Descending,
}

/// The part of `metrics` that a metric belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    Identity,
    Running,
    Efficiency,
    Memory,
    Node,
}

impl Group {
    pub fn title(self) -> &'static str {
        match self {
            Group::Identity => "Identity",
            Group::Running => "Running",
            Group::Efficiency => "Efficiency",
            Group::Memory => "Memory",
            Group::Node => "Node",
        }
    }
}

/// A typed value. Text is already clean, so safe to show.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    U64(u64),
    I64(i64),
    F64(f64),
    Text(String),
    /// A share in percent, the least that it can be, and its source.
    Share {
        pct: f64,
        at_least: f64,
        witness: Witness,
        /// The amount that it is a share of, in a unit of the metric's own: rows are sorted by the product of both.
        of: f64,
        /// Resident memory of the row, bytes: the share of a small one does not matter. `None` if size is
        /// irrelevant.
        resident: Option<u64>,
    },
    /// Shares or amounts by node; nodes with none are left out.
    ByNode(Vec<(NodeId, f64)>),
}

/// The source of a share. Shown in front of its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Witness {
    /// It was counted completely.
    Counted,
    /// It is an estimate.
    Estimate,
    /// Time at memory accesses, not their number: remote ones take longer.
    Time,
    /// Memory, not its use: used evenly, the two are the same.
    Memory,
    /// Hinting faults, which are few and not evenly spread.
    Hints,
}

impl Witness {
    /// The mark in front of a number, with a space where the mark is a word.
    pub fn mark(self) -> &'static str {
        match self {
            Witness::Counted => "=",
            Witness::Estimate => "~",
            Witness::Time => "time ",
            Witness::Memory => "mem ",
            Witness::Hints => "hint ",
        }
    }
}

impl Value {
    /// An estimated share with only zero as a certain lower bound.
    pub fn estimate(pct: f64) -> Value {
        Value::Share { pct, at_least: 0.0, witness: Witness::Estimate, of: 1.0, resident: None }
    }

    /// As a JSON value; shares by node become an object from node id to number.
    pub fn to_json(&self) -> serde_json::Value {
        match self {
            Value::U64(v) => json!(v),
            Value::I64(v) => json!(v),
            // JSON has no infinity; a quotient of something and nothing is one all the same.
            Value::F64(v) if v.is_infinite() => json!("inf"),
            Value::F64(v) => number(*v),
            Value::Text(v) => json!(v),
            Value::Share { pct, .. } => number(*pct),
            Value::ByNode(v) => v.iter().map(|(node, share)| (node.to_string(), number(*share))).collect(),
        }
    }

    /// The number to compare when sorting; `None` for text. A large share of little comes after a small share of much.
    pub fn rank(&self) -> Option<f64> {
        match self {
            Value::Share { pct, of, .. } => Some(pct * of),
            value => value.number(),
        }
    }

    /// The number to compare with a limit; `None` for text.
    pub fn number(&self) -> Option<f64> {
        match self {
            Value::U64(v) => Some(*v as f64),
            Value::I64(v) => Some(*v as f64),
            Value::F64(v) => Some(*v),
            Value::Text(_) => None,
            Value::Share { pct, .. } => Some(*pct),
            Value::ByNode(v) => v.iter().map(|(_, share)| *share).max_by(f64::total_cmp),
        }
    }
}

/// A metric of rows of type `R`.
pub struct Metric<R: 'static> {
    /// The name everywhere: `--columns`, `--sort`, JSON, CSV.
    pub id: &'static str,
    /// Column title: at most ten characters.
    pub title: &'static str,
    /// Column width in cells, title included.
    pub width: u16,
    pub group: Group,
    pub unit: Unit,
    pub order: Order,
    /// One or two sentences for a person: what it is, over what time, from where.
    pub help: &'static str,
    /// The value, or why this row has none.
    pub value: fn(&R, &Snapshot) -> Reading<Value>,
    /// The value over several intervals and of several rows.
    pub over: Over<R>,
    pub traits: Traits,
}

// Not derived: that would ask it of `R`, too.
impl<R> Clone for Metric<R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Metric<R> {}

/// Properties that only some metrics have.
#[derive(Clone, Copy, Debug)]
pub struct Traits {
    /// Facilities that it needs, beside [`Facility::ESSENTIAL`].
    pub needs: &'static [Facility],
    /// It is meaningless on a machine with only one of these.
    pub several: Option<Several>,
    /// Minimum width of its column in cells; 0: the width from [`Metric::width`].
    pub least_width: u16,
    /// It is only as new as the last look at a process's memory.
    pub ages: bool,
    /// The text shown for a missing value.
    pub absent: &'static str,
    pub stands: Stands,
    /// The direction in which a change is one for the better.
    pub better: Better,
    /// The name of the host's reason for missing it: its id, unless rows of another kind measure it
    /// otherwise.
    pub missing_as: Option<&'static str>,
}

/// Parts of a machine that may be single or several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Several {
    Nodes,
    /// Last-level caches.
    Caches,
}

/// The way a number is emphasised on a screen.
#[derive(Clone, Copy, Debug)]
pub enum Stands {
    /// Zeros recede.
    Usual,
    /// Zero is a number like others.
    Plain,
    /// It names the node where something is at home.
    Home,
    /// It may hurt when this is true; zeros recede.
    Harm(fn(f64) -> bool),
    /// It is of other nodes when this is true; zeros recede.
    Remote(fn(f64) -> bool),
    /// A share of accesses to other nodes, in percent: it is emphasised from the threshold that the user
    /// sets.
    RemoteShare,
}

impl Traits {
    /// Traits of a metric that needs nothing and is shown as most are.
    pub const NONE: Traits = Traits {
        needs: &[],
        several: None,
        least_width: 0,
        ages: false,
        absent: format::ABSENT,
        stands: Stands::Usual,
        better: Better::Neither,
        missing_as: None,
    };

    #[must_use]
    const fn needs(self, needs: &'static [Facility]) -> Traits {
        Traits { needs, ..self }
    }

    #[must_use]
    const fn several(self, several: Several) -> Traits {
        Traits { several: Some(several), ..self }
    }

    #[must_use]
    const fn least_width(self, least_width: u16) -> Traits {
        Traits { least_width, ..self }
    }

    #[must_use]
    const fn ages(self) -> Traits {
        Traits { ages: true, ..self }
    }

    #[must_use]
    const fn stands(self, stands: Stands) -> Traits {
        Traits { stands, ..self }
    }

    #[must_use]
    const fn better(self, better: Better) -> Traits {
        Traits { better, ..self }
    }

    #[must_use]
    const fn missing_as(self, name: &'static str) -> Traits {
        Traits { missing_as: Some(name), ..self }
    }
}

impl Metric<crate::snapshot::Task> {
    /// Something that happens to the memory of a task, per second, the most first.
    const fn memory_rate(
        id: &'static str,
        title: &'static str,
        width: u16,
        help: &'static str,
        value: fn(&crate::snapshot::Task, &Snapshot) -> Reading<Value>,
    ) -> Self {
        let (group, unit, order) = (Group::Memory, Unit::PerSecond, Order::Descending);
        Metric { id, title, width, group, unit, order, help, value, over: Over::Time, traits: Traits::NONE }
    }
}

impl<R> Metric<R> {
    /// A metric without traits, whose value over several intervals is the usual one of its unit.
    const fn new(
        id: &'static str,
        (title, width): (&'static str, u16),
        (group, unit, order): (Group, Unit, Order),
        help: &'static str,
        value: fn(&R, &Snapshot) -> Reading<Value>,
    ) -> Metric<R> {
        let (over, traits) = (Over::usual(unit), Traits::NONE);
        Metric { id, title, width, group, unit, order, help, value, over, traits }
    }

    /// The same metric with these traits.
    #[must_use]
    const fn with(self, traits: Traits) -> Metric<R> {
        Metric { traits, ..self }
    }

    /// The same metric, whose values become one in this way.
    #[must_use]
    const fn over(self, over: Over<R>) -> Metric<R> {
        Metric { over, ..self }
    }

    /// Whether a host has anything to say with it.
    pub fn fits(&self, host: &HostFacts) -> bool {
        let enough = match self.traits.several {
            None => true,
            Some(Several::Nodes) => host.topology.nodes.len() > 1,
            Some(Several::Caches) => host.topology.llcs.len() > 1,
        };
        enough && !host.missing.contains_key(self.missing_as())
    }

    /// The name of the host's reason for missing it.
    pub fn missing_as(&self) -> &'static str {
        self.traits.missing_as.unwrap_or(self.id)
    }

    /// Cells that its column has at least.
    pub fn least_width(&self) -> u16 {
        if self.traits.least_width > 0 { self.traits.least_width } else { self.width }
    }

    /// The sums that the value of a row is a quotient of; `None` where it is no single quotient.
    pub fn quotient(&self, row: &R, snapshot: &Snapshot) -> Option<Reading<Quotient>> {
        let Over::Quotient(of) = self.over else { return None };
        Some(match snapshot.host_missing(self.missing_as()) {
            Some(missing) => Err(missing.clone()),
            None => of(row, snapshot),
        })
    }

    /// The value of a row.
    ///
    /// # Errors
    /// Why it is missing: the host's reason first if the host cannot measure it at all.
    pub fn read(&self, row: &R, snapshot: &Snapshot) -> Reading<Value> {
        match snapshot.host_missing(self.missing_as()) {
            Some(missing) => Err(missing.clone()),
            None => (self.value)(row, snapshot),
        }
    }
}
