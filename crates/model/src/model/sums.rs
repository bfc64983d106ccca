//! Sums over CPUs, rows and intervals: a struct declares once that its fields add up.

use std::collections::BTreeMap;

use super::counts::{Slot, add_slots};
use super::wire::SLOTS;

/// A quantity that adds up. Its default is the sum of nothing.
pub trait Sum: Default {
    /// Adds another part. Integers saturate: a recording may hold any number.
    fn add(&mut self, more: &Self);
}

impl Sum for u64 {
    fn add(&mut self, more: &u64) {
        *self = self.saturating_add(*more);
    }
}

impl Sum for [Slot; SLOTS] {
    fn add(&mut self, more: &[Slot; SLOTS]) {
        add_slots(self, more);
    }
}

/// Known from the first known part on.
impl<T: Sum> Sum for Option<T> {
    fn add(&mut self, more: &Option<T>) {
        if let Some(more) = more {
            self.get_or_insert_default().add(more);
        }
    }
}

impl<K: Ord + Clone, V: Sum> Sum for BTreeMap<K, V> {
    fn add(&mut self, more: &BTreeMap<K, V>) {
        for (key, more) in more {
            match self.get_mut(key) {
                Some(sum) => sum.add(more),
                None => self.entry(key.clone()).or_default().add(more),
            }
        }
    }
}

/// A sum that is known where each of its parts is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownSum(Option<u64>);

impl KnownSum {
    /// The sum; `None` where a part is unknown.
    pub fn get(self) -> Option<u64> {
        self.0
    }
}

impl Default for KnownSum {
    fn default() -> KnownSum {
        KnownSum(Some(0))
    }
}

impl From<Option<u64>> for KnownSum {
    fn from(part: Option<u64>) -> KnownSum {
        KnownSum(part)
    }
}

impl Sum for KnownSum {
    fn add(&mut self, more: &KnownSum) {
        self.0 = self.0.zip(more.0).map(|(sum, more)| sum.saturating_add(more));
    }
}

/// Implements [`Sum`] for a struct: all of its fields add up, and none can be forgotten.
macro_rules! sums {
    ($type:ident { $($field:ident),+ $(,)? }) => {
        impl $crate::model::sums::Sum for $type {
            fn add(&mut self, more: &$type) {
                let $type { $($field),+ } = more;
                $($crate::model::sums::Sum::add(&mut self.$field, $field);)+
            }
        }
    };
}

pub(crate) use sums;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug, Default, PartialEq)]
    struct Parts {
        whole: u64,
        some: Option<u64>,
        known: KnownSum,
    }

    sums!(Parts { whole, some, known });

    fn parts() -> impl Strategy<Value = Vec<Parts>> {
        let part = (any::<u64>(), any::<Option<u64>>(), proptest::option::weighted(0.9, any::<u64>()));
        let part = part.prop_map(|(whole, some, known)| Parts { whole, some, known: known.into() });
        proptest::collection::vec(part, 0..8)
    }

    fn sum<'a>(parts: impl IntoIterator<Item = &'a Parts>) -> Parts {
        parts.into_iter().fold(Parts::default(), |mut sum, part| {
            sum.add(part);
            sum
        })
    }

    proptest! {
        #[test]
        fn the_order_and_the_split_of_parts_change_no_sum(parts in parts(), at in 0usize..8) {
            let at = at.min(parts.len());
            let (left, right) = (sum(&parts[..at]), sum(&parts[at..]));
            prop_assert_eq!(sum([&left, &right]), sum(&parts));
            prop_assert_eq!(sum(parts.iter().rev()), sum(&parts));
        }
    }

    #[test]
    fn an_unknown_part_makes_a_known_sum_unknown() {
        let known = |part: Option<u64>| Parts { known: part.into(), ..Parts::default() };
        assert_eq!(sum([&known(Some(2)), &known(Some(3))]).known.get(), Some(5));
        assert_eq!(sum([&known(Some(2)), &known(None), &known(Some(3))]).known.get(), None);
    }
}
