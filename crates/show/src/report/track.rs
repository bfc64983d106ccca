//! The course of one metric over the time of a report: sums by bucket, and the least and the most of an interval.

use super::buckets::Grid;
use crate::metric::over::Quotient;

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
    use super::*;

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
