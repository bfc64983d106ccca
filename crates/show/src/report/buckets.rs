//! The time axis of a report: buckets of a round width, and the shares of an interval that lie in each.

const SECOND: i64 = 1_000_000_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// Widths that people can read off an axis, in ns. Beyond the last one they double.
const WIDTHS: [i64; 17] = [
    SECOND,
    2 * SECOND,
    5 * SECOND,
    10 * SECOND,
    15 * SECOND,
    30 * SECOND,
    MINUTE,
    2 * MINUTE,
    5 * MINUTE,
    10 * MINUTE,
    15 * MINUTE,
    30 * MINUTE,
    HOUR,
    2 * HOUR,
    6 * HOUR,
    12 * HOUR,
    DAY,
];

/// Buckets of equal width, from the first interval to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Where the first bucket begins, wall clock in ns since 1970: a multiple of the width.
    pub begin_ns: i64,
    /// Width of a bucket in ns, above 0.
    pub width_ns: i64,
    /// Number of buckets, at least 1.
    pub count: usize,
}

impl Grid {
    /// At most `points` buckets for the time from `first` to `last` (ns since 1970), none of them shorter than an interval.
    pub fn new((first, last): (i64, i64), interval_ns: i64, points: usize) -> Grid {
        let (first, last) = (first.min(last), first.max(last));
        let mut widths = WIDTHS.iter().copied();
        let mut width = SECOND;
        loop {
            width = widths.next().unwrap_or_else(|| width.saturating_mul(2));
            let begin = first.div_euclid(width).saturating_mul(width);
            // A recording may say any time: the span of two may be more than a number holds.
            let span = i128::from(last) - i128::from(begin);
            let count = (span + i128::from(width) - 1) / i128::from(width);
            if width >= interval_ns && count <= points.max(1) as i128 || width > i64::MAX / 4 {
                return Grid { begin_ns: begin, width_ns: width, count: (count.max(1) as usize).min(points) };
            }
        }
    }

    /// The same time in at most `points` buckets; each is a whole number of these.
    pub fn coarser(&self, points: usize) -> Grid {
        let each = self.count.div_ceil(points.max(1)).max(1);
        Grid {
            width_ns: self.width_ns.saturating_mul(each as i64),
            count: self.count.div_ceil(each),
            ..*self
        }
    }

    /// Where a bucket begins, in ns since 1970.
    pub fn begins(&self, bucket: usize) -> i64 {
        self.begin_ns.saturating_add(self.width_ns.saturating_mul(bucket as i64))
    }

    /// Where the last bucket ends, in ns since 1970.
    pub fn end_ns(&self) -> i64 {
        self.begins(self.count)
    }

    /// The bucket of a moment; the first or the last one if the moment is outside.
    pub fn bucket(&self, wall_ns: i64) -> usize {
        let at = i128::from(wall_ns) - i128::from(self.begin_ns);
        (at / i128::from(self.width_ns)).clamp(0, self.count as i128 - 1) as usize
    }

    /// The buckets that an interval overlaps, and its share in each. Shares add up to 1, so that no sum is
    /// lost.
    pub fn spread(&self, (from, to): (i64, i64)) -> Vec<(usize, f64)> {
        let (from, to) = (from.min(to), to);
        let (first, last) = (self.bucket(from), self.bucket(to.saturating_sub(1).max(from)));
        if first == last {
            return vec![(first, 1.0)];
        }
        let begin = from.clamp(self.begin_ns, self.end_ns());
        let end = to.clamp(self.begin_ns, self.end_ns());
        let length = (end as i128 - begin as i128).max(1) as f64;
        let share = |bucket: usize| {
            let (left, right) = (self.begins(bucket).max(begin), self.begins(bucket + 1).min(end));
            (right as i128 - left as i128).max(0) as f64 / length
        };
        (first..=last).map(|bucket| (bucket, share(bucket))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_width_is_the_least_that_fits() {
        let day = Grid::new((0, DAY), 5 * SECOND, 1440);
        assert_eq!((day.width_ns, day.count), (MINUTE, 1440));
        let minute = Grid::new((1_500_000_000, 91_500_000_000), 1_000_800_000, 1440);
        assert_eq!((minute.width_ns, minute.begin_ns, minute.count), (2 * SECOND, 0, 46));
        assert_eq!(Grid::new((7, 7), SECOND, 100).count, 1);
        // A clock that was wrong at first.
        let wide = Grid::new((0, 1_800_000_000 * SECOND), SECOND, 1440);
        assert!(wide.count <= 1440 && wide.end_ns() >= 1_800_000_000 * SECOND);
        assert!(Grid::new((i64::MIN, i64::MAX), SECOND, 100).count <= 100);
    }

    #[test]
    fn an_interval_counts_in_each_bucket_that_it_overlaps() {
        let grid = Grid { begin_ns: 0, width_ns: 1000, count: 4 };
        assert_eq!(grid.spread((500, 1500)), [(0, 0.5), (1, 0.5)]);
        assert_eq!(grid.spread((1000, 2000)), [(1, 1.0)]);
        assert_eq!(grid.spread((-1000, 1000)), [(0, 1.0)]);
        assert_eq!(grid.spread((9000, 9500)), [(3, 1.0)]);
    }

    #[test]
    fn a_coarser_grid_is_made_of_whole_buckets() {
        let grid = Grid { begin_ns: 60, width_ns: 10, count: 1440 };
        assert_eq!(grid.coarser(240), Grid { begin_ns: 60, width_ns: 60, count: 240 });
        assert_eq!(grid.coarser(1000).count, 720);
        assert_eq!(grid.coarser(2000), grid);
    }

    proptest! {
        #[test]
        fn no_part_of_an_interval_is_lost(from in -5000i64..9000, length in 0i64..9000) {
            let grid = Grid { begin_ns: 0, width_ns: 700, count: 5 };
            let shares: f64 = grid.spread((from, from + length)).iter().map(|(_, share)| share).sum();
            prop_assert!((shares - 1.0).abs() < 1e-9);
        }
    }
}
