//! Rows of tasks that ended while the exit ring was full: their last word never comes. Where some were lost the walk hands
//! out every task, and a row that two such walks miss is given up. Pure.

use std::collections::HashSet;
use std::sync::Arc;

use crate::model::sample::TaskRaw;
use crate::program::slack::is_roomy;

/// Samples from one search to the next: where exits are lost all the time, one walk in four hands out everything.
const REST: u32 = 8;

/// Rows that were given up whose last word is still waited for, so that it is not counted again.
const REMEMBERED: usize = 65_536;

/// Samples for which it is waited for: ten minutes at one a second. A task that is off the list has little left to do; most
/// last words that are waited for were lost, and never come.
const LATEST: u64 = 600;

/// Rows for which there may be room whatever is remembered.
const ROOM_MIN: usize = 1024;

/// The walk of a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Walk {
    /// A walk that returns changed tasks.
    #[default]
    Changes,
    /// It hands out every task, as the first of a search.
    First,
    /// The same, to confirm the first.
    Second,
}

/// A row that was given up.
#[derive(Clone, Copy, Debug)]
struct GivenUp {
    serial: u64,
    /// The number of the sample.
    at: u64,
}

/// Finds rows whose last word is overdue.
#[derive(Debug, Default)]
pub struct Overdue {
    /// Last words lost up to the last search.
    searched_for: u64,
    /// Samples until the next search may begin.
    rest: u32,
    walk: Walk,
    /// Serials of rows that the first walk of a search missed. Last words of some may be on their way: a task leaves the
    /// list that is walked before its last switch.
    suspects: HashSet<u64>,
    /// Samples so far.
    samples: u64,
    /// Rows that were given up, ascending by serial. In one block of memory: thousands of small ones between the rows of a
    /// burst would stay when those go, and hold a page each.
    given_up: Vec<GivenUp>,
    /// CPU time by node in rows that were given up, ns.
    known_ns: Vec<u64>,
    /// CPU time by node in lost last words when the search began, ns.
    lost_ns: Vec<u64>,
    /// Its part that is in no row, as of the last search, ns.
    told_ns: Vec<u64>,
}

impl Overdue {
    /// Whether the next walk must hand out every task. `lost`: last words lost since the start.
    pub fn wants_all(&mut self, lost: u64) -> bool {
        self.samples += 1;
        self.forget();
        self.rest = self.rest.saturating_sub(1);
        self.walk = if self.walk == Walk::First && !self.suspects.is_empty() {
            Walk::Second
        } else if lost != self.searched_for && self.rest == 0 {
            (self.searched_for, self.rest) = (lost, REST);
            Walk::First
        } else {
            Walk::Changes
        };
        self.is_whole()
    }

    /// Whether this walk hands out every task.
    pub fn is_whole(&self) -> bool {
        self.walk != Walk::Changes
    }

    /// Whether this walk is the one after which rows are given up.
    pub fn confirms(&self) -> bool {
        self.walk == Walk::Second
    }

    /// Whether a final row is of a task that was given up, and so reported already.
    pub fn is_too_late(&self, serial: u64) -> bool {
        self.given_up.binary_search_by_key(&serial, |row| row.serial).is_ok()
    }

    /// Drops rows whose last word is not waited for any longer.
    fn forget(&mut self) {
        // Dropping one moves all behind it, so those of a while go together.
        if self.samples.is_multiple_of(LATEST / 10) {
            self.given_up.retain(|row| row.at + LATEST > self.samples);
        }
        if is_roomy(self.given_up.capacity(), self.given_up.len(), ROOM_MIN) {
            self.given_up.shrink_to(2 * self.given_up.len());
        }
    }

    /// Takes a walk that returned every task: the serials of its rows, and the rows that are kept. Returns
    /// the rows to give up.
    pub fn missed(&mut self, live: &[Arc<TaskRaw>], walked: &HashSet<u64>) -> Vec<Arc<TaskRaw>> {
        let missed = live.iter().filter(|task| !walked.contains(&task.serial));
        match self.walk {
            Walk::Changes => Vec::new(),
            Walk::First => {
                self.suspects = missed.map(|task| task.serial).collect();
                Vec::new()
            }
            Walk::Second => {
                let suspects = std::mem::take(&mut self.suspects);
                let given_up: Vec<_> =
                    missed.filter(|task| suspects.contains(&task.serial)).cloned().collect();
                for task in &given_up {
                    add(&mut self.known_ns, &task.counts.run_ns);
                    self.given_up.push(GivenUp { serial: task.serial, at: self.samples });
                }
                self.given_up.sort_unstable_by_key(|row| row.serial);
                // Serials count up: the first are the oldest.
                self.given_up.drain(..self.given_up.len().saturating_sub(REMEMBERED));
                given_up
            }
        }
    }

