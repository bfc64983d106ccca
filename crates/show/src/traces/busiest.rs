//! Programs and containers with the most CPU time of a stretch: the ones with separate tracks.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use regex_lite::Regex;

use crate::entity::program_of;
use crate::model::group::Kind;
use crate::snapshot::{Container, Snapshot};

/// Maximum separate rows of one kind: anyone can choose names.
const ROWS_MAX: usize = 100_000;

/// Rows that are kept where there are more: those with the most time so far.
const KEPT: usize = ROWS_MAX / 2;

/// A program: the container that it is in, and its name. Clean.
pub type Program = (Option<String>, String);

/// CPU time of programs and containers so far, ns.
#[derive(Debug, Default)]
pub struct Busiest {
    programs: HashMap<Program, u64>,
    /// By the id of their cgroup.
    containers: HashMap<u64, u64>,
}

/// The rows with tracks, by rank from 0, and the number of those without.
#[derive(Clone, Debug, Default)]
pub struct Chosen {
    pub programs: BTreeMap<Program, usize>,
    /// By the id of their cgroup.
    pub containers: BTreeMap<u64, usize>,
    pub programs_left_out: usize,
    pub containers_left_out: usize,
}

/// Whether a row is of something by itself: a cgroup that only holds others is not.
pub fn is_own(row: &Container) -> bool {
    row.group.as_ref().is_some_and(|group| group.kind != Kind::Group || row.own_tasks)
}

impl Busiest {
    /// Adds an interval, whose rows are processes.
    pub fn take(&mut self, snapshot: &Snapshot) {
        for task in snapshot.tasks.iter().filter(|task| task.run_ns() > 0) {
            add(&mut self.programs, program_of(task, snapshot), task.run_ns());
        }
        for row in snapshot.containers.iter().filter(|row| is_own(row) && row.sum.run_ns() > 0) {
            add(&mut self.containers, row.id, row.sum.run_ns());
        }
    }

    /// The first programs whose name `comm` matches, and the first containers, this many of each.
    pub fn choose(self, programs: usize, containers: usize, comm: Option<&Regex>) -> Chosen {
        let mut matching = self.programs;
        matching.retain(|(_, name), _| comm.is_none_or(|comm| comm.is_match(name)));
        Chosen {
            programs_left_out: matching.len().saturating_sub(programs),
            containers_left_out: self.containers.len().saturating_sub(containers),
            programs: most(matching, programs),
            containers: most(self.containers, containers),
        }
    }
}

fn add<K: Eq + Hash + Ord + Clone>(rows: &mut HashMap<K, u64>, key: K, ns: u64) {
    let sum = rows.entry(key).or_default();
    *sum = sum.saturating_add(ns);
    if rows.len() > ROWS_MAX {
        let kept = most(rows.clone(), KEPT);
        rows.retain(|key, _| kept.contains_key(key));
    }
}

/// The rows with the most time, by rank. Rows with the same time are in the order of their keys.
fn most<K: Eq + Hash + Ord>(rows: HashMap<K, u64>, count: usize) -> BTreeMap<K, usize> {
    let mut rows: Vec<(K, u64)> = rows.into_iter().collect();
    rows.sort_by(|(a, a_ns), (b, b_ns)| b_ns.cmp(a_ns).then_with(|| a.cmp(b)));
    rows.into_iter().take(count).enumerate().map(|(rank, (key, _))| (key, rank)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_are_chosen_and_memory_is_bounded() {
        let mut busiest = Busiest::default();
        let program = |name: &str| (None, name.to_owned());
        for at in 0..ROWS_MAX as u64 + 10 {
            add(&mut busiest.programs, program(&format!("p{at}")), 1);
        }
        assert!(busiest.programs.len() <= ROWS_MAX);
        for (name, ns) in [("b", 50), ("a", 50), ("c", 70), ("c", 1)] {
            add(&mut busiest.programs, program(name), ns);
        }
        let all = busiest.programs.len();
        let chosen = busiest.choose(3, 1, None);
        let ranks: Vec<(&str, usize)> =
            chosen.programs.iter().map(|((_, name), rank)| (&**name, *rank)).collect();
        assert_eq!(ranks, [("a", 1), ("b", 2), ("c", 0)]);
        assert_eq!((chosen.programs_left_out, chosen.containers_left_out), (all - 3, 0));
    }

    #[test]
    fn only_programs_that_match_are_chosen() {
        let mut busiest = Busiest::default();
        for name in ["java", "javac", "nginx"] {
            add(&mut busiest.programs, (None, name.to_owned()), 1);
        }
        let chosen = busiest.choose(20, 20, Some(&Regex::new("^java").unwrap()));
        assert_eq!((chosen.programs.len(), chosen.programs_left_out), (2, 0));
    }
}
