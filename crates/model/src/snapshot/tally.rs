//! Counts of a row without a copy where none is needed: most threads of a busy machine rest.

use std::ops::{AddAssign, Deref, SubAssign};
use std::sync::{Arc, LazyLock, OnceLock};

use crate::model::sample::{Counts, TaskRaw, TaskRows};

static NOTHING: LazyLock<Counts> = LazyLock::new(Counts::default);

/// Beyond this many levels, sums of sums are computed at once and not on reading: a hostile recording may
/// have cgroups of any depth.
const LEVELS_MAX: u32 = 32;

/// Reads as [`Counts`]. Becomes a separate copy when it is added to.
#[derive(Clone, Debug, Default)]
pub enum Tally {
    /// All zero.
    #[default]
    Nothing,
    /// The counts of the task itself.
    Of(Arc<TaskRaw>),
    /// Added up on reading: only the few rows on screen need counts since the start.
    Sum(Arc<Parts>),
    /// The same of the tasks of one of these teams, by its place.
    Team(Arc<Teams>, u32),
    Own(Box<Counts>),
}

/// Parts of a sum, and the sum once it was read.
#[derive(Debug)]
pub struct Parts {
    parts: Vec<Tally>,
    levels: u32,
    sum: OnceLock<Counts>,
}

impl Parts {
    fn sum(&self) -> &Counts {
        self.sum.get_or_init(|| {
            let mut sum = Counts::default();
            self.parts.iter().for_each(|part| sum += &**part);
            sum
        })
    }
}

/// Tasks in teams, such as the processes of a sample, in one list for all of them. A list for each would be
/// most of the allocations of an interval. Sums are kept once they were read.
#[derive(Debug)]
pub struct Teams {
    tasks: TaskRows,
    /// Places of tasks, team by team.
    order: Vec<u32>,
    /// Where each team ends in it.
    ends: Vec<u32>,
    sums: Vec<OnceLock<Box<Counts>>>,
}

impl Teams {
    /// The teams of these tasks. `places` has the team of each task, below `count`.
    pub(super) fn of(tasks: &TaskRows, places: &[u32], count: usize) -> Teams {
        // Where each team begins, and where it ends once its tasks are listed.
        let mut ends = vec![0u32; count + 1];
        places.iter().for_each(|place| ends[*place as usize + 1] += 1);
        (1..=count).for_each(|at| ends[at] += ends[at - 1]);
        let mut order = vec![0u32; tasks.len()];
        for (task, place) in (0..).zip(places) {
            let next = &mut ends[*place as usize];
            order[*next as usize] = task;
            *next += 1;
        }
        ends.truncate(count);
        let sums = std::iter::repeat_with(OnceLock::new).take(count).collect();
        Teams { tasks: tasks.clone(), order, ends, sums }
    }

    /// Places of the tasks of a team.
    fn places(&self, at: usize) -> &[u32] {
        let begin = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.order[begin as usize..self.ends[at] as usize]
    }

    fn sum(&self, at: usize) -> &Counts {
        match self.places(at) {
            [only] => &self.tasks[*only as usize].counts,
            places => self.sums[at].get_or_init(|| {
                let mut sum = Box::<Counts>::default();
                places.iter().for_each(|place| *sum += &self.tasks[*place as usize].counts);
                sum
            }),
        }
    }
}

impl Tally {
    /// The sum of these, which is not made before it is read.
    pub(super) fn sum(mut parts: Vec<Tally>) -> Tally {
        parts.retain(|part| !matches!(part, Tally::Nothing));
        if parts.len() <= 1 {
            return parts.pop().unwrap_or_default();
        }
        let levels = parts.iter().map(Tally::levels).max().unwrap_or(0) + 1;
        let sum = Parts { parts, levels, sum: OnceLock::new() };
        if levels > LEVELS_MAX {
            return Tally::Own(Box::new(sum.sum().clone()));
        }
        Tally::Sum(Arc::new(sum))
    }

    fn levels(&self) -> u32 {
        match self {
            Tally::Sum(parts) => parts.levels,
            Tally::Team(..) => 1,
            _ => 0,
        }
    }

    fn own(&mut self) -> &mut Counts {
        if !matches!(self, Tally::Own(_)) {
            *self = Tally::Own(Box::new(Counts::clone(self)));
        }
        let Tally::Own(counts) = self else { unreachable!("it was made our own above") };
        counts
    }

