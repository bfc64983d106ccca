//! Counts of a row without a copy where none is needed: most threads of a busy machine rest.

use std::ops::{AddAssign, Deref, SubAssign};
use std::sync::{Arc, LazyLock};

use crate::model::sample::{Counts, TaskRaw};

static NOTHING: LazyLock<Counts> = LazyLock::new(Counts::default);

/// Reads as [`Counts`]. Becomes a copy of its own when it is added to.
#[derive(Clone, Debug, Default)]
pub enum Tally {
    /// All zero.
    #[default]
    Nothing,
    /// The counts of the task itself.
    Of(Arc<TaskRaw>),
    Own(Box<Counts>),
}

impl Tally {
    fn own(&mut self) -> &mut Counts {
        if !matches!(self, Tally::Own(_)) {
            *self = Tally::Own(Box::new(Counts::clone(self)));
        }
        let Tally::Own(counts) = self else { unreachable!("it was made our own above") };
        counts
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
            Tally::Own(counts) => *self += &**counts,
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
}
