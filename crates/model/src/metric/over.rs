//! The value of a metric over several intervals, from its values in each.
//!
//! A mean of percentages is wrong if intervals weigh differently. A task that ran for a millisecond at an IPC
//! of 0.2 would count like one second at 2. A quotient of sums is right, so a metric that is a quotient names
//! its sums.

use super::{Metric, Unit, no};
use crate::model::sample::{Missing, Reading};
use crate::model::units::NodeId;
use crate::snapshot::Snapshot;

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
        let value = self.read(row, snapshot)?.number().ok_or_else(|| no("it is not a number"))?;
        Ok(Quotient::of(value * ns, ns))
    }
}
