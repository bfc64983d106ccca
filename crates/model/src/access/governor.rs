//! The budget of sampling by default: rate and number of processes follow what it costs. Where there are too many processes, as
//! many are sampled as there is room for, and none only for a moment.

#![warn(missing_docs)]

use std::collections::{BTreeMap, VecDeque};

use crate::model::process::ProcessId;

/// Share of one CPU that sampling by default may take, on average over [`WINDOW_NS`].
pub const BUDGET: f64 = 0.01;

/// Cost is averaged over this time, ns.
const WINDOW_NS: u64 = 10_000_000_000;

/// An average over less time is meaningless, ns.
const LEAST_NS: u64 = 2_000_000_000;

/// One step costs at most twice what the one below it does: below this part of the budget a step up stays within it.
const LOW: f64 = 0.4;

/// Rest when the cheapest step is too dear, ns.
const REST_NS: u64 = 60_000_000_000;

/// Processes that are sampled at most.
pub const PROCESSES_MAX: usize = 16;

/// Times a second that each CPU is sampled at least: below that ten seconds hold too few samples of one busy thread.
const HZ_MIN: u32 = 7;

/// Samples a second on each CPU, and the number of processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Times a second that each CPU is sampled.
    pub hz: u32,
    /// Processes that are sampled, 1 to [`PROCESSES_MAX`].
    pub processes: usize,
}

/// The pace, and what it costs.
#[derive(Clone, Debug)]
pub struct Governor {
    /// From the dearest to the cheapest, never empty.
    steps: Vec<Pace>,
    at: usize,
    /// Length and cost of the last intervals at this step, ns, the oldest first.
    spent: VecDeque<(u64, u64)>,
    /// Time of rest that is left, ns; 0 while it samples.
    resting_ns: u64,
}

impl Governor {
    /// Begins with `hz` times a second on each CPU and [`PROCESSES_MAX`] processes.
    pub fn new(hz: u32) -> Governor {
        // Odd rates: work that is done a hundred times a second would always or never be seen at round ones.
        let at = |shift: u32| ((hz >> shift) | 1).max(HZ_MIN).min(hz.max(1));
        let of = |(shift, processes)| Pace { hz: at(shift), processes };
        let mut steps: Vec<Pace> =
            [(0, 16), (1, 16), (2, 16), (2, 8), (2, 4), (3, 4), (3, 2), (3, 1)].map(of).to_vec();
        steps.dedup();
        Governor { steps, at: 0, spent: VecDeque::new(), resting_ns: 0 }
    }

    /// The pace; `None` while it rests, because the cheapest one cost more than the budget.
    pub fn pace(&self) -> Option<Pace> {
        (self.resting_ns == 0).then(|| self.steps[self.at])
    }

    /// Share of one CPU that was spent on average since the pace is what it is, over ten seconds at most. `None` soon after.
    pub fn share(&self) -> Option<f64> {
        let (length, cost) =
            self.spent.iter().fold((0, 0), |sum, (length, cost)| (sum.0 + length, sum.1 + cost));
        (length >= LEAST_NS).then(|| cost as f64 / length as f64)
    }

    /// Takes what an interval of `length_ns` cost, ns of CPU time. True when the pace is another one from now on.
    pub fn take(&mut self, length_ns: u64, cost_ns: u64) -> bool {
        if self.resting_ns > 0 {
            self.resting_ns = self.resting_ns.saturating_sub(length_ns);
            return self.resting_ns == 0;
        }
        self.spent.push_back((length_ns, cost_ns));
        while self.length_ns() > WINDOW_NS && self.spent.len() > 1 {
            self.spent.pop_front();
        }
        let Some(share) = self.share() else { return false };
        if share > BUDGET {
            self.step_down((share / BUDGET).log2().ceil().max(1.0) as usize);
            return true;
        }
        // Only a whole window proves that there is room: costs go up and down with the work of the processes.
        if share < LOW * BUDGET && self.at > 0 && self.length_ns() * 10 >= WINDOW_NS * 9 {
            self.at -= 1;
            self.spent.clear();
            return true;
        }
        false
    }

    fn length_ns(&self) -> u64 {
        self.spent.iter().map(|(length, _)| length).sum()
    }

