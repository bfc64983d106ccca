//! Counts by route of several senders that only grow: their differences between two samples.

use std::collections::BTreeMap;
use std::ops::RangeBounds;
use std::sync::Arc;

use super::sums::Sum;

/// Counts of one route since it was first used.
pub trait Used: Sum + Copy {
    /// The difference since `before`; `None` where a count has fallen: the route was left out meanwhile, and begins at 0.
    fn since(self, before: Self) -> Option<Self>;

    /// Whether nothing was counted.
    fn is_none(self) -> bool;
}

/// Implements [`Used`] and [`Sum`] for a struct of counts.
macro_rules! traffic_counts {
    ($type:ident { $($field:ident),+ $(,)? }) => {
        $crate::model::sums::sums!($type { $($field),+ });

        impl $crate::model::traffic::Used for $type {
            fn since(self, before: $type) -> Option<$type> {
                Some($type { $($field: self.$field.checked_sub(before.$field)?),+ })
            }

            fn is_none(self) -> bool {
                $(self.$field == 0)&&+
            }
        }
    };
}

pub(crate) use traffic_counts;

/// Counts of one sender by route.
pub type Routes<R, U> = BTreeMap<R, U>;

/// Counts since `before`, without routes that were not used.
pub fn since<R: Ord + Clone, U: Used>(now: &Routes<R, U>, before: Option<&Routes<R, U>>) -> Routes<R, U> {
    let since = |(route, now): (&R, &U)| {
        let known = before.and_then(|before| now.since(*before.get(route)?));
        (route.clone(), known.unwrap_or(*now))
    };
    now.iter().map(since).filter(|(_, used)| !used.is_none()).collect()
}

/// Counts of these senders between two samples, as far as anything was counted.
pub fn between<'a, S: Ord + Copy, R: Ord + Clone, U: Used + PartialEq>(
    before: &'a BTreeMap<S, Arc<Routes<R, U>>>,
    now: &'a BTreeMap<S, Arc<Routes<R, U>>>,
    senders: impl RangeBounds<S>,
) -> impl Iterator<Item = (S, Routes<R, U>)> + 'a {
    let changed = now.range(senders).filter(|(sender, now)| before.get(sender) != Some(now));
    changed.map(|(sender, now)| (*sender, since(now, before.get(sender).map(|old| &**old))))
}

/// The sum over routes.
pub fn total<'a, U: Used + 'a>(used: impl Iterator<Item = &'a U>) -> U {
    used.fold(U::default(), |mut sum, used| {
        sum.add(used);
        sum
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::disks::{DiskRoute, DiskTraffic, DiskUse};
    use crate::model::units::NodeId;

    #[test]
    fn a_route_that_returns_begins_at_nothing() {
        let traffic = |routes: &[(&str, u32, u64, u64)]| -> DiskTraffic {
            let route = |(disk, from, bytes, requests): &(&str, u32, u64, u64)| {
                let route = DiskRoute { disk: (*disk).into(), from: NodeId(*from) };
                (route, DiskUse { bytes: *bytes, requests: *requests })
            };
            routes.iter().map(route).collect()
        };
        let before = traffic(&[("a", 0, 100, 10), ("b", 0, 7, 7), ("c", 1, 5, 1)]);
        let now = traffic(&[("a", 0, 150, 11), ("a", 1, 8, 2), ("b", 0, 3, 1), ("c", 1, 5, 1)]);
        let sent = traffic(&[("a", 0, 50, 1), ("a", 1, 8, 2), ("b", 0, 3, 1)]);
        assert_eq!(since(&now, Some(&before)), sent);
        assert_eq!(since(&now, None), now);
    }
}