    /// CPU time by node of lost last words that is in no row; `lost_ns` is that of all of them. As of the last search, because
    /// until a row is given up it has its part of that time.
    pub fn in_no_row(&mut self, lost_ns: Vec<u64>) -> Vec<u64> {
        self.told_ns.resize(lost_ns.len(), 0);
        if self.walk == Walk::First {
            self.lost_ns = lost_ns;
        }
        if self.walk == Walk::Second || self.walk == Walk::First && self.suspects.is_empty() {
            for (node, (told, lost)) in self.told_ns.iter_mut().zip(&self.lost_ns).enumerate() {
                let known = self.known_ns.get(node).copied().unwrap_or(0);
                *told = lost.saturating_sub(known).max(*told);
            }
        }
        self.told_ns.clone()
    }
}

fn add(sums: &mut Vec<u64>, by_node: &[u64]) {
    sums.resize(sums.len().max(by_node.len()), 0);
    sums.iter_mut().zip(by_node).for_each(|(sum, ns)| *sum += ns);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::sample::Counts;

    fn rows(serials: &[u64]) -> Vec<Arc<TaskRaw>> {
        let row = |serial: &u64| {
            let counts = Counts { run_ns: vec![0, 10], ..Counts::default() };
            Arc::new(TaskRaw { serial: *serial, counts, ..TaskRaw::default() })
        };
        serials.iter().map(row).collect()
    }

    fn serials(tasks: &[Arc<TaskRaw>]) -> Vec<u64> {
        tasks.iter().map(|task| task.serial).collect()
    }

    #[test]
    fn a_row_is_given_up_when_two_walks_missed_it() {
        let mut overdue = Overdue::default();
        assert!(!overdue.wants_all(0));
        assert!(overdue.wants_all(3));
        assert!(overdue.missed(&rows(&[1, 2, 3, 4]), &HashSet::from([1])).is_empty());
        // The last word of 2 has come, 4 was walked after all, 5 ended just now.
        assert!(overdue.wants_all(3) && overdue.confirms());
        assert_eq!(serials(&overdue.missed(&rows(&[1, 3, 4, 5]), &HashSet::from([1, 4]))), [3]);
        assert!(overdue.is_too_late(3) && !overdue.is_too_late(5));
        assert!(!overdue.wants_all(3) && !overdue.confirms());
    }

    #[test]
    fn searches_rest_while_exits_are_lost_all_the_time() {
        let mut overdue = Overdue::default();
        let live = rows(&[1, 2]);
        let whole = |lost: u64| {
            let is_whole = overdue.wants_all(lost);
            overdue.missed(&live, &HashSet::from([1]));
            is_whole
        };
        let whole: Vec<bool> = (1..=20).map(whole).collect();
        assert_eq!(whole.iter().filter(|is_whole| **is_whole).count(), 6, "{whole:?}");
        assert!(whole[0] && whole[1] && !whole[2]);
    }

    #[test]
    fn time_in_no_row_never_goes_back() {
        let mut overdue = Overdue::default();
        // 30 ns of three lost words: one was not known, two rows have 10 of their 12 and 11.
        assert!(overdue.wants_all(3));
        overdue.missed(&rows(&[1, 2]), &HashSet::new());
        assert_eq!(overdue.in_no_row(vec![0, 30]), [0, 0], "rows still have a part of it");
        assert!(overdue.wants_all(4));
        overdue.missed(&rows(&[1, 2]), &HashSet::new());
        assert_eq!(overdue.in_no_row(vec![0, 100]), [0, 10]);
        // Words that were lost meanwhile wait for the next search.
        let mut told = Vec::new();
        for _ in 0..REST {
            overdue.wants_all(4);
            overdue.missed(&[], &HashSet::new());
            told.push(overdue.in_no_row(vec![0, 100])[1]);
        }
        assert!(told.is_sorted(), "{told:?}");
        assert_eq!((told[0], told.last()), (10, Some(&80)));
    }

    #[test]
    fn a_last_word_is_not_waited_for_for_ever() {
        let mut overdue = Overdue::default();
        let live = rows(&(0..10_000).collect::<Vec<_>>());
        for _ in 0..2 {
            assert!(overdue.wants_all(1));
            overdue.missed(&live, &HashSet::new());
        }
        for _ in 1..LATEST {
            overdue.wants_all(1);
            assert!(overdue.is_too_late(0) && overdue.is_too_late(9_999));
        }
        for _ in 0..LATEST / 10 {
            overdue.wants_all(1);
        }
        assert!(!overdue.is_too_late(0) && !overdue.is_too_late(9_999));
        assert!(overdue.given_up.capacity() <= ROOM_MIN, "{}", overdue.given_up.capacity());
    }

    #[test]
    fn only_so_many_are_remembered() {
        let mut overdue = Overdue::default();
        let live = rows(&(0..70_000).collect::<Vec<_>>());
        for _ in 0..2 {
            assert!(overdue.wants_all(1));
            overdue.missed(&live, &HashSet::new());
        }
        assert!(!overdue.is_too_late(0) && overdue.is_too_late(69_999));
        assert_eq!((overdue.given_up.len(), overdue.suspects.len()), (REMEMBERED, 0));
    }
}