    fn step_down(&mut self, steps: usize) {
        let last = self.steps.len() - 1;
        if self.at == last {
            self.resting_ns = REST_NS;
        }
        self.at = (self.at + steps).min(last);
        self.spent.clear();
    }
}

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

    /// Runs it for `seconds` seconds with a cost in proportion to rate and processes: `ns` for a full rate of
    /// 97 Hz and 16 processes. Returns the share of a CPU that was spent in the last `of` seconds.
    fn run(governor: &mut Governor, ns: u64, seconds: u64, of: u64) -> f64 {
        let mut spent = 0;
        for second in 0..seconds {
            let pace = governor.pace();
            let cost = pace.map_or(0, |pace| ns * u64::from(pace.hz) * pace.processes as u64 / (97 * 16));
            governor.take(S, cost);
            if second >= seconds - of {
                spent += cost;
            }
        }
        spent as f64 / (of * S) as f64
    }

    #[test]
    fn what_is_within_the_budget_stays_as_it_is() {
        let mut governor = Governor::new(97);
        run(&mut governor, 9_000_000, 100, 1);
        assert_eq!(governor.pace(), Some(Pace { hz: 97, processes: 16 }));
        assert!(governor.share().is_some_and(|share| (share - 0.009).abs() < 1e-9));
    }

    #[test]
    fn whatever_it_costs_the_budget_is_kept() {
        for ns in [11, 15, 30, 80, 200, 1000].map(|ms| ms * 1_000_000) {
            let mut governor = Governor::new(97);
            run(&mut governor, ns, 20, 1);
            let share = run(&mut governor, ns, 300, 300);
            assert!(share <= BUDGET * 1.02, "{ns}: {share}");
        }
    }

    #[test]
    fn the_rate_goes_down_before_processes_do_and_comes_back() {
        let mut governor = Governor::new(97);
        run(&mut governor, 18_000_000, 10, 1);
        assert_eq!(governor.pace(), Some(Pace { hz: 49, processes: 16 }));
        run(&mut governor, 60_000_000, 10, 1);
        assert_eq!(governor.pace(), Some(Pace { hz: 25, processes: 8 }));
        run(&mut governor, 5_000_000, 60, 1);
        assert_eq!(governor.pace(), Some(Pace { hz: 97, processes: 16 }));
    }

    #[test]
    fn a_pace_that_is_right_does_not_swing() {
        let mut governor = Governor::new(97);
        run(&mut governor, 13_000_000, 30, 1);
        let mut changes = 0;
        for _ in 0..600 {
            let pace = governor.pace().unwrap();
            let cost = 13_000_000 * u64::from(pace.hz) * pace.processes as u64 / (97 * 16);
            changes += usize::from(governor.take(S, cost));
        }
        assert_eq!(changes, 0);
    }

    #[test]
    fn it_rests_where_the_cheapest_pace_is_too_dear() {
        let mut governor = Governor::new(97);
        while governor.pace().is_some() {
            governor.take(S, S / 10);
        }
        let rested = (1..).find(|_| governor.take(S, 0)).unwrap();
        assert_eq!((rested, governor.pace()), (60, Some(Pace { hz: 13, processes: 1 })));
    }

    #[test]
    fn large_machines_begin_with_a_low_rate_and_keep_it() {
        let governor = Governor::new(7);
        assert!(governor.steps.iter().all(|pace| pace.hz == 7), "{governor:?}");
        assert_eq!(governor.steps.len(), 5, "{governor:?}");
    }

    const CHOSEN_S: u64 = 1_000_000_000;

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
        assert_eq!(chosen.take(&[A, C, B], 2, CHOSEN_S), [A, B]);
        assert_eq!(chosen.take(&[A, C, B], 2, 20 * CHOSEN_S), [A, C]);
        // The process of the details has a place at once.
        assert_eq!(chosen.take(&[B, A, C], 2, 21 * CHOSEN_S), [B, A]);
    }

    #[test]
    fn one_that_is_wanted_no_longer_makes_room() {
        let mut chosen = Chosen::default();
        chosen.take(&[A, B], 2, 0);
        assert_eq!(chosen.take(&[A, C], 2, CHOSEN_S), [A, C]);
    }
}