    /// See [`Counts::add_difference`].
    pub(super) fn add_difference(&mut self, now: &Counts, before: &Counts) {
        match self {
            Tally::Nothing => *self = Counts::difference(now, before).into(),
            _ => self.own().add_difference(now, before),
        }
    }

    /// See [`Counts::clamp`].
    pub fn clamp(&mut self) {
        // The others have never been subtracted from.
        if let Tally::Own(counts) = self {
            counts.clamp();
        }
    }
}

impl Deref for Tally {
    type Target = Counts;

    fn deref(&self) -> &Counts {
        match self {
            Tally::Nothing => &NOTHING,
            Tally::Of(task) => &task.counts,
            Tally::Sum(parts) => parts.sum(),
            Tally::Team(teams, at) => teams.sum(*at as usize),
            Tally::Own(counts) => counts,
        }
    }
}

impl From<Counts> for Tally {
    fn from(counts: Counts) -> Tally {
        Tally::Own(Box::new(counts))
    }
}

impl AddAssign<&Counts> for Tally {
    fn add_assign(&mut self, other: &Counts) {
        *self.own() += other;
    }
}

/// A sum of one task is that task, without a copy.
impl AddAssign<&Arc<TaskRaw>> for Tally {
    fn add_assign(&mut self, task: &Arc<TaskRaw>) {
        match self {
            Tally::Nothing => *self = Tally::Of(Arc::clone(task)),
            _ => *self += &task.counts,
        }
    }
}

impl AddAssign<&Tally> for Tally {
    fn add_assign(&mut self, other: &Tally) {
        match other {
            Tally::Nothing => {}
            Tally::Of(task) => *self += task,
            Tally::Sum(_) | Tally::Team(..) | Tally::Own(_) => *self += &**other,
        }
    }
}

impl SubAssign<&Counts> for Tally {
    fn sub_assign(&mut self, other: &Counts) {
        *self.own() -= other;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::counters::Counter;

    #[test]
    fn adding_to_it_leaves_the_task_as_it_is() {
        let nothing = Tally::default();
        let mut sum = nothing.clone();
        sum += &Counts { run_ns: vec![3], ..Counts::default() }.with([(Counter::Nvcsw, 1)]);
        sum -= &Counts::from([(Counter::Nvcsw, 2)]);
        sum.clamp();
        assert_eq!((sum.cpu_ns(), sum[Counter::Nvcsw]), (3, 0));
        assert_eq!(*nothing, Counts::default());
    }

    #[test]
    fn a_team_is_the_sum_of_its_tasks_wherever_they_stand() {
        let task = |ns| {
            let counts = Counts { run_ns: vec![ns], ..Counts::default() };
            Arc::new(TaskRaw { counts, ..TaskRaw::default() })
        };
        let tasks = TaskRows::from_iter([1, 20, 300, 4_000, 50_000].map(task));
        let teams = Arc::new(Teams::of(&tasks, &[1, 0, 1, 2, 0], 3));
        let sums = [0, 1, 2].map(|at| Tally::Team(Arc::clone(&teams), at).cpu_ns());
        assert_eq!(sums, [50_020, 301, 4_000]);
        let mut sum = Tally::Team(teams, 1);
        sum += &Counts { run_ns: vec![9], ..Counts::default() };
        assert_eq!(sum.cpu_ns(), 310);
    }

    #[test]
    fn a_sum_is_that_of_its_parts_at_any_depth() {
        let task = |ns| {
            let counts = Counts { run_ns: vec![ns], ..Counts::default() };
            Tally::Of(Arc::new(TaskRaw { counts, ..TaskRaw::default() }))
        };
        let mut sum = Tally::sum(vec![Tally::Nothing, task(1)]);
        assert!(matches!(sum, Tally::Of(_)), "a sum of one is that one");
        for _ in 0..100_000 {
            sum = Tally::sum(vec![sum, task(2)]);
        }
        assert_eq!(sum.cpu_ns(), 200_001);
        assert!(sum.levels() <= LEVELS_MAX);
        let before = sum.clone();
        sum += &Counts { run_ns: vec![3], ..Counts::default() };
        assert_eq!((sum.cpu_ns(), before.cpu_ns()), (200_004, 200_001));
    }
}
