//! The processes that are sampled when there are too many for all: as many as there is room for, and none
//! only for a moment.

#![warn(missing_docs)]

use std::collections::BTreeMap;

use crate::model::process::ProcessId;

/// A chosen process stays for at least this time while it is wanted, ns: shares are those of ten seconds.
const HOLD_NS: u64 = 20_000_000_000;

/// The processes that were chosen, and when.
#[derive(Clone, Debug, Default)]
pub struct Chosen(BTreeMap<ProcessId, u64>);

impl Chosen {
    /// Chooses at most `most` of `wanted`, in which the most important one comes first and always has a place. Time is
    /// CLOCK_MONOTONIC, ns.
    pub fn take(&mut self, wanted: &[ProcessId], most: usize, now_ns: u64) -> Vec<ProcessId> {
        let is_held = |process: &ProcessId| {
            self.0.get(process).is_some_and(|since| now_ns.saturating_sub(*since) < HOLD_NS)
        };
        let first = wanted.iter().take(1);
        let (held, others): (Vec<_>, Vec<_>) = wanted.iter().skip(1).partition(|process| is_held(process));
        let chosen: Vec<ProcessId> = first.chain(held).chain(others).take(most).copied().collect();
        self.0.retain(|process, _| chosen.contains(process));
        for process in &chosen {
            // Its time is over: it may stay where it belongs by rank.
            let since = self.0.entry(*process).or_insert(now_ns);
            if now_ns.saturating_sub(*since) >= HOLD_NS {
                *since = now_ns;
            }
        }
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;
    const A: ProcessId = (1, 1);
    const B: ProcessId = (2, 1);
    const C: ProcessId = (3, 1);

    #[test]
    fn the_first_ones_are_chosen_as_far_as_there_is_room() {
        assert_eq!(Chosen::default().take(&[A, B, C], 2, 0), [A, B]);
        assert_eq!(Chosen::default().take(&[A], 16, 0), [A]);
        assert!(Chosen::default().take(&[], 16, 0).is_empty());
    }

    #[test]
    fn ranks_that_change_each_second_do_not_change_the_choice() {
        let mut chosen = Chosen::default();
        chosen.take(&[A, B, C], 2, 0);
        assert_eq!(chosen.take(&[A, C, B], 2, S), [A, B]);
        assert_eq!(chosen.take(&[A, C, B], 2, 20 * S), [A, C]);
        // The process of the details has a place at once.
        assert_eq!(chosen.take(&[B, A, C], 2, 21 * S), [B, A]);
    }

    #[test]
    fn one_that_is_wanted_no_longer_makes_room() {
        let mut chosen = Chosen::default();
        chosen.take(&[A, B], 2, 0);
        assert_eq!(chosen.take(&[A, C], 2, S), [A, C]);
    }
}
