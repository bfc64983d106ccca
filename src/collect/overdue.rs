//! Rows of tasks that ended while the exit ring was full: their last word never comes. Where some were lost the walk hands
//! out every task, and a row that two such walks missed is given up. Pure.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::model::sample::{Counts, TaskRaw};

/// Samples from one search to the next: where exits are lost all the time, one walk in four hands out everything.
const REST: u32 = 8;

/// Finds rows whose last word is overdue.
#[derive(Debug, Default)]
pub struct Overdue {
    /// Last words lost up to the last search.
    searched_for: u64,
    /// Samples until the next search may begin.
    rest: u32,
    /// The next walk hands out every task.
    is_whole: bool,
    /// Serials of rows that the first walk of a search missed. Last words of some may be on their way: a task leaves the
    /// list that is walked before its last switch.
    suspects: HashSet<u64>,
    /// CPU time by node in rows of suspects, ns.
    suspected_ns: Vec<u64>,
    /// What was known of rows that were given up lately, by serial: should their last word come after all.
    given_up: HashMap<u64, Counts>,
    /// CPU time by node in rows that were given up, ns.
    given_up_ns: Vec<u64>,
}

impl Overdue {
    /// Whether the next walk must hand out every task. `lost`: last words lost since the start.
    pub fn wants_all(&mut self, lost: u64) -> bool {
        self.rest = self.rest.saturating_sub(1);
        if self.rest == 0 {
            self.given_up = HashMap::new();
        }
        let is_new = lost != self.searched_for && self.rest == 0;
        if is_new {
            (self.searched_for, self.rest) = (lost, REST);
        }
        self.is_whole = is_new || !self.suspects.is_empty();
        self.is_whole
    }

    /// The next walk hands out every task.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Takes off a last word what was known of its row when that was given up.
    pub fn settle(&mut self, task: &mut TaskRaw) {
        if let Some(known) = self.given_up.remove(&task.serial) {
            task.counts -= &known;
            self.given_up_ns.iter_mut().zip(&known.run_ns).for_each(|(sum, ns)| *sum -= ns);
        }
    }

    /// Takes a walk that handed out every task: the serials of its rows, beside the rows that are kept. Returns those that
    /// are to be given up.
    pub fn missed(&mut self, live: &[Arc<TaskRaw>], walked: &HashSet<u64>) -> Vec<Arc<TaskRaw>> {
        self.is_whole = false;
        self.suspected_ns.clear();
        let missed = live.iter().filter(|task| !walked.contains(&task.serial));
        let suspects = std::mem::take(&mut self.suspects);
        if suspects.is_empty() {
            for task in missed {
                self.suspects.insert(task.serial);
                add(&mut self.suspected_ns, &task.counts.run_ns);
            }
            return Vec::new();
        }
        let given_up: Vec<_> = missed.filter(|task| suspects.contains(&task.serial)).cloned().collect();
        for task in &given_up {
            add(&mut self.given_up_ns, &task.counts.run_ns);
            self.given_up.insert(task.serial, task.counts.clone());
        }
        given_up
    }

    /// CPU time of lost last words that no row has, by node; `lost_ns` is that of all of them.
    pub fn in_no_row(&self, mut lost_ns: Vec<u64>) -> Vec<u64> {
        for known in [&self.suspected_ns, &self.given_up_ns] {
            lost_ns.iter_mut().zip(known).for_each(|(lost, ns)| *lost = lost.saturating_sub(*ns));
        }
        lost_ns
    }
}

fn add(sums: &mut Vec<u64>, by_node: &[u64]) {
    sums.resize(sums.len().max(by_node.len()), 0);
    sums.iter_mut().zip(by_node).for_each(|(sum, ns)| *sum += ns);
}

#[cfg(test)]
mod tests {
    use super::*;

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
        // Its time is in the rows of suspects already.
        assert_eq!(overdue.in_no_row(vec![5, 33]), [5, 3]);
        // The last word of 2 has come, 4 was walked after all, 5 ended just now.
        assert!(overdue.wants_all(3));
        assert_eq!(serials(&overdue.missed(&rows(&[1, 3, 4, 5]), &HashSet::from([1, 4]))), [3]);
        assert_eq!(overdue.in_no_row(vec![5, 33]), [5, 23]);
        assert!(!overdue.wants_all(3) && !overdue.is_whole());
    }

    #[test]
    fn searches_rest_while_exits_are_lost_all_the_time() {
        let mut overdue = Overdue::default();
        let live = rows(&[1, 2]);
        let whole = |lost: u64| {
            let is_whole = overdue.wants_all(lost);
            if is_whole {
                overdue.missed(&live, &HashSet::from([1]));
            }
            is_whole
        };
        let whole: Vec<bool> = (1..=20).map(whole).collect();
        assert_eq!(whole.iter().filter(|is_whole| **is_whole).count(), 6, "{whole:?}");
        assert!(whole[0] && whole[1] && !whole[2]);
    }

    #[test]
    fn a_last_word_that_comes_late_counts_what_is_new_in_it() {
        let mut overdue = Overdue::default();
        let live = rows(&[1]);
        for _ in 0..2 {
            assert!(overdue.wants_all(1));
            overdue.missed(&live, &HashSet::new());
        }
        let mut last = TaskRaw::clone(&live[0]);
        last.counts.run_ns[1] += 7;
        overdue.settle(&mut last);
        assert_eq!((last.counts.run_ns, overdue.in_no_row(vec![0, 40])), (vec![0, 7], vec![0, 40]));
    }

    #[test]
    fn nothing_of_rows_that_were_given_up_is_kept_for_long() {
        let mut overdue = Overdue::default();
        let live = rows(&[1]);
        for _ in 0..2 {
            assert!(overdue.wants_all(1));
            overdue.missed(&live, &HashSet::new());
        }
        assert_eq!(overdue.given_up.len(), 1);
        (0..REST).for_each(|_| assert!(!overdue.wants_all(1)));
        assert!(overdue.given_up.is_empty() && overdue.suspects.is_empty());
        assert_eq!(overdue.in_no_row(vec![0, 40]), [0, 30]);
    }
}
