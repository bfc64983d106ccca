//! Latencies of sampled loads: counts in steps of 6 %, from which percentiles come.

#![warn(missing_docs)]

use std::collections::BTreeMap;

use crate::model::coded::varint::Malformed;
use crate::model::coded::{Codec, Coded, Counted, In, Out};

/// Steps in which a latency doubles: each is 1/16 of where the doubling begins, 6 % wide at most.
const STEPS: u64 = 16;
/// 2 to the power of this is [`STEPS`].
const SHIFT: u32 = 4;

/// Latencies in cycles, up to 2³² - 1, with a relative error of 3 % at most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latencies(BTreeMap<u16, u64>);

/// Steps that have loads, and their loads.
impl Coded for Latencies {
    fn put<'v>(&'v self, out: &mut Out<'v>) {
        Counted::put(&self.0, out);
    }

    fn get(input: &mut In<'_, '_>) -> Result<Latencies, Malformed> {
        let steps: BTreeMap<u16, u64> = Counted::get(input)?;
        let exists = steps.keys().all(|at| *at <= step(u32::MAX));
        exists.then_some(Latencies(steps)).ok_or(Malformed("a latency is out of range"))
    }
}

impl Latencies {
    /// Adds one load.
    pub fn add(&mut self, cycles: u32) {
        *self.0.entry(step(cycles)).or_default() += 1;
    }

    /// Adds all loads of `more`.
    pub fn add_all(&mut self, more: &Latencies) {
        more.0.iter().for_each(|(step, loads)| *self.0.entry(*step).or_default() += loads);
    }

    /// Loads in it.
    pub fn loads(&self) -> u64 {
        self.0.values().fold(0, |sum, loads| sum.saturating_add(*loads))
    }

    /// The latency that `pct` per cent of the loads do not exceed, in cycles; `pct` from 0 to 100. `None` without loads.
    pub fn percentile(&self, pct: f64) -> Option<f64> {
        let rank = self.loads() as f64 * pct.clamp(0.0, 100.0) / 100.0;
        let mut below = 0.0;
        let mut last = None;
        for (step, loads) in &self.0 {
            let (from, width) = bounds(*step);
            let loads = *loads as f64;
            if below + loads >= rank {
                // Loads lie evenly in a step, as far as is known.
                return Some(from + width * ((rank - below) / loads).clamp(0.0, 1.0));
            }
            below += loads;
            last = Some(from + width);
        }
        last
    }
}

/// Latencies below 16 have a step each; from there on each power of two has 16.
fn step(cycles: u32) -> u16 {
    let cycles = u64::from(cycles);
    let shift = (u64::BITS - (cycles | (STEPS - 1)).leading_zeros()) - SHIFT;
    (u64::from(shift) * STEPS + (cycles >> shift.saturating_sub(1)) - if shift > 0 { STEPS } else { 0 })
        as u16
}

/// The first latency of a step, and its width, in cycles.
fn bounds(step: u16) -> (f64, f64) {
    let step = u64::from(step);
    match (step / STEPS).checked_sub(1) {
        None => (step as f64, 1.0),
        Some(shift) => ((((step % STEPS) + STEPS) << shift) as f64, (1_u64 << shift) as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn steps_follow_one_another() {
        let mut next = 0.0;
        for at in 0..=step(u32::MAX) {
            let (from, width) = bounds(at);
            assert!(from == next && (width <= 1.0 || width / from <= 1.0 / 16.0), "{at}: {from} {width}");
            next = from + width;
        }
        assert_eq!(next, 2.0_f64.powi(32));
    }

    proptest! {
        #[test]
        fn a_latency_is_in_its_step(cycles in any::<u32>(), small in 0..5000_u32) {
            for cycles in [cycles, small] {
                let (from, width) = bounds(step(cycles));
                let cycles = f64::from(cycles);
                prop_assert!(from <= cycles && cycles < from + width, "{cycles} in {from} + {width}");
            }
        }
    }

    #[test]
    fn percentiles_are_near_those_of_the_loads() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.percentile(50.0), None);
        (1..=1000).for_each(|cycles| latencies.add(cycles));
        for (pct, expected) in [(50.0, 500.0), (95.0, 950.0), (99.0, 990.0)] {
            let found = latencies.percentile(pct).unwrap();
            assert!((found / expected - 1.0_f64).abs() < 0.035, "{pct}: {found}");
        }
        assert!(latencies.percentile(100.0).unwrap() >= 1000.0 && latencies.percentile(0.0).unwrap() <= 2.0);
        let mut twice = latencies.clone();
        twice.add_all(&latencies);
        assert_eq!((twice.loads(), twice.percentile(50.0)), (2000, latencies.percentile(50.0)));
    }
}
