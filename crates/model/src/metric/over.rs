//! The value of a metric over several intervals, from its values in each.
//!
//! A mean of percentages is wrong if intervals weigh differently. Amounts like [`Located`] add up over rows, nodes and
//! intervals, and quotients are made of their sums.

use std::ops::AddAssign;

use super::placement::REMOTE_PCT;
use super::{Metric, Unit, no};
use crate::model::sample::{Missing, Reading};
use crate::model::units::NodeId;
use crate::snapshot::{Remote, Snapshot, Task};

/// A quotient of two sums; both grow with every interval and every row.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Quotient {
    pub num: f64,
    /// 0 with a `num` above it makes an infinite value: all accesses were remote, and none was local.
    pub den: f64,
    /// The value is `scale × num / den`: 100 for a percentage, 1000 for an amount per thousand.
    pub scale: f64,
}

impl Quotient {
    /// `num / den` without a factor.
    pub fn of(num: f64, den: f64) -> Quotient {
        Quotient { num, den, scale: 1.0 }
    }

    /// `num / den` in per cent.
    pub fn pct(num: f64, den: f64) -> Quotient {
        Quotient { num, den, scale: 100.0 }
    }

    /// The same with another scale.
    #[must_use]
    pub fn scaled(self, scale: f64) -> Quotient {
        Quotient { scale, ..self }
    }

    /// `scale × num / den`; not a number where both are 0.
    pub fn value(self) -> f64 {
        self.scale * self.num / self.den
    }

    /// Adds what another interval or row has. Both have the same scale.
    pub fn add(&mut self, other: Quotient) {
        self.num += other.num;
        self.den += other.den;
        self.scale = other.scale;
    }
}

/// A quotient of each node; nodes without one are left out.
pub type ByNode = Vec<(NodeId, Quotient)>;

/// The values of quotients by node.
pub(super) fn values(quotients: ByNode) -> Vec<(NodeId, f64)> {
    quotients.into_iter().map(|(node, quotient)| (node, quotient.value())).collect()
}

/// Amounts by node as shares of them all; nodes with none are left out.
pub(super) fn shares(by_node: &[u64]) -> ByNode {
    // A recording may hold any number.
    let all = by_node.iter().fold(0u64, |all, amount| all.saturating_add(*amount));
    let used = by_node.iter().enumerate().filter(|(_, amount)| **amount > 0);
    used.map(|(node, amount)| (NodeId(node as u32), Quotient::pct(*amount as f64, all as f64))).collect()
}

/// The way in which values of intervals, and of rows, become one.
pub enum Over<R: 'static> {
    /// A rate, or a share of time: value × time, over time. Rows add up.
    Time,
    /// A quotient of two sums: both are added up over intervals and rows.
    ///
    /// # Errors
    /// The reason for which an interval adds nothing, which is the one for which it has no value.
    Quotient(fn(&R, &Snapshot) -> Reading<Quotient>),
    /// The same for each node.
    ByNode(fn(&R, &Snapshot) -> Reading<ByNode>),
    /// A level, such as bytes: its mean by time, with the least and the most.
    Level,
    /// A total since the task was first seen: the newest less the oldest.
    Total,
    /// An identifier, a word, a split that is measured now and then: the newest.
    Newest,
}

impl<R> Clone for Over<R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Over<R> {}

impl<R> Over<R> {
    /// The way of most metrics with this unit.
    pub(super) const fn usual(unit: Unit) -> Over<R> {
        match unit {
            Unit::PerSecond | Unit::Percent => Over::Time,
            Unit::Id | Unit::Text => Over::Newest,
            _ => Over::Level,
        }
    }

    /// The name of the way, in lists.
    pub fn name(&self) -> &'static str {
        match self {
            Over::Time => "time",
            Over::Quotient(_) => "quotient",
            Over::ByNode(_) => "quotient_by_node",
            Over::Level => "level",
            Over::Total => "total",
            Over::Newest => "newest",
        }
    }
}

/// The direction in which a change of a metric is one for the better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Better {
    /// More is better: instructions per cycle.
    High,
    /// Less is better: remote accesses, waits.
    Low,
    /// It depends on the work: CPU time, resident memory.
    #[default]
    Neither,
}

impl Better {
    /// As in JSON.
    pub fn id(self) -> &'static str {
        match self {
            Better::High => "high",
            Better::Low => "low",
            Better::Neither => "neither",
        }
    }
}

impl<R> Over<R> {
    /// Both sums grow with every row; otherwise only the numerator does, and the denominator is time.
    pub fn adds_whole_rows(&self) -> bool {
        matches!(self, Over::Quotient(_))
    }
}

impl<R> Metric<R> {
    /// The sums behind the value of a row, over the interval. For a rate, a share of time or a level they are
    /// value × time and time. `None` if values do not add up: identifiers, words, splits, totals.
    pub fn sums(&self, row: &R, snapshot: &Snapshot) -> Option<Reading<Quotient>> {
        match self.over {
            Over::Quotient(_) => self.quotient(row, snapshot),
            Over::Time | Over::Level => Some(self.over_time(row, snapshot)),
            Over::ByNode(_) | Over::Total | Over::Newest => None,
        }
    }

    fn over_time(&self, row: &R, snapshot: &Snapshot) -> Reading<Quotient> {
        let ns = snapshot.interval_ns.filter(|ns| *ns > 0).ok_or(Missing::FirstInterval)? as f64;
        let value = self.read(row, snapshot)?.number().ok_or_else(|| no("the value is not a number"))?;
        Ok(Quotient::of(value * ns, ns))
    }
}

/// Time on CPUs of tasks whose use of memory is known, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Located {
    /// The whole time.
    pub run_ns: f64,
    /// The part by the share of use that is on other nodes: of accesses on some machines and of time on others.
    pub remote_ns: f64,
}

impl AddAssign for Located {
    fn add_assign(&mut self, other: Located) {
        self.run_ns += other.run_ns;
        self.remote_ns += other.remote_ns;
    }
}

impl Located {
    /// The time of a task in the interval. `None` where it did not run, or its use of memory is not known.
    pub fn of(task: &Task, snapshot: &Snapshot) -> Option<Located> {
        let sums = REMOTE_PCT.sums(task, snapshot)?.ok()?;
        let run_ns = task.run_ns() as f64;
        let share = (sums.den > 0.0).then(|| (sums.num / sums.den).clamp(0.0, 1.0))?;
        Some(Located { run_ns, remote_ns: run_ns * share })
    }

    /// The same by the node that it ran on. Its remote time is split over nodes by its placement or, if that
    /// is unknown, by its run time. The sum over all nodes is that of the task.
    pub fn by_node(self, task: &Task) -> Vec<(usize, Located)> {
        let ran = &task.delta.run_ns;
        let remote_ns = |at: usize| match task.memory() {
            Some((_, Ok(memory))) => Remote::on(at, ran, memory).remote_ns,
            _ => 0.0,
        };
        let placed: Vec<f64> = (0..ran.len()).map(remote_ns).collect();
        let is_placed = placed.iter().any(|ns| *ns > 0.0);
        let weights = if is_placed { placed } else { ran.iter().map(|ns| *ns as f64).collect() };
        let all: f64 = weights.iter().sum();
        let of = |(at, ns): (usize, &u64)| {
            let part = if all > 0.0 { weights[at] / all } else { 0.0 };
            (at, Located { run_ns: *ns as f64, remote_ns: self.remote_ns * part })
        };
        ran.iter().enumerate().filter(|(_, ns)| **ns > 0).map(of).collect()
    }
}
