//! The processes that use most, found in one pass over all of them.

use std::cmp::Reverse;

use crate::snapshot::RowUse;

/// CPU time in ns, memory in bytes, the id of the process, and its place among the rows. More goes first, and
/// of equal ones the lower id, so that the order of rows does not matter. Of two rows with one id, one has
/// ended and is not offered.
type Use = (Reverse<u64>, Reverse<u64>, u32, usize);

/// The first `room` of all offered processes.
pub(super) struct Most {
    room: usize,
    /// Up to twice `room`: then half of them are dropped.
    found: Vec<Use>,
    /// The last one that fitted, once `room` was reached: a later one in the order cannot be among them.
    last: Option<Use>,
}

impl Most {
    /// With this room.
    pub(super) fn of(room: usize) -> Most {
        Most { room, found: Vec::with_capacity(2 * room), last: None }
    }

    /// Offers the process at this place. Whether it counts is asked only where it can matter: that takes a look at its row.
    pub(super) fn offer(&mut self, row: &RowUse, at: usize, counts: impl FnOnce() -> bool) {
        let new = (Reverse(row.run_ns), Reverse(row.rss_bytes), row.pid, at);
        if self.last.is_some_and(|last| new > last) || !counts() {
            return;
        }
        self.found.push(new);
        if self.found.len() >= 2 * self.room.max(1) {
            self.cut(self.room);
        }
    }

    /// Places of the first `count`, in any order.
    pub(super) fn places(mut self, count: usize) -> impl Iterator<Item = usize> {
        self.cut(count.min(self.room));
        self.found.into_iter().map(|(.., at)| at)
    }

    fn cut(&mut self, count: usize) {
        if self.found.len() <= count {
            return;
        }
        match count.checked_sub(1) {
            Some(last) => self.last = Some(*self.found.select_nth_unstable(last).1),
            None => self.last = None,
        }
        self.found.truncate(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Amounts with many that are equal, in an order that repeats only after all of them.
    fn offered(count: usize) -> Vec<RowUse> {
        let mixed =
            |at: usize, factor: u64, range: u64| (at as u64 + 1).wrapping_mul(factor) % 1_000_003 % range;
        (0..count)
            .map(|at| RowUse {
                pid: (at as u32 + 1).wrapping_mul(31) % 1_000_003,
                run_ns: mixed(at, 7919, 40),
                rss_bytes: mixed(at, 104_729, 3),
            })
            .collect()
    }

    #[test]
    fn they_are_the_first_of_all_in_order_whatever_the_order_of_rows_is() {
        for (count, room, wanted) in
            [(0, 4, 4), (3, 4, 4), (8, 4, 4), (5000, 256, 256), (5000, 256, 100), (40, 4, 0), (9, 0, 0)]
        {
            let all = offered(count);
            let counts = |row: &RowUse| !row.pid.is_multiple_of(7);
            let key = |row: &RowUse| (Reverse(row.run_ns), Reverse(row.rss_bytes), row.pid);
            let mut sorted: Vec<_> = all.iter().filter(|row| counts(row)).map(key).collect();
            sorted.sort();
            let first: Vec<u32> = sorted.iter().take(wanted.min(room)).map(|(.., pid)| *pid).collect();
            for order in [(0..count).collect::<Vec<_>>(), (0..count).rev().collect()] {
                let mut most = Most::of(room);
                for at in order {
                    most.offer(&all[at], at, || counts(&all[at]));
                }
                let mut found: Vec<RowUse> = most.places(wanted).map(|at| all[at]).collect();
                found.sort_by_key(key);
                assert_eq!(
                    found.iter().map(|row| row.pid).collect::<Vec<_>>(),
                    first,
                    "{count} {room} {wanted}"
                );
            }
        }
    }
}
