//! Amounts: quantities for consumers that add up, which are columns of tables and families of the exporter. One
//! line for each.

pub mod node;
pub mod row;

use super::counters;
use crate::model::event::Role;
use crate::model::sample::Slot;
use crate::snapshot::Snapshot;

/// Seconds of a nanosecond.
pub const NS: f64 = 1e-9;

/// An amount: exact, or scaled, as counts of events and shares of time are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    Whole(u64),
    Scaled(f64),
}

impl Number {
    /// The next number with a fraction.
    pub fn as_f64(self) -> f64 {
        match self {
            Number::Whole(whole) => whole as f64,
            Number::Scaled(scaled) => scaled,
        }
    }
}

impl From<u64> for Number {
    fn from(whole: u64) -> Number {
        Number::Whole(whole)
    }
}

impl From<u32> for Number {
    fn from(whole: u32) -> Number {
        Number::Whole(whole.into())
    }
}

impl From<f64> for Number {
    fn from(scaled: f64) -> Number {
        Number::Scaled(scaled)
    }
}

/// The count of the events of a role; `None` where they were not counted.
pub fn events(slots: &[Slot], snapshot: &Snapshot, role: Role) -> Option<f64> {
    let count = match role {
        Role::Lma => counters::lma(slots, snapshot),
        role => counters::count(slots, snapshot, role),
    };
    count.ok()
}
