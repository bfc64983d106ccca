//! The walk of a round: over all tasks, or over a list of tasks that ran and tasks that are due. Pure.
//!
//! The cost of a walk over all tasks grows with their number, and most tasks sleep. The kernel's iterator takes
//! each from its table of ids. A short walk costs by the tasks on its list. It finds everything that a walk over
//! all finds, with two exceptions, each for less than [`LOOK_EVERY`] rounds. A task that was woken and waits
//! for a CPU shows its old state, and changes that others make to a sleeping task are found when that task is
//! due. A walk over all tasks does not have the former exception.
//!
//! A short walk cannot find a task without a record and a mark. There should be none: births and moves are
//! marked. But programs at tracepoints can be skipped where one interrupts itself, so a walk over all tasks
//! runs now and then in any case.

use crate::model::wire::LOOK_EVERY;

/// Tasks of the machine from which on a list is worth it. With fewer, reading the marks and stepping over the
/// list takes as long.
pub const SHORT_FROM: u32 = 1000;

/// Rounds from one walk over all to the next.
pub const WHOLE_EVERY: u32 = 64;

/// The walk of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walk {
    /// Over all tasks, and a look at each.
    Whole,
    /// Over all tasks: reads each task that ran, and one in [`LOOK_EVERY`] of the others.
    Changes,
    /// Over a list of tasks that ran and tasks that are due.
    Short,
}

/// Knowledge of the tasks before a walk.
pub struct Round<'a> {
    /// Every task is to be handed out, also those in which nothing changed.
    pub all: bool,
    /// Ids of threads that a short walk visits besides the marked ones, in this one of [`LOOK_EVERY`] turns.
    pub beside: &'a dyn Fn(u32) -> Vec<u32>,
}

impl Round<'_> {
    /// One in which nothing is known of the tasks.
    pub fn unknown(all: bool) -> Round<'static> {
        Round { all, beside: &|_| Vec::new() }
    }
}

/// Chooses the walk of each round.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rounds {
    /// Rounds so far. The first is zero.
    count: u32,
    /// Short walks since all tasks were looked at.
    short: u32,
}

impl Rounds {
    /// The walk of the next round on a machine with `tasks` tasks, in scope or not. `whole`: every task must
    /// be visited; `can_list`: a short walk is possible.
    pub fn next(&mut self, tasks: u32, whole: bool, can_list: bool) -> Walk {
        let walk = if whole || self.count == 0 || self.short >= WHOLE_EVERY {
            Walk::Whole
        } else if can_list && tasks >= SHORT_FROM {
            Walk::Short
        } else {
            Walk::Changes
        };
        self.short = if walk == Walk::Short { self.short + 1 } else { 0 };
        // Never zero again: that would be the first.
        self.count = self.count.wrapping_add(1).max(1);
        walk
    }

    /// The turn of the round that was chosen last: tasks are looked at in one of [`LOOK_EVERY`].
    pub fn turn(self) -> u32 {
        self.count % LOOK_EVERY
    }

    /// Rounds so far.
    pub fn count(self) -> u32 {
        self.count
    }
}

/// Bytes that are looked at together: most threads of most machines rest.
const STRIDE: usize = 64;

/// Ids of the threads that are marked in `marks`, a piece of the table that begins with the id `first`; ascending.
pub fn marked(marks: &[u8], first: u32) -> impl Iterator<Item = u32> {
    let is_any = |piece: &&[u8]| piece.iter().fold(0, |any, mark| any | mark) != 0;
    (first..)
        .step_by(STRIDE)
        .zip(marks.chunks(STRIDE))
        .filter(move |(_, piece)| is_any(piece))
        .flat_map(|(first, piece)| (first..).zip(piece).filter(|(_, mark)| **mark != 0).map(|(id, _)| id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::wire::MARKS;

    #[test]
    fn a_list_is_for_many_tasks_that_are_known() {
        let mut rounds = Rounds::default();
        assert_eq!(rounds.next(SHORT_FROM, false, true), Walk::Whole, "the first");
        assert_eq!(rounds.next(SHORT_FROM - 1, false, true), Walk::Changes);
        assert_eq!(rounds.next(SHORT_FROM, false, false), Walk::Changes, "no such program");
        assert_eq!(rounds.next(SHORT_FROM, false, true), Walk::Short);
        assert_eq!(rounds.next(SHORT_FROM, true, true), Walk::Whole, "asked for");
        assert_eq!(rounds.next(SHORT_FROM, false, true), Walk::Short);
    }

    #[test]
    fn all_tasks_are_walked_over_now_and_then() {
        let mut rounds = Rounds::default();
        rounds.next(SHORT_FROM, false, true);
        let walks: Vec<Walk> =
            (0..3 * (WHOLE_EVERY + 1)).map(|_| rounds.next(SHORT_FROM, false, true)).collect();
        assert_eq!(walks.iter().filter(|walk| **walk == Walk::Whole).count(), 3);
        assert_eq!(walks[WHOLE_EVERY as usize], Walk::Whole);
    }

    #[test]
    fn each_turn_comes_once_in_eight_rounds() {
        let mut rounds = Rounds { count: u32::MAX - 3, short: 0 };
        for _ in 0..4 {
            rounds.next(0, false, false);
        }
        assert_eq!(rounds.count(), 1, "never the first again");
        let turns: Vec<u32> = (0..LOOK_EVERY)
            .map(|_| {
                rounds.next(SHORT_FROM, false, true);
                rounds.turn()
            })
            .collect();
        let mut sorted = turns.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..LOOK_EVERY).collect::<Vec<_>>());
    }

    #[test]
    fn marks_are_found_wherever_they_are() {
        let mut marks = vec![0; MARKS as usize];
        let expected = [0, 1, 63, 64, 700, 4095];
        for at in expected {
            marks[at as usize] = 1;
        }
        assert_eq!(marked(&marks, 0).collect::<Vec<_>>(), expected);
        let last = (1 << 22) - MARKS;
        assert_eq!(marked(&marks, last).last(), Some((1 << 22) - 1));
        assert_eq!(marked(&[0; 100], 0).count(), 0);
        assert_eq!(marked(&[1; 100], 7).count(), 100);
    }
}
