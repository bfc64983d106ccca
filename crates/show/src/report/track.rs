//! The time axis of a report, and the course of one metric on it: buckets of a round width, with the sums of each, and the
//! least and the most of an interval.

use crate::metric::over::Quotient;

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

/// Sums of one bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cell {
    /// The value is `num / den`: the scale of the metric is in `num`.
    pub num: f64,
    /// Of a rate, a share of time and a level it is time in ns.
    pub den: f64,
    /// The least and the most of an interval that overlaps the bucket; of none yet where the first is above the second.
    pub low: f32,
    /// See `low`.
    pub high: f32,
}

impl Cell {
    /// The value; `None` without a measurement.
    pub fn value(&self) -> Option<f64> {
        (self.den > 0.0).then(|| self.num / self.den).filter(|value| value.is_finite())
    }
}

/// The course of one metric of one row.
#[derive(Clone, Debug)]
pub struct Track {
    /// One cell a bucket.
    pub cells: Vec<Cell>,
}

impl Track {
    /// A course without any value yet.
    pub fn new(grid: &Grid) -> Track {
        let none = Cell { low: f32::INFINITY, high: f32::NEG_INFINITY, ..Cell::default() };
        Track { cells: vec![none; grid.count] }
    }

    /// Adds the sums of an interval. `shares`: see [`Grid::spread`]. `is_whole`: it spans no gap, so its
    /// value is valid at its time.
    pub fn add(&mut self, sums: Quotient, shares: &[(usize, f64)], is_whole: bool) {
        if !(sums.den > 0.0 && sums.num.is_finite() && sums.den.is_finite()) {
            return;
        }
        let value = sums.value() as f32;
        for (bucket, share) in shares {
            let Some(cell) = self.cells.get_mut(*bucket) else { continue };
            cell.num += sums.num * sums.scale * share;
            cell.den += sums.den * share;
            if is_whole {
                cell.low = cell.low.min(value);
                cell.high = cell.high.max(value);
            }
        }
    }

    /// Sums over some buckets.
    pub fn sums(&self, cells: impl Iterator<Item = usize>) -> Quotient {
        let cells = cells.filter_map(|at| self.cells.get(at));
        let (num, den) = cells.fold((0.0, 0.0), |(num, den), cell| (num + cell.num, den + cell.den));
        Quotient::of(num, den)
    }

    /// The value over the whole time; `None` without a measurement.
    pub fn value(&self) -> Option<f64> {
        let all = self.sums(0..self.cells.len());
        (all.den > 0.0).then(|| all.value())
    }

    /// The largest value of any bucket; 0 without a measurement.
    pub fn most(&self) -> f64 {
        self.cells.iter().filter_map(Cell::value).fold(0.0, f64::max)
    }

    /// The value that so large a share of the measured time (0 to 1) is below or at, as far as buckets tell.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let mut values: Vec<f64> = self.cells.iter().filter_map(Cell::value).collect();
        if values.is_empty() {
            return None;
        }
        values.sort_by(f64::total_cmp);
        let at = (share * (values.len() - 1) as f64).round() as usize;
        values.get(at).copied()
    }

    /// The bucket with the largest or the smallest value, and that value: beyond every [`Track::quantile`].
    pub fn worst(&self, is_least: bool) -> Option<(usize, f64)> {
        let sign = if is_least { -1.0 } else { 1.0 };
        let values = self.cells.iter().enumerate().filter_map(|(at, cell)| Some((at, cell.value()?)));
        // The first of equal ones.
        values.reduce(|worst, next| if sign * next.1 > sign * worst.1 { next } else { worst })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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

    fn track() -> Track {
        let grid = Grid { begin_ns: 0, width_ns: 10, count: 4 };
        let mut track = Track::new(&grid);
        track.add(Quotient::pct(5.0, 10.0), &[(0, 1.0)], true);
        track.add(Quotient::pct(1.0, 10.0), &[(0, 0.5), (1, 0.5)], true);
        track.add(Quotient::pct(9.0, 10.0), &[(3, 1.0)], true);
        track
    }

    #[test]
    fn sums_of_buckets_are_sums_of_intervals() {
        let all = track().sums(0..4);
        assert_eq!((all.num, all.den), (1500.0, 30.0));
        assert_eq!(track().value(), Some(50.0));
        assert_eq!(track().cells[2].value(), None);
    }

    #[test]
    fn the_band_has_the_intervals_in_it() {
        let track = track();
        assert_eq!((track.cells[0].low, track.cells[0].high), (10.0, 50.0));
        assert_eq!((track.worst(false), track.worst(true)), (Some((3, 90.0)), Some((1, 10.0))));
        assert_eq!(track.quantile(0.5), Some(36.666_666_666_666_664));
    }

    #[test]
    fn an_interval_across_a_gap_has_sums_and_no_extremes() {
        let mut track = track();
        track.add(Quotient::pct(10.0, 10.0), &[(2, 1.0)], false);
        assert_eq!(track.cells[2].value(), Some(100.0));
        assert!(track.cells[2].low > track.cells[2].high);
    }

    #[test]
    fn nothing_is_measured_where_nothing_was_divided_by() {
        let mut track = track();
        track.add(Quotient::of(0.0, 0.0), &[(2, 1.0)], true);
        assert_eq!(track.cells[2].value(), None);
    }
}
