//! The rows that have series of their own, and the rest as one row. Pure.
//!
//! Each amount goes to exactly one series in each interval: to the row's own while it is among the first, else to the rest.
//! So sums over all series are right at any time, and no series goes down.

use std::collections::BTreeMap;

/// A sum over rows.
pub(super) trait Sum: Clone + Default {
    /// Adds another.
    fn add(&mut self, other: &Self);
    /// The amount by which rows are ranked.
    fn weight(&self) -> f64;
}

/// Weights of an interval count so much in the next: a row does not come and go with each.
const DECAY: f64 = 0.9;
/// Rows whose totals are kept after they left.
const KEPT: usize = 10_000;

#[derive(Clone, Debug, Default)]
struct TopRow<S> {
    weight: f64,
    total: S,
    /// It once had a separate series.
    was_first: bool,
    is_first: bool,
}

/// Totals by row.
#[derive(Clone, Debug)]
pub(super) struct Top<K, S> {
    limit: usize,
    rows: BTreeMap<K, TopRow<S>>,
    rest: S,
    has_rest: bool,
}

impl<K: Ord + Clone, S: Sum> Top<K, S> {
    /// Keeps up to `limit` rows separate.
    pub(super) fn new(limit: usize) -> Top<K, S> {
        Top { limit, rows: BTreeMap::new(), rest: S::default(), has_rest: false }
    }

    /// Adds what each row did in an interval.
    pub(super) fn take(&mut self, interval: BTreeMap<K, S>) {
        for row in self.rows.values_mut() {
            row.weight *= DECAY;
            row.is_first = false;
        }
        for (key, did) in &interval {
            self.rows.entry(key.clone()).or_insert_with(TopRow::default_of).weight += did.weight();
        }
        let mut order: Vec<(&K, f64)> = self.rows.iter().map(|(key, row)| (key, row.weight)).collect();
        order.sort_by(|one, other| other.1.total_cmp(&one.1).then_with(|| one.0.cmp(other.0)));
        let first: Vec<K> = order.into_iter().take(self.limit).map(|(key, _)| key.clone()).collect();
        for key in &first {
            if let Some(row) = self.rows.get_mut(key) {
                (row.is_first, row.was_first) = (true, true);
            }
        }
        for (key, did) in interval {
            match self.rows.get_mut(&key).filter(|row| row.is_first) {
                Some(row) => row.total.add(&did),
                None => {
                    self.rest.add(&did);
                    self.has_rest = true;
                }
            }
        }
        self.forget();
    }

    /// Rows that were never a series go first, then those with the least weight.
    fn forget(&mut self) {
        if self.rows.len() <= KEPT {
            return;
        }
        let mut order: Vec<(K, bool, f64)> =
            self.rows.iter().map(|(key, row)| (key.clone(), row.was_first, row.weight)).collect();
        order.sort_by(|one, other| one.1.cmp(&other.1).then(one.2.total_cmp(&other.2)));
        for (key, ..) in order.into_iter().take(self.rows.len() - KEPT) {
            self.rows.remove(&key);
        }
    }

    /// Rows with a series of their own now, and the rest if any amount ever went there.
    pub(super) fn series(&self) -> impl Iterator<Item = (Option<&K>, &S)> {
        let first =
            self.rows.iter().filter(|(_, row)| row.is_first).map(|(key, row)| (Some(key), &row.total));
        first.chain(self.has_rest.then_some((None, &self.rest)))
    }

    /// Whether the row has a separate series now.
    pub(super) fn is_first(&self, key: &K) -> bool {
        self.rows.get(key).is_some_and(|row| row.is_first)
    }
}

impl<S: Sum> TopRow<S> {
    fn default_of() -> TopRow<S> {
        TopRow { weight: 0.0, total: S::default(), was_first: false, is_first: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, Default, PartialEq)]
    struct Amount(f64);

    impl Sum for Amount {
        fn add(&mut self, other: &Amount) {
            self.0 += other.0;
        }

        fn weight(&self) -> f64 {
            self.0
        }
    }

    fn interval(rows: &[(&str, f64)]) -> BTreeMap<String, Amount> {
        rows.iter().map(|(key, amount)| (key.to_string(), Amount(*amount))).collect()
    }

    fn shown(top: &Top<String, Amount>) -> Vec<(String, f64)> {
        top.series().map(|(key, sum)| (key.cloned().unwrap_or("rest".into()), sum.0)).collect()
    }

    #[test]
    fn a_row_that_leaves_and_comes_back_goes_on_where_it_was() {
        let mut top = Top::new(1);
        top.take(interval(&[("a", 10.0), ("b", 1.0)]));
        assert_eq!(shown(&top), [("a".into(), 10.0), ("rest".into(), 1.0)]);
        top.take(interval(&[("a", 0.5), ("b", 100.0)]));
        assert_eq!(shown(&top), [("b".into(), 100.0), ("rest".into(), 1.5)]);
        top.take(interval(&[("a", 500.0)]));
        assert_eq!(shown(&top), [("a".into(), 510.0), ("rest".into(), 1.5)]);
    }

    #[test]
    fn all_amounts_are_in_the_sums_of_rises_and_no_series_goes_down() {
        let mut top = Top::new(3);
        let (mut given, mut risen) = (0.0, 0.0);
        let mut before: BTreeMap<String, f64> = BTreeMap::new();
        for step in 0..500_u32 {
            let rows: Vec<(String, f64)> = (0..10_u32)
                .map(|row| (row.to_string(), f64::from(step.wrapping_mul(2_654_435_761) >> (row + 8) & 63)))
                .collect();
            given += rows.iter().map(|(_, amount)| amount).sum::<f64>();
            top.take(rows.into_iter().map(|(key, amount)| (key, Amount(amount))).collect());
            for (key, total) in shown(&top) {
                let old = before.insert(key.clone(), total).unwrap_or(0.0);
                assert!(total >= old, "{key} went from {old} to {total}");
                risen += total - old;
            }
        }
        assert!((given - risen).abs() < 1e-6, "{given} and {risen}");
    }
}
